"""The folder of a set of images: of one run's settings, nothing in it is replaced, and no link is followed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from captum_concepts.support.files import _PARTIAL, _host
from kills import contents, raising
from quantus_concepts.studies._kit import image_set
from quantus_concepts.studies._kit.image_set import ImageSet

SETTINGS = {"seed": "0", "size": "32"}


def open_set(path: Path, **settings: str) -> ImageSet:
    return ImageSet(path, SETTINGS | settings, "set.json")


def test_a_set_goes_on_and_replaces_nothing(tmp_path: Path) -> None:
    images = open_set(tmp_path / "new" / "set")
    assert images.write("a/b/0.png", b"whole")
    (images.path / "a" / "b" / "1.png").write_bytes(b"mine")
    half = images.path / "a" / "b" / f"{_PARTIAL}-{_host()}-{2**22 + 1}-0.png"
    half.write_bytes(b"half")
    images = open_set(images.path)
    assert contents(images.path, hidden=True, read=Path.read_text).keys() == {"a/b/0.png", "a/b/1.png", "set.json"}
    assert images.has("a/b/0.png")
    assert not images.has("a/b")
    assert not images.write("a/b/1.png", b"other")
    half.write_bytes(b"half")
    assert images.names("a/b") == {"0.png", "1.png"}
    assert images.names("none") == set()
    assert (images.path / "a" / "b" / "1.png").read_bytes() == b"mine"


def test_folders_of_other_settings_or_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "set"
    open_set(path).write("0.png", b"whole")
    with pytest.raises(ValueError, match=r"images of other settings \(seed: 0 there, 1 here; more: none there, x here"):
        open_set(path, seed="1", more="x")
    (path / "set.json").rename(tmp_path / "set.json")
    (path / "set.json").symlink_to(tmp_path / "set.json")
    with pytest.raises(ValueError, match="holds other files"):
        open_set(path)
    (path / "set.json").unlink()
    (path / "set.json").write_text("[]")
    with pytest.raises(ValueError, match="holds other files"):
        open_set(path)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("set/0.png/below", "link"):
        with pytest.raises(ValueError, match="is a file"):
            open_set(tmp_path / name)


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    images, elsewhere = open_set(tmp_path / "set"), tmp_path / "elsewhere"
    images.write("0.png", b"whole")
    elsewhere.mkdir()
    (elsewhere / "1.png").write_bytes(b"mine")
    half = elsewhere / f"{_PARTIAL}-{_host()}-{2**22 + 1}-0.png"
    half.write_bytes(b"half")
    (images.path / "pair").symlink_to(elsewhere)
    images = open_set(images.path)
    assert half.exists()
    assert not images.has("pair/1.png")
    assert images.names("pair") == set()
    for name in ("pair/0.png", "pair/guides/0.png"):
        with pytest.raises(ValueError, match="pair is a link"):
            images.write(name, b"other")
    assert {path.name for path in elsewhere.iterdir()} == {"1.png", half.name}


def test_a_full_disk_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = open_set(tmp_path / "set")
    full = raising(OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(image_set, "write_atomically", full)
    with pytest.raises(OSError, match=r"No space left on device.*make room, .* --out .*set: it goes on"):
        images.write("0.png", b"whole")
