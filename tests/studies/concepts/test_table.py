"""`--data table`: columns by what they are, in the layouts of published tables, and objects that are marked."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fixtures_commands import NETWORK
from golden.runs import smaller
from quantus_concepts.studies._models.named_networks import Network
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts.data import same_images
from quantus_concepts.studies.concepts.settings import Concepts, named_columns

IMAGES = Network(torch.nn.Identity(), "none", mean=(0.0,) * 3, std=(1.0,) * 3)
N = 24
TRAIN = ["train"] * 16 + ["test"] * 8
CLASSES = ["a", "b"] * (N // 2)
TEXTS = ["absent", "typical", "atypical"] * (N // 3)
#: Tables in the layouts of the page, joined as it says: what else they hold, and the options of the command.
LAYOUTS = {
    "Derm7pt": (
        {"case_num": range(N), "diagnosis": CLASSES, "seven_point_score": [number % 8 for number in range(N)]}
        | {"pigment_network": TEXTS, "streaks": TEXTS[::-1], "notes": [""] * N, "clinic": "image", "derm": "image"},
        "concepts=pigment_network,streaks",
        6,
    ),
    "SkinCon": (
        {
            "Unnamed: 0": range(N),
            "ImageID": "image",
            "Vesicle": [0, 1] * (N // 2),
            "Brown(Hyperpigmentation)": [1, 0, 0] * 8,
        }
        | {"md5hash": [f"hash {number}" for number in range(N)], "three_partition_label": CLASSES},
        "image=ImageID,label=three_partition_label,concepts=Vesicle,Brown(Hyperpigmentation)",
        2,
    ),
    "WBCAtt": (
        {"img_name": [f"{number}.png" for number in range(N)], "label": CLASSES, "cell_size": TEXTS, "path": "image"},
        "concepts=cell_*",
        3,
    ),
    "DermaCon-IN": (
        {"Image_name": "image", "Main_class": CLASSES, "Sub_class": CLASSES[::-1], "Subject_ID": range(N)}
        | {"Papule": [0, 1, 1] * 8, "Arm": [1, 0] * (N // 2)},
        "image=Image_name, label=Main_class, concepts=Papule, Arm",
        2,
    ),
}
BOX = {"x": 2, "y": 4, "w": 10, "h": 8}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(columns: dict[str, object]) -> None:
    Path("photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(N):
        pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        pixels[4:12, 2:12, number % 2] = 255
        Image.fromarray(pixels).save(f"photos/{number}.png")
    names = [f"{number}.png" for number in range(N)]
    table = {name: names if of == "image" else of for name, of in columns.items()}
    pd.DataFrame(table | {"split": TRAIN}).to_csv("table.csv", index=False)


def settings(columns: str | None, **more: object) -> Concepts:
    given = {"data": "table", "root": Path("photos"), "concepts": "table.csv", "min_images": 1, "columns": columns}
    chosen = Concepts(**given | more)
    chosen.check()
    return chosen


@pytest.mark.parametrize("layout", LAYOUTS)
def test_published_tables_by_their_columns(layout: str) -> None:
    columns, named, n_concepts = LAYOUTS[layout]
    write(columns)
    data = same_images(settings(named), IMAGES)
    assert (len(data.train), len(data.test), data.class_names) == (16, 8, ["a", "b"])
    assert len(data.concept_names) == n_concepts
    # Without the names they are refused by the file and the column, before a network is loaded.
    with pytest.raises(ValueError, match=r"table\.csv"):
        settings(None)


def test_photographs_of_different_sizes_are_let_in() -> None:
    columns, named, _ = LAYOUTS["WBCAtt"]
    write(columns)
    Image.new("RGB", (20, 18)).save("photos/0.png")
    assert len(same_images(settings(named, image_size=8), IMAGES).train) == 16


def test_columns_as_arguments() -> None:
    assert named_columns(None) == {}
    assert named_columns("image=a b, concepts=c*") == {"image": "a b", "concepts": ["c*"]}
    assert named_columns("mask=m,box=x,y,w,h") == {"mask": "m", "box": ["x", "y", "w", "h"]}
    assert named_columns("mask=x,y,w,h,unknown=images") == {"mask": ["x", "y", "w", "h"], "unknown": "images"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("", "to be KEY=NAME"),
        ("derm", "to be KEY=NAME"),
        ("image=", "to be KEY=NAME"),
        ("image=a,", "to be KEY=NAME"),
        ("class=a", "keys image, label, .* got 'class=a'"),
        ("image=a,label=b,image=c", "once but got 'image=c'"),
        ("image=a,b", "`image=` in `--columns` to name 1 but got a, b"),
        ("mask=x,y", "`mask=` in `--columns` to name 1 or 4 but got x, y"),
        ("box=x", "`box=` in `--columns` to name 4 but got x"),
    ],
)
def test_bad_columns_are_refused(columns: str, message: str) -> None:
    write(LAYOUTS["WBCAtt"][0])
    with pytest.raises(ValueError, match=message):
        settings(columns)


def test_columns_of_something_else_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "concepts", "--columns", "image=a"]) == 2
    assert "`--columns` has no effect with --data painted" in capsys.readouterr().err


@pytest.mark.parametrize("backbone", ["network.py:model", "small --epochs 1"])
def test_maps_are_scored_against_marked_objects(backbone: str) -> None:
    columns = {"image": "image", "class": CLASSES, "red": [1, 0] * (N // 2), "shape": TEXTS, **BOX}
    write(columns)
    Path("network.py").write_text(NETWORK)
    run = (
        "benchmark concepts --data table --root photos --concepts table.csv --columns concepts=red,shape,mask=x,y,w,h "
        f"--backbone {backbone} --image-size 16 --min-images 1 --n-pos 4 --n-neg 4 --seeds 1 --no-sweep "
        "--no-interventions --no-progress --device cpu --explore --images-per-class 3 --out out"
    )
    with smaller(figures=False):
        assert main(shlex.split(run)) == 0
    rows = pd.read_csv("out/results.csv", keep_default_na=False).query("model == 'post-hoc CBM'")
    own = rows[(rows["what"] == "score") & rows["metric"].isin(["region IoU", "energy inside", "pointing game"])]
    # Of six images of 256 pixels each has 80 in its box.
    assert own["n"].astype(int).tolist() == [6] * 3
    assert own["chance"].astype(float).tolist() == pytest.approx([80 / 256] * 3)
    same = rows[(rows["baseline"] == "mean region of the part") & (rows["metric"] == "region IoU")]
    assert same["value"].astype(float).tolist() == [1.0]
    assert "coverage" in set(rows["metric"])
    assert "CLM" not in set(rows["metric"])
    page = Path("out/report.html").read_text("utf-8")
    assert "Maps and the object (ConceptRegions)" in page
    assert "its own part than other parts" not in page
    assert "there is no CLM" in page
    ranges = pd.read_csv("out/results.csv").query("metric == 'energy inside' and what == 'random range'")
    assert len(ranges) == 1


def test_marks_are_those_of_the_test_images_that_are_drawn() -> None:
    own = BOX | {"x": [number % 8 for number in range(N)], "w": 1}
    write({"image": "image", "class": CLASSES, "red": [1, 0] * (N // 2), **own})
    columns = "concepts=red,mask=x,y,w,h"
    for count in (None, 2):
        data = same_images(settings(columns, images_per_class=count, image_size=16), IMAGES)
        rows = [*range(8)] if count is None else data.test.rows
        assert data.regions[:, 0, BOX["y"]].int().argmax(1).tolist() == rows
    assert rows != [*range(4)]


def test_masks_in_one_place() -> None:
    write(LAYOUTS["WBCAtt"][0])
    with pytest.raises(ValueError, match="`--engine local` with `mask=`"):
        settings("mask=img_name", engine="ray")
