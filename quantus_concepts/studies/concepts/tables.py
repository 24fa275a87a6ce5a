"""Tables of a benchmark: the one on the terminal, and the paper's Tables 1 to 3 for the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from quantus_concepts.studies.concepts import paper as published
from quantus_concepts.studies.concepts.controls import against_control
from quantus_concepts.studies.concepts.results import (
    BASELINES,
    EXPLANATIONS,
    PLAIN,
    POST_HOC,
    RANDOM,
    SETS,
    Record,
    baseline_name,
    models_of,
    ordered,
    over_seeds,
    parse_setting,
)
from quantus_concepts.studies.records import find, select

PAPER = "paper"
CHANCE = "chance"
#: Signs of a number that is not above 97.5 % of the random banks.
MARKS = {"at": "≈", "below": "▼"}
SET_NAMES = {"all": "all images", "correct": "correctly classified"}


@dataclass(frozen=True)
class PaperTable:
    """A table in the form of the paper's, with intervals."""

    name: str
    caption: str
    values: pd.DataFrame
    low: pd.DataFrame
    high: pd.DataFrame
    marks: pd.DataFrame
    decimals: int = 1


class _Builder:
    """Collects cells by (row, column) and makes the four frames of a table of them."""

    def __init__(self, scale: float, records: Iterable[Record] = ()) -> None:
        self.scale = scale
        self.controls = select(records, model=RANDOM)
        self.rows: dict[tuple[str, str], None] = {}
        self.columns: dict[tuple[str, str], None] = {}
        self.cells: dict[tuple[tuple[str, str], tuple[str, str]], tuple[float, float, float, str]] = {}

    def put(self, row: tuple[str, str], column: tuple[str, str], record: Record | None) -> None:
        self.rows.setdefault(row)
        self.columns.setdefault(column)
        if record is not None:
            numbers = (self.scale * number for number in (record.value, record.low, record.high))
            value, low, high = numbers
            self.cells[row, column] = (value, low, high, against_control(self.controls, record))

    def put_value(self, row: tuple[str, str], column: tuple[str, str], value: float) -> None:
        self.rows.setdefault(row)
        self.columns.setdefault(column)
        self.cells[row, column] = (value, math.nan, math.nan, "")

    def table(self, name: str, caption: str, decimals: int = 1) -> PaperTable:
        empty = (math.nan, math.nan, math.nan, "")
        grid = [[self.cells.get((row, column), empty) for column in self.columns] for row in self.rows]
        rows = pd.MultiIndex.from_tuples(list(self.rows))
        columns = pd.MultiIndex.from_tuples(list(self.columns))
        frames = [
            pd.DataFrame([[cell[part] for cell in line] for line in grid], index=rows, columns=columns)
            for part in range(4)
        ]
        values, low, high, marks = frames
        return PaperTable(name, caption, values, low, high, marks, decimals)


def levels_of(records: Sequence[Record], metric: str) -> list[int]:
    """Return the l that occur in a metric."""
    return sorted({record.l for record in records if record.metric == metric and record.l is not None})


def _alphas(records: Sequence[Record]) -> list[float]:
    return sorted({record.alpha for record in records if record.metric == "CLM" and record.alpha is not None})


def _first_chance(records: Iterable[Record]) -> float:
    return next((record.chance for record in records if not math.isnan(record.chance)), math.nan)


def cem_table(records: Sequence[Record], paper: bool = False, by_class: bool = False) -> PaperTable:
    """Return Table 1 of the paper: CEM in %, by image set, ranking, model and l."""
    records = over_seeds(record for record in records if record.metric == "CEM")
    levels = levels_of(records, "CEM")
    builder = _Builder(100.0, records)
    for chosen in SETS:
        if not select(records, set=chosen):
            continue
        for explanation in EXPLANATIONS:
            row = (chosen, explanation)
            for model in models_of(records):
                for level in levels:
                    found = find(records, model=model, set=chosen, explanation=explanation, l=level)
                    builder.put(row, (model, f"l = {level}"), found)
                if paper and model == POST_HOC:
                    for level in levels:
                        value = published.CEM.get((chosen, explanation, level), math.nan)
                        builder.put_value(row, (PAPER, f"l = {level}"), value)
            builder.put_value(row, (CHANCE, ""), 100 * _first_chance(select(records, set=chosen)))
    whose = "are concepts of the image's class" if by_class else "are present in the image"
    caption = f"Concept existence (CEM): how often the first l concepts {whose}, in %."
    return builder.table("Table 1", caption)


