"""CUB-200-2011 in its official layout, on twelve drawn images."""

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from fixtures_cub import write_cub
from quantus_concepts.datasets.birds.attributes import PARTS
from quantus_concepts.datasets.birds.cub200 import CBM_ATTRIBUTES, CUB200
from quantus_concepts.datasets.transforms import default_transform

MARKS = "attributes/image_attribute_labels.txt"
TABLE = "attributes/class_attribute_labels_continuous.txt"


@pytest.fixture(scope="module")
def cub(tmp_path_factory):
    return write_cub(tmp_path_factory.mktemp("cub"))


def _marks(cub):
    rows = [line.split()[:4] for line in (cub / MARKS).read_text().splitlines()]
    return np.array(rows, dtype=int).reshape(12, 312, 4)


def test_concepts_of_each_part_are_those_of_the_papers_tables_4_and_5(cub):
    data = CUB200(cub)
    assert data.part_names == list(PARTS)
    # 23 concepts of no part, then those of each part.
    assert (data.part_of_concept + 1).bincount().tolist() == [23, 9, 9, 7, 9, 6, 8, 1, 3, 12, 6, 14, 5]
    expected = {
        "beak": "dagger hooked_seabird all-purpose cone about_the_same_as_head shorter_than_head grey black buff",
        "forehead": "eyebrow plain blue brown grey yellow black white",
        "wing": "brown grey yellow black white buff rounded-wings pointed-wings solid spotted striped multi-colored",
        "belly": "brown grey yellow black white buff solid",
    }
    for part, options in expected.items():
        columns = (data.part_of_concept == data.part_names.index(part)).nonzero().ravel().tolist()
        assert [data.concept_names[j].split("::")[1] for j in columns] == options.split()


def test_split_labels_and_marks_are_the_files(cub):
    marks = _marks(cub)[:, list(CBM_ATTRIBUTES), 2]
    train, test = CUB200(cub), CUB200(cub, split="test")
    assert train.labels.tolist() == test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [path.name.split("_")[-1] for path in train.image_paths] == [f"{i}.jpg" for i in (1, 2, 5, 6, 9, 10)]
    np.testing.assert_array_equal(train.concept_labels.numpy(), marks[[0, 1, 4, 5, 8, 9]])
    np.testing.assert_array_equal(test.concept_labels.numpy(), marks[[2, 3, 6, 7, 10, 11]])
    assert train.class_names == ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"]
    assert train.concept_names[0] == "has_bill_shape::dagger"
    assert train.concept_names[-1] == "has_wing_pattern::multi-colored"
    # The continuous table of the classes is the share of marks.
    shares = marks.reshape(3, 4, 112).mean(1)
    for data in (train, test):
        np.testing.assert_allclose(data.class_concepts.numpy(), shares, atol=1e-6)


def test_majority_is_that_of_the_training_marks(cub):
    marks = _marks(cub)[:, list(CBM_ATTRIBUTES)].reshape(3, 4, 112, 4)
    present, certainty = marks[..., 2] == 1, marks[..., 3]
    yes, no = present[:, :2].sum(1), (~present & (certainty != 1))[:, :2].sum(1)  # "not visible" votes for nothing
    # Without any vote the table of the class decides.
    expected = np.where(yes + no > 0, yes >= no, present.mean(1) >= 0.5)
    data = CUB200(cub, split="test", concept_labels="majority", class_concepts="majority")
    np.testing.assert_array_equal(data.class_concepts.numpy(), expected)
    np.testing.assert_array_equal(data.concept_labels.numpy(), expected[[0, 0, 1, 1, 2, 2]])


