"""The base of the metrics: Quantus's call, in batches, over one pure function of a batch."""

from __future__ import annotations

import difflib
import inspect
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, Self, Unpack

import numpy as np
import torch
from quantus.helpers import utils, warn
from quantus.helpers.enums import DataType, ModelType
from quantus.metrics.base import Metric
from torch import Tensor, nn
from tqdm.auto import tqdm

from captum_concepts._support.checks import check_whole, to_array, to_numpy
from captum_concepts._support.running import evaluation_mode, predict_logits, warn_user
from quantus_concepts.metrics.host.checks import to_explainer
from quantus_concepts.metrics.host.model import concept_outputs, is_concept_model, no_concept_model
from quantus_concepts.metrics.host.plotting import DrawsScores
from quantus_concepts.metrics.host.record import DEFAULTS, QuantusArguments, Record

#: How many of the last calls a metric remembers: one evaluation of as many explanation methods.
N_RECORDS = 256
_COUNT = itemgetter(0)
#: How the reasons begin for which the explanation method is to blame.
FAILED = "the explanation method failed: "


@dataclass(frozen=True)
class Scored:
    """Scores (n,) of some samples, with what their record needs.

    `chance` (n,) is what no knowledge scores, NaN where that is unknown. `why` (n,) says why a score is undefined:
    "" or reasons, a line each (`add_reason`). `clusters` (n,) are the same for samples that depend on each other.
    `explained` is None if no attribution was asked for, else whether one of them is not zero. A subclass may have more
    arrays with a row for each sample.
    """

    scores: np.ndarray
    chance: np.ndarray
    why: np.ndarray
    clusters: np.ndarray | None = None
    explained: bool | None = None

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return len(self.why)

    def join(self, *others: Self) -> Self:
        """Return the scores of these samples and, after them, of others."""
        joined: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            values = [getattr(part, name) for part in (self, *others)]
            known = [value for value in values if value is not None]
            if name == "explained":
                joined[name] = any(known) if known else None
            else:
                joined[name] = np.concatenate(known) if len(known) == len(values) else None
        return type(self)(**joined)


def count_reasons(why: np.ndarray, n: int) -> dict[str, Counted]:
    """Return how many of n samples have which reason, those of a failed explanation last."""
    counts: dict[str, Counted] = {}
    for reason in "\n".join(why[why != ""]).splitlines():
        counts[reason] = Counted(1 + (counts[reason].n if reason in counts else 0), n)
    return dict(sorted(counts.items(), key=_is_failure)) if len(counts) > 1 else counts


def no_reasons(n: int) -> np.ndarray:
    """Return `why` (n,) of samples whose scores are defined."""
    return np.full(n, "", dtype=object)


def add_reason(why: np.ndarray, rows: np.ndarray | np.bool_, reason: str) -> np.ndarray:
    """Return `why` (n,) with a further reason in the rows (n,) of bool."""
    # A line each: errors of users' methods may have several.
    reason = " ".join(reason.split())
    return np.where(rows, np.where(why == "", reason, why + "\n" + reason), why) if rows.any() else why


class Counted(NamedTuple):
    """How many of `total` samples, concepts or classes have a reason."""

    n: int
    total: int
    unit: str = "samples"


@dataclass
class Result:
    """The scores that a metric returns, and why some are undefined."""

    scores: np.ndarray
    reasons: dict[str, Counted]
    outcome: str = "scores are NaN"

    def describe(self, method: str | None) -> str:
        """Write why scores are undefined, of an explanation method of this name."""
        name = "" if method is None else f" {method!r}"
        parts = []
        for prefix, start in (("", ""), (FAILED, f"the explanation method{name} failed: ")):
            counted = [
                f"{reason.removeprefix(prefix)} ({of.n} of {of.total} {of.unit})"
                for reason, of in self.reasons.items()
                if reason.startswith(FAILED) == bool(prefix)
            ]
            if counted:
                parts.append(start + "; ".join(counted))
        return f"{self.outcome} where {'; and where '.join(parts)}."


