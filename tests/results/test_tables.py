"""Score tables as Markdown, as CSV and as numbers for a tracker of runs."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from metric_inputs import CLASSES, IMAGES, LABELS, MODEL, TRUTH
from quantus_concepts import CEM, headline, score_concepts, summarise, to_latex, to_markdown
from quantus_concepts.metrics import UsualMetrics
from quantus_concepts.metrics.host.record import Record
from quantus_concepts.metrics.streaming.substitutions import score_substitutions
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel

HOSTILE = ["NA", "1", "", 'a "b", c', "x|y\\", "<b>*z*</b>", "umlaut ä\nsecond line", "../..", "nan"]


@pytest.fixture(scope="module")
def summary() -> pd.DataFrame:
    results = {"Saliency": {"CEM": [1.0, 0.0, math.nan, 1.0]}, "random": {"CEM": [0.0, 0.0, 0.0, 1.0]}}
    metric, scores = CEM(LABELS), results["Saliency"]["CEM"]
    # What a metric remembers of its last call.
    metric.records.append(Record(list(scores), np.array(scores), 0.25, {"a | b": 1}, None, (0.0, 1.0), True))
    return summarise(results, {"CEM": metric}, control={"CEM": np.linspace(0.1, 0.9, 39)})


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    loader = [(torch.from_numpy(IMAGES), torch.from_numpy(CLASSES), torch.from_numpy(LABELS))]
    names: dict[str, Any] = {"concept_names": HOSTILE[:5], "class_names": HOSTILE[5:]}
    settings: dict[str, Any] = {"class_concepts": TRUTH, "truth": names, "metrics": UsualMetrics(top_l=[1])}
    substituted = {"added": CLASSES, "removed": CLASSES, "threshold": 0.0}
    return {
        "concepts": score_concepts({"NA": MODEL}, loader, **settings),
        "images": score_concepts(MODEL, loader, **settings, per_image=True),
        "substitutions": score_substitutions(MODEL, loader, class_concepts=TRUTH, **names, **substituted),
        "explanations": pd.DataFrame(
            {"label": ["", ""], "modality": ["map", "map"], "Q1": [1.25, math.nan], "reason": ["", "why"]}
        ),
        "undefined": summarise({name: {"CEM": [math.nan]} for name in HOSTILE}, {"CEM": None}),
    }


def test_markdown_by_hand(summary: pd.DataFrame) -> None:
    assert to_markdown(summary.drop(columns=["chance", "control_coverage"]), digits=2) == (
        "| method   | metric | value               |    n | undefined | reason     | control             |\n"
        "| :------- | :----- | :------------------ | ---: | --------: | :--------- | :------------------ |\n"
        "| Saliency | CEM    | 0.67 (0.21 to 0.94) |    3 |         1 | a \\| b (1) | 0.50 (0.10 to 0.90) |\n"
        "| random   | CEM    | 0.25 (0.05 to 0.70) |    4 |         0 |            | 0.50 (0.10 to 0.90) |\n"
    )
    assert "0.6667 (0.2077 to 0.9385)" in to_markdown(summary, digits=4)
    assert to_markdown(summary[["value", "low"]], 2).splitlines()[2] == "|  0.67 | 0.21 |"
    assert to_markdown(summary[["method", "value"]]).splitlines()[2] == "| Saliency | 0.667 |"
    table = pd.DataFrame({"value": [math.nan, 1e-7, 0.0], "alpha": [1.0, 3.0, math.nan], "b": [True, False, True]})
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in to_markdown(table).splitlines()]
    assert cells[2:] == [["undefined", "1", "True"], ["1.0e-07", "3", "False"], ["0.000", "", "True"]]
    # What misses 0 by rounding is 0.
    assert to_markdown(pd.Series([-3.7e-17])).splitlines()[2] == "| 0.000 |"
    # An interval of width 0 is one; ends that are not known, or in the wrong order, are none.
    ends = pd.DataFrame({"value": [1.0, 0.5, 0.5], "low": [1.0, math.nan, 0.6], "high": [1.0, 1.0, 0.4]})
    cells = [line.split("|")[1].strip() for line in to_markdown(ends, 1).splitlines()]
    assert cells[2:] == ["1.0 (1.0 to 1.0)", "0.5", "0.5"]
    pivot = pd.DataFrame([[0.5, 1.0]], index=pd.Index(["a"], name="method"), columns=["m", "n"])
    assert to_markdown(pivot, 1).splitlines()[2] == "| a      |  0.5 |  1.0 |"


def test_markdown_keeps_names_in_their_cells(tables: dict[str, pd.DataFrame]) -> None:
    for table in tables.values():
        lines = to_markdown(table).splitlines()
        assert len(lines) == len(table) + 2
        bars = {line.replace("\\\\", "").replace("\\|", "").count("|") for line in lines}
        assert len(bars) == 1
        assert not any("<b>" in line.replace("\\<", "") for line in lines)


def test_what_is_empty_or_not_there_is_refused(summary: pd.DataFrame) -> None:
    for write in (to_markdown, headline):
        with pytest.raises(ValueError, match="`table` to hold at least one row"):
            write(summary[:0])
    with pytest.raises(ValueError, match="`table` to have a column `metric`"):
        headline(summary.drop(columns="metric"))


def test_the_headline_is_one_number_a_metric() -> None:
    generator = torch.Generator().manual_seed(2)
    images, labels = torch.rand(20, 3, 12, 12, generator=generator), torch.arange(20) % N_CLASSES
    concepts = torch.randint(0, 2, (20, N_CONCEPTS), generator=generator)
    truth = torch.rand(N_CLASSES, N_CONCEPTS, generator=generator)
    settings: dict[str, Any] = {
        "controls": {"random banks": [SharingConceptModel(1)]},
        "metrics": UsualMetrics(top_l=[3, 1]),
    }
    batches = [(images, labels, concepts)]
    table = score_concepts({"my model": SharingConceptModel()}, batches, class_concepts=truth, **settings)
    rows = headline(table)
    # First those that notice most planted damage, then the others in their order.
    known = ["accuracy", "concept AUC within predicted classes", "negative first", "CEM", "CGIM"]
    assert list(dict.fromkeys(rows["metric"])) == ["concept AUC", "CEM gain", "CGIM correlation", *known]
    # The effect is first, the value below it.
    assert rows.loc[rows["metric"] == "CEM", "explanation"].tolist() == ["effect", "value"]
    assert {*rows["explanation"]} == {"", "contribution", "effect", "value"}
    rows = rows[rows["explanation"] != "effect"].set_index("metric")
    # Over all images: all are taken for one class, in which nothing correlates.
    assert (rows.loc["CGIM correlation", "set"], rows["value"].notna().all()) == ("all", True)
    banks = table[(table["what"] == "random range") & (table["set"] == "all")].query("metric == 'CEM gain' and l == 1")
    banks = banks[banks["explanation"] == "value"].iloc[0]
    assert (
        rows.loc["CEM gain", ["random", "random_low", "random_high"]].tolist()
        == banks[["value", "low", "high"]].tolist()
    )
    # One bank has no range that an untrained model's accuracy lies above.
    assert rows.loc["accuracy", "verdict"] in ("within", "below")
    assert rows.loc[["CEM", "CEM gain", "CGIM", "negative first"], "verdict"].tolist() == ["–"] * 4
    assert rows.loc["CEM gain", "why"] == "moves with the zero of the values"
    assert set(rows["model"]) == {"my model"}
    assert not {"baseline", "item"} & {*rows}
    plain = table[(table["model"] == "my model") & (table["what"] == "score")]
    cem = plain.query("metric == 'CEM' and explanation == 'value' and l == 1 and set == 'all'")["value"]
    assert [rows.loc["CEM", "value"]] == cem.tolist()
    cgim = plain.query("metric == 'CGIM' and explanation == 'value' and item_kind == 'concept'")["value"]
    assert [rows.loc["CGIM", "value"]] == cgim.tolist()
    summary = headline(summarise({"a b": {"CEM": [1.0, 0.0]}}, {"CEM": None}))
    assert summary[["method", "metric", "value"]].values.tolist() == [["a b", "CEM", 0.5]]


def test_the_headline_has_the_effect_and_below_it_the_value() -> None:
    model, banks = SharingConceptModel(), [SharingConceptModel(seed) for seed in range(1, 4)]
    for own in (model, *banks):
        own.absent_values = torch.zeros(N_CONCEPTS)
    generator = torch.Generator().manual_seed(2)
    images, labels = torch.rand(20, 3, 12, 12, generator=generator), torch.arange(20) % N_CLASSES
    concepts = torch.randint(0, 2, (20, N_CONCEPTS), generator=generator)
    batches, controls = [(images, labels, concepts)], {"random banks": banks}
    rows = headline(score_concepts({"m": model}, batches, controls=controls))
    gains = rows[rows["metric"] == "CEM gain"]
    assert gains["explanation"].tolist() == ["effect", "value"]
    assert gains["random_high"].notna().all()
    assert gains["verdict"].tolist()[1] == "–"
    # Only the paper's ranking: a number without a range, since no range of banks is a baseline for it.
    usual = UsualMetrics(explanations=["contribution", "weight"], top_l=[1])
    rows = headline(score_concepts({"m": model}, batches, usual, controls=controls))
    gain = rows[rows["metric"] == "CEM gain"]
    assert gain["explanation"].tolist() == ["contribution"]
    assert gain["random_high"].isna().all()
    assert (gain["verdict"].item(), gain["against"].item()) == ("–", "")


def test_a_series_is_a_column():
    means = pd.DataFrame({"model": ["a", "a", "b"], "value": [0.25, 0.75, 1.0]}).groupby("model")["value"].mean()
    assert to_markdown(means, digits=2).splitlines()[2:] == ["| a     |  0.50 |", "| b     |  1.00 |"]
    assert to_markdown(pd.Series([0.5]), digits=1).startswith("| value |")
    for function in (to_markdown, headline):
        with pytest.raises(TypeError, match="`table` to be a DataFrame but got list"):
            function([1, 2])


def test_rows_of_a_longer_table_are_written_without_their_places():
    table = pd.DataFrame({"metric": ["a", "b", "c"], "value": [0.25, 0.5, 1.0]})
    lines = to_markdown(table[table["value"] < 1].sort_values("value", ascending=False), digits=2).splitlines()
    assert lines == ["| metric | value |", "| :----- | ----: |", "| b      |  0.50 |", "| a      |  0.25 |"]
    assert "index" not in to_latex(table[1:].iloc[::-1])
    assert to_markdown(table.set_index("metric")).startswith("| metric |")
    assert to_markdown(table.rename_axis("class")[1:]).startswith("| class |")


LATEX = r"""\documentclass{article}
\usepackage{booktabs}
\begin{document}
TABLE
\end{document}
"""


def test_latex_is_a_table_that_prints_names_as_they_are(tmp_path) -> None:
    names = [*HOSTILE, "[5pt] a", "*", r"\input{x}", "a_b % & #1 $x$ ~^{}", "\x1b[31mred", "θ ≥ 1", "−2"]
    table = pd.DataFrame({"metric": names, "value": -0.41, "low": -0.5, "high": 0.1, "n": 12, "empty": ""})
    table["p_adjusted"] = [0.0, 0.00099, 0.001, 0.0321, 1.0, *[np.nan] * (len(names) - 5)]
    latex = to_latex(table, "100 % of θ", "tab:cem", digits=2)
    lines = latex.splitlines()
    assert lines[:7] == [
        r"\begin{table}",
        r"\centering",
        r"\caption{100 \% of $\theta$}",
        r"\label{tab:cem}",
        r"\begin{tabular}{llrr}",
        r"\toprule",
        r"metric & value (low to high) & n & p\_adjusted \\",
    ]
    ends = [r"$<$ .001 \\", r"$<$ .001 \\", r".001 \\", r".032 \\", r"1.000 \\"]
    assert [line.split(" & ")[-1] for line in lines[8:13]] == ends
    assert all("$-$0.41 ($-$0.50 to 0.10)" in line for line in lines[8:-3])
    # The grammar: braces are closed, rows have as many cells, and nothing follows a row that would be its argument.
    bare = re.sub(r"\\[{}&$]", "", latex)
    assert bare.count("{") == bare.count("}")
    assert {line.count("&") for line in bare.splitlines() if line.endswith(r"\\")} == {3}
    assert bare.count("$") % 2 == 0
    assert not re.search(r"\\\\\s*[\[*]", latex)
    assert "\x1b" not in latex
    assert "textbackslash{}input" in latex
    if shutil.which("pdflatex"):
        (tmp_path / "a.tex").write_text(LATEX.replace("TABLE", latex), encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "a.tex"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert to_latex(table[["metric", "n"]]).startswith(r"\begin{tabular}{lr}")
    with pytest.raises(ValueError, match="`label` to be of letters"):
        to_latex(table, label="a}b")


def test_latex_has_so_many_digits_everywhere():
    table = pd.DataFrame({"value": [0.0032, -0.0032, 0.51], "low": [-0.05, -0.004, 0.4], "high": [0.08, 0.004, 0.6]})
    rows = [line.removesuffix(r" \\") for line in to_latex(table, digits=2).splitlines()[4:7]]
    assert rows == ["0.00 ($-$0.05 to 0.08)", "0.00 (0.00 to 0.00)", "0.51 (0.40 to 0.60)"]
