"""The report of a training: one well-formed page, with its answers, and rows that only some votes have."""

import base64
import re
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fixtures_pasta_report import made_outcome, made_ratings, rows_of
from html_pages import HTMLPage
from quantus_concepts.pasta.applications.mixture import best_explainer
from quantus_concepts.studies._kit.findings import NO_NUMBER
from quantus_concepts.studies._kit.page import render, site_address
from quantus_concepts.studies.pasta.applications import (
    application_answers,
    choice_finding,
    correlation_table,
    wins_finding,
)
from quantus_concepts.studies.pasta.findings import answers, findings, summarise_splits
from quantus_concepts.studies.pasta.options import CEILING, SCORER, SHUFFLED
from quantus_concepts.studies.pasta.page import ceiling_table, explainer_points, split_table, training_page, votes_table

QUESTIONS = ("Q1", "Q5")


@cache
def page_of(simulated=False, n_raters=5, encoder="siglip", title="Training", questions=QUESTIONS, **options):
    ratings = made_ratings(12, 9, n_raters, simulated=simulated)
    frame, results = made_outcome(ratings, questions, 2, **{"regressors": True, **options})
    facts = {"ratings": ratings, "splits": results}
    run = SimpleNamespace(facts=facts, frames={}, options=SimpleNamespace(questions=questions))
    return training_page(title, frame, run, "mode", encoder)


def html_of(page, notes=()):
    png = b"\x89PNG\r\n\x1a\n"
    pictures = {chart.name: png for chart in page.charts}
    return render(
        page, settings={"data": "<script>alert(1)</script>"}, notes=notes, files=["results.csv"], pictures=pictures
    )


def cells(table):
    return {row.label: [cell.text for cell in row.cells] for _, rows in table.groups for row in rows}


def test_report_is_self_contained_and_well_formed():
    html = html_of(page_of(title="a <b>bold</b> title"), ["x < y & z"])
    parser = HTMLPage(html)
    assert not {"script", "link"} & set(parser.tags)
    links = [source for source in parser.sources if not source.startswith("data:image/png;base64,")]
    pages_of_metrics = [f"{site_address()}/metrics/{name}.html" for name in ("pasta_score", "faithfulness")]
    assert links == [*pages_of_metrics, "./results.csv"]
    images = re.findall(r"data:image/png;base64,([^\"]+)", html)
    assert len(images) == 6
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)
    assert "a &lt;b&gt;bold&lt;/b&gt; title" in html
    assert "x &lt; y &amp; z" in html
    assert "; seed 0, 1" in html
    assert html.index('class="verdict"') < html.index('id="read"') < html.index('id="settings"')


def test_peoples_figures_are_followed_by_the_papers():
    html = html_of(page_of())
    for name in ("paper, siglip", "paper, human", "paper, SVM", "0.501", "n: test explanations"):
        assert name in html
    assert "simulated" not in html.lower().split("</style>")[1]
    assert "For orientation" not in html
    # Weights that may be others, and BLIP, of which the paper's weights are not known.
    for encoder in ("siglip (weights.safetensors)", "blip"):
        page = page_of(encoder=encoder, control=False, regressors=False)
        assert {name for name in cells(page.main[0]) if name.startswith("paper")} == {"paper, human"}


def test_simulated_raters_are_named_everywhere():
    page = page_of(simulated=True, encoder=None)
    html = html_of(page)
    assert "<h1>Training (simulated raters)</h1>" in html
    assert "<title>Training (simulated raters)</title>" in html
    assert "No person rated anything" in html[html.index('class="banner"') :][:300]
    captions = re.findall(r"<(caption|figcaption)>(.*?)</\1>", html, flags=re.DOTALL)
    texts = [re.sub(r"<[^>]+>", "", text).strip() for _, text in captions]
    # The paper's own figures, which people gave.
    unmarked = [text[:26] for text in texts if not text.startswith("simulated raters")]
    assert unmarked == ["For orientation: the paper"]
    assert len(texts) == 6 + 6 + 2
    assert page.main[0].unverified == "simulated raters"
    assert "paper, siglip" not in html
    assert "not comparable with the numbers of this run" in html
    assert page_of(simulated=True, title="Votes of simulated raters").title == "Votes of simulated raters"


def test_a_single_annotator_has_neither_ceiling_nor_human_row():
    html = html_of(page_of(n_raters=1, control=False, regressors=False))
    assert "Each explanation has a single annotator: there is none to compare with." in html
    assert "<dt>ceiling</dt>" not in html
    assert "paper, human" not in html
    assert "Is the network needed?" not in html


def test_share_of_the_ceiling_with_intervals():
    parts = [rows_of(SCORER, 0.4, 0.5, 0.6), rows_of(CEILING, 0.8, 0.8, 0.8), rows_of(SHUFFLED, np.nan)]
    table = ceiling_table(summarise_splits(pd.concat(parts)), False)
    assert cells(table) == {SCORER: ["0.50"], CEILING: ["0.80"], "share of the ceiling": ["62 %"], SHUFFLED: ["–"]}
    # 0.625 ± 4.302653 * 0.125 / sqrt(3)
    assert table.groups[0][1][2].cells[0].small == "31 % to 94 %"
    assert ceiling_table(summarise_splits(rows_of(SCORER, 0.4)), False).frame.empty


