"""Kill a command at random moments, its rerun too, and look at what is left.

``python tests/kill_commands.py [--kills N] COMMAND ...`` with a command line without ``--out`` and ``--overwrite``.
Nothing of the user's may be lost or overwritten, a folder with a report must hold one run, no process may live on,
and the same command must then end with the same files. Needs Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from kills import contents, digest

#: Loaded here once, and not in every run: a kill while modules are imported shows nothing.
from quantus_concepts.studies._kit import report
from quantus_concepts.studies.app import main

#: Seconds in which the helper processes of a killed run have to end.
PATIENCE = 20
MINE = {"mine.txt": "mine", "figures/mine.png": "mine", "tables/results.csv": "mine"}
#: In the folder of an earlier run.
OLD = "old"


def start(arguments: list[str], mark: str) -> int:
    """Start a command in a session of its own, silently, and return its process."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    os.environ["KILLED_RUN"] = mark
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    with Path("output.txt").open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        code = 1
        try:
            code = main(arguments)
        finally:
            os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def living(session: int, mark: str) -> list[int]:
    """Return the processes of a run: those of its session, and those that it started with its environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, _, _, of = folder.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
            marked = f"KILLED_RUN={mark}".encode() in folder.joinpath("environ").read_bytes().split(b"\0")
            if state != "Z" and (int(of) == session or marked):
                found.append(int(folder.name))
    return found


def kill(arguments: list[str], seconds: float, mark: str) -> tuple[int, bool]:
    """Kill a command after some seconds; return how it ended, and whether a process of it lives on."""
    child = start(arguments, mark)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), False
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    code = ended(child)
    for _ in range(PATIENCE * 2):
        if not living(child, mark):
            return code, False
        time.sleep(0.5)
    for process in living(child, mark):
        os.kill(process, signal.SIGKILL)
    return code, True


def make_earlier(out: Path, reference: Path) -> None:
    """Write the folder of a finished run of other settings, every file of which is another, and files of the user."""
    shutil.copytree(reference, out)
    run = json.loads((out / "run.json").read_text())
    run["settings"]["seed"] = OLD
    for name in run["files"]:
        (out / name).write_text(OLD)
        run["files"][name] = digest(out / name)
    (out / "run.json").write_text(json.dumps(run))


def put_files(out: Path) -> None:
    for name, text in MINE.items():
        if not (out / name).exists():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text)


def results(out: Path, last: str) -> dict[str, str]:
    """Return what a run writes that does not tell the time."""
    return {name: text for name, text in contents(out).items() if name != last and name not in MINE}


def wrong(out: Path, reference: dict[str, str], last: str) -> str:
    """Tell what is wrong in a folder after a kill."""
    if any((out / name).read_text() != text for name, text in MINE.items() if (out / name).parent.exists()):
        return "foreign"
    there = results(out, last)
    old = {name for name, text in there.items() if (out / name).read_bytes() == OLD.encode()}
    complete = there == reference or len(old) == len(there) == len(reference)
    return "mixed" if (out / last).exists() and not complete else ""


def trial(arguments: list[str], reference: Path, seconds: float, number: int, last: str) -> list[str]:
    """Kill a command and its rerun, run it to its end, and return what was wrong."""
    rng = random.Random(number)
    out = Path("run")
    shutil.rmtree(out, ignore_errors=True)
    expected = results(reference, last)
    if earlier := number % 2 == 0:
        make_earlier(out, reference)
        put_files(out)
    command = [*arguments, "--out", str(out), *(["--overwrite"] if earlier else [])]
    found = []
    for turn in range(2):
        moment = rng.uniform(0, seconds)
        code, left = kill(command, moment, f"{number} {turn}")
        if code not in (0, -signal.SIGKILL):
            found.append(f"ended with {code}: {Path('output.txt').read_text()[-500:]}")
        if left:
            found.append("a process lives on")
        if out.exists():
            if not earlier and (out / "run.json").exists():
                put_files(out)
            if error := wrong(out, expected, last):
                found.append(f"{error}, after {moment:.2f} s of turn {turn}")
    code = ended(start(command, "last"))
    if code != 0:
        return [*found, f"goes not on, {code}: {Path('output.txt').read_text()[-500:]}"]
    if results(out, last) != expected or not (out / last).exists():
        here = results(out, last)
        found.append(f"other results: {sorted(set(here.items()) ^ set(expected.items()))[:4]}")
    if error := wrong(out, expected, last):
        found.append(f"{error}, at the end")
    return found


def say(text: str) -> None:
    """Print immediately."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(arguments: list[str], kills: int, seed: int, last: str) -> Counter[str]:
    """Kill a command many times, in the working directory, and count what came of it."""
    reference = Path("reference")
    started = time.monotonic()
    command = [*arguments, "--out", str(reference)]
    if ended(start(command, "reference")) != 0:
        raise RuntimeError(f"{shlex.join(arguments)} failed: {Path('output.txt').read_text()}")
    seconds = time.monotonic() - started
    before = contents(reference, hidden=True)
    outcomes: Counter[str] = Counter()
    for number in range(seed, seed + kills):
        found = trial(arguments, reference, seconds, number, last)
        outcomes["wrong" if found else "well"] += 1
        for text in found:
            say(f"{number}: {text}")
        if contents(reference, hidden=True) != before or {path.name for path in Path().iterdir()} != {
            "reference",
            "run",
            "output.txt",
        }:
            raise RuntimeError(f"{number}: something outside of the folder was changed.")
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="How many runs are killed, each two times.")
    parser.add_argument("--seed", type=int, default=0, help="Of the moments.")
    parser.add_argument("--last", default=report.REPORT, help="What is written last.")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="The command, with absolute paths.")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as workshop:
        os.chdir(workshop)
        outcomes = run(options.arguments, options.kills, options.seed, options.last)
        os.chdir("/")
    say(f"{shlex.join(options.arguments)}: {dict(outcomes)}, {time.monotonic() - began:.0f} s")
    raise SystemExit(1 if outcomes["wrong"] else 0)
