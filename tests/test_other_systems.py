"""What Windows and macOS do otherwise, simulated: locks and open files, links, processes that start anew."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from torch import nn

import folder_kills
from captum_concepts import ConceptBank, PostHocCBM
from captum_concepts.support import files
from quantus_concepts import datasets


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No links, no question about a process, and no open lock that can be removed: it goes when it is released."""
    unlink, release = Path.unlink, FileLock.release

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Windows does this otherwise.")

    def in_use(path: Path, *arguments: Any, **keywords: Any) -> None:
        if path.name == ".lock":
            raise PermissionError(13, "The process cannot access the file because it is being used", str(path))
        unlink(path, *arguments, **keywords)

    def released(lock: FileLock, *arguments: Any, **keywords: Any) -> None:
        release(lock, *arguments, **keywords)
        unlink(Path(lock.lock_file), missing_ok=True)

    monkeypatch.setattr(files, "POSIX", False)
    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(os, "symlink", refuse)
    monkeypatch.setattr(Path, "unlink", in_use)
    monkeypatch.setattr(FileLock, "release", released)


@pytest.mark.usefixtures("windows")
def test_a_folder_is_written_and_replaced_without_links_and_with_a_lock_that_stays_open(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder_kills.write(folder, {"report.html": "one", "figures/a.png": "one"}, {"seed": "0"})
    folder_kills.write(folder, {"report.html": "two"}, {"seed": "1"}, overwrite=True)
    assert folder_kills.texts(folder) == {"report.html": "two"}
    assert files.is_alive(2**22)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists what a process has mapped")
def test_a_model_that_was_read_leaves_its_file_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "cbm.safetensors"
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.eye(4)), nn.Linear(4, 5))
    cbm.save(path)
    again = PostHocCBM.load(path, cbm.features)
    # What Windows would not replace as long as the model is there.
    assert str(path) not in Path("/proc/self/maps").read_text()
    again.save(path)


def test_data_sets_go_to_workers_that_start_anew() -> None:
    birds = datasets.PaintedBirds(n_images=6, image_size=32, n_classes=3, n_concepts=12)
    sources = datasets.PaintedObjects(n_per_class=4, size=24), datasets.PaintedScenes(n_per_class=4, size=32)
    for data in (
        birds,
        birds.select(birds.concept_names[:3]),
        datasets.PaintedSubstitutions(birds),
        datasets.ObjectsOnScenes(*sources, n_per_pair=1, image_size=32),
    ):
        image = data[0].image
        assert torch.equal(pickle.loads(pickle.dumps(data))[0].image, image)
