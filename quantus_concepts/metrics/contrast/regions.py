"""Subjects (a model, its images, a class) and the attribution inside their regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, RandomSampler

from captum_concepts._support.checks import (
    as_list,
    check_finite,
    check_shape,
    check_whole,
    to_array,
    to_numpy,
    to_tensor,
)
from captum_concepts._support.constraints import (
    Constraint,
    Dictionary,
    Flag,
    Instance,
    Items,
    Module,
    Sizes,
    Whole,
    check_arguments,
)
from captum_concepts._support.progress import progress
from captum_concepts._support.running import evaluation_mode, floating_images, predict_logits
from captum_concepts._support.shown import one_line
from captum_concepts.backbones.embedding import read_batch
from quantus_concepts.functional import concept_attribution, positive_percentile
from quantus_concepts.metrics.host.checks import METHODS, REGIONS, ClassIndices, check_mask_size
from quantus_concepts.metrics.host.rows import RowBuffer


@dataclass(frozen=True)
class Images(Constraint):
    """Images (N, C, H, W), a function from rows to them, or batches of them that can be gone through again."""

    finite: bool = False
    batches: bool = True

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return an array as a tensor and anything else as it is, or raise."""
        if callable(value) or (self.batches and gives_batches(name, value)):
            return value
        images = torch.as_tensor(to_array(name, value))
        check_shape(name, images, ("N", "C", "H", "W"), (None,) * 4)
        if self.finite:
            check_finite(name, images)
        return images


@dataclass(frozen=True)
class RegionMasks(Constraint):
    """Masks (N, 1, H, W) or (N, H, W) of which not all are empty or full, or a function from rows to such."""

    def check(self, name: str, value: Any, sizes: Sizes) -> Masks:
        """Return a function as it is and anything else as a tensor of bool, or raise."""
        return value if callable(value) else torch.from_numpy(REGIONS.check(name, value, sizes))


