"""The contract of a metric: laws that each metric has to keep, as tests for your own test file."""

from __future__ import annotations

import copy
import inspect
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import quantus
import torch
from captum.attr import InputXGradient
from quantus.helpers.enums import DataType
from torch import nn

from captum_concepts import ConceptBank, PostHocCBM, explain_func
from captum_concepts.models.chain import linear_part, make_linear
from captum_concepts.support.checks import to_numpy
from captum_concepts.support.running import evaluation_mode, predict_logits
from quantus_concepts.metrics import predict_concepts, score_concepts, score_predictions
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.metric import QuantusMetric
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import nanmean
from quantus_concepts.testing.untouched import untouched

NAMES = ["round", "red", "striped", "long", "soft"]
#: The data that a case gets by default: images, their side, concepts, classes, parts.
N, SIZE, N_CONCEPTS, N_CLASSES, N_PARTS = 30, 12, len(NAMES), 4, 3
#: How many seeds chance is counted over, and how many standard errors their mean may be away from it.
SEEDS, ERRORS = 40, 3.5
#: Scores by two roads may differ by so much.
CLOSE = 1e-5

Keywords = dict[str, Any]
#: Rows that `score_rows` takes, or the keywords of a call.
Data = ConceptPredictions | Mapping[str, Any]


@dataclass(frozen=True)
class MetricCase:
    """A metric, and data of which its score is known.

    Parameters
    ----------
    metric : QuantusMetric
        It is copied for each law. Truth of samples is not bound to it but in the data, under its name.
    optimum : ConceptPredictions or dict, optional
        Rows whose scores all have to be `best`, or the keywords of a call (`model`, `x_batch`, ...), whose truth is in
        `custom_batch`.
    chance : callable, optional
        ``chance(seed)`` returns such rows or keywords, of a model or a method that knows nothing.
    best : float
        The score of the optimum: 0 for leakage.
    at_chance : float, optional
        The score that is expected by chance; by default what the metric's scores say of chance.
    tolerance : float
        How far the mean score of the optimum may be from `best`.
    call : dict, optional
        Keywords of a call for all other laws, in place of those of a small concept model of 30 images of 12 pixels with
        5 concepts, 4 classes and 3 parts; "custom_batch" is added to its truth, which has every name that a metric of
        this package knows.
    excused : dict, optional
        By the name of a law, why the metric does not have to keep it. The law has to fail, then.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts import CEM, ConceptPredictions
    >>> from quantus_concepts.testing import MetricCase
    >>> labels = torch.eye(3)[[0, 1, 2, 0]]
    >>> shown = ConceptPredictions(classes=torch.zeros(4, dtype=int), given=labels, truth={"concept_labels": labels})
    >>> MetricCase(CEM(), optimum=shown).metric.score_rows(shown).of_call.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    metric: QuantusMetric
    optimum: Data | None = None
    chance: Callable[[int], Data] | None = None
    best: float = 1.0
    at_chance: float | None = None
    tolerance: float = 1e-6
    call: Mapping[str, Any] = field(default_factory=dict)
    excused: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the metric's class."""
        return type(self.metric).__name__

    @cached_property
    def keywords(self) -> Keywords:
        """The keywords of a call, with what the metric takes of the truth."""
        keywords = {**drawn_call(), **self.call}
        truth = {**drawn_call()["custom_batch"], **self.call.get("custom_batch", {})}
        return keywords | {"custom_batch": {name: truth[name] for name in self.metric.sample_truth if name in truth}}

    @cached_property
    def scores(self) -> np.ndarray:
        """The scores of a call."""
        return self.scores_of(self.keywords)

    def new(self) -> Any:
        """Return a copy of the metric without results."""
        return copy.deepcopy(self.metric)

    def scores_of(self, data: Data, **changes: Any) -> np.ndarray:
        """Return the scores of rows, or of a call."""
        if isinstance(data, ConceptPredictions):
            return np.array(self.new().score_rows(data).of_call, dtype=float)
        return np.array(self.new()(**{**data, **changes}), dtype=float)

    def updated(self, *parts: Keywords) -> Any:
        """Return the metric after updates with the keywords of several calls."""
        metric = self.new()
        for part in parts:
            metric.update(**{name: value for name, value in part.items() if name != "custom_batch"}, **part["custom_batch"])
        return metric

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """The images and their truth, as a loader gives them."""
        n = len(self.keywords["x_batch"])
        # Without labels the metric takes the classes explained for them, as its call does.
        truth = {"labels": self.keywords["y_batch"], **self.keywords["custom_batch"]}
        images = {"images": self.keywords["x_batch"], **truth}
        return [{name: torch.as_tensor(value[i : i + 8]) for name, value in images.items()} for i in range(0, n, 8)]

    @cached_property
    def rows(self) -> ConceptPredictions:
        """What the model predicts for the images."""
        rows: ConceptPredictions = predict_concepts(
            self.keywords["model"], self.batches, [self.new()], baselines=False, random_banks=False
        )
        return rows


