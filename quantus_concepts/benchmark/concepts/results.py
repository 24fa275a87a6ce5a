"""Results of a benchmark: one record a number, with its interval and what chance would give."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from captum_concepts.checks import check_choice, to_numpy
from quantus_concepts.functional.intervals import interval, relation, t_interval

POST_HOC = "post-hoc CBM"
TRADITIONAL = "traditional CBM"
ORACLE = "oracle"
RANDOM = "random directions"
PLAIN = "plain backbone"
OTHER_IMAGE = "parts of another image"
GAUSSIAN = "centred Gaussian"

#: Concept models in the order of every table and figure.
MODELS = (POST_HOC, TRADITIONAL, ORACLE, RANDOM)
#: The two honest baselines of the concept location metric.
BASELINES = (OTHER_IMAGE, GAUSSIAN)
#: Rankings of the concepts, and the sign the paper writes for each.
EXPLANATIONS = {"weight": "θ", "value": "u", "contribution": "θ·u"}
METRICS = ("CEM", "CLM", "CGIM", "accuracy", "concept accuracy", "negative first", "CAV accuracy")
SETS = ("all", "correct")


@dataclass(frozen=True)
class Record:
    """One number of a benchmark.

    Attributes
    ----------
    model : str
        Whose number it is: one of `MODELS`, `PLAIN`, or for CLM a baseline as `baseline_name` names it. `RANDOM` is
        the distribution over many random banks.
    metric : str
        One of `METRICS`.
    explanation : str
        What ranked the concepts: "weight", "value", "contribution", or "" where nothing did.
    set : str
        "all" images, or those the model classified correctly ("correct").
    l : int or None
        How many concepts of each image entered.
    alpha : float or None
        Size of the region of CLM, in twelfths of the image.
    item_kind : str
        "" for a mean over images, "concept" or "class" for CGIM, "setting" for one row of Table 3.
    item : str
        Name of the concept, class or setting; "" for the mean over all of them.
    value : float
        The number, as a share (not a percentage) or a cosine; NaN where nothing was defined.
    n : int
        Number of defined scores behind it; of `RANDOM`, of banks.
    undefined : int
        Number of scores that were NaN and do not enter.
    chance : float
        What a formula says of chance: the label density for CEM, the size of the region for CLM; else NaN.
    low : float
        Lower end of the 95 % interval, NaN where there is none; of `RANDOM`, what 2.5 % of the banks do not reach.
    high : float
        Upper end; of `RANDOM`, what 2.5 % of the banks exceed.
    seed : int or None
        Seed of the run; None for a number over all seeds.
    """

    model: str
    metric: str
    explanation: str = ""
    set: str = "all"
    l: int | None = None  # noqa: E741 (the paper's letter)
    alpha: float | None = None
    item_kind: str = ""
    item: str = ""
    value: float = math.nan
    n: int = 0
    undefined: int = 0
    chance: float = math.nan
    low: float = math.nan
    high: float = math.nan
    seed: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What the number is of, whatever the seed."""
        return (
            self.model,
            self.metric,
            self.explanation,
            self.set,
            self.l,
            self.alpha,
            self.item_kind,
            self.item,
        )


def baseline_name(baseline: str, model: str = POST_HOC) -> str:
    """Name the CLM baseline of a model's maps and ranking.

    Parameters
    ----------
    baseline : str
        One of `BASELINES`.
    model : str
        The model whose ranking (and, for parts of another image, maps) it uses.

    Returns
    -------
    str
        The bare name for the post-hoc CBM, else with the model behind a comma.

    Raises
    ------
    ValueError
        If `baseline` is unknown.
    """
    check_choice("baseline", baseline, BASELINES)
    return baseline if model == POST_HOC else f"{baseline}, {model}"


def setting_name(regularisation: float, samples: int) -> str:
    """Name a setting of the concept bank, as `Record.item` holds it for Table 3.

    Parameters
    ----------
    regularisation : float
        C of the linear SVM.
    samples : int
        n_pos = n_neg, images drawn with and without each concept.

    Returns
    -------
    str
        For instance "C=0.1, n=100".
    """
    return f"C={regularisation:g}, n={samples}"


def parse_setting(name: str) -> tuple[float, int]:
    """Read C and n back from `setting_name`.

    Parameters
    ----------
    name : str
        For instance "C=0.1, n=100".

    Returns
    -------
    tuple of float and int
        C, and n_pos = n_neg.

    Raises
    ------
    ValueError
        If the name has another form.
    """
    try:
        first, second = (part.split("=")[1] for part in name.split(", "))
        return float(first), int(second)
    except (ValueError, IndexError):
        raise ValueError(f"Expected a setting of the form 'C=0.1, n=100' but got {name!r}.") from None


def _bounds(metric: str) -> tuple[float, float]:
    return (-1.0, 1.0) if metric == "CGIM" else (0.0, 1.0)


