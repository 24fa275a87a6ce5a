"""What the numbers of the concept study say, in sentences written from the numbers and their intervals."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from quantus_concepts.metrics.streaming.curves import TRUE_LABELS
from quantus_concepts.metrics.streaming.names import GAUSSIAN, OTHER_IMAGE, WRONG_LABELS
from quantus_concepts.studies._kit.findings import (
    RELATIONS,
    Finding,
    listed,
    number,
    percent,
    said,
    share_decimals,
    with_interval,
)
from quantus_concepts.studies._kit.results import against, keys, one, pick
from quantus_concepts.studies.concepts.charts import intervention_rows
from quantus_concepts.studies.concepts.names import (
    BASELINES,
    ORACLE,
    PLAIN,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
    baseline_name,
)

BASELINE_PHRASES = {OTHER_IMAGE: "the parts of another image", GAUSSIAN: "a centred Gaussian"}
ANSWERS = {"above": "yes", "at": "not distinguishable from random directions", "below": "below random directions"}
COMPARED = {TRADITIONAL: "the traditional CBM", ORACLE: "the oracle"}


def findings(frame: pd.DataFrame, by_class: bool) -> list[Finding]:
    """Return what is said on existence, location, global importance and accuracy; `frame` has the column `mark`."""
    # "Above" and "below" random directions are said where the 95 % interval of a number lies outside what 95 % of
    # many random banks score (the mark); of two models where their intervals do not overlap.
    models = list(dict.fromkeys(frame["model"]))
    return said(
        _existence(frame, by_class),
        _existence_of_others(frame),
        _explained_by_absence(frame),
        *(_location(frame, model) for model in (POST_HOC, TRADITIONAL)),
        _no_map_is_better(frame, [model for model in models if model in (POST_HOC, TRADITIONAL)]),
        _global_importance(frame),
        _accuracy(frame),
        _interventions(frame),
    )


def answers(frame: pd.DataFrame) -> list[Finding]:
    """Return the answer to each question of the study, one short line for a reader in a hurry."""
    chosen = "correct" if _cem(frame) is not None else "all"
    rankings = ("value", "weight", "contribution")
    places = _places(frame, POST_HOC).head(1)
    importance = one(frame, metric="CGIM", model=POST_HOC, explanation="contribution", item_kind="concept", item="")
    ours, plain = (one(frame, metric="accuracy", model=model, item_kind="") for model in (POST_HOC, PLAIN))
    accuracy = "" if ours is None else percent(ours["value"])
    if accuracy and plain is not None:
        accuracy += f" (the backbone alone {percent(plain['value'])})"
    located = {f"at α = {row['alpha']:g}": row for _, row in places.iterrows()}
    present = {f"by {name}": _cem(frame, set=chosen, explanation=name) for name in rankings}
    return said(
        Finding(_answer(frame, present), "Present"),
        Finding(_answer(frame, located), "In the right place"),
        Finding(_answer(frame, {"by contribution": importance}), "Important where it belongs"),
        Finding(accuracy, "Class accuracy"),
    )


def _answer(frame: pd.DataFrame, asked: Mapping[str, pd.Series | None]) -> str:
    """Return which numbers are above those of random directions, with both."""
    groups: dict[str, list[str]] = {}
    for how, row in asked.items():
        if row is not None:
            control = _control(frame, row)
            write = number if row["metric"] == "CGIM" else percent
            random = "" if control is None else f", random {write(control['value'])}"
            answer = "" if control is None else ANSWERS.get(row["mark"], "")
            groups.setdefault(answer, []).append(f"{how} ({write(row['value'])}{random})")
    return "; ".join(f"{answer} {listed(parts)}".strip() for answer, parts in groups.items())


def _control(frame: pd.DataFrame, row: pd.Series) -> pd.Series | None:
    """Return the same number of random directions."""
    same = {name: None if pd.isna(row[name]) else row[name] for name in keys(frame) if name not in ("model", "mark")}
    return one(frame, **same | {"model": RANDOM})


def _existence(frame: pd.DataFrame, by_class: bool) -> str:
    chosen = "correct" if _cem(frame) is not None else "all"
    row = _cem(frame, set=chosen)
    if row is None:
        return ""
    images = "the correctly classified images" if chosen == "correct" else "the images"
    text = f"The concept the {POST_HOC} ranks first by contribution is "
    text += f"{'one of its class' if by_class else 'present'} in {with_interval(row)} of {images}"
    text += _beside_control(frame, row)
    text += "." if pd.isna(row["chance"]) else f"; the share of labelled concepts is {percent(row['chance'])}."
    by_value = _cem(frame, set=chosen, explanation="value")
    if by_value is not None:
        text += f" Ranked by concept value alone it is {percent(by_value['value'])}{_beside_control(frame, by_value)}, "
        text += "but the value alone does not decide the class."
    return text


def _cem(frame: pd.DataFrame, **wanted: str) -> pd.Series | None:
    which = {"model": POST_HOC, "explanation": "contribution", "set": "correct"} | wanted
    return one(frame, metric="CEM", l=1, **which)


def _beside_control(frame: pd.DataFrame, row: pd.Series) -> str:
    """Say after a comma how a number stands to the distribution over random banks, "" where there is none."""
    control = _control(frame, row)
    if control is None or row["mark"] not in RELATIONS:
        return ""
    mean, ends = percent(control["value"]), [control["low"], control["high"]]
    if row["metric"] == "CGIM":
        mean, span = number(control["value"]), " to ".join(number(end) for end in ends)
    else:
        span = "–".join(f"{100 * end:.{share_decimals(control['value'])}f}" for end in ends)
    return f", {RELATIONS[row['mark']]} random directions (mean {mean}, 95 % of the banks {span})"


def _existence_of_others(frame: pd.DataFrame) -> str:
    ours = _cem(frame)
    if ours is None:
        return ""
    parts = []
    for model, name in COMPARED.items():
        row = _cem(frame, model=model)
        if row is not None:
            relation = RELATIONS.get(against(row, ours), "")
            parts.append(f"{percent(row['value'])} for {name}{f', {relation} it' if relation else ''}")
    return f"The same number beside the {POST_HOC}'s: {'; '.join(parts)}." if parts else ""


def _explained_by_absence(frame: pd.DataFrame) -> str:
    row = one(frame, metric="negative first", model=POST_HOC)
    if row is None or row["value"] == 0:
        return ""
    return (
        f"In {with_interval(row)} of the images that first concept has a negative value and a negative weight: "
        "it speaks for the class by being absent. The model itself says that it is not there, so its map's strongest "
        "region need not be where the part is."
    )


def _places(frame: pd.DataFrame, model: str) -> pd.DataFrame:
    """Return the CLM of a model's first concept by contribution, the smallest region first."""
    rows = pick(frame, metric="CLM", model=model, explanation="contribution", l=1)
    return rows[rows["value"].notna()].sort_values("alpha")


