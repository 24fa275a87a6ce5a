"""Files of users: archives that grow, and what processes that ended left half-written."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
import torch

from captum_concepts.support.files import _PARTIAL, _host, clear_abandoned, load_torch_file


def test_what_processes_that_are_gone_left_is_removed(tmp_path: Path) -> None:
    names = {
        process: tmp_path / f"{_PARTIAL}-{_host()}-{process}-0.png" for process in (os.getpid(), 2**22 + 1, 10**14)
    }
    for path in names.values():
        path.touch()
    clear_abandoned(tmp_path)
    assert [path for path in names.values() if path.exists()] == [names[os.getpid()]]


@pytest.mark.parametrize("is_padded", [False, True])
def test_a_compressed_file_of_torch_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_padded: bool
) -> None:
    torch.save({"weight": torch.zeros(1000)}, tmp_path / "plain.pth")
    assert load_torch_file(tmp_path / "plain.pth")["weight"].shape == (1000,)
    # Before the archive, so that its records are no larger than the file.
    (tmp_path / "bomb.pth").write_bytes(bytes(10_000 * is_padded))
    with (
        zipfile.ZipFile(tmp_path / "plain.pth") as plain,
        zipfile.ZipFile(tmp_path / "bomb.pth", "a", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for name in plain.namelist():
            bomb.writestr(name, plain.read(name))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("unpacked"))
    with pytest.raises(ValueError, match="it is compressed"):
        load_torch_file(tmp_path / "bomb.pth")


def test_records_that_share_their_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("unpacked"))
    with zipfile.ZipFile(tmp_path / "overlap.pth", "w") as archive:
        archive.writestr("a", bytes(1000))
        archive.filelist *= 5
    with pytest.raises(ValueError, match="it is compressed"):
        load_torch_file(tmp_path / "overlap.pth")