@cache
def drawn_call() -> Keywords:
    """Return the keywords of a call: a small concept model, drawn images, and all truth that metrics here know."""
    rng, random = np.random.default_rng(0), torch.Generator().manual_seed(0)
    images = rng.random((N, 3, SIZE, SIZE), dtype=np.float32)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        features = nn.Sequential(nn.Conv2d(3, 6, 3, stride=3), nn.ReLU())
        head = nn.Linear(N_CONCEPTS, N_CLASSES)
    bank = ConceptBank(torch.randn(N_CONCEPTS, 6, generator=random), names=NAMES)
    model = PostHocCBM(features, bank, head).eval()
    with torch.no_grad():
        values = model.concept_predictor(torch.as_tensor(images))
        model.absent_values = values.mean(0)
        # So that all classes are predicted.
        head.bias -= model.head(values).mean(0)
        classes = model.head(values).argmax(1).numpy()
    points = rng.uniform(0, SIZE - 1, (N, N_PARTS, 2))
    labels = rng.integers(0, 2, (N, N_CONCEPTS))
    # The first image shows nothing.
    points[0], labels[0] = np.nan, 0
    added = rng.integers(0, N_CONCEPTS, N)
    truth = {
        **{"concept_labels": labels, "points": points, "labels": rng.integers(0, N_CLASSES, N)},
        **{"added": added, "removed": (added + 1) % N_CONCEPTS},
    }
    masks = np.zeros((N, 1, SIZE, SIZE))
    masks[:, :, 3:9, 3:9] = 1
    explained = {"s_batch": masks, "explain_func": explain_func(InputXGradient)}
    return {"model": model, "x_batch": images, "y_batch": classes, "custom_batch": truth} | explained


def take(keywords: Keywords, places: Any) -> Keywords:
    """Return the keywords of a call with some of the samples."""
    truth = {name: value[places] for name, value in keywords["custom_batch"].items()}
    arrays = {name: value[places] for name, value in keywords.items() if name.endswith("_batch") and name != "custom_batch"}
    return {**keywords, **arrays, "custom_batch": truth}


def halves(keywords: Keywords) -> tuple[Keywords, Keywords]:
    """Return the keywords of two calls with the samples of one."""
    middle = len(keywords["x_batch"]) // 2
    return take(keywords, slice(None, middle)), take(keywords, slice(middle, None))


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
    """Rows that deserve the best score get it."""
    scores = case.scores_of(case.optimum)  # type: ignore[arg-type]
    assert np.isfinite(scores).all(), f"scores are undefined: {scores}"
    far = abs(scores.mean() - case.best)
    assert far <= case.tolerance, f"the mean score is {scores.mean():.6g} and not {case.best}: {scores}"


@law(lambda case: case.chance is not None)
def chance(case: MetricCase) -> None:
    """The mean score of rows that know nothing is chance, within 3.5 standard errors over 40 seeds."""
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
    """An undefined score is NaN and counted with its reason; every other score is in the metric's bounds."""
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
    """Scores do not depend on the batch size."""
    for size in (1, 7):
        assert_same(case.scores_of(case.keywords, batch_size=size), case.scores, f"batches of {size} and all at once")


@law(always)
def order_of_images(case: MetricCase) -> None:
    """Images in another order have the same scores."""
    n = len(case.keywords["x_batch"])
    order = np.random.default_rng(1).permutation(n)
    expected = case.scores[order] if case.metric.of_samples else case.scores
    assert_same(case.scores_of(take(case.keywords, order)), expected, "another order and this order")


@law(of_values)
def order_of_concepts(case: MetricCase) -> None:
    """Concepts in another order have the same scores, with their truth and their tables."""
    rows, n_concepts = case.rows, case.rows.shape[1]
    order = torch.as_tensor(np.random.default_rng(1).permutation(n_concepts))
    place_of = torch.argsort(order)

    def moved(value: Any, name: str = "") -> Any:
        if name in ("added", "removed"):
            return place_of[value]
        if np.ndim(value) and np.shape(value)[-1] == n_concepts and len(rows) != n_concepts:
            return value[..., order]
        return value

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
    """Importances times a positive factor have the same scores; so have concept values, where no importance is read."""
    name = "given" if hasattr(case.metric, "importance") else "values"
    of_rows = case.rows.importance("value")
    scores = [case.scores_of(case.rows.knowing(**{name: factor * of_rows})) for factor in (1, 4)]
    assert_same(scores[1], scores[0], "four times and once")