class Attributed(NamedTuple):
    """Attributions (n, ...), NaN where they cannot be used, with the reasons (n,), and whether any is not zero."""

    values: np.ndarray
    why: np.ndarray
    explained: bool


@dataclass(frozen=True)
class Explain:
    """Gives the attributions of samples when it is called; nothing is explained for a metric that does not ask."""

    metric: ConceptMetric
    model: Any
    x_batch: np.ndarray
    y_batch: np.ndarray
    #: Attributions given by the caller, and why they cannot be used.
    given: np.ndarray | None = None
    failure: str = ""
    func: Callable[..., Any] | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    #: Further arguments of the model itself.
    predict_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> tuple[np.ndarray, str]:
        """Return the attributions, as the metric is set to treat them, and "" or why there are none."""
        attributions, failure = self.given, self.failure
        if attributions is None and self.func is None:
            wrong = no_concept_model(self.metric.name, self.model, self.x_batch)
            raise ValueError(
                f"{self.metric.name} needs explanations here: pass `a_batch` or `explain_func`. With images and a "
                f"concept model as `model` it computes what it needs by itself{', but ' + wrong if wrong else ''}."
            )
        if attributions is None:
            attributions, failure = self.compute(self.model, self.x_batch, self.y_batch)
        if self.metric.normalise or self.metric.abs:
            attributions = self.metric.treat(attributions)
        # Torch takes neither negative strides nor, without a warning, what cannot be written.
        return np.require(attributions, requirements=("C", "W")), failure

    def compute(self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray) -> tuple[np.ndarray, str]:
        """Explain any model and inputs with the method; return the attributions untreated, and why there are none."""
        assert self.func is not None
        return call_explain_func(self.func, model, x_batch, y_batch, **self.keywords)

    def of_concepts(self, n_concepts: int, truth: str) -> Attributed:
        """Return the attributions (n, L) of concepts, as many as the ground truth of this name has; else NaN."""
        if self.x_batch.ndim == 2 and self.x_batch.shape[1] != n_concepts:
            raise ValueError(
                f"Expected argument `x_batch` to hold the values of {n_concepts} concepts, as many as `{truth}` has, "
                f"but got shape {self.x_batch.shape}. Pass a head as `model` with the values, or a concept model "
                "(captum_concepts.BottleneckCBM) with its own inputs."
            )
        a_batch, failure = self()
        if self.x_batch.ndim == 4 and a_batch.shape[1:] not in ((n_concepts,), (0,)):
            wrong = no_concept_model(self.metric.name, self.model, self.x_batch)
            if wrong:
                # Maps of an image are what every method gives for such a model: no method is to blame.
                n = len(a_batch)
                return Attributed(np.full((n, n_concepts), np.nan), np.full(n, wrong, object), explained=True)
        return usable(a_batch, failure, (n_concepts,), "the number of concepts (L,)")


def usable(a_batch: np.ndarray, failure: str, shape: tuple[int, ...], meaning: str) -> Attributed:
    """Return attributions (n, *shape), NaN where one cannot be used, and why."""
    n = len(a_batch)
    if a_batch.shape[1:] != shape:
        if not failure and a_batch.shape[1:] != (0,):
            failure = f"a sample's attributions have shape {a_batch.shape[1:]}, expected {meaning} = {shape}"
        why = add_reason(no_reasons(n), np.full(n, bool(failure)), FAILED + failure)
        return Attributed(np.full((n, *shape), np.nan), why, explained=False)
    finite = np.isfinite(a_batch.reshape(n, -1)).all(axis=1)
    why = np.where(finite, "", FAILED + "attributions hold NaN or infinity").astype(object)
    if not finite.all():
        a_batch = np.where(finite.reshape(n, *[1] * len(shape)), a_batch, np.nan)
    return Attributed(a_batch, why, explained=bool(a_batch.any()))


