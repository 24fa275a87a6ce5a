"""At every moment a folder holds files of one run: the one before, or the next."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from contextlib import suppress
from itertools import count
from pathlib import Path

import filelock
import pytest

import folder_kills
from captum_concepts._support.whole_folder import MANIFEST, WORK, WholeFolder, WriteError, is_interrupted
from folder_kills import MINE, NEW, NEW_FILES, OLD, OLD_FILES, of_one_run, texts, write, write_old
from kills import changes, contents, needs_fork


def interrupt_keeping(path, settings, **options):
    """Do a run that is interrupted after it kept one thing more."""
    with suppress(KeyboardInterrupt), WholeFolder(path, settings, **options) as folder:
        folder.kept.mkdir(exist_ok=True)
        (folder.kept / f"{len(list(folder.kept.iterdir()))}").write_text("x")
        raise KeyboardInterrupt


@pytest.fixture
def folder(tmp_path):
    return write_old(tmp_path / "run")


def file_of(path):
    """Return which file it is and when it was changed, not when it was read."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_mode, status.st_nlink


def test_files_take_their_places_and_nothing_else_is_left(tmp_path):
    write(tmp_path / "run", NEW_FILES, NEW)
    assert texts(tmp_path / "run") == NEW_FILES
    assert not (tmp_path / "run" / WORK).exists()
    manifest = json.loads((tmp_path / "run" / MANIFEST).read_text())
    assert manifest == {"program": "quantus-concepts", "settings": NEW, "files": sorted(NEW_FILES)}


def test_an_earlier_run_is_replaced_and_the_users_files_stay(folder):
    before = file_of(folder / "mine.txt")
    write(folder, NEW_FILES, NEW, overwrite=True)
    assert texts(folder) == NEW_FILES | MINE
    assert not (folder / "only").exists()
    assert file_of(folder / "mine.txt") == before


@needs_fork
@pytest.mark.parametrize("check", folder_kills.CHECKS)
def test_a_process_killed_at_any_change_leaves_files_of_one_run(check, tmp_path):
    """SIGKILL before every rename, link, unlink and mkdir."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, folder_kills.__file__, check, tmp_path]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_an_exception_at_any_change_leaves_files_of_one_run(folder, tmp_path):
    for number in count(1):
        path = tmp_path / f"run {number}"
        shutil.copytree(folder, path)

        def at(count, strike=number):
            if count == strike:
                raise KeyboardInterrupt

        try:
            with changes(at):
                write(path, NEW_FILES, NEW, overwrite=True)
        except (KeyboardInterrupt, FileNotFoundError):
            assert of_one_run(path), number
            write(path, NEW_FILES, NEW, overwrite=True)
            assert texts(path) == NEW_FILES | MINE, number
            continue
        break
    assert number > 30


def test_the_same_run_resumes_and_others_are_refused(tmp_path):
    for _ in range(2):
        interrupt_keeping(tmp_path / "run", OLD)
    assert is_interrupted(tmp_path / "run", OLD)
    assert not is_interrupted(tmp_path / "run", NEW)
    with pytest.raises(ValueError, match=r"interrupted run with other settings \(--epochs: 1 there, 2 here\)"):
        write(tmp_path / "run", NEW_FILES, NEW)
    with WholeFolder(tmp_path / "run", OLD) as folder:
        assert folder.resumed
        assert sorted(path.name for path in folder.kept.iterdir()) == ["0", "1"]
    interrupt_keeping(tmp_path / "run", OLD, overwrite=True)
    with WholeFolder(tmp_path / "run", NEW, overwrite=True) as folder:
        assert not folder.resumed
        assert not folder.kept.exists()


def test_a_finished_run_is_not_replaced_by_going_on_with_another(folder):
    interrupt_keeping(folder, NEW, overwrite=True)
    with pytest.raises(ValueError, match="--overwrite"):
        write(folder, NEW_FILES, NEW)
    assert texts(folder) == OLD_FILES | MINE


HOLD = """
import sys
from pathlib import Path
from captum_concepts._support.whole_folder import WholeFolder
with WholeFolder(Path(sys.argv[1]), {}):
    print("in", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(ValueError, match=rf"in use: process {other.pid} on .* since 20.*another folder"):
            write(path, NEW_FILES, {})
        assert not is_interrupted(path, {})
        assert texts(path) == {}
        other.kill()
    write(path, NEW_FILES, {})
    assert texts(path) == NEW_FILES


def test_two_in_one_process_are_refused_too(tmp_path):
    with WholeFolder(tmp_path / "run", OLD), pytest.raises(ValueError, match=f"in use: process {os.getpid()}"):
        write(tmp_path / "run", NEW_FILES, OLD)


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch):
    def none(*_, **__):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(filelock.FileLock, "acquire", none)
    with pytest.warns(UserWarning, match="locks no files: let no second run"):
        write(tmp_path / "run", NEW_FILES, NEW)
    assert texts(tmp_path / "run") == NEW_FILES
    assert not (tmp_path / "run" / WORK).exists()


