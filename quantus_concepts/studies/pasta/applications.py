"""Sections and findings of the uses of a PASTA-score: mixture, steering, robustness, other metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from quantus_concepts.pasta.applications.mixture import Mixture, plot_mixture
from quantus_concepts.studies._kit.charts import Bars, Chart
from quantus_concepts.studies._kit.findings import (
    Finding,
    count_range,
    minus,
    number,
    relation_to,
    said,
    sentence,
    three,
    trend,
    with_interval,
)
from quantus_concepts.studies._kit.page import Section
from quantus_concepts.studies._kit.pictures import PictureGrid
from quantus_concepts.studies._kit.results import names, one, pick
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.pasta.findings import in_cells, paper_table, stack
from quantus_concepts.studies.pasta.options import SIMULATED

#: The first two rows of `Mixture.compare`.
CHOICE, AVERAGE = "mixture", "average of explainers"
CHOSEN = {CHOICE: "chosen by the score", AVERAGE: "average of the explainers"}
FAITHFULNESS = "faithfulness correlation"
#: A correlation weaker than this is called weak.
WEAK = 0.4
PERTURBED = ["perturbed", "explanation before", "explanation after"]


def application_sections(
    facts: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], simulated: bool
) -> list[Section]:
    """Return a section for each use of the score in this run."""
    sections = []
    if "ranked" in facts:
        charts = [
            Chart(
                name,
                f"The explanations with the {name} score ({facts['question']}).",
                PictureGrid(name, ["explanation"], rows),
            )
            for name, rows in facts["ranked"].items()
        ]
        sections.append(Section("What scores best and worst", charts=charts, beside=True))
    if "mixture" in facts:
        faithful = frames["faithfulness"]
        figure, ax = plot_mixture(facts["mixture"])
        scorer = f", scorer of {SIMULATED}" if simulated else ""
        ax.set_xlabel((ax.get_xlabel() + scorer).replace(", scorer", ",\nscorer"))
        caption = "What the choice does to faithfulness: means over images with 95 % intervals."
        charts = [
            Chart("wins", "How often each explainer is chosen.", figure),
            Chart("faithfulness", caption, faithfulness_bars(faithful, scorer)),
        ]
        heading = "Choosing the explainer for each image"
        sections.append(Section(heading, charts=charts, tables=[faithfulness_table(faithful)]))
    if "steering" in facts:
        columns = [f"λ = {weight}" for weight in names(facts["steering"], "name")]
        caption = "Images explained by RISE with growing weight λ of the score."
        chart = Chart("steering", caption, PictureGrid("steering", columns, facts["steered"]), wide=True)
        sections.append(Section("Steering RISE", tables=[steering_table(facts["steering"])], charts=[chart]))
    captions = {
        "light": "Light perturbations, as question Q5 asks of them: the explanation should stay.",
        "strong": "Strong perturbations that change the prediction, as question Q6 asks of them: the explanation "
        "should change with it.",
    }
    pairs = [
        Chart(name, f"{caption} Below each name its magnitude.", PictureGrid(name, PERTURBED, facts[name]))
        for name, caption in captions.items()
        if facts.get(name)
    ]
    if pairs:
        sections.append(Section("Perturbations", charts=pairs, beside=True))
    if "correlations" in frames:
        sections.append(Section("Do other metrics say the same?", tables=[correlation_table(frames["correlations"])]))
    return sections


def faithfulness_table(faithful: pd.DataFrame) -> Table:
    """Return the mean faithfulness of the choice, of each explainer alone and of their average."""
    label = faithful["name"].replace({CHOICE: CHOSEN[CHOICE]})
    means = in_cells(faithful.assign(value=faithful["mean"], head="mean"), small=["interval"])
    ends = {"low": faithful["difference_low"], "high": faithful["difference_high"]}
    differences = in_cells(faithful.assign(value=faithful["difference"], **ends), small=["interval"])
    differences["text"] = ["" if math.isnan(value) else minus(f"{value:+z.3f}") for value in differences["value"]]
    counts = faithful.assign(head="images", text=faithful["n"].astype(str), small="")
    parts = [means, differences.assign(head="choice minus this"), counts]
    printed = paper_table("text").set_index("row")["value"]
    return Table(
        "Faithfulness",
        f"Mean {FAITHFULNESS} over images; higher is better.",
        pd.concat([part.assign(label=label) for part in parts]),
        ["label"],
        ["head"],
        heads={"choice minus this": "paired"},
        key="Small numbers are 95 % intervals over images. For orientation, the paper on its own images: "
        f"{printed[CHOICE]:.4f} for the choice, {printed[AVERAGE]:.4f} on average.",
    )


def steering_table(steering: pd.DataFrame) -> Table:
    """Return mean score and faithfulness of steered explanations by the weight of the score."""
    rows = steering.assign(value=steering["mean"], row="mean " + steering["measure"], head="λ = " + steering["name"])
    return Table(
        "Steering",
        "RISE whose masks are weighted by λ · score + (1 − λ) · class probability; λ = 0 is RISE itself.",
        in_cells(rows, small=["interval"]),
        ["row"],
        ["head"],
        key="Small numbers are 95 % intervals over images. The score is what steers: that it rises says only that "
        "steering works.",
    )


def correlation_table(related: pd.DataFrame) -> Table:
    """Return the correlations of votes with metrics, as the paper's Tables 7 to 9, with its own next to them."""
    printed = pd.concat([paper_table(table) for table in (7, 8, 9)])
    parts = []
    for metric, rows in related.sort_values("question", kind="stable").groupby("metric", sort=False):
        group = f"{metric}, {count_range(rows['n'])}"
        for name, measure in (("Spearman", "SCC"), ("Pearson", "PCC")):
            ours = rows.assign(value=rows[name.lower()], p=rows[f"{name.lower()}_p"], label=name, model="")
            paper = pick(printed, row=metric, measure=measure, question=list(rows["question"]))
            parts += [part.assign(group=group) for part in (ours, paper.assign(label=f"paper, {name}"))]
    cells = in_cells(stack(parts), number, small=[])
    cells["small"] = ["" if math.isnan(p) else "p < 0.001" if p < 0.001 else f"p = {p:.3f}" for p in cells["p"]]
    return Table(
        "Votes and metrics",
        "Correlation of the joined votes with what metrics say of the same explanations.",
        cells,
        ["group", "label"],
        ["question"],
        heads={"Q5": "low is good"},
        key="Small numbers are p-values, which take explanations for independent; several of one image or of one "
        "explainer are not. For orientation: Kazmierczak et al., Tables 7, 8 and 9: image-level attributions of the "
        "PASTA data set.",
    )


