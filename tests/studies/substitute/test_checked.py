"""The page on which people check generated birds, in a browser; and the export of what they leave."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from chromium import Visit, visit_all
from fixtures_commands import ATTRIBUTES, BIRDS, write_filtered, write_generated
from quantus_concepts.datasets import SUB
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies.app import main
from quantus_concepts.studies.substitute.command import sheet
from quantus_concepts.studies.substitute.parquet import answers_text, read_ratings

pq = pytest.importorskip("pyarrow.parquet")

CROWN = [f"{bird}--{ATTRIBUTES[0]}" for bird in BIRDS]
VERIFY = """
    begin("Ann");
    const says = byId("says").textContent;
    const labels = [...document.querySelectorAll("#questions label")].map((label) => label.textContent);
    const n = Number(byId("place").textContent.split(" ").pop());
    key("9"); key("4");          // none of the three answers
    const before = byId("given").textContent;
    for (let k = 0; k < n; k++) { key("1"); key("2"); }
    tell({ says, labels, n, before, place: byId("place").textContent, file: (await saved()).records });
"""
CHOOSE = """
    begin("Ben");
    const seen = [];
    const n = Number(byId("place").textContent.split(" ").pop());
    for (let k = 0; k < n; k++) {
      const labels = [...document.querySelectorAll("#questions label")];
      seen.push([byId("says").textContent, labels.length]);
      const wanted = labels.find((label) => /needle$|black$/.test(label.textContent));
      wanted.querySelector("input").dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 1 }));
    }
    tell({ seen, file: (await saved()).records });
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checked")
    generated = write_generated(root / "generated")
    write_filtered(root / "filtered", generated, {*CROWN, f"{BIRDS[0]}--{ATTRIBUTES[1]}/00001.png"})
    for ask in ("verify", "choose"):
        page = sheet(
            generated=generated, filtered=root / "filtered", ask=ask, picture_size=32, out=root / ask, progress=False
        )
        assert page == root / ask
    return root


def test_people_answer_on_the_page(root: Path, tmp_path: Path) -> None:
    pages = {ask: (root / ask / "rate.html").read_text(encoding="utf-8") for ask in ("verify", "choose")}
    visits = {"verify": Visit(pages["verify"], VERIFY), "choose": Visit(pages["choose"], CHOOSE)}
    results = visit_all(visits, tmp_path)
    assert not [result["error"] for result in results.values() if "error" in result]
    verify, choose = results["verify"], results["choose"]
    assert verify["n"] == 7
    assert verify["before"] == "0 of 14 answers"
    assert verify["says"].startswith("Asked for: ")
    assert [label.split()[-1] for label in verify["labels"]] == ["yes", "somewhat", "no"] * 2
    assert all(record["Annotation"] == [ANN] for record in verify["file"])
    assert {record["image"] for record in verify["file"]} == set(kept_rows(root)["image"])
    # A person who chooses sees the options of the group, and not the attribute asked for.
    assert {tuple(row) for row in choose["seen"]} == {
        ("Look at its: crown color", 16),
        ("Look at its: bill shape", 10),
    }
    assert {record["Annotation"][0]["choice"] for record in choose["file"]} == {"black", "needle"}


ANN = {"annotator": "Ann", "attribute_there": "yes", "still_the_bird": "somewhat"}


def kept_rows(root: Path) -> pd.DataFrame:
    table = pd.read_csv(root / "filtered" / "manifest.csv")
    return table[table["kept"]]


def answers(root: Path, name: str, **by_pair: str) -> Path:
    """Write a person's answers on the images of the pairs whose birds are named."""
    records = [
        {"image": row.image, "pair": row.pair, "bird": row.bird, "attribute": row.attribute}
        | {"Annotation": [{"annotator": name, "attribute_there": by_pair[row.bird], "still_the_bird": "yes"}]}
        for row in kept_rows(root).itertuples()
        if row.bird in by_pair
    ]
    file = root / f"{name}.json"
    file.write_text(json.dumps(records))
    return file


