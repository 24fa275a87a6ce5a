"""Sparse heads of concept models: accuracy by the number of concepts that a class may read, and its plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from quantus.helpers.enums import ScoreDirection
from torch import Tensor

from captum_concepts.pictures.gallery import figure_of
from captum_concepts.support.checks import as_list, check_whole
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.bottleneck.sparse_heads import AVERAGED, sparse_head_path
from quantus_concepts.metrics.concepts.leakage import OfValues, finite_values
from quantus_concepts.metrics.host.plotting import check_table
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import Counted, MetricScores

#: Value of the column ``metric`` of the mean over the sizes of VLG-CBM, and of the weights that a head has.
ANEC_AVG, NEC = "ANEC-avg", "NEC"
NOT_FITTED = "there are no other images to fit a head to"


class SparseHeadAccuracy(OfValues):
    """Whether a head with so many weights a class predicts the class of an image: the path of NEC and ANEC.

    The rows "sparse head accuracy" have the number of weights in the column ``l``; with 5 it is ANEC-5, and "ANEC-avg"
    is the mean over 5, 10, 15, 20, 25 and 30. Heads are those of `functional.sparse_head_path`, fitted to every other
    image of each class and tested on the rest, both ways round, so that each image is predicted by a head that has not
    seen it. "NEC" is how many weights a class of a head really has: fewer where more are of no use.

    Parameters
    ----------
    sizes : sequence of int
        Weights a class; those above the number of concepts are left out.
    n_steps : int
        As in `functional.sparse_head_path`, like the other.
    n_iterations : int
        Most steps of a fit.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` of a call if None.
    **quantus : Unpack[QuantusArguments]
        What every Quantus metric takes, by keyword; no attribution enters.

    Raises
    ------
    ValueError
        If a number is too small, or there is no size.

    Notes
    -----
    Higher is better. A call of Quantus gives each image the share of the sizes whose head is right, of images with a
    concept model, or at the bottleneck of concept values (N, L) with the head as ``model``.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import SparseHeadAccuracy, score_concepts
    >>> classes = torch.arange(60) % 3
    >>> concepts = nn.functional.one_hot(classes, 3)
    >>> head = nn.Linear(3, 3)
    >>> model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)), head, values="raw")
    >>> batches = [(concepts.float(), classes, concepts)]
    >>> table = score_concepts(model, batches, metrics=[SparseHeadAccuracy(sizes=[1, 2])])
    >>> table.loc[table["metric"] == "sparse head accuracy", ["l", "value"]].values.tolist()
    [[1.0, 1.0], [2.0, 1.0]]
    """

    name = "sparse head accuracy"
    score_direction = ScoreDirection.HIGHER
    sample_truth = ("labels",)
    needed = ()

    def __init__(
        self,
        sizes: Sequence[int] = AVERAGED,
        n_steps: int = 25,
        n_iterations: int = 1000,
        labels: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Set the sizes. A score of 1 says that every image is recognised by so few concepts.

        A score of 0 says that none is.
        """
        super().__init__(**quantus)
        self.sizes = tuple(check_whole("sizes", size, 1) for size in as_list("sizes", sizes))
        if not self.sizes:
            raise ValueError("Expected argument `sizes` to hold at least one number of weights but it is empty.")
        self.n_steps = check_whole("n_steps", n_steps, 2)
        self.n_iterations = check_whole("n_iterations", n_iterations, 1)
        self._bind(labels=labels)

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the accuracy of each size, and that of all together."""
        return self._fit(rows)[0]

    def table_scores(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the accuracy of each size with the weights that heads have, and the accuracy of all together."""
        hits, weights = self._fit(rows)
        of_sizes = [part.take([place]) for place in range(len(weights.fields)) for part in (hits, weights)]
        return of_sizes + [hits.take([place]) for place in range(len(weights.fields), len(hits.fields))]

    def _fit(self, rows: ConceptPredictions) -> tuple[MetricScores, MetricScores]:
        """Return the hits of heads, and how many weights a class of a head has."""
        values, finite, reasons = finite_values(rows)
        labels, (_, n_concepts), n = rows.labels[finite], rows.shape, len(rows)
        sizes = tuple(size for size in self.sizes if size <= n_concepts) or (n_concepts,)
        hits, nec = np.full((n, len(sizes)), np.nan), np.full((2, len(sizes)), np.nan)
        places = _places_in_class(labels)
        for half in (0, 1) if len(values) > 1 else ():
            fit, rest = places % 2 == half, places % 2 != half
            if not fit.any():
                continue
            path = (self.n_steps, self.n_iterations)
            heads = sparse_head_path(values[fit], labels[fit], sizes, None, None, *path)
            nec[half] = heads.nec
            hits[np.flatnonzero(finite)[rest]] = (heads.predict(values[rest]) == labels[rest]).T
        alone = int(np.isnan(hits[:, 0]).sum()) - sum(of.n for of in reasons.values())
        reasons |= {NOT_FITTED: Counted(alone, n)} if alone else {}
        fields: list[dict[str, Any]] = [{"metric": self.name, "l": size} for size in sizes]
        if {*AVERAGED} <= {*sizes}:
            fields.append({"metric": ANEC_AVG})
            hits = np.column_stack([hits, hits.T[[sizes.index(size) for size in AVERAGED]].mean(0)])
        own = MetricScores(
            fields, hits, clusters=rows.labels.numpy(), reasons=lambda _: reasons, path=range(len(sizes))
        )
        return own, MetricScores([{"metric": NEC, "l": size} for size in sizes], nec, intervals=False)


def _places_in_class(labels: Tensor) -> Tensor:
    """Return the number (n,) of each image among those of its class."""
    order = labels.argsort(stable=True)
    first = torch.searchsorted(labels[order].contiguous(), labels[order].contiguous())
    return torch.empty_like(order).scatter(0, order, torch.arange(len(order)) - first)


def plot_sparse_heads(table: pd.DataFrame, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw accuracy by the number of weights a class: a line for each model, and the range of random banks in grey.

    Parameters
    ----------
    table : DataFrame
        Result of `score_concepts` with a `SparseHeadAccuracy` among its `metrics`.
    ax : Axes, optional
        Where to draw; a new figure if None.

    Returns
    -------
    tuple of Figure and Axes
        Nothing is shown or saved.

    Raises
    ------
    ValueError
        If `table` has no row of "sparse head accuracy", or lacks a column of `score_concepts`.

    Examples
    --------
    >>> import pandas as pd
    >>> from quantus_concepts import plot_sparse_heads
    >>> rows = {"model": "ours", "metric": "sparse head accuracy", "what": "score", "l": [1, 5]}
    >>> table = pd.DataFrame(
    ...     rows | {"value": [0.5, 0.8], "low": [0.4, 0.7], "high": [0.6, 0.9]}
    ... )
    >>> figure, ax = plot_sparse_heads(table)
    >>> ax.get_xlabel()
    'weights a class'
    """
    if not table.empty:
        check_table("table", table, ("model", "metric", "what", "l", "value", "low", "high"), "score_concepts")
    rows = table[table["metric"] == SparseHeadAccuracy.name] if "metric" in table else table.iloc[:0]
    if rows.empty:
        raise ValueError(
            f"Expected argument `table` to have rows of {SparseHeadAccuracy.name!r} but it has none. Pass "
            "`metrics=[SparseHeadAccuracy()]` to `score_concepts`."
        )
    if ax is None:
        _, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
    of_banks = rows["what"] == "random range"
    # A legend leaves out what begins with "_", and reads what stands between two $ as a formula.
    names: dict[Any, str] = {}
    for name, own in rows[of_banks].sort_values("l").groupby("model", sort=False):
        band = ax.fill_between(own["l"], own["low"], own["high"], color="0.6", alpha=0.35, linewidth=0, label=f"{name}")
        names[band] = f"{name}"
    for name, own in rows[~of_banks].sort_values("l").groupby("model", sort=False):
        reach = np.stack([own["value"] - own["low"], own["high"] - own["value"]])
        reach = np.nan_to_num(reach).clip(min=0)
        names[ax.errorbar(own["l"], own["value"], reach, marker="o", capsize=3, label=f"{name}")] = f"{name}"
    ax.set_xlabel("weights a class")
    ax.set_ylabel("accuracy")
    ax.set_xticks(sorted(rows["l"].unique()))
    ax.spines[["top", "right"]].set_visible(False)
    legend = ax.legend([*names], ["name"] * len(names), fontsize="small", frameon=False)
    for text, name in zip(legend.get_texts(), names.values(), strict=True):
        text.set(text=name, parse_math=False)
    return figure_of(ax), ax
