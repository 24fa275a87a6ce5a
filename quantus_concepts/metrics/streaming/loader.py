"""Validated batches of images with their labels, from a loader or from arrays given next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from captum_concepts.backbones.embedding import USUAL, check_order, read_batch, stacked
from captum_concepts.support.checks import check_shape, to_class_indices, to_numpy, to_points, to_presence, to_tensor
from captum_concepts.support.running import floating_images
from quantus_concepts.functional.attribution.regions import check_places
from quantus_concepts.functional.concepts.substitution import NO_CONCEPT
from quantus_concepts.metrics.host.alignment import OF_IMAGES, TruthLookup
from quantus_concepts.metrics.host.checks import to_classes

#: Checks ground truth of a name, and returns it as an array with a row for each image.
Check = Callable[[str, Any], Any]


class ConceptBatch(NamedTuple):
    """Images (B, C, H, W) or rows (B, F), those before a substitution, and the truth of each by its name."""

    images: Tensor
    before: Tensor | None
    truth: dict[str, Tensor]


#: Errors for fields that a table needs.
ADDED_REQUIRED = {
    "added": "Expected argument `added` to hold the concept put into each image but it is not given. Pass it, or a "
    "loader over a data set that has it, as PaintedSubstitutions and SUB do."
}
SEEN_REQUIRED = {"concept_labels": "Expected argument `seen` to give batches with concept labels but they have none."}


class EarlierPoints:
    """Part points of another image for each image, drawn from all earlier images."""

    # Drawing from the earlier ones keeps the evaluation one pass over the images for every batch size; the first image
    # has none and scores NaN. Only the points are kept, which take little room. In a range of a data set the points of
    # the images before the range are looked up.

    def __init__(self, seed: int, start: int = 0, look_up: Callable[[Sequence[int]], Tensor] | None = None) -> None:
        self._generator = np.random.default_rng(seed)
        self._generator.random(start)
        self._n_seen, self._look_up = start, look_up
        self._points: list[Tensor] = []

    def draw(self, points: Tensor) -> Tensor:
        """Return points of an earlier image for each image of a batch."""
        place = self._n_seen + np.arange(len(points))
        partner = np.floor(self._generator.random(len(points)) * place).astype(np.int64)
        if self._look_up is None:
            self._points.extend(points)
            earlier = torch.stack([self._points[place] for place in partner])
        else:
            earlier = self._look_up(partner.tolist()).to(points).view_as(points)
        if self._n_seen == 0:
            earlier[0] = torch.nan
        self._n_seen += len(points)
        return earlier


class ConceptBatches:
    """The validated batches of a loader, each with the ground truth whose names `checks` has.

    Truth comes from `given`, checked arrays with a row for each image of the loader, else from the batch, else from the
    data set; from a batch, names that the data sets of this package have are checked here, others by `checks`.
    """

    def __init__(
        self,
        loader: Iterable[object],
        truth_of: TruthLookup,
        given: Mapping[str, Any],
        checks: Mapping[str, Check],
        *,
        n_classes: int | None = None,
        n_concepts: int | None = None,
        last_part: int = -1,
        elsewhere: EarlierPoints | None = None,
        required: Mapping[str, str] | None = None,
        of_metrics: Sequence[tuple[str, np.ndarray]] = (),
    ) -> None:
        self._loader, self._required, self._checks = loader, required or {}, {"labels": to_classes, **checks}
        self._truth_of = truth_of
        arrays = {name: value for name, value in given.items() if value is not None}
        #: Truth that metrics have themselves, whose rows are those of the loader too.
        self._of_metrics = of_metrics
        check_order(loader, [*arrays, *(name for name, _ in of_metrics)])
        # Copies: of arrays from the store of Ray, which cannot be written to, torch warns.
        self._bound = {name: torch.tensor(np.asarray(array)) for name, array in arrays.items()}
        self._of_data: dict[str, Tensor | None] = {}
        self.n_classes, self.n_concepts, self._last_part = n_classes, n_concepts, last_part
        self._elsewhere = elsewhere

    @property
    def n_batches(self) -> int | None:
        """How many batches there are; None where the loader cannot tell."""
        return length_hint(self._loader) or None

    def _find_in_data(self, name: str) -> Tensor | None:
        """Return what the data set knows of its images under a name; None for nothing."""
        if name not in self._of_data:
            value = self._truth_of(name, None, self._checks.get(name), of_images=True)
            check_order(self._loader, [] if value is None else [name])
            self._of_data[name] = None if value is None else torch.tensor(np.asarray(value))
        return self._of_data[name]

    def __iter__(self) -> Iterator[ConceptBatch]:
        n_seen = 0
        for batch in stacked(self._loader):
            concept_batch = self._read_fields(batch, n_seen)
            if not len(concept_batch.images):
                continue
            self._check(concept_batch, n_seen)
            n_seen += len(concept_batch.images)
            truth = concept_batch.truth
            if self._elsewhere is not None and "points" in truth and self._last_part >= 0:
                truth["elsewhere"] = self._elsewhere.draw(truth["points"])
            yield concept_batch
        if not n_seen:
            raise ValueError("Expected argument `loader` to give at least one batch but it is empty.")
        self._check_lengths(n_seen, at_least=False)

    def _read_fields(self, batch: Any, n_seen: int) -> ConceptBatch:
        fields = read_batch(batch)
        images = floating_images(to_tensor("loader", fields.pop("images")))
        # Rows of a table have no places, which only CLM needs.
        if images.ndim != 2 or self._last_part >= 0:
            check_shape("images", images, ("B", "C", "H", "W"), (None, None, None, None))
        rows = slice(n_seen, n_seen + len(images))
        self._check_lengths(rows.stop, at_least=True)
        before = fields.pop("before", None)
        before = None if before is None else floating_images(to_tensor("before", before))
        truth = {}
        for name, check in self._checks.items():
            if name in self._bound:
                truth[name] = self._bound[name][rows]
            elif fields.get(name) is not None:
                value = to_class_indices(name, fields[name]) if name == "labels" else fields[name]
                value = self._truth_of.order.apply(name, value)
                known = name in USUAL or name in OF_IMAGES
                truth[name] = to_tensor(name, value if known else check(name, value))
            elif (column := self._find_in_data(name)) is not None:
                truth[name] = column[rows]
        if "labels" not in truth:
            raise ValueError(
                'Expected argument `loader` to give (images, labels), or `truth` with "labels", but the classes of the '
                "images are missing."
            )
        for name, message in self._required.items():
            if name not in truth:
                raise ValueError(message)
        if "points" in truth:
            truth["points"] = torch.from_numpy(to_points("points", truth["points"]))
            if not truth["points"].shape[1]:
                # Data sets without points of parts may know the parts' masks.
                del truth["points"]
        if "added" in truth and "removed" not in truth:
            truth["removed"] = torch.full_like(truth["added"], NO_CONCEPT)
        return ConceptBatch(images, before, truth)

    def _check(self, batch: ConceptBatch, n_seen: int) -> None:
        images, before, truth = batch
        labels, points = truth["labels"], truth.get("points")
        check_shape("labels", labels, ("B",), (len(images),))
        if "concept_labels" in truth:
            check_shape("concept_labels", truth["concept_labels"], ("B", "L"), (len(images), self.n_concepts))
            to_presence("concept_labels", truth["concept_labels"])
        if before is not None:
            check_shape("before", before, ("B", "C", "H", "W"), tuple(images.shape))
        for name in ("added", "removed"):
            if name in truth:
                check_shape(name, truth[name], ("B",), (len(images),))
        _check_finite(images, n_seen)
        if before is not None:
            _check_finite(before, n_seen)
        if points is not None and self._last_part >= 0:
            check_shape("points", points, ("B", "P", "Q", "2"), (len(images), None, None, 2))
            if self._last_part >= points.shape[1]:
                raise ValueError(
                    f"Expected argument `part_of_concept` to name parts below P = {points.shape[1]} but got "
                    f"{self._last_part}."
                )
            check_places(points, (images.shape[2], images.shape[3]), ("image", "part", "place"))

    def _check_lengths(self, n_images: int, *, at_least: bool) -> None:
        arrays: list[tuple[str, Sized]] = [*self._bound.items(), *self._of_metrics]
        arrays += [(name, array) for name, array in self._of_data.items() if array is not None]
        for name, array in arrays:
            if len(array) < n_images or (not at_least and len(array) > n_images):
                raise ValueError(
                    f"Expected argument `{name}` to hold as many rows as `loader` gives images, "
                    f"{'at least ' if at_least else ''}{n_images}, but got {len(array)}."
                )


def whole_data(loader: object, start: int) -> Any:
    """Return the data set of which a loader gives the range from `start` on, or raise for anything else."""
    part = getattr(loader, "dataset", None)
    if not isinstance(part, Subset) or list(part.indices) != list(range(start, start + len(part))):
        raise ValueError(
            f"Expected argument `loader` to be over Subset(data, range(start, stop)) with `start` = {start}, since "
            "`start` names a range of a data set, but it is not."
        )
    return part.dataset


def points_lookup(data: Any) -> Callable[[Sequence[int]], Tensor]:
    """Return a function that looks up the part points of images by number."""
    place = USUAL.index("points")

    def look_up(images: Sequence[int]) -> Tensor:
        samples = (data[image] for image in images)
        points = (sample["points"] if isinstance(sample, Mapping) else sample[place] for sample in samples)
        return torch.stack([*map(torch.as_tensor, points)])

    return look_up


def _check_finite(images: Tensor, n_seen: int) -> None:
    # On an accelerator the check would synchronise; there the model's values are checked instead.
    if images.device.type != "cpu":
        return
    pixels = to_numpy(images)
    with np.errstate(invalid="ignore", over="ignore"):
        # Summing is four times faster than looking at every number, and the look is needed only rarely.
        if np.isfinite(pixels.sum(dtype=np.result_type(pixels, np.float32))):
            return
    bad = np.flatnonzero(~np.isfinite(pixels.reshape(len(pixels), -1)).all(1))
    if len(bad):
        raise ValueError(
            f"Expected only finite numbers but image {n_seen + int(bad[0])} (from 0) "
            "holds NaN or infinity. Repair the image or the model's weights."
        )
