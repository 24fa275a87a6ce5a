"""Fit the directions of labelled images, of the concepts selected by name that have enough images on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset

from captum_concepts.backbones.embedding import whole_data_set
from captum_concepts.bank.directions import Fitting, fit_directions, list_first
from captum_concepts.support import checks
from captum_concepts.support.running import warn_user

MIN_IMAGES = 10
"""Images with a concept, and without it, below which it is left out of a bank."""


class Learnable(NamedTuple):
    """The concepts that can be learned, by position and name, and the names of those left out."""

    positions: list[int]
    names: list[str]
    left_out: list[str]
    message: str

    def warn(self) -> None:
        """Name the concepts left out in one warning, if there are any."""
        if self.message:
            warn_user(self.message)


def fit_learnable(
    features: Tensor, present: np.ndarray, learnable: Learnable, fitting: Fitting, display_progressbar: bool
) -> dict[str, Any]:
    """Fit the concepts found, of samples and with settings that are checked."""
    fitted = fit_directions(features, present[:, learnable.positions], learnable.names, fitting, display_progressbar)
    left_out = {"left_out": learnable.left_out} if learnable.left_out else {}
    return {**fitted._asdict(), "names": learnable.names, "settings": fitting.settings() | left_out}


def find_learnable(
    labels: Tensor | ArrayLike,
    names: Sequence[str] | None,
    concepts: str | Sequence[str | int] | None,
    min_images: int,
) -> Learnable:
    """Choose concepts by name and by their numbers of images, from labels (N, L) alone; raise where none is left."""
    array = checks.to_presence("labels", labels)
    names = checks.check_names(names, array.shape[1])
    chosen = list(range(len(names))) if concepts is None else checks.find_names("concepts", names, concepts)
    n_with = (array > 0.5).sum(0)
    rarer = np.minimum(n_with, len(array) - n_with)
    positions = [j for j in chosen if rarer[j] >= min_images]
    rare = [j for j in chosen if rarer[j] < min_images]
    listed = list_first([f"{names[j]!r} ({n_with[j]} with, {len(array) - n_with[j]} without)" for j in rare])
    if not positions:
        raise ValueError(
            f"Expected at least `min_images` = {min_images} images with a concept, and as many without it, but none of "
            f"{len(chosen)} concepts has them: {listed}. Lower `min_images`, or give more images."
        )
    message = ""
    if rare:
        message = (
            f"{len(rare)} of {len(chosen)} concepts are left out, since they have fewer than min_images={min_images} "
            f"images with or without them: {listed}. `bank.settings['left_out']` names all of them; "
            "`dataset.select(bank.names)` has the labels of the others."
        )
    return Learnable(positions, [names[j] for j in positions], [names[j] for j in rare], message)


def known_labels(loader: Iterable[object]) -> tuple[Any, list[str] | None]:
    """Return the concept labels (N, L) of a loader's images, and their names, without reading an image."""
    # Only for loaders that give every image once; other loaders need a pass.
    if not isinstance(loader, DataLoader) or not isinstance(loader.sampler, SequentialSampler | RandomSampler):
        return None, None
    if isinstance(loader.sampler, RandomSampler) and (
        loader.sampler.replacement or loader.sampler.num_samples != len(loader.sampler.data_source)
    ):
        return None, None
    data, rows = whole_data_set(loader.dataset)
    if isinstance(data, TensorDataset):
        labels = data.tensors[2] if len(data.tensors) > 2 else None
    else:
        labels = getattr(data, "concept_labels", None)
    if labels is None or getattr(labels, "ndim", 0) != 2:
        return None, None
    names = getattr(data, "concept_names", None)
    named = isinstance(names, list) and len(names) == labels.shape[1]
    return labels if rows is None else labels[rows], names if named else None
