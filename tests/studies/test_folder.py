"""The folder of a run: new, empty or its own, and nothing of the user's is lost, whatever lies in it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from folder_kills import texts
from kills import contents, needs_fork
from quantus_concepts.studies._kit import folder as folders
from quantus_concepts.studies._kit.folder import LOCK, PROGRAM, REPORT, RUN, RunFolder

SETTINGS = {"seed": "0"}
OTHER = {"seed": "1"}
MINE = "mine"


def run(out: Path | None, files: dict[str, str] | None = None, settings: dict[str, str] | None = None, **more) -> Path:
    with RunFolder("toy", SETTINGS if settings is None else settings, out, **more) as folder:
        for name, text in (files or {"figures/a.svg": "a", "results.csv": "1", REPORT: "page"}).items():
            folder.write(name, text)
    return folder.path


def interrupted(out: Path | None, work: Callable[[RunFolder], object] = lambda folder: None, **more) -> None:
    def begin() -> None:
        with RunFolder("toy", SETTINGS, out, **more) as folder:
            work(folder)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin()


def craft(path: Path, files: object, settings: object = None) -> Path:
    """Write what a stranger may have put into a folder."""
    path.mkdir(exist_ok=True)
    listed = {"program": PROGRAM, "command": "toy", "settings": settings or SETTINGS, "files": files}
    (path / RUN).write_text(json.dumps(listed))
    return path


def digest(text: str) -> str:
    return f"{hashlib.sha256(text.encode()).hexdigest()} {len(text)}"


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# New, empty, its own


def test_without_a_name_each_run_makes_a_new_folder(tmp_path, monkeypatch):
    class Stopped(folders.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2025, 3, 1, 9, 5, 7)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "datetime", Stopped)
    assert run(None) == Path("reports/toy-20250301-090507")
    # One whose name can be foreseen is not entered, nor is a link followed.
    (tmp_path / "home").mkdir()
    Path("reports/toy-20250301-090507-2").symlink_to(tmp_path / "home")
    assert run(None) == Path("reports/toy-20250301-090507-3")
    (tmp_path / "link").symlink_to(tmp_path / "home")
    with pytest.raises(ValueError, match=r"is a link\. Name the folder"):
        run(None, root=tmp_path / "link")
    assert entries(tmp_path / "home") == []


def test_a_folder_is_made_with_its_parents_and_an_empty_one_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("a/b", "empty"):
        run(tmp_path / name)
        assert texts(tmp_path / name) == {"figures/a.svg": "a", "results.csv": "1", REPORT: "page"}
        assert entries(tmp_path / name) == [LOCK, "figures", REPORT, "results.csv", RUN]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path, overwrite):
    for name in ("thesis.tex", LOCK):
        (tmp_path / name).write_text(MINE)
        with pytest.raises(ValueError, match="holds other files"):
            run(tmp_path, overwrite=overwrite)
        assert contents(tmp_path, hidden=True, read=Path.read_text) == {name: MINE}
        (tmp_path / name).rename(tmp_path.parent / f"{name} {overwrite}")
    (tmp_path / "file").write_text(MINE)
    with pytest.raises(ValueError, match="is a file"):
        run(tmp_path / "file", overwrite=overwrite)
    with pytest.raises(ValueError, match="--out"):
        run(tmp_path / "file" / "below", overwrite=overwrite)
    assert entries(tmp_path) == ["file"]


def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "new" / "deep", None):
        interrupted(out, root=tmp_path / "reports")
    assert entries(tmp_path) == ["empty"]
    assert entries(tmp_path / "empty") == []


# Going on, and replacing


def test_the_same_settings_go_on_from_the_cache(tmp_path, capsys):
    made = []

    def make():
        made.append(1)
        return {"x": torch.arange(3)}

    interrupted(tmp_path / "run", lambda folder: folder.cached("net", {"seed": 0}, make))
    assert f"--out {tmp_path / 'run'} goes on" in capsys.readouterr().err
    with RunFolder("toy", SETTINGS, tmp_path / "run") as folder:
        assert folder.cached("net", {"seed": 0}, make)["x"].tolist() == [0, 1, 2]
        assert len(made) == 1
        folder.cached("net", {"seed": 1}, make)
    assert len(made) == 2


@pytest.mark.parametrize(
    ("command", "settings", "difference"),
    [
        ("toy", OTHER, "seed: 0 there, 1 here"),
        ("toy", SETTINGS | {"top": "3"}, "top: none there, 3 here"),
        ("other", SETTINGS, "command: toy there, other here"),
    ],
)
def test_another_run_is_refused_with_the_difference(tmp_path, command, settings, difference):
    before = contents(run(tmp_path / "run"), hidden=True)
    with (
        pytest.raises(ValueError, match=rf"holds another run \(.*{difference}.*--overwrite"),
        RunFolder(command, settings, tmp_path / "run"),
    ):
        pytest.fail("entered")
    assert contents(tmp_path / "run", hidden=True) == before


def test_overwrite_removes_what_the_run_wrote_and_nothing_else(tmp_path):
    path = run(tmp_path / "run", {"only/old.txt": "old", "figures/a.svg": "old", "results.csv": "old", REPORT: "old"})
    (path / "figures" / "mine.png").write_text(MINE)
    (path / "notes.txt").write_text(MINE)
    run(path, {"results.csv": "new", REPORT: "new"}, OTHER, overwrite=True)
    assert texts(path) == {"figures/mine.png": MINE, "notes.txt": MINE, "results.csv": "new", REPORT: "new"}
    assert not (path / "only").exists()
    assert set(json.loads((path / RUN).read_text())["files"]) == {"results.csv", REPORT}


def test_overwriting_a_run_that_was_interrupted_keeps_its_cache(tmp_path):
    interrupted(tmp_path / "run", lambda folder: folder.cached("net", 0, lambda: {"x": torch.zeros(2)}), overwrite=True)
    with RunFolder("toy", SETTINGS, tmp_path / "run", overwrite=True) as folder:
        assert folder.cached("net", 0, lambda: pytest.fail("trained again"))["x"].tolist() == [0, 0]
        folder.write(REPORT, "page")
    with RunFolder("toy", SETTINGS, tmp_path / "run", overwrite=True) as folder:
        assert folder.cached("net", 0, lambda: {"x": torch.ones(2)})["x"].tolist() == [1, 1]


def test_a_file_that_was_changed_is_not_overwritten(tmp_path):
    path = run(tmp_path / "run")
    (path / "results.csv").write_text(MINE)
    for settings, overwrite in ((SETTINGS, False), (SETTINGS, True), (OTHER, True)):
        with pytest.raises(ValueError, match=r"results.csv is not as this program wrote it: move it away"):
            run(path, settings=settings, overwrite=overwrite)
    assert (path / "results.csv").read_text() == MINE


def test_a_report_stands_only_in_a_complete_folder(tmp_path):
    path = run(tmp_path / "run")
    with RunFolder("toy", SETTINGS, path) as folder:
        folder.cached("net", 0, lambda: {"x": torch.zeros(2)})
        assert (path / REPORT).exists()
        file = folder.file("results.csv")
        file.__enter__().write(b"half")
        assert not file.__exit__(OSError, OSError(28, "full"), None)
        # An error leaves what was there.
        assert texts(path)["results.csv"] == "1"
        assert not [name for name in entries(path) if "part" in name]
        with folder.file("results.csv") as file:
            file.write(b"1")
        assert not (path / REPORT).exists()


@needs_fork
def test_killed_before_each_change_of_the_folder(tmp_path):
    script = Path(__file__).parent.parent / "folder_kills.py"
    path = os.pathsep.join([str(script.parent), *sys.path])
    subprocess.run([sys.executable, script, tmp_path], check=True, env={**os.environ, "PYTHONPATH": path})


def test_a_second_run_is_refused_while_one_works(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_PATIENCE", 0.1)
    path = run(tmp_path / "run")
    before = contents(path, hidden=True)
    with (
        folders.FileLock(path / LOCK),
        pytest.raises(ValueError, match="in use by another run"),
        RunFolder("toy", SETTINGS, path, overwrite=True),
    ):
        pytest.fail("entered")
    assert contents(path, hidden=True) == before
    run(path)


# Attacks: nothing in a folder is believed


@pytest.fixture
def home(tmp_path):
    """A folder of the user's outside of all runs."""
    folder = tmp_path / "home"
    (folder / "figures").mkdir(parents=True)
    for name in ("photo.jpg", "results.csv", "figures/a.svg", "run.json"):
        (folder / name).write_text(MINE)
    yield folder
    assert contents(folder, hidden=True, read=Path.read_text) == dict.fromkeys(
        ("figures/a.svg", "photo.jpg", "results.csv", "run.json"), MINE
    )


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", [RUN, LOCK, ".part-run.json", "cache", "figures"])
@pytest.mark.parametrize("target", ["photo.jpg", "", "none"])
def test_a_link_in_the_place_of_a_part_is_refused_before_anything_is_computed(tmp_path, home, name, target, overwrite):
    path = craft(tmp_path / "run", {"figures/a.svg": digest(MINE)})
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(home / target)
    for settings in (SETTINGS, OTHER):
        with (
            pytest.raises(ValueError, match=r"Remove it|holds other files"),
            RunFolder("toy", settings, path, overwrite=overwrite),
        ):
            pytest.fail("entered")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", ["results.csv", ".part-results.csv", "figures/.part-a.svg", REPORT])
