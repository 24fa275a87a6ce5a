"""What every study gets from its run: what is kept, what is said again, what a full disk and signals do to it."""

import os
import signal
import time
import warnings
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from captum_concepts._support.whole_folder import WORK
from kills import needs_fork, raising
from quantus_concepts.metrics.host.call import DurationWarning
from quantus_concepts.studies import app
from quantus_concepts.studies._kit.command import ProgressOptions, TableOptions, command, option
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.run import Kept, Run, Study, warnings_as_notes

FRAME = pd.DataFrame(
    {
        "name": ["a", None, "="],
        "value": [1 / 3, np.nan, -0.0],
        "n": pd.array([1, None, 2**60], dtype="Int64"),
        "single": np.array([0.1, 1e-40, np.inf], dtype=np.float32),
        "mixed": pd.Series(["x", 1, np.nan], dtype=object),
    }
)


@dataclass(frozen=True, kw_only=True)
class FewOptions(ProgressOptions, TableOptions):
    """Do little."""

    count: int = option(1, "How many.", bounds=(0, 9))
    file: str = option("", "A file.")
    models: Path | None = option(None, "Where models are kept.", matters=False)


def test_a_kept_frame_comes_back_to_the_bit_with_what_was_said(tmp_path):
    def make(run):
        run.note("new")
        run.settings["bank"] = "random"
        run.facts |= {"linear": True, "picture": b"\x89PNG", "none": b""}
        warnings.warn("weak", UserWarning, stacklevel=2)
        return FRAME

    warned = []
    with OutputFolder(out=tmp_path / "run") as folder:
        for make_frame in (make, lambda _: pytest.fail("made again")):
            run = Run(FewOptions(), folder, notes=["old"])
            with pytest.warns(UserWarning, match="weak"):
                frame = run.kept_frame("scores", {"seed": 0}, lambda make_frame=make_frame, run=run: make_frame(run))
            pd.testing.assert_frame_equal(frame, FRAME, check_exact=True)
            assert np.signbit(frame["value"].iloc[2])
            warned.append((run.notes, run.settings, run.facts))
    assert warned[0] == warned[1]
    assert warned[0][0] == ["old", "new"]


def test_what_cannot_be_kept_is_a_warning_and_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", raising(OSError(28, "No space left on device")))
    file = Kept(tmp_path / "kept", "f_o", {})
    with pytest.warns(UserWarning, match=r"kept/f_o-.* cannot be written .*No space left.*goes on without"):
        file.save({"x": torch.zeros(2)})
    file.write({"step": 1})
    assert file.load() is None
    assert file.read() is None


def test_paths_are_written_out(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    options = FewOptions(out=Path("~/run"), file="~/net.py:model", models=Path("~nobody-here/x"))
    assert options.out == tmp_path / "run"
    assert options.file == f"{tmp_path}/net.py:model"
    assert options.models == Path("~nobody-here/x")


def test_what_matters_tells_runs_apart(tmp_path):
    net = tmp_path / "net.py"
    net.write_text("a")
    options = {"count": 3, "file": f"{net}:model"}
    first = FewOptions(**options).identity()
    assert first == FewOptions(**options, out=Path("x"), progress=False, overwrite=True, models=Path("m")).identity()
    assert first != FewOptions(**options | {"count": 4}).identity()
    net.write_text("ab")
    assert first != FewOptions(**options).identity()


def ends(folder: Path, pipe: int) -> None:
    """End this process as a command does that is told to stop while it works."""

    def collect(options: TableOptions, run: Run) -> None:
        run.kept("model", {}, lambda _: {"x": torch.zeros(1)})
        os.write(pipe, b"!")
        time.sleep(60)

    code = 1
    try:
        os.chdir(folder)
        with Path("told.txt").open("w") as stderr, redirect_stderr(stderr):
            app.app.command("wait")(command(TableOptions, Study("wait", collect, None)))
            code = app.main(["wait", "--out", "run"])
    finally:
        os._exit(code)


@needs_fork
def test_sigterm_ends_a_run_as_ctrl_c_does(tmp_path):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        ends(tmp_path, writer)
    os.close(writer)
    assert os.read(reader, 1) == b"!"
    os.close(reader)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == app.EXIT_TERMINATED
    printed = (tmp_path / "told.txt").read_text()
    assert "go on with the same options and --out run" in printed
    assert "Interrupted; nothing half-written was left." in printed
    assert "Traceback" not in printed
    assert sorted(path.name for path in (tmp_path / "run" / WORK / "kept").iterdir())


def test_how_long_something_takes_is_no_note() -> None:
    with warnings_as_notes() as notes:
        warnings.warn("This takes up to 15 min here.", DurationWarning, stacklevel=1)
        warnings.warn("Three classes have no image.", UserWarning, stacklevel=1)
    assert notes == ["Three classes have no image."]
