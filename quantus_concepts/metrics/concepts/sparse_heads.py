"""Sparse heads of concept models: accuracy by the number of concepts that a class may read, and its plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from captum_concepts.pictures.gallery import figure_of
from captum_concepts.support.checks import as_list, check_whole
from quantus_concepts.functional.bottleneck.sparse_heads import AVERAGED, sparse_head_path
from quantus_concepts.metrics.concepts.leakage import ValuesAndTruth
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.metric import nanmean
from quantus_concepts.metrics.host.observing import Counted, Observer, Result
from quantus_concepts.metrics.host.plotting import check_table

#: Value of the column ``metric`` of the mean over the sizes of VLG-CBM, and of the weights that a head has.
ANEC_AVG, NEC = "ANEC-avg", "NEC"
NOT_FITTED = "there are no other images to fit a head to"


class SparseHeadAccuracy(Observer):
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

    Raises
    ------
    ValueError
        If a number is too small, or there is no size.

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

    def __init__(self, sizes: Sequence[int] = AVERAGED, n_steps: int = 25, n_iterations: int = 1000) -> None:
        self.sizes = tuple(check_whole("sizes", size, 1) for size in as_list("sizes", sizes))
        if not self.sizes:
            raise ValueError("Expected argument `sizes` to hold at least one number of weights but it is empty.")
        self.n_steps = check_whole("n_steps", n_steps, 2)
        self.n_iterations = check_whole("n_iterations", n_iterations, 1)

    @classmethod
    def observe(cls, metrics: Sequence[Self], batch: Batch) -> ValuesAndTruth:
        """Keep the values of some samples."""
        return ValuesAndTruth(batch.values.float(), batch.labels.new_zeros(len(batch), 0), batch.labels)

    def numbers(self, observed: ValuesAndTruth) -> list[tuple[dict[str, Any], Result]]:
        """Return the accuracy of each size, that of all together, and how many weights there are."""
        seen, reasons = observed.finite()
        n, n_concepts = observed.values.shape
        sizes = tuple(size for size in self.sizes if size <= n_concepts) or (n_concepts,)
        hits, nec = np.full((len(sizes), n), np.nan), np.full((2, len(sizes)), np.nan)
        places = _places_in_class(seen.labels)
        for half in (0, 1) if len(seen.values) > 1 else ():
            fit, rest = places % 2 == half, places % 2 != half
            if not fit.any():
                continue
            path = (self.n_steps, self.n_iterations)
            heads = sparse_head_path(seen.values[fit], seen.labels[fit], sizes, None, None, *path)
            nec[half] = heads.nec
            finite = np.flatnonzero(observed.values.isfinite().all(1))
            hits[:, finite[rest]] = heads.predict(seen.values[rest]) == seen.labels[rest]
        alone = int(np.isnan(hits[0]).sum()) - sum(of.n for of in reasons.values())
        reasons |= {NOT_FITTED: Counted(alone, n)} if alone else {}
        clusters = observed.labels.numpy()
        rows = []
        for size, scores, weights in zip(sizes, hits, nec.T, strict=True):
            rows.append((self.fields() | {"l": size}, Result(scores, reasons, clusters=clusters)))
            unknown = int(np.isnan(weights).sum())
            count = {"value": nanmean(weights), "n": 2 - unknown, "undefined": unknown}
            rows.append(({"metric": NEC, "l": size}, Result(np.empty(0), {}, summary=count)))
        if {*AVERAGED} <= {*sizes}:
            mean = hits[[sizes.index(size) for size in AVERAGED]].mean(0)
            rows.append((self.fields() | {"metric": ANEC_AVG}, Result(mean, reasons, clusters=clusters)))
        return rows


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