def test_what_is_exported_is_subs_format(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ratings = [answers(root, "Ann", Blue_Jay="yes", Cardinal="somewhat"), answers(root, "Ben", Blue_Jay="no")]
    command = ["substitute", "export", "--generated", str(root / "generated"), "--filtered", str(root / "filtered")]
    command += ["--no-progress", "--rows-per-file", "3", "--out", str(tmp_path / "out")]
    assert main([*command, *(part for file in ratings for part in ("--ratings", str(file)))]) == 0
    output = capsys.readouterr().out
    # Half of the answers find the jay's, none the cardinal's.
    assert "1 pairs are left out" in output
    assert "4 images of 2 pairs written" in output
    files = sorted((tmp_path / "out" / "data").iterdir())
    assert [file.name for file in files] == ["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"]
    schema = pq.read_schema(files[0])
    assert schema.names == ["image", "attr_label", "bird_label"]
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["bird_label"] == {"names": ["Blue_Jay"], "_type": "ClassLabel"}
    names = features["attr_label"]["names"]
    assert names == sorted(ATTRIBUTES)
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert [names[row["attr_label"]] for row in rows] == [*[ATTRIBUTES[0]] * 3, ATTRIBUTES[1]]
    images = pick(kept_rows(root), bird="Blue_Jay")["image"]
    for row, place in zip(rows, images, strict=True):
        expected = np.asarray(Image.open(root / "generated" / place))
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(row["image"]["bytes"]))), expected)
        assert row["image"]["path"] == place.replace("/", "-")
    with pytest.warns(UserWarning, match="licensed"):
        sub = SUB(tmp_path / "out")
    assert [sub.attribute_names[index].replace("::", "--") for index in sub.attribute] == [
        names[row["attr_label"]] for row in rows
    ]
    table = pd.read_csv(tmp_path / "out" / "answers.csv")
    assert table.groupby("annotator")["found"].mean().tolist() == [4 / 7, 0.0]


def test_both_pages_count(tmp_path: Path) -> None:
    record = {"image": "a.png", "pair": "p", "bird": "b", "attribute": "has_crown_color--black"}
    file = tmp_path / "votes.json"
    votes = [{"annotator": "A", "choice": "black"}, {"annotator": "B", "choice": "Other"}, {"annotator": "C"}]
    file.write_text(json.dumps([record | {"Annotation": votes}]))
    assert read_ratings([file])["found"].tolist() == [1.0, 0.0]


def test_a_name_is_no_formula() -> None:
    answers = pd.DataFrame({"annotator": ["=1+1", "Ann"], "found": [1.0, -1.0]})
    assert answers_text(answers).splitlines()[1:] == ["'=1+1,1.0", "Ann,-1.0"]


def test_missing_files_and_answers_are_errors(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated = tmp_path / "generated"
    shutil.copytree(root / "generated", generated)
    command = ["substitute", "export", "--generated", str(generated), "--out", str(tmp_path / "out"), "--no-progress"]
    (tmp_path / "votes.json").write_text('[{"image": 3}]')
    (tmp_path / "bare").mkdir()
    cases = {
        "is not what the page": ["--ratings", str(tmp_path / "votes.json")],
        "to hold manifest.csv": ["--filtered", str(tmp_path / "bare")],
        "1 of 7 are missing": ["--filtered", str(root / "filtered")],
        "no pair is left": ["--ratings", str(answers(root, "Cy", Blue_Jay="no", Cardinal="no"))],
    }
    (generated / CROWN[0] / "00000.png").unlink()
    shutil.rmtree(generated / f"{BIRDS[1]}--{ATTRIBUTES[1]}")
    for words, arguments in cases.items():
        assert main([*command, *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("Error: ") == 1
    assert not (tmp_path / "out").exists()
