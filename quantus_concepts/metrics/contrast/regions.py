"""Subjects (a model, its images, a class) and the attribution inside their regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from captum_concepts.backbones.embedding import LoaderBatch, check_order, read_batch
from captum_concepts.support.checks import check_module, check_shape, to_array, to_masks, to_tensor
from captum_concepts.support.running import evaluation_mode, floating_images, predict_logits, progress
from captum_concepts.texts import describe, in_one_line
from quantus_concepts.functional import positive_percentile
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.contrast.pairs import attribute_region
from quantus_concepts.metrics.host.checks import check_explainer, check_mask_size, check_outputs, to_classes
from quantus_concepts.metrics.host.explanations import call_explain_func

#: Images (N, C, H, W), a function from n rows to (n, C, H, W), or batches of them or of tuples that begin with them.
ImageSource = Numbers | Callable[[list[int]], Tensor] | Iterable[LoaderBatch]
#: Of N images: (N, 1, H, W) of 0 and 1, or a function from rows to theirs.
Masks = Tensor | Callable[[list[int]], Tensor]
MaskSource = Numbers | Callable[[list[int]], Tensor]


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

    def __init__(self, model: nn.Module, images: ImageSource, labels: Numbers) -> None:
        check_module("model", model)
        self.model = model
        self.labels = torch.as_tensor(to_classes("labels", labels, filled=True))
        self.images = as_image_source("images", images)
        if isinstance(self.images, Tensor) and len(self.images) != len(self.labels):
            raise ValueError(
                f"Expected argument `labels` to have shape (N,) = ({len(self.images)},), a class for each image, "
                f"but got {tuple(self.labels.shape)}."
            )

    def __repr__(self) -> str:
        return describe(self, model=self.model, images=self.images, labels=self.labels)

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
            if count <= len(self):
                yield rows, floating_images(images)
        if count != len(self):
            raise ValueError(
                f"Expected argument `labels` to hold a class for each image that `images` gives, {count}, but got "
                f"{len(self)}."
            )

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
        with evaluation_mode(self.model):
            return torch.cat(
                [
                    check_outputs(predict_logits(self.model, images), len(images)).cpu()
                    for _, images in self.batches(batch_size)
                ]
            )

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


def gives_batches(name: str, images: object) -> bool:
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
    check_order(images, ["labels"], name)
    return True


def take_rows(array: Tensor | Callable[[list[int]], Tensor], rows: list[int]) -> Tensor:
    """Return rows of a tensor, or of what a function gives for them."""
    return array(rows) if callable(array) else array[rows]


def batches(count: int, batch_size: int) -> list[list[int]]:
    """Split rows into consecutive batches."""
    return [list(range(start, min(start + batch_size, count))) for start in range(0, count, batch_size)]


Explainer = Callable[..., np.ndarray]


@in_one_line
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


def attribute_regions(
    methods: Mapping[str, Explainer],
    subjects: Iterable[Subject],
    masks: MaskSource,
    *,
    elsewhere: Mapping[Subject, MaskSource] | None = None,
    keep: Mapping[Subject, Sequence[int]] | None = None,
    batch_size: int = 64,
    normalise: bool = True,
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
    normalise : bool
        Whether maps are scaled by `positive_percentile`, each by itself; without it they are only made positive.
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
    subjects, keep, elsewhere = list(dict.fromkeys(subjects)), keep or {}, elsewhere or {}
    check_methods(methods)
    for name, chosen in (("keep", keep), ("elsewhere", elsewhere)):
        if not set(chosen) <= set(subjects):
            raise ValueError(f"Expected the keys of argument `{name}` to be among `subjects` but got another.")
    regions = as_regions("masks", masks, subjects)
    other = {subject: as_regions("elsewhere", part, [subject]) for subject, part in elsewhere.items()}
    by_method = {name: _undefined_attributions(subjects, elsewhere) for name in methods}
    total = sum(len(subject) for subject in subjects) * len(methods)
    with progress(description="explaining", show=display_progressbar, total=total, unit="image") as bar:
        for subject in subjects:
            kept_rows = list(keep.get(subject, ()))
            kept_maps: dict[str, dict[int, np.ndarray]] = {name: {} for name in methods}
            # Methods within batches, so that an image is composed once for all of them.
            for rows, images in subject.batches(batch_size):
                masks_here = take_rows(regions, rows)
                other_masks = take_rows(other[subject], rows) if subject in other else None
                for name, explain in methods.items():
                    result = by_method[name]
                    bar.update(len(rows))
                    if result.failure:
                        continue
                    maps, failure = _explain(explain, subject, images, rows, normalise=normalise)
                    inside = attribute_region(maps, failure, masks_here)
                    if inside.failure:
                        by_method[name] = _undefined_attributions(subjects, elsewhere, inside.failure)
                        continue
                    result.inside[subject][rows] = inside.inside
                    if other_masks is not None:
                        result.elsewhere[subject][rows] = attribute_region(maps, "", other_masks).inside
                    kept_maps[name] |= {row: maps[row - rows[0]].squeeze(0) for row in kept_rows if row in rows}
            for name, result in by_method.items():
                if kept_rows and not result.failure:
                    result.maps[subject] = np.stack([kept_maps[name][row] for row in kept_rows])
    return by_method


def _explain(
    explain: Explainer, subject: Subject, images: Tensor, rows: list[int], *, normalise: bool
) -> tuple[np.ndarray, str]:
    """Return the maps of some images, normalised if asked for, and "" or why there are none."""
    # Copies, since a method may write into its inputs; and it may leave the model in another mode.
    inputs, classes = images.numpy().copy(), subject.labels[rows].numpy()
    with evaluation_mode(subject.model):
        raw, failure = call_explain_func(explain, subject.model, inputs, classes)
    if raw.ndim not in (3, 4):
        return raw, failure
    if normalise:
        return positive_percentile(raw), failure
    positive = np.maximum(raw, 0)
    return positive[:, None] if raw.ndim == 3 else positive.sum(1, keepdims=True), failure


def _undefined_attributions(
    subjects: Iterable[Subject], elsewhere: Iterable[Subject], reason: str = ""
) -> RegionAttributions:
    inside, outside = (
        {subject: torch.full((len(subject),), torch.nan).double() for subject in group}
        for group in (subjects, elsewhere)
    )
    return RegionAttributions(inside, outside, failure=reason)


def as_image_source(name: str, images: ImageSource) -> Tensor | Callable[[list[int]], Tensor] | Iterable[LoaderBatch]:
    """Return an array as a tensor (N, C, H, W), and a function of rows or batches as they are; or raise."""
    if callable(images):
        return images
    if gives_batches(name, images):
        return cast(Iterable[LoaderBatch], images)
    tensor = torch.as_tensor(to_array(name, images))
    check_shape(name, tensor, ("N", "C", "H", "W"), (None,) * 4)
    return tensor


def as_regions(name: str, masks: MaskSource, subjects: Iterable[Subject]) -> Masks:
    """Return a function as it is and masks as a tensor of bool; raise if they do not suit the images."""
    if callable(masks):
        return masks
    regions = to_masks(name, masks, usable=True)
    for subject in subjects:
        if len(regions) < len(subject):
            raise ValueError(
                f"Expected argument `{name}` to have a mask for each of {len(subject)} images but got {len(regions)}."
            )
        if isinstance(subject.images, Tensor):
            check_mask_size(name, regions[: len(subject)], subject.images.numpy())
    return torch.from_numpy(regions)


def check_methods(methods: Mapping[str, Explainer]) -> None:
    """Raise unless there are explanation methods, all of them functions of a model."""
    if not methods:
        raise ValueError("Expected argument `methods` to hold at least one explanation method but it is empty.")
    for name, method in methods.items():
        check_explainer(f"methods[{name!r}]", method)
