"""What Windows and macOS do otherwise, simulated: locks and open files, links, pipes, processes, paths, encodings."""

from __future__ import annotations

import ast
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from torch import nn

import captum_concepts
import folder_kills
import quantus_concepts
from captum_concepts import ConceptBank, PostHocCBM
from captum_concepts._support import files
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.options import given_settings

SOURCES = [
    path for package in (captum_concepts, quantus_concepts) for path in sorted(Path(package.__path__[0]).rglob("*.py"))
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs a file system of Linux")


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
    with pytest.raises(KeyboardInterrupt), RunFolder("toy", {}, tmp_path / "other"):
        raise KeyboardInterrupt
    assert not (tmp_path / "other" / "run.json").exists()


@pytest.mark.usefixtures("windows")
def test_no_signal_is_sent_to_see_whether_a_process_runs() -> None:
    assert files.is_alive(2**22)


@linux
def test_the_file_of_a_path_with_a_drive_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("C:\\nets.py").write_text("1234")
    for there in ("C:\\nets.py:make", Path("C:\\nets.py")):
        assert given_settings({"net": there})["net"].startswith(f"{there} (")
    for other in ("D:\\nets.py:make", "timm:resnet18", 3):
        assert given_settings({"net": other})["net"] == str(other)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists what a process has mapped")
def test_a_model_that_was_read_leaves_its_file_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "cbm.safetensors"
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.eye(4)), nn.Linear(4, 5))
    cbm.save(path)
    again = PostHocCBM.load(path, cbm.features)
    # What Windows would not replace as long as the model is there.
    assert str(path) not in Path("/proc/self/maps").read_text()
    again.save(path)


def test_texts_are_read_and_written_in_an_encoding_that_is_named() -> None:
    # Elsewhere than on Linux the default is a code page.
    without = [
        f"{path.name}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and _is_of_text(node)
        and "encoding" not in {keyword.arg for keyword in node.keywords}
    ]
    assert SOURCES
    assert without == []


def _is_of_text(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    # A run's own `write_text` takes a name and a text, and writes UTF-8.
    if call.func.attr in ("read_text", "write_text"):
        return len(call.args) < 2
    # Of paths; Image.open reads bytes.
    modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    return call.func.attr == "open" and ast.unparse(call.func.value) != "Image" and "b" not in "".join(map(str, modes))


def test_data_sets_go_to_workers_that_start_anew() -> None:
    # As on Windows and macOS; `tests/datasets/test_lazy.py` starts one.
    from quantus_concepts import datasets

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
