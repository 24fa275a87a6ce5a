"""Images listed in one table: what each column becomes, what is unknown, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from quantus_concepts.datasets import ConceptCSV, parquet, tables
from quantus_concepts.datasets.birds import concept_csv
from quantus_concepts.functional import concept_set_ceiling

#: Derm7pt's criteria and their texts, as its public code has them.
CRITERIA = {
    "pigment_network": ("absent", "typical", "atypical"),
    "streaks": ("absent", "regular", "irregular"),
    "pigmentation": (*("absent", "diffuse regular", "localized regular", "diffuse irregular", "localized irregular"),),
    "regression_structures": ("absent", "blue areas", "white areas", "combinations"),
    "dots_and_globules": ("absent", "regular", "irregular"),
    "blue_whitish_veil": ("absent", "present"),
    "vascular_structures": (
        *("absent", "arborizing", "comma", "hairpin", "within regression", "wreath", "dotted", "linear irregular"),
    ),
}
#: Of eleven cases: which text of each criterion, and the diagnosis. Cases 0, 8 and 10 show the same, and so do 1 and 9.
PATTERN = (0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 0)
DIAGNOSES = (
    *("clark nevus", "clark nevus", "melanoma (in situ)", "blue nevus", "melanoma (in situ)", "clark nevus"),
    *("blue nevus", "melanoma (in situ)", "melanoma (in situ)", "clark nevus", "melanoma (in situ)"),
)
SPLITS = {"train": (0, 1, 2, 3, 4, 9), "valid": (5, 6), "test": (7, 8, 10)}
ROWS = [
    "image,class,red,shape,split",
    "cat/0.png,cat,1,round,train",
    "cat/1.png,cat,0,long,train",
    "dog/0.png,dog,1,long,test",
    "dog/1.png,dog,1,long,train",
]


def paint(path: Path, value: int = 0, size: tuple[int, int] = (12, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value,) * 3).save(path)


def edited(line: int, text: str) -> list[str]:
    return [text if i == line else row for i, row in enumerate(ROWS)]


@pytest.fixture
def write(tmp_path: Path):
    for i, name in enumerate(("cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png")):
        paint(tmp_path / name, 10 * i)

    def write(rows: list[str] = ROWS) -> Path:
        (tmp_path / "table.csv").write_text("\n".join(rows), encoding="utf-8")
        return tmp_path / "table.csv"

    return write


@pytest.fixture
def derm7pt(tmp_path: Path) -> Path:
    """A folder in the layout of Derm7pt, with made-up images and cases."""
    cases = []
    for number, (pattern, diagnosis) in enumerate(zip(PATTERN, DIAGNOSES, strict=True)):
        paint(tmp_path / f"images/A{number}/al{number:03}.jpg", 20 * number)
        criteria = {name: texts[pattern % len(texts)] for name, texts in CRITERIA.items()}
        before = {"case_num": number + 1, "diagnosis": diagnosis, "seven_point_score": number % 8}
        after = {"level_of_diagnostic_difficulty": "low", "elevation": "flat", "location": "back", "sex": "female"}
        files = {"clinic": f"A{number}/ac{number:03}.jpg", "derm": f"A{number}/al{number:03}.jpg"}
        case = {"case_id": np.nan, "management": "excision", "notes": np.nan}
        cases.append(before | criteria | after | files | case)
    (tmp_path / "meta").mkdir()
    pd.DataFrame(cases).to_csv(tmp_path / "meta/meta.csv", index=False)
    for split, indexes in SPLITS.items():
        pd.DataFrame({"indexes": indexes}).to_csv(tmp_path / f"meta/{split}_indexes.csv", index=False)
    return tmp_path


def test_derm7pt(derm7pt: Path) -> None:
    # As on the page.
    meta = pd.read_csv(derm7pt / "meta/meta.csv")
    for split in SPLITS:
        meta.loc[pd.read_csv(derm7pt / f"meta/{split}_indexes.csv")["indexes"], "split"] = split
    meta.to_csv(derm7pt / "meta/table.csv", index=False)
    arguments = {"images": derm7pt / "images", "concepts": list(CRITERIA), "image_size": 8}
    data = ConceptCSV(derm7pt / "meta/table.csv", **arguments)
    assert data.concept_names == [f"{name}::{text}" for name, texts in CRITERIA.items() for text in sorted(texts)]
    assert len(data.concept_names) == 28
    assert data.class_names == ["blue nevus", "clark nevus", "melanoma (in situ)"]
    # One text of each criterion, that of the row.
    assert data.concept_labels.sum(1).tolist() == [7] * 11
    shown = [name for name, there in zip(data.concept_names, data.concept_labels[2], strict=True) if there]
    assert shown == [f"{name}::{texts[2 % len(texts)]}" for name, texts in CRITERIA.items()]
    # Of cases 0, 8 and 10 two are melanomas; 1 and 9 agree; each of the other six is alone: 2 + 2 + 6 of 11.
    assert concept_set_ceiling(data.concept_labels, data.labels) == pytest.approx(10 / 11)
    parts = {split: ConceptCSV(derm7pt / "meta/table.csv", **arguments, split=split) for split in SPLITS}
    for split, rows in SPLITS.items():
        assert [path.stem for path in parts[split].image_paths] == [f"al{row:03}" for row in rows]
        torch.testing.assert_close(parts[split].concept_labels, data.concept_labels[list(rows)])
    # Of the test cases, 7 is alone, and 8 and 10 agree.
    assert concept_set_ceiling(parts["test"].concept_labels, parts["test"].labels) == 1
    torch.testing.assert_close(parts["test"].training_concepts, parts["train"].class_concepts)
    # Of clark nevi the training images are 0, 1 and 9, of which the first has no network; the test has none of them.
    absent = data.concept_names.index("pigment_network::absent")
    assert parts["train"].class_concepts[1, absent] == pytest.approx(1 / 3)
    # Without `concepts`, the score of Derm7pt is no concept.
    with pytest.raises(ValueError, match=r"table\.csv, line 3: expected .*case_num"):
        ConceptCSV(derm7pt / "meta/table.csv", derm7pt / "images")


@pytest.mark.parametrize("kind", ["csv", "parquet", "categories"])
def test_what_columns_become(write, kind: str) -> None:
    table = write()
    if kind != "csv":
        frame = pd.read_csv(table).astype({"red": bool})
        table = table.with_suffix(".parquet")
        (frame.astype({"shape": "category"}) if kind == "categories" else frame).to_parquet(table)
    data = ConceptCSV(table)
    assert (data.class_names, data.concept_names) == (["cat", "dog"], ["red", "shape::long", "shape::round"])
    assert data.concept_labels.tolist() == [[1, 0, 1], [0, 1, 0], [1, 1, 0], [1, 1, 0]]
    assert data.labels.tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(data.class_concepts, torch.tensor([[0.5, 0.5, 0.5], [1, 1, 0]]))
    assert data[3].image.shape == (3, 10, 12)
    torch.testing.assert_close(data[3].image, torch.full((3, 10, 12), 30 / 255))
    assert data[3].points.shape == (0, 1, 2)
    assert data.part_of_concept.tolist() == [-1, -1, -1]
    train, test = (ConceptCSV(table, split=split) for split in ("train", "test"))
    assert ([path.name for path in train.image_paths], len(test)) == (["0.png", "1.png", "1.png"], 1)
    assert data.training_concepts is None
    torch.testing.assert_close(test.training_concepts, train.class_concepts)
    # The test has no cat: the shares are those of all cats.
    torch.testing.assert_close(test.class_concepts, data.class_concepts)


def test_columns_by_name_and_drawn_splits(write) -> None:
    table = write(["file_a,kind,is_red,other", *(row.rpartition(",")[0] for row in ROWS[1:])])
    arguments = {"image": "file_a", "label": "kind"}
    data = ConceptCSV(table, **arguments, concepts="is_*")
    assert data.concept_names == ["is_red"]
    parts = [ConceptCSV(table, **arguments, split=split, test_share=0.5, seed=3) for split in ("train", "test")]
    assert [part.labels.tolist() for part in parts] == [[0, 1], [0, 1]]
    assert sorted(parts[0].image_paths + parts[1].image_paths) == sorted(data.image_paths)
    drawn = {tuple(ConceptCSV(table, **arguments, split="test", seed=seed).image_paths) for seed in range(9)}
    assert len(drawn) > 1
    with pytest.raises(ValueError, match="`split`"):
        ConceptCSV(table, **arguments, split="valid")


def test_classes_that_are_numbers_are_in_their_order(write) -> None:
    rows = [ROWS[1].replace(",cat", ",10"), ROWS[2].replace(",cat", ",2"), ROWS[3].replace(",dog", ",9")]
    table = write([ROWS[0], *rows, ROWS[4].replace(",dog", ",2")])
    data = ConceptCSV(table)
    assert (data.class_names, data.labels.tolist()) == (["2", "9", "10"], [2, 0, 1, 0])


@pytest.mark.parametrize("empty", ["", "NaN", "N/A"])
def test_unknown_labels_are_refused_or_left_out(write, empty: str) -> None:
    table = write(edited(2, f"cat/1.png,cat,{empty},long,train"))
    with pytest.raises(ValueError, match=r"1 of 4 images have empty cells, in the columns 'red'; the first is line 3"):
        ConceptCSV(table)
    with pytest.warns(UserWarning, match=r"table\.csv: 1 of 4 images are left out"):
        data = ConceptCSV(table, unknown="images")
    assert [path.parent.name for path in data.image_paths] == ["cat", "dog", "dog"]
    assert data.concept_labels.tolist() == [[1, 0, 1], [1, 1, 0], [1, 1, 0]]
    with pytest.warns(UserWarning, match="1 of 3 concepts are left out"):
        data = ConceptCSV(table, unknown="concepts")
    assert (data.concept_names, len(data)) == (["shape::long", "shape::round"], 4)
    # Those of other splits too.
    with pytest.warns(UserWarning, match="1 of 3 concepts"):
        assert len(ConceptCSV(table, unknown="concepts", split="test").concept_names) == 2
    table = write(edited(2, "cat/1.png,cat,1,,train"))
    with pytest.warns(UserWarning, match="2 of 3 concepts"):
        assert ConceptCSV(table, unknown="concepts").concept_names == ["red"]


def test_a_column_without_labels(write) -> None:
    table = write([f"{row},{'smell' if row is ROWS[0] else ''}" for row in ROWS])
    with pytest.raises(ValueError, match="images of which all labels are known but none is left"):
        ConceptCSV(table, unknown="images")
    with pytest.warns(UserWarning, match="1 of 4 concepts"):
        assert len(ConceptCSV(table, unknown="concepts").concept_names) == 3


def test_boxes_cut_images(tmp_path: Path) -> None:
    pixels = np.arange(10 * 12 * 3, dtype=np.uint8).reshape(10, 12, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    table = tmp_path / "table.csv"

    def read(*boxes: str, **arguments) -> ConceptCSV:
        rows = [f"a.png,{k},1,{box}" for k, box in enumerate(boxes)]
        table.write_text("\n".join(["image,class,red,x,y,width,height", *rows]))
        return ConceptCSV(table, box=("x", "y", "width", "height"), **arguments)

    # The same image, twice.
    data = read("1,2,4,3", "8.0,7,4,3")
    assert data.concept_names == ["red"]
    for sample, (x, y) in zip((data[0], data[1]), ((1, 2), (8, 7)), strict=True):
        np.testing.assert_array_equal((sample.image.permute(1, 2, 0) * 255).round(), pixels[y : y + 3, x : x + 4])
    assert read("1,2,4,3", "0,0,5,5", image_size=8)[1].image.shape == (3, 8, 8)
    for boxes, message in (
        (("1,2,4,3", "0,0,5,5"), r"Expected images of one size .*\(3, 4\).*\(5, 5\)"),
        (("1,2,4,3", "9,7,4,3"), "line 3: expected a box inside the image, 12 wide and 10 high"),
        (("1,2,4,9",), "line 2: expected a box inside"),
        (("-1,2,4,3",), "line 2: expected a box inside"),
        (("1,2,0,3",), "line 2: expected a box inside"),
        (("1.5,2,4,3",), "line 2: expected a whole number in column 'x'"),
        (("1,2,4,",), "line 2: expected a whole number in column 'height'"),
        (("1,2,4,3", "1,2,4,3"), r"line 3: expected one row for each image \(this one is on line 2 too\)"),
    ):
        with pytest.raises(ValueError, match=message):
            read(*boxes)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=turned)
    with pytest.raises(ValueError, match="line 2: expected a box on an image that is stored upright"):
        read("1,2,4,3")


def test_masks_go_the_way_of_the_image(tmp_path: Path) -> None:
    paint(tmp_path / "a.png")
    mask = np.zeros((10, 12), dtype=np.uint8)
    mask[2:4, 1:3] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    table = tmp_path / "table.csv"
    table.write_text("image,class,red,mask,x,y,w,h\na.png,0,1,mask.png,0,2,6,4")
    arguments = {"mask": "mask", "concepts": "red"}
    torch.testing.assert_close(ConceptCSV(table, **arguments).load_mask(0), torch.from_numpy(mask // 255)[None])
    flip = v2.Compose([v2.RandomHorizontalFlip(p=1), v2.Normalize([0.5] * 3, [0.5] * 3)])
    box = ("x", "y", "w", "h")
    data = ConceptCSV(table, **arguments, box=box, image_size=(8, 12), transform=flip)
    expected = torch.zeros(1, 8, 12, dtype=torch.uint8)
    expected[:, :4, 6:10] = 1  # twice as large, mirrored
    torch.testing.assert_close(data.load_mask(0), expected)
    assert data.load_mask(0).shape[1:] == data[0].image.shape[1:]
    torch.testing.assert_close(data.select("red").load_mask(0), expected)
    with pytest.raises(IndexError, match="`index`"):
        data.load_mask(1)
    with pytest.raises(TypeError, match="`transform`"):
        ConceptCSV(table, **arguments, transform=lambda image: image).load_mask(0)
    with pytest.raises(ValueError, match="`mask` to name a column of the table"):
        ConceptCSV(table, concepts="red").load_mask(0)
    paint(tmp_path / "mask.png", size=(12, 11))
    with pytest.raises(ValueError, match=r"mask\.png to have .* \(10, 12\), as its image, but got \(11, 12\)"):
        ConceptCSV(table, **arguments).load_mask(0)
    (tmp_path / "mask.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"column 'mask' .*mask\.png"):
        ConceptCSV(table, **arguments)


def test_a_box_is_a_mask_that_is_one_inside(tmp_path: Path) -> None:
    paint(tmp_path / "a.png")
    paint(tmp_path / "b.png")
    table = tmp_path / "table.csv"
    header = "image,class,red,x,y,w,h,left,top,across,down,split"
    table.write_text(f"{header}\na.png,0,1,3,2,4,5,2,0,8,10,train\nb.png,1,1,0,0,12,10,2,0,8,10,test")
    columns, cut = ("x", "y", "w", "h"), ("left", "top", "across", "down")
    expected = torch.zeros(2, 1, 10, 12, dtype=torch.bool)
    expected[0, :, 2:7, 3:7], expected[1] = True, True
    data = ConceptCSV(table, mask=columns, concepts="red")
    assert torch.equal(data.regions, expected)
    assert (data.part_names, data.part_of_concept.tolist(), data.mask_paths) == (["object"], [0], None)
    assert torch.equal(data.select(["red"]).regions, expected)
    assert torch.equal(ConceptCSV(table, mask=columns, concepts="red", split="test").regions, expected[1:])
    # It is cut, scaled and mirrored as the image.
    small = ConceptCSV(table, mask=columns, box=cut, concepts="red", image_size=(20, 16))
    twice = expected[..., 2:10].repeat_interleave(2, 2).repeat_interleave(2, 3)
    assert torch.equal(small.regions, twice)
    assert ConceptCSV(table, concepts="red").regions is None
    for line, message in (("3,2,40,5", "line 2: expected a box inside the image"), ("3,2,a,5", "whole number")):
        table.write_text(f"{header}\na.png,0,1,{line},2,0,8,10,train")
        with pytest.raises(ValueError, match=message):
            ConceptCSV(table, mask=columns, concepts="red")
    for wrong in (("x", "y"), ("x", "y", "w", "height")):
        with pytest.raises(ValueError, match="`mask` to"):
            ConceptCSV(table, mask=wrong)


def disc(radius: float, scale: int = 1) -> np.ndarray:
    y, x = (np.indices((32 * scale, 32 * scale)) + 0.5) / scale - 16.2
    return (255 * (x**2 + y**2 < radius**2)).astype(np.uint8)


SMOOTH = {radius: disc(radius, 8).reshape(32, 8, 32, 8).mean((1, 3)).astype(np.uint8) for radius in (2, 5, 12)}
PHOTOGRAPH = np.random.default_rng(0).integers(0, 256, (32, 32)).astype(np.uint8)


@pytest.mark.parametrize(
    ("pixels", "marked"),
    [
        (disc(5), disc(5) > 0),
        (disc(5) // 255, disc(5) > 0),  # 0 and 1
        (disc(5) // 255 * 40 + 20, disc(5) > 0),
        (np.zeros((32, 32)), np.zeros((32, 32))),
        (np.ones((32, 32)), np.ones((32, 32))),
        *((smooth, smooth >= 128) for smooth in SMOOTH.values()),
        (255 - SMOOTH[5], SMOOTH[5] < 128),
    ],
)
def test_what_mask_images_mark(tmp_path: Path, pixels: np.ndarray, marked: np.ndarray) -> None:
    paint(tmp_path / "a.png", size=(32, 32))
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "mask.png")
    (tmp_path / "table.csv").write_text("image,class,red,mask\na.png,0,1,mask.png")
    found = ConceptCSV(tmp_path / "table.csv", mask="mask").load_mask(0)[0]
    np.testing.assert_array_equal(found, marked)


@pytest.mark.parametrize("quality", [30, 75])
def test_masks_written_as_jpeg(tmp_path: Path, quality: int) -> None:
    paint(tmp_path / "a.png", size=(32, 32))
    Image.fromarray(disc(8)).save(tmp_path / "mask.jpg", quality=quality)
    (tmp_path / "table.csv").write_text("image,class,red,mask\na.png,0,1,mask.jpg")
    found = ConceptCSV(tmp_path / "table.csv", mask="mask").load_mask(0)[0].numpy()
    assert (found != disc(8) // 255).sum() <= 8


@pytest.mark.parametrize(
    "pixels",
    [PHOTOGRAPH, PHOTOGRAPH // 2, np.arange(1024).reshape(32, 32) % 5, PHOTOGRAPH // 4 + 192],
    ids=["photograph", "dark", "labels", "bright"],
)
def test_photographs_and_labels_are_no_masks(tmp_path: Path, pixels: np.ndarray) -> None:
    paint(tmp_path / "a.png", size=(32, 32))
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "mask.png")
    (tmp_path / "table.csv").write_text("image,class,red,mask\na.png,0,1,mask.png")
    with pytest.raises(ValueError, match=r"mask\.png to be of two values, or black and white .* Is it a photograph"):
        ConceptCSV(tmp_path / "table.csv", mask="mask").load_mask(0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (edited(0, "image,class,red,red,split"), "columns of different names but got 'red' twice"),
        (edited(0, "photo,class,red,shape,split"), "`image` to name a column of .*'image_path'.*none among 'photo', "),
        (edited(0, "image,class,red,label,split"), r"`label` to name .* but got several: \['class', 'label'\]"),
        (edited(0, "image,class,shape::long,shape,split"), "concepts of different names but got shape::long twice"),
        (edited(3, "dog/0.png,dog,2,long,test"), "line 4: expected 0, 1 or nothing in column 'red'.* got '2'"),
        (edited(3, "dog/0.png,dog,maybe,long,test"), "line 4: expected 0, 1 or nothing .* got 'maybe'"),
        (edited(3, "dog/0.png,,1,long,test"), "line 4: expected a text in column 'class'"),
        (edited(3, "dog/0.png,dog,1,long,"), "line 4: expected a text in column 'split'"),
        (edited(3, "dog/0.png,dog,1,long"), "line 4: expected 5 columns"),
        (edited(3, "./cat/0.png,dog,1,long,test"), r"line 4: expected one row for each image \(this one is on line 2"),
        (edited(3, f"dog/0.png,dog,1,{'a' * 101},test"), "at most 100 different texts of at most 100 characters"),
        (edited(3, f"dog/0.png,dog,1,{'a' * 200_000},test"), "line .: cannot be read as CSV"),
        (edited(3, "../secret.png,dog,1,long,test"), "line 4: expected the path of a file inside"),
        (edited(3, "/etc/passwd,dog,1,long,test"), "line 4: expected the path of a file inside"),
        (ROWS[:1], "at least one row"),
        ([], "`image` to name a column"),
    ],
)
def test_bad_tables_are_refused_by_place(write, rows: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ConceptCSV(write(rows))
    assert len(str(caught.value)) < 1000


def test_many_texts_are_notes(write) -> None:
    lines = [f"cat/{i}.png,cat,1,note {i},train" for i in range(101)]
    with pytest.raises(ValueError, match=r"at most 100 different texts .* column 'shape' but got 101.*`concepts`"):
        ConceptCSV(write([ROWS[0], *lines]))


def test_other_image_files_are_no_concepts(write) -> None:
    # Derm7pt has two photographs of each case; with few rows their names would be a concept each.
    table = write([ROWS[0].replace("shape", "clinic"), "cat/0.png,cat,1,a/0.PNG,train", "dog/0.png,dog,0,,train"])
    with pytest.raises(ValueError, match=r"in column 'clinic' but got names of images, such as 'a/0\.PNG'.*`concepts`"):
        ConceptCSV(table)
    assert ConceptCSV(table, concepts="red").concept_names == ["red"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": "photo"}, "`image` to be one of"),
        ({"label": "clas"}, "`label` .* Did you mean 'class'"),
        ({"split_column": "fold"}, "`split_column`"),
        ({"split": "valid"}, r"`split` to be one of \['test', 'train'\]"),
        ({"concepts": "class"}, "`concepts` to name columns"),
        ({"concepts": "colour"}, "`concepts` to hold names or patterns"),
        ({"unknown": "zero"}, "`unknown`"),
        ({"box": "xywh"}, "`box` to name the columns of x, y, width, height"),
        ({"box": ("x", "y", "width", "height")}, "`box` to be one of"),
        ({"mask": "mask"}, "`mask` to be one of"),
        ({"test_share": 1}, "`test_share`"),
        ({"image_size": 0}, "`image_size`"),
    ],
)
def test_bad_arguments_are_refused(write, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConceptCSV(write(), **arguments)


def test_missing_files_are_named(write, tmp_path: Path) -> None:
    table = write()
    for changes in ({"table": "nowhere.csv"}, {"images": "nowhere"}):
        with pytest.raises(FileNotFoundError, match=f"`{next(iter(changes))}`"):
            ConceptCSV(**{"table": table} | {name: tmp_path / value for name, value in changes.items()})
    (tmp_path / "dog/1.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"column 'image' of .* but 1 of 4 are missing: dog/1\.png"):
        ConceptCSV(table)
    # Those of another split are not wanted.
    assert len(ConceptCSV(table, split="test")) == 1


def test_texts_that_spreadsheets_execute_are_texts(write) -> None:
    data = ConceptCSV(write(edited(1, "cat/0.png,cat,1,=1+1,train")))
    assert data.concept_names == ["red", "shape::=1+1", "shape::long"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1], [0]]), "column 'red' holds list"),
        (pa.array([b"a", b"b"]), "column 'red' holds binary"),
        # Read as a dictionary, or a text that all rows share would be there for each of them.
        (pa.array(["x" * 200_000] * 5), "more than 131,072 char"),
    ],
    ids=["lists", "bytes", "long"],
)
def test_parquet_columns_of_another_kind_are_refused(tmp_path: Path, column: pa.Array, message: str) -> None:
    n = len(column)
    table = pa.table({"image": [f"{i}.png" for i in range(n)], "class": ["a"] * n, "red": column})
    pq.write_table(table, tmp_path / "table.parquet")
    with pytest.raises(ValueError, match=rf"table\.parquet cannot be read .*{message}"):
        ConceptCSV(tmp_path / "table.parquet")


def test_parquet_files_of_too_many_cells_are_refused(write, monkeypatch) -> None:
    # A few kB hold millions of cells that are the same.
    table = write().with_suffix(".parquet")
    pd.read_csv(write()).to_parquet(table)
    assert len(ConceptCSV(table)) == 4
    for name, limit, message in (("MAX_CELLS", 19, "more than 19 cells"), ("MAX_ROWS", 3, "more than 3 rows")):
        with monkeypatch.context() as patch:
            patch.setattr(tables, name, limit)
            with pytest.raises(ValueError, match=message):
                ConceptCSV(table)
    # Pages say how large they become, before they are unpacked.
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "MAX_BYTES", 20)
        patch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("unpacked"))
        with pytest.raises(ValueError, match="unpack to more than 20 bytes"):
            ConceptCSV(table)
    monkeypatch.setattr(concept_csv, "MAX_CELLS", 3)
    with pytest.raises(ValueError, match="at most 3 labels"):
        ConceptCSV(write())


def test_images_of_different_sizes(write, tmp_path: Path) -> None:
    paint(tmp_path / "dog/1.png", size=(5, 6))
    with pytest.raises(ValueError, match=r"1\.png has \(6, 5\)\. Give `image_size`"):
        ConceptCSV(write())
    assert ConceptCSV(write(), image_size=4)[3].image.shape == (3, 4, 4)
