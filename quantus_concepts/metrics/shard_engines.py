"""Who scores ranges of items: this process, or actors of Ray on one machine or many."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from captum_concepts.reading import reason_of

if TYPE_CHECKING:
    import pandas as pd

LOCAL, RAY = "local", "ray"
ENGINES = (LOCAL, RAY)
Range = tuple[int, int]
#: How often a range is begun again whose worker died: one that always kills its worker must not go on for ever.
_RETRIES = 2
#: Seconds in which a cluster answers; Ray itself would try for many minutes.
_ANSWER = 10
#: Machines of a cluster that are told.
_SHOWN = 4


class Warned(NamedTuple):
    """A warning that a worker would have shown, in words: its class may be none that another process can import."""

    text: str
    category: str
    module: str
    file: str
    line: int


class Outcome(NamedTuple):
    """What came of a range: its rows, or why there are none and where that was raised; and what it warned of."""

    range: Range
    rows: pd.DataFrame | None = None
    error: str = ""
    trace: str = ""
    warned: tuple[Warned, ...] = ()


@dataclass(frozen=True)
class Workers:
    """How many workers, of which size, in which cluster; one of our own where there is no address."""

    number: int = 1
    num_cpus: float = 1
    num_gpus: float = 0
    address: str | None = None


def score_here(make_scorer: Callable[[], Any], ranges: Sequence[Range]) -> Generator[Outcome, None, None]:
    """Score ranges one after another in this process."""
    scorer = _made(make_scorer)
    for each in ranges:
        yield _outcome(scorer, each)


def score_on_ray(
    make_scorer: Callable[[], Any], ranges: Sequence[Range], workers: Workers
) -> Generator[Outcome, None, None]:
    """Score ranges by actors that take them from a pool, in the order in which they are done."""
    ray = needed("ray")
    number = min(workers.number, len(ranges))
    with _connected(ray, workers, number):
        _check_room(ray, workers, number)
        # A dead actor is started again, and the call it died in with it; both by Ray.
        actor = ray.remote(num_cpus=workers.num_cpus, num_gpus=workers.num_gpus)(_Worker).options(
            max_restarts=-1, max_task_retries=_RETRIES
        )
        factory = _shared(ray, make_scorer)
        actors = [actor.remote(max(1, int(workers.num_cpus))) for _ in range(number)]
        try:
            yield from _pooled(ray, actors, factory, ranges)
        finally:
            for each in actors:
                ray.kill(each)


def needed(package: str) -> Any:
    """Import a package of the extra, or say how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ValueError(
            f"Scoring by ranges needs the package {package}: python -m pip install 'quantus-concepts[ray]'."
        ) from None


