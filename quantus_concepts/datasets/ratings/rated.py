"""Explanations with people's votes on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from captum_concepts.support.checks import check_shape, to_numpy
from captum_concepts.texts import describe
from quantus_concepts.datasets.ratings.explanations import (
    MODALITIES,
    QUESTIONS,
    Explanation,
    LazyExplanations,
    Question,
    check_questions,
)
from quantus_concepts.functional.statistics.votes import check_scale, check_votes, join_votes

_COLUMNS = ("image_ids", "explainer_ids", "labels", "datasets", "modalities")


@dataclass(frozen=True, eq=False)
class RatedExplanations:
    """Explanations with the votes of several people.

    Parameters
    ----------
    explanations : sequence of Explanation
        N explanations; read from disk on access.
    votes : np.ndarray
        (N, A, Q): whole numbers from 1 to 5 for each annotator and question, NaN or pandas' NA if it has no vote.
    image_ids : np.ndarray
        (N,) of str. Two data sets never share an id.
    explainer_ids : np.ndarray
        (N,) of str.
    labels : np.ndarray
        (N,) of str: the class the scorer sees; empty where none is known.
    datasets : np.ndarray
        (N,) of str: the data set an item is of.
    modalities : np.ndarray
        (N,) of str: "map", "drawing" or "concepts".
    name : str
        Name of these ratings in tables.
    simulated : bool
        Whether no person gave them.
    notes : tuple of str
        Remarks for the user, such as how many votes are missing.
    raters : tuple of str
        Names of the A annotators, where each votes under one place of the second axis of `votes`; empty where it is
        not known who gave which vote.
    expected : np.ndarray, optional
        (N, Q) votes in [1, 5] without bias and noise, which only simulated raters have.
    asked : mapping of str to Question
        The Q questions by name, with wording and direction; by default the paper's six.

    Attributes
    ----------
    questions : tuple of str
        Their names, "Q1" to "Q6" by default: the last axis of the votes.

    Raises
    ------
    ValueError
        If a shape does not fit the number of explanations, votes are not whole or outside 1 to 5, a modality is
        unknown, or an image id is used by two data sets.

    Examples
    --------
    >>> import numpy as np
    >>> from quantus_concepts.datasets import RatedExplanations
    >>> from quantus_concepts.pasta import ConceptExplanation
    >>> words = [ConceptExplanation({"fur": 0.5, "wings": v}) for v in (0.2, 0.9)]
    >>> ids, votes = np.array(["1", "2"]), np.full((2, 3, 6), 4.0)  # three raters
    >>> methods, labels = np.array(["LIME", "LIME"]), np.array(["cat", "bird"])
    >>> kinds = {"datasets": np.array(["mine"] * 2), "modalities": np.array(["concepts"] * 2)}
    >>> rated = RatedExplanations(words, votes, ids, methods, labels, **kinds, name="mine")
    >>> rated.targets().shape
    (2, 6)
    """

    explanations: Sequence[Explanation]
    votes: np.ndarray
    image_ids: np.ndarray
    explainer_ids: np.ndarray
    labels: np.ndarray
    datasets: np.ndarray
    modalities: np.ndarray
    name: str
    simulated: bool = False
    notes: tuple[str, ...] = ()
    raters: tuple[str, ...] = ()
    expected: np.ndarray | None = None
    asked: Mapping[str, Question] = field(default_factory=lambda: QUESTIONS)

    @property
    def questions(self) -> tuple[str, ...]:
        """Names of the questions."""
        return tuple(self.asked)

    def __post_init__(self) -> None:
        """Check what was given and turn lists into arrays."""
        check_questions(self.questions)
        n = len(self.explanations)
        votes = check_votes("votes", plain_array(self.votes))
        check_shape("votes", votes, ("N", "A", "Q"), (n, None, len(self.questions)))
        if not votes.shape[1]:
            raise ValueError("Expected argument `votes` to be of at least one annotator (A >= 1) but got none.")
        object.__setattr__(self, "votes", votes)
        for column in _COLUMNS:
            value = np.asarray(getattr(self, column), dtype=str)
            check_shape(column, value, ("N",), (n,))
            object.__setattr__(self, column, value)
        for column in ("notes", "raters"):
            object.__setattr__(self, column, tuple(getattr(self, column)))
        if self.raters and len(self.raters) != votes.shape[1]:
            raise ValueError(
                f"Expected argument `raters` to name {votes.shape[1]} annotators, or none, but got {len(self.raters)}."
            )
        if self.expected is not None:
            expected = plain_array(self.expected).astype(np.float64)
            check_shape("expected", expected, ("N", "Q"), (n, len(self.questions)))
            check_scale("expected", expected)
            object.__setattr__(self, "expected", expected)
        strange = sorted(set(self.modalities.tolist()) - set(MODALITIES))
        if strange:
            raise ValueError(f"Expected argument `modalities` to hold only {list(MODALITIES)} but got {strange}.")
        _check_ids(self.image_ids, self.datasets)

    def __len__(self) -> int:
        """Return how many explanations there are."""
        return len(self.explanations)

    def __repr__(self) -> str:
        kinds = {"images": self.image_ids, "explainers": self.explainer_ids}
        facts = (f"{len(set(ids.tolist()))} {kind}" for kind, ids in kinds.items())
        settings = {"annotators": self.votes.shape[1], "name": self.name, "simulated": self.simulated}
        return describe(self, f"{len(self)} explanations", *facts, **settings)

    def select(self, items: ArrayLike) -> RatedExplanations:
        """Return some of the items, without reading them.

        Parameters
        ----------
        items : array_like
            (n,) of int, which items and in what order, or (N,) of bool, whether an item is wanted.

        Returns
        -------
        RatedExplanations
            Those items. The notes stay those of all items.

        Raises
        ------
        ValueError
            If `items` is neither, or an index is outside 0 to N - 1.
        """
        indices = item_indices("items", items, len(self))
        columns = {column: getattr(self, column)[indices] for column in _COLUMNS}
        return RatedExplanations(
            LazyExplanations(self.explanations.__getitem__, indices.tolist()),
            self.votes[indices],
            name=self.name,
            simulated=self.simulated,
            notes=self.notes,
            raters=self.raters,
            expected=None if self.expected is None else self.expected[indices],
            asked=self.asked,
            **columns,
        )

    def targets(self, how: str = "mode") -> np.ndarray:
        """Join the votes of the annotators on each item.

        Parameters
        ----------
        how : str
            "mode" (ties to the smallest), "mean" or "median".

        Returns
        -------
        np.ndarray
            (N, Q) float64 in [1, 5]; NaN if there are no votes.

        Raises
        ------
        ValueError
            If `how` is none of these.
        """
        return np.asarray(join_votes(self.votes.transpose(0, 2, 1), how), dtype=np.float64)


def _check_ids(image_ids: np.ndarray, datasets: np.ndarray) -> None:
    pairs = set(zip(image_ids.tolist(), datasets.tolist(), strict=True))
    owners: dict[str, str] = {}
    for image_id, dataset in sorted(pairs):
        if owners.setdefault(image_id, dataset) != dataset:
            raise ValueError(
                f"Expected argument `image_ids` to differ between data sets but {image_id!r} is in "
                f"{owners[image_id]!r} and in {dataset!r}."
            )


def plain_array(values: ArrayLike) -> np.ndarray:
    """Return an array; of objects, as nullable columns of pandas give them, the plain one, NaN where one is missing."""
    array = to_numpy(values)
    return np.array(np.where(pd.isna(array), np.nan, array).tolist()) if array.dtype == object else array


def item_indices(name: str, items: ArrayLike, n: int) -> np.ndarray:
    """Return the indices of some of n items, given by index or as a mask of bool."""
    array = plain_array(items)
    if array.dtype == bool:
        check_shape(name, array, ("N",), (n,))
        return np.flatnonzero(array)
    check_shape(name, array, ("n",), (None,))
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"Expected argument `{name}` to hold whole numbers or bools but got {array.dtype}.")
    if array.size and (array.min() < 0 or array.max() >= n):
        raise ValueError(
            f"Expected argument `{name}` to lie in 0 to {n - 1} but it goes from {array.min()} to {array.max()}."
        )
    return array.astype(np.int64)
