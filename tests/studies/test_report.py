"""A report: verdicts, tables of any names, one well-formed page that loads nothing, and files of all it shows."""

from __future__ import annotations

import io
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from chromium import Visit, visit_all
from html_pages import HTMLPage
from quantus_concepts.studies._kit.comparisons import comparison_table
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.plots import dots, report_style
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number, percent, write_report
from quantus_concepts.testing.damages import DAMAGES

ODD = [
    "<script>alert(1)</script>",
    "$\\frac{1}{2}$",
    "a_b % & #1",
    "\"quoted\" 'text'",
    "x~^{}\n\ny",
    "[5pt] θ",
]


def row(value: float, low: float = math.nan, high: float = math.nan, **more: object) -> dict[str, object]:
    return {"value": value, "low": low, "high": high, **more}


def table(rows: list[dict[str, object]], **more: object) -> Table:
    return Table("one", "A table", pd.DataFrame(rows), ["model"], ["metric"], **more)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.51, 0.7, "above"), (0.5, 0.7, "within"), (0.2, 0.3, "within"), (0.2, 0.29, "below"), (0.1, 0.9, "within")],
)
def test_a_verdict_is_how_the_interval_lies_to_the_random_range(low, high, verdict):
    said = Verdict("Is it?", 0.4, low, high, 0.3, 0.5)
    assert said.verdict == verdict
    assert said.cells == ("Is it?", "40.0 %", f"{percent(low)} to {percent(high)}", "30.0 to 50.0", verdict)


def test_a_verdict_without_interval_or_range():
    assert [number(value) for value in (-0.001, -1.5, math.nan)] == ["0.00", "−1.50", "–"]
    assert Verdict("", 0.6, random_low=0.3, random_high=0.5).verdict == "above"
    assert Verdict("", 0.6).cells == ("", "60.0 %", "", "", "–")
    assert Verdict("", math.nan, random_low=0.3, random_high=0.5).cells[1:] == ("–", "", "30.0 to 50.0", "–")
    assert Verdict("", 3.0, write=number, text="all three").cells == ("", "3.00", "", "", "all three")
    assert Verdict.of("", None).verdict == "–"
    assert Verdict.of("", pd.Series(row(0.2, 0.1, 0.25, random_low=0.3, random_high=0.5, n=3))).verdict == "below"


def test_a_table_has_a_cell_for_each_number_with_its_interval_below():
    shown = table([row(0.5, 0.4, 0.6, model="a", metric="m"), row(0.25, model="b", metric="m")])
    html = " ".join(shown.html.split())
    assert ">50.0<small>40.0 to 60.0</small></td>" in html
    assert re.search(r">25\.0</td>", html)
    assert shown.csv.splitlines() == ["model,metric,value,low,high,verdict", "a,m,0.5,0.4,0.6,–", "b,m,0.25,,,–"]
    assert r"50.0 {\scriptsize (40.0 to 60.0)}" in shown.latex
    rows = [row(0.6, 0.55, 0.7, model="a", metric="m", random_low=0.3, random_high=0.5, n=9)]
    assert table(rows).csv.splitlines() == [
        "model,metric,value,low,high,random_low,random_high,n,verdict",
        "a,m,0.6,0.55,0.7,0.3,0.5,9,above",
    ]
    with pytest.raises(ValueError, match=r"1 are there again: \['a', 'm'\]"):
        _ = table([*rows, *rows]).html


def test_rows_and_columns_keep_their_order_and_a_number_that_is_not_defined_is_no_cell():
    rows = [row(value, model=model, metric=metric) for value, model, metric in [(1, "z", "m"), (2, "a", "n")]]
    rows.append(row(math.nan, model="b", metric="m"))
    shown = table(rows, write=number)
    places = [shown.html.index(f">{name}<") for name in ("m", "n", "z", "a")]
    assert places == sorted(places)
    assert ">b<" not in shown.html
    assert "nan" not in shown.html
    frame = pd.DataFrame(rows).assign(model=lambda frame: pd.Categorical(frame["model"], ["b", "a", "z"]))
    ordered = Table("one", "", frame, ["model"], ["metric"]).html
    assert ordered.index(">a<") < ordered.index(">z<")


def test_a_table_without_numbers_is_left_out(tmp_path):
    empty = table([row(math.nan, model="a", metric="m", text=math.nan)])
    full = table([row(0.5, model="a", metric="m", text=math.nan)])
    assert empty.is_empty
    assert not full.is_empty
    report = Report("", [], None, [Section("a", [empty]), Section("b", [full], [empty])])
    assert [(section.heading, section.parts, section.folded) for section in report.sections] == [("b", [full], [])]


