"""What the benchmark scripts share: times in turn, peak memory, the table and the sections."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

# Waiting OpenMP threads spin by default, which on a busy machine costs more than the work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

S = TypeVar("S")

SEED = 0
THREADS = 2
#: Where models are; the processes of sections are told in the environment.
DEVICE = torch.device(
    next((argument[len("--device=") :] for argument in sys.argv if argument.startswith("--device=")), None)
    or os.environ.get("SPEED_DEVICE", "cpu")
)
os.environ["SPEED_DEVICE"] = str(DEVICE)


class Row(dict[str, Any]):
    """One line of the table: what, ours, baseline, ratio, target."""


def row(what: str, ours: str, other: str, ratio: str, target: str, met: bool | None) -> Row:
    """Make a line; `met` is None where nothing is asked for."""
    return Row(
        what=what, ours=ours, other=other, ratio=ratio, target=target, met={True: "yes", False: "no", None: ""}[met]
    )


def wait() -> None:
    """Wait for what was asked of the device."""
    if DEVICE.type != "cpu":
        torch.accelerator.synchronize(DEVICE)


def alternate(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Return the times of each call in seconds, one for each repeat.

    All are called once before; every second repeat takes them in reverse order, so that none always goes first.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        wait()
    for repeat in range(repeats):
        for name in list(calls)[:: -1 if repeat % 2 else 1]:
            start = time.perf_counter()
            calls[name]()
            wait()
            times[name].append(time.perf_counter() - start)
    return times


class Spread(NamedTuple):
    """Median and extremes over the repeats."""

    median: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Return the ratios of times repeat by repeat: a machine that is slow for a while is slow for both."""
    return spread([a / b for a, b in zip(above, below, strict=True)])


def peak_mib() -> float:
    """Return the peak memory of this process in MiB.

    Linux tells that of the program alone; ru_maxrss is never below what the process that started it held.
    """
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return (int(peak[1]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


def processor() -> str:
    """Name the processor, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return f"{len(names) or os.cpu_count()} cores, {names[0] if names else platform.processor()}"


def machine() -> str:
    on = f"{torch.cuda.get_device_name(DEVICE)}, " if DEVICE.type == "cuda" else ""
    return f"On {processor()}; {on}torch {torch.__version__}, Python {platform.python_version()}."


def table(rows: Sequence[Row]) -> str:
    head = "| what | ours | against | ratio | asked for | met |\n| --- | --- | --- | --- | --- | --- |\n"
    return head + "\n".join("| " + " | ".join(row.values()) + " |" for row in rows) + "\n"


def main(
    script: str, sections: Mapping[str, Callable[[], list[Row]]], arguments: Sequence[str], flags: Sequence[str] = ()
) -> int:
    """Run sections, each in a process of its own, and print one table.

    Parameters
    ----------
    script : str
        File that is called again for each section.
    sections : mapping of str to callable
        What can be measured.
    arguments : sequence of str
        Names of sections, all by default; "--json" for one section in this process; "--device=cuda" to have the models
        there.
    flags : sequence of str
        Further arguments for the processes of the sections.

    Returns
    -------
    int
        0, or 2 where there is no such section.
    """
    arguments = [argument for argument in arguments if not argument.startswith("--device=")]
    names = [name for name in arguments if not name.startswith("--")] or list(sections)
    unknown = {name for name in names if name not in sections}
    unknown |= {name for name in arguments if name.startswith("--") and name != "--json"}
    if unknown:
        print(f"Unknown section {sorted(unknown)}; there are {list(sections)}.", file=sys.stderr)
        return 2
    if "--json" in arguments:
        torch.set_num_threads(THREADS)
        torch.manual_seed(SEED)
        print(json.dumps(sections[names[0]]()))
        return 0
    rows: list[Row] = []
    for name in names:
        command = [sys.executable, script, name, "--json", *flags]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows += [Row(columns) for columns in json.loads(output)]
        print(f"{name}: done", file=sys.stderr)
    print(f"{machine()}\n\n{table(rows)}")
    return 0


def main_of_sizes(
    script: str,
    measures: Mapping[str, Callable[[S], list[Row]]],
    sizes: tuple[S, S],
    arguments: Sequence[str],
    flags: Sequence[str] = (),
) -> int:
    """Run sections that come in two sizes, real and, for "--tiny", such as show only whether they run."""
    tiny = "--tiny" in arguments
    flags = [*flags, *(["--tiny"] if tiny else [])]
    sections = {name: partial(measure, sizes[tiny]) for name, measure in measures.items()}
    return main(script, sections, [argument for argument in arguments if argument not in flags], flags)
