"""The study `pasta metrics`: its page, on which explainers and metrics stand beside votes and what knows nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.studies.findings import number, said
from quantus_concepts.studies.page import Page, Section
from quantus_concepts.studies.pasta.classifier import CONTROLS
from quantus_concepts.studies.pasta.metrics import EXPLAINER, MASK_ERROR, collect, inside
from quantus_concepts.studies.pasta.names import SCORER
from quantus_concepts.studies.pasta.presenting import ordered, paper_table, span, study_page, written
from quantus_concepts.studies.results import names, pick
from quantus_concepts.studies.run import Run, Study
from quantus_concepts.studies.tables import Table

#: Metrics of the paper's Table 10.
RAW_METRICS = ("Faithfulness (ROAD)", "MaxSensitivity (Gaussian)", "Sparseness")
#: Size and data sets of the published ratings: there the paper's means over all explainers stand beside ours.
RELEASE = ({"coco", "pascalpart", "monumai", "catsdogscars"}, 20_000)
SHARE = "share of the variance between explainers"
BESIDE_VOTES = (
    "The rank correlation of metrics with the votes on the same explanations, as the paper's Tables 7 to 9. Several "
    "explanations are of one image, so p-values, which take them for independent, are not given."
)
RAW = "As the paper's Table 10: mean and standard deviation over explanations."
VOTES = (
    "As the paper's Table 11: the mean of the joined votes. The published ratings name explainers by number, of which "
    "the paper gives no list; its rows are in results.csv."
)
HUMAN = (
    "As the paper's Table 2, in which people's saliency stands beside the score of three methods: here the bird's "
    "pixels stand for what people would mark. The paper calls its two rankings consistent; by the numbers it prints "
    "RISE is first of three in one and second in the other."
)
KEY = (
    "Small numbers are 95 % intervals over images drawn anew with all their explanations. ≈: inside the 95 % range "
    "with the votes dealt out anew among all explanations. Nothing is corrected for the number of comparisons."
)


def page(frame: pd.DataFrame, run: Run[Any]) -> Page:
    """Declare the page."""
    ratings: RatedExplanations = run.facts["ratings"]
    ours = pick(frame, model=None)
    related, means, shares, human = (pick(ours, table=table) for table in ("8", "10, 11", "11", "2"))
    sections = [
        Section("Metrics and votes", BESIDE_VOTES, [correlation_table(related)]),
        Section("Metrics by explainer", RAW, [raw_table(means)]),
        Section("Votes by explainer", VOTES, [vote_table(means, shares, ratings)]),
    ]
    findings = [*said_of_metrics(related), said_of_shares(shares)]
    if len(human):
        sections.append(Section("Score and marked pixels", HUMAN, [human_table(means)]))
        findings.append(said_of_human(human.iloc[0], len(names(means, EXPLAINER)) - 1))
    return study_page("PASTA-score: votes beside other measures", said(*findings), sections, ratings.simulated)


STUDY = Study("pasta-metrics", collect, page)


def correlation_table(related: pd.DataFrame) -> Table:
    """Return metrics (rows) against questions (columns)."""
    shown = pick(related, measure="SCC")
    shown = shown.assign(mark=["≈" if inside(row) else "" for row in shown.to_dict("records")])
    note = "Spearman's correlation of metric and votes. Pearson's is in results.csv."
    return Table("Metrics and votes", note, written(shown, small=["interval"]), ["metric"], ["question"], key=KEY)


def raw_table(means: pd.DataFrame) -> Table:
    """Return the mean of each metric (column) by explainer (row)."""
    return Table(
        "Metrics by explainer",
        "Mean ± standard deviation over explanations.",
        ordered(written(means, small=["deviation"]), explainer=names(means, EXPLAINER), measure=RAW_METRICS),
        [EXPLAINER],
        ["measure"],
        controls=CONTROLS,
        key="–: not defined, as for a method whose maps do not depend on the image.",
    )


def vote_table(means: pd.DataFrame, shares: pd.DataFrame, ratings: RatedExplanations) -> Table:
    """Return the mean votes (columns questions) by explainer (row), and how much of their variance explainers make."""
    votes = written(means[means["measure"].isin(list(QUESTIONS))].assign(question=means["measure"]), number)
    parts = [votes]
    if set(ratings.datasets.tolist()) == RELEASE[0] and len(ratings) >= RELEASE[1] and not ratings.simulated:
        printed = pick(paper_table("text"), measure="vote", question=names(votes, "question"))
        parts.append(written(printed, number).assign(explainer="paper, all"))
    dealt = [f"dealt anew: to {number(high)}" for high in shares["control high"]]
    parts.append(written(shares, number).assign(explainer=SHARE, small=dealt))
    return Table(
        "Votes by explainer",
        "Mean of the joined votes, 1 to 5.",
        pd.concat(parts),
        [EXPLAINER],
        ["question"],
        labels={name: f"{name} {'↓' if question.low_is_good else '↑'}" for name, question in QUESTIONS.items()},
        controls=CONTROLS,
        key="Small numbers are 95 % intervals over images; of the last row, the end of the 95 % range with the votes "
        "dealt out anew among all explanations.",
    )


def human_table(means: pd.DataFrame) -> Table:
    """Return by method how far maps are from the marked pixels, and what the score and the votes say."""
    heads = {MASK_ERROR: "MAE ↓", SCORER: "PASTA-score ↑", "Q1": "votes, Q1 ↑"}
    methods = [name for name in names(means, EXPLAINER) if name != "all"]
    return Table(
        "Score and marked pixels",
        "Mean absolute difference of the map, in [0, 1], from the bird's mask; mean predicted and given rating.",
        ordered(written(means, number), explainer=methods, measure=list(heads)),
        [EXPLAINER],
        ["measure"],
        labels=heads,
        controls=CONTROLS,
        key="Small numbers are 95 % intervals over images.",
    )


def said_of_metrics(related: pd.DataFrame) -> list[str]:
    """Say for each metric with how many questions it goes more than chance would."""
    findings = []
    for metric, rows in pick(related, measure="SCC").groupby("metric", sort=False):
        known = rows[rows["value"].notna()]
        if known.empty:
            findings.append(f"{metric}: defined for too few explanations.")
            continue
        outside = sum(not inside(row) for row in known.to_dict("records"))
        most = known.loc[known["value"].abs().idxmax()]
        findings.append(
            f"{metric}: beyond chance with {outside} of {len(known)} questions, most with {most['question']} "
            f"(SCC {number(most['value'])})."
        )
    return findings


def said_of_shares(shares: pd.DataFrame) -> str:
    """Say how much explainers make of the votes."""
    parts = [f"{row['question']} {row['value']:.0%} (to {row['control high']:.0%})" for _, row in shares.iterrows()]
    return f"Share of the variance of votes that lies between explainers (dealt anew): {', '.join(parts)}."


def said_of_human(found: Mapping[str, Any], n: int) -> str:
    """Say whether the score orders methods as the marked pixels do."""
    ours = f"SCC {number(found['value'])} over {n} methods, {span(found['low'], found['high'])}"
    chance = f"{span(found['control low'], found['control high'])} with scores dealt out anew"
    if math.isnan(found["value"]) or inside(found):
        return f"Marked pixels and score: no order of methods in common can be told from chance ({ours}; {chance})."
    way = "less" if found["value"] < 0 else "more"
    return f"Marked pixels and score: methods of higher score differ {way} from the marked pixels ({ours}; {chance})."