def _baselines(frame: pd.DataFrame, row: pd.Series) -> dict[str, pd.Series]:
    """Return the honest baselines of a CLM row: those of its own ranking, else the bare ones."""
    found = {}
    for baseline in BASELINES:
        for name in (baseline, baseline_name(baseline, row["model"])):
            match = one(frame, metric="CLM", model=name, explanation=row["explanation"], l=row["l"], alpha=row["alpha"])
            if match is not None:
                found[baseline] = match
    return found


def _location(frame: pd.DataFrame, model: str) -> str:
    rows = _places(frame, model)
    if rows.empty:
        return ""
    row = rows.iloc[0]
    parts = [_beside_control(frame, row).removeprefix(", ")]
    for baseline, other in _baselines(frame, row).items():
        relation = RELATIONS.get(against(row, other), "to compare with")
        parts.append(f"{relation} {BASELINE_PHRASES[baseline]} ({percent(other['value'])})")
    if not pd.isna(row["chance"]):
        parts.append(f"a point anywhere would be in it in {percent(row['chance'])}")
    text = ", ".join(part for part in parts if part)
    return (
        f"At α = {row['alpha']:g} the map of the {model}'s first concept contains the concept's part in "
        f"{with_interval(row)} of the cases{f': {text}' if text else ''}."
    )


