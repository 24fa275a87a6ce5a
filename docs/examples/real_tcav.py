"""TCAV of folders of photographs on an ImageNet network, with a folder of random photographs as baseline.

python docs/examples/real_tcav.py photographs striped CUB_200_2011 model

The photographs of ImageNet are named INDEX_name.jpg, by the index of their class, and sorted into the folders that
`tcav_folders` takes; `untrained` in place of `model` gives the network with random weights.
"""

import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import imagenet_network
import numpy as np
import pandas as pd
import torch
from imagenet_network import IMAGE_SIZE, MEAN, STD
from PIL import Image
from torchvision.transforms import v2

from captum_concepts import ConceptBank, LayerFeatures, tcav_folders

LAYERS = [f"0.network._blocks.{number}" for number in (4, 10, 14)]
TRANSFORM = v2.Compose(
    [
        v2.ToImage(),
        v2.Resize(IMAGE_SIZE, antialias=True),
        v2.CenterCrop(IMAGE_SIZE),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
)


def read(files: list[Path]) -> torch.Tensor:
    """Return images (N, 3, H, W)."""
    return torch.stack([TRANSFORM(Image.open(each).convert("RGB")) for each in files])


def main(photographs: str, textures: str, cub: str, network: str) -> None:
    """Print the accuracy of each folder's direction, then its TCAV score for each class, with p-values."""
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    files = sorted(Path(photographs).glob("*.jpg"))
    by_index = {
        name: [f for f in files if f.name.startswith(name)]
        for name in ("340_", "292_", "282_")
    }
    zebra, tigers = by_index["340_"], by_index["292_"] + by_index["282_"]
    rest = [each for each in files if each not in zebra + tigers]
    rest = [rest[i] for i in draw.permutation(len(rest))]
    birds = sorted(Path(cub, "images").glob("*/*.jpg"))
    classes = {
        word: [f for f in birds if word in str(f)]
        for word in ("Indigo", "ooty_Albatross")
    }
    others = [f for f in birds if "Indigo" not in str(f) and "lbatross" not in str(f)]
    folders = {
        "stripes": sorted(Path(textures).glob("*"))[:30],
        "birds": [others[i] for i in draw.choice(len(others), 30, replace=False)],
        "other photographs": rest[160:190],
    }
    folders |= {f"random_{k}": rest[20 * k : 20 * k + 20] for k in range(8)}
    images = {
        "zebra": (340, read(zebra + rest[190:])),
        "tiger": (292, read(tigers + rest[190:])),
        "school bus": (779, read(rest[190:])),
        "indigo bunting": (14, read(classes["Indigo"][:30])),
        "albatross": (146, read(classes["ooty_Albatross"][:30])),
    }
    module = getattr(imagenet_network, network)()
    directions, scores = [], []
    with tempfile.TemporaryDirectory() as root:
        for name, members in folders.items():
            folder = Path(root, name)
            folder.mkdir()
            for i, each in enumerate(members):
                shutil.copy(each, folder / f"{i:03}_{each.name}")
        for layer in LAYERS:
            bank = ConceptBank.from_folders(
                LayerFeatures(module, layer), root, transform=TRANSFORM
            )
            found = zip(
                bank.names,
                bank.test_accuracy.tolist(),
                bank.p_values.tolist(),
                strict=True,
            )
            directions += [
                (each, layer, f"{accuracy:.2f}, {p:.4f}") for each, accuracy, p in found
            ]
            directions += [
                ("random sets", layer, f"{bank.settings['random_accuracy']:.2f}")
            ]
        print(pivot(directions, ["folder"]), flush=True)
        for name, (index, inputs) in images.items():
            with torch.no_grad():
                right = (module(inputs).argmax(1) == index).float().mean()
            print(
                f"{name}: {100 * right:.0f} % of {len(inputs)} recognised", flush=True
            )
            tcav = tcav_folders(
                module, LAYERS, root, inputs, index, transform=TRANSFORM
            )
            for folder, score in tcav.items():
                for layer, at in score.layers.items():
                    text = f"{np.mean(at.scores):.2f}, {at.p_value:.2f}"
                    scores.append((name, folder, layer, text))
        print(pivot(scores, ["class", "folder"]))


def pivot(rows: list[tuple[str, ...]], index: list[str]) -> str:
    """Return a text table with a column a layer."""
    frame = pd.DataFrame(rows, columns=[*index, "layer", "text"])
    return frame.pivot(index=index, columns="layer", values="text")[LAYERS].to_string()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
