"""A user's own folder of images with tables."""

import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2

from quantus_concepts.datasets.birds.concept_folder import ConceptFolder

CLASSES = ("bird", "cat", "dog")
PER_CLASS = "class,fur,wings,ear::pointed\nbird,0,0.9,0.2\ncat,1,0,0.5\ndog,1,0,0.4\n"
#: In another order, with the byte order mark of spreadsheets.
SHUFFLED = "\ufeffclass,fur,wings,ear::pointed\ndog,1,0,0.4\nbird,0,0.9,0.2\n\n cat , 1,0,0.5\n"
PARTS = "image,part,x,y\ncat/0.png,ear,3,4\ncat/0.png,ear,10,4.5\ncat/0.png,tail,1,1\nbird/2.png,ear,0,9\n"


def _paint(path, value, size=(12, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value,) * 3).save(path)


def _paint_all(folder, **counts):
    """Write images of each class: in the folder itself, or in one for each split."""
    for split, (first, count) in counts.items():
        for k, name in enumerate(CLASSES):
            for i in range(first, first + count):
                suffix = "jpg" if i > 2 else "png"
                _paint(folder / split.removeprefix("all") / name / f"{i}.{suffix}", 40 * k + 10 * i)
    return folder


@pytest.fixture
def root(tmp_path):
    return _paint_all(tmp_path / "images", all=(0, 4))


@pytest.fixture
def split_root(tmp_path):
    return _paint_all(tmp_path / "split", train=(0, 3), test=(1, 2))


@pytest.fixture
def table(tmp_path):
    def write(text, name="table.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def _per_image(values):
    return "image,fur,wings\n" + "".join(f"{name},{a},{b}\n" for name, (a, b) in values.items())


@pytest.mark.parametrize("text", [PER_CLASS, SHUFFLED])
def test_table_per_class(root, table, text):
    data = ConceptFolder(root, table(text))
    assert data.class_names == list(CLASSES)
    assert data.concept_names == ["fur", "wings", "ear::pointed"]
    torch.testing.assert_close(data.class_concepts, torch.tensor([[0.0, 0.9, 0.2], [1.0, 0.0, 0.5], [1.0, 0.0, 0.4]]))
    assert data.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    # At least one half is present.
    assert data.concept_labels[::4].tolist() == [[0, 1, 0], [1, 0, 1], [1, 0, 0]]
    assert [path.name for path in data.image_paths[:4]] == ["0.png", "1.png", "2.png", "3.jpg"]
    image, label, concepts, points = data[5]
    assert (label, concepts.tolist(), points.shape) == (1, [1, 0, 1], (0, 1, 2))
    torch.testing.assert_close(image, torch.full((3, 10, 12), 50 / 255))


def test_table_per_image_with_split_folders(split_root, table):
    values = {}
    for split, names in (("train", "012"), ("test", "12")):
        values |= {f"{split}/{name}/{i}.png": (int(split == "test"), int(i == "1")) for name in CLASSES for i in names}
    path = table(_per_image(values))
    train, test, both = (ConceptFolder(split_root, path, split=split) for split in ("train", "test", None))
    assert train.concept_labels.tolist() == [[0, 0], [0, 1], [0, 0]] * 3
    assert test.concept_labels.tolist() == [[1, 1], [1, 0]] * 3
    # Shares among the training images, for both splits; among all with no split.
    torch.testing.assert_close(train.class_concepts, torch.tensor([[0.0, 1 / 3]] * 3))
    members = torch.nn.functional.one_hot(test.labels, 3).float()
    torch.testing.assert_close(test.class_concepts, members.T @ test.concept_labels / members.sum(0)[:, None])
    torch.testing.assert_close(both.class_concepts, torch.tensor([[0.4, 0.4]] * 3))


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
    drawn = set()
    for seed in (0, 1, 2, 2):
        parts = [ConceptFolder(root, path, split=split, seed=seed) for split in ("train", "test")]
        assert [p.labels.bincount().tolist() for p in parts] == [[3, 3, 3], [1, 1, 1]]
        assert sorted(parts[0].image_paths + parts[1].image_paths) == ConceptFolder(root, path).image_paths
        drawn.add(tuple(parts[1].image_paths))
    assert 1 < len(drawn) < 4
    for split, share, count in (("test", 0.5, 2), ("train", 0.99, 1)):
        assert ConceptFolder(root, path, split=split, test_share=share).labels.bincount().tolist() == [count] * 3


def test_points_follow_image_size_and_transform(root, table):
    data = ConceptFolder(root, table(PER_CLASS), table(PARTS, "parts.csv"))
    assert data.part_names == ["ear", "tail"]
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


def test_images_of_different_sizes(root, table):
    _paint(root / "cat" / "9.png", 7, size=(20, 30))
    path = table(PER_CLASS)
    with pytest.raises(ValueError, match=r"9\.png has \(30, 20\)\. Give `image_size`"):
        ConceptFolder(root, path)
    assert ConceptFolder(root, path, image_size=16)[8].image.shape == (3, 16, 16)
    assert ConceptFolder(root, path, transform=v1.CenterCrop(8))[8].image.shape == (3, 8, 8)


@pytest.mark.parametrize("as_file", [False, True])
def test_parts_of_concepts_by_hand(root, table, as_file):
    parts = table("concept,part\nwings,tail\nfur,ear\n", "of.csv") if as_file else {"wings": "tail", "fur": "ear"}
    data = ConceptFolder(root, table(PER_CLASS), table(PARTS, "parts.csv"), part_of_concept=parts)
    assert data.part_of_concept.tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class,fur,fur\n", "line 1: expected one column for each concept"),
        ("class,fur\ncow,1\n", "line 2: expected a class that has a folder"),
        ("class,fur\nbird,1\nbird,0\n", "line 3: expected one row for each class"),
        ("class,fur\nbird,1\ncat,nan\n", "line 3: expected a number from 0 to 1"),
        ("class,fur\nbird,1\ndog,0\n", "line 4: expected a row for each class"),
        ("image,fur\nbird/0.png,0.5\n", "line 2: expected 0 or 1"),
    ],
)
def test_a_bad_row_of_the_concept_table_is_named(root, table, text, message):
    with pytest.raises(ValueError, match=message):
        ConceptFolder(root, table(text))