class ConceptMetric(DrawsScores, Metric[list[float]]):
    """Base of the metrics: a subclass implements `score_batch`, and has Quantus's call, `update` and `compute`.

    It differs from Quantus's own metrics in four things. Attributions are not passed through
    `general_preprocess`, which rejects maps that are zero, negative or constant. Ground truth that Quantus
    has no argument for is bound in the constructor and aligned with `x_batch`, or passed in `custom_batch` as
    a mapping from argument name to array. `normalise_func` is applied to each sample by itself, so that no
    score depends on the batch size. And whatever is wrong with an *explanation* gives NaN and one warning
    that says why, so that the other results of `quantus.evaluate` are not lost; wrong *arguments* raise.

    Every call computes everything anew, except inside a `quantus_concepts.shared_passes` block, where metrics share
    what a model gives for the same images. One metric and one model belong to one thread.

    After a call, `records` has one `Record` for each of the last calls, the newest last, with chance and why scores are
    undefined; `undefined` is how many were.
    """

    data_applicability = {DataType.IMAGE, DataType.TABULAR}  # noqa: RUF012 - a plain set is the host's contract
    model_applicability = {ModelType.TORCH}  # noqa: RUF012

    # Names of the constructor arguments that hold one row for each sample of `x_batch`.
    sample_truth: tuple[str, ...] = ()
    # Whether explanations that are zero in every sample are undefined, rather than saying that nothing is important.
    zero_says_nothing: bool = True
    # Smallest and largest score possible, and whether there is one for each sample.
    bounds: tuple[float, float] = (-math.inf, math.inf)
    of_samples: bool = True
    # What no knowledge scores, if that is the same for every sample.
    chance: float | None = None
    # Names of the attributes that hold settings of the metric itself.
    settings: tuple[str, ...] = ()
    # Names of the attributes that a call sets.
    results: tuple[str, ...] = ()

    undefined: int

    #: Defaults of Quantus's own arguments.
    quantus_defaults: ClassVar[QuantusArguments] = DEFAULTS

    def __init__(self, **quantus: Unpack[QuantusArguments]) -> None:
        """Take Quantus's own arguments. The subclasses say what their score means."""
        if quantus:
            check_keywords(type(self), quantus)
        arguments: dict[str, Any] = {**self.quantus_defaults, **quantus}
        if arguments["aggregate_func"] is None:
            arguments["aggregate_func"] = nanmean
        if arguments["default_plot_func"] is None:
            arguments["default_plot_func"] = self.plot_scores
        super().__init__(**arguments)
        self.undefined = 0
        self.records: deque[Record] = deque(maxlen=N_RECORDS)
        self._updates: list[Scored] = []

    # What a subclass implements.

    def score_batch(self, *batch: Any, **truth: Any) -> Scored:
        """Score a batch, ``score_batch(model, x_batch, y_batch, explain, **truth)``, and change nothing.

        Images have channels first, `truth` the rows of the batch; ``explain()``, an `Explain`, gives its attributions.
        """
        raise NotImplementedError

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return ground truth of this name as an array, or raise; called for what is bound and for what is passed."""
        return np.asarray(to_numpy(value), order="C")

    def check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, truth: dict[str, Any], explain: Explain
    ) -> dict[str, Any]:
        """Check all samples of a call or an update together; return the truth, with a row for each sample."""
        return truth

    def finish(self, scored: Scored) -> Result:
        """Return the scores of all batches, and why some are undefined."""
        undefined = (scored.why != "").any()
        return Result(scored.scores, count_reasons(scored.why, len(scored.why)) if undefined else {})

    # What is the same for all.

    def __call__(
        self,
        model: nn.Module | None,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray | None = None,
        s_batch: np.ndarray | None = None,
        channel_first: bool | None = None,
        explain_func: Callable[..., np.ndarray] | None = None,
        explain_func_kwargs: dict[str, Any] | None = None,
        model_predict_kwargs: dict[str, Any] | None = None,
        softmax: bool | None = False,
        device: str | None = None,
        batch_size: int = 64,
        custom_batch: Any = None,
        **kwargs: Any,
    ) -> list[float]:
        """Evaluate a batch of explanations; the keywords are those of every Quantus metric."""
        warn.check_kwargs(kwargs)
        batch_size = check_whole("batch_size", batch_size, 1)
        if explain_func is not None and not inspect.isfunction(explain_func):
            to_explainer("explain_func", explain_func)
        keywords = dict(explain_func_kwargs or {})
        method = keywords.get("method")
        if device is not None:
            # As Quantus does it; for models it is their own device that counts.
            keywords.setdefault("device", device)
        passed = {} if custom_batch is None else self._check_passed(custom_batch)
        scored = self._score(
            *(model, x_batch, y_batch, a_batch, s_batch, passed, batch_size, channel_first),
            *(explain_func, keywords, model_predict_kwargs or {}),
        )
        return self._conclude(scored, method)

    def evaluate_batch(
        self,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray | None = None,
        s_batch: np.ndarray | None = None,
        **truth: Any,
    ) -> list[float]:
        """Return the scores of one batch, channels first, without a record."""
        module = model.get_model() if hasattr(model, "get_model") else model
        scored = self._score(module, x_batch, y_batch, a_batch, s_batch, truth, len(x_batch), channel_first=True)
        scores: list[float] = self.finish(scored[0]).scores.tolist()
        return scores

    def update(
        self,
        model: Any,
        x_batch: Any,
        y_batch: Any = None,
        a_batch: Any = None,
        s_batch: Any = None,
        *,
        explain_func: Callable[..., np.ndarray] | None = None,
        explain_func_kwargs: dict[str, Any] | None = None,
        **truth: Any,
    ) -> None:
        """Add a batch; `compute` then gives what one call with all batches would give.

        Parameters
        ----------
        model : nn.Module or None
            As in a call of the metric.
        x_batch : array_like
            (n, ...), the samples of this batch.
        y_batch : array_like, optional
            (n,), their classes; the predicted ones by default, for which the model runs once more.
        a_batch : array_like, optional
            (n, ...), attributions, where explanations are evaluated and not a concept model on images.
        s_batch : array_like, optional
            (n, 1, H, W), masks.
        explain_func : callable, optional
            As in a call of the metric.
        explain_func_kwargs : dict, optional
            As in a call of the metric.
        **truth : array_like
            Ground truth of this batch, a row for each sample, under the names of the constructor's arguments.

        Raises
        ------
        TypeError
            If `truth` has a name that the metric does not know.
        ValueError
            As a call of the metric does.
        """
        if unknown := [name for name in truth if name not in self.sample_truth]:
            names = ", ".join(f"`{name}`" for name in self.sample_truth) or "nothing: it needs none"
            raise TypeError(f"{self.name}.update has no argument `{unknown[0]}`. Give the truth of a batch as {names}.")
        if y_batch is None:
            y_batch = _predicted_classes(model, x_batch)
        scored = self._score(
            *(model, x_batch, y_batch, a_batch, s_batch, truth, len(x_batch), None),
            *(explain_func, explain_func_kwargs or {}, {}),
        )
        self._updates = self._joined([*self._updates, *scored])

    def compute(self) -> list[float]:
        """Return the scores of all batches since `reset`, as a call of the metric does, and add their record.

        Returns
        -------
        list of float
            A score for each sample in the order of the batches; of CGIM for each concept or class.

        Raises
        ------
        ValueError
            If there was no batch.
        """
        if not self._updates:
            raise ValueError(f"{self.name}.compute needs at least one batch. Call `update` first.")
        return self._conclude(self._updates)

    def reset(self) -> None:
        """Forget all batches."""
        self._updates = []

    def merge_state(self, other: Any) -> None:
        """Add the batches of another metric of the same class and settings, of another process for instance.

        Metrics can be pickled: gather them, and merge them in the order in which the scores should come.

        Parameters
        ----------
        other : ConceptMetric
            It is left as it is.

        Raises
        ------
        TypeError
            If it is of another class.
        ValueError
            If it has other settings.
        """
        if type(other) is not type(self):
            raise TypeError(f"Expected argument `other` to be a {type(self).__name__} but got {type(other).__name__}.")
        if differing := [
            name for name in self.settings if not _equal(getattr(self, name, None), getattr(other, name, None))
        ]:
            raise ValueError(
                f"Expected argument `other` to have the settings of this {self.name} but `{differing[0]}` differs."
            )
        self._updates = self._joined([*self._updates, *other._updates])

    def _joined(self, parts: list[Scored]) -> list[Scored]:
        # Sums over samples need no more room with every batch.
        return parts if self.of_samples or len(parts) < 2 else [parts[0].join(*parts[1:])]

    @property
    def get_params(self) -> dict[str, Any]:
        """Parameters of the metric, as in Quantus."""
        outcomes = ("undefined", "records", *self.results)
        quantus_settings = ("_disable_warnings", "_display_progressbar")
        return {
            key: value
            for key, value in super().get_params.items()
            if key in quantus_settings or not (key.startswith("_") or key in outcomes)
        }

    def treat(self, a_batch: np.ndarray) -> np.ndarray:
        """Return attributions normalised and made absolute, as the metric is set to do."""
        if self.normalise and self.normalise_func is not None and a_batch.size:
            a_batch = normalise_each(a_batch, self.normalise_func)
        return np.abs(a_batch) if self.abs else a_batch

    def lacks(self, name: str) -> ValueError:
        """Return the error that ground truth of a name is needed."""
        return ValueError(
            f"{self.name} needs argument `{name}`: give it to the constructor, or with each call in `custom_batch`."
        )

    def _bind(self, **truth: Any) -> None:
        """Store ground truth under the name of its argument; None if calls pass it."""
        for name, value in truth.items():
            setattr(self, name, None if value is None else self.check_truth(name, value))

    def _score(
        self,
        model: Any,
        x_batch: Any,
        y_batch: Any,
        a_batch: Any,
        s_batch: Any,
        passed: Mapping[str, Any],
        batch_size: int,
        channel_first: bool | None,
        explain_func: Callable[..., Any] | None = None,
        keywords: Mapping[str, Any] | None = None,
        predict_kwargs: Mapping[str, Any] | None = None,
    ) -> list[Scored]:
        """Check the arguments of a call or an update, and score the samples batch by batch."""
        x_batch, y_batch = _check_inputs(model, x_batch, y_batch)
        if not isinstance(channel_first, bool):
            channel_first = utils.infer_channel_first(x_batch)
        x_batch = utils.make_channel_first(x_batch, channel_first)
        n = len(x_batch)
        truth: dict[str, Any] = {} if s_batch is None else {"s_batch": to_numpy(s_batch)}
        for name in self.sample_truth:
            value = self.check_truth(name, passed[name]) if name in passed else getattr(self, name)
            if value is not None:
                truth[name] = value
        for name, value in truth.items():
            if len(value) != n:
                raise ValueError(_misaligned(name, len(value), n))
        given, failure = (None, "") if a_batch is None else as_attributions(a_batch, n)
        explain = Explain(
            self, model, x_batch, y_batch, given, failure, explain_func, keywords or {}, predict_kwargs or {}
        )
        scored = []
        with evaluation_mode(model):
            truth = self.check_call(model, x_batch, y_batch, truth, explain)
            starts = range(0, n, batch_size)
            for start in tqdm(starts, desc=self.name, unit="batch") if self.display_progressbar else starts:
                rows = slice(start, min(start + batch_size, n))
                x, y = x_batch[rows], y_batch[rows]
                batch = replace(explain, x_batch=x, y_batch=y, given=None if given is None else given[rows])
                batch_truth = dict(truth)
                for name in truth:
                    batch_truth[name] = truth[name][rows]
                scored.append(self.score_batch(model, x, y, batch, **batch_truth))
        return scored

    def _conclude(self, parts: Sequence[Scored], method: str | None = None) -> list[float]:
        """Join batches, record and warn once, and return the scores as Quantus does."""
        scored = parts[0].join(*parts[1:]) if len(parts) > 1 else parts[0]
        result = self.finish(scored)
        if self.zero_says_nothing and scored.explained is False and not any(map(_is_failure, result.reasons.items())):
            n = scored.n_samples
            result.scores = np.full_like(result.scores, np.nan)
            result.reasons[FAILED + "attributions are zero everywhere"] = Counted(n, n)
        undefined = np.isnan(result.scores)
        chance = self.chance
        if chance is None:
            chance = nanmean(np.where(undefined, np.nan, scored.chance)) if len(scored.chance) else math.nan
        self.undefined = int(undefined.sum())
        if result.reasons and not self._disable_warnings:
            # quantus.evaluate passes the name a method has in `xai_methods`.
            warn_user(f"{self.name}: {result.describe(method)}")
        scores = result.scores.tolist()
        self.evaluation_scores = self._aggregate(scores) if self.return_aggregate else scores
        self.all_evaluation_scores.extend(self.evaluation_scores)
        self.records.append(
            Record(
                tuple(np.atleast_1d(np.asarray(self.evaluation_scores, dtype=float)).tolist()),
                result.scores,
                chance,
                dict(zip(result.reasons, map(_COUNT, result.reasons.values()), strict=True)),
                *(scored.clusters, self.bounds, self.of_samples),
                of_explanations=scored.explained is not None,
            )
        )
        if self.results:
            self.keep_results(scored)
        return list(self.evaluation_scores)

    def keep_results(self, scored: Scored) -> None:
        """Set the attributes named in `results`."""

    def _aggregate(self, scores: list[float]) -> list[Any]:
        """Return the aggregate as Quantus does: if that raises, the scores and a line in the log."""
        try:
            return [self.aggregate_func(scores)]
        except Exception as error:
            logging.getLogger(__name__).error("`aggregate_func` raised %s: %s", type(error).__name__, error)
            return scores

    def _check_passed(self, passed: Any) -> Mapping[str, Any]:
        """Return the ground truth passed with a call, by the name of its argument, or raise for anything else."""
        if not isinstance(passed, Mapping):
            raise TypeError(
                f"Expected argument `custom_batch` to be a mapping from one of {list(self.sample_truth)} to an array "
                f"but got {type(passed).__name__}."
            )
        if unknown := passed.keys() - {*self.sample_truth}:
            raise ValueError(
                f"Expected the keys of argument `custom_batch` to be among {list(self.sample_truth)} but got "
                f"{sorted(unknown)}."
            )
        return passed


def check_keywords(metric: type, keywords: Mapping[str, Any]) -> None:
    """Raise for a keyword that a metric does not take, naming the nearest of those it does."""
    unknown = list(keywords.keys() - DEFAULTS.keys())
    if unknown:
        parameters = inspect.signature(metric).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
        names += DEFAULTS
        near = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"It takes {', '.join(names)}."
        raise TypeError(f"{metric.__name__} has no argument `{unknown[0]}`. {hint}")


def nanmean(scores: Any) -> float:
    """Mean of the defined scores; NaN, without numpy's warning, where none is defined."""
    values = np.asarray(scores, dtype=float)
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def call_explain_func(
    func: Callable[..., Any], model: Any, x_batch: np.ndarray, y_batch: np.ndarray, **keywords: Any
) -> tuple[np.ndarray, str]:
    """Explain samples; return the attributions, and "" or why there are none."""
    try:
        attributions = func(model=model, inputs=x_batch, targets=y_batch, **keywords)
    except Exception as error:
        # A method of the user's own may raise anything, and quantus.evaluate would lose all other results.
        return no_attributions(len(x_batch)), f"it raised {type(error).__name__}: {' '.join(str(error).split())}"
    return as_attributions(attributions, len(x_batch))


