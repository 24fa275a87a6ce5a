"""Workers that score ranges of items: this process, or actors of Ray on one machine or many."""

from __future__ import annotations

import importlib
import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import threading
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from captum_concepts._support.files import reason_of, shorten

if TYPE_CHECKING:
    import pandas as pd

LOCAL, RAY = "local", "ray"
ENGINES = (LOCAL, RAY)
Range = tuple[int, int]
#: How often a range, or the factory, is tried whose worker dies: one that always kills it must not go on for ever.
_TRIES = 3
#: Stands for the making of the scorer.
_NO_RANGE = (0, 0)
#: Seconds in which a cluster answers; Ray itself would try for many minutes.
_ANSWER = 10
#: Machines of a cluster named in a message.
_SHOWN = 4


class Warned(NamedTuple):
    """A warning that a worker would have shown, in words: its class may be none that another process can import."""

    text: str
    category: str
    module: str
    file: str
    line: int


class Outcome(NamedTuple):
    """The outcome of a range: its rows, or the error with its trace; and its warnings."""

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
    scorer = _make_scorer(make_scorer)
    for items in ranges:
        yield _score_range(scorer, items)


def score_on_ray(
    make_scorer: Callable[[], Any], ranges: Sequence[Range], workers: Workers
) -> Generator[Outcome, None, None]:
    """Score ranges by actors, each of which takes the next one when it is free."""
    ray = require_package("ray")
    number = min(workers.number, len(ranges))
    with _ray_connection(ray, workers, number):
        _check_room(ray, workers, number)
        actor = ray.remote(num_cpus=workers.num_cpus, num_gpus=workers.num_gpus)(_Worker)
        threads = max(1, int(workers.num_cpus))
        with closing(_Actors(ray, lambda: actor.remote(threads), _put_factory(ray, make_scorer))) as actors:
            yield from actors.score(ranges, number)


def require_package(package: str) -> Any:
    """Import a package of the extra, or say how to get it."""
    try:
        with _same_environment():
            return importlib.import_module(package)
    except ImportError:
        raise ValueError(
            f"Scoring by ranges needs the package {package}: python -m pip install 'quantus-concepts[ray]'."
        ) from None


class _Worker:
    """An actor: it makes its scorer, then scores ranges."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._warned: list[Warned] = []
        os.environ["OMP_NUM_THREADS"] = str(threads)  # where PyTorch is loaded later
        # Nobody reads the worker's log. Filters of warnings still apply, also those that the scorer sets.
        warnings.showwarning = self._note

    def build(self, factory: Sequence[Any]) -> Outcome:
        """Make the scorer; the outcome has no range."""
        try:
            make_scorer = require_package("ray").get(factory[0])
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(self._threads)
            self._scorer = _make_scorer(make_scorer)
        except Exception as error:  # the user's factory may raise anything
            return self._with_warnings(Outcome(_NO_RANGE, error=_text(error)))
        return self._with_warnings(Outcome(_NO_RANGE))

    def score(self, items: Range) -> Outcome:
        """Score a range."""
        return self._with_warnings(_score_range(self._scorer, items))

    def _note(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
    ) -> None:
        self._warned.append(Warned(str(message), category.__name__, category.__module__, filename, lineno))

    def _with_warnings(self, outcome: Outcome) -> Outcome:
        warned, self._warned = tuple(self._warned), []
        return outcome._replace(warned=warned)


class _Actors:
    """The actors of one call: each makes its scorer, then scores range after range; one that dies is replaced."""

    def __init__(self, ray: Any, start: Callable[[], Any], factory: Any) -> None:
        # In a list the factory arrives as a reference: the actor reports errors of unpickling like all others.
        self._ray, self._start, self._factory = ray, start, [factory]
        #: By the reference of its answer, an actor and its range; without a range it makes its scorer.
        self._busy: dict[Any, tuple[Any, Range]] = {}

    def score(self, ranges: Sequence[Range], number: int) -> Iterator[Outcome]:
        """Yield the outcomes of ranges in the order in which they are done."""
        waiting, deaths = deque(ranges), Counter[Range]()
        shown_warnings: set[tuple[str, str]] = set()
        for _ in range(number):
            self._build()
        while waiting or any(items != _NO_RANGE for _, items in self._busy.values()):
            (answer,), _ = self._ray.wait([*self._busy])
            actor, items = self._busy.pop(answer)
            try:
                outcome: Outcome = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError as error:
                outcome = Outcome(items, error=f"its rows cannot be sent ({reason_of(error.cause or error)})")
            except self._ray.exceptions.RayError as error:
                self._ray.kill(actor)
                actor = None
                deaths[items] += 1
                again = deaths[items] < _TRIES
                waiting.extend([items] if again and items != _NO_RANGE else [])
                outcome = Outcome(items, error="" if again else f"the worker died {_TRIES} times ({reason_of(error)})")
            if items != _NO_RANGE and (actor or outcome.error):
                yield outcome
            elif outcome.error:
                raise ValueError(f"`make_scorer` failed in a worker: {outcome.error}.")
            elif actor:
                deaths[_NO_RANGE] = 0
            # After the rows are kept: a filter may make an error of it.
            _warn(outcome.warned, shown_warnings)
            if waiting and actor:
                items = waiting.popleft()
                self._busy[actor.score.remote(items)] = actor, items
            elif waiting:
                self._build()

    def _build(self) -> None:
        actor = self._start()
        self._busy[actor.build.remote(self._factory)] = actor, _NO_RANGE

    def close(self) -> None:
        """End the actors that are at work; the others ended when they had nothing left to do."""
        for actor, _ in self._busy.values():
            self._ray.kill(actor)


def _warn(warned: Sequence[Warned], shown_warnings: set[tuple[str, str]]) -> None:
    """Warn of what a worker was warned of, if no other one was, as if it had been raised here."""
    for warning in warned:
        if (warning.category, warning.text) not in shown_warnings:
            shown_warnings.add((warning.category, warning.text))
            category = getattr(sys.modules.get(warning.module), warning.category, UserWarning)
            warnings.warn_explicit(warning.text, category, warning.file, warning.line)


@contextmanager
def _ray_connection(ray: Any, workers: Workers, number: int) -> Iterator[None]:
    """Be in a cluster: the one this process is in, the one at the address, or one for this call alone."""
    if ray.is_initialized():
        yield
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder, _same_authentication():
        try:
            with _same_environment():
                if workers.address is None:
                    # The cluster's own token: Ray would write one to the home directory. Logs go to the temporary
                    # folder; usage statistics are off.
                    os.environ.setdefault("RAY_AUTH_MODE", "token")
                    os.environ |= {"RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
                    # Seconds. A worker that starts while this process is killed would look for the cluster five times
                    # as long, each time by Ray's default of 5.
                    os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", "2")
                    cpus = max(1, -(-number * workers.num_cpus // 1))
                    settings |= {"num_cpus": cpus, "include_dashboard": False, "_temp_dir": folder}
                if "://" not in (workers.address or ""):
                    settings["job_config"] = ray.job_config.JobConfig()
                    settings["job_config"]._py_driver_sys_path = _ImportFolders()
                read_authentication()
                _check_answers(workers.address)
                ray.init(workers.address or "local", **settings)
        except Exception as error:  # a bare one where a cluster does not start in time
            ray.shutdown()
            raise ValueError(
                f"Ray could not start a cluster on this machine ({_reasons(error)}). Call again: what is done is kept."
                if workers.address is None
                else f"Expected argument `address` to be that of a Ray cluster, auto for the one this machine is in, "
                f"but got {workers.address!r} ({_reasons(error)})."
            ) from error
        try:
            yield
        finally:
            # Only leaves a cluster that others started.
            ray.shutdown()


class _ImportFolders(list[str]):
    """The folders Ray has workers import from, without the working directory unless this process imports from it."""

    def extend(self, folders: Iterable[str]) -> None:
        present = {os.path.realpath(folder) for folder in sys.path}
        super().extend(folder for folder in folders if os.path.realpath(folder) in present)


@contextmanager
def _same_environment() -> Iterator[None]:
    """Restore the environment variables and the handler of SIGTERM on leaving: Ray sets its own, and leaves them."""
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        # Ray's handler would end the process without a word of what is kept. Other threads can set none.
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _same_authentication() -> Iterator[None]:
    """Have Ray forget the token of a cluster on leaving, for the next cluster of this process has another."""
    try:
        yield
    finally:
        read_authentication()


def read_authentication() -> None:
    """Have Ray read RAY_AUTH_MODE and the token now, which it does once in a process."""
    raylet = importlib.import_module("ray._raylet")
    if hasattr(raylet, "AuthenticationTokenLoader"):  # Ray before 2.51 knows no tokens
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def _reasons(error: BaseException) -> str:
    """Return what an error says and, where it was raised from another one, what the first one says."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    # Ray puts the trace of what went wrong into its own message; what it means comes last.
    text = str(first)
    raised = [*re.finditer(r"^[\w.]+(?:Error|Exception): ", text, re.MULTILINE)]
    if "Traceback" in text and raised:
        text = text[raised[-1].end() :]
    return reason_of(error) if first is error else f"{reason_of(error)}: {shorten(text)}"