@check_arguments(model=Module(), labels=ClassIndices(filled=True), images=Images())
@dataclass(frozen=True, eq=False)
class Subject:
    """A model, and the images and classes it is explained for; one object is explained once.

    Parameters
    ----------
    model : nn.Module
        A classifier; it stays on its device, and in its mode.
    images : array_like, callable or iterable
        (N, C, H, W) as the model takes them. Or, so that memory does not grow with their number, a function from a list
        of n rows to such images (n, C, H, W), or batches of them, or of tuples that begin with them, in the order of
        `labels`: a `torch.utils.data.DataLoader`, whose workers read while others are explained, or anything else that
        can be gone through again and again. Images of uint8 are divided by 255, and no more: what the model wants
        normalised has to come so.
    labels : array_like
        (N,) of int: the classes to find and to explain.

    Raises
    ------
    TypeError
        If `model` is no module, an array holds no numbers, or `images` can be gone through only once.
    ValueError
        If images have another rank, a loader shuffles them, labels are no classes, or there is not one for each image,
        or there is no image.
    """

    model: nn.Module
    images: Any
    labels: Any

    def __repr__(self) -> str:
        return one_line(self)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", torch.as_tensor(self.labels).long())
        if isinstance(self.images, Tensor) and len(self.images) != len(self.labels):
            raise ValueError(
                f"Expected argument `labels` to have shape (N,) = ({len(self.images)},), a class for each image, "
                f"but got {tuple(self.labels.shape)}."
            )

    def __len__(self) -> int:
        """Return N."""
        return len(self.labels)

    def batch(self, rows: list[int]) -> Tensor:
        """Return some images in floating point.

        Parameters
        ----------
        rows : list of int
            n of 0 to N - 1.

        Returns
        -------
        Tensor
            (n, C, H, W).

        Raises
        ------
        TypeError
            If the images come in batches of their own.
        """
        if not callable(self.images) and not isinstance(self.images, Tensor):
            raise TypeError(
                "Expected argument `images` to be an array or a function of rows, which give some of the images, but "
                f"got {type(self.images).__name__}, which gives batches."
            )
        return floating_images(take_rows(self.images, rows))

    @check_arguments(batch_size=Whole(1))
    def batches(self, batch_size: int = 64) -> Iterator[tuple[list[int], Tensor]]:
        """Go through all images.

        Parameters
        ----------
        batch_size : int
            Images in a batch, where they do not come in batches of their own.

        Yields
        ------
        tuple of list and Tensor
            Rows, from 0 to N - 1 in their order, and images (n, C, H, W) in floating point.

        Raises
        ------
        ValueError
            If there are more or fewer images than labels.
        """
        if callable(self.images) or isinstance(self.images, Tensor):
            for rows in batches(len(self), batch_size):
                yield rows, self.batch(rows)
            return
        count = 0
        for batch in self.images:
            images = to_tensor("images", read_batch(batch, "images")["images"])
            check_shape("images", images, ("n", "C", "H", "W"), (None,) * 4)
            if not len(images):
                continue
            rows = list(range(count, count + len(images)))
            count += len(images)
            self._check_count(count, count > len(self))
            yield rows, floating_images(images)
        self._check_count(count, count < len(self))

    def _check_count(self, count: int, wrong: bool) -> None:
        if wrong:
            raise ValueError(
                f"Expected argument `labels` to hold a class for each image that `images` gives, {count} so far, but "
                f"got {len(self)}."
            )

    @check_arguments(batch_size=Whole(1))
    def logits(self, batch_size: int = 64) -> Tensor:
        """Return what the model answers.

        Parameters
        ----------
        batch_size : int
            Images that are run together.

        Returns
        -------
        Tensor
            (N, K), on the CPU.
        """
        logits = RowBuffer()
        with evaluation_mode(self.model):
            for _, images in self.batches(batch_size):
                logits.add(predict_logits(self.model, images).cpu())
        return logits.rows

    @check_arguments(batch_size=Whole(1))
    def correct(self, batch_size: int = 64) -> Tensor:
        """Tell which images the model classifies correctly.

        Parameters
        ----------
        batch_size : int
            Images that are run together.

        Returns
        -------
        Tensor
            (N,) of bool.
        """
        return self.logits(batch_size).argmax(1) == self.labels


def gives_batches(name: str, images: Any) -> bool:
    """Tell whether images come in batches; raise where they come in no order, or only once."""
    if isinstance(images, list | tuple):
        # A list of numbers is an array.
        first = images[0] if len(images) else None
        first = first[0] if isinstance(first, list | tuple) and len(first) else first
        return isinstance(first, Tensor | np.ndarray) and first.ndim == 4
    # A data set gives single images, a generator its batches only once.
    if isinstance(images, Dataset | Iterator) and not isinstance(images, IterableDataset):
        raise TypeError(
            f"Expected argument `{name}` to give batches each time it is gone through but got "
            f"{type(images).__name__}. Pass a DataLoader, or a function of rows."
        )
    if isinstance(images, Tensor | np.ndarray | str | bytes) or not isinstance(images, Iterable):
        return False
    if isinstance(getattr(images, "sampler", None), RandomSampler):
        raise ValueError(
            f"Expected argument `{name}` to give images in the order of `labels` but the loader shuffles them. Make it "
            "with shuffle=False."
        )
    return True


def take_rows(array: Tensor | Callable[[list[int]], Tensor], rows: list[int]) -> Tensor:
    """Return rows of a tensor, or of what a function gives for them."""
    return array(rows) if callable(array) else array[rows]


def batches(count: int, batch_size: int) -> list[list[int]]:
    """Split rows into consecutive batches."""
    return [list(range(start, min(start + batch_size, count))) for start in range(0, count, batch_size)]


ExplainFunc = Callable[..., np.ndarray]
#: Of N images: (N, 1, H, W) of 0 and 1, or a function from rows to theirs.
Masks = Tensor | Callable[[list[int]], Tensor]


