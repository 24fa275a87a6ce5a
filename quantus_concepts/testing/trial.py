"""Try metrics: damage models on purpose and see which score notices."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata

from captum_concepts.support.checks import as_list, check_choice, check_range, check_whole
from captum_concepts.support.running import progress
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.testing.damages import DAMAGES, KNOW_NOTHINGS, MAPS, UNCHANGED, Damage, Function
from quantus_concepts.testing.expected import EXPECTED, NOTHING, SAME, WORSE, Claim
from quantus_concepts.testing.scores import Scorer, is_lower_better, score_world, scored_rows, trial_metrics
from quantus_concepts.testing.worlds import RIGHT, World, world_maker

#: Sizes of damage.
SIZES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
#: Worlds without damage beside those with it, for luck, which is the deviation of all.
MORE_WORLDS = 2
#: Kinds of rows of a trial.
START, DAMAGE, UNMOVED, NOTHING_KNOWN = "start", "damage", "unchanged", "know-nothing"
COLUMNS = ("metric", "damage", "t", "world", "repetition", "value", "kind", "better")
#: Two worlds differ by so many deviations in one of twenty cases.
_BEYOND_LUCK = 1.96 * np.sqrt(2)
#: A score whose largest change is below this share of its range in the trial has no reaction.
SMALLEST = 0.02
#: Differences of scores in 32 bits.
_ROUNDING = 1e-6
#: The mean rank correlation of size and score from which on a score follows the damage.
IN_ORDER = 0.8


def meta_evaluate(
    metrics: Mapping[str, Scorer] | Sequence[ConceptMetric] | ConceptMetric | None = None,
    *,
    world: World = RIGHT,
    damages: Sequence[str] | Mapping[str, Function] | None = None,
    sizes: Sequence[float] = SIZES,
    worlds: int = 5,
    repetitions: int = 3,
    seed: int = 0,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score models with planted damage: which metric would have noticed?

    Damage is done to rows of predictions (`ConceptPredictions`), so that a metric is tried without a network. Beside
    the damages, of growing size, stand changes that must move no score and models that know nothing.

    Parameters
    ----------
    metrics : dict or sequence, optional
        Metrics of concept models, or by name these, or functions of the rows of the scored images that return a number
        or a metric. Truth is that of the rows, which damage changes: a metric that needs a table of classes or parts is
        given as ``lambda rows: CGIM(rows.tables["class_concepts"])``. By default `trial_metrics`.
    world : str, ConceptPredictions or callable
        "right": labels of painted birds with a planted embedding, a model that is right; "trained": post-hoc CBMs
        trained on painted birds; rows of a model with concept labels, `predict_world` or `predict_concepts`, of which
        each world takes another half of the scored images; or a function from a seed to such rows.
    damages : sequence or dict, optional
        Names of `quantus_concepts.testing.damages.DAMAGES`, or functions ``(rows, t, generator) -> rows`` by name; by
        default those that are possible with the rows.
    sizes : sequence of float
        Sizes of the damage in (0, 1].
    worlds : int
        Number of worlds that are damaged, at least 2; two more without damage help to know luck.
    repetitions : int
        How often each damage is drawn in a world.
    seed : int
        Random seed of the first world; the others follow.
    display_progressbar : bool
        Whether a bar shows the worlds.

    Returns
    -------
    DataFrame
        ``metric``, ``damage``, ``t``, ``world``, ``repetition``, ``value``; ``kind``, which is "start" (t = 0),
        "damage", "unchanged" (a change that must move nothing) or "know-nothing"; ``better``, "higher" or "lower".

    Raises
    ------
    TypeError
        If `metrics` holds something else.
    ValueError
        If a number is out of its range, there is no such damage or world, a damage or score needs what rows do not
        have, or a metric is bound to labels of its own.

    See Also
    --------
    noticed : what each metric noticed, and from which size.
    plot_trial : its picture.

    Examples
    --------
    >>> from quantus_concepts import CEM
    >>> from quantus_concepts.testing import meta_evaluate, noticed
    >>> frame = meta_evaluate(
    ...     {"CEM (value)": CEM(top_l=3, importance="value")},
    ...     damages=["names permuted", "maps shifted"],
    ...     sizes=[0.2, 0.6, 1.0],
    ...     worlds=2,
    ...     repetitions=1,
    ... )
    >>> found = noticed(frame).set_index("damage")
    >>> found.loc[["names permuted", "maps shifted"], "reaction"].tolist()
    ['worse, in order', 'none']
    """
    check_whole("worlds", worlds, 2)
    check_whole("repetitions", repetitions, 1)
    check_whole("seed", seed, 0)
    for size in as_list("sizes", sizes):
        check_range("sizes", size, 0, 1, open_low=True)
    sizes = sorted({float(size) for size in sizes})
    make, numbers = world_maker(world), range(worlds + MORE_WORLDS)
    scorers: dict[str, Scorer] = {}
    chosen: dict[str, dict[str, Damage]] = {}
    found: list[dict[str, Any]] = []
    for number in progress(numbers, "worlds", show=display_progressbar, unit="world"):
        rows = make(seed + number)
        if not scorers:
            scorers = _named(metrics, rows)
            chosen = {DAMAGE: _damages(damages, rows)} | {
                kind: {name: each for name, each in group.items() if each.possible(rows)}
                for kind, group in ((UNMOVED, UNCHANGED), (NOTHING_KNOWN, KNOW_NOTHINGS))
            }
            first = scored_rows(rows)
            better = {
                name: "lower" if is_lower_better(name, scorer, first) else "higher" for name, scorer in scorers.items()
            }
        cases: list[tuple[str, str, float, int, Callable[[], ConceptPredictions]]] = [(START, "", 0.0, 0, lambda: rows)]  # noqa: B023
        for repetition in range(repetitions) if number < worlds else ():
            for kind, group in chosen.items():
                for name, damage in group.items():
                    for t in sizes if kind == DAMAGE else [1.0]:
                        # Of one generator: a larger damage holds the smaller one.
                        draw = _generator(seed + number, name, repetition)
                        cases.append((kind, name, t, repetition, lambda d=damage, t=t, g=draw: d(rows, t, g)))  # type: ignore[misc] # noqa: B023
        for kind, name, t, repetition, damaged in cases:
            case = scored_rows(damaged())
            of_case = {"damage": name, "t": t, "world": number, "repetition": repetition, "kind": kind}
            for metric, scorer in scorers.items():
                found.append({"metric": metric, "value": score_world(scorer, case), "better": better[metric]} | of_case)
    return pd.DataFrame(found)[[*COLUMNS]]