def _check_answers(address: str | None) -> None:
    """Raise OSError where nothing listens at an address of host and port."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER):
            pass


def _check_room(ray: Any, workers: Workers, number: int) -> None:
    """Raise where not all workers find a place: those that wait would hold ranges for ever."""
    resources = {name: size for name, size in (("CPU", workers.num_cpus), ("GPU", workers.num_gpus)) if size}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not resources:
        return
    room = sum(int(min(node.get(name, 0) / size for name, size in resources.items())) for node in nodes)
    if room < number:
        there = ", ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes[:_SHOWN])
        raise ValueError(
            f"Expected argument `n_workers` to be at most {room}, as many workers of {workers.num_cpus:g} CPUs and "
            f"{workers.num_gpus:g} GPUs as the cluster holds, but got {workers.number}. Its machines have {there}"
            f"{', ...' if len(nodes) > _SHOWN else ''}. Take fewer workers, or smaller ones."
        )


def _put_factory(ray: Any, make_scorer: Callable[[], Any]) -> Any:
    """Put a factory where all workers find it, once."""
    from captum_concepts._support.running import USER_FILE  # with PyTorch, which not every worker needs

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


def _make_scorer(make_scorer: Callable[[], Any]) -> Callable[[int, int], Any]:
    scorer: Callable[[int, int], Any] = make_scorer()
    if not callable(scorer):
        raise TypeError(f"Expected argument `make_scorer` to return a function but it gave {type(scorer).__name__}.")
    return scorer


def _score_range(scorer: Callable[[int, int], Any], items: Range) -> Outcome:
    import pandas as pd

    try:
        rows = scorer(*items)
        if not isinstance(rows, pd.DataFrame):
            raise TypeError(f"Expected the scorer to return a DataFrame but got {type(rows).__name__}")
        if not (all(isinstance(name, str) for name in rows) and rows.columns.is_unique):
            raise ValueError(f"Expected the scorer to name each column by a text of its own but got {[*rows]}")
    except Exception as error:  # the user's scorer may raise anything; the other ranges go on
        return Outcome(items, error=_text(error), trace="".join(traceback.format_exception(error)))
    return Outcome(items, rows)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {reason_of(error)}".rstrip(".")