def no_attributions(n_samples: int) -> np.ndarray:
    """Return explanations that are not there, (n_samples, 0): without a single value for a sample."""
    return np.empty((n_samples, 0))


def as_attributions(value: Any, n_samples: int) -> tuple[np.ndarray, str]:
    """Return attributions in float32 or float64, a row for each sample, and "" or why they cannot be used."""
    try:
        if isinstance(value, list | tuple):
            value = [to_numpy(row) if isinstance(row, Tensor) else row for row in value]
        if isinstance(value, np.ma.MaskedArray):
            value = np.ma.filled(value.astype(float), np.nan)
        array = value if isinstance(value, np.ndarray) else to_numpy(value)
    except Exception as error:
        wrong = f"gave no array but {type(value).__name__} ({type(error).__name__}: {error})"
        return no_attributions(n_samples), f"it {wrong}"
    wrong = ""
    if array.ndim == 0 or len(array) != n_samples:
        wrong = f"gave an array of shape {array.shape} for {n_samples} samples"
    elif array.dtype.kind not in "fiub":
        wrong = f"gave attributions that are not numeric but {array.dtype}"
    elif not array.size:
        wrong = f"gave an array of shape {array.shape}, without a value"
    if wrong:
        return no_attributions(n_samples), f"it {wrong}"
    # Torch takes neither half precision of every kind, nor 80 bits, nor the other order of bytes.
    short = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if short else np.float64, copy=False), ""


