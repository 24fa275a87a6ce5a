"""The tables of the concept report: the paper's Tables 1 to 3, means, full lists, and the one of the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from quantus_concepts.metrics.streaming.names import OTHER_IMAGE
from quantus_concepts.studies._kit.findings import number
from quantus_concepts.studies._kit.results import PAPER, names, one, pick
from quantus_concepts.studies._kit.tables import MARKS, Table, arranged, in_percent, in_percents
from quantus_concepts.studies.concepts import charts
from quantus_concepts.studies.concepts.evaluation import SWEEP_C, SWEEP_N
from quantus_concepts.studies.concepts.names import (
    BASELINES,
    MODELS,
    PLAIN,
    POST_HOC,
    RANDOM,
    RANKINGS,
    SETS,
    SIGNS,
    TRADITIONAL,
    baseline_name,
    setting_name,
)

CHANCE = "chance"
#: Held-out accuracy below which a direction hardly knows its concept.
WEAK = 0.6
#: From this many columns on the terminal's table has decimals.
WIDE = 104
#: The plain word first, then the paper's sign.
WORDS = {name: f"{name} {sign}" for name, sign in SIGNS.items()}
LABELS = WORDS | SETS
KEY = "Small numbers are 95 % intervals; of random directions, where 95 % of the banks lie."
MARKED = "≈ 95 % interval meets what 95 % of the random banks score; ▼ lies below it. "
LEVELS = ("l = 1", "l = 3", "l = 5", "")
PLURALS = {"concept": "concepts", "class": "classes"}


def _columns(frame: pd.DataFrame, beside: pd.DataFrame | None, rows: Sequence[str]) -> pd.DataFrame:
    """Return rows for models, the paper beside ours and chance last, with a column `level` and its look."""
    if frame.empty:
        return frame.assign(level="", style="")
    chance = frame.drop_duplicates(rows).assign(model=CHANCE, l=None, low=math.nan, high=math.nan, mark="")
    chance["value"] = frame.groupby(rows[0])["chance"].first().reindex(chance[rows[0]]).to_numpy()
    parts = [frame, chance] if beside is None else [frame, beside, chance]
    every = pd.concat(parts)
    every["level"] = every["l"].map("l = {:g}".format, na_action="ignore").fillna("")
    every["style"] = every["model"].where(every["model"].isin([PAPER, CHANCE]), "")
    return every.reset_index(drop=True)


def _model_order(frame: pd.DataFrame) -> list[str]:
    others = [name for name in names(frame, "model") if name not in (*MODELS, PAPER, CHANCE)]
    return [POST_HOC, PAPER, *MODELS[1:], *others, CHANCE]


def _beside(published: pd.DataFrame | None, **wanted: Any) -> pd.DataFrame | None:
    return None if published is None else pick(published, **wanted).assign(low=math.nan, high=math.nan, mark="")


def _key(frame: pd.DataFrame) -> str:
    return MARKED + KEY if frame["mark"].isin(list(MARKS)).any() else KEY


def cem_table(frame: pd.DataFrame, published: pd.DataFrame | None, by_class: bool) -> Table:
    """Return Table 1 of the paper: CEM in %, by image set, ranking, model and l."""
    whose = "are concepts of the image's class" if by_class else "are present in the image"
    cells = _columns(pick(frame, metric="CEM"), _beside(published, metric="CEM"), ["set", "explanation"])
    cells = arranged(cells, set=list(SETS), explanation=list(SIGNS), model=_model_order(cells), level=LEVELS)
    return Table(
        "Table 1",
        f"Concept existence (CEM): how often the first l concepts {whose}, in %.",
        cells,
        ["set", "explanation"],
        ["model", "level"],
        write=in_percent,
        span=in_percents,
        labels=LABELS,
        key=_key(cells),
    )


def clm_table(frame: pd.DataFrame, published: pd.DataFrame | None) -> Table:
    """Return Table 2 of the paper: CLM in %, by region, ranking, model and l, with the two honest baselines."""
    ours = pick(frame, metric="CLM")
    # A baseline is a row of its model, for the ranking by contribution.
    whose = {baseline_name(name, model): (name, model) for model in MODELS for name in BASELINES}
    is_baseline = ours["model"].isin(list(whose))
    ranking = ours["model"].map(lambda name: whose.get(name, ("", name))[0]).where(is_baseline, ours["explanation"])
    ours = ours.assign(
        explanation=ranking,
        model=ours["model"].map(lambda name: whose.get(name, ("", name))[1]),
        mark=ours["mark"].where(~is_baseline, ""),
    )
    cells = _columns(ours, _beside(published, metric="CLM"), ["alpha", "explanation"])
    rankings = [*SIGNS, *BASELINES]
    cells = arranged(
        cells, alpha=sorted(set(cells["alpha"])), explanation=rankings, model=_model_order(cells), level=LEVELS
    )
    cells["alpha"] = cells["alpha"].map("α = {:g}".format)
    return Table(
        "Table 2",
        "Concept location (CLM): how often the map's strongest α/12 of the image holds the part, in %.",
        cells,
        ["alpha", "explanation"],
        ["model", "level"],
        write=in_percent,
        span=in_percents,
        labels=LABELS,
        controls=BASELINES,
        key=_key(cells),
    )


def cgim_table(frame: pd.DataFrame) -> Table:
    """Return the mean CGIM of every model, over concepts and over classes."""
    cells = pick(frame, metric="CGIM", item="")
    cells = cells.assign(item_kind=cells["item_kind"].map("per {}".format))
    kinds = ["per concept", "per class"]
    return Table(
        "CGIM",
        "Concept global importance (CGIM): mean cosine of importance and truth per concept and per class; 1 is best, "
        f"what knows nothing scores as random directions do. θ is of all classes{_left_out(frame)}.",
        arranged(cells, item_kind=kinds, explanation=list(SIGNS), model=_model_order(cells)),
        ["item_kind", "explanation"],
        ["model"],
        labels=LABELS,
        key=_key(cells),
    )


def _left_out(frame: pd.DataFrame) -> str:
    """Say how many classes types 2 and 3 of CGIM are without, for want of a correctly classified image."""
    listed = []
    means = pick(frame, metric="CGIM", item_kind="class", item="")
    for _, row in pick(means, explanation="contribution").iterrows():
        of_all = pick(means, model=row["model"], explanation="weight")
        # A class without any concept has no cosine in any type.
        missing = int(row["undefined"] - of_all["undefined"].sum())
        if missing and row["model"] != RANDOM:
            listed.append(f"{row['model']} {missing} of {row['n'] + row['undefined']}")
    if not listed:
        return "; so are u and θ·u, each class having a correctly classified image"
    return f"; u and θ·u leave out classes without a correctly classified image ({'; '.join(listed)})"


def settings_table(frame: pd.DataFrame, published: pd.DataFrame | None) -> Table:
    """Return Table 3 of the paper: class accuracy in % by C and number of images drawn per concept."""
    places = {setting_name(c, n): (f"C = {c:g}", f"n = {n}") for c in SWEEP_C for n in SWEEP_N}
    swept = pick(frame, metric="accuracy", item_kind="setting")
    parts = [swept] if published is None else [swept, _beside(published, metric="accuracy", item_kind="setting")]
    cells = pd.concat(parts).assign(group=POST_HOC)
    cells["C"], cells["n"] = (cells["item"].map(lambda name, at=at: places[name][at]) for at in (0, 1))
    cells["place"] = cells["item"].map({name: place for place, name in enumerate(places)})
    cells = cells.sort_values("place", kind="stable")
    plain = pick(frame, metric="accuracy", model=PLAIN)
    if len(swept) and len(plain):
        # One number without a setting: it stands in the first column of its source.
        first = plain.assign(model=POST_HOC)
        if published is not None:
            first = pd.concat([first, _beside(published, item=PLAIN)])
        cells = pd.concat([cells, first.assign(group=PLAIN, C="", n=f"n = {SWEEP_N[0]}")])
    cells = cells.assign(style=cells["model"].where(cells["model"] == PAPER, ""), mark="").reset_index(drop=True)
    order = list(dict.fromkeys(cells["C"]))
    cells = arranged(cells, C=order, model=[POST_HOC, PAPER], n=[f"n = {n}" for n in SWEEP_N])
    return Table(
        "Table 3",
        "Class accuracy of the post-hoc CBM in %, by the SVM's C and the number n of images drawn with and without "
        "each concept; below, the backbone without a bottleneck.",
        cells,
        ["group", "C"],
        ["model", "n"],
        write=in_percent,
        span=in_percents,
        key=KEY,
    )


def accuracy_table(frame: pd.DataFrame) -> Table:
    """Return the accuracies of all models in %."""
    cells = pick(frame, metric=["accuracy", "concept accuracy"], item_kind="")
    cells = cells.assign(mark="")
    order = list(dict.fromkeys([PLAIN, *_model_order(cells)]))
    return Table(
        "Accuracy",
        "Accuracy of every model on the test images, in %.",
        arranged(cells, model=order, metric=["accuracy", "concept accuracy"]),
        ["model"],
        ["metric"],
        write=in_percent,
        span=in_percents,
        labels={"accuracy": "class accuracy"},
        key=KEY,
    )


def defined_table(frame: pd.DataFrame) -> Table:
    """Return how many scores were defined, and how many not; of the random control they are banks."""
    rows = frame[(frame["item"] == "") & frame["model"].isin(MODELS) & (frame["model"] != RANDOM)]
    cem = pick(rows, metric="CEM", l=1, explanation="contribution")  # the same whatever the ranking and l
    cem = cem.assign(name=cem["set"].map(lambda name: f"CEM, {SETS[name]}"))
    clm = pick(rows, metric="CLM", explanation="contribution", alpha=1.0)
    clm = clm.assign(name=clm["l"].map("CLM, θ·u, l = {:g}".format))
    cgim = pick(rows, metric="CGIM")
    cgim = cgim.assign(
        name=[
            f"CGIM, {PLURALS[kind]}, {SIGNS[sign]}"
            for kind, sign in zip(cgim["item_kind"], cgim["explanation"], strict=True)
        ]
    )
    cells = pd.concat([arranged(part, name=names(part, "name"), model=_model_order(part)) for part in (cem, clm, cgim)])
    text = [f"{n} of {n + missing}" for n, missing in zip(cells["n"], cells["undefined"], strict=True)]
    return Table("Defined", "Of all scores.", cells.assign(text=text, mark="", low=math.nan), ["name"], ["model"])


def named_table(frame: pd.DataFrame, kind: str) -> Table:
    """Return the five best and the five worst concepts or classes by name."""
    best, worst = charts.ranked(frame, kind, count=5)
    if worst.empty and len(best) > 1:
        middle = (len(best) + 1) // 2
        best, worst = best[:middle], best[middle:]
    cells = pd.concat([best.assign(end="best"), worst[::-1].assign(end="worst")])
    control = pick(frame, metric="CGIM", model=RANDOM, explanation="contribution", item_kind=kind).set_index("item")
    ranges = {
        item: _cosines(row["low"], row["high"]) for item, row in control.iterrows() if row["value"] == row["value"]
    }
    small = [f"random {ranges[item]}" if item in ranges else "" for item in cells["item"]]
    cells = cells.assign(small=small, mark="", column="cosine")
    return Table(PLURALS[kind].capitalize(), "Cosine with the truth.", cells, ["end", "item"], ["column"])


def _cosines(low: float, high: float) -> str:
    return f"{number(low)}{' to ' if low < 0 else '–'}{number(high)}"


def full_table(frame: pd.DataFrame, kind: str) -> Table:
    """Return all CGIM scores, model by model, as the paper's Tables 6 to 8."""
    found = pick(frame, metric="CGIM", item_kind=kind)
    found = found[found["item"] != ""].assign(column=lambda rows: rows["explanation"].map(RANKINGS))
    ours = pick(found, model=[POST_HOC, TRADITIONAL]).assign(text=lambda rows: rows["value"].map(_cosine))
    control = pick(found, model=RANDOM)
    control = control.assign(
        model="95 % of random banks",
        text=[_cosines(low, high) for low, high in zip(control["low"], control["high"], strict=True)],
    )
    directions = pick(frame, metric="CAV accuracy", item_kind=kind)
    directions = directions[directions["item"] != ""].assign(
        model="direction",
        column="held-out accuracy",
        text=lambda rows: rows["value"].map(lambda value: _cosine(value) + (" (weak)" if value < WEAK else "")),
    )
    cells = pd.concat([ours, control, directions]).reset_index(drop=True)
    order = [POST_HOC, TRADITIONAL, "95 % of random banks", "direction"]
    items = names(cells, "item")
    cells = arranged(cells, item=items, model=order, column=[*RANKINGS.values(), "held-out accuracy"])
    title = f"All {len(items)} {PLURALS[kind]}"
    return Table(title, "", cells.assign(small="", mark=""), ["item"], ["model", "column"])


