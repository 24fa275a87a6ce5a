"""`score_shards`: scores by ranges of items, each range in a file of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from captum_concepts._support.constraints import (
    TEXT,
    WEIGHT,
    Choice,
    Dictionary,
    Flag,
    Function,
    Instance,
    Items,
    Location,
    Whole,
    check_arguments,
)
from captum_concepts._support.disk_cache import DiskCache, frame_of, frame_tensors
from captum_concepts._support.files import reason_of, shorten
from captum_concepts._support.fingerprints import fingerprint_of
from captum_concepts._support.progress import progress
from captum_concepts._support.running import warn_user
from quantus_concepts.metrics.ray_workers import (
    ENGINES,
    LOCAL,
    RAY,
    Outcome,
    Range,
    Workers,
    require_package,
    score_here,
    score_on_ray,
)

LOCK = ".lock"
#: Seconds to wait for the lock: processes that read images for a driver that was killed hold it for some.
_PATIENCE = 15.0
#: Ranges named in an error.
_SHOWN = 5
#: If so many ranges fail first, and none is cached, the reason concerns all of them.
_HOPELESS = 8


@check_arguments(
    make_scorer=Function(),
    n_items=Whole(1),
    out=Location(),
    fingerprint=Dictionary(),
    shard_size=Whole(1),
    batch_size=Whole(1),
    names=Items(Instance(object, "a name"), "names"),
    engine=Choice(ENGINES),
    address=TEXT,
    n_workers=Whole(1),
    num_cpus=WEIGHT,
    num_gpus=WEIGHT,
    display_progressbar=Flag(),
)
def score_shards(
    make_scorer: Callable[[], Callable[[int, int], pd.DataFrame]],
    n_items: int,
    out: str | Path,
    *,
    fingerprint: Mapping[str, Any],
    shard_size: int = 512,
    batch_size: int = 1,
    names: Sequence[str] | None = None,
    engine: str = LOCAL,
    address: str | None = None,
    n_workers: int = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score items by ranges: by workers of a Ray cluster or in this process, each range's rows in a file of its own.

    The file of a range is found by the range and a fingerprint of all that rows depend on. The same call after an
    interruption of any kind computes only what is missing, with any engine and any number of workers; the rows are the
    same to the bit as those of one process that computes with as many threads. A worker that dies is started again and
    its range done again.

    Parameters
    ----------
    make_scorer : callable
        Called without arguments once in each worker, and returns the scorer: ``scorer(start, stop)`` gives the rows of
        items ``start`` to ``stop - 1`` as a DataFrame, any number of them, in order, with the same columns for every
        range. They depend on ``start`` and ``stop`` alone, not on what was scored before. With "ray" it is pickled (by
        cloudpickle) and sent to each worker, models and arrays it holds included; files it reads must be there.
    n_items : int
        How many items there are.
    out : str or Path
        Folder of the ranges' files, made if need be. Only this process writes, and nowhere else.
    fingerprint : dict
        All that rows depend on, by name: settings (what JSON can hold), weights (modules, tensors, arrays) and data
        (arrays, paths of files). Modules, arrays and files count by their content. Runs of other fingerprints have
        files of other names, so that several runs in one folder never mix.
    shard_size : int
        Items of a range, a multiple of `batch_size`.
    batch_size : int
        How many items the scorer computes together: ranges begin and end where batches of a single pass do.
    names : sequence of str, optional
        (n_items,), the names of items in an error about a range.
    engine : str
        "local", one range after another in this process, or "ray".
    address : str, optional
        Address of a running Ray cluster, "auto" for the one this machine is in. By default the cluster this process is
        connected to, or else one that is started here and ended with the call. The next three need "ray", too.
    n_workers : int
        Actors that score at the same time.
    num_cpus : float
        Processors of each, and threads of PyTorch in it.
    num_gpus : float
        GPUs of each, or a share of one; the worker sees no others.
    display_progressbar : bool
        Whether a bar shows the ranges, where the output is a terminal or a notebook.

    Returns
    -------
    DataFrame
        The rows of all ranges in the order of the items.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the factory cannot be pickled.
    ValueError
        If an argument is out of its range or has no effect with this engine, the folder cannot be written to, there is
        no such cluster or it has no such room, or a package of the extra is missing; once all others are done, if the
        scorer failed in some ranges or gave other columns; and where the first ranges all fail.

    Warns
    -----
    UserWarning
        If a file of a range is damaged, or cannot be written. Warnings of workers are raised here, once each.
    """
    if shard_size % batch_size:
        raise ValueError(
            f"Expected argument `shard_size` to be a multiple of `batch_size`, {batch_size}, so that batches are those "
            f"of a single pass, but got {shard_size}."
        )
    if names is not None and len(names) != n_items:
        raise ValueError(f"Expected argument `names` to hold {n_items} names, one an item, but got {len(names)}.")
    if address in ("", "local"):
        raise ValueError(
            f"Expected argument `address` to be HOST:PORT of a running Ray cluster, ray://HOST:PORT or auto, but got "
            f"{address!r}. Leave it out, and a cluster is started for this call."
        )
    folder = Path(out)
    _check_writable(folder)
    if engine == RAY:
        require_package("ray")
    else:
        _check_alone(address=(address, None), n_workers=(n_workers, 1), num_gpus=(num_gpus, 0))
    run = _fingerprint({**fingerprint, "batch size": batch_size})
    ranges = [(start, min(start + shard_size, n_items)) for start in range(0, n_items, shard_size)]
    cache = DiskCache(folder, "out")
    failed: list[Outcome] = []
    with _only_driver(folder):
        cached = {items: cache.get(_key(run, items)) for items in ranges}
        rows = {items: frame_of(tensors) for items, tensors in cached.items() if tensors is not None}
        if missing := [items for items in ranges if items not in rows]:
            workers = Workers(n_workers, num_cpus, num_gpus, address)
            scored = score_on_ray(make_scorer, missing, workers) if engine == RAY else score_here(make_scorer, missing)
            done, show = len(rows), display_progressbar
            bar = progress(description="scoring", total=len(ranges), initial=done, unit="range", show=show)
            # Closing ends the workers, and a cluster of our own, also where this raises.
            with bar, closing(scored):
                for outcome in scored:
                    outcome = _keep_rows(cache, _key(run, outcome.range), outcome)
                    if outcome.rows is None:
                        failed.append(outcome)
                        if len(failed) == _HOPELESS and not rows:
                            break
                    else:
                        rows[outcome.range] = outcome.rows
                    bar.update()
    if failed:
        raise _failure(sorted(failed), len(ranges), names, folder)
    frames = [rows[items] for items in ranges]
    _check_columns(dict(zip(ranges, frames, strict=True)))
    return pd.concat(frames, ignore_index=True)