@pytest.mark.parametrize(
    ("text", "part_of_concept", "message"),
    [
        (PARTS + "cow/0.png,ear,1,1\n", None, "line 6: expected the path of an image"),
        (PARTS[: PARTS.index("\n") + 1], None, "line 2: expected at least one row"),
        (PARTS + "cat/0.png,,1,1\n", None, "line 6: expected the name of a part"),
        (PARTS + "cat/0.png,ear,12,1\n", None, "line 6: expected x inside the image, from 0 to 11"),
        (PARTS.replace("ear", "nose"), None, r"concepts named after the parts in .*`part_of_concept`"),
        (PARTS, {"fin": "ear"}, "`part_of_concept` to hold a known concept"),
        (PARTS, {"fur": "skin"}, "`part_of_concept` to hold a known part"),
        (PARTS, "concept,part\nfur,ear\nfur,tail\n", "of.csv, line 3, to name another concept"),
        (None, {"fur": "ear"}, "`parts`"),
    ],
)
def test_bad_parts_are_named(root, table, text, part_of_concept, message):
    parts = table(text, "parts.csv") if text else None
    part_of_concept = table(part_of_concept, "of.csv") if isinstance(part_of_concept, str) else part_of_concept
    with pytest.raises(ValueError, match=message):
        ConceptFolder(root, table(PER_CLASS), parts, part_of_concept=part_of_concept)


@pytest.mark.parametrize("changes", [{"split": "val"}, {"test_share": 1}, {"image_size": 0}])
def test_settings_out_of_range_are_refused(root, table, changes):
    with pytest.raises(ValueError, match=f"`{next(iter(changes))}`"):
        ConceptFolder(root, table(PER_CLASS), **changes)


@pytest.mark.parametrize("name", ["root", "concepts", "parts"])
def test_missing_files_are_named(root, table, tmp_path, name):
    good = {"root": root, "concepts": table(PER_CLASS), "parts": table(PARTS, "parts.csv")}
    with pytest.raises(FileNotFoundError, match=f"`{name}`"):
        ConceptFolder(**good | {name: tmp_path / "nowhere"})


def test_folders_without_images_are_refused(root, split_root, table, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="there is no folder"):
        ConceptFolder(tmp_path / "empty", table(PER_CLASS))
    (root / "masks").mkdir()
    with pytest.raises(ValueError, match="masks, which is a class, but got none"):
        ConceptFolder(root, table(PER_CLASS))
    (split_root / "test").rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="one folder per class"):
        ConceptFolder(split_root, table(PER_CLASS))
