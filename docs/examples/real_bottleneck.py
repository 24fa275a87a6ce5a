"""Ask whether bottlenecks on real birds are honest: models of one network's embeddings, beside random banks.

python docs/examples/real_bottleneck.py CUB_200_2011 network.py:model network.py:untrained
"""

import sys
import warnings
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from captum_concepts import BottleneckCBM, PostHocCBM, embed, fit_logistic
from captum_concepts.backbones.embedding import Embeddings
from quantus_concepts import OracleHead, UsualMetrics, score_concepts
from quantus_concepts.datasets import CUB200
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.metrics import (
    Completeness,
    ConceptSetCeiling,
    ConceptTaskLeakage,
    InterconceptLeakage,
    SparseHeadAccuracy,
    plot_sparse_heads,
)
from quantus_concepts.studies._models.named_networks import cut_network, load_network

METRICS = {
    "accuracy": "accuracy",
    "oracle accuracy": "oracle accuracy",
    "head gap": "head gap",
    "concept-task leakage": "leakage about classes",
    "concept-task leakage p": "its p",
    "inter-concept leakage": "leakage about concepts",
    "sparse head accuracy": "5 weights a class",
    "completeness": "completeness",
}


class Part(nn.Module):
    """Some columns of the inputs."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.columns = slice(first, last)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return these columns."""
        return inputs[:, self.columns]


class Recital(nn.Module):
    """Concepts that are those of the class that a classifier predicts, whatever is in the image."""

    def __init__(self, classifier: nn.Module, table: Tensor) -> None:
        super().__init__()
        self.classifier, self.table = classifier, table

    def forward(self, features: Tensor) -> Tensor:
        """Return the row of the predicted class."""
        return self.table[self.classifier(features).argmax(1)]


def probes(train: Embeddings) -> nn.Module:
    """Return a probability for each concept, fitted to its labels alone."""
    layer = nn.Linear(train.features.shape[1], train.concept_labels.shape[1])
    with torch.no_grad():
        for j, labels in enumerate(train.concept_labels.T):
            fitted = fit_logistic(train.features, labels.long(), 2, C=0.1)
            layer.weight[j] = fitted.weight[1] - fitted.weight[0]
            layer.bias[j] = fitted.bias[1] - fitted.bias[0]
    return nn.Sequential(layer, nn.Sigmoid())


def models(
    train: Embeddings, names: list[str], table: Tensor
) -> dict[str, PostHocCBM | BottleneckCBM]:
    """Return the models by name; inputs are embeddings and, after them, the true concepts."""
    width, labels, concepts = (
        train.features.shape[1],
        train.labels,
        train.concept_labels,
    )
    embedding, truth = Part(0, width), Part(width, width + len(names))
    known = [(torch.cat([train.features, concepts], 1), labels, concepts)]
    post_hoc = PostHocCBM.fit(
        embedding, known, names=names, min_images=0, random_banks=39
    )
    recital = Recital(fit_logistic(train.features, labels), table)
    layers = {
        "concepts, then classes": (embedding, probes(train)),
        "true concepts": (truth, nn.Identity()),
        "recital of the class": (embedding, recital),
    }
    found: dict[str, PostHocCBM | BottleneckCBM] = {"post-hoc CBM": post_hoc}
    for name, (features, layer) in layers.items():
        with torch.no_grad():
            values = layer(features(known[0][0]))
        head = fit_logistic(values, labels)
        found[name] = BottleneckCBM(features, layer, head, activation=None)
    return found


def score(root: str, spec: str) -> pd.DataFrame:
    """Return the scores of all models of a network's embeddings."""
    network = load_network(spec)
    size = network.image_size or 224
    transform = default_transform(size, network.mode, network.mean, network.std)
    train_set, test_set = (
        CUB200(root, split, transform=transform) for split in ("train", "test")
    )
    counts = train_set.concept_labels.sum(0)
    common = [
        name for name, n in zip(train_set.concept_names, counts, strict=True) if n >= 10
    ]
    train_set, test_set = train_set.select(common), test_set.select(common)
    backbone, _ = cut_network(network, None, test_set[0].image[None])
    train, test = (
        embed(backbone, DataLoader(part, 32), display_progressbar=True)
        for part in (train_set, test_set)
    )
    by_network = fit_logistic(train.features, train.labels)(test.features).argmax(1)
    table = torch.as_tensor(train_set.class_concepts).float()
    images = [
        (
            torch.cat([test.features, test.concept_labels], 1),
            test.labels,
            test.concept_labels,
        )
    ]
    metrics = [
        UsualMetrics(top_l=[1]),
        *(OracleHead(table, score) for score in ("oracle", "gap", "on_labels")),
        ConceptTaskLeakage(),
        InterconceptLeakage(),
        ConceptSetCeiling(),
        SparseHeadAccuracy(),
        Completeness(by_network),
    ]
    known = models(train, common, table)
    thresholds = {name: 0.5 for name in known if name != "post-hoc CBM"}
    return score_concepts(known, images, metrics, value_threshold=thresholds)


def main(root: str, *specs: str) -> None:
    """Print a table and draw the sparse heads of each network."""
    for spec in specs:
        name = f"{Path(spec.rpartition(':')[0]).stem} {spec.rpartition(':')[2]}"
        table = score(root, spec)
        table.to_csv(f"{name} bottleneck.csv", index=False)
        whole = table[
            (table["item"] == "")
            & table["set"].isin(["", "all"])
            & table["l"].isin([5])
            | (table["l"].isna() & (table["item"] == ""))
        ]
        for numbers in (["value"], ["low", "high"]):
            shown = whole[whole["metric"].isin(METRICS)].pivot_table(
                index="model", columns="metric", values=numbers, sort=False
            )
            print(name, shown.round(3).to_string(), sep="\n")
        ceilings = whole[
            whole["metric"].isin(["oracle on labels", "concept-set ceiling"])
        ]
        print(
            ceilings[["metric", "model", "value", "low", "high"]].to_string(index=False)
        )
        figure, _ = plot_sparse_heads(table)
        figure.savefig(f"{name} sparse heads.png", dpi=130)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
