"""The page of `pasta metrics`: explainers and metrics beside votes, each with what knows nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
from scipy import stats

from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.studies.pasta.paper import paper_table
from quantus_concepts.studies.pasta.sensitivity import (
    EXPLAINER,
    across_explainers,
    explainer_means,
    share_between,
    spearman,
    with_control,
)
from quantus_concepts.studies.pasta.sizes import CONTROLS
from quantus_concepts.studies.pasta.study import Section, Study, cell, number, one
from quantus_concepts.studies.pasta.tables import ARROWS, SIMULATED
from quantus_concepts.studies.report_tables import Cell, ReportTable, Row

SCORE, MASK_ERROR = "PASTA-score", "MAE"
BESIDE_VOTES, RAW, VOTES = "Metrics and votes", "Metrics by explainer", "Votes by explainer"
HUMAN = "Score and marked pixels"
#: Metrics of the paper's Table 10.
RAW_METRICS = ("Faithfulness (ROAD)", "MaxSensitivity (Gaussian)", "Sparseness")
ABOUT = {
    BESIDE_VOTES: "The rank correlation of metrics with the votes on the same explanations, as the paper's Tables 7 to "
    "9. Several explanations are of one image, so p-values, which take them for independent, are not given.",
    RAW: "As the paper's Table 10: mean and standard deviation over explanations.",
    VOTES: "As the paper's Table 11: the mean of the joined votes. The published ratings name explainers by number, of "
    "which the paper gives no list; its rows are in results.csv.",
    HUMAN: "As the paper's Table 2, in which people's saliency stands beside the score of three methods: here the "
    "bird's pixels stand for what people would mark. The paper calls its two rankings consistent; by the numbers it "
    "prints RISE is first of three in one and second in the other.",
}
KEY = (
    "Small numbers are 95 % intervals over images drawn anew with all their explanations. ≈: inside the 95 % range "
    "with the votes dealt out anew among all explanations. Nothing is corrected for the number of comparisons."
)
#: Size and data sets of the published ratings: there the paper's means over all explainers stand beside ours.
RELEASE = ({"coco", "pascalpart", "monumai", "catsdogscars"}, 20_000)
PAPER_MEANS = {"Q1": 2.83, "Q2": 2.82, "Q3": 3.46, "Q4": 3.44}


def metrics_study(
    frame: pd.DataFrame,
    ratings: RatedExplanations,
    metrics: Sequence[str],
    settings: Mapping[str, Any],
    notes: list[str],
    seed: int = 0,
) -> Study:
    """Return what the page, the files and the terminal show of the explanations in `frame`."""
    questions = [name for name in ratings.questions if frame[name].notna().any()]
    means = explainer_means(frame, [*questions, *metrics, *(m for m in (SCORE, MASK_ERROR) if m in frame)])
    related = correlations(frame, metrics, questions, seed)
    shares = pd.DataFrame(
        [{"question": name} | with_control(frame, partial(share_between, of=name), name, seed) for name in questions]
    )
    mark = SIMULATED if ratings.simulated else ""
    made = [correlation_table(related, metrics, questions, mark), vote_table(means, shares, ratings, questions, mark)]
    said = [said_of_shares(shares)]
    results = [related.assign(table=8), means.assign(table="10, 11"), shares.assign(table=11, measure="share between")]
    made.insert(1, raw_table(means, [name for name in RAW_METRICS if name in metrics], mark))
    if MASK_ERROR in frame:
        human = with_control(frame, partial(across_explainers, first=MASK_ERROR, second=SCORE), SCORE, seed)
        made.append(human_table(means, mark))
        said.append(said_of_human(human, frame[EXPLAINER].nunique()))
        results.append(pd.DataFrame([human | {"table": 2, "measure": "SCC of means"}]))
    printed = [paper_table(table).rename(columns={"row": EXPLAINER}) for table in (2, 10, 11)]
    return Study(
        title="PASTA-score: votes beside other measures" + (f" ({SIMULATED})" if ratings.simulated else ""),
        simulated=ratings.simulated,
        verdicts=[*said_of_metrics(related), *said],
        sections=[Section(table.name, ABOUT[table.name], (table.name,)) for table in made],
        tables={table.name: table for table in made},
        frames={"results": pd.concat([*results, *printed], ignore_index=True), "explanations": frame},
        settings=settings,
        notes=notes,
    )


def correlations(frame: pd.DataFrame, metrics: Sequence[str], questions: Sequence[str], seed: int = 0) -> pd.DataFrame:
    """Return the SCC of each metric with the votes on each question, with interval and control, and the PCC."""
    rows = []
    for metric in metrics:
        for question in questions:
            known = frame.dropna(subset=[metric, question])
            varies = len(known) > 2 and known[metric].nunique() > 1 and known[question].nunique() > 1
            pearson = float(stats.pearsonr(known[metric], known[question]).statistic) if varies else math.nan

            def statistic(some: pd.DataFrame, metric: str = metric, question: str = question) -> float:
                return spearman(some[metric].to_numpy(float), some[question].to_numpy(float))

            found = with_control(known, statistic, question, seed) if varies else dict.fromkeys(ENDS, math.nan)
            rows.append({"metric": metric, "question": question, "measure": "SCC", "n": len(known)} | found)
            rows.append({"metric": metric, "question": question, "measure": "PCC", "n": len(known), "value": pearson})
    return pd.DataFrame(rows)


ENDS = ("value", "low", "high", "control low", "control high")


def inside(row: Mapping[str, Any]) -> bool:
    """Return whether a value lies in the range of its control."""
    return bool(row["control low"] <= row["value"] <= row["control high"])


def correlation_table(
    related: pd.DataFrame, metrics: Sequence[str], questions: Sequence[str], mark: str
) -> ReportTable:
    """Return metrics (rows) against questions (columns)."""
    rows = []
    for metric in metrics:
        cells = []
        for question in questions:
            row = one(related, metric=metric, question=question, measure="SCC") or dict.fromkeys(ENDS, math.nan)
            shown = cell(row)
            cells.append(Cell(shown.text, shown.small, "≈" if inside(row) else ""))
        rows.append(Row(metric, tuple(cells)))
    return ReportTable(
        BESIDE_VOTES,
        "Spearman's correlation of metric and votes. Pearson's is in results.csv.",
        tuple((question, "") for question in questions),
        tuple(rows),
        KEY,
        mark,
    )


def raw_table(means: pd.DataFrame, metrics: Sequence[str], mark: str) -> ReportTable:
    """Return the mean of each metric (column) by explainer (row)."""

    def shown(explainer: str, metric: str) -> Cell:
        row = one(means, **{EXPLAINER: explainer, "measure": metric})
        return cell(row and {name: row[name] for name in ("value", "deviation")})

    return ReportTable(
        RAW,
        "Mean ± standard deviation over explanations.",
        tuple((metric, "") for metric in metrics),
        tuple(
            Row(name, tuple(shown(name, metric) for metric in metrics), name in CONTROLS)
            for name in means[EXPLAINER].unique()
        ),
        "–: not defined, as for a method whose maps do not depend on the image.",
        mark,
    )


def vote_table(
    means: pd.DataFrame, shares: pd.DataFrame, ratings: RatedExplanations, questions: Sequence[str], mark: str
) -> ReportTable:
    """Return the mean votes (columns questions) by explainer (row), and how much of their variance explainers make."""
    rows = [
        Row(
            name,
            tuple(cell(one(means, **{EXPLAINER: name, "measure": question}), 2) for question in questions),
            name in CONTROLS,
        )
        for name in means[EXPLAINER].unique()
    ]
    if set(ratings.datasets.tolist()) == RELEASE[0] and len(ratings) >= RELEASE[1] and not ratings.simulated:
        printed = (PAPER_MEANS.get(question) for question in questions)
        rows.append(Row("paper, all", tuple(Cell("" if each is None else f"{each:.2f}") for each in printed)))
    cells = []
    for question in questions:
        row = one(shares, question=question) or {}
        cells.append(Cell(number(row["value"], 2), f"dealt anew: to {number(row['control high'], 2)}"))
    rows.append(Row("share of the variance between explainers", tuple(cells)))
    low_is_good = {question: QUESTIONS[question].low_is_good for question in questions}
    return ReportTable(
        VOTES,
        "Mean of the joined votes, 1 to 5.",
        tuple((f"{question} {ARROWS[low_is_good[question]]}", "") for question in questions),
        tuple(rows),
        "Small numbers are 95 % intervals over images; of the last row, the end of the 95 % range with the votes dealt "
        "out anew among all explanations.",
        mark,
    )


def human_table(means: pd.DataFrame, mark: str) -> ReportTable:
    """Return by method how far maps are from the marked pixels, and what the score and the votes say."""
    columns = ((MASK_ERROR, "MAE ↓"), (SCORE, "PASTA-score ↑"), ("Q1", "votes, Q1 ↑"))
    names = [name for name in means[EXPLAINER].unique() if name != "all"]
    return ReportTable(
        HUMAN,
        "Mean absolute difference of the map, in [0, 1], from the bird's mask; mean predicted and given rating.",
        tuple((head, "") for _, head in columns),
        tuple(
            Row(
                name,
                tuple(cell(one(means, **{EXPLAINER: name, "measure": measure}), 2) for measure, _ in columns),
                name in CONTROLS,
            )
            for name in names
        ),
        "Small numbers are 95 % intervals over images.",
        mark,
    )


def said_of_metrics(related: pd.DataFrame) -> list[str]:
    """Say for each metric with how many questions it goes more than chance would."""
    said = []
    for metric, rows in related[related["measure"] == "SCC"].groupby("metric", sort=False):
        known = rows[rows["value"].notna()]
        if known.empty:
            said.append(f"{metric}: defined for too few explanations.")
            continue
        outside = known[[not inside(row) for _, row in known.iterrows()]]
        most = known.loc[known["value"].abs().idxmax()]
        said.append(
            f"{metric}: beyond chance with {len(outside)} of {len(known)} questions, most with {most['question']} "
            f"(SCC {number(most['value'], 2)})."
        )
    return said


def said_of_shares(shares: pd.DataFrame) -> str:
    """Say how much explainers make of the votes."""
    parts = [f"{row['question']} {row['value']:.0%} (to {row['control high']:.0%})" for _, row in shares.iterrows()]
    return f"Share of the variance of votes that lies between explainers (dealt anew): {', '.join(parts)}."


def said_of_human(found: Mapping[str, float], n: int) -> str:
    """Say whether the score orders methods as the marked pixels do."""
    span = f"SCC {number(found['value'], 2)} over {n} methods, {number(found['low'], 2)} to {number(found['high'], 2)}"
    chance = f"{number(found['control low'], 2)} to {number(found['control high'], 2)} with scores dealt out anew"
    if math.isnan(found["value"]) or inside(found):
        return f"Marked pixels and score: no order of methods in common can be told from chance ({span}; {chance})."
    way = "less" if found["value"] < 0 else "more"
    return f"Marked pixels and score: methods of higher score differ {way} from the marked pixels ({span}; {chance})."