def test_a_link_in_the_place_of_a_file_is_never_followed(tmp_path, home, name, listed, overwrite):
    files = {"results.csv": digest(MINE), "figures/a.svg": "", REPORT: digest(MINE)}
    for settings in (SETTINGS, OTHER):
        path = craft(tmp_path / f"run {settings['seed']}", files if listed else {}, settings)
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).symlink_to(home / "results.csv")
        with pytest.raises(ValueError, match=r"in the way|not as this program|not written by|holds another run"):
            run(path, overwrite=overwrite)
        assert (path / name).is_symlink()


def test_a_link_that_takes_the_place_of_a_file_while_it_is_written_is_not_followed(tmp_path, home):
    path = tmp_path / "run"
    with RunFolder("toy", SETTINGS, path) as folder, folder.file("figures/a.svg") as file:
        (path / "figures" / ".part-a.svg").unlink()
        (path / "figures" / ".part-a.svg").symlink_to(home / "photo.jpg")
        file.write(b"a")
    # What is listed is what was written, so that the link is not taken for it.
    assert json.loads((path / RUN).read_text())["files"] == {"figures/a.svg": digest("a")}
    with pytest.raises(ValueError, match="not as this program wrote it"):
        run(path)


def test_only_a_plain_file_in_plain_folders_is_what_a_killed_run_left(tmp_path, home):
    path = craft(tmp_path / "run", {})
    listed = json.loads((path / RUN).read_text())
    names = ["obj/photo.jpg", "notes.txt", "folder.txt", "gone/half.csv", "half.csv"]
    (path / RUN).write_text(json.dumps({**listed, "writing": names}))
    (home / ".part-photo.jpg").write_text(MINE)
    (path / "obj").symlink_to(home)
    (path / ".part-notes.txt").symlink_to(home / "photo.jpg")
    (path / ".part-folder.txt").mkdir()
    (path / ".part-half.csv").write_text("half")
    run(path)
    assert (home / ".part-photo.jpg").read_text() == MINE
    assert (path / ".part-notes.txt").is_symlink()
    assert (path / ".part-folder.txt").is_dir()
    assert not (path / ".part-half.csv").exists()
    (home / ".part-photo.jpg").unlink()