@law(lambda case: of_concepts(case) and "concept_labels" in case.metric.sample_truth)
def names_of_concepts(case: MetricCase) -> None:
    """Truth in a DataFrame is read by its names, in whichever order its columns are."""
    names = case.keywords["model"].bank.names
    order = np.random.default_rng(1).permutation(len(names))
    truth = case.keywords["custom_batch"]
    framed = pd.DataFrame(truth["concept_labels"][:, order], columns=[names[place] for place in order])
    assert_same(
        case.scores_of(case.keywords, custom_batch=truth | {"concept_labels": framed}), case.scores, "a table and an array"
    )


@law(always)
def double_precision(case: MetricCase) -> None:
    """A model in double precision has the same scores."""
    metric = case.new()
    for part in vars(metric).values():
        if isinstance(part, nn.Module):
            part.double()
    found = metric(**case.keywords | {"model": copy.deepcopy(case.keywords["model"]).double()})
    np.testing.assert_allclose(found, case.scores, rtol=1e-4, atol=1e-4, err_msg="double and single precision")


@law(always)
def random_numbers(case: MetricCase) -> None:
    """Scores do not depend on global random numbers, and a second call gives the same."""
    metric = case.new()
    with torch.random.fork_rng([]):
        state = np.random.get_state()  # noqa: NPY002
        try:
            torch.manual_seed(1)
            np.random.seed(1)  # noqa: NPY002
            first = metric(**case.keywords)
        finally:
            np.random.set_state(state)  # noqa: NPY002
    assert_same(first, case.scores, "other random numbers")
    assert_same(metric(**case.keywords), case.scores, "the second call")


@law(always)
def nothing_is_changed(case: MetricCase) -> None:
    """A call changes nothing of the user's: weights, train flags, gradients, hooks, arrays, random numbers."""
    model = copy.deepcopy(case.keywords["model"])
    model.train()
    with untouched(model, *(value for value in case.keywords.values() if isinstance(value, np.ndarray))):
        case.scores_of(case.keywords, model=model)


# The same by every road.


@law(always)
def host(case: MetricCase) -> None:
    """A metric has Quantus's keywords, says what its score means, and keeps its settings under their names."""
    metric = case.metric
    keywords = set(inspect.signature(quantus.PointingGame.__call__).parameters)
    assert set(inspect.signature(type(metric).__call__).parameters) == keywords | {"custom_batch"}
    lacking = [name for name in ("name", "score_direction", "evaluation_category") if not hasattr(metric, name)]
    lacking += [name for name in (*metric.own_settings(), *metric.sample_truth) if not hasattr(metric, name)]
    assert not lacking, f"it has no {', '.join(lacking)}"
    assert "score of 1 says" in (type(metric).__init__.__doc__ or ""), "say in `__init__` what a score of 1 says"
    assert not metric.bound_truth, f"give truth of samples with the data, and not to the metric: {[*metric.bound_truth]}"
    settings = pickle.loads(pickle.dumps(metric)).get_params
    assert settings.keys() == metric.get_params.keys()


@law(always)
def quantus_evaluate(case: MetricCase) -> None:
    """Stock `quantus.evaluate` gives the scores of a call."""
    scores = _evaluated(case, case.keywords, {"method": case.keywords["explain_func"]})
    assert_same(scores, case.scores, "quantus.evaluate and a call")


def _evaluated(case: MetricCase, keywords: Keywords, methods: Any) -> Any:
    data = {name: keywords.get(name) for name in ("model", "x_batch", "y_batch", "s_batch")}
    call_kwargs = {"call": {"custom_batch": keywords["custom_batch"]}}
    settings: Keywords = {"call_kwargs": call_kwargs, "explain_func_kwargs": {}, "verbose": False}
    return quantus.evaluate({"metric": case.new()}, methods, **data, **settings)["method"]["metric"]


@law(at_heads)
def head(case: MetricCase) -> None:
    """At the head, `quantus.evaluate` gives what `score_rows` gives for rows with these explanations."""
    given = np.random.default_rng(2).normal(size=case.rows.values.shape)  # type: ignore[union-attr]
    given[2] = 0
    rows = case.rows.knowing(given=torch.as_tensor(given)) if hasattr(case.metric, "importance") else case.rows
    at_head = {"model": case.keywords["model"].head, "x_batch": to_numpy(case.rows.values), "s_batch": None}
    scores = _evaluated(case, case.keywords | at_head, {"method": given})
    assert_same(scores, case.scores_of(rows), "the head and `score_rows`")


