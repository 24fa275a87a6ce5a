"""The contract of a metric: laws that each metric has to keep, as tests for your own test file."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from quantus.evaluation import evaluate
from quantus.helpers.enums import DataType
from quantus.metrics.localisation.pointing_game import PointingGame
from torch import nn

from captum_concepts.models.chain import linear_part, make_linear
from captum_concepts.support.checks import to_numpy
from captum_concepts.support.running import evaluation_mode, predict_logits
from quantus_concepts.metrics import score_concepts, score_predictions
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.metric import QuantusMetric
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import nanmean
from quantus_concepts.testing.cases import Keywords, MetricCase, halves, take
from quantus_concepts.testing.untouched import untouched

#: How many seeds chance is counted over, and how many standard errors their mean may be away from it.
SEEDS, ERRORS = 40, 3.5
#: Scores by two roads may differ by so much.
CLOSE = 1e-5


@dataclass(frozen=True)
class Law:
    """A law: its sentence is the first of its docstring."""

    check: Callable[[MetricCase], None]
    applies: Callable[[MetricCase], bool]

    @property
    def name(self) -> str:
        """Its name, by which a metric is excused."""
        return self.check.__name__

    @property
    def sentence(self) -> str:
        """What it asks."""
        return (inspect.getdoc(self.check) or "").partition("\n\n")[0].replace("\n", " ")

    def __call__(self, case: MetricCase) -> None:
        """Raise an AssertionError that names the metric and the law where the metric breaks it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.check(case)
        except Exception as error:
            broken = f"{case.name} breaks the law `{self.name}`: {self.sentence}"
            raise AssertionError(f"{broken}\n{type(error).__name__}: {error}") from error


LAWS: dict[str, Law] = {}


def always(case: MetricCase) -> bool:
    """Whether a law is for this metric: for all."""
    return True


def of_concepts(case: MetricCase) -> bool:
    """Whether it is a metric of concept models."""
    return isinstance(case.metric, ConceptMetric)


def of_values(case: MetricCase) -> bool:
    """Whether it is a metric of concept models that does not look at the model again."""
    return isinstance(case.metric, ConceptMetric) and case.metric.look() is None


def at_heads(case: MetricCase) -> bool:
    """Whether it takes concept values, of which a head makes classes."""
    return of_values(case) and DataType.TABULAR in case.metric.data_applicability


def law(applies: Callable[[MetricCase], bool]) -> Callable[[Callable[[MetricCase], None]], Law]:
    """Make a law of a function, for the metrics to which it applies."""

    def make(check: Callable[[MetricCase], None]) -> Law:
        LAWS[check.__name__] = Law(check, applies)
        return LAWS[check.__name__]

    return make


def assert_same(found: Any, expected: Any, what: str) -> None:
    """Raise where scores differ."""
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE, err_msg=what)


# What a score is.


@law(lambda case: case.optimum is not None)
def optimum(case: MetricCase) -> None:
    """Give the best score to rows that deserve it."""
    scores = case.scores_of(case.optimum)  # type: ignore[arg-type]
    assert np.isfinite(scores).all(), f"scores are undefined: {scores}"
    far = abs(scores.mean() - case.best)
    assert far <= case.tolerance, f"the mean score is {scores.mean():.6g} and not {case.best}: {scores}"


@law(lambda case: case.chance is not None)
def chance(case: MetricCase) -> None:
    """Give rows that know nothing the score of chance, within 3.5 standard errors over 40 seeds."""
    gains = []
    for seed in range(SEEDS):
        data = case.chance(seed)  # type: ignore[misc]
        metric = case.new()
        if isinstance(data, ConceptPredictions):
            found = metric.score_rows(data)
            scores, by_chance = found.of_call, found.mean_chance
        else:
            scores = metric(**data)
            by_chance = metric.records[-1].chance
        gains.append(nanmean(scores) - (by_chance if case.at_chance is None else case.at_chance))
    assert np.isfinite(gains).all(), "scores or their chance are undefined: give `at_chance=`"
    error = np.std(gains, ddof=1) / np.sqrt(SEEDS)
    assert error <= 0.02 * _width(case), f"the standard error is {error:.3g}: draw more images for each seed"
    far = abs(np.mean(gains))
    assert far <= ERRORS * error + case.tolerance, f"the mean score less chance is {np.mean(gains):.4g} +- {error:.2g}"


