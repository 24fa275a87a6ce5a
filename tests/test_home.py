"""`~` at the start of a path is the home of whoever runs it, wherever a path is taken."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from captum_concepts import ConceptBank
from captum_concepts._support.checks import check_path
from captum_concepts._support.running import run_file
from captum_concepts.backbones.networks import load_network
from data_files import write_files
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
from quantus_concepts.studies.attribution.methods import method_from_spec

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
    root = write_files(tmp_path_factory.mktemp("home"))
    write_cub(root)
    write_pasta_release(root / "ratings", n_images=1, datasets=["coco"])
    for name in ("cat", "dog"):
        (root / "concepts" / name).mkdir(parents=True)
        for number in range(2):
            shutil.copy(root / "scenes" / name / "0.png", root / "concepts" / name / f"{number}.png")
    save_file(nn.Linear(2, 2).state_dict(), root / "linear.safetensors")
    (root / "code.py").write_text(CODE)
    (root / "tokenizer").mkdir()
    (root / "labels.csv").write_text("image,label\npets_0_cat,cat\n")
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
    "ConceptBank.from_folders": lambda: ConceptBank.from_folders(
        nn.Identity(), "~/concepts", random="cat", hold_back=0
    ),
    "Scorer": saved_scorer,
    "Embedder": cached,
    "run_file": lambda: run_file("~/code.py"),
    "method_from_spec": lambda: method_from_spec("~/code.py:method"),
    "CUB200": lambda: CUB200("~/CUB_200_2011"),
    "ConceptFolder": lambda: ConceptFolder("~/scenes", "~/concepts.csv", "~/parts.csv", part_of_concept="~/about.csv"),
    "BAMFolder": lambda: BAMFolder("~/bam"),
    "COCOObjects": lambda: COCOObjects("~/coco.json", "~/photographs", ["dog"]),
    "CutoutFolder": lambda: CutoutFolder("~/cutouts"),
    "SceneFolder": lambda: SceneFolder("~/scenes"),
    "PastaRatings": lambda: PastaRatings("~/ratings"),
    "OpenClipEncoder": lambda: OpenClipEncoder(pretrained="~/linear.safetensors", tokenizer="~/tokenizer"),
    "as_encoder": lambda: as_encoder("clip", weights="~/linear.safetensors", tokenizer="~/tokenizer"),
    "load_network": lambda: load_network("~/code.py:network", "~/linear.safetensors"),
    "find_explanations": lambda: find_explanations("~/images", "~/images", labels_from="~/labels.csv"),
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
