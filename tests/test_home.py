"""`~` at the start of a path is the home of whoever runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from captum_concepts import ConceptBank
from captum_concepts.support.checks import check_path
from quantus_concepts.datasets import SceneFolder


def test_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    ConceptBank(torch.rand(2, 3)).save("~/bank.safetensors")
    assert (tmp_path / "bank.safetensors").is_file()
    assert len(ConceptBank.load("~/bank.safetensors").names) == 2
    (tmp_path / "scenes" / "cave").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "scenes" / "cave" / "0.png")
    assert SceneFolder("~/scenes").class_names == ["cave"]
    assert check_path("path", "~/a/~b") == tmp_path / "a" / "~b"
    assert check_path("path", "a/~") == Path("a/~")
    with pytest.raises(TypeError, match="`path` to be a path"):
        check_path("path", 3)
