"""Composed images on disk: the release's layout read, ours written and read again."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from block_sources import Discs, Noise
from quantus_concepts.datasets.scenes.bam_folder import BAMFolder
from quantus_concepts.datasets.scenes.bam_writer import write_bam
from quantus_concepts.datasets.scenes.objects_on_scenes import ObjectsOnScenes

SIZE = 32
OBJECTS = ("dog", "stop_sign")
SCENES = ("bedroom", "track")
# Box of the object in every image of the release below, and its mask in the resolution of a photograph.
BOX = (4, 10, 14, 30)


def _photograph_mask(number):
    mask = np.ones((20 + number % 3, 40), dtype=bool)
    mask[:, : 20 if number % 2 else 10] = False
    mask[0, 0] = True
    return mask


def _save_masks(root, **changes):
    """As the message about pickled masks tells users to."""
    arrays = {str(number): _photograph_mask(number) for number in range(200)}
    np.savez_compressed(root / "obj" / "val_mask.npz", **arrays | changes)


@pytest.fixture
def release(pickled):
    _save_masks(pickled)
    return pickled


@pytest.fixture
def pickled(tmp_path):
    """Two object and two scene classes, numbers 0898 to 0901, in the form of the release."""
    root = tmp_path / "data"
    places = {"train": ("0898", "0899"), "val": ("0900", "0901")}
    lists = {folder: [] for folder in ("obj", "scene", "scene_only")}
    boxes = []
    for o, object_name in enumerate(OBJECTS):
        for s, scene_name in enumerate(SCENES):
            for split, numbers in places.items():
                for number in numbers:
                    name = f"{object_name}-{scene_name}-{number}.jpg"
                    scene = np.full((SIZE, SIZE, 3), 60 + 100 * s, dtype=np.uint8)
                    composed = scene.copy()
                    composed[BOX[0] : BOX[2], BOX[1] : BOX[3]] = 20 + 40 * o
                    for folder, pixels, class_name in (
                        ("obj", composed, object_name),
                        ("scene", composed, scene_name),
                        ("scene_only", scene, scene_name),
                    ):
                        base = root / folder / split / (class_name if split == "train" else "")
                        base.mkdir(parents=True, exist_ok=True)
                        Image.fromarray(pixels).save(base / name, quality=95)
                        if split == "val":
                            lists[folder].append(f"{name} {o if folder == 'obj' else s}\n")
                    if split == "val":
                        boxes.append(f"{name} {','.join(map(str, BOX))}\n")
    masks = np.empty(200, dtype=object)
    masks[:] = [_photograph_mask(number) for number in range(200)]
    for folder, lines in lists.items():
        (root / folder / "val.txt").write_text("".join(sorted(lines)))
        (root / folder / "val_loc.txt").write_text("".join(sorted(boxes)))
        with (root / folder / "val_mask").open("wb") as file:
            np.save(file, masks, allow_pickle=True)
    return root


def test_release_is_read(release):
    data = BAMFolder(release)
    assert data.object_names == list(OBJECTS)
    assert data.scene_names == list(SCENES)
    assert data.names[3] == "dog-track-0901.jpg"
    assert data.object_labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert data.scene_labels.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert (data.split, data.view, data.image_size) == ("test", "os", SIZE)
    assert data.boxes().tolist() == [list(BOX)] * 8
    sample = data[6]
    assert (sample.object_label, sample.scene_label) == (1, 1)
    assert torch.allclose(sample.image[:, 8, 15:25] * 255, torch.tensor(60.0), atol=8)
    assert torch.allclose(sample.image[:, 25, :] * 255, torch.tensor(160.0), atol=8)


def test_number_of_the_mask_is_object_and_last_two_digits(release):
    data = BAMFolder(release)
    masks = data.masks()[:, 0]
    for index, number in ((0, 0), (1, 1), (3, 1), (4, 100), (5, 101), (7, 101)):
        expected = np.zeros((SIZE, SIZE), dtype=bool)
        # The masks are 40 columns wide and are brought to the 20 of the box: 10 or 20 empty ones become 5 or 10.
        expected[4:14, 15 if number % 2 == 0 else 20 : 30] = True
        assert masks[index].tolist() == expected.tolist(), index


def test_views_of_the_release(release):
    data = BAMFolder(release, view="0s")
    assert torch.allclose(data.images([0]).float(), torch.tensor(60.0), atol=3)
    assert torch.equal(data.masks(), data.with_view("os").masks())
    grey = data.with_view("og")
    image, mask, on_scene = grey.images([5])[0], grey.masks([5])[0], data.with_view("os").images([5])[0]
    assert torch.equal(image, on_scene.where(mask, torch.tensor(128, dtype=torch.uint8)))
    assert mask.any()


def test_pickled_masks_are_refused_and_the_way_out_works(pickled):
    with pytest.raises(ValueError, match=r"val_mask are pickled.*runs whatever code") as caught:
        BAMFolder(pickled)
    snippet = str(caught.value).split("\n", 1)[1]
    exec(compile(snippet, "snippet", "exec"), {})  # what the message tells the user to run
    converted = BAMFolder(pickled).masks()
    _save_masks(pickled)
    assert torch.equal(converted, BAMFolder(pickled).masks())


def test_training_images_of_the_release(pickled):
    data = BAMFolder(pickled, split="train")
    assert data.names[:3] == ["dog-bedroom-0898.jpg", "dog-bedroom-0899.jpg", "dog-track-0898.jpg"]
    assert data.scene_labels.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert not data.masks().any()
    assert set(data.boxes().flatten().tolist()) == {-1}
    assert torch.allclose(data.with_view("0s").images([2]).float(), torch.tensor(160.0), atol=3)
    with pytest.raises(ValueError, match=r"masks in .* for the view 'og'"):
        data.with_view("og")
    (pickled / "obj" / "loc.txt").write_text("".join(f"{name} 1,2,3,4\n" for name in data.names))
    assert BAMFolder(pickled, split="train").boxes([0]).tolist() == [[1, 2, 3, 4]]


def test_scaled_to_what_the_network_takes(release):
    data = BAMFolder(release, image_size=56)  # as the release feeds images of 128 px at 224
    box = [int(value * 56 / SIZE) for value in BOX]
    sample = data[0]
    assert sample.box.tolist() == box
    assert sample.image.shape == (3, 56, 56)
    rows, cols = sample.mask[0].any(1).nonzero().flatten(), sample.mask[0].any(0).nonzero().flatten()
    assert (rows[0], rows[-1] + 1, cols[-1] + 1) == (box[0], box[2], box[3])
    small = BAMFolder(release, image_size=2)[0]
    assert small.box.tolist() == [0, 0, 1, 1]


def test_only_the_validation_images_were_downloaded(release):
    for folder in ("obj", "scene"):
        shutil.rmtree(release / folder / "train")
    shutil.rmtree(release / "scene_only")
    data = BAMFolder(release)
    assert data.object_names == list(OBJECTS)
    assert data.scene_names == list(SCENES)
    with pytest.raises(FileNotFoundError, match="scene_only"):
        data.with_view("0s")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("val.txt", "dog-track-0900.jpg 0", "dog-track-0900.jpg x", "val.txt, line 3: expected 'name label' with "),
        ("val.txt", "dog-track-0901.jpg 0", "dog-track-0900.jpg 0", "val.txt, line 4: .*each image once"),
        ("val.txt", "dog-track-0900.jpg 0", "dog-track-0900.jpg 1", "label 1 in .*obj to be 'dog'.* it is 'stop_sign'"),
        ("val.txt", "dog-track-0900.jpg 0", "dog-track-0900.jpg 7", "label 7 in .* beyond the 2 classes"),
        ("val.txt", "dog-track-0900.jpg 0\n", "", "same images in .*1 are only in one of them: dog-track-0900"),
        ("val_loc.txt", "4,10,14,30", "14,10,4,30", "the ends larger"),
        ("val_loc.txt", "4,10,14,30", "4,10,14,33", r"images of 32 px .* has \(4, 10, 14, 33\)"),
        ("val_loc.txt", "dog-bedroom-0900.jpg 4,10,14,30\n", "", "a box in images of 32 px .* has none"),
    ],
)
def test_contradictions_are_named(release, file, old, new, message):
    path = release / "obj" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        BAMFolder(release)


def test_missing_files_are_listed(release):
    (release / "scene_only" / "train" / "track" / "dog-track-0899.jpg").unlink()
    with pytest.raises(ValueError, match=r"\(train\) but 1 are only in one of them: dog-track-0899"):
        BAMFolder(release, split="train", view="0s")
    (release / "scene" / "val.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"scene/val\.txt"):
        BAMFolder(release)
    (release / "obj" / "val" / "dog-track-0900.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 8 are missing: dog-track-0900.jpg\."):
        BAMFolder(release)
    with pytest.raises(FileNotFoundError, match="`root` to hold the BAM layout"):
        BAMFolder(release / "obj")


def test_bad_masks_and_images_are_named(release):
    _save_masks(release, **{"1": np.zeros((3, 4), dtype=bool)})
    data = BAMFolder(release)
    with pytest.raises(ValueError, match=r"mask 1 in .* it is empty"):
        data.masks([1])
    for name, call in (("dog-track-0900.jpg", lambda: data[2]), ("dog-bedroom-0900.jpg", lambda: BAMFolder(release))):
        Image.new("RGB", (SIZE, SIZE + 1)).save(release / "obj" / "val" / name)
        with pytest.raises(ValueError, match=rf"{name} to have \(H, W\) = \(32, 32\)|square images"):
            call()


SETTINGS = {"n_per_pair": 5, "image_size": 48, "test_share": 0.4, "seed": 3}


def _write(out, **changes):
    settings = {"objects": Discs(), "scenes": Noise(), "display_progressbar": False}
    return write_bam(out=out, **settings | SETTINGS | changes)


@pytest.mark.parametrize(("split", "count"), [("train", 3), ("test", 2)])
def test_round_trip_without_loss(tmp_path, split, count):
    folder = BAMFolder(_write(tmp_path / "bam", lossless=True), split=split)
    composed = ObjectsOnScenes(Discs(), Noise(), split=split, **SETTINGS | {"n_per_pair": count})
    labels = list(zip(composed.object_labels.tolist(), composed.scene_labels.tolist(), strict=True))
    order = sorted(range(len(composed)), key=lambda index: (labels[index], index))
    assert (folder.object_names, folder.scene_names) == (composed.object_names, composed.scene_names)
    assert torch.equal(folder.object_labels, composed.object_labels[order])
    assert torch.equal(folder.scene_labels, composed.scene_labels[order])
    assert torch.equal(folder.boxes(), composed.boxes(order))
    assert torch.equal(folder.masks(), composed.masks(order))
    for view in ("os", "og", "0s"):
        assert torch.equal(folder.with_view(view).images(), composed.with_view(view).images(order)), view


@pytest.mark.parametrize("mask", [np.zeros((48, 48), np.uint8), np.full((24, 24), 255, np.uint8)])
def test_a_mask_that_is_empty_or_of_another_size_is_named(tmp_path, mask):
    data = BAMFolder(_write(tmp_path / "bam"))
    path = min((tmp_path / "bam" / "obj" / "val_mask").iterdir())
    Image.fromarray(mask).save(path)
    with pytest.raises(ValueError, match=rf"mask .*{path.name} to be of \(H, W\) = \(48, 48\).* and to mark pixels"):
        data.masks()


def test_names_and_numbers_are_those_of_the_release(tmp_path):
    objects, scenes = Discs(3, names=("stop sign", "dog")), Noise(3, names=("track/outdoor", "bedroom"))
    root = _write(tmp_path / "bam", objects=objects, scenes=scenes)
    assert sorted(path.name for path in (root / "obj" / "train").iterdir()) == ["dog", "stop_sign"]
    assert len(list((root / "scene" / "train" / "track_outdoor").iterdir())) == 6
    lines = (root / "scene_only" / "val.txt").read_text().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (8, "dog-bedroom-0003.jpg 0", "stop_sign-track_outdoor-0004.jpg 1")
    assert len((root / "obj" / "loc.txt").read_text().splitlines()) == 20
    assert BAMFolder(root).object_names == ["dog", "stop_sign"]  # labels on disk are alphabetical


def test_only_a_new_or_an_empty_folder_is_written_to(tmp_path):
    (tmp_path / "out").mkdir()
    _write(tmp_path / "out")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(ValueError, match="`out` to name a new or empty folder"):
        _write(tmp_path / "out", seed=4)
    with pytest.raises(ValueError, match="`out`"):
        _write(tmp_path / "out" / "compose.json")
    with pytest.raises(ValueError, match="'a_b' is not one"):
        _write(tmp_path / "new", objects=Discs(3, names=("a b", "a-b")))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_an_interrupted_composition_is_not_read(tmp_path):
    class Interrupted(Noise):
        def __getitem__(self, index):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _write(tmp_path / "new", scenes=Interrupted())
    with pytest.raises(ValueError, match="new was not written to its end"):
        BAMFolder(tmp_path / "new", split="train")
