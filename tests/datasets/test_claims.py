"""Files that claim more than they hold, or point elsewhere: refused before memory or time is spent on them."""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from captum_concepts import ConceptBank, PostHocCBM
from captum_concepts._support.images import image_size, load_image
from captum_concepts.backbones.weights import load_weights
from damaged import in_room, resource
from data_files import write_coco
from fixtures_cub import write_cub
from fixtures_pasta import read_records, write_pasta_release, write_records
from kills import in_time
from quantus_concepts.datasets import CUB200, COCOObjects, ConceptFolder, CutoutFolder, PastaRatings, SceneFolder
from quantus_concepts.datasets.folders import inside
from quantus_concepts.datasets.ratings.files import load_concepts, load_map
from quantus_concepts.datasets.scenes.bam_folder import NumberedMasks, PNGMasks, read_labels
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer, save_scorer

pytestmark = pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
#: Of which each claim would take many times as much.
ROOM = 1 << 28
SECONDS = 5
SIDE = 13_000


def refused(call: Callable[[], object], *names: str, addresses: int = ROOM) -> str:
    """Assert that a call is refused in time and in little memory, with names in its message."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with in_time(SECONDS), in_room(addresses), pytest.raises((ValueError, OSError)) as caught:
        call()
    message = str(caught.value)
    assert "Not done in" not in message
    assert all(name in message for name in names), message
    assert len(message) < 3000
    # In bytes on macOS, else in kB; the largest so far, so that it can only fail where this call is what took it.
    unit = 1 if sys.platform == "darwin" else 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM // unit
    return message


def png(width: int, height: int, rows: int) -> bytes:
    """A PNG of one bit a pixel that claims a size, with some of its rows."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packed = zlib.compress(b"\0" * (rows * (1 + min(width, 10**6) // 8)), 9)
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(SIDE, SIDE), (2**31 - 1, 2**31 - 1)])
@pytest.mark.parametrize("load", [load_image, image_size])
def test_an_image_of_too_many_pixels(tmp_path: Path, load, width: int, height: int) -> None:
    path = tmp_path / "big.png"
    path.write_bytes(png(width, height, rows=SIDE if height == SIDE else 1))
    refused(lambda: load(path), "big.png", "pixels")


