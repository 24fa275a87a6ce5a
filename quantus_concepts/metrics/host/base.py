"""The base classes of the metrics: Quantus's calls, each argument checked once, with the records of a call."""

from __future__ import annotations

import copy
import math
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar, Unpack

import numpy as np
import torch
from quantus.helpers.enums import DataType, ModelType
from quantus.metrics.base import Metric
from torch import Tensor, nn

from captum_concepts._support.checks import (
    check_whole,
    to_array,
    to_numpy,
)
from captum_concepts._support.constraints import Constraint
from captum_concepts._support.running import alone_with, evaluation_mode, predict_logits, warn_user
from quantus_concepts.metrics.host.call import (
    DEFAULTS,
    Call,
    Explanations,
    QuantusArguments,
    Record,
    WholeProgress,
    as_attributions,
    join_calls,
    no_attributions,
    normalise_each,
)
from quantus_concepts.metrics.host.checks import check_aligned_truth, check_inputs, check_options, check_passed
from quantus_concepts.metrics.host.metric import check_keywords, nanmean
from quantus_concepts.metrics.host.model import (
    ConceptOutputs,
    backbone_features,
    concept_outputs,
    is_concept_model,
    no_concept_model,
    recall,
    shares_features,
)
from quantus_concepts.metrics.host.plotting import DrawsScores

R = TypeVar("R")

#: How many of the last calls a metric remembers: one evaluation of as many explanation methods.
N_RECORDS = 256