@law(always)
def updates(case: MetricCase) -> None:
    """`update` with every batch, then `compute`, gives what one call gives; and after `reset` nothing is left."""
    metric = case.updated(*halves(case.keywords))
    assert_same(metric.compute(), case.scores, "`update` and a call")
    assert_same(metric.compute(), case.scores, "a second `compute`")
    metric.reset()
    metric.update(**{key: of for key, of in case.keywords.items() if key != "custom_batch"}, **case.keywords["custom_batch"])
    assert_same(metric.compute(), case.scores, "`update` after `reset`")


@law(always)
def merged_halves(case: MetricCase) -> None:
    """Two halves of the images, scored in two processes, merge to the scores of all."""
    first, second = (case.updated(half) for half in halves(case.keywords))
    first.merge_state(pickle.loads(pickle.dumps(second)))
    assert_same(first.compute(), case.scores, "merged halves and all images")


@law(of_concepts)
def tables(case: MetricCase) -> None:
    """`score_concepts`, and `score_predictions` of saved rows, halves merged, give the scores of a call."""
    metric, rows = case.new(), case.rows
    assert_same(metric.score_rows(rows).of_call, case.scores, "`score_rows` and a call")
    table = score_concepts(case.keywords["model"], case.batches, [case.new()], baselines=False)
    assert_same(np.mean(table["value"][: len(metric.score_rows(rows).path)]), nanmean(case.scores), "the table and a call")
    middle = len(rows) // 2
    merged = ConceptPredictions.merge([rows[:middle], rows[middle:]])
    with tempfile.TemporaryDirectory() as folder:
        merged.save(Path(folder) / "rows.safetensors")
        loaded = ConceptPredictions.load(Path(folder) / "rows.safetensors")
    pd.testing.assert_frame_equal(score_predictions(loaded, [case.new()], baselines=False), table)


# What is refused.


@law(lambda case: bool(case.metric.needed))
def missing_truth(case: MetricCase) -> None:
    """Truth that the metric needs and does not get is refused by its name."""
    for name in case.metric.needed:
        truth = {key: value for key, value in case.keywords["custom_batch"].items() if key != name}
        _refused(lambda truth=truth: case.scores_of(case.keywords, custom_batch=truth), name)  # type: ignore[misc]
        if of_concepts(case):
            batches = [{key: value for key, value in batch.items() if key != name} for batch in case.batches]
            _refused(lambda batches=batches: score_concepts(case.keywords["model"], batches, [case.new()]), name)  # type: ignore[misc]


@law(always)
def no_images(case: MetricCase) -> None:
    """A call without any image is refused."""
    _refused(lambda: case.scores_of(take(case.keywords, slice(0, 0))), "x_batch")


@law(always)
def unknown_classes(case: MetricCase) -> None:
    """A class that the model does not have is refused."""
    model = case.keywords["model"]
    with evaluation_mode(model):
        n_classes = predict_logits(model, case.keywords["x_batch"][:2]).shape[1]
    names = ["y_batch", *({"labels"} & {*case.metric.sample_truth})]
    for name in names:
        for wrong in (n_classes, -1):
            classes = np.where(np.arange(len(case.keywords["x_batch"])) == 3, wrong, case.keywords["y_batch"])
            truth = case.keywords["custom_batch"]
            changes = {name: classes} if name == "y_batch" else {"custom_batch": truth | {name: classes}}
            _refused(lambda changes=changes: case.scores_of(case.keywords, **changes), name)  # type: ignore[misc]


def _refused(call: Callable[[], Any], name: str) -> None:
    try:
        call()
    except (ValueError, TypeError) as error:
        assert f"`{name}`" in str(error), f"the error does not name `{name}`: {error}"
    else:
        raise AssertionError(f"`{name}` was not refused")


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

    params = []
    for each in metrics:
        case = each if isinstance(each, MetricCase) else MetricCase(each)
        if unknown := case.excused.keys() - LAWS.keys():
            raise ValueError(f"Expected `excused` of {case.name} to name laws, {', '.join(LAWS)}, but got {min(unknown)}.")
        for name, law in LAWS.items():
            if law.applies(case):
                excuse = case.excused.get(name)
                marks = [] if excuse is None else [pytest.mark.xfail(reason=excuse, strict=True, raises=AssertionError)]
                params.append(pytest.param(case, law, marks=marks, id=f"{case.name}-{name}"))
    return pytest.mark.parametrize(("case", "law"), params)