def _generator(*key: Any) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))


def _named(
    metrics: Mapping[str, Scorer] | Sequence[ConceptMetric] | ConceptMetric | None, rows: ConceptPredictions
) -> dict[str, Scorer]:
    """Return metrics by name, or raise."""
    if metrics is None:
        return trial_metrics(rows)
    if not isinstance(metrics, Mapping):
        listed = [metrics] if isinstance(metrics, ConceptMetric) else as_list("metrics", metrics)
        metrics = {getattr(metric, "name", repr(metric)): metric for metric in listed}
        if len(metrics) < len(listed):
            raise ValueError(
                "Expected argument `metrics` to hold metrics of different names but two are alike: pass a dict."
            )
    for name, metric in metrics.items():
        if not isinstance(metric, ConceptMetric) and (isinstance(metric, type) or not callable(metric)):
            raise TypeError(
                "Expected argument `metrics` to hold metrics of concept models, as CEM(), or functions of rows, but "
                f"got {metric!r}."
            )
        if isinstance(metric, ConceptMetric) and metric.bound_truth:
            raise ValueError(
                f"Expected argument `metrics` to hold metrics without labels of their own but {name!r} has "
                f"{', '.join(metric.bound_truth)}: damage changes the truth, so give it with the rows."
            )
    return {str(name): metric for name, metric in metrics.items()}


def _damages(damages: Sequence[str] | Mapping[str, Function] | None, rows: ConceptPredictions) -> dict[str, Damage]:
    """Return damages by name, or raise for one that the rows do not allow."""
    if damages is None:
        return {name: damage for name, damage in DAMAGES.items() if damage.possible(rows)}
    if isinstance(damages, Mapping):
        return {
            str(name): damage if isinstance(damage, Damage) else Damage(str(name), damage)
            for name, damage in damages.items()
        }
    for name in as_list("damages", damages):
        check_choice("damages", name, [*DAMAGES])
        if not DAMAGES[name].possible(rows):
            raise ValueError(
                f"Expected argument `world` to have {', '.join(DAMAGES[name].needs)} for the damage {name!r}: "
                "`predict_world` makes such rows."
            )
    return {name: DAMAGES[name] for name in damages}


