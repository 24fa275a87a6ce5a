import json
import os
import shutil
import sys
from contextlib import suppress
from datetime import datetime

import pytest
from safetensors import SafetensorError

from captum_concepts._support.whole_folder import MANIFEST
from quantus_concepts.studies._kit.output import OutputFolder

NOW = datetime(2025, 3, 1, 9, 5, 7)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_default_folder_is_named_by_command_and_time(tmp_path):
    with OutputFolder("concepts", root=tmp_path / "reports", now=NOW) as output:
        output.write_text("a.txt", "é")
    assert output.path == tmp_path / "reports" / "concepts-20250301-090507"
    assert (output.path / "a.txt").read_bytes() == "é".encode()


def test_running_twice_in_a_second_just_works(tmp_path):
    paths = []
    for _ in range(3):
        with OutputFolder("concepts", root=tmp_path, now=NOW) as output:
            output.write_text("a.txt", "x")
        paths.append(output.path.name)
    assert paths == ["concepts-20250301-090507", "concepts-20250301-090507-2", "concepts-20250301-090507-3"]


def test_nothing_is_made_before_entering(tmp_path):
    output = OutputFolder(out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="made on entering"):
        _ = output.path


def test_given_folder_is_made_with_its_parents_and_an_empty_one_is_taken(tmp_path):
    for _ in range(2):
        with OutputFolder(out=tmp_path / "a" / "b") as output:
            output.write_bytes("figures/x.png", b"1")
        assert names(tmp_path / "a" / "b") == [MANIFEST, "figures/x.png"]
        shutil.rmtree(tmp_path / "a" / "b")
        (tmp_path / "a" / "b").mkdir()


def test_folder_with_an_earlier_run_is_refused_and_kept(tmp_path):
    with OutputFolder(out=tmp_path / "run") as output:
        output.write_text("results.csv", "old")
    with (
        pytest.raises(ValueError, match=r"already holds files \(results.csv\).*--overwrite"),
        OutputFolder(out=tmp_path / "run"),
    ):
        pytest.fail("entered")
    assert (tmp_path / "run" / "results.csv").read_text() == "old"


def test_a_manifest_cannot_point_outside(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "precious.txt").write_text("mine")
    listed = ["../precious.txt", str(tmp_path / "precious.txt"), 3, "a.txt"]
    (tmp_path / "run" / MANIFEST).write_text(json.dumps({"files": listed}))
    with OutputFolder(out=tmp_path / "run", overwrite=True) as output:
        output.write_text("a.txt", "x")
    assert (tmp_path / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("content", ["", "[]", '{"files": 3}', "{", "[" * 100_000])
def test_a_damaged_manifest_removes_nothing(tmp_path, content):
    (tmp_path / MANIFEST).write_text(content)
    (tmp_path / "mine.txt").write_text("mine")
    with suppress(ValueError), OutputFolder(out=tmp_path, overwrite=True) as output:
        output.write_text("a.txt", "x")
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("place", "overwrite", "message"),
    [
        ("mine", True, r"did not write \(thesis.tex\)"),
        ("mine/thesis.tex", False, r"is a file\. Choose a folder"),
        ("mine/thesis.tex/sub", False, r"cannot be written.*--out"),
        pytest.param(
            "/proc/nothing",
            False,
            "`/proc/nothing` cannot be written",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
        ),
    ],
)
def test_a_place_that_cannot_take_a_run_is_refused_before_any_work(tmp_path, place, overwrite, message):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=message), OutputFolder(out=tmp_path / place, overwrite=overwrite):
        pytest.fail("entered")
    assert names(tmp_path) == ["mine/thesis.tex"]
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "mine"


