"""Files that claim more than they hold, or point elsewhere: refused before memory or time is spent on them."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from captum_concepts import ConceptBank, PostHocCBM
from captum_concepts.backbones.weights import load_weights
from captum_concepts.support.images import image_size, load_image
from damaged import in_room, resource
from data_files import write_coco, write_files
from fixtures_cub import write_cub
from fixtures_pasta import read_records, write_pasta_release, write_records
from kills import in_time
from quantus_concepts.datasets import CUB200, COCOObjects, ConceptFolder, PastaRatings
from quantus_concepts.datasets.folders import inside
from quantus_concepts.datasets.ratings.files import load_concepts, load_map
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


@pytest.mark.parametrize("load", [load_image, image_size])
def test_an_image_of_too_many_pixels(tmp_path: Path, load: Callable[[Path], object]) -> None:
    for side, rows in ((SIDE, SIDE), (2**31 - 1, 1)):
        (tmp_path / "big.png").write_bytes(png(side, side, rows))
        refused(lambda: load(tmp_path / "big.png"), "big.png", "pixels")


def test_a_page_of_postscript_is_no_image(tmp_path: Path) -> None:
    # Pillow would run Ghostscript for it.
    (tmp_path / "page.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    refused(lambda: load_image(tmp_path / "page.png"), "page.png", "no known image format")


def test_a_scorer_of_a_few_numbers_that_claims_other_sizes(tmp_path: Path) -> None:
    path = tmp_path / "scorer.safetensors"
    save_scorer(Scorer(4, ("Q1",), ("a", "b"), (5, 3)), path)
    with safe_open(path, framework="pt") as file:
        header = file.metadata() | {"dim": "1000000000"}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, header)
    refused(lambda: load_scorer(path), "scorer.safetensors is a damaged scorer")


class Executed:
    """What would end the process if it were unpickled."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize(
    "weight",
    [torch.zeros(1).expand(10**9), torch.empty(10**12, device="meta"), Executed()],
    ids=["large", "none", "code"],
)
def test_weights_that_are_no_plain_tensors(tmp_path: Path, weight: object) -> None:
    torch.save(nn.Linear(3, 2).state_dict() | {"weight": weight}, tmp_path / "PASTA_Q1.pth")
    for load in (load_scorer, lambda path: load_weights(nn.Linear(3, 2), path)):
        message = refused(partial(load, tmp_path / "PASTA_Q1.pth"), "PASTA_Q1.pth")
        # The message does not say how to run it.
        assert "weights_only" not in message.replace("weights_only=True", "")


def test_a_state_of_a_model_that_is_damaged() -> None:
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.rand(2, 4)), nn.Linear(2, 3))
    deep = torch.tensor(list(b"[" * 100_000), dtype=torch.uint8)
    refused(
        lambda: cbm.load_state_dict(cbm.state_dict() | {"concept_layer._extra_state": deep}), "state of the concept"
    )


def test_a_map_that_claims_more_than_its_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "map.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**5, 10**5)})
        file.write(bytes(1000))
    refused(lambda: load_map(path), "map.npy")


@pytest.mark.parametrize("name", ["1" * 200_000, "a" + " " * 200_000 + "<"])
def test_a_long_name_of_a_concept(tmp_path: Path, name: str) -> None:
    (tmp_path / "concepts.json").write_text(json.dumps({name: 1.0}))
    refused(lambda: load_concepts(tmp_path / "concepts.json"), "concepts.json", "characters")


#: Paths that lead out of the folder they are counted from.
OUTSIDE = ("../../secret.png", "a/../../secret.png", "/etc/passwd", "..", "a\\..\\secret.png", "a\0.png", "")


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_in_texts_stay_inside(tmp_path: Path, name: str) -> None:
    refused(lambda: inside(tmp_path, name, "list.txt, line 3"), "list.txt, line 3", "inside")


def test_paths_of_coco(tmp_path: Path) -> None:
    path, images = tmp_path / "instances.json", tmp_path / "images"
    write_coco(path, images)
    good = json.loads(path.read_text())
    outside = good["images"][0] | {"file_name": "../../secret.png"}
    large = good["annotations"][0] | {"segmentation": {"counts": [9 * 10**10], "size": [300_000, 300_000]}}
    for changes, name in (({"images": [outside]}, "image 1"), ({"annotations": [large]}, "Annotation 18")):
        path.write_text(json.dumps(good | changes))
        refused(lambda: COCOObjects(path, images, ["dog"]), "instances.json", name)


def test_paths_of_cub(tmp_path: Path) -> None:
    path = write_cub(tmp_path) / "images.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "2 ../../secret.png", *lines[2:]]))
    refused(lambda: CUB200(tmp_path), "images.txt, line 2")


@pytest.mark.parametrize(
    ("name", "text"),
    [("concepts.csv", "image,ear\n../cat/0.png,1\n"), ("parts.csv", "image,part,x,y\n../0.png,red,1,1\n")],
)
def test_paths_of_concept_tables(tmp_path: Path, name: str, text: str) -> None:
    root = write_files(tmp_path)
    (root / name).write_text(text)
    refused(lambda: ConceptFolder(root / "scenes", root / "concepts.csv", root / "parts.csv"), f"{name}, line 2")


@pytest.mark.parametrize("key", ["img", "explication"])
def test_paths_of_ratings(tmp_path: Path, key: str) -> None:
    folder = write_pasta_release(tmp_path, n_images=1, explainers=("3",), datasets=["coco"])
    records = read_records(folder)
    records[0][key] = "../../coco_0_3_dog.png"
    write_records(folder, records)
    refused(lambda: PastaRatings(folder), "human_annotations.json", "record 0")