def noticed(frame: pd.DataFrame, expected: Mapping[tuple[str, str], Claim] = EXPECTED) -> pd.DataFrame:
    """Say what each metric noticed, and hold it against what it must notice.

    A change is beyond luck if it exceeds ``1.96 sqrt(2)`` standard deviations over the undamaged worlds, what two of
    them differ by in one of twenty cases. A score reacts if its largest change is, and is also a fiftieth of the
    score's range in the trial.

    Parameters
    ----------
    frame : DataFrame
        Result of `meta_evaluate`.
    expected : dict
        What a score must do under a damage, by both names: by default `quantus_concepts.testing.expected.EXPECTED`,
        written before the first run.

    Returns
    -------
    DataFrame
        A row for each ``metric`` and ``damage``, of each ``kind``. ``expected``: "worse", "same" or "" for no claim,
        and ``why``; ``start``, the mean of the undamaged worlds, ``luck``, the largest change that is luck, ``end``,
        the mean at the largest size that has one, and ``change``, from the same worlds, below 0 if the score gets
        worse; ``t``, the smallest size from which on the mean change is beyond luck, and ``t_paired``, from which on
        95 % of the pairs of the same world change in the direction of ``change``; ``order``, the mean rank correlation
        of size and score, -1 if it falls step by step; ``reaction``, "worse, in order", "worse, out of order", "better"
        or "none"; ``undefined``, how many scores are NaN; and ``finding``, "" if it is as expected: "misses",
        "rewards", "out of order", "moves" (where it must not, or under a change of nothing), "gets better" (without a
        claim), and of a model that knows nothing "passes", if its score is not below that of the undamaged worlds
        beyond luck.

    Raises
    ------
    ValueError
        If `frame` lacks a column, or has no undamaged world.

    Examples
    --------
    >>> import pandas as pd
    >>> from quantus_concepts.testing import noticed
    >>> row = {"metric": "mine", "repetition": 0, "better": "higher"}
    >>> start = [row | {"kind": "start", "damage": "", "t": 0.0, "world": 0, "value": 0.9}]
    >>> start += [start[0] | {"world": 1, "value": 0.91}]
    >>> damaged = [
    ...     row
    ...     | {
    ...         "kind": "damage",
    ...         "damage": "names permuted",
    ...         "t": t,
    ...         "world": 0,
    ...         "value": 0.9 - t,
    ...     }
    ...     for t in (0.1, 0.5, 0.9)
    ... ]
    >>> noticed(pd.DataFrame(start + damaged))[
    ...     ["metric", "damage", "t", "reaction"]
    ... ].values.tolist()
    [['mine', 'names permuted', 0.1, 'worse, in order']]
    """
    if lacks := [name for name in COLUMNS if name not in frame]:
        raise ValueError(f"Expected argument `frame` to be a result of `meta_evaluate` but it lacks {lacks[0]!r}.")
    if not (frame["kind"] == START).any():
        raise ValueError('Expected argument `frame` to have rows of kind "start" but it has none.')
    found = []
    for metric, rows in frame.groupby("metric", sort=False):
        sign = -1.0 if rows["better"].iloc[0] == "lower" else 1.0
        starts = rows[rows["kind"] == START].set_index("world")["value"]
        spread = rows["value"].max() - rows["value"].min()
        luck, smallest = _BEYOND_LUCK * starts.std(), SMALLEST * spread
        rest = rows[rows["kind"] != START]
        rest = rest.assign(change=sign * (rest["value"] - rest["world"].map(starts)))
        for (kind, damage), cases in rest.groupby(["kind", "damage"], sort=False):
            claim = expected.get((str(metric), str(damage)), Claim(NOTHING, ""))
            claim = claim if kind == DAMAGE else Claim({UNMOVED: SAME, NOTHING_KNOWN: WORSE}[str(kind)], "")
            own = {"metric": metric, "damage": damage, "kind": kind, "expected": claim.expected, "why": claim.why}
            numbers = {"start": starts.mean(), "luck": luck, "undefined": int(cases["value"].isna().sum())}
            found.append(own | numbers | _reaction(cases, starts, luck, smallest, sign))
    table = pd.DataFrame(found)
    table["finding"] = [_finding(row) for row in table.to_dict("records")]
    order = [*("metric", "damage", "kind", "expected", "start", "luck", "end", "change", "t", "t_paired", "order")]
    return table[[*order, "reaction", "finding", "undefined", "why"]]


