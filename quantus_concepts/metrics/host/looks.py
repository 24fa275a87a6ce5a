"""The one way to see a model again while predicting: a look, which adds columns to the rows of images.

A metric that needs the model again (maps at points, hidden parts, images before a substitution) returns a `Look`. While
predicting, `Look.see` is called once for each batch of each model, and the columns that it gives are kept by its name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from captum_concepts.backbones.pooling import project_maps
from captum_concepts.support.running import onto_device
from quantus_concepts.metrics.host.model import (
    backbone_features,
    concept_maps,
    concept_outputs,
    in_precision_of,
    shares_features,
)


@dataclass(frozen=True)
class Looked:
    """Columns that a look gave, a row for each image or for those at `places` (n,), and what these columns are."""

    columns: Mapping[str, Tensor]
    about: dict[str, Any] = field(default_factory=dict)
    places: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> Self:
        """Return what was seen of the images with these numbers."""
        if self.places is not None:
            place_of = {number: place for place, number in enumerate(self.places.tolist())}
            kept = [(new, place_of[old]) for new, old in enumerate(rows.tolist()) if old in place_of]
            places, rows = (torch.tensor([pair[side] for pair in kept], dtype=torch.int64) for side in (0, 1))
            return replace(self, columns={name: of[rows] for name, of in self.columns.items()}, places=places)
        return replace(self, columns={name: of[rows] for name, of in self.columns.items()})

    @classmethod
    def join(cls, parts: Sequence[tuple[int, Looked | None]]) -> Looked:
        """Return what was seen of several batches, of which the sizes are given; of some nothing was seen."""
        known = [(n, part) for n, part in parts if part is not None]
        first = known[0][1]
        about = [{key: value for key, value in part.about.items() if key != "size"} for _, part in known]
        if any(other != about[0] for other in about):
            raise ValueError("Expected rows of looks with the same settings but they differ.")
        if len({part.about.get("size") for _, part in known}) > 1:
            first = replace(first, about=first.about | {"size": None})
        names = [name for name in first.columns if all(name in part.columns for _, part in known)]
        columns = {name: torch.cat([part.columns[name] for _, part in known]) for name in names}
        if len(known) == len(parts) and all(part.places is None for _, part in known):
            return replace(first, columns=columns)
        start, places = 0, list[Tensor]()
        for n, part in parts:
            if part is not None:
                places.append(start + (torch.arange(n) if part.places is None else part.places))
            start += n
        return replace(first, columns=columns, places=torch.cat(places))


class Looking:
    """Some images of a model, or of a random bank of it, while they are there."""

    def __init__(
        self,
        model: Any,
        rows: Any,
        images: Any,
        features: Tensor | None,
        truth: Mapping[str, Any],
        shared: dict[Hashable, Any] | None = None,
        *,
        baselines: bool = False,
    ) -> None:
        self.model, self.rows, self.features, self.truth = model, rows, features, truth
        self.images = torch.as_tensor(images)
        #: What all models of a batch share; a random bank in place of the concepts; whether baselines are seen too.
        self.shared: dict[Hashable, Any] = {} if shared is None else shared
        self.bank: Any = None
        self.baselines = baselines

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return int(self.images.shape[-2]), int(self.images.shape[-1])

    def with_truth(self, truth: Mapping[str, Any]) -> Looking:
        """Return the same with more truth."""
        if not truth:
            return self
        other = copy.copy(self)
        other.truth = {**self.truth, **truth}
        return other

    def of_bank(self, bank: Any, rows: Any) -> Looking:
        """Return the same of a random bank, with its predictions."""
        other = copy.copy(self)
        other.bank, other.rows, other.baselines = bank, rows, False
        return other

    def take(self, places: np.ndarray) -> Looking:
        """Return some of the images."""
        rows = torch.as_tensor(places)
        other = copy.copy(self)
        other.rows, other.shared = self.rows[rows], {}
        other.images = self.images[rows.to(self.images.device)]
        other.features = None if self.features is None else self.features[rows.to(self.features.device)]
        other.truth = {name: value[rows] for name, value in self.truth.items()}
        return other

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, made once for all models of a batch; the key names all that it depends on."""
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def maps(self, concepts: Tensor) -> Tensor:
        """Return the maps (n, k, h, w) of concepts (n, k)."""
        if self.bank is None:
            return concept_maps(self.model, self.features, self.images, concepts)
        features = in_precision_of(self.model, self.features)  # type: ignore[arg-type]
        return project_maps(self.model.feature_maps(features), self.bank.cavs.to(features), concepts)

    def ask(self, key: Hashable, make: Callable[[torch.device], Any]) -> tuple[Tensor, Tensor]:
        """Return concept values (n, L) and logits (n, K) of other images, which `make` gives on a device.

        Models of one backbone share what it makes of them, by the key.
        """
        device = self.rows.classes.device
        if not shares_features(self.model):
            outputs = concept_outputs(self.model, make(device))
            return outputs.values, outputs.logits
        found = self.once((key, id(self.model.features)), lambda: backbone_features(self.model, make(device)))
        if self.bank is not None:
            model: Any = self.model
            return self.rows.bank_outputs(model.embed_features(found), self.bank)
        outputs = concept_outputs(self.model, self.images, found)
        return outputs.values, outputs.logits

    def tensor(self, name: str) -> Tensor:
        """Return truth of a name on the device of the values."""
        return onto_device(torch.as_tensor(self.truth[name]), self.rows.classes.device)


