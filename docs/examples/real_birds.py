"""Explain results on real birds: corrections, CGIM by value, maps that look alike, and three draws of a bank.

python docs/examples/real_birds.py CUB_200_2011 network.py:model features
python docs/examples/real_birds.py CUB_200_2011 docs/examples/imagenet_network.py:model 0
"""

import runpy
import sys
import warnings

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from torch.utils.data import DataLoader

from captum_concepts import ConceptBank, LayerFeatures, embed, fit_logistic
from quantus_concepts.datasets import CUB200
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.functional import interval, part_specificity
from quantus_concepts.functional.attribution.regions import pixel_hits, pixels_of


def accuracy(head: torch.nn.Module, values: Tensor, labels: Tensor) -> str:
    """Return the share of right classes in percent."""
    return f"{100 * (head(values).argmax(1) == labels).float().mean():.0f} %"


def values_of(bank: ConceptBank, features: Tensor) -> Tensor:
    """Return margins (N, L)."""
    return (features @ bank.cavs.T + bank.intercepts) / bank.norms


def corrections(
    values: list[Tensor], classes: list[Tensor], marks: dict[str, list[Tensor]]
) -> None:
    """Print the class accuracy after all concepts are corrected, by annotations, levels and head."""
    (train, test), (train_classes, test_classes) = values, classes
    head = fit_logistic(train, train_classes)
    print("nothing corrected:", accuracy(head, test, test_classes))
    ends = torch.quantile(train, torch.tensor([0.05, 0.95]), dim=0)
    present = marks["photograph"][0]
    means = [
        torch.stack(
            [train[rows, j].mean() for j, rows in enumerate((present == side).T)]
        )
        for side in (0, 1)
    ]
    common = present.sum(0) >= 150
    for name, (train_marks, test_marks) in marks.items():
        print(f"all corrected, annotations by {name}")
        for levels, (low, high) in {
            "5th and 95th percentile": ends,
            "means": means,
        }.items():
            corrected = torch.where(test_marks == 1, high, low)
            print(f"  {levels}:", accuracy(head, corrected, test_classes))
            some = torch.where(common, corrected, test)
            print(
                f"  {levels}, {int(common.sum())} common concepts:",
                accuracy(head, some, test_classes),
            )
        fitted = fit_logistic(train_marks, train_classes)
        print(
            "  a head fitted to annotations:",
            accuracy(fitted, test_marks, test_classes),
        )


def global_importance(
    values: Tensor, classes: Tensor, tables: dict[str, Tensor]
) -> None:
    """Print the mean CGIM by value, and what the cosine is after subtracting means over classes."""
    means = torch.stack(
        [values[classes == k].mean(0) for k in range(len(next(iter(tables.values()))))]
    )
    for name, table in tables.items():
        centred = cosine_similarity(means - means.mean(0), table - table.mean(0), dim=0)
        plain = cosine_similarity(means, table, dim=0)
        print(
            f"CGIM by value with the {name}: {plain.nanmean():.2f}, centred {centred.nanmean():.2f}"
        )


def map_overlap(maps: Tensor, bank: ConceptBank, values: Tensor) -> None:
    """Print how alike the maps of the ten strongest concepts are, and how many patterns the features have."""
    strongest = values.topk(10, dim=1).indices
    concept_maps = torch.einsum("nld,ndp->nlp", bank.cavs[strongest], maps.flatten(2))
    concept_maps = concept_maps - concept_maps.mean(2, keepdim=True)
    concept_maps = concept_maps / concept_maps.norm(dim=2, keepdim=True)
    alike = (concept_maps @ concept_maps.transpose(1, 2))[
        :, ~torch.eye(10, dtype=torch.bool)
    ]
    spread = maps.flatten(2) - maps.flatten(2).mean(2, keepdim=True)
    shares = torch.linalg.svdvals(spread) ** 2
    shares = shares / shares.sum(1, keepdim=True)
    print(f"correlation of two concepts' maps in one photograph: {alike.mean():.2f}")
    print(f"share of the first spatial pattern: {shares[:, 0].mean():.2f}")