def _width(case: MetricCase) -> float:
    low, high = case.metric.bounds
    return high - low if np.isfinite(high - low) else 1.0


@law(always)
def undefined_scores(case: MetricCase) -> None:
    """Count each undefined score, which is NaN, with its reason, and keep all others in the metric's bounds."""
    for keywords in (case.keywords, take(case.keywords, slice(None, 1)), take(case.keywords, slice(1, 2))):
        metric = case.new()
        scores = np.array(metric(**keywords))
        missing, (low, high) = np.isnan(scores), metric.bounds
        assert ((scores >= low - CLOSE) & (scores <= high + CLOSE) & np.isfinite(scores) | missing).all(), f"{scores}"
        counted = sum(metric.records[-1].reasons.values())
        assert metric.undefined == missing.sum()
        assert counted >= min(1, missing.sum()), f"{missing.sum()} of {len(scores)} scores are NaN without a reason"
    assert np.isfinite(case.scores).any(), "all scores of the case's images are undefined"


# What a score does not depend on.


@law(always)
def batch_size(case: MetricCase) -> None:
    """Give the same scores for batches of any size."""
    for size in (1, 7):
        assert_same(case.scores_of(case.keywords, batch_size=size), case.scores, f"batches of {size} and all at once")


@law(always)
def order_of_images(case: MetricCase) -> None:
    """Give images in another order the same scores."""
    n = len(case.keywords["x_batch"])
    order = np.random.default_rng(1).permutation(n)
    expected = case.scores[order] if case.metric.of_samples else case.scores
    assert_same(case.scores_of(take(case.keywords, order)), expected, "another order and this order")


@law(of_values)
def order_of_concepts(case: MetricCase) -> None:
    """Give concepts in another order, with their truth and their tables, the same scores."""
    rows, n_concepts = case.rows, case.rows.shape[1]
    order = torch.as_tensor(np.random.default_rng(1).permutation(n_concepts))
    place_of = torch.argsort(order)

    def moved(value: Any, name: str = "") -> Any:
        if name in ("added", "removed"):
            return place_of[value]
        is_table = isinstance(value, np.ndarray | torch.Tensor) and value.ndim and value.shape[-1] == n_concepts
        return value[..., order] if is_table and len(rows) != n_concepts else value

    linear: Any = linear_part(rows.head) if rows.head is not None else None
    settings: Keywords = {
        "values": moved(rows.values),
        "head": linear and make_linear(linear.weight[:, order], linear.bias, linear.weight.dtype, linear.weight.device),
        "truth": {name: moved(value, name) for name, value in rows.truth.items()},
        "tables": {name: moved(value) for name, value in rows.tables.items()},
        "of_head": {name: moved(value) for name, value in rows.of_head.items()},
    }
    of_metric = {name: moved(getattr(case.metric, name)) for name in case.metric.own_settings()}
    scores = case.new().vary(**of_metric).score_rows(rows.knowing(**settings)).of_call
    of_each = not case.metric.of_samples and len(case.scores) == n_concepts
    assert_same(scores, case.scores[order.numpy()] if of_each else case.scores, "another order and this order")


@law(at_heads)
def positive_factor(case: MetricCase) -> None:
    """Give importances times a positive factor the same scores; or values, where no importance is read."""
    name = "given" if hasattr(case.metric, "importance") else "values"
    of_rows = case.rows.importance("value")
    scores = [case.scores_of(case.rows.knowing(**{name: factor * of_rows})) for factor in (1, 4)]
    assert_same(scores[1], scores[0], "four times and once")


