"""The process that a command line is: what it loads, prints and returns, and what signals and pipes do to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quantus_concepts.studies.app import COMMANDS, EXIT_BAD_INPUT, EXIT_TERMINATED, GROUPS, main

COMPOSE = ["compose", "--n-per-pair", "2", "--image-size", "32", "--no-progress", "--out", "out"]
EXPLAIN = ["explain", "--n-train", "40", "--random-banks", "2", "--device", "cpu", "--out", "out"]
HEAVY = ("torch", "torchvision", "quantus", "sklearn", "matplotlib", "pandas", "numpy", "timm", "jinja2")
HELP = ("--help", "benchmark concepts --help", "explain --help", "pasta score --help", "--version")


def environment(**settings: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"} | settings


def python(code: str, **settings: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(**settings), check=False)


def test_help_loads_nothing_heavy():
    code = f"""
import sys
from quantus_concepts.studies.app import main
for arguments in {HELP}:
    assert main(arguments.split()) == 0
    print("loaded:", arguments, [name for name in {HEAVY} if name in sys.modules])
"""
    done = python(code)
    loaded = [line for line in done.stdout.decode().splitlines() if line.startswith("loaded:")]
    assert loaded == [f"loaded: {arguments} []" for arguments in HELP], done.stderr


def test_no_arguments_are_a_call_for_help_and_an_error_is_one_line(capsys):
    assert main([]) == 0
    assert "benchmark" in capsys.readouterr().out
    assert main(["explain", "--sede", "3"]) == EXIT_BAD_INPUT
    assert re.fullmatch(r"Error: No such option:? .?--sede.*\n", capsys.readouterr().err)


@pytest.mark.parametrize(("own", "expected"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_waiting_threads_do_not_spin_unless_the_user_says_so(own, expected):
    code = """
import os, sys
from quantus_concepts.studies import app
app.main = lambda: print(os.environ["OMP_WAIT_POLICY"], "torch" in sys.modules)
app.console()
"""
    inherited = {name: value for name, value in environment().items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=inherited | own, check=True, text=True)
    assert done.stdout.split() == [expected, "False"]


def test_help_and_the_page_on_security_name_commands_that_there_are():
    named = re.findall(r"\w+", GROUPS["substitute"].partition(": ")[2].replace(" and ", " "))
    assert {f"substitute {name}" for name in named} == {name for name in COMMANDS if name.startswith("substitute ")}
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text("utf-8")
    in_page = re.findall(rf"`((?:{'|'.join(GROUPS)}) [a-z]+)", page)
    assert len(in_page) > 5
    assert {*in_page} <= {*COMMANDS}


@pytest.mark.parametrize(("more", "expected"), [([], r"\d\d:\d\d:\d\d a stage\n"), (["--no-progress"], "")])
def test_without_a_terminal_each_stage_is_a_line_with_its_time(more, expected):
    code = """
from captum_concepts.support.log import LOG
from quantus_concepts.studies import app
app.main = lambda: LOG.line("a stage")
app.console()
"""
    command = [sys.executable, "-c", code, *more]
    done = subprocess.run(command, capture_output=True, env=environment(), check=True, encoding="utf-8")
    assert re.fullmatch(expected, done.stderr)


def test_a_reader_that_leaves_is_no_traceback():
    code = """
import sys, typer
from quantus_concepts.studies import app
def main():
    sys.stdin.read()
    typer.echo("a line")
app.main = main
raise SystemExit(app.console())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-1, env=environment(), text=True
    ) as process:
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_signal_ends_a_run_that_then_goes_on(tmp_path):
    waits = """
import time
from quantus_concepts.studies import app
from quantus_concepts.studies.explain import study
def wait(*_, **__):
    print("waits", flush=True)
    time.sleep(60)
study.load_trained = wait
raise SystemExit(app.console())
"""
    with subprocess.Popen(
        [sys.executable, "-c", waits, *EXPLAIN], stdout=-1, stderr=-1, env=environment(), cwd=tmp_path, text=True
    ) as process:
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGTERM)
        out, printed = process.communicate()
    assert process.returncode == EXIT_TERMINATED
    assert out == ""
    assert "What is finished is kept: the same command with --out out goes on from there." in printed
    assert re.match(r"\d\d:\d\d:\d\d explain: network\n", printed)
    assert printed.splitlines()[-1] == "Interrupted."
    assert len(list((tmp_path / "out" / "cache").glob("network-*"))) == 1


def test_processes_that_python_starts_do_not_import_from_the_working_directory(tmp_path):
    (tmp_path / "pickle.py").write_text("open('pickle ran', 'w').close()\n")
    child = "subprocess.call([sys.executable, '-c', 'import pickle'])"
    start = "from quantus_concepts.studies import app"
    code = f"import subprocess, sys; {start}; app.main = lambda: {child}; app.console()"
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, check=True)
    assert not (tmp_path / "pickle ran").exists()


def test_nothing_in_the_working_directory_is_run(tmp_path):
    names = ("captum_concepts", "numpy", "pickle", "quantus_concepts", "sitecustomize", "torch")
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"open('{name} ran', 'w').close()\n")
    console = Path(sys.executable).parent / "quantus-concepts"
    if not console.exists():
        pytest.skip("the package is not installed here, so that there is no console script")
    process = subprocess.run([console, *COMPOSE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(f"{name}.py" for name in names), "out"])
