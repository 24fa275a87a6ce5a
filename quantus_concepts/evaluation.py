"""`quantus.evaluate` in which one metric's failure costs only its own results."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, Unpack

import numpy as np
import pandas as pd
from quantus.evaluation import evaluate as quantus_evaluate
from quantus.functions.explanation_func import explain
from quantus.helpers.constants import AVAILABLE_XAI_METHODS_CAPTUM as QUANTUS_METHODS
from torch import nn

from captum_concepts.attributions.controls import RandomAttribution
from captum_concepts.attributions.explain import explain_func
from captum_concepts.support.checks import as_list, check_keywords, check_mapping, check_whole, to_array
from captum_concepts.support.running import evaluation_mode, warn_user
from captum_concepts.support.running import progress as bar
from quantus_concepts.functional.statistics.intervals import N_DRAWS
from quantus_concepts.metrics.host.checks import check_explainer
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.model import ensure_block, random_banks_of
from quantus_concepts.metrics.host.plotting import DrawsScores
from quantus_concepts.metrics.host.record import Record
from quantus_concepts.results.summary import (
    ANY_METHOD,
    OF_ITEMS,
    SUMMARY_COLUMNS,
    Control,
    Evaluation,
    summary_row,
    with_control,
)

#: An explanation method: a dict for `quantus.explain`, a function, or attributions.
Method = Mapping[str, object] | Callable[..., object] | np.ndarray


class CallArguments(TypedDict, total=False):
    """Arguments of a call of every Quantus metric that `evaluate` passes on."""

    channel_first: bool | None
    model_predict_kwargs: dict[str, Any] | None
    softmax: bool | None
    device: str | None
    batch_size: int
    custom_batch: Any


def evaluate(
    metrics: Mapping[str, Callable[..., Any]],
    xai_methods: Mapping[str, Method],
    model: nn.Module | None,
    x_batch: np.ndarray,
    y_batch: np.ndarray,
    s_batch: np.ndarray | None = None,
    agg_func: Callable[[Any], object] | None = None,
    explain_func_kwargs: Mapping[str, object] | None = None,
    call_kwargs: Mapping[str, Mapping[str, object]] | None = None,
    return_as_df: bool | None = None,
    verbose: bool | None = None,
    progress: bool | None = None,
    *,
    control: Control | None = None,
    baselines: bool | None = None,
    n_baselines: int = N_DRAWS,
    display_progressbar: bool = True,
    **kwargs: Unpack[CallArguments],
) -> Evaluation:
    """Evaluate explanation methods with metrics, as `quantus.evaluate` does, and lose nothing.

    Quantus does the work, one method after another. Different from a call of its own: a metric or method that raises
    costs its own results only, where the rest would end in a KeyError; where Quantus refuses a method's maps (constant
    ones, or nowhere positive), the metrics of this package score them all the same; keyword arguments of one method
    do not reach the next; the key of a method in `xai_methods` may be any name where the dict has a ``"method"``, also
    for metrics that explain again; a model in train mode is evaluated in eval mode and put back; metrics share what a
    model gives for the images, as in a `shared_passes` block, so that it sees each image once; and metrics whose scores
    do not depend on the explanation (`CEM` on images, for instance) run once for all methods.

    Parameters
    ----------
    metrics : dict
        Metrics by name, of Quantus and of this package.
    xai_methods : dict
        Explanation methods by name, each a dict for `quantus.explain`, a callable or an array.
    model : nn.Module
        The model explained.
    x_batch : np.ndarray
        Inputs.
    y_batch : np.ndarray
        (N,) explained outputs.
    s_batch : np.ndarray, optional
        Masks (N, 1, H, W).
    agg_func : callable, optional
        Applied to the scores in the results; the summary is of the scores themselves.
    explain_func_kwargs : dict, optional
        Keyword arguments of methods that are callables; none if left out.
    call_kwargs : dict of dict, optional
        Sets of keyword arguments of the metrics' calls, by name.
    return_as_df : bool, optional
        Whether the results are a DataFrame; only with one set of `call_kwargs`.
    verbose : bool, optional
        Whether to print what is evaluated.
    progress : bool, optional
        Quantus's older name of `verbose`.
    control : str, sequence of str, dict or sequence of dict, optional
        As in `summarise`.
    baselines : bool, optional
        Whether to score random baselines, in place of `control`: of the metrics that look at a concept model on images
        its random banks (``PostHocCBM.fit(random_banks=39)``), at no pass of the backbone; of the others random maps of
        each image, which cost `n_baselines` times what the metric costs for one method. By default the random banks
        alone, where the model has some and there is no `control`.
    n_baselines : int
        How many random maps of each image; 39 enclose 95 % of further ones (``control_coverage`` of the summary).
    display_progressbar : bool
        Whether a bar shows the methods and the baselines, where the output is a terminal or a notebook.
    **kwargs : Unpack[CallArguments]
        Passed to every metric's call: `batch_size`, `channel_first`, `softmax`, `device`, `model_predict_kwargs` and
        `custom_batch`.

    Returns
    -------
    Evaluation
        The results and their summary.

    Raises
    ------
    TypeError
        If `metrics`, `xai_methods` or `call_kwargs` is no mapping, a metric is not callable, another argument is of the
        wrong kind, or there is no argument of a name.
    ValueError
        If there is no metric or method, `x_batch`, `y_batch` and `s_batch` do not hold N samples, `control` names a
        method that is not evaluated, or is given with `baselines`.

    Warns
    -----
    UserWarning
        If what is evaluated raises, or two methods have the same scores of a metric that depends on the method.

    Examples
    --------
    >>> import numpy as np
    >>> import quantus
    >>> from torch import nn
    >>> from quantus_concepts import evaluate
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(768, 2))
    >>> images = np.random.default_rng(0).random((4, 3, 16, 16), "float32")
    >>> metrics = {"Sparseness": quantus.Sparseness(disable_warnings=True)}
    >>> methods = {"brightness": lambda model, inputs, targets, **kwargs: inputs}
    >>> result = evaluate(metrics, methods, network, images, np.array([0, 1, 0, 1]))
    >>> result.summary[["method", "metric", "n"]].values.tolist()
    [['brightness', 'Sparseness', 4]]
    """
    _check_subjects(metrics, xai_methods)
    x_batch = to_array("x_batch", x_batch)
    y_batch, s_batch = to_array("y_batch", y_batch), None if s_batch is None else to_array("s_batch", s_batch)
    for name, array in (("y_batch", y_batch), ("s_batch", s_batch)):
        if array is not None and (not array.ndim or len(array) != len(x_batch)):
            raise ValueError(
                f"Expected argument `{name}` to have a row for each of the {len(x_batch)} samples of `x_batch` but got "
                f"shape {array.shape}."
            )
    if call_kwargs is not None and not check_mapping("call_kwargs", call_kwargs):
        raise ValueError("Expected argument `call_kwargs` to hold at least one entry but it is empty.")
    _check_control(control, xai_methods)
    check_whole("n_baselines", n_baselines, 1)
    own = [*inspect.signature(evaluate).parameters][:-1]
    known = [*own, *CallArguments.__annotations__]
    check_keywords("evaluate", kwargs, known, "Arguments of one method go into its dict.")
    if baselines and control is not None:
        raise ValueError("Expected either `control` or `baselines=True` but got both.")
    # Quantus explains with Gradient under a dict without a method, whatever its key.
    xai_methods = {
        name: {"method": name, **value} if isinstance(value, Mapping) and name in QUANTUS_METHODS else value
        for name, value in xai_methods.items()
    }
    calls = {"": {}} if call_kwargs is None else {name: dict(keywords) for name, keywords in call_kwargs.items()}
    data = {"model": model, "x_batch": x_batch, "y_batch": y_batch, "s_batch": s_batch}
    further: dict[str, Any] = {"call_kwargs": calls, "verbose": verbose if progress is None else progress, **kwargs}
    results_by_method: dict[str, dict[str, dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    rows_of_any = dict[tuple[str, str], dict[str, Any]]()
    of_items = dict[str, None]()
    guards: dict[str, _Guard] = {}
    with evaluation_mode(model), ensure_block():
        for method, value in bar(xai_methods.items(), "evaluating", show=display_progressbar, unit="method"):
            guards = {
                name: _Guard(f"{name} of {method}", metric, len(x_batch), guards.get(name))
                for name, metric in metrics.items()
            }
            failure = _evaluate_method(guards, method, value, explain_func_kwargs, data, **further)
            results_by_method[method] = {name: {} for name in metrics}
            for name, guard in guards.items():
                outcomes = guard.outcomes or [guard.failed_outcome(failure) for _ in calls]
                for call, outcome in zip(calls, outcomes, strict=True):
                    scores = outcome.scores if agg_func is None else outcome.aggregate(agg_func)
                    results_by_method[method][name][call] = scores
                    if outcome.record is not None and not outcome.record.of_samples:
                        of_items[name] = None
                    row_of = partial(
                        summary_row, metric=name, scores=outcome.scores, record=outcome.record, clusters=y_batch
                    )
                    if outcome.is_final:
                        rows_of_any[name, call] = row_of(ANY_METHOD, error=outcome.error) | {"call": call}
                    else:
                        rows.append(row_of(method, error=outcome.error) | {"call": call})
        controls: dict[str, Any] = dict.fromkeys(calls, control)
        if baselines or (baselines is None and control is None and random_banks_of(model)):
            scored = {name: metric for name, metric in metrics.items() if baselines or _ran_on_images(metric)}
            draw = partial(_baselines, scored, n_maps=n_baselines, show=display_progressbar)
            controls = {call: draw({**data, **kwargs, **keywords}) for call, keywords in calls.items()}
    _warn_of_same(results_by_method, metrics, xai_methods)
    summary = pd.DataFrame([*rows_of_any.values(), *rows], columns=[*SUMMARY_COLUMNS, "call"])
    if len(calls) > 1:
        parts = [with_control(part, metrics, controls[call]) for call, part in summary.groupby("call", sort=False)]
        summary = pd.concat(parts, ignore_index=True)
        summary.attrs[OF_ITEMS] = [*of_items]
        return Evaluation(results_by_method, summary)
    (only,) = calls
    control = controls[only]
    results = {method: {name: scores[only] for name, scores in of.items()} for method, of in results_by_method.items()}
    summary = with_control(summary.drop(columns="call"), metrics, control)
    summary.attrs[OF_ITEMS] = [*of_items]
    return Evaluation(pd.DataFrame.from_dict(results) if return_as_df else results, summary)


def _evaluate_method(
    guards: dict[str, _Guard],
    method: str,
    value: Any,
    explain_func_kwargs: Mapping[str, Any] | None,
    data: Mapping[str, Any],
    *,
    call_kwargs: dict[str, dict[str, Any]],
    **kwargs: Any,
) -> str:
    """Call every metric for one explanation method; return why the method failed, or ""."""
    try:
        quantus_evaluate(
            metrics=guards,
            xai_methods={method: _Named(value) if _names_method(value) else value},
            explain_func_kwargs=_method_kwargs(value, explain_func_kwargs),
            call_kwargs=call_kwargs,
            **data,
            **kwargs,
        )
    except Exception as error:
        failure = f"the explanation method raised {type(error).__name__}: {error}"
        warn_user(f"{method}: {failure}")
        # Quantus refuses maps that are constant or nowhere positive; the metrics of this package score them.
        for guard in guards.values():
            for keywords in call_kwargs.values() if isinstance(guard.metric, DrawsScores) else ():
                guard(**data, **_explainer(method, value, explain_func_kwargs), **keywords)
        return failure
    return ""


def _baselines(
    metrics: Mapping[str, Any], batches: dict[str, Any], *, n_maps: int, show: bool
) -> dict[str, list[float]]:
    """Return what each metric gives for random banks, or for random maps where it depends on an explanation method."""
    values_by_metric: dict[str, list[float]] = {}
    for name, metric in metrics.items():
        if _ran_on_images(metric):
            try:
                # Values that random banks have of the embeddings of one pass.
                values = [*_copy_metric(metric).bank_values(**batches)] if isinstance(metric, ConceptMetric) else []
            except Exception as error:
                warn_user(f"{name} of a random baseline failed. {type(error).__name__}: {error}")
                continue
        else:
            values = _of_random_maps(name, metric, batches, n_maps, show=show)
        if values:
            values_by_metric[name] = values
    return values_by_metric


def _of_random_maps(name: str, metric: Any, batches: dict[str, Any], n_maps: int, *, show: bool) -> list[float]:
    """Return what a metric gives for random maps; nothing where one of them raises."""
    values = []
    for seed in bar(range(n_maps), f"baselines of {name}", show=show, unit="draw"):
        # A metric keeps what it scored: that of the methods stays what its user finds there.
        silent = _copy_metric(metric)
        # Why draws are undefined is not the user's concern; a draw that raises still warns.
        if hasattr(silent, "_disable_warnings"):
            silent._disable_warnings = True
        guard = _Guard(f"{name} of a random baseline", silent, len(batches["x_batch"]), None)
        guard(**batches, explain_func=explain_func(RandomAttribution, seed=seed), explain_func_kwargs={})
        (outcome,) = guard.outcomes
        if outcome.error:
            return []
        values.append(summary_row("", name, outcome.scores, outcome.record)["value"])
    return values


def _copy_metric(metric: Any) -> Any:
    """Return a copy of a metric that shares its settings but not its results."""
    copied = copy.copy(metric)
    for name, value in vars(copied).items():
        if isinstance(value, list | deque | dict):
            vars(copied)[name] = copy.copy(value)
    return copied


def _ran_on_images(metric: Any) -> bool:
    """Return whether the last call of a metric scored a concept model on images, without explanations."""
    records: Any = getattr(metric, "records", ())
    return bool(records) and isinstance(records[-1], Record) and not records[-1].uses_explanations


def _warn_of_same(
    results: Mapping[str, Mapping[str, Mapping[str, Any]]], metrics: Mapping[str, Any], methods: Mapping[str, Any]
) -> None:
    """Warn where two methods have the same scores of a metric, which depend on the method."""
    unnamed = [name for name, value in methods.items() if isinstance(value, Mapping) and "method" not in value]
    for metric in metrics:
        if _ran_on_images(metrics[metric]):
            continue
        for first, second in itertools.combinations(results, 2):
            if not all(map(_have_same_scores, results[first][metric].values(), results[second][metric].values())):
                continue
            both = "Both were computed with Gradient: pass `method` in their dicts."
            why = both if {first, second} <= {*unnamed} else "Is it the same explanation under two names?"
            warn_user(f"{metric}: {first} and {second} have the same scores. {why}")


def _have_same_scores(first: Any, second: Any) -> bool:
    """Return whether scores are the same and not all one number, as they can be by chance."""
    a, b = _floats(first), _floats(second)
    return a is not None and b is not None and len({*a}) > 1 and np.array_equal(a, b)


def _floats(scores: Any) -> np.ndarray | None:
    """Return scores as (n,) of float; None where they are not one finite number each."""
    try:
        values = np.asarray(scores, dtype=float)
    except (TypeError, ValueError):
        return None
    return values if values.ndim == 1 and np.isfinite(values).all() else None


@dataclass
class _Outcome:
    """The outcome of one call of a metric."""

    scores: Any
    record: Record | None = None
    error: str = ""

    @property
    def is_final(self) -> bool:
        """Whether other explanation methods have the same outcome."""
        return self.record is not None and not self.record.uses_explanations

    def aggregate(self, agg_func: Callable[[Any], Any]) -> Any:
        """Return the scores aggregated; NaN where that raises."""
        try:
            return agg_func(self.scores)
        except Exception as error:
            self.error = self.error or f"agg_func raised {type(error).__name__}: {error}"
            warn_user(self.error)
            return float("nan")


class _Guard:
    """A metric whose exception becomes NaN and a message; `earlier` is its guard of the method before."""

    def __init__(self, name: str, metric: Any, n_samples: int, earlier: _Guard | None) -> None:
        self.name, self.metric, self.n_samples = name, metric, n_samples
        self.outcomes: list[_Outcome] = []
        # Scores that do not depend on the explanation are those of the method before, call by call.
        self._reusable = [] if earlier is None else [outcome for outcome in earlier.outcomes if outcome.is_final]

    def __call__(self, **kwargs: Any) -> Any:
        if len(self.outcomes) < len(self._reusable):
            outcome = self._reusable[len(self.outcomes)]
            self.metric.records.append(outcome.record)
            self.outcomes.append(outcome)
            return outcome.scores
        try:
            scores = self.metric(**kwargs)
        except Exception as error:
            outcome = self.failed_outcome(f"{type(error).__name__}: {error}")
            warn_user(f"{self.name} failed. {outcome.error}")
        else:
            records = getattr(self.metric, "records", None)
            outcome = _Outcome(scores, records[-1] if records else None)
        self.outcomes.append(outcome)
        return outcome.scores

    def failed_outcome(self, error: str) -> _Outcome:
        """Return the outcome of a call that raised, or was never made."""
        return _Outcome([float("nan")] * self.n_samples, error=error)


class _Named:
    """A method of Quantus under a key that is not its name; Quantus would ask again for the method of the key."""

    def __init__(self, keywords: Mapping[str, Any]) -> None:
        self.keywords = keywords

    def __call__(self, **kwargs: Any) -> Any:
        return explain(**{**kwargs, **self.keywords})


def _names_method(value: Any) -> bool:
    return isinstance(value, Mapping) and "method" in value


def _explainer(method: str, value: Any, keywords: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments with which a metric explains as Quantus would."""
    if isinstance(value, Mapping):
        return {"explain_func": explain, "explain_func_kwargs": dict(value)}
    if callable(value):
        return {"explain_func": value, "explain_func_kwargs": {**(keywords or {}), "method": method}}
    return {"a_batch": value}


