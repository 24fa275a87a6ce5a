"""The bases of the metrics: Quantus's call, in batches that give rows, and scores of all rows."""

from __future__ import annotations

import copy
import inspect
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import torch
from quantus.helpers import utils, warn
from quantus.helpers.enums import DataType, ModelType
from quantus.helpers.model.model_interface import ModelInterface
from quantus.metrics.base import Metric
from torch import nn

from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.support.checks import check_keywords, check_whole, to_array, to_numpy
from captum_concepts.support.running import evaluation_mode, predict_logits, progress, to_device, warn_user
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.host.alignment import ModelNames, in_order, names_of_models
from quantus_concepts.metrics.host.checks import Truth, check_explainer, check_outputs, to_classes
from quantus_concepts.metrics.host.explanations import FAILED, Call, Explanations, as_attributions, normalise_each
from quantus_concepts.metrics.host.model import concept_outputs, is_concept_model
from quantus_concepts.metrics.host.plotting import DrawsScores
from quantus_concepts.metrics.host.predictions import Rows, Scored
from quantus_concepts.metrics.host.record import DEFAULTS, QuantusArguments, Record
from quantus_concepts.metrics.host.scores import (
    Counted,
    MetricScores,
    count_reasons,
    describe_reasons,
    is_failure,
    nanmean,
    no_counts,
)

#: How many of the last calls a metric remembers: one evaluation of as many explanation methods.
N_RECORDS = 256
#: How attributions are treated, by the names of Quantus's attributes.
TREATMENT = ("abs", "normalise", "normalise_func")


