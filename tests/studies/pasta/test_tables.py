import io
import math

import pytest
from rich.console import Console

from fixtures_pasta_report import made_outcome, made_ratings
from quantus_concepts.studies.pasta.page_tables import (
    agreement_table,
    ceiling_table,
    kind_table,
    orientation_table,
    regressor_table,
    report_tables,
    split_table,
    votes_table,
)
from quantus_concepts.studies.pasta.paper import MIXTURE_FAITHFULNESS, TABLE_1, paper_table
from quantus_concepts.studies.pasta.results import CEILING, HUMAN, SCORER, SHUFFLED, Record, Summary
from quantus_concepts.studies.pasta.tables import main_table, published, written


def of(model, *values, question="Q1", measure="SCC", **fields):
    return [Record(model, question, measure, value, 50 + seed, seed, **fields) for seed, value in enumerate(values)]


def printed(table, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()


def texts(table):
    return {row.label: [cell.text for cell in row.cells] for row in table.rows}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Summary(0.50149, 0.0521, 5), "0.501 ± 0.052"),
        (Summary(-0.04, math.nan, 1), "−0.040"),
        (Summary(-0.0001, math.nan, 1), "0.000"),
        (Summary(math.nan, math.nan, 0), "–"),
        (None, ""),
    ],
)
def test_numbers_are_written_as_the_paper_does(found, text):
    assert written(found) == text


def test_the_papers_figures():
    # Table 1 and Table 17, as printed.
    assert TABLE_1["MSE"]["siglip"]["Q1"] == (0.989, 0.113)
    assert TABLE_1["QWK"]["human"]["Q5"] == (0.848, 0.029)
    assert TABLE_1["SCC"]["eva02"]["Q6"] == (0.220, 0.057)
    assert TABLE_1["MSE"]["blip"]["Q6"] == (10.710, 4.943)
    assert all(len(row) == 6 for measure in TABLE_1.values() for row in measure.values())
    scorers = paper_table(17).set_index(["measure", "row"])[["value", "deviation"]]
    assert tuple(scorers.loc["MSE", "SVM"]) == (0.965, 0.077)
    assert tuple(scorers.loc["SCC", "PASTA-score"]) == TABLE_1["SCC"]["siglip"]["Q1"]
    assert MIXTURE_FAITHFULNESS == {"chosen": 0.0627, "average": 0.0579}
    assert published("SCC rounded", "Q1", "siglip") is None


def test_terminal_table_has_the_papers_row_of_the_encoder_below_ours():
    records = of(SCORER, 0.4, 0.6) + of(HUMAN, 0.8, 0.82) + of(SHUFFLED, -0.1, 0.1)
    lines = printed(main_table(records, "clip", False)).splitlines()
    place = next(i for i, line in enumerate(lines) if SCORER in line)
    assert lines[place].split()[:2] == ["SCC", "↑"]
    assert "0.500 ± 0.141" in lines[place]
    assert "paper, clip" in lines[place + 1]
    assert "0.484 ± 0.064" in lines[place + 1]
    human = next(i for i, line in enumerate(lines) if HUMAN in line)
    assert "0.844 ± 0.017" in lines[human + 1]
    assert "Mean over 2 splits." in printed(main_table(records, "clip", False))


# The embedded one, weights that may be others, and BLIP, of which the paper's weights are not known.
@pytest.mark.parametrize("encoder", [None, "my encoder", "siglip (weights.safetensors)", "blip", "ViT-B-32/openai"])
def test_an_encoder_the_paper_has_not_stands_beside_none(encoder):
    text = printed(main_table(of(SCORER, 0.4) + of(HUMAN, 0.8), encoder, False))
    assert text.count("paper") == 1
    assert "paper, human" in text


def test_simulated_raters_stand_in_the_title_and_beside_no_paper():
    text = printed(main_table(of(SCORER, 0.4), "siglip", True))
    assert "Simulated raters:" in text
    assert "paper" not in text