@dataclass(frozen=True)
class Look:
    """What a metric sees of a model; looks of several metrics with one name are one, `+`."""

    #: Truth that it reads and that is not kept; of the first name, if any, there has to be some.
    reads: tuple[str, ...] = ()
    #: Truth that belongs to the metric, in place of that of the batch.
    bound: Mapping[str, np.ndarray] = field(default_factory=dict)
    #: Whether baseline models are seen on some images only, since looking takes most of the time.
    strided: bool = False
    #: Whether a model that cannot be seen is left out.
    optional: bool = False

    @property
    def name(self) -> str:
        """What rows call it."""
        return type(self).__name__

    def __add__(self, other: Self) -> Self:
        return self

    def missing(self, truth: Mapping[str, Any]) -> str:
        """Return the name of what a batch lacks, "" for nothing."""
        return next((name for name in self.reads[:1] if name not in truth and name not in self.bound), "")

    def see(self, looking: Looking) -> Looked:
        """Return columns of the images."""
        raise NotImplementedError


def named_by(*arrays: Any) -> str:
    """Return a short name of the content of arrays."""
    return "".join(f" {crc32(np.ascontiguousarray(array).tobytes()):08x}" for array in arrays if array is not None)


def look_at(look: Look, looking: Looking, start: int = 0, stride: int = 1, offset: int = 0) -> Looked | None:
    """Return what is seen of a batch whose first image has a number; with a stride of some images, or of none."""
    if not look.strided or stride == 1:
        return look.see(looking)
    places = np.flatnonzero((np.arange(len(looking)) + start + offset) % stride == 0)
    return replace(look.see(looking.take(places)), places=torch.as_tensor(places)) if len(places) else None


def see_all(
    looks: Mapping[str, Look],
    looking: Looking,
    banks: Sequence[Any] = (),
    *,
    start: int = 0,
    first: int = 0,
    stride: int = 1,
    offset: int = 0,
    bank_stride: int = 1,
    bank_offset: int = 0,
) -> dict[str, Looked]:
    """Return what all looks see of a model and of random banks beside it, by name; nothing where truth is missing.

    `start` is the number of the first image, `first` that of the first row of truth that belongs to a metric.
    """
    found: dict[str, Looked | None] = {}
    looks = {name: look for name, look in looks.items() if not look.missing(looking.truth)}
    bank_rows = [looking.rows.of_bank(bank) for bank in banks] if looks else []
    for name, look in looks.items():
        begin = start - first
        bound = {key: torch.as_tensor(of[begin : begin + len(looking)]) for key, of in look.bound.items()}
        own = looking.with_truth(bound)
        found[name] = look_at(look, own, start, stride, offset)
        for number, (bank, rows) in enumerate(zip(banks, bank_rows, strict=True)):
            of_bank = own.of_bank(bank, rows)
            found[name + bank_suffix(number)] = look_at(look, of_bank, start, bank_stride, bank_offset + number)
    return {name: looked for name, looked in found.items() if looked is not None}


def bank_suffix(number: int) -> str:
    """Return the end of the names of looks at a random bank."""
    return f"/{number}"
