"""TCAV of folders of photographs on an ImageNet network, with a folder of random photographs as baseline.

python docs/examples/real_tcav.py photographs striped CUB_200_2011 model

The photographs of ImageNet are named INDEX_name.jpg, by the index of their class, and sorted into the folders that
`tcav_folders` takes; `untrained` in place of `model` gives the network with random weights. P-values of TCAV are those
of the mean derivative, corrected for the folders and layers of a class.
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
from imagenet_network import TRANSFORM, load_photographs

from captum_concepts import ConceptBank, LayerFeatures, tcav_folders

LAYERS = [f"0.network._blocks.{number}" for number in (4, 10, 14)]


def main(photographs: str, textures: str, cub: str, network: str) -> None:
    """Print each folder's accuracy, then for each class its TCAV score, mean derivative and adjusted p-value."""
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    files = sorted(Path(photographs).glob("*.jpg"))
    by_index = {
        name: [f for f in files if f.name.startswith(name)]
        for name in ("340_", "292_", "282_")
    }
    zebra, tigers = by_index["340_"], by_index["292_"] + by_index["282_"]
    random_files = [path for path in files if path not in zebra + tigers]
    random_files = [random_files[i] for i in draw.permutation(len(random_files))]
    birds = sorted(Path(cub, "images").glob("*/*.jpg"))
    classes = {
        word: [f for f in birds if word in str(f)]
        for word in ("Indigo", "ooty_Albatross")
    }
    other_birds = [
        f for f in birds if "Indigo" not in str(f) and "lbatross" not in str(f)
    ]
    folders = {
        "stripes": sorted(Path(textures).glob("*"))[:30],
        "birds": [
            other_birds[i] for i in draw.choice(len(other_birds), 30, replace=False)
        ],
        "other photographs": random_files[160:190],
    }
    folders |= {f"random_{k}": random_files[20 * k : 20 * k + 20] for k in range(8)}
    images = {
        "zebra": (340, load_photographs(zebra + random_files[190:])),
        "tiger": (292, load_photographs(tigers + random_files[190:])),
        "school bus": (779, load_photographs(random_files[190:])),
        "indigo bunting": (14, load_photographs(classes["Indigo"][:30])),
        "albatross": (146, load_photographs(classes["ooty_Albatross"][:30])),
    }
    module = getattr(imagenet_network, network)()
    directions, scores = [], []
    with tempfile.TemporaryDirectory() as root:
        for name, members in folders.items():
            folder = Path(root, name)
            folder.mkdir()
            for i, path in enumerate(members):
                shutil.copy(path, folder / f"{i:03}_{path.name}")
        for layer in LAYERS:
            bank = ConceptBank.from_folders(
                LayerFeatures(module, layer), root, transform=TRANSFORM
            )
            fitted = zip(
                bank.names,
                bank.test_accuracy.tolist(),
                bank.p_values.tolist(),
                strict=True,
            )
            directions += [
                (name, layer, f"{accuracy:.2f}, {p:.4f}")
                for name, accuracy, p in fitted
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
                    text = f"{at.score:.2f}, {at.derivative:.2g}, {at.p_adjusted:.3f}"
                    scores.append((name, folder, layer, text))
        print(pivot(scores, ["class", "folder"]))


def pivot(rows: list[tuple[str, ...]], index: list[str]) -> str:
    """Return a text table with a column a layer."""
    frame = pd.DataFrame(rows, columns=[*index, "layer", "text"])
    return frame.pivot(index=index, columns="layer", values="text")[LAYERS].to_string()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
