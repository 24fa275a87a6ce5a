"""Compare the concept models of networks on CUB, photograph by photograph.

python docs/examples/real_networks.py CUB_200_2011 network.py:model docs/examples/imagenet_network.py:model
"""

import sys
import warnings
from pathlib import Path

import pandas as pd
from torch.utils.data import DataLoader

from captum_concepts import PostHocCBM
from quantus_concepts import (
    UsualMetrics,
    compare,
    predict_concepts,
    score_predictions,
)
from quantus_concepts.datasets import CUB200
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.studies._models.named_networks import cut_network, load_network


def score(root: str, spec: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the table of a network's concept model, and the scores of the photographs."""
    network = load_network(spec)
    size = network.image_size or 224
    transform = default_transform(size, network.mode, network.mean, network.std)
    train, test = (
        CUB200(root, split, transform=transform) for split in ("train", "test")
    )
    backbone, _ = cut_network(network, None, test[0].image[None])
    model = PostHocCBM.fit(
        backbone, DataLoader(train, 32), names=train.concept_names, random_banks=39
    )
    test = test.select(model.bank.names)
    metrics = UsualMetrics(top_l=[1], alphas=[1])
    rows = predict_concepts(
        {"post-hoc CBM": model}, DataLoader(test, 32), metrics, display_progressbar=True
    )
    table, images = (
        score_predictions(rows, metrics, value_threshold=0.0, per_image=per_image)
        for per_image in (False, True)
    )
    return table, images


def main(root: str, *specs: str) -> None:
    """Write both tables of each network, and print what differs between the first network and each other."""
    images = {}
    for spec in specs:
        name = Path(spec.rpartition(":")[0]).stem + " " + spec.rpartition(":")[2]
        table, images[name] = score(root, spec)
        table.to_csv(f"{name}.csv", index=False)
        images[name].to_csv(f"{name} images.csv", index=False)
        chosen = table[(table["item"] == "") & (table["baseline"] == "")]
        shown = [
            "model",
            "metric",
            "explanation",
            "set",
            "value",
            "low",
            "high",
            "n",
            "chance",
        ]
        print(name, chosen[shown].round(3).to_string(index=False), sep="\n")
    first, *others = images
    for other in others:
        result = compare(images[first], images[other])
        print(f"{first} less {other}", result.round(3).to_string(index=False), sep="\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