def normalise_each(a_batch: np.ndarray, normalise_func: Callable[..., np.ndarray]) -> np.ndarray:
    """Return each sample's attributions normalised by themselves; NaN where they were not finite."""
    finite = np.isfinite(a_batch.reshape(len(a_batch), -1)).all(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.concatenate([normalise_func(row[None]) for row in a_batch])
    # Some normalisations make zeros of NaN.
    return result if finite.all() else np.where(finite.reshape(-1, *[1] * (result.ndim - 1)), result, np.nan)


def _check_inputs(model: Any, x_batch: Any, y_batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and classes as arrays, or raise for those no metric can work with."""
    # Torch knows no negative strides.
    x_batch = np.ascontiguousarray(to_array("x_batch", x_batch))
    y_batch = np.asarray(to_array("y_batch", y_batch), order="C")
    if model is not None and not isinstance(model, nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(f"Expected argument `model` to be a torch.nn.Module but got {what}.")
    if x_batch.ndim < 2 or not len(x_batch):
        raise ValueError(
            f"Expected argument `x_batch` to have shape (N, ...), with at least one sample, but got {x_batch.shape}."
        )
    if y_batch.shape != (len(x_batch),):
        remedy = ""
        if y_batch.ndim == 0:
            remedy = " One sample is a batch of one: `x_batch[None]`, `y_batch[None]`."
        elif y_batch.ndim == 2:
            remedy = f" It holds class indices: `y_batch{'.argmax(1)' if y_batch.shape[1] > 1 else '[:, 0]'}`."
        raise ValueError(
            f"Expected argument `y_batch` to have shape (N,) = ({len(x_batch)},) but got {y_batch.shape}.{remedy}"
        )
    if y_batch.dtype.kind not in "iu":
        raise TypeError(
            f"Expected argument `y_batch` to hold whole numbers but got dtype {y_batch.dtype}. It holds class indices: "
            "`y_batch.astype(int)`."
        )
    # A sum propagates NaN and infinity, and needs no mask of the array's size.
    with np.errstate(all="ignore"):
        if x_batch.dtype.kind == "f" and not np.isfinite(x_batch.sum()) and not np.isfinite(x_batch).all():
            first = tuple(int(i) for i in np.argwhere(~np.isfinite(x_batch))[0])
            raise ValueError(
                f"Expected argument `x_batch` to be finite but it holds NaN or infinity, the first at {first}. Remove "
                "or repair these samples."
            )
    return x_batch, y_batch


def _misaligned(name: str, n_rows: int, n_samples: int) -> str:
    """Return what is wrong with ground truth that has not one row for each sample."""
    by_class = " Of a table by class pass `table[labels]`." if name == "concept_labels" else ""
    return (
        f"Expected argument `{name}` to have one row for each sample of `x_batch`, {n_samples}, but got {n_rows}. What "
        f"is bound in the constructor must be aligned with `x_batch`; for loops over a loader pass "
        f'custom_batch={{"{name}": ...}} with each call.{by_class}'
    )


def _predicted_classes(model: Any, x_batch: Any) -> np.ndarray:
    if model is None:
        raise ValueError("Expected argument `y_batch` to hold classes, since there is no `model` to predict them.")
    with evaluation_mode(model), torch.no_grad():
        logits = concept_outputs(model, x_batch).logits if is_concept_model(model) else predict_logits(model, x_batch)
    predicted: np.ndarray = logits.argmax(1).cpu().numpy()
    return predicted


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return bool(first == second)


def _is_failure(reason: tuple[str, Counted]) -> bool:
    return reason[0].startswith(FAILED)
