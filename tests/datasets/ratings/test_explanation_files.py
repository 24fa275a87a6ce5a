"""Explanations on disk, and what may be wrong with them."""

import json

import numpy as np
import pytest
from PIL import Image

from explanation_folders import CONCEPTS, write_folders
from quantus_concepts.datasets.ratings.explanation_files import (
    check_explanations,
    find_explanations,
    problems,
    usable_files,
)


@pytest.fixture
def root(tmp_path):
    return write_folders(tmp_path)


def _files(root, **settings):
    return find_explanations(root / "images", root / "explanations", **settings)


def test_explainers_images_and_labels(root):
    files = check_explanations(_files(root))
    assert [file.explainer for file in files] == ["grad-cam"] * 3 + ["lime_2"] * 3 + ["words"] * 3
    assert [file.modality for file in files] == ["map"] * 6 + ["concepts"] * 3
    assert [file.label for file in files[:3]] == ["cat", "dog", "bird"]
    assert problems(files) == ""
    explanations = [file.read() for file in usable_files(files)]
    np.testing.assert_array_equal(explanations[4].map, np.load(root / "explanations" / "lime_2" / "pets_001_dog.npy"))
    assert explanations[4].image.shape == (3, 20, 20)
    assert explanations[7].values == CONCEPTS | {"part 1": 1.0}


def test_labels_come_from_the_name_of_the_explanation_of_the_image_or_a_file(root, tmp_path):
    file = root / "explanations" / "lime_2" / "pets_001_dog.npy"
    file.rename(file.with_name("pets_001_big_goat.npy"))
    goat = next(file for file in _files(root) if file.path.stem == "pets_001_big_goat")
    assert (goat.label, goat.true_label, goat.image.name) == ("big_goat", "dog", "pets_001_dog.png")
    of_images = {file.path.stem: file.label for file in _files(root, labels_from="image-name")}
    assert (of_images["pets_001_big_goat"], of_images["pets_000_cat"]) == ("dog", "cat")
    assert {file.label for file in _files(root, labels_from="none")} == {""}
    table = tmp_path / "labels.csv"
    table.write_text("image,label,true_label\npets_000_cat.png,lion,tiger\npets_001_dog,wolf,\n")
    files = _files(root, labels_from=str(table))
    assert [(file.label, file.true_label) for file in files[:2]] == [("lion", "tiger"), ("wolf", "dog")]
    assert files[2].note == "not in the file of labels"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("picture,label\na,b\n", "expected the header 'image,label'"),
        # The last of two rows for one image won without a word.
        ("image,label\na,cat\nb,dog\na,bird\n", "line 4: expected an image that no other line names"),
        ("image,label,true_label\na,cat,\nb,dog\n", "line 3: expected 3 columns"),
    ],
)
def test_faulty_files_of_labels_are_named(root, tmp_path, text, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(ValueError, match=f"labels.csv.*{message}"):
        _files(root, labels_from=str(tmp_path / "labels.csv"))


def test_small_values_may_mean_important(root):
    assert {file.ascending for file in _files(root, ascending=["words"]) if file.explainer == "words"} == {True}


def test_images_that_are_missing_broken_or_several_are_noted(root):
    for name in ("pets_009_cat", "nameless", "pets_001_fox"):
        np.save(root / "explanations" / "lime_2" / f"{name}.npy", np.eye(3))
    (root / "explanations" / "words" / "pets_009_cat.json").write_text(json.dumps(CONCEPTS))
    (root / "images" / "pets_002_bird.png").write_bytes(b"no image")
    Image.new("RGB", (4, 4)).save(root / "images" / "pets_001_wolf.png")
    text = problems(check_explanations(_files(root)))
    assert "lime_2/pets_009_cat.npy (no image called pets_009_cat or pets_009_*)" in text
    assert "lime_2/nameless.npy (Expected the name of a file" in text
    assert "lime_2/pets_002_bird.npy (Image cannot be read" in text
    assert "lime_2/pets_001_fox.npy (several images: pets_001_dog.png, pets_001_wolf.png)" in text
    assert "pets_001_dog.npy" not in text
    # Concepts can be scored without their image, but not shown to people.
    assert "words/pets_009_cat.json" not in text
    assert "words/pets_009_cat.json (no image" in problems(_files(root, with_images=True))


def test_nothing_to_work_with_is_refused(root, tmp_path):
    empty, images, explanations = tmp_path / "empty", root / "images", root / "explanations"
    empty.mkdir()
    for folders, name in (((empty, explanations), "images"), ((images, empty), "explanations")):
        with pytest.raises(ValueError, match=f"`{name}`.*holds none"):
            find_explanations(*folders)
    with pytest.raises(FileNotFoundError, match="`images` to name a folder"):
        find_explanations(tmp_path / "nowhere", explanations)
    with pytest.raises(ValueError, match="`ascending`"):
        _files(root, ascending=["word"])
    with pytest.raises(ValueError, match="file-name, image-name, none or a CSV file"):
        _files(root, labels_from=str(tmp_path / "none.csv"))
    for file in explanations.rglob("*.*"):
        file.write_bytes(b"broken")
    with pytest.raises(ValueError, match="None of the 9 explanations can be used"):
        usable_files(check_explanations(_files(root)))


def test_drawings(root):
    folder = root / "explanations" / "drawn"
    folder.mkdir()
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    Image.fromarray(pixels).save(folder / "pets_000_cat.png")
    Image.new("RGB", (4, 4), "white").save(folder / "pets_001_dog.png")
    # A map of which there is a drawing is not an explanation of its own.
    Image.fromarray(pixels).save(root / "explanations" / "lime_2" / "pets_000_cat.png")
    files = check_explanations(_files(root))
    drawings = [file for file in files if file.explainer == "drawn"]
    assert [file.modality for file in drawings] == ["drawing"] * 2
    assert [file.note for file in drawings] == ["", "the drawing is of one colour"]
    picture = drawings[0].read().picture
    np.testing.assert_allclose(picture.permute(1, 2, 0) * 255, pixels, atol=1e-4)
    noted = {file.path.name: file.note for file in files if file.explainer == "lime_2" and file.note}
    assert noted == {"pets_000_cat.npy": "its drawing pets_000_cat.png is taken"}
    # In a folder that holds the images too, they are no drawings.
    np.save(root / "images" / "pets_000_cat.npy", np.eye(4))
    assert [file.path.name for file in find_explanations(root / "images", root / "images")] == ["pets_000_cat.npy"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.full((5, 5), 0.5, dtype=np.float32), "the map is constant: every value is 0.5"),
        (np.array([[np.nan, 1.0], [2.0, np.inf]]), "2 of the map's 4 values are NaN or infinite"),
        (np.random.default_rng(0).random((4, 16)), "map of 4 x 16 for an image of 20 x 16"),
        ('{" ": 1, "fur": 2}', "has no name"),
        ('{"beak": 0, "fur": 0}', "every value is 0"),
    ],
    ids=range(5),
)
def test_one_bad_file_is_noted_and_the_others_stay(root, content, message):
    words, maps = (root / "explanations" / name for name in ("words/pets_000_cat.json", "grad-cam/pets_000_cat.npy"))
    if isinstance(content, str):
        words.write_text(content)
    else:
        np.save(maps, content)
    files = check_explanations(_files(root))
    (bad,) = (listed for listed in files if listed.note)
    assert bad.path == (words if isinstance(content, str) else maps)
    assert message in bad.note
    assert len(usable_files(files)) == 8
