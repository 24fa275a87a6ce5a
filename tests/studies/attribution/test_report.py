"""The report of made-up numbers: one well-formed page, verdicts that agree with the tables, the paper's numbers."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pytest

from html_pages import HTMLPage
from quantus_concepts.metrics import Limits
from quantus_concepts.metrics.contrast.premises import premise_rows
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.plots import report_style
from quantus_concepts.studies._kit.report import Report, Table, write_report
from quantus_concepts.studies.attribution.data import CHANGES
from quantus_concepts.studies.attribution.report import GREY, make_attribution_report
from quantus_concepts.studies.attribution.study import ExplainedImage, Results, premise_table, tidy

QUANTITIES = ("accuracy with", "accuracy without", "accuracy only", "remains correct", "median KL same")
QUANTITIES += ("median KL changed", "chance")


def checked(model: str, *numbers: float) -> pd.DataFrame:
    rows = premise_rows(dict(zip(QUANTITIES, numbers, strict=True)), Limits())
    return pd.DataFrame(rows).assign(model=model, n=500)


F_O = checked("f_o", 0.91, 0.92, 0.1, 0.98, 1e-7, 2.2, 0.1)
F_S = checked("f_s", 0.94, 0.935, 0.1, 0.98, 1e-7, 1.0, 0.1)
LEVELS = [0.1, 0.5, 1.0]
#: Two methods tie in everything.
METHODS = {"Grad-CAM": 0.3, "vanilla gradient": 0.29, "a <b> & $c$": 0.1, "random": 0.0}


def numbers(methods: dict[str, float]) -> pd.DataFrame:
    """Return rows of every metric; a method of 0.1 has no IIR."""
    rows = []
    for method, value in methods.items():
        of_method = [
            {"metric": "MCS", "value": value, "control": 0.1},
            {"metric": "MCS baseline", "value": 0.1},
            {"metric": "IDR", "value": 0.5 + value, "chance": 0.5},
            {"metric": "IIR", "value": np.nan if value == 0.1 else value, "unconverged": 2},
            {"metric": "perturbation", "value": 0.01 + 3 * value, "unconverged": 2},
            *({"metric": "relative MCS", "k": k, "value": value * (1 - k)} for k in LEVELS[:-1]),
            {"metric": "correlation", "value": value * 3},
            *({"metric": "robustness", "variant": change, "value": value} for change in CHANGES),
        ]
        rows += [{"method": method} | row for row in of_method]
    rows += [{"method": "TCAV", "metric": metric, "value": 0.9} for metric in ("MCS", "MCS baseline")]
    frame = pd.DataFrame(rows)
    return frame.assign(low=frame["value"] - 0.02, high=frame["value"] + 0.02, n=90, undefined=10)


def image_scores(methods: dict[str, float]) -> pd.DataFrame:
    """Return scores of 30 images, whose means are the numbers and whose differences hardly vary; two methods tie."""
    rng, hard = np.random.default_rng(0), np.random.default_rng(1).normal(0, 0.3, 30)
    rows = []
    for method, value in methods.items():
        noise = rng.normal(0, 0.05, 30)
        for metric, shift in (("MCS", 0.0), ("IDR", 0.5), ("IIR", 0.0)):
            score = value + shift + hard + noise - (hard + noise).mean()
            score = np.full(30, np.nan) if metric == "IIR" and value == 0.1 else score
            rows.append(pd.DataFrame({"method": method, "metric": metric, "image": range(30), "score": score}))
    return pd.concat(rows).assign(reason="")


def results(methods: dict[str, float] = METHODS, checks: tuple[pd.DataFrame, ...] = (F_O, F_S)) -> Results:
    accuracies = [
        ("accuracy with", [0.9] * 3),
        ("accuracy without", [0.4, 0.8, 0.89]),
        ("accuracy drop", [0.5, 0.1, 0.01]),
    ]
    measured = [
        pd.DataFrame({"model": "f_s^k", "metric": name, "k": LEVELS, "value": v, "n": 50}) for name, v in accuracies
    ]
    table = pd.concat(checks, ignore_index=True)
    image = ExplainedImage("x", np.zeros((4, 4, 3)), np.eye(4, dtype=bool), {"Grad-CAM": (np.eye(4), 0.5)})
    layers = pd.DataFrame({"model": ["f_o"], "layer": ["mix"], "value": [0.9], "random concepts": [0.5], "p": [0.01]})
    return Results(
        tidy([numbers(methods)], 0),
        pd.concat([premise_table(table), *measured], ignore_index=True),
        table[table["holds"].notna()],
        {name: [image] for name in ("MCS", "IDR", "IIR", "relative")},
        layers,
        {"images explained": "90 for MCS and IDR, 9 for IIR"},
        image_scores(methods),
    )


def made(*arguments: object, **given: object) -> Report:
    with report_style():
        return make_attribution_report(results(*arguments, **given), data="painted")


@pytest.fixture(scope="module")
def report() -> Report:
    return made()


def part(report: Report, name: str) -> Table:
    (found,) = (part for part in report.parts if isinstance(part, Table) and part.name == name)
    return found


def table(report: Report, name: str) -> pd.DataFrame:
    return pd.read_csv(StringIO(part(report, name).csv))


def test_the_page_is_one_well_formed_file_with_everything(report, tmp_path):
    found = results()
    with RunFolder("test", {}, tmp_path / "out") as folder, report_style():
        write_report(folder, found.frame, report, found.details)
    text = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    parsed = HTMLPage(text)
    assert (parsed.tags.count("figure"), parsed.tags.count("table")) == (8, 7)
    assert "a &lt;b&gt; &amp; $c$" in text
    assert "<b> &" not in text


@pytest.mark.parametrize("methods", [METHODS, METHODS | {"vanilla gradient": 0.1}], ids=["tie", "best"])
def test_verdicts_agree_with_the_tables(methods):
    report = made(methods)
    rows = table(report, "methods")
    own = rows[~rows["method"].isin(GREY) & rows["value"].notna()]
    # No number is in bold where methods tie, and else the one that is highest; only one method has an IIR then.
    assert part(report, "methods").html.count("<b>") == (2 if methods["vanilla gradient"] == 0.1 else 0)
    for metric in ("MCS", "IDR", "IIR"):
        group = own[own["column"].str.startswith(metric)]
        best, count = (verdict for verdict in report.verdicts if verdict.question.startswith(metric))
        first = group.loc[group["value"].idxmax()]
        assert f"Highest: {first['method']}" in best.question
        expected = [first[column] for column in ("value", "low", "random_low")]
        assert [best.value, best.low, best.random_low] == pytest.approx(expected)
        assert best.verdict == first["verdict"]
        compared = part(report, "differences").frame.query("metric == @metric and column == 'verdict'")
        differences = compared[compared["b"] != "random"]
        tied = [*differences.loc[differences["text"] != "below 0", "a"]]
        assert ("tied with" in best.question) == bool(tied)
        assert all(name in best.question for name in tied)
        from_random = compared[compared["b"] == "random"]
        assert count.value == (from_random["text"] == "above 0").sum()
        assert count.value == (group["verdict"] == "above").sum()
        within, below = ((group["verdict"] == word).sum() for word in ("within", "below"))
        assert count.verdict == f"{within} within, {below} below"


def test_whether_the_premises_hold_is_a_verdict(report):
    assert (report.verdicts[0].value, report.verdicts[0].verdict, report.banner) == (8, "verified", "")
    broken = made(checks=(F_O, checked("f_s", 0.94, 0.9, 0.1, 0.98, 1e-7, 1.0, 0.1)))
    assert (broken.verdicts[0].value, broken.verdicts[0].verdict) == (7, "not verified: f_s")
    assert "not verified for f_s" in broken.banner
    assert (part(broken, "premise-checks").frame["text"] == "no").sum() == 1


def test_numbers_stand_beside_the_papers(report):
    premises, commonality = table(report, "premises"), table(report, "commonality")
    with_feature = premises[premises["measure"].str.startswith("accuracy, objects on scenes")]
    assert with_feature["value"].tolist() == [0.91, 0.94, 0.911, 0.94]
    assert with_feature["source"].tolist() == ["ours", "ours", "paper", "paper"]
    paper = commonality[(commonality["source"] == "paper") & (commonality["measure"] == "without it")]
    assert paper["value"].tolist()[:2] == [0.78, 0.77]
    tcav = table(report, "tcav").set_index(["source", "column"])["value"]
    assert tcav["paper", "random concepts"] == -0.3
    assert tcav["ours", "contrast of f_o and f_s"] == 0.9


def test_models_that_learned_nothing_have_a_report_too(tmp_path):
    found = results()
    frame = found.frame.assign(**dict.fromkeys(("value", "low", "high"), np.nan), n=0)
    with RunFolder("test", {}, tmp_path / "out") as folder, report_style():
        write_report(folder, frame, make_attribution_report(found._replace(frame=frame), data="painted"))
    verdicts = pd.read_csv(tmp_path / "out/tables/verdicts.csv")
    assert len(verdicts) == 1  # the premises