def _cosine(value: float) -> str:
    return "" if pd.isna(value) else number(value)


def main_table(frame: pd.DataFrame, tables: Mapping[str, Table], width: int) -> Table:
    """Return the table of the terminal: for each model and ranking the numbers of all l, side by side."""
    decimals = 1 if width >= WIDE else 0
    parts = []
    for name, heading in (("cem", "CEM"), ("clm", "CLM"), ("cgim", "CGIM"), ("accuracy", "Accuracy")):
        if name not in tables:
            continue
        table = tables[name]
        cells = table.frame[table.frame["model"] != PAPER]
        cells = (
            cells.rename(columns={table.rows[0]: "group", table.rows[-1]: "row"})
            if len(table.rows) > 1
            else (cells[cells["model"] != PLAIN].assign(group="", row=cells["metric"].map(table.label)))
        )
        scale, shown = (1, 2) if name == "cgim" else (100, decimals)
        # Of random directions what 97.5 % of the banks do not exceed.
        value = cells["high"].where(cells["model"] == RANDOM, cells["value"])
        value = value.where((name != "accuracy") | (cells["model"] != RANDOM) | value.notna(), cells["value"])
        signs = cells["mark"].map(MARKS).fillna("")
        cells = cells.astype({"group": str, "row": str, "model": str})
        cells["text"] = [
            "–" if pd.isna(each) else f"{sign}{number(scale * each, shown)}"
            for each, sign in zip(value, signs, strict=True)
        ]
        joined = cells.groupby(["group", "row", "model"], sort=False)["text"].agg(" ".join).reset_index()
        short = {"correct": "if correct", "all": SETS["all"]}
        joined["group"] = [f"{heading}, {short.get(group, group)}" if group else heading for group in joined["group"]]
        parts.append(joined)
    plain = one(frame, metric="accuracy", model=PLAIN)
    if plain is not None:
        text = f"{PLAIN} {100 * plain['value']:.{decimals}f}"
        parts.append(pd.DataFrame([{"group": "Accuracy", "row": text, "model": POST_HOC, "text": ""}]))
    levels = sorted(set(pick(frame, metric=["CEM", "CLM"])["l"]))
    heads = {name: "\n".join(name.rsplit(" ", 1)) for name in MODELS} | {RANDOM: "random\n97.5 %"}
    return Table(
        "Are the concepts real, present, and in the right place?",
        f"In %, CGIM as cosine. Three numbers: l = {', '.join(f'{level:g}' for level in levels)}. "
        "Random directions: what 97.5 % of the banks do not exceed. "
        "≈ 95 % interval meets what 95 % of them score, ▼ lies below. Chance: label density, size of the region.",
        pd.concat(parts, ignore_index=True),
        ["group", "row"],
        ["model"],
        labels=WORDS | heads | {OTHER_IMAGE: "other's parts"},
    )