def with_names(case: MetricCase) -> bool:
    """Whether its model names the concepts whose labels it takes."""
    return "concept_labels" in case.keywords["custom_batch"] and hasattr(case.keywords["model"], "bank")


@law(with_names)
def names_of_concepts(case: MetricCase) -> None:
    """Read truth in a DataFrame by its names, in whichever order its columns are."""
    names = case.keywords["model"].bank.names
    order = np.random.default_rng(1).permutation(len(names))
    truth = case.keywords["custom_batch"]
    framed = pd.DataFrame(truth["concept_labels"][:, order], columns=[names[place] for place in order])
    scores = case.scores_of(case.keywords, custom_batch=truth | {"concept_labels": framed})
    assert_same(scores, case.scores, "a table and an array")


@law(always)
def double_precision(case: MetricCase) -> None:
    """Give a model in double precision the same scores."""
    metric = case.new()
    for part in vars(metric).values():
        if isinstance(part, nn.Module):
            part.double()
    found = metric(**case.keywords | {"model": copy.deepcopy(case.keywords["model"]).double()})
    np.testing.assert_allclose(found, case.scores, rtol=1e-4, atol=1e-4, err_msg="double and single precision")


@law(always)
def random_numbers(case: MetricCase) -> None:
    """Depend on no global random numbers, and give the same scores in a second call."""
    metric = case.new()
    with torch.random.fork_rng([]):
        state = np.random.get_state()  # noqa: NPY002
        try:
            torch.default_generator.manual_seed(1)
            np.random.seed(1)  # noqa: NPY002
            first = metric(**case.keywords)
        finally:
            np.random.set_state(state)  # noqa: NPY002
    assert_same(first, case.scores, "other random numbers")
    assert_same(metric(**case.keywords), case.scores, "the second call")
    assert len(metric.all_evaluation_scores) == 2 * len(case.scores)


@law(always)
def nothing_is_changed(case: MetricCase) -> None:
    """Change nothing of the user's: weights, train flags, gradients, hooks, arrays, random numbers."""
    model = copy.deepcopy(case.keywords["model"]).train()
    with untouched(model, *(value for value in case.keywords.values() if isinstance(value, np.ndarray))):
        scores = case.scores_of(case.keywords, model=model)
    assert_same(scores, case.scores, "a model in train mode and in eval mode")


# The same by every road.


@law(always)
def host(case: MetricCase) -> None:
    """Have Quantus's keywords, say what a score means, and keep settings under their names."""
    metric = case.metric
    keywords = set(inspect.signature(PointingGame.__call__).parameters)
    assert set(inspect.signature(type(metric).__call__).parameters) == keywords | {"custom_batch"}
    lacking = [name for name in ("name", "score_direction", "evaluation_category") if not hasattr(metric, name)]
    lacking += [name for name in (*metric.own_settings(), *metric.sample_truth) if not hasattr(metric, name)]
    assert not lacking, f"it has no {', '.join(lacking)}"
    assert "score of 1 says" in (type(metric).__init__.__doc__ or ""), "say in `__init__` what a score of 1 says"
    assert not metric.bound_truth, f"give truth of samples with the data: {', '.join(metric.bound_truth)}"
    settings = pickle.loads(pickle.dumps(metric)).get_params
    assert settings.keys() == metric.get_params.keys()


@law(always)
def quantus_evaluate(case: MetricCase) -> None:
    """Give in stock `quantus.evaluate` the scores of a call."""
    scores = _evaluated(case, case.keywords, {"method": case.keywords["explain_func"]})
    assert_same(scores, case.scores, "quantus.evaluate and a call")


def _evaluated(case: MetricCase, keywords: Keywords, methods: Any) -> Any:
    data: Keywords = {name: keywords.get(name) for name in ("model", "x_batch", "y_batch", "s_batch")}
    call_kwargs = {"call": {"custom_batch": keywords["custom_batch"]}}
    settings: Keywords = {"call_kwargs": call_kwargs, "explain_func_kwargs": {}, "verbose": False}
    found: Any = evaluate({"metric": case.new()}, methods, **data, **settings)
    return found["method"]["metric"]