def test_a_page_of_postscript_is_no_image(tmp_path: Path) -> None:
    # Pillow would run Ghostscript for it.
    (tmp_path / "page.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    refused(lambda: load_image(tmp_path / "page.png"), "page.png", "no known image format")


def scorer_file(path: Path, **claims: object) -> Path:
    """A scorer of a few numbers whose metadata claim other sizes."""
    save_scorer(Scorer(4, ("Q1",), ("a", "b"), (5, 3)), path)
    with safe_open(path, framework="pt") as file:
        header = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header |= {name: value if isinstance(value, str) else json.dumps(value) for name, value in claims.items()}
    save_file(tensors, path, header)
    return path


@pytest.mark.parametrize(
    ("claims", "message"),
    {
        "dim": ({"dim": 10**9}, "for (1, 5, 1000000002)"),
        "questions": ({"questions": ["Q1"] * 10**6}, "for (1000000, 5, 6)"),
        "hidden": ({"hidden": [30_000, 30_000]}, "for (1, 30000, 6)"),
        "settings": ({"settings": [1]}, ""),
        "deep": ({"metadata": "[" * 100_000}, "nested too deep"),
    }.values(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_scorer_that_claims_other_sizes(tmp_path: Path, claims: dict[str, object], message: str) -> None:
    path = scorer_file(tmp_path / "scorer.safetensors", **claims)
    refused(lambda: load_scorer(path), "scorer.safetensors is a damaged scorer", message)


class Executed:
    """What would end the process if it were unpickled."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize(
    ("kind", "weight"),
    {
        "larger than the file": torch.zeros(1).expand(10**9),
        "without data": torch.empty(10**12, device="meta"),
        "an object": Executed(),
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_that_are_no_plain_tensors(tmp_path: Path, kind: str, weight: object) -> None:
    torch.save(nn.Linear(3, 2).state_dict() | {"weight": weight}, tmp_path / "PASTA_Q1.pth")
    for load in (load_scorer, lambda path: load_weights(nn.Linear(3, 2), path)):
        message = refused(partial(load, tmp_path / "PASTA_Q1.pth"), "PASTA_Q1.pth")
        assert "weights_only" not in message.replace("weights_only=True", "")
        assert "still be loaded" not in message
        assert kind != "an object" or "save its tensors with safetensors" in message


def test_weights_that_grow_when_they_are_unpacked(tmp_path: Path) -> None:
    plain, path = io.BytesIO(), tmp_path / "PASTA_Q1.pth"
    torch.save({"weight": torch.zeros(2, 10**6)}, plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    refused(lambda: load_scorer(path), "PASTA_Q1.pth", "compressed")


def test_metadata_of_a_bank_nested_deep(tmp_path: Path) -> None:
    from captum_concepts.bank.files import BankContents, read_bank, write_bank

    bank = ConceptBank(torch.rand(2, 3))
    bank.save(tmp_path / "bank.safetensors")
    contents = read_bank(tmp_path / "bank.safetensors", "cpu")
    tensors = contents.tensors | {"p_values": torch.full((2,), torch.nan)}
    for settings in (["x"], "x", 3):
        write_bank(tmp_path / "odd.safetensors", BankContents(tensors, contents.names, settings))
        refused(lambda: ConceptBank.load(tmp_path / "odd.safetensors"), "odd.safetensors is a damaged concept bank")
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]
    write_bank(tmp_path / "deep.safetensors", BankContents(tensors, deep, {}))
    refused(lambda: ConceptBank.load(tmp_path / "deep.safetensors"), "deep.safetensors is a damaged concept bank")


@pytest.mark.parametrize(
    "raw",
    {
        "deep": b"[" * 100_000,
        "one name twice": b'{"values": "raw", "names": ["a", "a"], "settings": {}}',
        "values": b'{"values": {}, "names": ["a", "b"], "settings": {}}',
    }.values(),
    ids=lambda raw: raw[:30].decode(),
)
def test_a_state_of_a_model_that_is_damaged(raw: bytes) -> None:
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.rand(2, 4)), nn.Linear(2, 3))
    state = cbm.state_dict() | {"concept_layer._extra_state": torch.tensor(list(raw), dtype=torch.uint8)}
    refused(lambda: cbm.load_state_dict(state), "state of the concept layer")


@pytest.mark.parametrize(("size", "level", "message"), [((8, 8), 0, "at most 0 bright"), ((8, 9), 255, "got (9, 8)")])
def test_empty_masks_and_masks_of_another_size(tmp_path: Path, size: tuple[int, int], level: int, message: str) -> None:
    Image.new("L", size, level).save(tmp_path / "dog-track-0900.png")
    masks = PNGMasks(tmp_path)
    refused(lambda: masks.read("dog-track-0900.jpg", 0, (0, 0, 8, 8), 8, (8, 8)), "dog-track-0900.png", message)


def test_masks_of_something_else_than_0_and_1(tmp_path: Path) -> None:
    path = tmp_path / "val_mask.npz"
    np.savez(path, **{"0": np.eye(8), "1": np.full((8, 8), 0.5)})
    refused(
        lambda: NumberedMasks(path).read("dog-track-0900.jpg", 0, (0, 0, 8, 8), 8, (8, 8)),
        "val_mask.npz",
        "Expected mask 1 to be",
    )


def test_pictures_of_a_scorer_that_are_too_large() -> None:
    refused(lambda: Embedder.from_settings("embedded", {"size": 30_000}), "`size`", "2048")


def test_a_map_that_claims_more_than_its_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "map.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**5, 10**5)})
        file.write(bytes(1000))
    refused(lambda: load_map(path), "map.npy")


@pytest.mark.parametrize("name", ["1" * 200_000, " " * 200_000 + "x", "a" + " " * 200_000 + "<"])
def test_a_long_name_of_a_concept(tmp_path: Path, name: str) -> None:
    path = tmp_path / "concepts.json"
    path.write_text(json.dumps({name: 1.0}))
    refused(lambda: load_concepts(path), "concepts.json", "characters")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("claims") / "images"
    for name in ("bird", "cat"):
        (root / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (12, 10), (number, 9, 9)).save(root / name / f"{number}.png")
    return root


@pytest.mark.parametrize(
    ("concepts", "parts", "message"),
    [
        ("class," + ",".join(map(str, range(200_000))) + "\nbird,0\n", "", "concepts.csv, line 2"),
        (f"class,{'x' * 200_000}\n", "", "concepts.csv, line 2"),
        ("image,ear\n../cat/0.png,1\n", "", "concepts.csv, line 2"),
        ("class,ear\nbird,0\ncat,1\n", "image,part,x,y\nbird/../../x.png,ear,1,1\n", "parts.csv, line 2"),
    ],
    ids=["many columns", "a large cell", "an image outside", "a part outside"],
)
def test_tables_of_concepts(tmp_path: Path, images: Path, concepts: str, parts: str, message: str) -> None:
    (tmp_path / "concepts.csv").write_text(concepts)
    (tmp_path / "parts.csv").write_text(parts)
    tables = [tmp_path / "concepts.csv", *([tmp_path / "parts.csv"] if parts else [])]
    refused(lambda: ConceptFolder(images, *tables, image_size=8), message)


def test_a_label_that_would_need_a_long_list(tmp_path: Path) -> None:
    (tmp_path / "val.txt").write_text("dog-track-0900.jpg 99999999999\n")
    refused(lambda: read_labels(tmp_path / "val.txt"), "val.txt, line 1")


#: Paths that lead out of the folder they are counted from.
OUTSIDE = (
    "../../secret.png",
    "a/../../secret.png",
    "/etc/passwd",
    "//etc/passwd",
    "..",
    "a\\..\\secret.png",
    "a\0.png",
    "",
)


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_in_texts_stay_inside(tmp_path: Path, name: str) -> None:
    refused(lambda: inside(tmp_path, name, "list.txt, line 3"), "list.txt, line 3", "inside")


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("images", {"file_name": "../../secret.png"}, "image 1"),
        ("images", {"id": [1]}, "hold images, annotations and categories"),
        ("annotations", {"segmentation": [[float("nan")] * 6]}, "Annotation 18"),
        ("annotations", {"segmentation": {"counts": [9 * 10**10], "size": [300_000, 300_000]}}, "Annotation 18"),
    ],
)
def test_entries_of_coco(tmp_path: Path, part: str, changes: dict[str, object], message: str) -> None:
    path, images = tmp_path / "instances.json", tmp_path / "images"
    write_coco(path, images)
    content = json.loads(path.read_text())
    content[part][0] |= changes
    path.write_text(json.dumps(content))
    refused(lambda: COCOObjects(path, images, ["dog"]), "instances.json", message)


def test_paths_of_cub(tmp_path: Path) -> None:
    path = write_cub(tmp_path) / "images.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "2 ../../secret.png", *lines[2:]]))
    refused(lambda: CUB200(tmp_path), "images.txt, line 2")


@pytest.mark.parametrize("key", ["img", "explication"])
def test_paths_of_ratings(tmp_path: Path, key: str) -> None:
    folder = write_pasta_release(tmp_path, n_images=1, explainers=("3",), datasets=["coco"])
    records = read_records(folder)
    records[0][key] = "../../coco_0_3_dog.png"
    write_records(folder, records)
    refused(lambda: PastaRatings(folder), "human_annotations.json", "record 0")


def test_links_in_a_folder_are_followed(tmp_path: Path, images: Path) -> None:
    root = tmp_path / "scenes"
    root.mkdir()
    (root / "birds").symlink_to(images / "bird")
    (root / "cats").mkdir()
    (root / "cats" / "one.png").symlink_to(images / "cat" / "0.png")
    assert len(SceneFolder(root).paths) == 3


def test_a_link_to_nothing_is_named(tmp_path: Path, images: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "gone.png").symlink_to(images / "none.png")
    refused(lambda: CutoutFolder(tmp_path), "gone.png")