@pytest.mark.parametrize(
    ("votes", "share", "expected"),
    [
        (("1 3 1.0", "0 4 1.0"), 0, 1),
        (("0 3 1.0", "0 1 1.0"), 100, 0),
        (("1", "0"), 0, 1),
        (("0 0", "0 0"), 100, 0),
        (("0 1 1.0", "0 1 1.0"), 49, 0),
        (("0 1 1.0", "0 1 1.0"), 50, 1),
    ],
    ids=["tie", "absent", "no certainty", "certainty 0", "no vote, table below", "no vote, table at a half"],
)
def test_votes_by_hand(tmp_path, votes, share, expected):
    """Attribute 2, the first concept, of the two training images of the first class; its share in the table."""
    cub = write_cub(tmp_path, extra_columns=False)
    lines = (cub / MARKS).read_text().splitlines()
    for image, vote in enumerate(votes, 1):
        lines[312 * (image - 1) + 1] = f"{image} 2 {vote}"
    if votes == ("1", "0"):
        lines = [" ".join(line.split()[:3]) for line in lines]
    (cub / MARKS).write_text("\n".join(lines))
    rows = [line.split() for line in (cub / TABLE).read_text().splitlines()]
    rows[0][1] = str(share)
    (cub / TABLE).write_text("\n".join(" ".join(row) for row in rows))
    data = CUB200(cub, concept_labels="majority", class_concepts="majority")
    assert data.class_concepts[0, 0] == expected
    assert data.concept_labels[:2, 0].tolist() == [expected] * 2


@pytest.mark.parametrize("labels", ["image", "majority"])
def test_concepts_and_classes_are_chosen_by_name_and_pattern(cub, labels):
    complete = CUB200(cub, "test", labels, class_concepts="majority")
    data = CUB200(cub, "test", labels, None, "majority", concepts="has_wing_*", classes=["003*", "001*"])
    columns = [j for j, name in enumerate(complete.concept_names) if name.startswith("has_wing_")]
    images = [0, 1, 4, 5]
    assert data.concept_names == [complete.concept_names[j] for j in columns]
    assert data.class_names == [complete.class_names[2], complete.class_names[0]]
    assert data.labels.tolist() == [1, 1, 0, 0]
    assert data.image_paths == [complete.image_paths[i] for i in images]
    assert torch.equal(data.concept_labels, complete.concept_labels[images][:, columns])
    assert torch.equal(data.class_concepts, complete.class_concepts[[2, 0]][:, columns])
    assert torch.equal(data.part_of_concept, complete.part_of_concept[columns])
    assert torch.equal(data[2].image, complete[4].image)
    assert torch.equal(data[2].concepts, complete[4].concepts[columns])
    torch.testing.assert_close(data.points, complete.points[images], equal_nan=True)
    selected = complete.select("has_wing_*")
    assert torch.equal(selected.class_concepts, complete.class_concepts[:, columns])
    assert torch.equal(selected.part_of_concept, data.part_of_concept)
    assert torch.equal(selected[4].concepts, data[2].concepts)
    torch.testing.assert_close(selected[4].points, complete[4].points, equal_nan=True)
    with pytest.raises(ValueError, match=r"`concepts` .* none is 'has_beak\*'"):
        complete.select("has_beak*")


def test_points_are_the_visible_parts_left_and_right_taken_together(cub):
    data = CUB200(cub)
    rows = np.array([line.split() for line in (cub / "parts/part_locs.txt").read_text().splitlines()], dtype=float)
    rows = rows.reshape(12, 15, 5)[[0, 1, 4, 5, 8, 9]]
    names = ["back", "beak", "belly", "breast", "crown", "forehead", "nape", "tail", "throat"]
    official = dict(zip(names, [(i,) for i in (1, 2, 3, 4, 5, 6, 10, 14, 15)], strict=True))
    official |= {"eye": (7, 11), "leg": (8, 12), "wing": (9, 13)}
    expected = np.full((6, 12, 2, 2), np.nan)
    for p, name in enumerate(PARTS):
        for q, place in enumerate(official[name]):
            seen = rows[:, place - 1, 4] == 1
            expected[seen, p, q] = rows[seen, place - 1, 2:4]
    assert np.isfinite(expected).sum() > 100
    np.testing.assert_array_equal(data.points.numpy(), expected)