def clm_table(records: Sequence[Record], paper: bool = False) -> PaperTable:
    """Return Table 2 of the paper: CLM in %, by region, ranking, model and l, with the two honest baselines."""
    records = over_seeds(record for record in records if record.metric == "CLM")
    levels = levels_of(records, "CLM")
    builder = _Builder(100.0, records)
    for alpha in _alphas(records):
        group = f"α = {alpha:g}"
        for ranking in [*EXPLANATIONS, *BASELINES]:
            row = (group, ranking)
            if ranking in BASELINES and not [r for r in records if r.model.startswith(ranking)]:
                continue
            for model in models_of(records):
                for level in levels:
                    found = _clm_record(records, model, ranking, alpha, level)
                    builder.put(row, (model, f"l = {level}"), found)
                if paper and model == POST_HOC:
                    for level in levels:
                        value = published.CLM.get((alpha, ranking, level), math.nan)
                        builder.put_value(row, (PAPER, f"l = {level}"), value)
            builder.put_value(row, (CHANCE, ""), 100 * _first_chance(select(records, alpha=alpha)))
    caption = "Concept location (CLM): how often the map's strongest α/12 of the image holds the part, in %."
    return builder.table("Table 2", caption)


def _clm_record(records: Sequence[Record], model: str, ranking: str, alpha: float, level: int) -> Record | None:
    """Return the record of one cell of Table 2; baselines use the ranking by contribution."""
    if ranking in BASELINES:
        model, ranking = baseline_name(ranking, model), "contribution"
    return find(records, model=model, explanation=ranking, set="all", alpha=alpha, l=level)


def accuracy_table(records: Sequence[Record], paper: bool = False) -> PaperTable:
    """Return Table 3 of the paper: class accuracy in % by C and number of images drawn per concept."""
    records = over_seeds(record for record in records if record.metric == "accuracy")
    settings = {parse_setting(record.item): record for record in select(records, item_kind="setting")}
    places = sorted(settings.keys() | published.ACCURACY.keys()) if paper else sorted(settings)
    counts = sorted({count for _, count in places})
    plain = find(records, model=PLAIN, item_kind="")
    builder = _Builder(100.0)
    for strength in sorted({strength for strength, _ in places}):
        row = (POST_HOC, f"C = {strength:g}")
        for count in counts:
            builder.put(row, (POST_HOC, f"n = {count}"), settings.get((strength, count)))
        for count in counts if paper else []:
            value = published.ACCURACY.get((strength, count), math.nan)
            builder.put_value(row, (PAPER, f"n = {count}"), value)
    if plain is not None and counts:
        # One number without a setting: it stands in the first column of its source.
        row = (PLAIN, "")
        builder.put(row, (POST_HOC, f"n = {counts[0]}"), plain)
        if paper:
            builder.put_value(row, (PAPER, f"n = {counts[0]}"), published.PLAIN_ACCURACY)
    caption = (
        "Class accuracy of the post-hoc CBM in %, by the SVM's C and the number n of images drawn with and "
        "without each concept; below, the backbone without a bottleneck."
    )
    return builder.table("Table 3", caption)


