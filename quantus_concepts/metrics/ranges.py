"""`score_ranges`: the state of each range of items, computed here or by tasks of Ray, and kept in a store."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from captum_concepts.lazy import check_extra
from captum_concepts.support.checks import check_callable, check_choice, check_whole
from captum_concepts.support.files import reason_of, write_atomically
from captum_concepts.support.running import progress

if TYPE_CHECKING:
    from torch import Tensor

LOCAL, RAY = "local", "ray"
ENGINES = (LOCAL, RAY)
#: Seconds after which a first worker of Ray is asked about, and how often it may not have started although the cluster
#: has room for it: Ray itself gives a process 60 s (RAY_worker_register_timeout_seconds), and starts another one then.
PATIENCE, TURNS = 50.0, 3
State = dict[str, "Tensor"]
RangeScorer = Callable[[int, int], Mapping[str, "Tensor"]]
Range = tuple[int, int]


class Store(Protocol):
    """Where states are kept, each under a key."""

    def load(self, key: str) -> State | None:
        """Return the state of a key, or None if there is none."""

    def save(self, key: str, tensors: State) -> None:
        """Keep a state."""


class FolderStore:
    """A folder with a safetensors file for each state, written under another name and renamed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def load(self, key: str) -> State | None:
        """Return the state of a key; None if there is no file, or, with a warning, a damaged one."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self._path(key)
        if not path.is_file():
            return None
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            warnings.warn(f"{path} cannot be read ({reason_of(error)}): it is computed again.", stacklevel=3)
            return None

    def save(self, key: str, tensors: State) -> None:
        """Write the file of a state."""
        from safetensors.torch import save_file

        self.folder.mkdir(parents=True, exist_ok=True)
        with write_atomically(self._path(key)) as temporary:
            save_file(tensors, temporary)

    def _path(self, key: str) -> Path:
        if Path(key).name != key:
            raise ValueError(f"Expected argument `key` to be part of a file's name but got {key!r}.")
        return self.folder / f"{key}.safetensors"


def score_ranges(
    make_scorer: Callable[[], RangeScorer],
    n_items: int,
    *,
    store: Store | str | Path | None = None,
    key: str = "",
    size: int = 512,
    engine: str = LOCAL,
    num_gpus: float = 0,
    display_progressbar: bool = False,
) -> list[State]:
    """Score items by ranges, in this process or on a Ray cluster, and resume where an earlier call ended.

    With a store, this process saves the state of each range as soon as it is done. The same call after an interruption
    of any kind computes only what is missing, with any engine and any number of workers. States are the same to the bit
    as those of one process that computes with as many threads; Ray gives a worker one thread.

    With "ray" a range is a Ray task. Ray repeats a task whose worker dies (its ``max_retries``), and the cluster is
    named Ray's own way: the one that this process is connected to by ``ray.init``, else the one of ``RAY_ADDRESS``,
    else one that is started on this machine and shut down with the call. Workers import from this process's
    ``sys.path``.

    Parameters
    ----------
    make_scorer : callable
        Called without arguments once in each worker, and returns the scorer: ``scorer(start, stop)`` gives the state of
        items ``start`` to ``stop - 1``, a dict from name to tensor, which depends on ``start`` and ``stop`` alone. With
        "ray" it is pickled and sent to each worker, models and arrays it holds included; files it reads must be there.
    n_items : int
        Number of items.
    store : Store or path, optional
        Where states are kept: a folder, or any object with ``load(key) -> dict or None`` and ``save(key, tensors)``.
    key : str
        Names all that states depend on (settings, weights, data), as a hash for instance; the keys in the store begin
        with it. Needed with a store.
    size : int
        Items of a range. For the numbers of a single pass to the bit, a multiple of the scorer's batch size.
    engine : str
        "local", one range after another in this process, or "ray".
    num_gpus : float
        GPUs of each Ray task, or a share of one.
    display_progressbar : bool
        Whether to show how many ranges are done.

    Returns
    -------
    list of dict
        The states of all ranges, on the CPU, in the order of the items.

    Raises
    ------
    ValueError
        If an argument is out of its range, or there is a store without a key.
    ImportError
        If the extra "ray" is not installed.
    ConnectionError
        If there is no connection to the cluster of ``RAY_ADDRESS``, because it requires a token for instance.
    TimeoutError
        If no worker of Ray starts within 150 s although the cluster has room for it, or if it has not the GPUs.

    Whatever the scorer raises is raised here, with the range in a note; the ranges before it are kept. A range that
    kills its workers is a ``ray.exceptions.WorkerCrashedError``.

    Warns
    -----
    UserWarning
        If a file of a folder cannot be read; its range is computed again.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts import score_ranges
    >>> numbers = torch.arange(5.0)
    >>> states = score_ranges(
    ...     lambda: lambda start, stop: {"sum": numbers[start:stop].sum()}, len(numbers), size=2
    ... )
    >>> [state["sum"].item() for state in states]
    [1.0, 5.0, 4.0]
    """
    check_callable("make_scorer", make_scorer)
    check_whole("n_items", n_items, 1)
    check_whole("size", size, 1)
    check_choice("engine", engine, ENGINES)
    if store is not None and not key:
        raise ValueError(
            "Expected argument `key` to name what the states depend on, since those of another run in `store` would be "
            "taken for them, but it is empty. Pass a hash of settings, weights and data."
        )
    if engine == RAY:
        check_extra("ray", "ray", "Argument `engine`, 'ray',")
    files = FolderStore(store) if isinstance(store, str | Path) else store
    ranges = [(start, min(start + size, n_items)) for start in range(0, n_items, size)]
    names = {items: f"{key}-{items[0]:09d}-{items[1]:09d}" for items in ranges}
    loaded = {} if files is None else {items: files.load(names[items]) for items in ranges}
    states = {items: state for items, state in loaded.items() if state is not None}
    missing = [items for items in ranges if items not in states]
    scored = _score_on_ray(make_scorer, missing, num_gpus) if engine == RAY else _score_here(make_scorer, missing)
    bar = progress(
        description="scoring", show=display_progressbar, total=len(ranges), initial=len(states), unit="range"
    )
    # Closing ends the tasks, and a cluster of our own, also where this raises.
    with bar, closing(scored):
        for items, state in scored:
            if files is not None:
                files.save(names[items], state)
            states[items] = state
            bar.update()
    return [states[items] for items in ranges]


ScoredRanges = Generator[tuple[Range, State], None, None]


def _score_here(make_scorer: Callable[[], RangeScorer], ranges: Sequence[Range]) -> ScoredRanges:
    if not ranges:
        return
    scorer = make_scorer()
    for items in ranges:
        with _noting(items):
            state = _on_host(scorer(*items))
        yield items, state


def _score_on_ray(make_scorer: Callable[[], RangeScorer], ranges: Sequence[Range], num_gpus: float) -> ScoredRanges:
    if not ranges:
        return
    environment = set(os.environ)
    import ray

    from captum_concepts.support.running import USER_FILE

    for name, module in list(sys.modules.items()):
        if name.startswith(USER_FILE):  # no worker could import it by that name
            ray.cloudpickle.register_pickle_by_value(module)
    ours = not ray.is_initialized()
    if ours:
        _connect()
    waiting: dict[Any, Range] = {}
    try:
        # In a list it arrives as a reference, and is fetched once for each worker.
        factory = [ray.put(make_scorer)]
        directory = str(Path.cwd())
        folders = os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path)
        # A task with a GPU would end its worker, and with it the scorer, if `max_calls` did not say otherwise.
        options: dict[str, Any] = {
            "num_gpus": num_gpus,
            "max_calls": 0,
            "runtime_env": {"env_vars": {"PYTHONPATH": folders}},
        }
        _check_workers(ray.remote(**options)(_start).remote(directory), {"CPU": 1, "GPU": num_gpus})
        task = ray.remote(**options)(_score)
        # The first range alone: a factory that kills its worker would otherwise kill one for every range.
        for group in (ranges[:1], ranges[1:]):
            waiting = {task.remote(factory, factory[0].hex(), items, directory): items for items in group}
            while waiting:
                (done,), _ = ray.wait([*waiting])
                items = waiting.pop(done)
                with _noting(items):
                    state = ray.get(done)
                yield items, state
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        if ours:
            ray.shutdown()
            for name in set(os.environ) - environment:  # which Ray sets, and leaves
                del os.environ[name]


def _connect() -> None:
    """Connect to the cluster of RAY_ADDRESS, or to one of our own; SIGTERM still does what it did before."""
    import ray

    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        # Without a `working_dir`, Ray adds the working directory to the paths that workers import from.
        with TemporaryDirectory() as nothing:
            ray.init(logging_level=logging.ERROR, runtime_env={"working_dir": nothing})
    except ConnectionError as error:
        raise ConnectionError(
            f"{error}. If it runs, it may require a token, as every cluster does that is started where "
            "~/.ray/auth_token exists (Ray's earlier runs may have left it): set RAY_AUTH_MODE=token here as well."
        ) from error
    finally:
        # Ray's handler aborts the process. Only the main thread may set one.
        if on_sigterm is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)


#: The scorer of this worker, by the call that it was made for.
_SCORERS: dict[str, RangeScorer] = {}


def _start(folder: str) -> None:
    """Enter the driver's working directory, to which relative paths refer, if this machine has it."""
    with suppress(OSError):
        os.chdir(folder)


