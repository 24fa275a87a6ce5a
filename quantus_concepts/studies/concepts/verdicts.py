"""Sentences that say what the numbers mean, written from the numbers and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from quantus_concepts.studies.concepts.controls import against_control, control_of
from quantus_concepts.studies.concepts.results import (
    BASELINES,
    GAUSSIAN,
    ORACLE,
    OTHER_IMAGE,
    PLAIN,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
    Record,
    against,
    baseline_name,
    models_of,
    over_seeds,
)
from quantus_concepts.studies.records import find, select

RELATIONS = {"above": "above", "at": "not distinguishable from", "below": "below"}
BASELINE_PHRASES = {OTHER_IMAGE: "the parts of another image", GAUSSIAN: "a centred Gaussian"}


def verdicts(records: Sequence[Record], by_class: bool = False) -> list[str]:
    """Return sentences on existence, location, global importance and accuracy."""
    # "Above" and "below" random directions are said where a number lies outside what 95 % of many random banks
    # score; of two models where their 95 % intervals do not overlap.
    joined = over_seeds(records)
    models = models_of(joined)
    main = POST_HOC if POST_HOC in models else next(iter(models), "")
    sentences = [
        _existence(joined, main, by_class),
        _existence_of_others(joined, main),
        _explained_by_absence(joined, main),
        *(_location(joined, model) for model in (main, TRADITIONAL) if model in models),
        _no_map_is_better(joined, models),
        _global_importance(joined, main),
        _accuracy(joined, main),
    ]
    return list(dict.fromkeys(sentence for sentence in sentences if sentence))


def percent(value: float) -> str:
    """Write a share in percent, with a decimal where it is small or nearly whole."""
    return f"{100 * value:.{_decimals(value)}f} %"


def _decimals(value: float) -> int:
    return int(0 < value < 0.2 or 0.99 <= value < 1)


def _with_interval(record: Record) -> str:
    if math.isnan(record.low):
        return percent(record.value)
    decimals = _decimals(record.value)
    low, high = (f"{100 * end:.{decimals}f}" for end in (record.low, record.high))
    return f"{percent(record.value)} (95 % interval {low}–{high})"


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _usable(record: Record | None) -> Record | None:
    return None if record is None or math.isnan(record.value) else record


def _cem(records: Sequence[Record], model: str, explanation: str, chosen: str = "correct") -> Record | None:
    return _usable(find(records, metric="CEM", model=model, explanation=explanation, set=chosen, l=1))


def _beside_control(records: Sequence[Record], record: Record) -> str:
    """Say how a number stands to the distribution over random banks, "" where there is none."""
    control = control_of(records, record)
    relation = RELATIONS.get(against_control(records, record), "")
    if control is None or not relation:
        return ""
    if record.metric == "CGIM":
        low, high = _signed(control.low), _signed(control.high)
        return f"{relation} random directions (mean {_signed(control.value)}, 95 % of the banks {low} to {high})"
    low, high = (f"{100 * end:.{_decimals(control.value)}f}" for end in (control.low, control.high))
    return f"{relation} random directions (mean {percent(control.value)}, 95 % of the banks {low}–{high})"


def _existence(records: Sequence[Record], model: str, by_class: bool) -> str:
    chosen = "correct" if _cem(records, model, "contribution") else "all"
    record = _cem(records, model, "contribution", chosen)
    if record is None:
        return ""
    images = "the correctly classified images" if chosen == "correct" else "the images"
    text = f"The concept the {model} ranks first by contribution is "
    text += f"{'one of its class' if by_class else 'present'} in {_with_interval(record)} of {images}"
    beside = _beside_control(records, record)
    text += f", {beside}" if beside else ""
    text += "." if math.isnan(record.chance) else f"; the share of labelled concepts is {percent(record.chance)}."
    by_value = _cem(records, model, "value", chosen)
    if by_value is not None:
        beside = _beside_control(records, by_value)
        text += f" Ranked by concept value alone it is {percent(by_value.value)}{', ' + beside if beside else ''}, "
        text += "but the value alone does not decide the class."
    return text


def _existence_of_others(records: Sequence[Record], main: str) -> str:
    ours = _cem(records, main, "contribution")
    if ours is None:
        return ""
    parts = []
    for model, name in (
        (TRADITIONAL, "the traditional CBM"),
        (ORACLE, "the oracle"),
    ):
        record = _cem(records, model, "contribution") if model != main else None
        if record is not None:
            relation = {
                "above": ", above it",
                "below": ", below it",
                "at": ", not distinguishable from it",
                "": "",
            }[against(record, ours)]
            parts.append(f"{percent(record.value)} for {name}{relation}")
    return f"The same number beside the {main}'s: {'; '.join(parts)}." if parts else ""


def _explained_by_absence(records: Sequence[Record], model: str) -> str:
    record = _usable(find(records, metric="negative first", model=model))
    if record is None or record.value == 0:
        return ""
    return (
        f"In {_with_interval(record)} of the images that first concept has a negative value and a negative weight: it "
        "speaks for the class by being absent. The model itself says that it is not there, so its map's strongest "
        "region need not be where the part is."
    )


def _smallest_alpha(records: Sequence[Record], model: str) -> Record | None:
    chosen = select(records, metric="CLM", model=model, explanation="contribution", set="all", l=1)
    defined = [record for record in chosen if record.alpha is not None and not math.isnan(record.value)]
    return min(defined, key=lambda record: record.alpha or 0.0, default=None)


def _baselines(records: Sequence[Record], record: Record) -> dict[str, Record]:
    """Return the honest baselines of a CLM record: those of its own ranking, else the bare ones."""
    found: dict[str, Record] = {}
    for baseline in BASELINES:
        for name in (baseline_name(baseline, record.model), baseline):
            match = _usable(
                find(
                    records,
                    metric="CLM",
                    model=name,
                    explanation=record.explanation,
                    l=record.l,
                    alpha=record.alpha,
                )
            )
            if match is not None:
                found.setdefault(baseline, match)
    return found


def _location(records: Sequence[Record], model: str) -> str:
    record = _smallest_alpha(records, model)
    if record is None:
        return ""
    text = (
        f"At α = {record.alpha:g} the map of the {model}'s first concept contains the concept's part in "
        f"{_with_interval(record)} of the cases"
    )
    beside = _beside_control(records, record)
    said = [beside] if beside else []
    for baseline, other in _baselines(records, record).items():
        relation = RELATIONS.get(against(record, other), "to compare with")
        said.append(f"{relation} {BASELINE_PHRASES[baseline]} ({percent(other.value)})")
    if not math.isnan(record.chance):
        said.append(f"a point anywhere would be in it in {percent(record.chance)}")
    return f"{text}: {', '.join(said)}." if said else f"{text}."


def _no_map_is_better(records: Sequence[Record], models: Sequence[str]) -> str:
    """Say so plainly when no trained model beats the honest baselines and random maps at any size of the region."""
    trained = [model for model in models if model not in (ORACLE, RANDOM)]
    compared = False
    for model in trained:
        chosen = select(records, metric="CLM", model=model, explanation="contribution", set="all", l=1)
        for record in chosen:
            others = _baselines(records, record).values()
            compared = compared or bool(others)
            beaten = [against(record, other) for other in others]
            if control_of(records, record) is not None:
                beaten.append(against_control(records, record))
            if others and all(relation == "above" for relation in beaten):
                return ""
    if not compared:
        return ""
    return (
        "No trained model's maps rise above both honest baselines and the maps of random directions at any α: there is "
        "no evidence that they tell more about where a concept is than that it is somewhere on the object."
    )


def _global_importance(records: Sequence[Record], model: str) -> str:
    items = [
        record
        for record in select(records, metric="CGIM", model=model, explanation="contribution", item_kind="concept")
        if record.item and not math.isnan(record.value)
    ]
    if not items:
        return ""
    mean = find(records, metric="CGIM", model=model, explanation="contribution", item_kind="concept", item="")
    worst = min(items, key=lambda record: record.value)
    value = sum(record.value for record in items) / len(items)
    text = (
        f"Over the classes, the {model}'s contributions agree with the truth with a mean cosine of "
        f"{_signed(value)} per concept (CGIM₃)"
    )
    beside = _beside_control(records, mean) if mean is not None else ""
    if beside:
        controls = select(records, metric="CGIM", model=RANDOM)
        weak = sum(against_control(controls, record) != "above" for record in items)
        text += f", {beside}; {weak} of {len(items)} concepts are not above their own random range"
    return f"{text}; “{worst.item}” is worst with {_signed(worst.value)}."


def _accuracy(records: Sequence[Record], model: str) -> str:
    ours = _usable(find(records, metric="accuracy", model=model, item_kind=""))
    plain = _usable(find(records, metric="accuracy", model=PLAIN, item_kind=""))
    if ours is None:
        return ""
    text = f"The {model} classifies {percent(ours.value)} of the test images correctly"
    return text + (f", the backbone without a bottleneck {percent(plain.value)}." if plain is not None else ".")
