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


@pytest.fixture
def release(tmp_path):
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


def _convert(root):
    arrays = {str(number): _photograph_mask(number) for number in range(200)}
    np.savez_compressed(root / "obj" / "val_mask.npz", **arrays)


def test_release_is_read(release):
    _convert(release)
    data = BAMFolder(release)
    assert data.object_names == list(OBJECTS)
    assert data.scene_names == list(SCENES)
    assert len(data) == 8
    assert data.names[3] == "dog-track-0901.jpg"
    assert data.object_labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert data.scene_labels.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert (data.split, data.view, data.image_size) == ("test", "os", SIZE)
    assert data.boxes().tolist() == [list(BOX)] * 8
    sample = data[6]
    assert sample.box.tolist() == list(BOX)
    assert (sample.object_label, sample.scene_label) == (1, 1)
    assert sample.image.shape == (3, SIZE, SIZE)
    assert torch.allclose(sample.image[:, 8, 15:25] * 255, torch.tensor(60.0), atol=8)
    assert torch.allclose(sample.image[:, 25, :] * 255, torch.tensor(160.0), atol=8)


def test_number_of_the_mask_is_object_and_last_two_digits(release):
    _convert(release)
    data = BAMFolder(release)
    masks = data.masks()[:, 0]
    for index, number in ((0, 0), (1, 1), (3, 1), (4, 100), (5, 101), (7, 101)):
        expected = np.zeros((SIZE, SIZE), dtype=bool)
        # The masks are 40 columns wide and are brought to the 20 of the box: 10 or 20 empty ones become 5 or 10.
        expected[4:14, 15 if number % 2 == 0 else 20 : 30] = True
        assert masks[index].tolist() == expected.tolist(), index


def test_views_of_the_release(release):
    _convert(release)
    data = BAMFolder(release, view="0s")
    assert torch.allclose(data.images([0]).float(), torch.tensor(60.0), atol=3)
    assert torch.equal(data.masks(), data.with_view("os").masks())
    grey = data.with_view("og")
    image, mask, on_scene = grey.images([5])[0], grey.masks([5])[0], data.with_view("os").images([5])[0]
    assert torch.equal(image, on_scene.where(mask, torch.tensor(128, dtype=torch.uint8)))
    assert mask.any()


def test_pickled_masks_are_refused_and_the_way_out_works(release):
    with pytest.raises(ValueError, match=r"val_mask are pickled.*runs whatever code") as caught:
        BAMFolder(release)
    snippet = str(caught.value).split("\n", 1)[1]
    assert len(snippet.splitlines()) == 1
    exec(compile(snippet, "snippet", "exec"), {})  # what the message tells the user to run
    converted = BAMFolder(release).masks()
    (release / "obj" / "val_mask.npz").unlink()
    _convert(release)
    assert torch.equal(converted, BAMFolder(release).masks())


def test_training_images_of_the_release(release):
    data = BAMFolder(release, split="train")
    assert data.names[:3] == ["dog-bedroom-0898.jpg", "dog-bedroom-0899.jpg", "dog-track-0898.jpg"]
    assert data.scene_labels.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert not data.has_masks
    assert not data.masks().any()
    assert set(data.boxes().flatten().tolist()) == {-1}
    assert data.images().shape == (8, 3, SIZE, SIZE)
    assert torch.allclose(data.with_view("0s").images([2]).float(), torch.tensor(160.0), atol=3)
    with pytest.raises(ValueError, match=r"masks in .* for the view 'og'"):
        data.with_view("og")
    lines = "".join(f"{name} 1,2,3,4\n" for name in data.names)
    (release / "obj" / "loc.txt").write_text(lines)
    assert BAMFolder(release, split="train").boxes([0]).tolist() == [[1, 2, 3, 4]]


def test_scaled_to_what_the_network_takes(release):
    _convert(release)
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
    _convert(release)
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
        ("val_loc.txt", "4,10,14,30", "4,10,14,33", r"images of 32 px .* dog-bedroom-0900.jpg has \(4, 10, 14, 33\)"),
        ("val_loc.txt", "dog-bedroom-0900.jpg 4,10,14,30\n", "", "a box in images of 32 px .* has none"),
    ],
)
def test_contradictions_are_named(release, file, old, new, message):
    _convert(release)
    path = release / "obj" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        BAMFolder(release)