def model_table(records: Sequence[Record]) -> PaperTable:
    """Return the accuracies of all models in %."""
    records = over_seeds(record for record in records if record.metric.endswith("accuracy") and not record.item_kind)
    builder = _Builder(100.0)
    names = ordered(record.model for record in records if record.model != PLAIN)
    for name in [PLAIN, *names]:
        for metric in ("accuracy", "concept accuracy"):
            title = "class accuracy" if metric == "accuracy" else metric
            if select(records, metric=metric):
                builder.put((name, ""), (title, ""), find(records, model=name, metric=metric))
    caption = "Accuracy of every model on the test images, in %."
    return builder.table("Accuracy", caption)


def cgim_table(records: Sequence[Record]) -> PaperTable:
    """Return the mean CGIM of every model, over concepts and over classes."""
    records = over_seeds(record for record in records if record.metric == "CGIM" and not record.item)
    builder = _Builder(1.0, records)
    for kind, group in (("concept", "per concept"), ("class", "per class")):
        for explanation in EXPLANATIONS:
            for model in models_of(records):
                found = find(records, model=model, explanation=explanation, item_kind=kind)
                builder.put((group, explanation), (model, ""), found)
    caption = (
        "Concept global importance (CGIM): mean cosine of importance and truth per concept and per class; 1 is best, "
        f"what knows nothing scores as random directions do. θ is of all classes{_left_out(records)}."
    )
    return builder.table("CGIM", caption, decimals=2)


def _left_out(records: Sequence[Record]) -> str:
    """Say how many classes types 2 and 3 of CGIM are without, for want of a correctly classified image."""
    listed = []
    for record in select(records, metric="CGIM", item_kind="class", explanation="contribution", item=""):
        of_all = find(records, metric="CGIM", model=record.model, item_kind="class", explanation="weight", item="")
        # A class without any concept has no cosine in any type.
        missing = record.undefined - (of_all.undefined if of_all else 0)
        if missing and record.model != RANDOM:
            listed.append(f"{record.model} {missing} of {record.n + record.undefined}")
    if not listed:
        return "; so are u and θ·u, each class having a correctly classified image"
    return f"; u and θ·u leave out classes without a correctly classified image ({'; '.join(listed)})"


def paper_tables(records: Sequence[Record], paper: bool = False, by_class: bool = False) -> list[PaperTable]:
    """Return all tables of the report that have a number in them."""
    tables = [
        cem_table(records, paper, by_class) if select(records, metric="CEM") else None,
        clm_table(records, paper) if select(records, metric="CLM") else None,
        accuracy_table(records, paper) if select(records, metric="accuracy", item_kind="setting") else None,
        cgim_table(records) if select(records, metric="CGIM") else None,
        model_table(records) if select(records, metric="accuracy") else None,
    ]
    return [table for table in tables if table is not None and len(table.values)]


def defined_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return how many scores were defined, and how many not."""
    records = over_seeds(record for record in records if not record.item and record.metric != "accuracy")
    # Of the random control the scores are banks.
    models = [model for model in models_of(records) if model != RANDOM]
    rows: dict[str, list[str]] = {}
    for chosen in SETS:  # the same whatever the ranking and l
        cells = [find(records, model=m, metric="CEM", set=chosen) for m in models]
        rows[f"CEM, {SET_NAMES[chosen]}"] = [_share(cell) for cell in cells]
    for level in levels_of(records, "CLM"):
        cells = [find(records, model=m, metric="CLM", explanation="contribution", l=level) for m in models]
        rows[f"CLM, θ·u, l = {level}"] = [_share(cell) for cell in cells]
    for kind, title in (("concept", "concepts"), ("class", "classes")):
        for explanation, sign in EXPLANATIONS.items():
            cells = [find(records, model=m, metric="CGIM", explanation=explanation, item_kind=kind) for m in models]
            rows[f"CGIM, {title}, {sign}"] = [_share(cell) for cell in cells]
    kept = {name: cells for name, cells in rows.items() if any(cells)}
    return pd.DataFrame.from_dict(kept, orient="index", columns=models)


def _share(record: Record | None) -> str:
    return "" if record is None else f"{record.n} of {record.n + record.undefined}"
