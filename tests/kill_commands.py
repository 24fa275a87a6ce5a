"""Kill every command at every rename and at random moments, run it again, and count what is lost, mixed or locked.

``python tests/kill_commands.py [--most N] [names of golden runs]`` tells the counts. It takes hours: the suite tests
the folder's swap, at every change of the file system, and one interruption of each command.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from captum_concepts._support.whole_folder import WORK, WholeFolder
from golden.runs import RUNS, do, smaller
from kills import changes, contents, killed
from quantus_concepts.studies.app import main

RENAMES = ("rename", "replace")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
RANDOM_MOMENTS = 5
MINE = ("mine.txt", "figures/mine.png")
#: The second page tells when it was made.
DATED = ("report.html",)


def in_child(work: Callable[[], object]) -> int:
    """Do some work in a child, so that this process never starts a thread, and return how it ended."""
    return killed(work, -1)


def command_of(arguments: list[str]) -> None:
    """Run a command and end the process with its code, silently."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    with Path(os.devnull).open("w") as nowhere, smaller(figures=False):
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        code = main(arguments)
    os._exit(code)


def count_renames(arguments: list[str]) -> int:
    """Return how many files a run renames."""
    with tempfile.NamedTemporaryFile() as file:

        def counted() -> None:
            with changes(lambda number: Path(file.name).write_text(str(number)), RENAMES):
                command_of(arguments)

        if in_child(counted) != 0:
            raise RuntimeError(f"{shlex.join(arguments)} failed.")
        return int(Path(file.name).read_text())


def results(folder: Path) -> dict[str, str]:
    """Return what a folder shows, without what tells the time."""
    return {name: digest for name, digest in contents(folder).items() if name not in (*DATED, *MINE)}


def trial(arguments: list[str], out: Path, reference: dict[str, str], kill: Callable[[], int], *, earlier: bool) -> str:
    """Kill a run, look at what it left, run it again, and tell what is wrong."""
    shutil.rmtree(out, ignore_errors=True)
    before: dict[str, str] = {}
    if earlier:
        with WholeFolder(out, {}) as folder:
            for name in [*reference, *DATED, "gone.csv"]:
                (folder.new / name).parent.mkdir(parents=True, exist_ok=True)
                (folder.new / name).write_text("old")
        for name in MINE:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("mine")
        before = results(out)
    ended = kill()
    remaining = results(out)
    if not (remaining.items() <= before.items() or remaining.items() <= reference.items()):
        return "mixed"
    finished = remaining == reference and not (out / WORK / "run.json").exists()
    if not finished:
        code = in_child(lambda: command_of(arguments))
        if code != 0:
            return "locked"
    if results(out) != reference:
        return "lost"
    if earlier and any((out / name).read_text() != "mine" for name in MINE):
        return "foreign"
    if not finished and (out / WORK).exists():
        return "leftovers"
    return "finished before" if ended == 0 else "well"


def renamed(arguments: list[str], number: int, sign: int) -> int:
    """Run a command that gets a signal before a rename, and return how it ended."""

    def strike(count: int) -> None:
        if count == number:
            os.kill(os.getpid(), sign)

    def work() -> None:
        with changes(strike, RENAMES):
            command_of(arguments)

    return in_child(work)


def at_random(arguments: list[str], seconds: float, sign: int) -> int:
    """Run a command that gets a signal after some seconds."""
    child = os.fork()
    if child == 0:
        command_of(arguments)
    time.sleep(seconds)
    os.kill(child, sign)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def say(text: str) -> None:
    """Print immediately."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(name: str, most: int | None) -> Counter[str]:
    """Try a command in many ways, in the working directory."""
    outcomes: Counter[str] = Counter()
    needs = set(RUNS[name].needs)
    if in_child(lambda: [do(needed, set()) for needed in sorted(needs)] if needs else None) != 0:
        raise RuntimeError(f"What {name} needs failed.")
    if RUNS[name].prepare is not None:
        in_child(RUNS[name].prepare)
    for command in RUNS[name].commands:
        arguments = [*shlex.split(command), "--overwrite"]
        out = Path(arguments[arguments.index("--out") + 1])
        started = time.monotonic()
        n_renames = count_renames(arguments)
        seconds = time.monotonic() - started
        reference = results(out)
        stride = 1 if most is None else max(1, n_renames // most)
        for place, number in enumerate(range(1, n_renames + 1, stride)):
            sign = SIGNALS[place % len(SIGNALS)]
            kill = partial(renamed, arguments, number, sign)
            outcome = trial(arguments, out, reference, kill, earlier=place % 2 == 0)
            outcomes[outcome] += 1
            if outcome != "well":
                say(f"{name}: {sign.name} before rename {number} of {n_renames}: {outcome}")
        for number in range(RANDOM_MOMENTS):
            moment = random.Random(f"{name} {number}").uniform(0, seconds)
            sign = SIGNALS[number % len(SIGNALS)]
            kill = partial(at_random, arguments, moment, sign)
            outcome = trial(arguments, out, reference, kill, earlier=number % 2 == 0)
            outcomes[f"{outcome} (random)"] += 1
            if outcome not in ("well", "finished before"):
                say(f"{name}: {sign.name} after {moment:.1f} s: {outcome}")
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[name for name in RUNS if RUNS[name].commands])
    parser.add_argument("--most", type=int, help="Kills at renames, evenly chosen; by default at every one.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as workshop:
        os.chdir(workshop)
        for name in options.names:
            began = time.monotonic()
            say(f"{name}: {dict(run(name, options.most))}, {time.monotonic() - began:.0f} s")
        os.chdir("/")