def test_missing_files_are_listed(release):
    _convert(release)
    (release / "scene_only" / "train" / "track" / "dog-track-0899.jpg").unlink()
    with pytest.raises(ValueError, match=r"\(train\) but 1 are only in one of them: dog-track-0899"):
        BAMFolder(release, split="train", view="0s")
    (release / "scene" / "val.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"scene/val\.txt"):
        BAMFolder(release)
    (release / "obj" / "val" / "dog-track-0900.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 8 are missing: dog-track-0900.jpg\."):
        BAMFolder(release)
    with pytest.raises(FileNotFoundError, match=r"`root` to hold the BAM layout but there is no folder .*obj/obj/val"):
        BAMFolder(release / "obj")


def test_bad_masks_and_images_are_named(release):
    arrays = {str(number): _photograph_mask(number) for number in range(200) if number != 101}
    arrays["1"] = np.zeros((3, 4), dtype=bool)
    np.savez(release / "obj" / "val_mask.npz", **arrays)
    data = BAMFolder(release)
    with pytest.raises(ValueError, match=r"mask 101 in .*stop_sign-bedroom-0901.jpg.* there is none"):
        data[5]
    with pytest.raises(ValueError, match=r"mask 1 in .* it is empty"):
        data.masks([1])
    Image.new("RGB", (SIZE, SIZE + 1)).save(release / "obj" / "val" / "dog-track-0900.jpg")
    with pytest.raises(ValueError, match=r"dog-track-0900.jpg to have \(H, W\) = \(32, 32\).*\(33, 32\)"):
        data[2]
    Image.new("RGB", (SIZE, SIZE + 1)).save(release / "obj" / "val" / "dog-bedroom-0900.jpg")
    with pytest.raises(ValueError, match="square images"):
        BAMFolder(release)


SETTINGS = {"n_per_pair": 5, "image_size": 48, "test_share": 0.4, "seed": 3, "display_progressbar": False}


def _write(out, **changes):
    return write_bam(Discs(), Noise(), out, **(SETTINGS | changes))


def _same_as_composed(root, split, count):
    """Yield the data set read and, in its order, the one it was made of."""
    folder = BAMFolder(root, split=split)
    composed = ObjectsOnScenes(Discs(), Noise(), split=split, n_per_pair=count, image_size=48, test_share=0.4, seed=3)
    labels = list(zip(composed.object_labels.tolist(), composed.scene_labels.tolist(), strict=True))
    order = sorted(range(len(composed)), key=lambda index: (labels[index], index))
    return folder, composed, order


@pytest.mark.parametrize(("split", "count"), [("train", 3), ("test", 2)])
def test_round_trip_without_loss(tmp_path, split, count):
    folder, composed, order = _same_as_composed(_write(tmp_path / "bam", lossless=True), split, count)
    assert folder.object_names == composed.object_names
    assert folder.scene_names == composed.scene_names
    assert torch.equal(folder.object_labels, composed.object_labels[order])
    assert torch.equal(folder.scene_labels, composed.scene_labels[order])
    assert torch.equal(folder.boxes(), composed.boxes(order))
    assert torch.equal(folder.masks(), composed.masks(order))
    for view in ("os", "og", "0s"):
        assert torch.equal(folder.with_view(view).images(), composed.with_view(view).images(order)), view


def test_names_and_numbers_are_those_of_the_release(tmp_path):
    root = write_bam(
        Discs(3, names=("stop sign", "dog")), Noise(3, names=("track/outdoor", "bedroom")), tmp_path / "bam", **SETTINGS
    )
    assert sorted(path.name for path in root.iterdir()) == ["compose.json", "obj", "scene", "scene_only"]
    assert sorted(path.name for path in (root / "obj" / "train").iterdir()) == ["dog", "stop_sign"]
    assert len(list((root / "scene" / "train" / "track_outdoor").iterdir())) == 6
    lines = (root / "scene_only" / "val.txt").read_text().splitlines()
    assert len(lines) == 8
    assert lines[0] == "dog-bedroom-0003.jpg 0"
    assert lines[-1] == "stop_sign-track_outdoor-0004.jpg 1"
    assert len((root / "obj" / "loc.txt").read_text().splitlines()) == 20
    assert len((root / "obj" / "val_loc.txt").read_text().splitlines()) == 8
    assert (root / "obj" / "val" / lines[0].split()[0]).read_bytes() == (
        root / "scene" / "val" / lines[0].split()[0]
    ).read_bytes()
    data = BAMFolder(root)
    assert data.object_names == ["dog", "stop_sign"]  # labels on disk are alphabetical


def test_only_a_new_or_an_empty_folder_is_written_to(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    _write(out)
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    with pytest.raises(ValueError, match=r"`out` to name a new or empty folder but .* holds files"):
        _write(out, seed=4)
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before
    with pytest.raises(ValueError, match="is a file"):
        _write(out / "compose.json")


def test_an_interrupted_composition_is_not_read(tmp_path):
    class Interrupted(Noise):
        def __getitem__(self, index):
            if index == 14:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt):
        write_bam(Discs(), Interrupted(), tmp_path / "new", **SETTINGS)
    assert list(tmp_path.rglob("*.jpg"))
    assert not list(tmp_path.rglob(".*"))
    with pytest.raises(ValueError, match="new was not written to its end"):
        BAMFolder(tmp_path / "new", split="train")


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"objects": Discs(3, names=("a b", "a-b"))}, "'a_b' is not one"), ({"n_per_pair": 1}, "`n_per_pair`")],
)
def test_bad_settings_write_nothing(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write_bam(**{"objects": Discs(), "scenes": Noise(), "out": tmp_path / "out"} | SETTINGS | changes)
    assert not list(tmp_path.iterdir())