def test_a_narrow_terminal_has_means_alone_and_says_so():
    records = [r for q in ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6") for r in of(SCORER, 0.4, 0.6, question=q)]
    narrow, wide = (printed(main_table(records, None, True, width), width) for width in (80, 120))
    assert "±" not in narrow
    assert "deviation: report.html" in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert wide.count("0.500 ± 0.141") == 6


def test_a_measure_without_a_number_of_a_model_has_no_row_of_it():
    records = of(SCORER, 0.4) + of(SCORER, 1.1, measure="MSE") + of(CEILING, 0.8)
    assert [row.label for row in agreement_table(records, None, True).rows] == [SCORER, SCORER, CEILING]
    assert printed(main_table(records, None, True)).count("ceiling ") == 1 + 1  # its row, and the caption


def test_agreement_in_the_papers_form():
    records = (
        of(SCORER, 0.4, 0.6) + of("ridge", 0.3, 0.3) + of(SHUFFLED, 0.0, 0.0) + of(SCORER, 0.4, measure="SCC rounded")
    )
    table = agreement_table(records, "siglip", False)
    assert [(row.label, row.group[:3]) for row in table.rows] == [
        (SCORER, "SCC"),
        ("paper, siglip", ""),
        (SHUFFLED, ""),
        (SCORER, "SCC"),
    ]
    ours, theirs, shuffled, _ = table.rows
    assert (ours.cells[0].text, ours.cells[0].small) == ("0.500", "± 0.141")
    assert (theirs.cells[0].text, theirs.cells[0].small, theirs.cells[0].style) == ("0.501", "± 0.052", "paper")
    assert shuffled.control
    assert table.columns == (("Q1", "n = 50–51"),)
    assert "paper: Kazmierczak" in table.key


def test_share_of_the_ceiling_with_intervals():
    records = of(SCORER, 0.4, 0.5, 0.6) + of(CEILING, 0.8, 0.8, 0.8) + of(SHUFFLED, math.nan)
    found = texts(ceiling_table(records, False))
    assert found == {SCORER: ["0.50"], CEILING: ["0.80"], "share of the ceiling": ["62 %"], SHUFFLED: ["–"]}
    share = ceiling_table(records, False).rows[2].cells[0]
    # 0.625 ± 4.302653 * 0.125 / sqrt(3)
    assert share.small == "31 % to 94 %"
    assert ceiling_table(of(SCORER, 0.4), False).rows == ()


def test_kinds_apart():
    records = of(SCORER, 0.4, modality="map") + of(SCORER, 0.2, modality="concepts") + of(SCORER, 0.9)
    table = kind_table(records, True)
    assert [(row.group, row.cells[0].text) for row in table.rows] == [
        ("Maps alone, n = 50", "0.40"),
        ("Concepts alone, n = 50", "0.20"),
    ]
    assert kind_table(of(SCORER, 0.9), True).rows == ()


def test_regressors_as_the_papers_table_17():
    records = [r for model in (SCORER, "ridge", "SVM") for q in ("Q1", "Q2") for r in of(model, 0.4, question=q)]
    rows = regressor_table(records, "siglip", False).rows
    assert [row.label for row in rows][-6:] == [
        SCORER,
        "paper, PASTA-score",
        "SVM",
        "paper, SVM",
        "ridge",
        "paper, ridge",
    ]
    assert [cell.text for cell in rows[-1].cells] == ["0.444", ""]
    assert not any("paper" in row.label for row in regressor_table(records, "siglip", True).rows)
    assert not any("paper" in row.label for row in regressor_table(records, "clip", False).rows)
    assert regressor_table(of(SCORER, 0.4), "siglip", False).rows == ()


def test_sizes_of_the_splits():
    ratings = made_ratings(8, 8)
    outcome = made_outcome(ratings, ("Q1",), 2)
    table = split_table(outcome, False)
    split = outcome.seeds[1].split
    row = table.rows[1]
    assert row.label == "seed 1"
    sizes = [len(split.train), len(split.validation), len(split.test), split.dropped]
    assert [cell.text for cell in row.cells] == [str(size) for size in sizes]
    assert row.cells[0].small == "4 images, 4 explainers"
    assert row.cells[3].small == "of 64"


def test_missing_votes_are_counted():
    ratings = made_ratings(3, 3, 2)
    votes = ratings.votes.copy()
    votes[0, :, 0] = float("nan")
    votes[1, 0, 0] = float("nan")
    object.__setattr__(ratings, "votes", votes)
    table = votes_table(ratings, ["Q1", "Q2"])
    assert texts(table) == {
        "votes": ["15", "18"],
        "missing": ["3", "0"],
        "explanations without a vote": ["1", "0"],
        "with a single vote": ["1", "0"],
    }
    assert "9 explanations of 3 images by 3 explainers; up to 2 raters" in table.caption
    assert "a single rater for each" in votes_table(made_ratings(3, 3, 1), ["Q1"]).caption


def test_every_table_of_simulated_raters_says_so_and_the_papers_stand_apart():
    ratings = made_ratings(8, 8, simulated=True)
    tables = report_tables(made_outcome(ratings, ("Q1", "Q5"), 2, regressors=True), ratings, "siglip", ("Q1", "Q5"))
    apart = tables.pop("For orientation: the paper")
    assert len(tables) == 6
    assert all(table.unverified == "simulated raters" for table in tables.values())
    assert not any(cell.style == "paper" for table in tables.values() for row in table.rows for cell in row.cells)
    assert apart == orientation_table(("Q1", "Q5"), "siglip")
    assert "not comparable" in apart.caption
    assert apart.rows[1].cells[1].text == "0.509"  # the human annotator's squared error on Q5


def test_tables_of_people_have_no_mark_and_a_single_annotator_no_human_row():
    ratings = made_ratings(8, 8, 1)
    tables = report_tables(made_outcome(ratings, ("Q1",), 1, control=False), ratings, "siglip", ("Q1",))
    assert set(tables) == {"Agreement with the votes", "Within one kind", "Splits", "Votes"}
    assert not any(table.unverified for table in tables.values())
    labels = {row.label for row in tables["Agreement with the votes"].rows}
    assert labels == {SCORER, "paper, siglip"}