class _Worker:
    """An actor: it makes its scorer once, and again after it died."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._scorer: Any = None
        self._warned: list[Warned] = []
        os.environ["OMP_NUM_THREADS"] = str(threads)  # where PyTorch is loaded later
        # In place of a log of the worker that nobody reads. What is filtered, by the scorer itself too, stays so.
        warnings.showwarning = self._note

    def build(self, factory: Sequence[Any]) -> tuple[str, tuple[Warned, ...]]:
        """Make the scorer, and return why that failed, and the warnings."""
        return self._build(factory), self._told()

    def _build(self, factory: Sequence[Any]) -> str:
        # In a list the factory arrives as a reference: what goes wrong in taking it up is told like the rest.
        if self._scorer is None:
            try:
                make_scorer = needed("ray").get(factory[0])
                if "torch" in sys.modules:
                    sys.modules["torch"].set_num_threads(self._threads)
                self._scorer = _made(make_scorer)
            except Exception as error:  # whatever the user's factory raises
                return _text(error)
        return ""

    def score(self, factory: Sequence[Any], each: Range) -> Outcome:
        """Score a range."""
        failed = self._build(factory)
        outcome = Outcome(each, error=failed) if failed else _outcome(self._scorer, each)
        return outcome._replace(warned=self._told())

    def _note(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
    ) -> None:
        self._warned.append(Warned(str(message), category.__name__, category.__module__, filename, lineno))

    def _told(self) -> tuple[Warned, ...]:
        told, self._warned = tuple(self._warned), []
        return told


def _pooled(ray: Any, actors: Sequence[Any], factory: Any, ranges: Sequence[Range]) -> Iterator[Outcome]:
    told: set[tuple[str, str]] = set()
    for failed, warned in ray.get([actor.build.remote([factory]) for actor in actors]):
        _warn(warned, told)
        if failed:
            raise ValueError(f"`make_scorer` failed in a worker: {failed}.")
    pool = importlib.import_module("ray.util").ActorPool(actors)
    for each in ranges:
        pool.submit(lambda actor, value: actor.score.remote([factory], value), each)
    left, why = dict.fromkeys(ranges), ""
    while pool.has_next():
        try:
            outcome: Outcome = pool.get_next_unordered()
        except ray.exceptions.RayError as error:  # of which range it is, the pool does not tell
            why = reason_of(error)
            continue
        del left[outcome.range]
        yield outcome
        # After its rows are kept: a filter may make an error of it.
        _warn(outcome.warned, told)
    for each in left:
        yield Outcome(each, error=f"its worker died {_RETRIES + 1} times ({why})")


def _warn(warned: Sequence[Warned], told: set[tuple[str, str]]) -> None:
    """Warn of what a worker was warned of, if no other one was, as if it had been raised here."""
    for each in warned:
        if (each.category, each.text) not in told:
            told.add((each.category, each.text))
            category = getattr(sys.modules.get(each.module), each.category, UserWarning)
            warnings.warn_explicit(each.text, category, each.file, each.line)


@contextmanager
def _connected(ray: Any, workers: Workers, number: int) -> Iterator[None]:
    """Be in a cluster: the one this process is in, the one at the address, or one for this call alone."""
    if ray.is_initialized():
        yield
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    handler = signal.getsignal(signal.SIGTERM)
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        if workers.address is None:
            cpus = max(1, -(-number * workers.num_cpus // 1))
            # It writes its logs where they go away with it, and reports to nobody.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            settings |= {"num_cpus": cpus, "include_dashboard": False, "_temp_dir": folder}
        try:
            _check_answers(workers.address)
            ray.init(workers.address or "local", **settings)
        except Exception as error:  # a bare one where a cluster does not start in time
            raise ValueError(
                f"Ray could not start a cluster on this machine ({reason_of(error)}). Call again: what is done is kept."
                if workers.address is None
                else f"Expected argument `address` to be that of a Ray cluster, auto for the one this machine is in, "
                f"but got {workers.address!r} ({reason_of(error)})."
            ) from error
        try:
            # Ray's own would end the process without a word of what is kept.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)
            yield
        finally:
            # Only leaves a cluster that others started.
            ray.shutdown()


def _check_answers(address: str | None) -> None:
    """Raise OSError where nothing listens at an address of host and port."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER):
            pass


def _check_room(ray: Any, workers: Workers, number: int) -> None:
    """Raise where not all workers find a place: those that wait would hold ranges for ever."""
    wanted = {name: size for name, size in (("CPU", workers.num_cpus), ("GPU", workers.num_gpus)) if size}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(int(min(node.get(name, 0) / size for name, size in wanted.items())) for node in nodes) if wanted else 0
    if wanted and room < number:
        there = ", ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes[:_SHOWN])
        raise ValueError(
            f"Expected argument `n_workers` to be at most {room}, as many workers of {workers.num_cpus:g} CPUs and "
            f"{workers.num_gpus:g} GPUs as the cluster holds, but got {workers.number}. Its machines have {there}"
            f"{', ...' if len(nodes) > _SHOWN else ''}. Take fewer workers, or smaller ones."
        )


def _shared(ray: Any, make_scorer: Callable[[], Any]) -> Any:
    """Put a factory where all workers find it, once."""
    from captum_concepts.running import USER_FILE  # with PyTorch, which not every worker needs

    for name, module in list(sys.modules.items()):
        if name.startswith(USER_FILE):  # no worker could import it by that name
            ray.cloudpickle.register_pickle_by_value(module)
    try:
        return ray.put(make_scorer)
    except Exception as error:  # what a member of it raises when it is pickled
        raise TypeError(
            # What Ray says itself is a report of many lines.
            f"Expected argument `make_scorer` to be picklable but it is not ({reason_of(error.__cause__ or error)}). "
            "Let it hold names "
            "and arrays, and make models and data when it is called."
        ) from error


def _made(make_scorer: Callable[[], Any]) -> Callable[[int, int], Any]:
    scorer: Callable[[int, int], Any] = make_scorer()
    if not callable(scorer):
        raise TypeError(f"Expected argument `make_scorer` to return a function but it gave {type(scorer).__name__}.")
    return scorer


def _outcome(scorer: Callable[[int, int], Any], each: Range) -> Outcome:
    import pandas as pd

    try:
        rows = scorer(*each)
        if not isinstance(rows, pd.DataFrame):
            raise TypeError(f"Expected the scorer to return a DataFrame but got {type(rows).__name__}")
        if not (all(isinstance(name, str) for name in rows) and rows.columns.is_unique):
            raise ValueError(f"Expected the scorer to name each column by a text of its own but got {[*rows]}")
    except Exception as error:  # whatever the user's scorer raises; the other ranges go on
        return Outcome(each, error=_text(error), trace="".join(traceback.format_exception(error)))
    return Outcome(each, rows)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {reason_of(error)}".rstrip(".")
