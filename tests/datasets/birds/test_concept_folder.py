"""A user's own folder of images with tables."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2

from quantus_concepts.datasets.birds.concept_folder import ConceptFolder

CLASSES = ("bird", "cat", "dog")
PER_CLASS = "class,fur,wings,ear::pointed\nbird,0,0.9,0.2\ncat,1,0,0.5\ndog,1,0,0.4\n"
PARTS = "image,part,x,y\ncat/0.png,ear,3,4\ncat/0.png,ear,10,4.5\ncat/0.png,tail,1,1\nbird/2.jpg,ear,0,9\n"


def _paint(path, value, size=(12, 10), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    Image.fromarray(np.full((height, width, 3), value, dtype=np.uint8)).convert(mode).save(path)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "images"
    for k, name in enumerate(CLASSES):
        for i in range(4):
            _paint(folder / name / f"{i}.{'png' if i < 2 else 'jpg'}", 40 * k + 10 * i)
    return folder


@pytest.fixture
def split_root(tmp_path):
    folder = tmp_path / "split"
    for split, count in (("train", 3), ("test", 2)):
        for k, name in enumerate(CLASSES):
            for i in range(count):
                _paint(folder / split / name / f"{i if split == 'train' else i + 1}.png", 40 * k + 10 * i)
    return folder


@pytest.fixture
def table(tmp_path):
    def write(text, name="table.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def _per_image(values):
    return "image,fur,wings\n" + "".join(f"{name},{a},{b}\n" for name, (a, b) in values.items())


def test_table_per_class(root, table):
    data = ConceptFolder(root, table(PER_CLASS))
    assert data.class_names == list(CLASSES)
    assert data.concept_names == ["fur", "wings", "ear::pointed"]
    assert len(data) == 12
    expected = torch.tensor([[0.0, 0.9, 0.2], [1.0, 0.0, 0.5], [1.0, 0.0, 0.4]])
    torch.testing.assert_close(data.class_concepts, expected)
    assert data.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    # At least one half is present.
    assert data.concept_labels[::4].tolist() == [[0, 1, 0], [1, 0, 1], [1, 0, 0]]
    assert [path.name for path in data.image_paths[:4]] == ["0.png", "1.png", "2.jpg", "3.jpg"]
    sample = data[5]
    assert sample.label == 1
    assert sample.concepts.tolist() == [1, 0, 1]
    assert sample.points.shape == (0, 1, 2)
    torch.testing.assert_close(sample.image, torch.full((3, 10, 12), 50 / 255))
    assert data.part_names == []
    assert data.part_of_concept.tolist() == [-1, -1, -1]


def test_order_of_rows_and_the_byte_order_mark_of_spreadsheets_do_not_matter(root, table):
    shuffled = "\ufeffclass,fur,wings,ear::pointed\ndog,1,0,0.4\nbird,0,0.9,0.2\n\n cat , 1,0,0.5\n"
    first, second = (ConceptFolder(root, table(text)) for text in (PER_CLASS, shuffled))
    assert first.concept_names == second.concept_names
    torch.testing.assert_close(first.class_concepts, second.class_concepts)


def test_table_per_image_with_split_folders(split_root, table):
    values = {}
    for split, names in (("train", "012"), ("test", "12")):
        for name in CLASSES:
            for i in names:
                values[f"{split}/{name}/{i}.png"] = (int(split == "test"), int(i == "1"))
    path = table(_per_image(values))
    train, test = ConceptFolder(split_root, path, split="train"), ConceptFolder(split_root, path, split="test")
    assert (len(train), len(test)) == (9, 6)
    assert train.concept_labels.tolist() == [[0, 0], [0, 1], [0, 0]] * 3
    assert test.concept_labels.tolist() == [[1, 1], [1, 0]] * 3
    # Shares among the training images, for both splits; among all with no split.
    expected = torch.tensor([[0.0, 1 / 3]] * 3)
    torch.testing.assert_close(train.class_concepts, expected)
    torch.testing.assert_close(test.class_concepts, expected)
    both = ConceptFolder(split_root, path)
    torch.testing.assert_close(both.class_concepts, torch.tensor([[0.4, 0.4]] * 3))
    assert len(both) == 15
    assert all(path.parts[-3] == "test" for path in test.image_paths)


def test_paths_from_the_folder_of_the_split(split_root, table):
    # 0.png is only in train; 1.png and 2.png are in both.
    values = {f"{name}/0.png": (1, 0) for name in CLASSES}
    for split in ("train", "test"):
        values |= {f"{split}/{name}/{i}.png": (0, 1) for name in CLASSES for i in "12"}
    data = ConceptFolder(split_root, table(_per_image(values)), split="train")
    assert data.concept_labels.tolist() == [[1, 0], [0, 1], [0, 1]] * 3
    values["cat/1.png"] = values.pop("train/cat/1.png")
    with pytest.raises(ValueError, match=r"both splits have this one, but got 'cat/1\.png'"):
        ConceptFolder(split_root, table(_per_image(values)))


def test_split_is_drawn_per_class_and_by_seed(root, table):
    path = table(PER_CLASS)
    names = {}
    for seed in range(4):
        parts = [ConceptFolder(root, path, split=split, seed=seed) for split in ("train", "test")]
        assert [p.labels.bincount().tolist() for p in parts] == [[3, 3, 3], [1, 1, 1]]
        names[seed] = [str(p) for p in parts[1].image_paths]
        assert sorted(parts[0].image_paths + parts[1].image_paths) == ConceptFolder(root, path).image_paths
        assert names[seed] == [str(p) for p in ConceptFolder(root, path, split="test", seed=seed).image_paths]
    assert len({tuple(value) for value in names.values()}) > 1
    half = ConceptFolder(root, path, split="test", test_share=0.5)
    assert half.labels.bincount().tolist() == [2, 2, 2]
    most = ConceptFolder(root, path, split="train", test_share=0.99)
    assert most.labels.bincount().tolist() == [1, 1, 1]


def test_points_follow_image_size_and_transform(root, table):
    data = ConceptFolder(root, table(PER_CLASS), table(PARTS, "parts.csv"))
    assert data.part_names == ["ear", "tail"]
    assert data.points.shape == (12, 2, 2, 2)
    assert data.part_of_concept.tolist() == [-1, -1, 0]
    assert data[4].points[0].tolist() == [[3.0, 4.0], [10.0, 4.5]]
    assert data[4].points[1, 0].tolist() == [1.0, 1.0]
    assert data[4].points[1, 1].isnan().all()
    assert data[5].points.isnan().all()
    scaled = ConceptFolder(
        root, table(PER_CLASS), table(PARTS, "parts.csv"), image_size=(20, 24), transform=v2.RandomHorizontalFlip(p=1)
    )
    assert scaled[4].image.shape == (3, 20, 24)
    # Twice as large, (3, 4) becomes (6.5, 8.5); mirrored in 24 pixels, 6.5 becomes 16.5.
    assert scaled[4].points[0, 0].tolist() == [16.5, 8.5]


@pytest.mark.parametrize("as_file", [False, True])
def test_parts_of_concepts_by_hand(root, table, as_file):
    part_of_concept = (
        table("concept,part\nwings,tail\nfur,ear\n", "of.csv") if as_file else {"wings": "tail", "fur": "ear"}
    )
    data = ConceptFolder(root, table(PER_CLASS), table(PARTS, "parts.csv"), part_of_concept=part_of_concept)
    assert data.part_of_concept.tolist() == [0, 1, -1]


def test_images_of_different_sizes(root, table):
    _paint(root / "cat" / "9.png", 7, size=(20, 30))
    path = table(PER_CLASS)
    with pytest.raises(ValueError, match=r"9\.png has \(30, 20\)\. Give `image_size`"):
        ConceptFolder(root, path)
    assert {tuple(sample.image.shape) for sample in ConceptFolder(root, path, image_size=16)} == {(3, 16, 16)}
    assert ConceptFolder(root, path, transform=v1.CenterCrop(8))[8].image.shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class;fur\ncat;1\n", "line 1: expected a header that starts with 'class' or 'image' but got 'class;fur'"),
        ("class,fur,fur\n", "line 1: expected one column for each concept, of another name, .* got 'fur,fur'"),
        ("class,fur\ncow,1\n", "line 2: expected a class that has a folder, of 'bird', 'cat', 'dog', but got 'cow'"),
        ("class,fur\nbird,1\nbird,0\n", r"line 3: expected one row for each class \(this one is on line 2 too\)"),
        ("class,fur\nbird,1\ncat,nan\n", "line 3: expected a number from 0 to 1 in column 'fur' but got 'nan'"),
        ("class,fur\nbird,1\n\ncat,1,0\n", "line 4: expected 2 columns as in the header but got '3 columns'"),
        ("class,fur\nbird,1\ndog,0\n", "line 4: expected a row for each class but the file ends without 'cat'"),
        ("image,fur\nbird/0.png,0.5\n", "line 2: expected 0 or 1 in column 'fur' but got '0.5'"),
    ],
)
def test_a_bad_row_of_the_concept_table_is_named(root, table, text, message):
    with pytest.raises(ValueError, match=message):
        ConceptFolder(root, table(text))


HEAD = "image,part,x,y\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,part,x\n", "line 1: expected the header 'image,part,x,y' but got 'image,part,x'"),
        (HEAD, "line 2: expected at least one row but the file ends here"),
        (HEAD + "cow/0.png,ear,1,1\n", "line 2: expected the path of an image.*but got 'cow/0.png'"),
        (HEAD + "cat/0.png,,1,1\n", "line 2: expected the name of a part but got ''"),
        (HEAD + "cat/0.png,ear,12,1\n", "line 2: expected x inside the image, from 0 to 11, but got '12'"),
        (HEAD + "cat/0.png,nose,1,1\n", r"Expected concepts named after the parts in .*\['nose'\].*`part_of_concept`"),
    ],
)
def test_a_bad_row_of_the_part_table_is_named(root, table, text, message):
    with pytest.raises(ValueError, match=message):
        ConceptFolder(root, table(PER_CLASS), table(text, "parts.csv"))


@pytest.mark.parametrize(
    ("part_of_concept", "message"),
    [
        ({"fin": "ear"}, "`part_of_concept` to hold a known concept, of 'fur', .* but got 'fin'"),
        ({"fur": "skin"}, "`part_of_concept` to hold a known part, of 'ear', 'tail', but got 'skin'"),
        ("concept,part\nfur,ear\nfur,tail\n", "of.csv, line 3, to name another concept but got 'fur' again"),
    ],
)
def test_bad_parts_of_concepts(root, table, part_of_concept, message):
    part_of_concept = part_of_concept if isinstance(part_of_concept, dict) else table(part_of_concept, "of.csv")
    with pytest.raises(ValueError, match=message):
        ConceptFolder(root, table(PER_CLASS), table(PARTS, "parts.csv"), part_of_concept=part_of_concept)


def test_empty_folders(root, table, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"one folder per class in .*empty but there is no folder"):
        ConceptFolder(empty, table(PER_CLASS))
    (root / "masks").mkdir()
    with pytest.raises(ValueError, match=r"images \(\.jpg, \.jpeg, \.png\) in .*masks, which is a class, but got none"):
        ConceptFolder(root, table(PER_CLASS))


def test_half_a_split_is_refused(split_root, table):
    (split_root / "test").rename(split_root.parent / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"one folder per class but got .*test"):
        ConceptFolder(split_root, table(PER_CLASS))


def test_a_class_may_be_called_train(root, table):
    (root / "dog").rename(root / "train")
    data = ConceptFolder(root, table(PER_CLASS.replace("dog", "train")))
    assert data.class_names == ["bird", "cat", "train"]


@pytest.mark.parametrize(
    "changes",
    [{"split": "val"}, {"test_share": 1}, {"image_size": 0}, {"parts": None, "part_of_concept": {"fur": "ear"}}],
)
def test_settings_out_of_range_are_refused(root, table, changes):
    with pytest.raises(ValueError, match=f"`{next(iter(changes))}`"):
        ConceptFolder(root, table(PER_CLASS), **changes)


def test_missing_files_are_named(root, table, tmp_path):
    with pytest.raises(FileNotFoundError, match="`root`"):
        ConceptFolder(tmp_path / "nowhere", table(PER_CLASS))
    with pytest.raises(FileNotFoundError, match="`concepts`"):
        ConceptFolder(root, tmp_path / "nowhere.csv")
    with pytest.raises(FileNotFoundError, match="`parts`"):
        ConceptFolder(root, table(PER_CLASS), tmp_path / "nowhere.csv")