def place(
    bank: ConceptBank,
    part_of_concept: Tensor,
    values: list[Tensor],
    classes: Tensor,
    maps: Tensor,
    points: Tensor,
    size: int,
) -> None:
    """Print whether the map of the first concept by value prefers its own part, alpha 1."""
    train, test = values
    predicted = fit_logistic(train, classes)(test).argmax(1).numpy()
    first = test.masked_fill(part_of_concept < 0, -torch.inf).argmax(1)
    parts = part_of_concept[first]
    concept_maps = torch.einsum("nd,ndhw->nhw", bank.cavs[first], maps)
    hits = pixel_hits(
        concept_maps, pixels_of(points, (size, size)), (size, size), (1.0,)
    )
    hits = hits[..., 0]
    counts = torch.bincount(
        part_of_concept[part_of_concept >= 0], minlength=hits.shape[1]
    )
    specificity = part_specificity(hits, parts, counts.float()).difference
    gain = hits.gather(1, parts[:, None])[:, 0]
    for part in parts.unique():
        gain[parts == part] -= hits[parts != part, part].nanmean()
    for name, scores in {
        "part specificity": specificity,
        "own map less the maps of other parts' concepts": gain,
    }.items():
        low, high = interval(scores.numpy(), (-1.0, 1.0), predicted)
        mean = np.nanmean(scores)
        print(f"  {name}: {100 * mean:.1f} ({100 * low:.1f} to {100 * high:.1f}) %")


def main(root: str, network: str, layer: str) -> None:
    """Embed the photographs and print all four."""
    path, _, factory = network.rpartition(":")
    file = runpy.run_path(path)
    features = LayerFeatures(file[factory](), layer)
    size = file.get("IMAGE_SIZE", 224)
    transform = default_transform(size, "resize", file["MEAN"], file["STD"])
    data = [CUB200(root, split, transform=transform) for split in ("train", "test")]
    by_class = [
        CUB200(root, split, "majority", class_concepts="majority")
        for split in ("train", "test")
    ]
    train, test = (embed(features, DataLoader(split, 32)) for split in data)
    for name, marked in {"photograph": data, "class": by_class}.items():
        print(f"--- concepts fitted to annotations by {name}")
        bank = ConceptBank.fit(
            train.features, marked[0].concept_labels, data[0].concept_names
        )
        columns = [data[0].concept_names.index(concept) for concept in bank.names]
        values = [values_of(bank, split.features) for split in (train, test)]
        if name == "photograph":
            marks = {"photograph": data, "class": by_class}
            marks = {
                source: [d.concept_labels[:, columns] for d in sets]
                for source, sets in marks.items()
            }
            corrections(values, [train.labels, test.labels], marks)
            samples = [data[1][i] for i in range(len(data[1]))]
            with torch.no_grad():
                maps = torch.cat([features(sample.image[None]) for sample in samples])
            map_overlap(maps[::4], bank, values[1][::4])
            points = torch.stack([sample.points for sample in samples])
            for seed in range(3):
                print("draw of the SVM's photographs:", seed)
                redrawn = ConceptBank.fit(
                    train.features,
                    data[0].concept_labels,
                    data[0].concept_names,
                    seed=seed,
                )
                of_concepts = [
                    data[0].concept_names.index(concept) for concept in redrawn.names
                ]
                redrawn_values = [
                    values_of(redrawn, split.features) for split in (train, test)
                ]
                place(
                    redrawn,
                    data[1].part_of_concept[of_concepts],
                    redrawn_values,
                    train.labels,
                    maps,
                    points,
                    size,
                )
        tables = {"share of photographs": data[1], "majority": by_class[1]}
        tables = {source: d.class_concepts[:, columns] for source, d in tables.items()}
        global_importance(values[1], test.labels, tables)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
