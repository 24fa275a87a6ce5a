"""Summary of an evaluation in one tidy table: each number with its interval, chance and a baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from captum_concepts.support.checks import as_list, to_numpy
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.intervals import UNBOUNDED, baseline_coverage, distribution
from quantus_concepts.metrics.host.record import Record
from quantus_concepts.metrics.host.scores import score_row

#: Baselines: names of methods, results of baseline models, or numbers of many by metric.
Control = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
#: The method, in the summary of an evaluation, of scores that do not depend on the explanation.
ANY_METHOD = "any method"
#: Under which name the summary of an evaluation holds the metrics whose scores are of concepts or classes.
OF_ITEMS = "metrics of concepts or classes"
SUMMARY_COLUMNS = ["method", "metric", "value", "low", "high", "n", "undefined", "reason", "chance", "control"]


@in_one_line
class Evaluation(NamedTuple):
    """Result of `evaluate`.

    Attributes
    ----------
    results : dict
        As of `quantus.evaluate`: ``results[method][metric]``, NaN for each sample where metric or method raised;
        ``results[method][metric][call]`` with several entries of `call_kwargs`; a DataFrame with ``return_as_df=True``.
    summary : DataFrame
        As of `summarise`, the message of what raised under ``reason``; with several entries of `call_kwargs` it has a
        column ``call``. A metric whose scores do not depend on the explanation has one row, first, whose ``method`` is
        "any method".
    """

    results: Any
    summary: pd.DataFrame

    def _repr_html_(self) -> str:
        # pandas escapes names; columns that hold nothing tell nothing.
        filled = self.summary.replace("", float("nan")).dropna(axis="columns", how="all")
        return str(filled.to_html(index=False, border=0, float_format="{:.3f}".format, na_rep=""))


def summarise(
    results: Mapping[str, Mapping[str, Any]] | pd.DataFrame,
    metrics: Mapping[str, object],
    control: Control | None = None,
    clusters: Numbers | None = None,
) -> pd.DataFrame:
    """Turn what `quantus.evaluate` returned into one tidy table.

    Parameters
    ----------
    results : dict or DataFrame
        ``results[method][metric]``, scores for each sample: what `quantus.evaluate` returns without `agg_func` and with
        at most one entry of `call_kwargs`.
    metrics : dict
        The metrics that were evaluated, by the same names. Metrics of this package remember chance, and why scores are
        undefined; of others only the scores are known.
    control : str, sequence of str, dict or sequence of dict, optional
        Baselines: the names of methods in `results` (random attributions), results of the same metrics for
        baseline models, or, from metric to numbers, the scores of many of them.
    clusters : array_like, optional
        (N,) the class of each sample: samples of one class are not independent, and `compare` takes classes as clusters
        too. `evaluate` passes `y_batch`.

    Returns
    -------
    DataFrame
        A row for each method and metric: ``value``, mean of the ``n`` defined scores; ``low`` and ``high``, its 95 %
        interval over samples, with classes as clusters where they are known: those that a metric of this package
        remembers, else `clusters`, if there are at least two; NaN where scores are not of samples (`CGIM`);
        ``undefined``, how many scores are NaN, and ``reason``, why; ``chance``, the analytic score of a random guess,
        if it is known; ``control``, the mean of the baselines. With two controls or more also ``control_low`` and
        ``control_high``, their range (`functional.baseline_range`), and ``control_coverage``, the share of further
        controls that it encloses: .95 from 39 controls on. Only above ``control_high`` is a score above chance.

    Raises
    ------
    TypeError
        If `results` are not of such a form.
    ValueError
        If `metrics` or `control` names what `results` do not hold, or no result has as many scores as there are
        `clusters`.

    See Also
    --------
    plot_summary : Draws it.
    to_markdown : Writes it as a Markdown table; ``summary.to_csv(path, index=False)`` as CSV.
    headline : The rows that a reader wants of a long table.

    Examples
    --------
    >>> from quantus_concepts import summarise
    >>> scores = {"Saliency": {"Sparseness": [1.0, 0.0, 1.0, 1.0]}}
    >>> summarise(scores, {"Sparseness": None})["value"].tolist()
    [0.75]
    """
    table = _checked_results("results", results, metrics)
    _check_clusters(clusters, table, metrics)
    rows = [
        _row(method, metric, scores, _record_of(metrics[metric], scores), clusters)
        for method, of_method in table.items()
        for metric, scores in of_method.items()
    ]
    return with_control(pd.DataFrame(rows, columns=SUMMARY_COLUMNS), metrics, control)


def summary_row(
    method: str,
    metric: str,
    scores: object,
    record: Record | None,
    error: str = "",
    clusters: Numbers | None = None,
) -> dict[str, Any]:
    """Return the row of one call of a metric, whose failure is the reason where it raised."""
    row = _row(method, metric, scores, record, clusters)
    return {**row, "reason": error} if error else row


def with_control(summary: pd.DataFrame, metrics: Mapping[str, object], control: Control | None) -> pd.DataFrame:
    """Return a summary with the columns of its controls."""
    if control is None:
        return summary
    values = _control_values(summary, metrics, control)
    distributions = {name: distribution(scores) for name, scores in values.items()}
    ranges = pd.DataFrame(distributions, index=["mean", "low", "high"])
    summary = summary.assign(control=summary["metric"].map(ranges.loc["mean"]).astype(float))
    counts = pd.Series({name: int((~np.isnan(scores)).sum()) for name, scores in values.items()}, dtype=int)
    many = counts.index[counts >= 2]
    if len(many):
        for end in ("low", "high"):
            summary[f"control_{end}"] = summary["metric"].map(ranges.loc[end, many]).astype(float)
        summary["control_coverage"] = summary["metric"].map(counts[many].map(baseline_coverage)).astype(float)
    return summary


def _control_values(summary: pd.DataFrame, metrics: Mapping[str, object], control: Control) -> dict[str, np.ndarray]:
    """Return the values of all controls by metric."""
    if isinstance(control, Mapping) and not all(isinstance(value, Mapping) for value in control.values()):
        values = {name: _flat(scores) if name in metrics else None for name, scores in control.items()}
        wrong = [name for name, scores in values.items() if scores is None]
        if wrong:
            raise ValueError(
                f"Expected argument `control` to give numbers, one a control, by metric, of {list(metrics)}, but got "
                f"something else for {wrong}."
            )
        return {name: scores for name, scores in values.items() if scores is not None}
    alone = isinstance(control, str | Mapping)
    controls: list[Any] = [control] if alone else as_list("control", control, "names or results")
    if all(isinstance(name, str) for name in controls):
        missing = sorted(set(controls) - set(summary["method"]))
        if missing or not controls:
            raise ValueError(
                f"Expected argument `control` to name methods of the results, {sorted(set(summary['method']))}, but "
                f"got {missing or controls}."
            )
        rows = [(row.metric, row.value) for row in summary[summary["method"].isin(controls)].itertuples()]
    else:
        rows = [
            (metric, _row("", metric, scores, None)["value"])
            for results in controls
            for of_method in _checked_results("control", results, metrics).values()
            for metric, scores in of_method.items()
        ]
    frame = pd.DataFrame(rows, columns=["metric", "value"])
    return {name: group["value"].to_numpy(float) for name, group in frame.groupby("metric")}


def _checked_results(name: str, results: Any, metrics: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    if isinstance(results, pd.DataFrame):
        results = results.to_dict()
    if not isinstance(results, Mapping) or not all(isinstance(value, Mapping) for value in results.values()):
        raise TypeError(
            f"Expected argument `{name}` to be what quantus.evaluate returns, results[method][metric], but got "
            f"{type(results).__name__}."
        )
    unknown = sorted({metric for of_method in results.values() for metric in of_method} - set(metrics))
    if unknown:
        raise ValueError(f"Expected argument `metrics` to hold every metric of `{name}` but {unknown} are not in it.")
    return {method: dict(of_method) for method, of_method in results.items()}


def _check_clusters(clusters: Numbers | None, results: Mapping[str, Mapping[str, Any]], metrics: Any) -> None:
    """Raise for clusters of which there are not as many as scores of samples in any result."""
    if clusters is None:
        return
    scored = [(_record_of(metrics[name], scores), scores) for of in results.values() for name, scores in of.items()]
    lengths = {
        values.size
        for record, scores in scored
        if (values := _flat(scores) if record is None else record.values) is not None
        and (record is None or record.of_samples)
    }
    n = to_numpy(clusters).size
    if lengths and n not in lengths:
        raise ValueError(
            f"Expected argument `clusters` to hold one cluster for each sample, {max(lengths)}, but got {n}."
        )


def _record_of(metric: object, scores: object) -> Record | None:
    """Return the record of the call that returned these scores; of a copy of them, the newest one with equal scores."""
    records: list[Record] = list(reversed(getattr(metric, "records", ())))
    own = next((record for record in records if record.scores is scores), None)
    values = _flat(scores)
    if own is not None or values is None:
        return own
    flat = [(record, _flat(record.scores)) for record in records]
    equal = [record for record, its in flat if its is not None and np.array_equal(its, values, equal_nan=True)]
    if any(record.reasons != equal[0].reasons for record in equal):
        unknown = "not known: calls with the same scores differ in their reasons, and these scores are a copy"
        return replace(equal[0], reasons={unknown: int(np.isnan(equal[0].values).sum())})
    return equal[0] if equal else None


def _flat(scores: Any) -> np.ndarray | None:
    """Return scores as (n,) of float; None where they are not one number each."""
    try:
        values = np.asarray(scores, dtype=float)
    except (TypeError, ValueError):
        return None
    return np.atleast_1d(values) if values.ndim < 2 else None


def _row(
    method: str, metric: str, scores: object, record: Record | None, clusters: Numbers | None = None
) -> dict[str, Any]:
    values = _flat(scores) if record is None else record.values
    row: dict[str, Any] = {"method": method, "metric": metric, "chance": math.nan, "control": math.nan}
    if values is None:
        nothing = {"value": math.nan, "low": math.nan, "high": math.nan, "n": 0, "undefined": 0}
        return {**row, **nothing, "reason": "not one score for each sample: see the results themselves"}
    groups = None if clusters is None else to_numpy(clusters).ravel()
    if groups is not None and (len(groups) != len(values) or len({*groups.tolist()}) < 2):
        # Scores of something else than samples; one class says nothing about others.
        groups = None
    if record is None:
        binary = bool(np.isin(values[~np.isnan(values)], (0.0, 1.0)).all())
        return score_row(values, (0.0, 1.0) if binary else UNBOUNDED, groups, **row) | {"reason": ""}
    groups = groups if record.clusters is None else record.clusters
    counted = score_row(values, record.bounds, groups, intervals=record.of_samples, **row)
    return counted | {"reason": "; ".join(_reasons(record)), "chance": record.chance}


def _reasons(record: Record) -> Iterator[str]:
    return (f"{why} ({count})" for why, count in record.reasons.items())