def test_a_text_stands_in_the_place_of_a_number_and_the_best_number_is_marked():
    rows = [row(math.nan, model="a", metric="m", text="not <b>defined</b>"), row(0.5, model="a", metric="n")]
    rows += [row(0.9, model="b", metric="n", best=True), row(0.7, model="c", metric="n", best=False)]
    shown = table(rows, write={"m": percent, "n": number})
    assert "not &lt;b&gt;defined&lt;/b&gt;" in shown.html
    assert re.findall(r"<b>(.*?)</b>", shown.html) == ["0.90"]
    assert re.findall(r"\\textbf{(.*?)}", shown.latex) == ["0.90"]


def test_a_comparison_is_written_for_readers_and_as_numbers():
    numbers = {"value_a": 0.5, "value_b": 0.2, "difference": 0.3, "low": 0.1, "high": 0.5, "n": 9, "p_adjusted": 1e-5}
    rows = [{"what": "x", **numbers}, {"what": "y", **dict.fromkeys(numbers, math.nan), "n": 0}]
    rows.append({"what": "z", **numbers, "verdict": "no verdict"})
    rows.append({"what": "w", **numbers, "low": math.nan, "high": math.nan, "p_adjusted": math.nan})
    shown = comparison_table("one", "", pd.DataFrame(rows).assign(metric="m", a="a", b="b").fillna({"verdict": ""}))
    lines = [line for line in shown.latex.splitlines() if line.endswith(r"\\")]
    assert lines[1].endswith(r"& 0.30 {\scriptsize (0.10 to 0.50)} & $<$ .001 & above 0 \\")
    assert lines[2].startswith("y & a & b & – & – & – & – & –")
    assert lines[3].endswith(r"& no verdict \\")
    # A difference without an interval is not shown, nor written.
    assert lines[4].startswith("w & a & b & 0.50 & 0.20 & – & – & –")
    table = pd.read_csv(io.StringIO(shown.csv))
    assert table.groupby("column")["value"].agg(list).to_dict() == {
        "first": [0.5] * 3,
        "second": [0.2] * 3,
        "first less second": [0.3] * 2,
        "adjusted p": [1e-5] * 2,
    }
    assert table.loc[table["column"] == "first less second", "verdict"].tolist() == ["above 0", "no verdict"]


def test_names_of_users_are_texts_in_html_and_in_latex():
    frame = pd.DataFrame([row(0.5, 0.4, 0.6, model=name, kind=kind, metric=kind) for name in ODD for kind in ODD])
    shown = Table("odd", ODD[0], frame, ["model", "kind"], ["metric"])
    assert "<script" not in shown.html
    assert "&lt;script&gt;" in shown.html
    assert "a_b % &amp; #1" in shown.html
    HTMLPage(shown.html)
    latex = shown.latex
    assert r"a\_b \% \& \#1" in latex
    assert r"\$\textbackslash{}frac\{1\}\{2\}\$" in latex
    assert "\n\n" not in latex.strip()
    # Braces are closed, and each line has as many columns.
    bare = re.sub(r"\\[{}]", "", latex)
    assert bare.count("{") == bare.count("}")
    columns = 0
    for part in re.sub(r"\\&", "", latex).split(r"\par\medskip"):
        (count,) = {line.count("&") for line in part.splitlines() if line.endswith(r"\\")}
        columns += count - 1
    assert columns == len(ODD)
    # Of packages it needs only booktabs.
    assert r"\toprule" in latex
    assert "multirow" not in latex
    # After the end of a row it would be an argument, and a terminal's sign is no text.
    assert not re.search(r"\\\\\s*\[", latex)
    assert r"{[}5pt] $\theta$" in latex


def test_a_table_that_is_wider_than_a_page_has_parts_in_latex(tmp_path):
    models, tops = ["post-hoc CBM", "traditional CBM", "oracle", "random directions"], ["l = 1", "l = 3"]
    rows = [row(0.5, 0.4, 0.6, of="correct", kind="value", model=model, top=top) for model in models for top in tops]
    frame = pd.DataFrame(rows)
    frame = pd.concat([frame, frame[frame["model"] == "oracle"].assign(kind="of the oracle alone")])
    wide = Table("wide", "A title", frame, ["of", "kind"], ["model", "top"])
    latex = wide.latex
    parts = latex.split(r"\par\medskip")
    assert [re.findall(r"\\multicolumn\{2\}\{c\}\{(.*?)\}", part) for part in parts] == [models[:2], models[2:]]
    assert ["of the oracle alone" in part for part in parts] == [False, True]
    assert latex.count(r"\caption") == latex.count(r"\label{tab:wide}") == latex.count(r"\end{table}") == 1
    if shutil.which("pdflatex"):
        size = r"\documentclass{article}\usepackage[textwidth=16cm]{geometry}\usepackage{booktabs}\begin{document}"
        (tmp_path / "a.tex").write_text(f"{size}\n{latex}\\end{{document}}\n", encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "a.tex"]
        printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert "Overfull" not in printed