def _no_map_is_better(frame: pd.DataFrame, trained: list[str]) -> str:
    """Say so plainly when no trained model beats the honest baselines and random maps at any size of the region."""
    compared = False
    for model in trained:
        for _, row in _places(frame, model).iterrows():
            others = _baselines(frame, row).values()
            compared = compared or bool(others)
            beaten = [against(row, other) for other in others] + [row["mark"]] * (row["mark"] != "")
            if others and all(relation == "above" for relation in beaten):
                return ""
    if not compared:
        return ""
    return (
        "No trained model's maps rise above both honest baselines and the maps of random directions at any α: there is "
        "no evidence that they tell more about where a concept is than that it is somewhere on the object."
    )


def _global_importance(frame: pd.DataFrame) -> str:
    rows = pick(frame, metric="CGIM", model=POST_HOC, explanation="contribution", item_kind="concept")
    items = rows[(rows["item"] != "") & rows["value"].notna()]
    if items.empty:
        return ""
    mean, worst = one(rows, item=""), items.loc[items["value"].idxmin()]
    text = (
        f"Over the classes, the {POST_HOC}'s contributions agree with the truth with a mean cosine of "
        f"{number(items['value'].mean())} per concept (CGIM₃)"
    )
    beside = "" if mean is None else _beside_control(frame, mean)
    if beside:
        weak = (items["mark"] != "above").sum()
        text += f"{beside}; {weak} of {len(items)} concepts are not above their own random range"
    return f"{text}; “{worst['item']}” is worst with {number(worst['value'])}."


def _accuracy(frame: pd.DataFrame) -> str:
    ours, plain = (one(frame, metric="accuracy", model=model, item_kind="") for model in (POST_HOC, PLAIN))
    if ours is None:
        return ""
    text = f"The {POST_HOC} classifies {percent(ours['value'])} of the test images correctly"
    beside = "" if plain is None else f", the backbone without a bottleneck {percent(plain['value'])}"
    return f"{text}{beside}."


def _interventions(frame: pd.DataFrame) -> str:
    """Say what corrections of a quarter of the concepts do to the class accuracy, beside wrong ones."""
    rows = pick(intervention_rows(frame), model=POST_HOC)
    if rows.empty:
        return ""
    counts = sorted(set(rows["count"]))
    count = max([each for each in counts if 4 * each <= counts[-1]], default=counts[0])
    before = one(rows, count=0, labels=TRUE_LABELS)
    asked, by_chance = (one(rows, count=count, labels=TRUE_LABELS, order=name) for name in ("uncertainty", "random"))
    wrong, every = one(rows, count=count, labels=WRONG_LABELS, order="uncertainty"), one(rows, count=counts[-1])
    if before is None or asked is None or by_chance is None or wrong is None or every is None:
        return ""
    relation = RELATIONS.get(against(asked, before), "beside")
    control = one(intervention_rows(frame), model=RANDOM, count=count)
    random = "" if control is None else f", of random banks {percent(control['value'])}"
    return (
        f"With the {count} concepts of an image that the {POST_HOC} is least sure of set to what people say of them, "
        f"it classifies {with_interval(asked)} correctly, {relation} the {with_interval(before)} "
        f"without (as many in random order: {percent(by_chance['value'])}{random}; all {counts[-1]}: "
        f"{percent(every['value'])}); set to the opposite, the control, {percent(wrong['value'])}."
    )
