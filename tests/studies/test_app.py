"""The process that a command is: what it loads, how it prints, what it runs."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures_commands import COMMANDS
from quantus_concepts.studies.app import main, tolerant_stream

COMMAND = ["benchmark", "concepts"]
TINIEST = [*COMMANDS["benchmark concepts"].split(), "--n-pos", "10", "--n-neg", "10"]


@pytest.fixture(autouse=True)
def _inside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


HEAVY = ("torch", "torchvision", "quantus", "sklearn", "matplotlib", "pandas", "timm")


HELP = ("--help", "benchmark concepts --help", "pasta score --help", "--version")


def test_help_loads_nothing_heavy():
    code = f"""
import sys
from quantus_concepts.studies.app import main
for arguments in {HELP}:
    assert main(arguments.split()) == 0
    print("loaded:", arguments, [name for name in {HEAVY} if name in sys.modules])
"""
    loaded = [line for line in python("-c", code).stdout.splitlines() if line.startswith("loaded:")]
    assert loaded == [f"loaded: {arguments} []" for arguments in HELP]


MODULE = ("-m", "quantus_concepts.studies.app")


def python(*arguments: str, encoding: str = "utf-8", **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": encoding} | settings
    line = [sys.executable, *arguments]
    return subprocess.run(line, capture_output=True, encoding=encoding, env=environment, check=False)


def test_the_command_runs_as_a_module():
    done = python(*MODULE, *COMMAND, "--sede", "3")
    assert done.returncode == 2
    assert re.match("Error: No such option:? .?--sede", done.stderr)


def test_a_run_on_a_code_page_without_greek_letters():
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = python(*MODULE, *COMMAND, *TINIEST, "--out", "result", encoding="cp437", **locale)
    assert done.returncode == 0, done.stderr
    assert "(part specificity, α = 1" in done.stdout
    # The minus is replaced, nothing is lost.
    assert "−" not in done.stdout
    assert "?" not in done.stdout.replace("?  ", "")
    assert "θ" in Path("result/report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("utf-8", "−1.5 ≈ θ·u 中?"),
        ("cp1252", "-1.5 ~ w·u ??"),
        ("cp437", "-1.5 ≈ w·u ??"),
        ("latin-1", "-1.5 ~ w·u ??"),
        ("ascii", "-1.5 ~ w*u ??"),
    ],
)
def test_signs_that_an_encoding_lacks_are_replaced(tmp_path, encoding, printed):
    path = tmp_path / "output"
    with path.open("w", encoding=encoding) as file, tolerant_stream(file) as stream:
        stream.write("−1.5 ≈ θ·u 中\udcff")
    assert path.read_bytes().decode(encoding) == printed


def test_what_nobody_reads_is_dropped():
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file, tolerant_stream(file) as stream:
        os.close(reader)
        stream.write("a line\n" * 100_000)


def test_no_arguments_are_a_call_for_help_and_the_version_is_told(capsys):
    assert main([]) == 0
    assert "benchmark" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert re.fullmatch(r"quantus-concepts \d+\.\d+.*", capsys.readouterr().out.strip())


FAULTS = """
import resource, sys
import numpy as np
from quantus_concepts.studies.app import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
np.ones(4 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    np.ones(4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone gives memory back at once")
def test_a_command_keeps_the_memory_of_freed_arrays(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)

    def faults(how):
        return int(subprocess.run([sys.executable, "-c", FAULTS, how], check=True, capture_output=True).stdout)

    n_faults = faults("keep")
    assert n_faults < faults("not") / 4
    # What the user has set stays.
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert faults("keep") > 4 * n_faults


NAMES = ("captum_concepts", "numpy", "pickle", "quantus_concepts", "sitecustomize", "torch")


def test_processes_that_python_starts_do_not_import_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "pickle.py").write_text("open('pickle ran', 'w').close()\n")
    child = "subprocess.call([sys.executable, '-c', 'import pickle'])"
    start = "from quantus_concepts.studies import app"
    code = f"import subprocess, sys; {start}; app.main = lambda: {child}; app.console()"
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, check=True)
    assert not (tmp_path / "pickle ran").exists()


def test_nothing_in_the_working_directory_is_run(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open('{name} ran', 'w').close()\n")
    console = Path(sys.executable).parent / "quantus-concepts"
    if not console.exists():
        pytest.skip("the package is not installed here, so that there is no console script")
    words = f"benchmark concepts {' '.join(TINIEST)} --out out"
    process = subprocess.run([str(console), *words.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(f"{name}.py" for name in NAMES), "out"])