@pytest.mark.parametrize("name", ["obj/photo.jpg", "figures/obj/photo.jpg"])
def test_a_link_to_a_folder_inside_a_listed_name_is_refused(tmp_path, home, name):
    path = craft(tmp_path / "run", {name: digest(MINE)}, OTHER)
    link = (path / name).parent
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(home)
    with pytest.raises(ValueError, match=r"is a link or a file in the place of a folder"):
        run(path, overwrite=True)
    assert link.is_symlink()


@pytest.mark.parametrize("overwrite", [False, True])
def test_names_that_lead_outside_are_no_names(tmp_path, home, overwrite):
    names = ["../home/photo.jpg", str(home / "photo.jpg"), "figures/../../home/photo.jpg", "..", ".", "", RUN, LOCK]
    names += ["..\\photo.jpg", "C:\\x", "C:/x", "x:stream", "RUN.JSON", ".LOCK", "figures//a", "figures/", "a. ", "b."]
    names += [
        "nul",
        "figures/COM1.txt",
        "a/" * 20_000 + "a",
        "figures/.part-a.svg",
        "a/b/c/d/e",
        "a\0b",
        "x" * 5000,
        "\ud800",
    ]
    path = craft(tmp_path / "run", dict.fromkeys(names, digest(MINE)))
    run(path, overwrite=overwrite)
    assert set(texts(path)) == {"figures/a.svg", "results.csv", REPORT}
    with RunFolder("toy", SETTINGS, path) as folder:
        for name in names:
            with pytest.raises(ValueError, match="the name of a file inside"):
                folder.write(name, "x")


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "[]",
        '{"program": "quantus-concepts"}',
        '{"program": "quantus-concepts", "files": "mine.txt", "settings": []}',
        '{"program": ["quantus-concepts"], "files": {"mine.txt": ""}}',
        "\xff\xfe",
    ],
    ids=range(6),
)
def test_a_crafted_run_is_none(tmp_path, content):
    (tmp_path / RUN).write_bytes(content.encode("latin1"))
    (tmp_path / "mine.txt").write_text(MINE)
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=r"holds other files"):
            run(tmp_path, overwrite=overwrite)
    assert (tmp_path / "mine.txt").read_text() == MINE