@law(at_heads)
def head(case: MetricCase) -> None:
    """Give at the head, in `quantus.evaluate`, what `score_rows` gives for rows with these explanations."""
    call = at_head(case)
    given = torch.as_tensor(call.pop("a_batch"))
    rows = case.rows.knowing(given=given) if hasattr(case.metric, "importance") else case.rows
    assert_same(_evaluated(case, call, {"method": given.numpy()}), case.scores_of(rows), "the head and `score_rows`")


def at_head(case: MetricCase) -> Keywords:
    """Return the keywords of a call at the head, with drawn explanations, of which one is zero."""
    values = to_numpy(case.rows.values)
    given = np.random.default_rng(2).normal(size=values.shape)
    given[2] = 0
    others = {name: case.keywords[name] for name in ("y_batch", "custom_batch")}
    return {"model": case.keywords["model"].head, "x_batch": values, "a_batch": given, **others}


@law(always)
def updates(case: MetricCase) -> None:
    """Give by `update` with every batch, then `compute`, what one call gives; and forget all by `reset`."""
    metric, at_once = case.updated(*halves(case.keywords)), case.new()
    at_once(**case.keywords)
    assert_same(metric.compute(), case.scores, "`update` and a call")
    found, expected = metric.records[-1], at_once.records[-1]
    assert found.reasons == expected.reasons, f"reasons are {found.reasons} and {expected.reasons}"
    assert_same(found.chance, expected.chance, "chance of `update` and of a call")
    assert_same(metric.compute(), case.scores, "a second `compute`")
    metric.reset()
    _refused(metric.compute, "update")


@law(always)
def merged_halves(case: MetricCase) -> None:
    """Merge two halves of the images, scored in two processes, to the scores of all."""
    first, second = (case.updated(half) for half in halves(case.keywords))
    alone = second.compute()
    first.merge_state(pickle.loads(pickle.dumps(second)))
    assert_same(first.compute(), case.scores, "merged halves and all images")
    assert_same(second.compute(), alone, "the second half before and after")


@law(of_concepts)
def tables(case: MetricCase) -> None:
    """Give in `score_concepts`, and in `score_predictions` of merged and saved rows, the scores of a call."""
    metric, rows = case.new(), case.rows
    assert_same(metric.score_rows(rows).of_call, case.scores, "`score_rows` and a call")
    table = score_concepts(case.keywords["model"], case.batches, [case.new()], baselines=False)
    found = metric.score_rows(rows)
    own = table.loc[(table["metric"] == found.fields[0]["metric"]) & (table["item"] == ""), "value"]
    assert_same(own[: len(found.path)].mean(), found.means[0][[*found.path]].mean(), "the table and `score_rows`")
    middle = len(rows) // 2
    merged = ConceptPredictions.merge([rows[:middle], rows[middle:]])
    with tempfile.TemporaryDirectory() as folder:
        merged.save(Path(folder) / "rows.safetensors")
        loaded = ConceptPredictions.load(Path(folder) / "rows.safetensors")
    pd.testing.assert_frame_equal(score_predictions(loaded, [case.new()], baselines=False), table)


# What is refused.


@law(lambda case: bool(case.metric.needed))
def missing_truth(case: MetricCase) -> None:
    """Refuse to score without truth that the metric needs, and name it."""
    for name in case.metric.needed:
        truth = {key: value for key, value in case.keywords["custom_batch"].items() if key != name}
        _refused(lambda truth=truth: case.scores_of(case.keywords, custom_batch=truth), name)  # type: ignore[misc]
        if of_concepts(case):
            batches = [{key: value for key, value in batch.items() if key != name} for batch in case.batches]
            _refused(lambda batches=batches: score_concepts(case.keywords["model"], batches, [case.new()]), name)  # type: ignore[misc]


@law(always)
def no_images(case: MetricCase) -> None:
    """Refuse a call without any image."""
    _refused(lambda: case.scores_of(take(case.keywords, slice(0, 0))), "x_batch")