@pytest.mark.parametrize("transform", [None, v2.Compose([v2.RandomHorizontalFlip(p=1), v2.Resize((60, 140))])])
def test_the_beak_is_where_it_is_painted(cub, transform):
    data = CUB200(cub, transform=transform)
    for i in range(len(data)):
        image, label, concepts, points = data[i]
        assert label == int(data.labels[i])
        assert concepts.tolist() == data.concept_labels[i].tolist()
        x, y = points[1, 0].tolist()
        bright = (image.min(0).values > 0.75).nonzero().float().mean(0)
        assert abs(float(bright[1]) - x) < 1
        assert abs(float(bright[0]) - y) < 1
        assert points[1, 1].isnan().all()


@pytest.mark.parametrize(
    ("name", "place", "lines", "message"),
    [
        (MARKS, slice(313, 314), ["2 2 7 3 1.0"], "line 314: expected image 2, attribute 2, present from 0 to 1,"),
        (MARKS, slice(400, 401), [], "line 401: expected image 2, attribute 89, "),
        (MARKS, slice(1000, None), [], "line 1001: expected 3744 rows but the file ends after 1000"),
        ("images.txt", slice(None), [], "images.txt, line 1: expected '1 NAME' but the file is empty"),
        ("classes.txt", slice(2, None), [], "image_class_labels.txt, line 9: expected image 9, class from 1 to 2"),
        ("attributes/attributes.txt", slice(1, 2), ["2 has_size::dagger"], "line 2: expected '2 has_bill_shape'"),
        (
            "attributes/attributes.txt",
            slice(312, 312),
            ["313 a::b"],
            "line 313: expected the end of the file after 312",
        ),
        ("parts/part_locs.txt", slice(16, 17), ["2 2 nan 3.0 1"], "line 17: expected image 2, part 2, x from"),
        (TABLE, slice(1, 2), ["1.0 2.0"], "line 2: expected one of 3 lines of 312 numbers from 0 to 100"),
        ("train_test_split.txt", slice(12), [f"{i} 0" for i in range(1, 13)], "marks no image .* split 'train'"),
    ],
)
def test_a_bad_line_is_named(tmp_path, name, place, lines, message):
    path = write_cub(tmp_path) / name
    rows = path.read_text().splitlines()
    rows[place] = lines
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(ValueError, match=message):
        CUB200(tmp_path)


def test_a_class_without_training_images_has_no_majority(tmp_path):
    split = write_cub(tmp_path) / "train_test_split.txt"
    split.write_text("\n".join(f"{i} {int(i > 4)}" for i in range(1, 13)))
    with pytest.raises(ValueError, match=r"no image of class '001\.Black_footed_Albatross' for training"):
        CUB200(tmp_path, concept_labels="majority")


def test_missing_files_are_listed(tmp_path):
    with pytest.raises(FileNotFoundError, match="`root` to be the folder of CUB-200-2011"):
        CUB200(tmp_path)
    # The folder around it is found, and attributes.txt where the archive has it.
    cub = write_cub(tmp_path, attributes="outside")
    for path in CUB200(tmp_path).image_paths[:2]:
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"2 of 6 are missing: Black_.*_0001_1\.jpg, Black_.*_0002_2\.jpg\."):
        CUB200(tmp_path)
    (cub / "parts" / "part_locs.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"part_locs\.txt"):
        CUB200(tmp_path, split="test")


def test_images_are_scaled_before_the_transform_and_parts_with_them(cub):
    data = CUB200(cub, image_size=(32, 48), transform=v2.RandomHorizontalFlip(p=1))
    by_hand = CUB200(cub, transform=v2.Compose([default_transform((32, 48)), v2.RandomHorizontalFlip(p=1)]))
    assert data[0].image.shape == (3, 32, 48)
    torch.testing.assert_close(data[0].image, by_hand[0].image)
    torch.testing.assert_close(data[0].points, by_hand[0].points, equal_nan=True)


@pytest.mark.parametrize(
    "changes",
    [
        *({"split": "val"}, {"concept_labels": "class"}, {"class_concepts": "image"}, {"image_size": (8, 8, 8)}),
        *({"concepts": "Sparrow"}, {"classes": "Sparrow"}),
    ],
)
def test_unknown_choices_are_refused(cub, changes):
    with pytest.raises(ValueError, match=f"`{next(iter(changes))}`"):
        CUB200(cub, **changes)