def test_a_folder_without_write_permission_is_refused(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("permissions do not bind this user")
        with pytest.raises(ValueError, match="cannot be written"), OutputFolder(out=folder):
            pytest.fail("entered")
    finally:
        folder.chmod(0o755)


def test_an_interrupted_run_that_wrote_nothing_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), OutputFolder(root=tmp_path / "reports", now=NOW):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_without_out_goes_on_in_its_folder(tmp_path):
    def run(seed, *, interrupt=False):
        with OutputFolder("concepts", settings={"--seed": seed}, root=tmp_path / "reports") as output:
            (output.kept / "model").write_text("x")
            if interrupt:
                raise KeyboardInterrupt
        return output

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run("1", interrupt=True)
    (folder,) = (tmp_path / "reports").iterdir()
    assert run("2").path != folder
    again = run("1")
    assert again.path == folder
    assert again.resumed
    assert names(folder) == [MANIFEST]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left")])
def test_a_failed_write_names_the_file_and_what_is_complete(tmp_path, error):
    output = OutputFolder(out=tmp_path / "run").__enter__()
    output.write_text("results.csv", "x")
    (output.kept / "model").write_text("x")
    with (
        pytest.raises(
            OSError, match=r"run/figures/a.png cannot be written .*No space left.*new: results.csv.*goes on"
        ) as raised,
        output.file("figures/a.png"),
    ):
        raise error
    output.__exit__(type(raised.value), raised.value, None)
    assert (output.new / "results.csv").read_text() == "x"
    with OutputFolder(out=tmp_path / "run") as output:
        assert output.resumed
        assert not any(output.new.iterdir())


ODD = {"unicode": "Ölçüm ラン 🐦", "spaces": " a b ", "long": "x" * 250, "dollar": "$HOME;rm *", "newline": "a\nb"}


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_odd_names_of_folders_are_fine(tmp_path, name):
    for _ in range(2):
        with OutputFolder(out=tmp_path / name / "run", overwrite=True) as output:
            output.write_text("figures/ä b.txt", "x")
    assert names(tmp_path / name / "run") == [MANIFEST, "figures/ä b.txt"]


IMPOSSIBLE = {"too long": "x" * 300, "far too long": "/".join(["x" * 200] * 30), "NUL": "a\0b"}


@pytest.mark.parametrize("name", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_names_of_folders_are_told(tmp_path, name):
    with pytest.raises(ValueError, match=r"output folder .*--out"), OutputFolder(out=tmp_path / name):
        pytest.fail("entered")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_of_the_user_stays_after_a_failure(tmp_path):
    with pytest.raises(RuntimeError), OutputFolder(out=tmp_path):
        raise RuntimeError
    assert tmp_path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_only_when_complete(tmp_path):
    with OutputFolder(out=tmp_path) as output, output.file("a.csv") as path:
        path.write_text("x")
        assert path.suffix == ".csv"
        assert not (tmp_path / "a.csv").exists()
    assert (tmp_path / "a.csv").read_text() == "x"


@pytest.mark.parametrize("name", ["../a.txt", "/tmp/a.txt", "figures/../../a.txt", ""])
def test_names_outside_the_folder_are_refused(tmp_path, name):
    with (
        OutputFolder(out=tmp_path) as output,
        pytest.raises(ValueError, match="a path inside the output folder"),
    ):
        output.write_text(name, "x")


def test_a_run_whose_folder_another_run_has_keeps_nothing_there(tmp_path):
    first = OutputFolder(out=tmp_path / "run", settings={"--seed": "1"}).__enter__()
    shutil.rmtree(tmp_path / "run")
    with OutputFolder(out=tmp_path / "run", settings={"--seed": "2"}) as second:
        for use in (lambda: first.kept, lambda: first.write_text("a.txt", "first")):
            with pytest.raises(OSError, match="was removed or replaced while this run wrote to it"):
                use()
        second.write_text("b.txt", "second")
    with pytest.raises(OSError, match="was removed or replaced"):
        first.__exit__(None, None, None)
    assert names(tmp_path / "run") == [MANIFEST, "b.txt"]
