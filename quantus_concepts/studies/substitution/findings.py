"""What the numbers of the substitution study say: the answers of the report, and its findings with all intervals."""

from __future__ import annotations

import pandas as pd

from quantus_concepts.studies._kit.findings import (
    Finding,
    compared,
    ends,
    leader,
    number,
    percent,
    relation_to,
    said,
    sentence,
    trend,
)
from quantus_concepts.studies._kit.results import one, pick
from quantus_concepts.studies.substitution.names import (
    CLASS_HARD,
    CURVE,
    IMAGE_HARD,
    MEMORISER,
    ORACLE,
    RANDOM,
    RECITER,
    TRAINED,
)


def whole(row: pd.Series) -> str:
    """Name a model with its labels."""
    return f"{row['model']} ({row['labels']})" if row["labels"] else str(row["model"])


def of_trained(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a number of the trained models, the lowest first."""
    found = pick(rows, metric=metric, model=list(TRAINED))
    return found[found["value"].notna()].sort_values("value", kind="stable")


def answers(frame: pd.DataFrame, correlation: float) -> list[Finding]:
    """Return the answer to each question of the study, one short line for a reader in a hurry."""
    rows = pick(frame, correlation=correlation, item_kind="")
    return said(
        Finding(best_answer(rows, "S+"), "Put in, and seen"),
        Finding(best_answer(rows, "S-"), "Taken out, and gone"),
        Finding(best_answer(rows, "rises"), "Its value rises"),
        Finding(recital_answer(rows), "Class recited"),
    )


def best_answer(rows: pd.DataFrame, metric: str) -> str:
    """Say how many models are above random directions, and which is best."""
    found, control = of_trained(rows, metric), one(rows, metric=metric, model=RANDOM)
    if found.empty or control is None:
        return ""
    n_above = sum(relation_to(row, control) == "above" for _, row in found.iterrows())
    who = f"{n_above} of {len(found)} models" if n_above else f"none of {len(found)} models"
    best = found.iloc[-1]
    more = f"more often than by random directions ({percent(control['value'])})"
    return f"by {who} {more}; most often by the {whole(best)}, {percent(best['value'])}"


def recital_answer(rows: pd.DataFrame) -> str:
    """Say how often all of the class's concepts are named, the one taken out among them."""
    found = of_trained(rows, "recital")
    if found.empty:
        return ""
    low, high = found.iloc[0], found.iloc[-1]
    return f"in {percent(low['value'])} ({whole(low)}) to {percent(high['value'])} ({whole(high)}) of the images"


def findings(frame: pd.DataFrame, correlation: float) -> list[Finding]:
    """Return what is said of one correlation, and of the curve, with all intervals."""
    rows = pick(frame, correlation=correlation, item_kind="")
    texts = {
        "Seen": leader(of_trained(rows, "S+"), "The attribute put in is seen most often by the", whole),
        "Chance": " ".join(chance(rows, metric, sign) for metric, sign in (("S+", "S+"), ("S-", "S−"))).strip(),
        "Controls": controls(rows),
        "Recited": leader(
            of_trained(rows, "recital"),
            "All the class's concepts, the one taken out among them, are named most often by the",
            whole,
        ),
        "Labels": labels(rows),
        "Moved": above_random(
            rows,
            "rises",
            "Whatever the threshold, the value of the concept put in rises from the image before to the image after "
            "most often in the",
        ),
        "Selective": above_random(
            rows,
            "selectivity",
            "Selectivity, 1 where only the touched concepts move and 0.5 where all others move as far, is highest in "
            "the",
        ),
        "Correlation": correlations(pick(frame, item_kind="", metric="S+")),
    }
    return said(*(Finding(text, topic) for topic, text in texts.items()))


def chance(rows: pd.DataFrame, metric: str, sign: str) -> str:
    """Say which models are above what random directions score."""
    control, found = one(rows, metric=metric, model=RANDOM), of_trained(rows, metric)
    if control is None or found.empty:
        return ""
    return compared(
        found,
        control,
        f"{sign} above random directions ({percent(control['value'])}, 95 % of them {ends(control)})",
        whole,
    )


def controls(rows: pd.DataFrame) -> str:
    """Return the scores that are known beforehand."""
    parts = []
    for model in (ORACLE, MEMORISER, RECITER):
        found = [one(rows, metric=metric, model=model) for metric in ("S+", "S-")]
        parts += (
            [f"{model} {' and '.join(percent(row['value']) for row in found if row is not None)}"]
            if all(row is not None for row in found)
            else []
        )
    return f"S+ and S− of what is known beforehand: {'; '.join(parts)}." if parts else ""


def labels(rows: pd.DataFrame) -> str:
    """Compare models trained with labels per image with those per class."""
    parts = []
    for model in TRAINED:
        by_class, by_image = (one(rows, metric="S+", model=model, labels=each) for each in (CLASS_HARD, IMAGE_HARD))
        if by_class is not None:
            parts.append(sentence(f"the {model} {{}}", by_image, {"those per class": by_class}).rstrip("."))
    parts = [part for part in parts if part]
    return f"S+ of models trained with labels per image: {'; '.join(parts)}." if parts else ""


def above_random(rows: pd.DataFrame, metric: str, text: str) -> str:
    """Say in which model a number is highest, and how many are above random directions."""
    found, control = of_trained(rows, metric), one(rows, metric=metric, model=RANDOM)
    if found.empty or control is None:
        return ""
    write = number if metric == "selectivity" else percent
    above = f"{(found['mark'] == 'above').sum()} of {len(found)} models are above random directions"
    return f"{leader(found, text, whole, write)} {above} ({write(control['value'])})."


def correlations(rows: pd.DataFrame) -> str:
    """Say how S+ goes as attributes go together more."""
    parts = []
    for model, (of, *_) in CURVE.items():
        found = pick(rows, model=model, labels=of).sort_values("correlation", kind="stable")
        found = found[found["value"].notna()]
        if len(found) > 1:
            parts.append(f"of the {model} {trend(found.iloc[0], found.iloc[-1])}")
    low, high = rows["correlation"].min(), rows["correlation"].max()
    text = f"As attributes of the classes go together more, from correlation {low:g} to {high:g}, S+ goes"
    return f"{text} {'; '.join(parts)}." if parts else ""