@law(always)
def unknown_classes(case: MetricCase) -> None:
    """Refuse a class that the model does not have."""
    calls = [case.keywords | {"explain_func": brightness}]
    if at_heads(case) and (hasattr(case.metric, "importance") or case.metric.reads_correctness):
        # Others do not run the head.
        calls.append(at_head(case))
    for call, wrong in itertools.product(calls, (n_classes_of(case), -1)):
        classes = np.where(np.arange(len(call["x_batch"])) == 3, wrong, call["y_batch"])
        for name in ("y_batch", *({"labels"} & {*case.metric.sample_truth})):
            changed = call | ({name: classes} if name == "y_batch" else {})
            changed["custom_batch"] = call["custom_batch"] | ({} if name == "y_batch" else {name: classes})
            _refused(lambda changed=changed: case.scores_of(changed), name)  # type: ignore[misc]
            _refused(lambda changed=changed: case.updated(changed), name)  # type: ignore[misc]


def n_classes_of(case: MetricCase) -> int:
    """Return how many classes the model of a case has."""
    model = case.keywords["model"]
    with evaluation_mode(model), torch.no_grad():
        return predict_logits(model, case.keywords["x_batch"][:2]).shape[1]


def brightness(model: Any, inputs: Any, targets: Any, **keywords: Any) -> np.ndarray:
    """Explain by what images show, for whichever class."""
    shown: np.ndarray = np.asarray(inputs).sum(1, keepdims=True)
    return shown


def _refused(call: Callable[[], Any], name: str) -> None:
    try:
        call()
    except (ValueError, TypeError) as error:
        if f"`{name}`" not in str(error):
            raise AssertionError(f"the error does not name `{name}`: {error}") from error
    else:
        raise AssertionError(f"a wrong `{name}` was not refused")


def parametrize_with_metrics(metrics: Iterable[QuantusMetric | MetricCase]) -> Any:
    """Return a decorator for pytest that tests metrics by every law of their contract.

    As `sklearn.utils.estimator_checks.parametrize_with_checks` does it for estimators: a failure names the metric and
    the law. The laws `optimum` and `chance` are for cases that have such data.

    Parameters
    ----------
    metrics : iterable of QuantusMetric or MetricCase
        Metrics, or cases of metrics with data whose score is known.

    Returns
    -------
    decorator : pytest.MarkDecorator
        For a test of two arguments, ``case`` and ``law``, which calls ``law(case)``.

    Raises
    ------
    ImportError
        If pytest is not installed.
    RuntimeError
        Under ``python -O``, which leaves assertions out, and the laws are assertions.
    TypeError
        If it holds anything else, such as a class.
    ValueError
        If a metric is excused from a law that there is not.

    Examples
    --------
    >>> from quantus_concepts import CEM
    >>> from quantus_concepts.testing import parametrize_with_metrics
    >>> @parametrize_with_metrics([CEM()])
    ... def test_contract(case, law):
    ...     law(case)
    """
    import pytest

    if not __debug__:
        raise RuntimeError("The laws are assertions, which `python -O` leaves out: run the tests without it.")
    params = []
    for each in metrics:
        case = each if isinstance(each, MetricCase) else MetricCase(each)
        if not isinstance(case.metric, QuantusMetric):
            raise TypeError(f"Expected argument `metrics` to hold metrics, as `CEM()`, but got {case.metric!r}.")
        if unknown := case.excused.keys() - LAWS.keys():
            raise ValueError(
                f"Expected `excused` of {case.name} to name laws, {', '.join(LAWS)}, but got {min(unknown)}."
            )
        for name, law in LAWS.items():
            if law.applies(case):
                excuse = case.excused.get(name)
                marks = [] if excuse is None else [pytest.mark.xfail(reason=excuse, strict=True, raises=AssertionError)]
                params.append(pytest.param(case, law, marks=marks, id=f"{case.name}-{name}"))
    return pytest.mark.parametrize(("case", "law"), params)