@dataclass
class RegionAttributions:
    """Attributions of one method to the region in the images of each subject.

    Attributes
    ----------
    inside : dict
        From subject to concept attributions (N,) of float64 under the masks.
    elsewhere : dict
        The same under other masks, of the subjects for which they were requested.
    maps : dict
        From subject to the normalised maps (n, H, W) of the requested images.
    failure : str
        Why the method has no numbers; empty where it has.
    """

    inside: dict[Subject, Tensor] = field(default_factory=dict)
    elsewhere: dict[Subject, Tensor] = field(default_factory=dict)
    maps: dict[Subject, np.ndarray] = field(default_factory=dict)
    failure: str = ""

    def __repr__(self) -> str:
        return one_line(self)


@check_arguments(
    methods=METHODS,
    subjects=Items(Instance(Subject, "a Subject"), "Subjects"),
    masks=RegionMasks(),
    elsewhere=Dictionary(),
    keep=Dictionary(),
    batch_size=Whole(1),
    display_progressbar=Flag(),
)
def attribute_regions(
    methods: Mapping[str, ExplainFunc],
    subjects: Iterable[Subject],
    masks: Any,
    *,
    elsewhere: Mapping[Subject, Any] | None = None,
    keep: Mapping[Subject, Sequence[int]] | None = None,
    batch_size: int = 64,
    display_progressbar: bool = False,
) -> dict[str, RegionAttributions]:
    """Explain every subject with every method once, and reduce each explanation to a number immediately.

    `score_contrasts` uses it: maps scaled by `positive_percentile`, each by itself, and averaged over a region.
    A method that raises, or gives what is no map, has NaN throughout and a reason; the others go on, and it is not
    called again. A map with NaN or infinity costs its own image only.

    Parameters
    ----------
    methods : dict
        From name to ``explain_func(model, inputs, targets)``, as Quantus takes it, `captum_concepts.explain_func` for
        instance.
    subjects : iterable of Subject
        Models and images to explain.
    masks : array_like or callable
        (N, 1, H, W) or (N, H, W) of 0 and 1: the region in image 0, 1, ... of every subject; or a function from a list
        of n rows to (n, 1, H, W).
    elsewhere : dict, optional
        Other regions, by subject.
    keep : dict, optional
        Rows whose maps are returned, by subject; no other map is kept.
    batch_size : int
        Images that are explained together.
    display_progressbar : bool
        Whether to show how many images are done.

    Returns
    -------
    dict
        From name to `RegionAttributions`.

    Raises
    ------
    TypeError
        If a method cannot be called, a subject is none, or an argument is of the wrong kind.
    ValueError
        If there are fewer masks than images or of another size, or they hold something else than 0 and 1.
    """
    subjects, keep = list(dict.fromkeys(subjects)), keep or {}
    for subject, rows in keep.items():
        if subject not in subjects:
            raise ValueError("Expected the keys of argument `keep` to be among `subjects` but got another.")
        for row in as_list("keep", rows, "rows"):
            check_whole("keep", row, 0, len(subject) - 1)
    check_masks("masks", masks, subjects)
    other_regions = {}
    for subject, regions in (elsewhere or {}).items():
        if subject not in subjects:
            raise ValueError("Expected the keys of argument `elsewhere` to be among `subjects` but got another.")
        other_regions[subject] = RegionMasks().check("elsewhere", regions, {})
        check_masks("elsewhere", other_regions[subject], [subject])
    return explain_subjects(methods, subjects, masks, other_regions, keep, batch_size, display_progressbar)


