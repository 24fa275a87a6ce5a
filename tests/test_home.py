"""`~` at the start of a path is the home of whoever runs it, wherever a path is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from captum_concepts import ConceptBank, method_from_spec
from captum_concepts._support.checks import check_path
from captum_concepts._support.running import run_file
from fixtures_cub import write_cub
from fixtures_pasta import write_pasta_release
from quantus_concepts.datasets import (
    CUB200,
    BAMFolder,
    COCOObjects,
    ConceptFolder,
    CutoutFolder,
    PastaRatings,
    SceneFolder,
)
from quantus_concepts.datasets.ratings.explanation_files import find_explanations
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer, save_scorer, scorer_from
from quantus_concepts.studies._models.networks import load_network

CODE = """
import captum.attr
from torch import nn

MEAN = STD = (0.5, 0.5, 0.5)


def method(model):
    return captum.attr.Saliency(model)


def network():
    return nn.Linear(2, 2)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a file, or folder, of each kind."""
    root = tmp_path_factory.mktemp("home")
    write_cub(root)
    write_pasta_release(root / "ratings", n_images=1, datasets=["coco"])
    for name in ("bird", "cat"):
        for number in range(2):
            pixels = np.zeros((8, 8, 4), dtype=np.uint8)
            pixels[2:6, 2:6] = 255
            (root / "images" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(root / "images" / name / f"{number}.png")
    (root / "concepts.csv").write_text("class,ear\nbird,0\ncat,1\n")
    (root / "parts.csv").write_text("image,part,x,y\nbird/0.png,head,1,1\n")
    (root / "about.csv").write_text("concept,part\near,head\n")
    for folder in ("obj", "scene"):
        (root / "bam" / folder / "val").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(root / "bam" / folder / "val" / "a-b-0900.png")
        (root / "bam" / folder / "val.txt").write_text("a-b-0900.png 0\n")
        (root / "bam" / folder / "val_loc.txt").write_text("a-b-0900.png 0,0,2,2\n")
    entry = {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 4]], "area": 8}
    photograph = {"id": 1, "file_name": "bird/0.png", "height": 8, "width": 8}
    content = {"images": [photograph], "categories": [{"id": 1, "name": "bird"}], "annotations": [entry]}
    (root / "instances.json").write_text(json.dumps(content))
    save_file(nn.Linear(2, 2).state_dict(), root / "linear.safetensors")
    (root / "code.py").write_text(CODE)
    (root / "tokenizer").mkdir()
    for folder in ("shown", "maps"):
        (root / folder).mkdir()
    Image.new("RGB", (8, 8)).save(root / "shown" / "pets_1_cat.png")
    np.save(root / "maps" / "pets_1_cat.npy", np.eye(4))
    (root / "labels.csv").write_text("image,label\npets_1_cat,cat\n")
    return root


def saved_bank() -> ConceptBank:
    ConceptBank(torch.rand(2, 3)).save("~/bank.safetensors")
    return ConceptBank.load("~/bank.safetensors")


def saved_scorer() -> Scorer:
    save_scorer(Scorer(4), "~/scorer.safetensors")
    scorer_from("~/scorer.safetensors")
    return load_scorer({"Q1": "~/scorer.safetensors"})


def cached() -> Path:
    embedder = Embedder(EmbeddedEncoder(), cache="~/cache")
    assert embedder.cache is not None
    return embedder.cache.folder.relative_to(Path.home())


CALLS: dict[str, Callable[[], object]] = {
    "ConceptBank": saved_bank,
    "ConceptBank.from_folders": lambda: ConceptBank.from_folders(nn.Identity(), "~/images", random="cat", hold_back=0),
    "Scorer": saved_scorer,
    "Embedder": cached,
    "run_file": lambda: run_file("~/code.py"),
    "method_from_spec": lambda: method_from_spec("~/code.py:method"),
    "CUB200": lambda: CUB200("~/CUB_200_2011"),
    "ConceptFolder": lambda: ConceptFolder("~/images", "~/concepts.csv", "~/parts.csv", part_of_concept="~/about.csv"),
    "BAMFolder": lambda: BAMFolder("~/bam"),
    "COCOObjects": lambda: COCOObjects("~/instances.json", "~/images", ["bird"]),
    "CutoutFolder": lambda: CutoutFolder("~/images"),
    "SceneFolder": lambda: SceneFolder("~/images"),
    "PastaRatings": lambda: PastaRatings("~/ratings"),
    "OpenClipEncoder": lambda: OpenClipEncoder(pretrained="~/linear.safetensors", tokenizer="~/tokenizer"),
    "as_encoder": lambda: as_encoder("clip", weights="~/linear.safetensors", tokenizer="~/tokenizer"),
    "load_network": lambda: load_network("~/code.py:network", "~/linear.safetensors"),
    "find_explanations": lambda: find_explanations("~/shown", "~/maps", labels_from="~/labels.csv"),
}


@pytest.mark.parametrize("name", CALLS)
def test_home_is_found(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    assert CALLS[name]() is not None
    assert not list(tmp_path.iterdir())


def test_a_name_that_begins_so_stays_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert check_path("path", "~/a/~b") == tmp_path / "a" / "~b"
    assert check_path("path", "a/~") == Path("a/~")
    assert check_path("path", "~nobody is called so/a") == Path("~nobody is called so/a")
    with pytest.raises(TypeError, match="argument `root` to be a path but got 3"):
        check_path("root", 3)  # type: ignore[arg-type]