def _method_kwargs(value: Any, keywords: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the keyword arguments of a method; Quantus needs some for a callable, and none with a dict."""
    if _names_method(value):
        return {}
    return None if isinstance(value, Mapping) else dict(keywords or {})


def _check_subjects(metrics: Mapping[str, Any], xai_methods: Mapping[str, Any]) -> None:
    """Raise for metrics or methods that nothing can be evaluated with."""
    for name, named, remedy in (
        ("metrics", metrics, 'Write {"CEM": CEM(...)}.'),
        ("xai_methods", xai_methods, 'Write {"Saliency": {"method": "Saliency"}}.'),
    ):
        if not check_mapping(name, named, remedy):
            raise ValueError(f"Expected argument `{name}` to hold at least one entry but it is empty.")
    for name, metric in metrics.items():
        if isinstance(metric, type) or not callable(metric):
            write = f" Write {metric.__name__}(...)." if isinstance(metric, type) else ""
            raise TypeError(f"Expected argument `metrics[{name!r}]` to be a metric but got {metric!r:.80}.{write}")
    for name, method in xai_methods.items():
        if not isinstance(method, Mapping) and (callable(method) or hasattr(method, "attribute")):
            check_explainer(f"xai_methods[{name!r}]", method)


def _check_control(control: Any, xai_methods: Mapping[str, Any]) -> None:
    """Raise for a control that names no method, before anything is evaluated."""
    if control is not None and not isinstance(control, str):
        as_list("control", control, "names or results")
    names = [control] if isinstance(control, str) else control if isinstance(control, list | tuple) else []
    absent = [name for name in names if isinstance(name, str) and name not in xai_methods]
    if absent:
        raise ValueError(f"Expected argument `control` to name methods of {list(xai_methods)} but got {absent}.")