def test_sizes_of_the_splits_and_missing_votes_are_counted():
    ratings = made_ratings(8, 8)
    _, results = made_outcome(ratings, ("Q1",), 2)
    split = results[1].split
    (_, rows) = split_table(results).groups[0]
    sizes = [len(split.train), len(split.validation), len(split.test), split.dropped]
    assert [cell.text for cell in rows[1].cells] == [str(size) for size in sizes]
    assert (rows[1].cells[0].small, rows[1].cells[3].small) == ("4 images, 4 explainers", "of 64")
    ratings = made_ratings(3, 3, 2)
    ratings.votes[0, :, 0] = ratings.votes[1, 0, 0] = np.nan
    table = votes_table(ratings, ["Q1", "Q2"])
    assert cells(table) == {
        "votes": ["15", "18"],
        "missing": ["3", "0"],
        "explanations without a vote": ["1", "0"],
        "with a single vote": ["1", "0"],
    }
    assert "9 explanations of 3 images by 3 explainers; up to 2 raters" in table.note


def test_explainers_are_means_over_the_splits_that_never_saw_them():
    ratings = made_ratings(8, 8)
    _, results = made_outcome(ratings, ("Q1",), 2)
    points = explainer_points(results, ratings)
    name = points["explainer"].iloc[0]
    triples = [(r.targets[:, 0], r.scores[:, 0], ratings.explainer_ids[r.split.test] == name) for r in results]
    votes, scores = (np.concatenate([pair[side][pair[2]] for pair in triples]) for side in (0, 1))
    assert points[["vote", "score"]].iloc[0].tolist() == pytest.approx([np.nanmean(votes), scores.mean()])


def test_correlations_are_followed_by_the_papers():
    rows = [("MaxSensitivity (uniform)", question, -0.02, 0.2, -0.05, 1e-5, 340) for question in QUESTIONS]
    columns = ["metric", "question", "pearson", "pearson_p", "spearman", "spearman_p", "n"]
    table = correlation_table(pd.DataFrame(rows, columns=columns))
    ((group, table_rows),) = table.groups
    assert group == "MaxSensitivity (uniform), n = 340"
    assert [row.label for row in table_rows] == ["Spearman", "paper, Spearman", "Pearson", "paper, Pearson"]
    assert [(row.cells[0].text, row.cells[0].small) for row in table_rows[:2]] == [
        ("−0.05", "p < 0.001"),
        ("−0.33", "p < 0.001"),
    ]
    assert [cell.style for cell in table_rows[1].cells] == ["paper", "paper"]


def test_answers_are_short_and_findings_have_the_intervals():
    ratings = made_ratings(12, 9, 5)
    frame, results = made_outcome(ratings, QUESTIONS, 5)
    means = summarise_splits(frame)
    topics = [answer.topic for answer in answers(means)]
    assert topics == [
        "Predicts unseen votes",
        "Near what raters' noise allows",
        "Better than one rater",
    ]
    assert answers(means)[0].text == "on 0 of 2 questions (SCC 0.62 to 0.69, shuffled votes −0.10 to 0.32)"
    texts: dict[str, list[str]] = {}
    for finding in findings(means, results, ratings):
        texts.setdefault(finding.topic, []).append(finding.text)
    assert [text[:3] for text in texts["Unseen explanations"]] == ["Q1:", "Q5:"]
    assert "over 5 splits: not distinguishable from shuffled votes (" in texts["Unseen explanations"][0]
    assert texts["Ceiling"][0].startswith("Above 60 % of the ceiling: ")
    assert "not distinguishable from it: Q1 and Q5" in texts["Control"][0]
    assert texts["Q5"][0].startswith(
        "Low is good: the best explanation has the lowest answer. Q5 and Q1 correlate at −0"
    )


def test_what_few_splits_cannot_show_is_not_compared():
    rows = pd.concat([rows_of(SCORER, 0.64), rows_of(CEILING, 0.8), rows_of(SHUFFLED, np.nan)])
    texts = [str(finding) for finding in findings(summarise_splits(rows), [], made_ratings(3, 3))]
    assert texts[0] == "Unseen explanations: Q1: Spearman's correlation is 0.64, over 1 split."
    assert not [text for text in texts if text.startswith("One rater: Q")]
    assert [text.partition(": ")[2] for text in texts if text.startswith(("Ceiling", "Control"))] == [NO_NUMBER] * 2


def test_uses_of_the_score_in_words():
    mixture = best_explainer({"a": np.array([3.0, 2.0, 1.0]), "b": np.array([1.0, 1.0, 1.0])}, "Q1")
    assert wins_finding(mixture) == (
        "a has the best score (Q1) most often, for 2 of 3 images; 1 of 2 explainers never have it alone. 1 images have "
        "several explainers with the best score."
    )
    rows = {"mean": [0.4, 0.2, 0.3], "low": [0.35, 0.15, 0.25], "high": [0.45, 0.25, 0.35], "n": 9}
    differences = {
        "difference": [np.nan, 0.2, 0.1],
        "difference_low": [np.nan, 0.1, -0.1],
        "difference_high": [np.nan, 0.3, 0.3],
    }
    faithful = pd.DataFrame({"name": ["mixture", "average of explainers", "a"], **rows, **differences})
    assert choice_finding(faithful).endswith(
        "The choice minus the average of the explainers is 0.200 (95 % interval 0.100 to 0.300): above no difference "
        "(0.000). The choice minus a (the most faithful alone) is 0.100 (95 % interval −0.100 to 0.300): not "
        "distinguishable from no difference (0.000)."
    )
    (answer,) = application_answers({"mixture": mixture}, {"faithfulness": faithful})
    assert str(answer) == (
        "Chooses more faithful explanations: yes (faithfulness correlation 0.400, average of the explainers 0.200)"
    )