def mean_record(scores: Any, *, model: str, metric: str, clusters: Any = None, **fields: Any) -> Record:
    """Sum up scores of samples in one record: mean of the defined ones, their number, 95 % interval.

    Parameters
    ----------
    scores : array or tensor
        (N,) one score per image (or per concept or class for CGIM), NaN where undefined.
    model : str
        As in `Record`.
    metric : str
        As in `Record`.
    clusters : array, optional
        (N,): samples of one name are not independent of each other.
    **fields
        Other fields of `Record`: explanation, set, l, alpha, item_kind, item, chance, seed.

    Returns
    -------
    Record
        Interval as in `interval`.

    Raises
    ------
    ValueError
        If the metric, explanation or set is unknown.
    """
    check_choice("metric", metric, METRICS)
    check_choice("explanation", fields.get("explanation", ""), ["", *EXPLANATIONS])
    check_choice("set", fields.get("set", "all"), SETS)
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    defined = values[~np.isnan(values)]
    low, high = interval(values, _bounds(metric), clusters)
    return Record(
        model=model,
        metric=metric,
        value=float(defined.mean()) if defined.size else math.nan,
        n=int(defined.size),
        undefined=int(values.size - defined.size),
        low=low,
        high=high,
        **fields,
    )


def item_records(
    scores: Any, names: Sequence[str], *, model: str, item_kind: str, metric: str = "CGIM", **fields: Any
) -> list[Record]:
    """Return one record per concept or class, and first the one of their mean.

    Parameters
    ----------
    scores : array or tensor
        (L,) or (K,) scores, NaN where undefined.
    names : sequence of str
        Names of the concepts or classes.
    model : str
        As in `Record`.
    item_kind : str
        "concept" or "class".
    metric : str
        As in `Record`.
    **fields
        Other fields of `Record`: explanation, set, seed.

    Returns
    -------
    list of Record
        1 + L or 1 + K records; single items have no interval within one seed.

    Raises
    ------
    ValueError
        If scores and names differ in number, or `item_kind` is unknown.
    """
    check_choice("item_kind", item_kind, ("concept", "class"))
    values = np.asarray(to_numpy(scores), dtype=np.float64)
    if values.shape != (len(names),):
        raise ValueError(f"Expected argument `scores` to have shape ({len(names)},) but got {values.shape}.")
    records = [mean_record(values, model=model, metric=metric, item_kind=item_kind, **fields)]
    for name, value in zip(names, values, strict=True):
        missing = int(np.isnan(value))
        records.append(
            Record(
                model=model,
                metric=metric,
                item_kind=item_kind,
                item=name,
                value=float(value),
                n=1 - missing,
                undefined=missing,
                **fields,
            )
        )
    return records


def over_seeds(records: Iterable[Record]) -> list[Record]:
    """Average records over seeds.

    Parameters
    ----------
    records : iterable of Record
        Of any number of seeds. Records that are over seeds already (seed None) stand for their group, so the
        function may be applied twice.

    Returns
    -------
    list of Record
        One record a group, seed None, in order of first appearance. With two seeds or more the interval is
        Student's t over the seeds' values; with one it is that of the seed, over its images. `n` and
        `undefined` are sums; value and chance are means of the seeds where they are defined. The ends of the random
        control's distribution are means of the seeds' ends: they say what one bank on one seed's data scores.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(record.key, []).append(record)
    return [_join(group) for group in groups.values()]


def _join(group: list[Record]) -> Record:
    joined = [record for record in group if record.seed is None]
    if joined:
        return joined[0]
    if len(group) == 1:
        return dataclasses.replace(group[0], seed=None)
    values = np.array([record.value for record in group])
    values = values[~np.isnan(values)]
    low, high = t_interval(values, _bounds(group[0].metric))
    if group[0].model == RANDOM:
        low, high = (mean_of([getattr(record, end) for record in group]) for end in ("low", "high"))
    return dataclasses.replace(
        group[0],
        value=mean_of(values),
        n=sum(record.n for record in group),
        undefined=sum(record.undefined for record in group),
        chance=mean_of([record.chance for record in group]),
        low=low,
        high=high,
        seed=None,
    )


def mean_of(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean of what is not NaN, NaN where nothing is."""
    defined = np.asarray(values, dtype=np.float64)
    defined = defined[~np.isnan(defined)]
    return float(defined.mean()) if defined.size else math.nan


def seeds_of(records: Iterable[Record]) -> list[int]:
    """Return the seeds that occur, ascending.

    Parameters
    ----------
    records : iterable of Record
        Any records.

    Returns
    -------
    list of int
        Without None.
    """
    return sorted({record.seed for record in records if record.seed is not None})


def models_of(records: Iterable[Record]) -> list[str]:
    """Return the concept models that occur in CEM, CLM or CGIM, baselines left out.

    Parameters
    ----------
    records : iterable of Record
        Any records.

    Returns
    -------
    list of str
        In the order of `MODELS`, others after them.
    """
    found = dict.fromkeys(record.model for record in records if record.metric in ("CEM", "CLM", "CGIM"))
    return ordered(model for model in found if not model.startswith(BASELINES))


def ordered(models: Iterable[str]) -> list[str]:
    """Bring names of models into the order of `MODELS`, others after them; duplicates are dropped.

    Parameters
    ----------
    models : iterable of str
        Names in any order.

    Returns
    -------
    list of str
        Each once.
    """
    found = dict.fromkeys(models)
    return [model for model in MODELS if model in found] + [model for model in found if model not in MODELS]


def against(record: Record, reference: Record | float) -> str:
    """Say whether a number lies above, at or below another, by its 95 % interval.

    For chance and the random control it is `controls.against_control` that tells.

    Parameters
    ----------
    record : Record
        The number.
    reference : Record or float
        A fixed value, or a number with an interval of its own: then the two intervals must not overlap.

    Returns
    -------
    str
        "above", "at" or "below"; "" where the interval or the reference is not known.
    """
    other = (reference.low, reference.high) if isinstance(reference, Record) else (reference, reference)
    return relation((record.low, record.high), other)