class QuantusMetric(DrawsScores, Metric[list[float]]):
    """Base of the metrics: a subclass has `rows_of` and `score_rows`, and gets Quantus's call, `update` and `compute`.

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

    name: ClassVar[str]
    # Whether scores are about samples; else they are about concepts or classes.
    of_samples: bool = True
    #: Ground truth with a row for each sample, and what of it there has to be.
    sample_truth: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    # Whether it computes what it needs by itself from images and a concept model.
    asks_concept_models: bool = False
    # Whether explanations that are zero in every sample are undefined, rather than saying that nothing is important.
    zero_is_undefined: bool = True
    # Smallest and largest score possible.
    bounds: tuple[float, float] = (-math.inf, math.inf)
    #: Whether scores depend on which samples are classified correctly.
    reads_correctness: bool = False
    # Names of the attributes that a call sets.
    results: tuple[str, ...] = ()

    undefined: int

    #: Defaults of Quantus's own arguments.
    quantus_defaults: ClassVar[QuantusArguments] = DEFAULTS

    def __init__(self, **quantus: Unpack[QuantusArguments]) -> None:
        """Take Quantus's own arguments. The subclasses say what their score means."""
        if quantus:
            _check_own_keywords(type(self), quantus)
        arguments: dict[str, Any] = {**self.quantus_defaults, **quantus}
        if arguments["aggregate_func"] is None:
            arguments["aggregate_func"] = nanmean
        if arguments["default_plot_func"] is None:
            arguments["default_plot_func"] = self.plot_scores
        super().__init__(**arguments)
        self.undefined = 0
        self.records: deque[Record] = deque(maxlen=N_RECORDS)
        self._updates: list[Rows] = []
        #: Bound truth that has names, by argument.
        self._tables: dict[str, Any] = {}

    # What a subclass implements.

    def rows_of(self, model: Any, x_batch: Any, y_batch: Any, explain: Explanations, truth: Mapping[str, Any]) -> Any:
        """Return the rows of a batch, and change nothing.

        Images have channels first, `truth` has the rows of the batch, ``explain()`` gives attributions.
        """
        raise NotImplementedError

    def score_rows(self, rows: Any) -> MetricScores:
        """Return the scores of all rows: a column for each variant, of which a call has the first (or `path`)."""
        raise NotImplementedError

    def check_truth(self, name: str, value: Any) -> Any:
        """Return ground truth of this name as an array, or raise; called for what is bound and for what is passed."""
        return np.asarray(to_numpy(value), order="C")

    @property
    def bound_truth(self) -> dict[str, np.ndarray]:
        """Ground truth of samples that is bound, by name."""
        return {name: value for name in self.sample_truth if (value := getattr(self, name, None)) is not None}

    @classmethod
    def own_settings(cls) -> list[str]:
        """Return the names of the constructor's arguments that are no ground truth of samples."""
        parameters = inspect.signature(cls).parameters.values()
        named = [each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
        return [name for name in named if name not in cls.sample_truth]

    def vary(self, **settings: Any) -> Self:
        """Return a copy with other settings."""
        varied = copy.copy(self)
        vars(varied).update(settings)
        return varied

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Check all samples of a call or an update together; return the truth, with a row for each sample."""
        return truth

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
        explain_func_kwargs: dict[str, object] | None = None,
        model_predict_kwargs: dict[str, object] | None = None,
        softmax: bool | None = False,
        device: str | None = None,
        batch_size: int = 64,
        custom_batch: Mapping[str, Numbers] | None = None,
        **kwargs: object,
    ) -> list[float]:
        """Evaluate a batch of explanations; the keywords are those of every Quantus metric."""
        warn.check_kwargs(kwargs)
        batch_size = check_whole("batch_size", batch_size, 1)
        if explain_func is not None and not inspect.isfunction(explain_func):
            check_explainer("explain_func", explain_func)
        keywords = dict(explain_func_kwargs or {})
        method = keywords.get("method")
        if device is not None:
            # As Quantus does it; for models it is their own device that counts.
            keywords.setdefault("device", str(to_device("device", device)))
        passed = {} if custom_batch is None else self._check_passed(custom_batch)
        call = Call(
            model=model,
            x_batch=x_batch,
            y_batch=y_batch,
            a_batch=a_batch,
            s_batch=s_batch,
            channel_first=channel_first,
            explain_func=explain_func,
            explain_func_kwargs=keywords,
            model_predict_kwargs=model_predict_kwargs or {},
            batch_size=batch_size,
            custom_batch=passed,
        )
        return self._conclude(self._score(call), method)

    def evaluate_batch(
        self,
        model: nn.Module | ModelInterface[nn.Module] | None,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray | None = None,
        s_batch: np.ndarray | None = None,
        **truth: Numbers,
    ) -> list[float]:
        """Return the scores of one batch, channels first, without a record."""
        self._check_names(truth, "evaluate_batch")
        module = model.get_model() if isinstance(model, ModelInterface) else model
        call = Call(module, x_batch, y_batch, a_batch, s_batch, channel_first=True, custom_batch=truth)
        scored = self._score(call)
        scores: list[float] = self.score_rows(scored[0].kept()).of_call.tolist()
        return scores

    def update(
        self,
        model: nn.Module | None,
        x_batch: Numbers,
        y_batch: Numbers | None = None,
        a_batch: Numbers | None = None,
        s_batch: Numbers | None = None,
        *,
        explain_func: Callable[..., np.ndarray] | None = None,
        explain_func_kwargs: dict[str, object] | None = None,
        **truth: Numbers,
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
            As a call of the metric does, or if neither `y_batch` nor `labels` tell which samples are correct and the
            metric depends on it.
        """
        self._check_names(truth, "update")
        if y_batch is None:
            if self.reads_correctness and "labels" not in self.bound_truth and "labels" not in truth:
                raise ValueError(
                    f"{self.name} depends on which samples are classified correctly: pass their true classes as "
                    "`labels`, or as `y_batch`, since without both the prediction would count as true."
                )
            y_batch = _predicted_classes(model, x_batch)
        method: dict[str, Any] = {"explain_func": explain_func, "explain_func_kwargs": explain_func_kwargs or {}}
        scored = self._score(Call(model, x_batch, y_batch, a_batch, s_batch, **method, custom_batch=truth))
        self._updates = [*self._updates, *map(self.kept_rows, scored)]

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

    def merge_state(self, other: Self) -> None:
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
        names = (*self.own_settings(), *TREATMENT)
        if differing := [name for name in names if not is_same(getattr(self, name, None), getattr(other, name, None))]:
            raise ValueError(
                f"Expected argument `other` to have the settings of this {self.name} but `{differing[0]}` differs."
            )
        self._updates = [*self._updates, *other._updates]

    def _check_names(self, truth: Mapping[str, Numbers], call: str) -> None:
        """Raise for ground truth of a name that the metric does not know."""
        names = ", ".join(f"`{name}`" for name in self.sample_truth) or "nothing: it needs none"
        check_keywords(f"{self.name}.{call}", truth, self.sample_truth, f"Give the truth of a batch as {names}.")

    def kept_rows(self, rows: Any) -> Rows:
        """Return rows of an update as they are kept until `compute`."""
        kept: Rows = rows.kept()
        return kept

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

    def preprocess(self, a_batch: np.ndarray) -> np.ndarray:
        """Return attributions normalised and made absolute, as the metric is set to do."""
        if self.normalise and self.normalise_func is not None and a_batch.size:
            a_batch = normalise_each(a_batch, self.normalise_func)
        return np.abs(a_batch) if self.abs else a_batch

    def missing_error(self, name: str) -> ValueError:
        """Return the error that ground truth of a name is needed."""
        return ValueError(
            f"{self.name} needs argument `{name}`: give it to the constructor, or with each call in `custom_batch`."
        )

    def _bind(self, **truth: Any) -> None:
        """Store ground truth under the name of its argument; None if calls pass it."""
        for name, value in truth.items():
            if hasattr(value, "iloc"):
                # A new dict: variants of a metric begin as shallow copies.
                self._tables = self._tables | {name: value}
            setattr(self, name, None if value is None else self.check_truth(name, value))

    def match_names(self, names: ModelNames) -> None:
        """Bring bound tables into the order of a model's classes and concepts."""
        for name, table in [*self._tables.items()]:
            ordered = in_order(name, table, names)
            if ordered is not table:
                self._bind(**{name: ordered})

    def _score(self, call: Call, rows_of: Callable[..., Rows] | None = None) -> list[Rows]:
        """Check the arguments of a call or an update, and return the rows of the samples, batch by batch."""
        model, channel_first = call.model, call.channel_first
        inputs, classes = _check_inputs(model, call.x_batch, call.y_batch)
        if not isinstance(channel_first, bool):
            channel_first = utils.infer_channel_first(inputs)
        inputs = utils.make_channel_first(inputs, channel_first)
        n = len(inputs)
        truth: Truth = {} if call.s_batch is None else {"s_batch": to_numpy(call.s_batch)}
        names = names_of_models([model])
        self.match_names(names)
        for name in self.sample_truth:
            given = in_order(name, call.custom_batch.get(name), names)
            value = getattr(self, name) if given is None else self.check_truth(name, given)
            if value is not None:
                truth[name] = value
        for name, value in truth.items():
            if len(value) != n:
                raise ValueError(_misaligned(name, len(value), n))
        given, failure = (None, "") if call.a_batch is None else as_attributions(call.a_batch, n)
        explain = Explanations(self, call, inputs, classes, given, failure)
        parts = []
        with evaluation_mode(model):
            for name in self.needed:
                if name not in truth:
                    raise self.missing_error(name)
            knows_labels = "labels" in truth
            truth = self.check_call(model, inputs, classes, truth, explain)
            batch_size = call.batch_size or n
            starts = range(0, n, batch_size)
            for start in progress(starts, self.name, show=self.display_progressbar, unit="batch"):
                rows = slice(start, min(start + batch_size, n))
                x, y = inputs[rows], classes[rows]
                batch = replace(explain, x_batch=x, y_batch=y, given=None if given is None else given[rows])
                of_batch = {name: truth[name][rows] for name in truth}
                parts.append((rows_of or self.rows_of)(model, x, y, batch, of_batch))
        # Known labels say who is wrong.
        return [replace(part, n_wrong=None) if knows_labels and isinstance(part, Scored) else part for part in parts]

    def _conclude(self, parts: Sequence[Rows], method: object = None) -> list[float]:
        """Join batches, record and warn once, and return the scores as Quantus does."""
        rows: Any = type(parts[0]).join(parts).kept()
        found = self.score_rows(rows)
        scores, chance, reasons = found.of_call, found.mean_chance, found.reasons(found.path[0])
        if self.zero_is_undefined and rows.explained is False and not any(map(is_failure, reasons.items())):
            n = len(rows)
            scores, chance = np.full_like(scores, np.nan), chance if np.ndim(found.chance) == 0 else math.nan
            reasons = reasons | {FAILED + "attributions are zero everywhere": Counted(n, n)}
        if self.reads_correctness and not self._disable_warnings and len(rows) > 1 and rows.n_wrong == 0:
            warn_user(
                f"{self.name}: `y_batch` is the predicted class of all {len(rows)} samples and counts as their true "
                "class, so that none is misclassified. Pass the true classes as `labels`, also if they are the same."
            )
        self.undefined = int(np.isnan(scores).sum())
        if reasons and not self._disable_warnings:
            # quantus.evaluate passes the name a method has in `xai_methods`.
            warn_user(f"{self.name}: {describe_reasons(reasons, found.outcome, method)}")
        listed = scores.tolist()
        self.evaluation_scores = self._aggregate(listed) if self.return_aggregate else listed
        self.all_evaluation_scores.extend(self.evaluation_scores)
        returned = list(self.evaluation_scores)
        counts = {why: of.n for why, of in reasons.items()}
        settings = (counts, found.clusters, self.bounds, self.of_samples)
        self.records.append(Record(returned, scores, chance, *settings, uses_explanations=rows.explained is not None))
        if self.results:
            self.keep_results(rows)
        return returned

    def keep_results(self, scored: Any) -> None:
        """Set the attributes named in `results`."""

    def _aggregate(self, scores: list[float]) -> list[Any]:
        """Return the aggregate as Quantus does: if that raises, the scores and a line in the log."""
        try:
            return [self.aggregate_func(scores)]
        except Exception as error:
            logging.getLogger(__name__).error("`aggregate_func` raised %s: %s", type(error).__name__, error)
            return scores

    def _check_passed(self, passed: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
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


class AttributionMetric(QuantusMetric):
    """Base of the metrics of attributions: a subclass has `score_batch`, and every batch is scored by itself."""

    def score_batch(self, model: Any, x_batch: Any, y_batch: Any, explain: Explanations, **truth: Any) -> Scored:
        """Score a batch, and change nothing."""
        raise NotImplementedError

    def rows_of(
        self, model: Any, x_batch: Any, y_batch: Any, explain: Explanations, truth: Mapping[str, Any]
    ) -> Scored:
        """Return the scores of a batch."""
        return self.score_batch(model, x_batch, y_batch, explain, **truth)

    def score_rows(self, rows: Scored) -> MetricScores:
        """Return the scores of all batches."""
        return scores_of_samples(self.name, rows, self.bounds)


def scores_of_samples(name: str, rows: Scored, bounds: tuple[float, float]) -> MetricScores:
    """Return the scores of samples that were scored batch by batch."""
    why, n = rows.reason, len(rows)
    reasons = count_reasons(why, n) if why is not None and (why != "").any() else {}
    chance = math.nan if rows.chance is None else np.asarray(rows.chance, dtype=float)[:, None]
    scores = np.asarray(rows.scores, dtype=np.float64)[:, None]
    known = (lambda variant: dict(reasons)) if reasons else no_counts
    clusters = None if rows.clusters is None else to_numpy(rows.clusters)
    return MetricScores([{"metric": name}], scores, chance, clusters, bounds, known)


def _check_own_keywords(metric: type, keywords: Mapping[str, object]) -> None:
    """Raise for a keyword that a metric does not take."""
    parameters = inspect.signature(metric).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    names += DEFAULTS
    # Its own arguments are bound already: what is left are Quantus's.
    check_keywords(metric.__name__, keywords.keys() - DEFAULTS.keys(), names, f"It takes {', '.join(names)}.")


def _check_inputs(model: nn.Module | None, x_batch: Numbers, y_batch: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and classes as arrays, or raise for those no metric can work with."""
    inputs = to_array("x_batch", x_batch)
    # Torch knows no negative strides. Any other array stays as it is: a block finds what it shares by its place.
    if min(inputs.strides, default=0) < 0:
        inputs = inputs.copy()
    if model is not None and not isinstance(model, nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(f"Expected argument `model` to be a torch.nn.Module but got {what}.")
    if inputs.ndim < 2 or not len(inputs):
        raise ValueError(
            f"Expected argument `x_batch` to have shape (N, ...), with at least one sample, but got {inputs.shape}."
        )
    classes = to_classes("y_batch", y_batch)
    if len(classes) != len(inputs):
        raise ValueError(f"Expected argument `y_batch` to have shape (N,) = ({len(inputs)},) but got {classes.shape}.")
    # A sum propagates NaN and infinity, and needs no mask of the array's size.
    with np.errstate(all="ignore"):
        if inputs.dtype.kind == "f" and not np.isfinite(inputs.sum()) and not np.isfinite(inputs).all():
            first = tuple(int(i) for i in np.argwhere(~np.isfinite(inputs))[0])
            raise ValueError(
                f"Expected argument `x_batch` to be finite but it holds NaN or infinity, the first at {first}. Remove "
                "or repair these samples."
            )
    return inputs, classes


def _misaligned(name: str, n_rows: int, n_samples: int) -> str:
    """Return what is wrong with ground truth that has not one row for each sample."""
    by_class = " Of a table by class pass `table[labels]`." if name == "concept_labels" else ""
    return (
        f"Expected argument `{name}` to have one row for each sample of `x_batch`, {n_samples}, but got {n_rows}. What "
        f"is bound in the constructor must be aligned with `x_batch`; for loops over a loader pass "
        f'custom_batch={{"{name}": ...}} with each call.{by_class}'
    )


def _predicted_classes(model: nn.Module | None, x_batch: Numbers) -> np.ndarray:
    if model is None:
        raise ValueError("Expected argument `y_batch` to hold classes, since there is no `model` to predict them.")
    with evaluation_mode(model), torch.no_grad():
        logits = concept_outputs(model, x_batch).logits if is_concept_model(model) else predict_logits(model, x_batch)
    predicted: np.ndarray = check_outputs(logits, len(logits)).argmax(1).cpu().numpy()
    return predicted


def is_same(first: Any, second: Any) -> bool:
    """Return whether two settings are the same, also those of another process: networks and arrays by their content."""
    if first is second:
        return True
    if isinstance(first, nn.Module | torch.Tensor | np.ndarray):
        return type(first) is type(second) and fingerprint_of(first) == fingerprint_of(second)
    if isinstance(first, partial):
        return isinstance(second, partial) and is_same(first.__reduce__()[2], second.__reduce__()[2])
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return len(first) == len(second) and all(map(is_same, first, second))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(is_same(first[name], second[name]) for name in first)
    if vars(type(first)).get("__eq__") is None and hasattr(first, "__dict__") and not callable(first):
        return type(first) is type(second) and is_same(vars(first), vars(second))
    return bool(first == second)
