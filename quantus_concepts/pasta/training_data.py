"""What a scorer or a regression learns from: embeddings, votes, labels, checked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import check_finite, check_numbers, check_shape, to_numpy
from quantus_concepts.datasets.ratings.questions import QUESTIONS, check_questions
from quantus_concepts.functional.arguments import check_floating
from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.labels import label_indices


@dataclass(frozen=True)
class TrainingData:
    """Embeddings with their votes."""

    embeddings: Tensor
    votes: Tensor
    labels: Tensor | None
    label_names: Sequence[str] | None
    questions: tuple[str, ...]


def training_data(
    embeddings: Tensor,
    targets: Any,
    labels: Any,
    questions: Sequence[str] | None,
    label_names: Sequence[str] | None,
) -> TrainingData:
    """Check what is to be learned from."""
    check_floating("embeddings", embeddings)
    check_shape("embeddings", embeddings, ("N", "d"), (None, None))
    check_finite("embeddings", embeddings)
    votes = torch.as_tensor(check_numbers("targets", targets)).float()
    votes = votes[:, None] if votes.ndim == 1 else votes
    names = tuple(QUESTIONS) if questions is None else check_questions(questions)
    check_shape("targets", votes, ("N", "Q"), (len(embeddings), len(names)))
    outside = (votes < MIN_VOTE) | (votes > MAX_VOTE)
    if outside.any():
        first = tuple(outside.nonzero()[0].tolist())
        raise ValueError(
            f"Expected argument `targets` to hold votes of {MIN_VOTE} to {MAX_VOTE}, NaN where one is missing, but "
            f"got {float(votes[first]):g} at {first}."
        )
    if (labels is None) != (label_names is None):
        raise ValueError(
            "Expected arguments `labels` and `label_names` together, or neither for a scorer without labels, but got "
            f"only `{'label_names' if labels is None else 'labels'}`."
        )
    if label_names is not None and (isinstance(label_names, str) or not isinstance(label_names, Collection)):
        raise TypeError(f"Expected argument `label_names` to be the names of classes but got {label_names!r}.")
    places = None
    if labels is not None and label_names is not None:
        places = label_indices(label_names, labels, len(embeddings)).to(embeddings.device)
    return TrainingData(embeddings.detach(), votes.T.contiguous(), places, label_names, names)


def item_rows(name: str, value: Any, n_items: int) -> np.ndarray:
    """Return the indices of some of the items."""
    array = np.asarray(to_numpy([] if value is None else value))
    if array.dtype == bool:
        check_shape(name, array, ("N",), (n_items,))
        return np.flatnonzero(array)
    array = array.astype(np.int64) if not array.size else array
    check_shape(name, array, ("M",), (None,))
    if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() < n_items):
        raise ValueError(f"Expected argument `{name}` to hold indices in 0..{n_items - 1}, or a mask of bool.")
    if len(np.unique(array)) < len(array):
        raise ValueError(f"Expected argument `{name}` to hold each item once but some occur twice.")
    return array.astype(np.int64)