def faithfulness_bars(faithful: pd.DataFrame, scorer: str) -> Bars:
    """Declare the mean faithfulness of the choice, of each explainer alone and of their average."""
    first = faithful["name"].isin([CHOICE, AVERAGE])
    rows = pd.concat([faithful[first], faithful[~first].sort_values("mean", ascending=False, kind="stable")])
    rows = rows.assign(value=rows["mean"], name=rows["name"].replace(CHOSEN))
    label = f"{FAITHFULNESS} (higher is better){scorer}"
    return Bars(frame=rows, groups="name", label=label, reference=(0, ""), flat=True, points=True, gap_after=2)


def application_answers(facts: Mapping[str, Any], frames: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return one short line on the choice among explainers, compared with their average."""
    if "mixture" not in facts:
        return []
    frame = frames["faithfulness"].assign(value=lambda rows: rows["mean"])
    chosen, average = (one(frame, name=name) for name in (CHOICE, AVERAGE))
    if chosen is None or average is None:
        return []
    relation = relation_to(_difference(average), 0.0)
    verdict = {"above": "yes", "below": "no, less than their average"}.get(relation, "not distinguishable from average")
    numbers = f"{three(chosen['value'])}, average of the explainers {three(average['value'])}"
    return [Finding(f"{verdict} ({FAITHFULNESS} {numbers})", "Chooses more faithful explanations")]


def _difference(row: pd.Series) -> dict[str, float]:
    """Return the mean of the choice minus a row, image by image."""
    return {"value": row["difference"], "low": row["difference_low"], "high": row["difference_high"]}


def application_findings(
    facts: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], simulated: bool
) -> list[Finding]:
    """Return the findings on the uses of the score."""
    texts = []
    if "mixture" in facts:
        texts += [("Mixture", wins_finding(facts["mixture"])), ("Mixture", choice_finding(frames["faithfulness"]))]
    if "steering" in facts:
        texts += [("Steering", text) for text in steering_findings(facts["steering"])]
    if "correlations" in frames:
        texts.append(("Other metrics", metrics_finding(frames["correlations"], simulated)))
    return said(*(Finding(text, topic) for topic, text in texts))


def wins_finding(mixture: Mixture) -> str:
    """Say which explainer is chosen most often."""
    wins, total = mixture.wins, sum(mixture.wins.values()) + mixture.tied
    tied = f" {mixture.tied} images have several explainers with the best score." if mixture.tied else ""
    if not any(wins.values()):
        return tied.strip()
    name, count = max(wins.items(), key=lambda pair: pair[1])
    never = sum(not won for won in wins.values())
    return (
        f"{name} has the best score ({mixture.question}) most often, for {count} of {total} images; {never} of "
        f"{len(wins)} explainers never have it alone.{tied}"
    )


def choice_finding(faithful: pd.DataFrame) -> str:
    """Say what the choice does to faithfulness, against the average and against the best explainer for all images."""
    means = faithful.assign(value=faithful["mean"]).dropna(subset=["value"])
    chosen = one(means, name=CHOICE)
    if chosen is None:
        return ""
    parts = [sentence(f"The chosen explanations have a mean {FAITHFULNESS} of {{}}", chosen, write=three)]
    best = means[~means["name"].isin([CHOICE, AVERAGE])].sort_values("value", kind="stable").tail(1)
    for _, row in pd.concat([pick(means, name=AVERAGE), best]).iterrows():
        name = "the average of the explainers" if row["name"] == AVERAGE else f"{row['name']} (the most faithful alone)"
        parts.append(
            sentence(f"The choice minus {name} is {{}}", _difference(row), {"no difference": _ZERO}, write=three)
            or f"{name[0].upper()}{name[1:]} has {with_interval(row, three)}."
        )
    return " ".join(parts)


_ZERO = {"value": 0.0, "low": 0.0, "high": 0.0}


def steering_findings(steering: pd.DataFrame) -> list[str]:
    """Say whether score and faithfulness change with the weight of the score."""
    texts = []
    for measure, rows in steering.assign(value=steering["mean"]).groupby("measure", sort=False):
        first, last = rows.iloc[0], rows.iloc[-1]
        if len(rows) > 1 and not math.isnan(first["value"] + last["value"]):
            weights = f"λ = {first['name']} to {last['name']}, {first['n']} images"
            texts.append(f"The mean {measure} goes {trend(first, last, three)} ({weights}).")
    return texts


def metrics_finding(related: pd.DataFrame, simulated: bool) -> str:
    """Say which metric goes most closely with the votes."""
    related = related.dropna(subset=["spearman"])
    if related.empty:
        return ""
    most = related.loc[related["spearman"].abs().idxmax()]
    raters = "the simulated raters' votes" if simulated else "the votes"
    weak = ", which is weak" if abs(most["spearman"]) < WEAK else ""
    return (
        f"{most['metric']} goes most closely with {raters}: Spearman {number(most['spearman'])} on {most['question']} "
        f"(n = {most['n']}){weak}."
    )