def _check_workers(started: Any, needs: Mapping[str, float]) -> None:
    """Wait until a first worker has started; raise if none does although the cluster has room for it."""
    import ray

    idle = 0
    while not ray.wait([started], timeout=PATIENCE)[0]:
        total, free = ray.cluster_resources(), ray.available_resources()
        missing = [name for name, amount in needs.items() if total.get(name, 0) < amount]
        idle = idle + 1 if all(free.get(name, 0) >= amount for name, amount in needs.items()) else 0
        if missing or idle == TURNS:
            reason = (
                f"the cluster has too few of {missing[0]}"
                if missing
                else "its processes start slowly (a busy machine, a slow file system), or end before they answer"
            )
            raise TimeoutError(
                f"No worker of Ray has started yet, after {PATIENCE * (idle or 1):.0f} s: {reason}. Read "
                "session_latest/logs in Ray's temporary folder, or compute without Ray (engine 'local')."
            )
    ray.get(started)


def _score(factory: Sequence[Any], call: str, items: Range, folder: str) -> State:
    """Score a range in a worker."""
    if call not in _SCORERS:
        import ray

        _start(folder)
        _SCORERS.clear()
        _SCORERS[call] = ray.get(factory[0])()
    return _on_host(_SCORERS[call](*items))


def _on_host(state: Mapping[str, Tensor]) -> State:
    # Files of safetensors hold neither views nor memory that tensors share.
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}


@contextmanager
def _noting(items: Range) -> Iterator[None]:
    """Note on an error which items it is about."""
    try:
        yield
    except Exception as error:
        error.add_note(f"Raised for items {items[0]} to {items[1] - 1}.")
        raise
