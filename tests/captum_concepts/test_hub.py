"""Concept models on the hub, which is a folder here: what is sent, what comes back, what the card says."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pandas as pd
import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.utils import RevisionNotFoundError
from torch import nn

from captum_concepts import Backbone, ConceptBank, PostHocCBM, ResidualCBM

SOURCE = "transformers:ViTModel:google/vit-base-patch16-224"
ACCURACY = torch.tensor([0.9, 0.55, float("nan")])
BANK = ConceptBank(
    torch.eye(3, 4),
    names=["red | wing", "<b>tail</b>", "song\n# of `a` [bird](x)"],
    test_accuracy=ACCURACY,
    settings={"method": "svm", "C": 0.1, "note": "*bold* <b>"},
)
SCORES = pd.DataFrame({"metric": ["CEM", "CGIM"], "value": [0.75, float("nan")], "chance": [0.5, 0.125]})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a folder for each repository."""

    def create(api: HfApi, repo_id: str, *, private: bool | None, exist_ok: bool) -> Any:
        (tmp_path / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        (tmp_path / repo_id / "private").write_text(f"{private} {api.token}")
        return SimpleNamespace(repo_id=repo_id)

    def upload(api: HfApi, *, repo_id: str, folder_path: Path, **options: Any) -> str:
        shutil.copytree(folder_path, tmp_path / repo_id, dirs_exist_ok=True)
        return f"https://huggingface.co/{repo_id}/commit/1"

    def download(repo_id: str, *, allow_patterns: list[str], revision: str | None = None) -> str:
        assert sorted(allow_patterns) == ["config.json", "model.safetensors"]
        if revision not in (None, "main"):
            raise RevisionNotFoundError("404", response=MagicMock())
        return str(tmp_path / repo_id)

    monkeypatch.setattr(HfApi, "create_repo", create)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    monkeypatch.setattr("captum_concepts.models.store.snapshot_download", download)
    return tmp_path


@pytest.fixture(scope="module")
def features() -> nn.Module:
    return nn.Conv2d(3, 4, 3).eval()


@pytest.fixture(scope="module")
def cbm(features: nn.Module) -> PostHocCBM:
    backbone = Backbone(features, "mean", None, 4, ((0.5,) * 3, (0.25,) * 3), SOURCE)
    return PostHocCBM(backbone, BANK, nn.Linear(3, 7)).eval()


def test_a_model_comes_back_from_the_hub(hub: Path, cbm: PostHocCBM, features: nn.Module) -> None:
    cbm.push_to_hub("someone/birds", private=True, token="hf_x")
    assert (hub / "someone/birds/private").read_text() == "True hf_x"
    images = torch.ones(1, 3, 8, 8)
    for place in ("someone/birds", str(hub / "someone/birds")):
        loaded = PostHocCBM.from_hub(place, features, revision="main")
        assert torch.equal(loaded(images), cbm(images))
    with pytest.raises(ValueError, match=r"Read it with `PostHocCBM\.load`"):
        ResidualCBM.from_hub("someone/birds", features)
    with pytest.raises(RevisionNotFoundError):
        PostHocCBM.from_pretrained("someone/birds", features, revision="other")
    with pytest.raises(ValueError, match="download=True"):
        PostHocCBM.from_pretrained("someone/birds")
    # A card that is there, which may have been written by hand, stays.
    (hub / "someone/birds/README.md").write_text("mine")
    cbm.save_pretrained(hub / "someone/birds")
    assert (hub / "someone/birds/README.md").read_text() == "mine"


def test_the_card_says_what_the_model_is(hub: Path, cbm: PostHocCBM) -> None:
    cbm.push_to_hub("someone/birds", metrics=SCORES, description="Fitted on CUB.", license="mit")
    card = ModelCard((hub / "someone/birds/README.md").read_text(encoding="utf-8"))
    assert card.data.license == "mit"
    assert card.data.pipeline_tag == "image-classification"
    assert card.data.base_model == "google/vit-base-patch16-224"
    lines = card.text.splitlines()
    for line in (
        "cbm = PostHocCBM.from_pretrained('someone/birds', download=True)",
        # No name breaks a table, or brings markup of its own.
        "| red \\| wing | 0.9 |  |",
        "| &lt;b>tail&lt;/b> | 0.55 |  |",
        "| song\\\\n\\# of \\`a\\` \\[bird\\](x) |  |  |",
        "| CEM | 0.75 | 0.5 |",
        "| CGIM |  | 0.125 |",
    ):
        assert line in lines, line
    assert "note = \\*bold\\* &lt;b>." in card.text


def test_nothing_is_sent_of_a_model_that_no_file_holds(hub: Path, cbm: PostHocCBM, features: nn.Module) -> None:
    class Own(nn.Linear):
        """May compute something else."""

    own = PostHocCBM(features, cbm.bank, Own(3, 7))
    for send in (own.push_to_hub, lambda name: own.save_pretrained(hub / name)):
        with pytest.raises(ValueError, match="`head` of the model, to be written to a file"):
            send("someone/own")
    assert not (hub / "someone").exists()