def test_a_strangers_file_in_the_way_is_named_and_stays(tmp_path):
    folder = WholeFolder(tmp_path, NEW).__enter__()
    (folder.new / "results.csv").write_text("ours")
    (tmp_path / "results.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"did not write.*\(results.csv\).*it goes on"):
        folder.__exit__(None, None, None)
    assert texts(tmp_path) == {"results.csv": "mine"}


def test_a_file_put_there_while_a_run_works_stays(tmp_path):
    with WholeFolder(tmp_path, NEW) as folder:
        (folder.new / "a.txt").write_text("ours")
        (tmp_path / "b.txt").write_text("mine")
    assert texts(tmp_path) == {"a.txt": "ours", "b.txt": "mine"}


def test_a_manifest_cannot_point_outside_by_a_link(tmp_path):
    run, precious = tmp_path / "run", tmp_path / "precious"
    precious.mkdir()
    (precious / "a.txt").write_text("mine")
    run.mkdir()
    (run / "link").symlink_to(precious)
    (run / MANIFEST).write_text(json.dumps({"settings": {}, "files": ["link/a.txt", "../precious/a.txt"]}))
    write(run, NEW_FILES, NEW, overwrite=True)
    assert (precious / "a.txt").read_text() == "mine"


def test_a_link_in_place_of_the_hidden_folder_is_refused(tmp_path):
    precious = tmp_path / "precious"
    (precious / "new").mkdir(parents=True)
    (precious / "new" / "a.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / WORK).symlink_to(precious)
    with pytest.raises(ValueError, match="has a link called"):
        write(tmp_path / "run", NEW_FILES, NEW, overwrite=True)
    assert (precious / "new" / "a.txt").read_text() == "mine"


def test_a_full_disk_at_the_end_names_where_the_files_are(folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    run = WholeFolder(folder, NEW, overwrite=True).__enter__()
    for name, text in NEW_FILES.items():
        (run.new / name).parent.mkdir(parents=True, exist_ok=True)
        (run.new / name).write_text(text)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match=r"cannot be put in their places \(No space.*complete in .*new"):
            run.__exit__(None, None, None)
    assert texts(folder) == OLD_FILES | MINE
    assert texts(folder / WORK / "new") == NEW_FILES
    write(folder, NEW_FILES, NEW, overwrite=True)
    assert texts(folder) == NEW_FILES | MINE


def test_moves_that_cannot_be_ended_are_ended_by_the_next_run(folder, monkeypatch):
    replace = Path.replace

    def broken(self, target):
        if self.name == "c.txt":
            raise OSError(5, "Input/output error")
        return replace(self, target)

    run = WholeFolder(folder, NEW, overwrite=True).__enter__()
    for name, text in NEW_FILES.items():
        (run.new / name).parent.mkdir(parents=True, exist_ok=True)
        (run.new / name).write_text(text)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", broken)
        with pytest.raises(OSError, match=r"Input/output error.*the same command puts them there"):
            run.__exit__(None, None, None)
        with pytest.raises(ValueError, match=r"cannot be written .Input/output error"):
            write(folder, NEW_FILES, NEW, overwrite=True)
    assert of_one_run(folder)
    # The lock is free.
    write(folder, NEW_FILES, NEW, overwrite=True)
    assert texts(folder) == NEW_FILES | MINE
    assert not (folder / WORK).exists()


def test_contents_of_two_equal_runs_are_equal(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, NEW_FILES, NEW)
    assert contents(tmp_path / "a", hidden=True) == contents(tmp_path / "b", hidden=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(tmp_path / "c", {}, NEW)


@pytest.mark.parametrize("again", [False, True])
def test_a_folder_that_is_removed_while_a_run_writes_is_an_error_and_never_a_mixture(tmp_path, again):
    path = tmp_path / "run"
    first = WholeFolder(path, OLD).__enter__()
    (first.new / "a.txt").write_text("first")
    shutil.rmtree(path)
    second = WholeFolder(path, NEW).__enter__() if again else None
    with pytest.raises(WriteError, match="was removed or replaced while this run wrote to it"):
        first.check_held()
    with pytest.raises(WriteError, match="was removed or replaced"):
        first.__exit__(None, None, None)
    if second is None:
        assert not path.exists()
        return
    (second.new / "b.txt").write_text("second")
    second.__exit__(None, None, None)
    assert texts(path) == {"b.txt": "second"}