def test_odd_values_in_a_crafted_run_do_no_harm(tmp_path):
    files = {"mine.txt": 3, "results.csv": None, "figures": "", "a": ["b"], "deep/er": digest(MINE), "b": "x" * 10**7}
    path = craft(tmp_path / "run", files, ["seed"])
    (path / "mine.txt").write_text(MINE)
    with pytest.raises(ValueError, match="another run"):
        run(path)
    run(path, overwrite=True)
    assert texts(path) == {"mine.txt": MINE, "figures/a.svg": "a", "results.csv": "1", REPORT: "page"}


@needs_fork
@pytest.mark.parametrize("name", [RUN, LOCK, "results.csv"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, name):
    path = craft(tmp_path / "run", {"results.csv": digest("")})
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with pytest.raises(ValueError, match=r"Remove it|not as this program|holds other files"):
        run(path)


@pytest.mark.parametrize("content", [b"\x08" + bytes(7) + b"{'a':1} ", b"\xff" * 20, b""])
def test_what_is_in_a_cache_is_read_as_numbers_or_made_again(tmp_path, content):
    with RunFolder("toy", SETTINGS, tmp_path / "run") as folder:
        folder.cached("net", 0, lambda: {"x": torch.arange(3)})
    (file,) = (tmp_path / "run" / "cache").glob("*.safetensors")
    file.write_bytes(content)
    listed = json.loads((tmp_path / "run" / RUN).read_text())
    listed["files"][f"cache/{file.name}"] = f"{hashlib.sha256(content).hexdigest()} {len(content)}"
    (tmp_path / "run" / RUN).write_text(json.dumps(listed))
    with RunFolder("toy", SETTINGS, tmp_path / "run") as folder:
        assert folder.cached("net", 0, lambda: {"x": torch.arange(3)})["x"].tolist() == [0, 1, 2]
        assert f"{file.name} of the cache could not be read" in folder.notes[0]


def test_part_files_are_removed_only_where_this_run_wrote_them(tmp_path):
    path = run(tmp_path / "run")
    for overwrite in (False, True):
        (path / ".part-results.csv").write_text(MINE)
        with pytest.raises(ValueError, match=r"part-results.csv is in the way"):
            run(path, settings=OTHER if overwrite else SETTINGS, overwrite=overwrite)
        assert (path / ".part-results.csv").read_text() == MINE
    (path / ".part-results.csv").unlink()
    run(path, overwrite=True)
    listed = json.loads((path / RUN).read_text())
    (path / RUN).write_text(json.dumps({**listed, "writing": ["results.csv"]}))
    (path / ".part-results.csv").write_text("half")
    run(path)
    assert not (path / ".part-results.csv").exists()
    (path / f".part-{RUN}").write_text(MINE)
    with pytest.raises(ValueError, match=r"part-run.json is a link, or no file"):
        run(path)
    assert (path / f".part-{RUN}").read_text() == MINE


@needs_fork
def test_a_lock_that_is_a_hard_link_is_not_emptied(tmp_path):
    path = run(tmp_path / "run")
    (tmp_path / "photo.jpg").write_text(MINE)
    (path / LOCK).unlink()
    os.link(tmp_path / "photo.jpg", path / LOCK)
    with pytest.raises(ValueError, match=r"\.lock is a link"):
        run(path)
    assert (tmp_path / "photo.jpg").read_text() == MINE


def test_large_files_that_a_stranger_lists_are_not_read(tmp_path, monkeypatch):
    path = craft(tmp_path / "run", {"results.csv": digest(MINE)})
    with (path / "results.csv").open("wb") as file:
        file.truncate(10**12)
    monkeypatch.setattr(folders, "hash_file", lambda path: pytest.fail("read"))
    with pytest.raises(ValueError, match="not as this program wrote it"):
        run(path)
    monkeypatch.undo()
    (path / "results.csv").unlink()
    with (path / RUN).open("ab") as file:
        file.truncate(6 * 10**9)
    monkeypatch.setattr(folders.json, "loads", lambda text: pytest.fail("read"))
    with pytest.raises(ValueError, match="holds other files"):
        run(path)


# What is cached


def test_a_cached_frame_comes_back_to_the_bit_with_its_notes(tmp_path):
    frame = pd.DataFrame(
        {
            "class": ["001", "", 'a,"b"\n|\r c'],
            "value": [1 / 3, np.nan, -0.0],
            "n": pd.array([1, None, 2**60], dtype="Int64"),
            "seed": [0, 1, 2],
            "single": np.array([0.1, 1e-40, np.inf], dtype=np.float32),
            "above": [True, False, True],
        }
    )

    def make():
        folder.note("a note")
        warnings.warn("weak  concepts", UserWarning, stacklevel=1)
        return frame

    read = []
    for made in (make, lambda: pytest.fail("made again")):
        with RunFolder("toy", SETTINGS, tmp_path / "run") as folder:
            folder.note("earlier")
            read.append(folder.cached("scores of 1/2", ("a", 0.1), made))
            assert folder.notes == ["earlier", "a note", "weak concepts"]
    pd.testing.assert_frame_equal(*read, check_exact=True)
    assert read[1]["class"].tolist() == frame["class"].tolist()
    numbers = [name for name in frame if name != "class"]
    pd.testing.assert_frame_equal(read[1][numbers], frame[numbers], check_exact=True)
    assert np.signbit(read[1]["value"].iloc[2])


def test_what_differs_in_its_key_is_another_thing(tmp_path):
    with RunFolder("toy", SETTINGS, tmp_path / "run") as folder:
        for key in ({"seed": 0}, {"seed": 1}, torch.arange(2), torch.arange(3), ["0"], [0]):
            marker = [*repr(key).encode()]
            assert folder.cached("x", key, lambda marker=marker: {"x": torch.tensor(marker)})["x"].tolist() == marker
    assert len(list((tmp_path / "run" / "cache").glob("*.safetensors"))) == 6
