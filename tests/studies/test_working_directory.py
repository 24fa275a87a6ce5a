"""A command as a process of its own: what lies in the working directory, and a stream that knows few signs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quantus_concepts.studies.concepts.options import ConceptOptions

NAMES = ("captum_concepts", "numpy", "pickle", "quantus_concepts", "sitecustomize", "torch")
TINY = f"benchmark concepts {ConceptOptions.quick} --n-pos 10 --n-neg 10 --device cpu --out out"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[bytes]]:
    folder = tmp_path_factory.mktemp("working directory")
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open('{name} ran', 'w').close()\n")
    console = Path(sys.executable).parent / "quantus-concepts"
    if not console.exists():
        pytest.skip("the package is not installed here, so that there is no console script")
    settings = {"PYTHONIOENCODING": "cp1252", "COLUMNS": "60"}
    given = subprocess.run(
        [str(console), *TINY.split()], cwd=folder, env=os.environ | settings, capture_output=True, check=False
    )
    return folder, given


def test_nothing_in_the_working_directory_is_run(finished: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    folder, _ = finished
    assert sorted(path.name for path in folder.iterdir()) == sorted([*(f"{name}.py" for name in NAMES), "out"])


def test_signs_that_a_stream_does_not_have_cost_nothing(
    finished: tuple[Path, subprocess.CompletedProcess[bytes]],
) -> None:
    folder, given = finished
    assert given.returncode == 0, given.stderr.decode("cp1252")
    assert {"report.html", "results.csv"} <= {path.name for path in (folder / "out").iterdir()}
    shown = given.stdout.decode("cp1252")
    # The weight theta, in plain letters; labels keep their words on a narrow terminal.
    assert "|  weight w  " in shown
    assert "?" not in shown.split("Are the concepts real, present, and in the right place?")[1].split("\n+")[1]
    assert "Gaussian" in shown
