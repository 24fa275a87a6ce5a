"""Parts of the scores of a seed of the concept study: rows that are kept, and numbers that no metric has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from captum_concepts.support.running import device_of
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.functional import baseline_range, completeness, concept_swap
from quantus_concepts.metrics import (
    ConceptPredictions,
)
from quantus_concepts.metrics.concepts.cgim import global_importance
from quantus_concepts.metrics.concepts.completeness import Completeness
from quantus_concepts.metrics.concepts.names import CGIM_CORRELATION, ITEM, SCORE
from quantus_concepts.metrics.host.model import IMPORTANCES
from quantus_concepts.metrics.host.scores import Row
from quantus_concepts.metrics.streaming.table import (
    kinds_of_rows,
    score_table,
)
from quantus_concepts.painted.subject import (
    POST_HOC,
    RANDOM,
)

#: Batches of a range, which are lost if a worker dies.
BATCHES = 2
TOPS = (1, 3, 5)
#: Images on which the maps of one random bank are scored, at least.
RANDOM_MAPS = 200
#: Accuracy of the heads of other seeds, and the arguments of `concept_swap`.
SWAP = "accuracy, heads of other seeds"
SWAPPED = ("values", "classes", "weights", "biases", "train_mean", "train_deviation")


def completeness_rows(
    models: Mapping[str, ConceptPredictions], controls: Sequence[ConceptPredictions], plain: Tensor
) -> list[Row]:
    """Return the completeness of each model for the plain network's answers, and the range of the random banks."""

    def value_of(rows: ConceptPredictions) -> float:
        return completeness(rows.classes, plain, rows.labels)

    count = {"metric": Completeness.name, "n": len(plain), "chance": 0.0}
    rows = [count | {"model": name, "value": value_of(own)} for name, own in models.items()]
    if banks := [*map(value_of, controls)]:
        low, high = baseline_range(np.array(banks))
        rows.append(count | {"model": RANDOM, "value": float(np.mean(banks)), "low": low, "high": high})
    return rows


def swap_rows(parts: Mapping[int, dict[str, Tensor]]) -> pd.DataFrame:
    """Return for each seed how well the heads of the other seeds read its concepts: of the model, of a random bank."""
    rows = []
    for place, model in enumerate((POST_HOC, RANDOM)):
        if len(parts) < 2 or any(place >= len(own["values"]) for own in parts.values()):
            continue
        swap = concept_swap(*([own[name][place] for own in parts.values()] for name in SWAPPED))
        n = len(parts)
        others = (swap.accuracy.sum(0) - swap.accuracy.diagonal()) / (n - 1)
        for seed, own, value in zip(parts, parts.values(), others.tolist(), strict=True):
            chance = 1 / own["weights"].shape[1]
            fields = {"model": model, "metric": SWAP, "n": own["values"].shape[1], "chance": chance, "seed": seed}
            rows.append(fields | {"value": value})
    return score_table(rows).assign(seed=[row["seed"] for row in rows]) if rows else pd.DataFrame()


#: Beginning of the names of the rows of random banks, and of the tensors of levels; the name of the models' order.
CONTROL, LEVELS, _ORDER = "control ", "levels of ", "models"


def named_rows(
    models: Mapping[str, ConceptPredictions], controls: Sequence[ConceptPredictions]
) -> dict[str, ConceptPredictions]:
    """Return the rows of models and of random banks by name."""
    return {**models, **{f"{CONTROL}{number}": rows for number, rows in enumerate(controls)}}


def pack_rows(rows: Mapping[str, ConceptPredictions]) -> dict[str, Tensor]:
    """Return rows of several models as tensors by name."""
    tensors = {f"{name}|{key}": tensor for name, own in rows.items() for key, tensor in own.tensors().items()}
    # Files sort by name.
    return tensors | {_ORDER: torch.tensor(list(json.dumps([*rows]).encode()), dtype=torch.uint8)}


def unpack_rows(tensors: Mapping[str, Tensor]) -> dict[str, ConceptPredictions]:
    """Return the rows of `pack_rows`."""
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in json.loads(bytes(tensors[_ORDER].tolist()))}
    for key, tensor in tensors.items():
        name, separator, own = key.partition("|")
        if separator:
            parts[name][own] = tensor
    return {name: ConceptPredictions.from_tensors(own) for name, own in parts.items()}


@contextmanager
def recorded(module: nn.Module) -> Iterator[list[Tensor]]:
    """Record what a module is given, batch by batch."""
    batches: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _, inputs: batches.append(inputs[0].detach().clone()))
    try:
        yield batches
    finally:
        hook.remove()


class ClassifiedImages:
    """The batches of a loader, which a network's own classifier sees too, if it has the classes of the data."""

    def __init__(self, loader: DataLoader[ConceptSample], network: nn.Module, n_classes: int) -> None:
        self.loader, self.dataset, self.network, self.n_classes = loader, loader.dataset, network, n_classes
        self.predicted: list[np.ndarray] = []
        #: The network's output, where it is not one number for each class.
        self.other_output = ""

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[ConceptSample]:
        for batch in self.loader:
            if not self.other_output:
                self._classify(batch.image)
            yield batch

    @torch.no_grad()
    def _classify(self, images: Tensor) -> None:
        logits = self.network(images.to(device_of(self.network)))
        if isinstance(logits, Tensor) and logits.shape == (len(images), self.n_classes):
            self.predicted.append(logits.argmax(1).cpu().numpy())
        else:
            self.other_output = f"{logits.shape[-1]} outputs" if isinstance(logits, Tensor) else "output"


@torch.no_grad()
def head_classes(head: nn.Module, inputs: Tensor) -> np.ndarray:
    """Return the classes (N,) that a head predicts for its inputs (N, L)."""
    return head(inputs).argmax(1).cpu().numpy()


def with_undefined(scores: pd.DataFrame, left_out: Sequence[str]) -> pd.DataFrame:
    """Return scores with an undefined one for each concept left out, where there is one for each concept."""
    kinds = kinds_of_rows(scores)
    by_concept = scores[(scores["item_kind"] == "concept") & (kinds == SCORE)]
    if not left_out or by_concept.empty:
        return scores
    what = by_concept["what"].replace(SCORE, ITEM)
    undefined = by_concept.assign(what=what, value=np.nan, low=np.nan, high=np.nan, chance=np.nan, n=0, undefined=1)
    means = scores.index.isin(by_concept.index)
    scores = scores.assign(undefined=scores["undefined"] + len(left_out) * means)
    # Some means are of concepts that have no rows of their own.
    undefined = undefined[undefined["metric"].isin(scores.loc[kinds == ITEM, "metric"])]
    return pd.concat([scores, *(undefined.assign(item=name) for name in left_out)])


def drawn_correlations(
    rows: ConceptPredictions, class_concepts: np.ndarray, draw: int, names: Sequence[str]
) -> pd.DataFrame:
    """Return the CGIM correlation of each concept in one random bank, by explanation; by value over all images."""
    found = []
    for kind in (kind for kind in IMPORTANCES if kind != "effect" or rows.convention(kind)):
        settings = {"centred": True, "only_correct": kind != "value"}
        scores = global_importance(rows, class_concepts, [kind], "concept", **settings)
        found.append(pd.DataFrame({"explanation": kind, "item": list(names), "value": scores.of_call}))
    # Of no image, as the rows of classes: the columns stay whole numbers.
    nowhere = dict.fromkeys(("image", "label", "predicted"), -1)
    return pd.concat(found).assign(model=RANDOM, metric=CGIM_CORRELATION, baseline="", draw=draw, **nowhere)