class ConceptMetric(DrawsScores, Metric[list[float]]):
    """Base of the metrics: one call, one way of getting explanations, one way of failing.

    It differs from Quantus's own metrics in four things. Attributions are not passed through
    `general_preprocess`, which rejects maps that are zero, negative or constant. Ground truth that Quantus
    has no argument for is bound in the constructor and aligned with `x_batch`, or passed in `custom_batch` as
    a mapping from argument name to array. `normalise_func` is applied to each sample by itself, so that no
    score depends on the batch size. And whatever is wrong with an *explanation* gives NaN and one warning
    that says why, so that the other results of `quantus.evaluate` are not lost; wrong *arguments* raise.
    Calls of one metric from several threads follow one another; several metrics may share a model.

    Every call computes everything anew, except inside a `quantus_concepts.shared_passes` block, where metrics share
    what a model gives for the same images.

    Subclasses implement `evaluate_batch`, which gets the arrays of a batch under Quantus's names, truth under its own
    with ``_batch`` behind it, and gives a score for each sample. After a call, `records` has one `Record` for each of
    the last calls, the newest last, with chance and why scores are undefined; `undefined` is how many were.
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
    # Names of the attributes that hold settings of the metric itself.
    settings: tuple[str, ...] = ()
    # Names of the attributes that a call sets.
    results: tuple[str, ...] = ()

    undefined: int

    #: Defaults of Quantus's own arguments.
    quantus_defaults: ClassVar[QuantusArguments] = DEFAULTS

    def __init__(self, **quantus: Unpack[QuantusArguments]) -> None:
        """Take Quantus's own arguments. The subclasses say what their score means."""
        check_keywords(type(self), quantus)
        arguments: dict[str, Any] = {**self.quantus_defaults, **quantus}
        if arguments["aggregate_func"] is None:
            arguments["aggregate_func"] = nanmean
        if arguments["default_plot_func"] is None:
            arguments["default_plot_func"] = self.plot_scores
        super().__init__(**arguments)
        self.undefined = 0
        self.records: deque[Record] = deque(maxlen=N_RECORDS)
        self._call: Call | None = None
        #: Calls of `update`, of the metrics that have it.
        self._updates: list[Call] = []
        self._turn = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the lock, which cannot be copied."""
        return {key: value for key, value in self.__dict__.items() if key != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the state, with a new lock."""
        self.__dict__.update(state)
        self._turn = threading.RLock()

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
        with self._turn:
            inputs = x_batch
            # Torch knows no negative strides.
            x_batch = np.ascontiguousarray(to_array("x_batch", x_batch))
            y_batch = np.asarray(to_array("y_batch", y_batch), order="C")
            batch_size = check_whole("batch_size", batch_size, 1)
            check_inputs(model, x_batch, y_batch, explain_func)
            check_options(explain_func_kwargs, model_predict_kwargs, channel_first, device)
            call = self._call = Call(
                self._truth(len(x_batch), custom_batch),
                n_samples=len(x_batch),
                inputs=inputs,
                batch_size=batch_size,
                model_predict_kwargs=dict(model_predict_kwargs or {}),
                is_update=isinstance(custom_batch, _Update),
            )
            try:
                call.on_images = self._works_on_images(model, x_batch)
                if a_batch is not None and not call.on_images:
                    call.attributions, failure = as_attributions(a_batch, len(x_batch))
                    if failure:
                        self.fail(f"it {failure}", len(x_batch))
                with evaluation_mode(model):
                    scores = super().__call__(
                        model=model,
                        x_batch=x_batch,
                        y_batch=y_batch,
                        a_batch=None,
                        s_batch=s_batch,
                        channel_first=channel_first,
                        explain_func=explain_func or _unavailable,
                        explain_func_kwargs=dict(explain_func_kwargs or {}),
                        model_predict_kwargs=model_predict_kwargs,
                        softmax=softmax,
                        device=device,
                        batch_size=batch_size,
                        custom_batch=None,
                        **kwargs,
                    )
                if call.is_update:
                    # Without what would keep the batch itself in memory.
                    self._updates.append(replace(call, truth={}, inputs=None, attributions=None, first={}))
                else:
                    self.records.append(call.record(scores, self.bounds, self.of_samples))
                return scores
            finally:
                self._call = None

    @property
    def call(self) -> Call:
        """The call under way."""
        if self._call is None:
            raise RuntimeError("This method works only during a call of the metric.")
        return self._call

    @property
    def can_explain(self) -> bool:
        """Whether this call was given an `explain_func`."""
        return self.explain_func is not _unavailable

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

    def _bind(self, **truth: Any) -> None:
        """Store ground truth under the name of its argument; None if calls pass it."""
        for name, value in truth.items():
            setattr(self, name, None if value is None else self._truth_array(name, value))

    def _required_truth(self, name: str) -> np.ndarray:
        """Return the ground truth of this call under a name, or raise where there is none."""
        if name not in self.call.truth:
            raise ValueError(
                f"{self.name} needs argument `{name}`: give it to the constructor, or with each call in `custom_batch`."
            )
        return self.call.truth[name]

    def _truth(self, n_samples: int, custom_batch: Any) -> dict[str, np.ndarray]:
        """Collect bound and passed ground truth, each array with one row for each sample."""
        passed = check_passed(custom_batch, self.sample_truth)
        # The constructor's constraints hold for calls, too.
        constraints: Mapping[str, Constraint] = getattr(type(self).__init__, "constraints", {})
        truth = {}
        for name in self.sample_truth:
            value = passed[name] if name in passed else getattr(self, name)
            if value is None:
                continue
            if name in passed:
                value = constraints[name].check(name, value, {}) if name in constraints else to_numpy(value)
                value = self._truth_array(name, value)
            truth[name] = value
        check_aligned_truth(truth, n_samples)
        return truth

    def _truth_array(self, name: str, value: Any) -> np.ndarray:
        """Return checked ground truth as an array, or raise if it does not go with the metric's other arguments."""
        return np.asarray(value, order="C")

    def _works_on_images(self, model: Any, x_batch: np.ndarray) -> bool:
        """Whether to compute values, importance and maps from images; else explanations are evaluated."""
        return False

    def _check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, s_batch: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Check what depends on more than one argument; may return further arrays to slice by batch."""
        return {}

    def custom_preprocess(
        self,
        *,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray | None,
        s_batch: np.ndarray | None,
        custom_batch: Any,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Add the explanations and the ground truth that `general_preprocess` does not handle."""
        module, call = None if model is None else model.get_model(), self.call
        # Quantus has moved channels that came last.
        call.layout = x_batch.shape[1:]
        extra = self._check_call(module, x_batch, y_batch, s_batch)
        if not call.on_images and call.attributions is None and not self.can_explain:
            wrong = no_concept_model(self.name, module, x_batch)
            raise ValueError(
                f"{self.name} needs explanations here: pass `a_batch` or `explain_func`. With images and a concept "
                f"model as `model` it computes what it needs by itself{', but ' + wrong if wrong else ''}."
            )
        # Quantus would infer this from the explanations, which may have any shape here.
        self.a_axes = ()

        arrays: dict[str, Any] = {"rows_batch": np.arange(len(x_batch)), "a_batch": no_attributions(len(x_batch))}
        if not call.on_images:
            arrays["a_batch"] = Explanations(
                len(x_batch), lambda rows: self._explain(module, x_batch[rows], y_batch[rows], rows)
            )
        for name, value in (*call.truth.items(), *extra.items()):
            arrays[f"{name}_batch"] = value
        return arrays

    def recall(self, what: Hashable, model: Any, rows: np.ndarray, make: Callable[[], R], array: Any = None) -> R:
        """Return what a model gives for rows of `x_batch` or of another array, once inside a `shared_passes` block."""
        array = self.call.inputs if array is None else array
        return recall(what, model, array, (id(array), self.call.layout, rows.tobytes()), make)

    def concept_features(self, model: Any, x_batch: np.ndarray, rows: np.ndarray) -> Tensor | None:
        """Return what the backbone of a concept model gives for a batch; None if the model takes no features."""
        if not shares_features(model):
            return None
        # Models of one backbone, as those of random banks, share it.
        return self.recall("features", model.features, rows, partial(backbone_features, model, x_batch))

    def concept_outputs(
        self, model: Any, x_batch: np.ndarray, rows: np.ndarray, features: Tensor | None = None
    ) -> ConceptOutputs:
        """Return the concept values (n, L) and logits (n, K) of a batch; `features` where they are known already."""

        def run() -> tuple[Tensor, Tensor]:
            known_features = self.concept_features(model, x_batch, rows) if features is None else features
            outputs = concept_outputs(model, x_batch, known_features)
            return outputs.values, outputs.logits

        # Kept without the features: they find room where the features of many images do not.
        return ConceptOutputs(features, *self.recall("values and logits", model, rows, run))

    def _explain(self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, rows: slice) -> np.ndarray:
        """Return the attributions of some samples, given or computed, as the metric is set to treat them."""
        if self.call.attributions is not None:
            return self._prepare(self.call.attributions[rows])
        return self._prepare(self._call_explain_func(model, x_batch, y_batch))

    def _call_explain_func(self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray) -> np.ndarray:
        """Call the explanation function; attributions without a value, and the reason noted, where it fails."""
        a_batch, failure = self._try_explain_func(model, x_batch, y_batch)
        if failure:
            self.fail(f"it {failure}", len(x_batch))
        return a_batch

    def _try_explain_func(self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray) -> tuple[np.ndarray, str]:
        """Return attributions, and what went wrong if something did."""
        try:
            # Captum's hooks would record the passes of other threads.
            with alone_with(model):
                attributions = self.explain_func(
                    model=model, inputs=x_batch, targets=y_batch, **dict(self.explain_func_kwargs)
                )
        except Exception as error:
            # quantus.evaluate would lose the results of every other metric.
            return no_attributions(len(x_batch)), f"raised {type(error).__name__}: {error}"
        return as_attributions(attributions, len(x_batch))

    def _prepare(self, a_batch: np.ndarray) -> np.ndarray:
        """Return attributions normalised and made absolute, as the metric is set to do."""
        if self.normalise and self.normalise_func is not None and a_batch.size:
            a_batch = normalise_each(a_batch, self.normalise_func)
        # Torch takes neither negative strides nor, without a warning, what cannot be written.
        a_batch = np.require(a_batch, requirements=("C", "W"))
        return np.abs(a_batch) if self.abs else a_batch

    def usable(self, a_batch: np.ndarray, shape: tuple[int, ...], meaning: str) -> tuple[np.ndarray, np.ndarray]:
        """Return attributions (n, *shape), `meaning` for people, and which of them can be used; the others are NaN."""
        n = len(a_batch)
        if a_batch.shape[1:] != shape:
            if a_batch.shape[1:] != (0,):
                self.fail(f"a sample's attributions have shape {a_batch.shape[1:]}, expected {meaning} = {shape}", n)
            return np.full((n, *shape), np.nan), np.zeros(n, dtype=bool)
        if a_batch.any():
            self.call.explained_something = True
        finite = np.isfinite(a_batch.reshape(n, -1)).all(axis=1)
        if finite.all():
            return a_batch, finite
        self.fail("attributions hold NaN or infinity", int((~finite).sum()))
        return np.where(finite.reshape(n, *[1] * len(shape)), a_batch, np.nan), finite

    def concept_attributions(self, model: Any, x_batch: np.ndarray, a_batch: np.ndarray, n_concepts: int) -> Tensor:
        """Return attributions (n, L) of concepts; NaN, with the reason noted, where they are something else."""
        wrong = no_concept_model(self.name, model, x_batch)
        if wrong and a_batch.shape[1:] not in ((n_concepts,), (0,)):
            # Maps of an image are what every method gives for such a model: no method is to blame.
            self.leave_out(wrong, len(a_batch))
            self.call.explained_something = True
            a_batch = no_attributions(len(a_batch))
        return torch.as_tensor(self.usable(a_batch, (n_concepts,), "the number of concepts (L,)")[0])

    def fail(self, reason: str, count: int) -> None:
        """Note why some samples' explanations cannot be scored."""
        reason = self.call.side + reason
        self.call.failures[reason] = self.call.failures.get(reason, 0) + count

    def leave_out(self, reason: str, count: int, total: int | None = None, unit: str = "samples") -> None:
        """Note why some samples, or `count` of `total` others, cannot be scored, whatever the explanation."""
        if count:
            self.call.gaps[reason] = self.call.gaps.get(reason, 0) + count
        if total is not None:
            self.call.units[reason] = total, unit

    def _collect_scores(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores of a call from those of its batches."""
        return scores

    def custom_postprocess(
        self,
        *,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray | None,
        a_batch: Any,
        s_batch: np.ndarray | None,
        **kwargs: Any,
    ) -> None:
        """Turn scores of an explanation that is zero everywhere into NaN, count, and warn once."""
        call, scores = self.call, self._collect_scores(np.asarray(self.evaluation_scores, dtype=float))
        call.values = scores
        self.evaluation_scores = scores.tolist() if call.is_update else self._finish_scores(scores)

    def _finish_scores(self, scores: np.ndarray) -> list[float]:
        """Return the scores of a call, NaN if its explanations are zero everywhere; count and warn once."""
        call = self.call
        silent = self.zero_says_nothing and not call.on_images and not call.explained_something
        if silent and not call.failures:
            self.fail("attributions are zero everywhere", call.n_samples)
            scores = np.full_like(scores, np.nan)
        call.values = scores
        if call.chances:
            call.chance = nanmean(np.where(np.isnan(scores), np.nan, call.chances))
        self.undefined = int(np.isnan(scores).sum())
        if (call.failures or call.gaps) and not self._disable_warnings:
            # quantus.evaluate passes the name a method has in `xai_methods`.
            method = self.explain_func_kwargs.get("method")
            warn_user(f"{self.name}: {call.describe(method)}")
        return scores.tolist()


def _unavailable(**kwargs: Any) -> np.ndarray:
    """Stand in for a missing `explain_func`; Quantus insists on a callable."""
    raise RuntimeError("No explain_func was given.")


class ImageMetric(ConceptMetric):
    """Base of the metrics that ask a model about images.

    A call has one bar of its own, in place of Quantus's, which takes images for batches.
    """

    _call_progress: WholeProgress | None = None

    @property
    def display_progressbar(self) -> bool:
        """Whether Quantus shows its own bar."""
        return False

    def _begin(self, call_progress: WholeProgress) -> None:
        """Show the progress of a call; close the bar of an earlier call that raised."""
        self._end()
        self._call_progress = call_progress

    def _advance(self, count: int) -> None:
        if self._call_progress is not None:
            self._call_progress.update(count)

    def _end(self) -> None:
        if self._call_progress is not None:
            self._call_progress.close()
        self._call_progress = None

    def _collect_scores(self, scores: np.ndarray) -> np.ndarray:
        """Close the bar and return the scores of the call."""
        self._end()
        return super()._collect_scores(scores)

    def _usable_maps(self, a_batch: np.ndarray, size: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return attributions (n, C, H, W) of images of a size, and which of them can be used; the others are NaN."""
        a_batch = a_batch[:, None] if a_batch.ndim == 3 else a_batch
        channels = a_batch.shape[1] if a_batch.ndim == 4 else 1
        return self.usable(a_batch, (channels, *size), "a map (C, H, W) of the images' size")

    def _logits(self, model: nn.Module, rows: np.ndarray, make: Callable[[], Tensor], array: Any = None) -> Tensor:
        """Return a model's outputs for rows of `x_batch` or of another array, shared inside `shared_passes`."""
        # Outputs depend on further arguments of the model, which may be anything.
        return make() if self.call.model_predict_kwargs else self.recall("logits", model, rows, make, array)


class UpdatedMetric(ConceptMetric):
    """Base of the metrics that can also be computed batch by batch."""

    def update(self, model: Any, x_batch: Any, y_batch: Any = None, a_batch: Any = None, **truth: Any) -> None:
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
        with self._turn:
            if y_batch is None:
                y_batch = _predicted_classes(model, x_batch)
            self(model, x_batch, y_batch, a_batch, custom_batch=_Update(truth))

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
        with self._turn:
            if not self._updates:
                raise ValueError(f"{self.name}.compute needs at least one batch. Call `update` first.")
            self._call = join_calls(self._updates)
            try:
                scores = self._finish_scores(self._scores_of_updates(self._updates))
                self.records.append(self.call.record(scores, self.bounds, self.of_samples))
                return scores
            finally:
                self._call = None

    def reset(self) -> None:
        """Forget all batches."""
        with self._turn:
            self._updates.clear()

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
            name for name, value in self._settings().items() if not _equal(value, other._settings()[name])
        ]:
            raise ValueError(
                f"Expected argument `other` to have the settings of this {self.name} but `{differing[0]}` differs."
            )
        with self._turn:
            self._updates += copy.deepcopy(other._updates)

    def _settings(self) -> dict[str, Any]:
        """Return what scores depend on besides the batches."""
        return {name: value for name, value in vars(self).items() if name in self.settings}

    def _scores_of_updates(self, calls: list[Call]) -> np.ndarray:
        """Return the scores of all batches."""
        return np.concatenate([call.values for call in calls])


class _Update(dict[str, Any]):
    """The ground truth of an `update`, which keeps its results for `compute`."""


def _predicted_classes(model: Any, x_batch: Any) -> np.ndarray:
    if model is None:
        raise ValueError("Expected argument `y_batch` to hold classes, since there is no `model` to predict them.")
    logits = concept_outputs(model, x_batch).logits if is_concept_model(model) else predict_logits(model, x_batch)
    predicted: np.ndarray = logits.argmax(1).cpu().numpy()
    return predicted


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return bool(first == second)