def explain_subjects(
    methods: Mapping[str, ExplainFunc],
    subjects: Sequence[Subject],
    masks: Masks,
    elsewhere: Mapping[Subject, Masks],
    keep: Mapping[Subject, Sequence[int]],
    batch_size: int,
    display_progressbar: bool,
) -> dict[str, RegionAttributions]:
    """Return what `attribute_regions` returns; its arguments are checked."""
    by_method = {name: _undefined_attributions(subjects, elsewhere) for name in methods}
    total = sum(len(subject) for subject in subjects) * len(methods)
    with progress(description="explaining", total=total, unit="image", show=display_progressbar) as bar:
        for subject in subjects:
            kept_rows = list(keep.get(subject, ()))
            kept_maps: dict[str, dict[int, Tensor]] = {name: {} for name in methods}
            # Methods within batches, so that an image is composed once for all of them.
            for rows, images in subject.batches(batch_size):
                regions = take_rows(masks, rows)
                other_regions = take_rows(elsewhere[subject], rows) if subject in elsewhere else None
                for name, explain in methods.items():
                    result = by_method[name]
                    bar.set_postfix_str(name)
                    bar.update(len(rows))
                    if result.failure:
                        continue
                    try:
                        maps = _explain(explain, subject, images, rows)
                    except Exception as error:  # a method of the user's own may raise anything
                        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                        by_method[name] = _undefined_attributions(subjects, elsewhere, reason)
                        continue
                    result.inside[subject][rows] = region_attribution(maps, regions)
                    if other_regions is not None:
                        result.elsewhere[subject][rows] = region_attribution(maps, other_regions)
                    kept_maps[name] |= {row: maps[row - rows[0], 0] for row in kept_rows if row in rows}
            for name, result in by_method.items():
                if kept_rows and not result.failure:
                    result.maps[subject] = torch.stack([kept_maps[name][row] for row in kept_rows]).numpy()
    return by_method


def region_attribution(maps: Tensor, regions: Tensor) -> Tensor:
    """Return (n,) g_c of normalised maps, in float64 so that differences are not rounded."""
    return concept_attribution(maps, regions).double()


def check_masks(name: str, masks: Masks, subjects: Iterable[Subject]) -> None:
    """Raise if there are fewer masks than images of a subject, or of another size."""
    if callable(masks):
        return
    for subject in subjects:
        count = len(subject)
        if len(masks) < count:
            raise ValueError(
                f"Expected argument `{name}` to have a mask for each of {count} images but got {len(masks)}."
            )
        if isinstance(subject.images, Tensor):
            check_mask_size(name, masks[:count].numpy(), subject.images.numpy())


def _explain(explain: ExplainFunc, subject: Subject, images: Tensor, rows: list[int]) -> Tensor:
    # Copies, since a method may write into its inputs; and it may leave the model in another mode.
    with evaluation_mode(subject.model):
        raw = explain(model=subject.model, inputs=images.numpy().copy(), targets=subject.labels[rows].numpy())
    return _normalise_maps(to_numpy(raw), images)


def _normalise_maps(raw: np.ndarray, images: Tensor) -> Tensor:
    raw = raw[:, None] if raw.ndim == 3 else raw
    if raw.ndim != 4 or len(raw) != len(images) or raw.shape[2:] != images.shape[2:]:
        raise ValueError(
            f"Expected the method to return attributions (N, C, H, W) for images {tuple(images.shape)} but got "
            f"{raw.shape}."
        )
    # A copy: torch knows no negative strides, and warns of arrays that cannot be written.
    maps = np.array(raw, dtype=np.float64 if raw.dtype == np.float64 else np.float32)
    # A map that is not finite has no g_c; the others of the batch do.
    maps[~np.isfinite(maps).reshape(len(maps), -1).all(1)] = np.nan
    return positive_percentile(torch.from_numpy(maps))


def _undefined_attributions(
    subjects: Iterable[Subject], elsewhere: Iterable[Subject], reason: str = ""
) -> RegionAttributions:
    inside, outside = (
        {subject: torch.full((len(subject),), torch.nan).double() for subject in group}
        for group in (subjects, elsewhere)
    )
    return RegionAttributions(inside, outside, failure=reason)