def _key(run: str, items: Range) -> str:
    return f"{items[0]:09d}-{items[1]:09d}-{run[:16]}"


def _keep_rows(cache: DiskCache, key: str, outcome: Outcome) -> Outcome:
    """Write the rows of a range, where there are some."""
    if outcome.rows is None:
        return outcome
    try:
        cache.put(key, frame_tensors(outcome.rows))
    except TypeError as error:
        return outcome._replace(rows=None, error=f"its rows fit in no file: {reason_of(error)}")
    return outcome


def _check_writable(out: Path) -> None:
    """Raise where no folder can be made, or nothing be written, before anything is computed for it."""
    existing = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not existing.is_dir():
        raise ValueError(f"Expected argument `out` to name a folder but {existing} is none. Name another.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"Expected argument `out` to name a folder that can be written to but {existing} cannot.")


@contextmanager
def _only_driver(out: Path) -> Iterator[None]:
    """Keep other drivers out of a folder, which would compute the same once more."""
    new_folders = [folder for folder in (out, *out.parents) if not folder.exists()]
    lock = FileLock(out / LOCK, timeout=_PATIENCE, thread_local=False)
    out.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire()
    except Timeout as error:
        raise ValueError(
            f"Expected argument `out` to name a folder that no other run writes to but another process scores into "
            f"{out}. Wait until it ends, or choose another folder."
        ) from error
    except (OSError, NotImplementedError) as error:
        warn_user(f"{out / LOCK} cannot be locked ({reason_of(error)}): let no second run score into that folder.")
    try:
        yield
    finally:
        # Removed while it is held: who waits for it finds that it is gone, and makes another one.
        (out / LOCK).unlink(missing_ok=True)
        lock.release()
        for folder in new_folders:
            with suppress(OSError):  # it holds files
                folder.rmdir()


def _check_alone(**arguments: tuple[Any, Any]) -> None:
    """Raise for what only the workers of a cluster have."""
    for name, (value, default) in arguments.items():
        if value != default:
            raise ValueError(
                f"Argument `{name}` has no effect with engine={LOCAL!r}, which scores in this process. Leave it out, "
                f"or score by the workers of a cluster: engine={RAY!r}."
            )


def _fingerprint(settings: Mapping[str, Any]) -> str:
    """Return what tells one run from another; raise for a value that has no fingerprint."""
    fingerprints = {}
    for name, value in settings.items():
        try:
            fingerprints[name] = fingerprint_of(value)
        except (TypeError, ValueError, OSError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"Expected argument `fingerprint` to hold modules, arrays, paths of files and what JSON can hold but "
                f"got {type(value).__name__} under {name!r} ({reason_of(error)})."
            ) from error
    return fingerprint_of(fingerprints)


def _failure(failed: Sequence[Outcome], n_ranges: int, names: Sequence[str] | None, folder: Path) -> ValueError:
    """Say which items failed, and why."""
    by_reason: dict[str, list[str]] = {}
    for (start, stop), _, reason, *_ in failed[:_SHOWN]:
        named = "" if names is None else f" ({shorten(names[start])} to {shorten(names[stop - 1])})"
        by_reason.setdefault(reason, []).append(f"{start} to {stop - 1}{named}")
    text = "; ".join(f"items {', '.join(items)}: {reason}" for reason, items in by_reason.items())
    more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    error = ValueError(
        f"{len(failed)} of {n_ranges} ranges failed, {text}{more}. What is done is kept in {folder}: when this is "
        "repaired, the same call computes only what is missing."
    )
    error.add_note(failed[0].trace)
    return error


def _check_columns(frames: Mapping[Range, pd.DataFrame]) -> None:
    first = next(iter(frames.values()))
    for (start, stop), rows in frames.items():
        if list(rows.columns) != list(first.columns):
            raise ValueError(
                f"Expected the scorer to give the columns {list(first.columns)} for every range but it gave "
                f"{list(rows.columns)} for items {start} to {stop - 1}."
            )