def write(out: Path) -> Path:
    rows = [row(0.5, 0.4, 0.6, model=name, metric="m", random_low=0.1, random_high=0.2) for name in ODD]
    frame = pd.DataFrame(rows)
    with RunFolder("toy", {"data": ODD[0]}, out) as folder, report_style():
        folder.note(ODD[0], "5 % of images")
        figure, _ = dots(frame, "model", label="value")
        tables = [Table(f"table-{part}", ODD[0], frame, ["model"], ["metric"], caption=ODD[1]) for part in (1, 2)]
        report = Report(
            ODD[0],
            [Verdict.of(name, rows[0]) for name in ODD],
            Picture("picture", figure, ODD[0]),
            [Section(ODD[0], tables[:1], tables[1:])],
            lead=ODD[2],
            banner=ODD[0],
            reading={ODD[0]: ODD[1]},
            links={ODD[0]: "more.csv"},
        )
        folder.write("more.csv", "x")
        write_report(folder, frame, report, {"images": "3 %"})
    return out


def test_one_well_formed_page_that_loads_nothing_and_files_of_all_it_shows(tmp_path, capsys):
    out, again = (write(tmp_path / name) for name in "ab")
    text = (out / "report.html").read_text("utf-8")
    page = HTMLPage(text)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert "url(" not in text
    assert "@import" not in text
    links = [source for source in page.sources if not source.startswith("data:image/")]
    assert all(source.startswith(("#", "./")) for source in links)
    for source in links:
        assert (out / source).is_file() if source.startswith("./") else f'id="{source[1:]}"' in text
    assert text.index('class="verdicts"') < text.index("<figure") < text.index('class="numbers"')
    assert "5\u00a0% of images" in text
    assert capsys.readouterr().out.count("50.0 %") == 2 * len(ODD)
    assert pd.read_csv(out / "results.csv")["model"].tolist() == ODD
    verdicts = pd.read_csv(out / "tables" / "verdicts.csv")
    assert verdicts["question"].tolist() == ODD
    assert set(verdicts["verdict"]) == {"above"}
    assert np.allclose(verdicts[["value", "low", "high", "random_low", "random_high"]], [0.5, 0.4, 0.6, 0.1, 0.2])
    tables = [f"tables/table-{part}.{kind}" for part in (1, 2) for kind in ("csv", "tex")]
    for name in ("tables/verdicts.csv", "figures/picture.png", "figures/picture.svg", *tables):
        # The same run writes the same.
        assert (out / name).read_bytes() == (again / name).read_bytes(), name


def test_a_row_of_a_wide_table_is_complete_by_itself_on_a_narrow_screen():
    rows = [row(1, what="a", by=by, metric=metric, level="<1>") for by in ("<x>", "y") for metric in "mno"]
    html = Table("one", "", pd.DataFrame(rows), ["what", "by"], ["metric", "level"], number).html
    first, second = re.findall("<tr>(.*?)</tr>", html, re.DOTALL)[2:]
    assert re.findall("<th [^>]*>(.*?)</th>", first) == ["a", "&lt;x&gt;"]
    assert re.findall("<th [^>]*>(.*?)</th>", second) == ['<span class="again">a</span>', "y"]
    for html_row in (first, second):
        cells = re.findall("<td [^>]*>(.*?)</td>", html_row)
        assert cells == [f'<span class="column">{name}, &lt;1&gt;</span>1.00' for name in "mno"]
    # The names of rows of one level, which are escaped here and not by pandas.
    rows = [row(1, what=what, metric=metric) for what in ("<x>", "y & z") for metric in "mnop"]
    html = Table("one", "", pd.DataFrame(rows), ["what"], ["metric"], number).html
    assert re.findall("<th [^>]*row_heading[^>]*>(.*?)</th>", html) == ["&lt;x&gt;", "y &amp; z"]
    # Four columns fit.
    few = pd.DataFrame([row(1, what="a", by="b", metric=metric, level="c") for metric in "mn"])
    assert 'class="column"' not in Table("one", "", few, ["what", "by"], ["metric", "level"]).html


def test_the_widest_tables_fit_a_page_of_usual_width(tmp_path):
    scores = ["CGIM correlation (contribution)", "attribution localisation (Quantus)"]
    damaged = [row(1, metric=score, damage=damage, text="(0.05~)") for score in scores for damage in DAMAGES]
    shares = [
        row(0.5, 0.4, 0.6, metric=f"a rather long name of question {j}", damage=f"explainer {k}")
        for j in range(2)
        for k in range(10)
    ]
    tables = [
        Table(name, "", pd.DataFrame(rows), ["metric"], ["damage"])
        for name, rows in {"damaged": damaged, "shares": shares}.items()
    ]
    with RunFolder("toy", {}, tmp_path / "out") as folder:
        write_report(folder, pd.DataFrame({"value": [1]}), Report("", [], None, [Section("a", tables)]))
    widths = "tell([...document.querySelectorAll('.scroll')].map((box) => [box.scrollWidth, box.clientWidth]))"
    found = visit_all({"page": Visit((tmp_path / "out/report.html").read_text("utf-8"), widths)}, tmp_path)["page"]
    assert len(found) == 2
    for width, room in found:
        assert room > 1000
        assert width <= room