def _reaction(cases: pd.DataFrame, starts: pd.Series, luck: float, smallest: float, sign: float) -> dict[str, Any]:
    """Return what a score did under one damage, of its changes towards better; undefined sizes are left out."""
    cases = cases.sort_values(["t", "world", "repetition"])
    means = cases.groupby("t")["change"].mean().dropna()
    if means.empty:
        nothing = dict.fromkeys(("end", "change", "t", "t_paired", "order"), np.nan)
        return nothing | {"reaction": "none", "untouched": False}
    end, peak = means.iloc[-1], means.iloc[int(means.abs().to_numpy().argmax())]
    known = cases[cases["t"].isin(means.index) & cases["change"].notna()]
    pairs = known.assign(same=(np.sign(known["change"]) == np.sign(end)) & (known["change"].abs() > _ROUNDING))
    order = [
        _rank_correlation([0.0, *each["t"]], [0.0, *each["change"]])
        for _, each in known.groupby(["world", "repetition"])
    ]
    mean_order = float(np.mean(order))
    if not abs(peak) > max(luck, smallest, _ROUNDING):
        reaction = "none"
    elif peak > 0:
        reaction = "better"
    else:
        reaction = "worse, in order" if mean_order < -IN_ORDER else "worse, out of order"
    numbers = {"end": known.loc[known["t"] == means.index[-1], "value"].mean(), "change": end, "order": mean_order}
    beyond = means.abs() > max(luck, _ROUNDING)
    numbers |= {"t": _first(beyond), "t_paired": _first(pairs.groupby("t")["same"].mean() >= 0.95)}
    return numbers | {"reaction": reaction, "untouched": bool((known["change"].abs() <= _ROUNDING).all())}


def _rank_correlation(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the rank correlation of size and score; 0 where a score does not move."""
    if len(values) < 3 or np.ptp(values) < _ROUNDING:
        return 0.0
    return float(np.corrcoef(rankdata(sizes), rankdata(values))[0, 1])


def _first(holds: pd.Series) -> float:
    """Return the smallest size from which on something holds; NaN if it does not at the largest."""
    sizes = [*holds.index]
    while sizes and holds[sizes[-1]]:
        sizes.pop()
    return float(holds.index[len(sizes)]) if len(sizes) < len(holds) else np.nan


def _finding(row: Mapping[Any, Any]) -> str:
    """Return in what a score differs from what it must do."""
    expected, reaction = row["expected"], row["reaction"]
    if row["kind"] == NOTHING_KNOWN:
        # A damage of maps alone says nothing of a score that reads none.
        apart = row["untouched"] and MAPS in KNOW_NOTHINGS[row["damage"]].needs
        # A score that is undefined praises nobody.
        return "passes" if not apart and row["change"] >= -max(row["luck"], _ROUNDING) else ""
    if expected == WORSE:
        return {"none": "misses", "better": "rewards", "worse, out of order": "out of order"}.get(reaction, "")
    if expected == SAME:
        return "" if reaction == "none" else "moves"
    return "gets better" if reaction == "better" else ""


def trial_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return the table of a trial: a row for each metric, a column for each damage, and which models pass.

    Parameters
    ----------
    found : DataFrame
        Result of `noticed`.

    Returns
    -------
    DataFrame
        Index: the metrics. Of each damage the smallest size that is noticed, as text: "~" if not in order, "-" for
        nothing, "up" if the score gets better; in brackets if the score claims nothing or must not move. ``passes``:
        models that know nothing and pass; ``moved by``: changes of nothing that move it, with the largest change.

    Raises
    ------
    KeyError
        If `found` is no such table.

    Examples
    --------
    >>> import pandas as pd
    >>> from quantus_concepts.testing import trial_table
    >>> row = {"metric": "mine", "kind": "damage", "t": 0.1, "change": -0.4, "finding": ""}
    >>> rows = [
    ...     row
    ...     | {"damage": "names permuted", "expected": "worse", "reaction": "worse, in order"}
    ... ]
    >>> rows += [row | {"damage": "units", "kind": "unchanged", "finding": "moves"}]
    >>> trial_table(pd.DataFrame(rows)).iloc[0].tolist()
    ['0.1', '', 'units .40']
    """
    lines = {}
    for metric, rows in found.groupby("metric", sort=False):
        damages = rows[rows["kind"] == DAMAGE]
        line = {row["damage"]: _cell(row) for row in damages.to_dict("records")}
        line["passes"] = ", ".join(rows.loc[(rows["kind"] == NOTHING_KNOWN) & (rows["finding"] == "passes"), "damage"])
        moved = rows[(rows["kind"] == UNMOVED) & (rows["finding"] == "moves")]
        sizes = zip(moved["damage"], moved["change"].abs(), strict=True)
        lines[metric] = line | {
            "moved by": ", ".join(f"{name} {size:.2f}".replace(" 0.", " .") for name, size in sizes)
        }
    table = pd.DataFrame.from_dict(lines, orient="index").fillna("")
    return table.rename_axis("metric")


def _cell(row: Mapping[Any, Any]) -> str:
    t = f"{row['t']:g}" if row["t"] == row["t"] else ""
    text = {"none": "-", "better": "up", "worse, in order": t or "-", "worse, out of order": f"{t}~"}[row["reaction"]]
    return text if row["expected"] == WORSE else f"({text})"
