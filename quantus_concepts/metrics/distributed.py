"""`score_shards`: scores by ranges of items, each range in a file of its own."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from torch import Tensor, nn

from captum_concepts._support.checks import (
    as_list,
    check_callable,
    check_choice,
    check_flag,
    check_kind,
    check_mapping,
    check_path,
    check_weight,
    check_whole,
    to_numpy,
)
from captum_concepts._support.files import clear_abandoned, read_json, reason_of, shortened, written
from captum_concepts._support.fingerprints import hash_file, module_hash
from captum_concepts._support.progress import progress
from quantus_concepts.metrics.ray_workers import (
    ENGINES,
    LOCAL,
    RAY,
    Outcome,
    Range,
    Workers,
    needed,
    score_here,
    score_on_ray,
)

MANIFEST, LOCK = "shards.json", ".lock"
_DIGEST = re.compile("[0-9a-f]{64}")
#: Seconds to wait for a lock, which processes that read images for a killed one may hold so long.
_PATIENCE = 15.0
#: Of file systems that lock no files.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
#: Ranges named in an error.
_SHOWN = 5
#: Where the first ranges all fail, and none is kept from before, it is for a reason that all would share.
_HOPELESS = 8


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

    What is interrupted, by whatever means, goes on where it was when it is called again, with any engine and any number
    of workers; the rows are the same to the bit as those of one process that computes with as many threads. A worker
    that dies is started again and its range done again.

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
        Of all that rows depend on, by name: settings (what JSON can hold), weights (modules, tensors, arrays) and data
        (arrays, paths of files). Modules, arrays and files count by their content. A folder of another fingerprint is
        refused, so that different runs never mix.
    shard_size : int
        Items of a range, a multiple of `batch_size`.
    batch_size : int
        How many items the scorer computes together: ranges begin and end where batches of a single pass do.
    names : sequence of str, optional
        (n_items,), to tell the items of a range that failed by.
    engine : str
        "local", one range after another in this process, or "ray".
    address : str, optional
        Of a running Ray cluster, "auto" for the one this machine is in. By default the cluster this process is
        connected to, or else one that is started here and ended with the call. The next three are of "ray", too.
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
        If an argument is of another kind than asked for, or the factory cannot be pickled.
    ValueError
        If an argument is out of its range or says nothing with this engine, the folder cannot be written to or holds
        another run, there is no such cluster or it has no such room, or a package of the extra is missing; if a file
        cannot be written; once all others are done, if the scorer failed in some ranges or gave other columns; and
        where the first ranges all fail.

    Warns
    -----
    UserWarning
        If a file of a range is damaged. Warnings of workers are raised here, once each.
    """
    check_callable("make_scorer", make_scorer)
    check_whole("n_items", n_items, 1)
    check_whole("batch_size", batch_size, 1)
    if check_whole("shard_size", shard_size, 1) % batch_size:
        raise ValueError(
            f"Expected argument `shard_size` to be a multiple of `batch_size`, {batch_size}, so that batches are those "
            f"of a single pass, but got {shard_size}."
        )
    if names is not None and len(as_list("names", names, "names")) != n_items:
        raise ValueError(f"Expected argument `names` to hold {n_items} names, one an item, but got {len(names)}.")
    check_choice("engine", engine, ENGINES)
    check_kind("address", address, str | None, "the address of a cluster, or None")
    check_whole("n_workers", n_workers, 1)
    check_weight("num_cpus", num_cpus)
    check_weight("num_gpus", num_gpus)
    check_flag("display_progressbar", display_progressbar)
    _check_writable(check_path("out", out))
    needed("pyarrow")
    if engine == RAY:
        needed("ray")
    else:
        _check_alone(address=(address, None), n_workers=(n_workers, 1), num_gpus=(num_gpus, 0))
    identity = {name: _identity(name, value) for name, value in check_mapping("fingerprint", fingerprint).items()}
    settings = {"items": n_items, "shard size": shard_size, "of": identity}
    ranges = [(start, min(start + shard_size, n_items)) for start in range(0, n_items, shard_size)]
    failed: list[Outcome] = []
    with _ShardFolder(check_path("out", out), settings) as folder:
        found = {each: folder.read(each) for each in ranges}
        missing = [each for each, rows in found.items() if rows is None]
        if missing:
            workers = Workers(n_workers, num_cpus, num_gpus, address)
            scored = score_on_ray(make_scorer, missing, workers) if engine == RAY else score_here(make_scorer, missing)
            done, show = len(ranges) - len(missing), display_progressbar
            bar = progress(description="scoring", total=len(ranges), initial=done, unit="range", show=show)
            # Closing ends the workers, and a cluster of our own, also where this raises.
            with bar, closing(scored):
                for outcome in scored:
                    outcome = folder.kept(outcome)
                    if outcome.rows is None:
                        failed.append(outcome)
                        if len(failed) == _HOPELESS and not any(rows is not None for rows in found.values()):
                            break
                    else:
                        found[outcome.range] = outcome.rows
                    bar.update()
    if failed:
        raise _failure(sorted(failed), len(ranges), names, folder.path)
    frames = [rows for rows in found.values() if rows is not None]
    _check_columns(dict(zip(ranges, frames, strict=True)))
    return pd.concat(frames, ignore_index=True)


class _ShardFolder:
    """The files of one run's ranges, used as a context manager: one process at a time has it."""

    # The manifest holds the settings of the run and the SHA-256 of each range's file. A file that it does not name is
    # neither read nor removed.

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self._settings = path, settings
        self._files: dict[str, str] = {}
        self._held: tuple[int, int] | None = None
        self._lock = FileLock(path / LOCK, timeout=_PATIENCE, thread_local=False)
        self._made = [each for each in (path, *path.parents) if not each.exists()]

    def __enter__(self) -> _ShardFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise ValueError(
                f"Expected argument `out` to name a folder that no other run writes to but another process scores into "
                f"{self.path}. Wait until it ends, or choose another folder."
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            warnings.warn(
                f"The file system of {self.path} locks no files: let no second run write to that folder.",
                UserWarning,
                stacklevel=3,
            )
        try:
            self._held = self._lock_state()
            clear_abandoned(self.path)
            if (file := self.path / MANIFEST).exists():
                self._read_manifest(read_json(file, "Manifest"))
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        # Unlinked while it is held: who waits for it finds that it is gone, and makes another one.
        if self._lock_state() == self._held:
            (self.path / LOCK).unlink(missing_ok=True)
        self._lock.release()
        for folder in self._made:
            with suppress(OSError):  # it holds files
                folder.rmdir()

    def read(self, each: Range) -> pd.DataFrame | None:
        """Return the rows of a range; None where they are missing or damaged."""
        arrow, parquet = needed("pyarrow"), needed("pyarrow.parquet")
        if (content := self._files.get(_stem(each))) is None:
            return None
        file = self._file(each, content)
        try:
            if hash_file(file) != content:
                raise ValueError("its content is not what was written")
            rows: pd.DataFrame = parquet.read_table(file).to_pandas()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, arrow.ArrowException) as error:
            reason = getattr(error, "strerror", None) or reason_of(error)
            warnings.warn(f"{file} cannot be used ({reason}): it is made again.", UserWarning, stacklevel=3)
            return None
        return rows

    def kept(self, outcome: Outcome) -> Outcome:
        """Write the rows of a range, where there are some, and return them as a later call will read them."""
        if outcome.rows is None:
            return outcome
        arrow, parquet = needed("pyarrow"), needed("pyarrow.parquet")
        sink = arrow.BufferOutputStream()
        try:
            parquet.write_table(arrow.Table.from_pandas(outcome.rows, preserve_index=False), sink)
        except (TypeError, ValueError, arrow.ArrowException) as error:
            reason = ". ".join(map(str, error.args))  # Arrow has several, the last names the column
            return outcome._replace(rows=None, error=f"its rows fit in no file of Parquet: {shortened(reason)}")
        try:
            self._write(outcome.range, sink.getvalue().to_pybytes())
        except OSError as error:
            raise ValueError(
                f"The rows of items {outcome.range[0]} to {outcome.range[1] - 1} cannot be written to {self.path} "
                f"({error.strerror or reason_of(error)}). What is done is kept there: when this is repaired, the same "
                "call computes only what is missing."
            ) from error
        return outcome._replace(rows=self.read(outcome.range))

    def _write(self, each: Range, content: bytes) -> None:
        """Write the file of a range, then the manifest that names it."""
        if self._lock_state() != self._held:
            raise OSError("it was removed, or replaced, while this run wrote to it")
        digest = hashlib.sha256(content).hexdigest()
        with written(self._file(each, digest)) as temporary:
            temporary.write_bytes(content)
        self._files[_stem(each)] = digest
        with written(self.path / MANIFEST) as temporary:
            text = json.dumps({**self._settings, "files": self._files}, indent=1, sort_keys=True)
            temporary.write_text(text, encoding="utf-8")

    def _lock_state(self) -> tuple[int, int] | None:
        """Return device and inode of the lock's file, None where there is none."""
        try:
            found = (self.path / LOCK).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _file(self, each: Range, digest: str) -> Path:
        return self.path / f"{_stem(each)}-{digest[:16]}.parquet"

    def _read_manifest(self, manifest: Any) -> None:
        """Take over the files it names; raise where it is of other settings."""
        known, asked = (_flat(each) if isinstance(each, Mapping) else {} for each in (manifest, self._settings))
        differing = [name for name in sorted({*known, *asked}) if known.get(name) != asked.get(name)]
        if differing:
            known, asked = ({name: shortened(of.get(name, "nothing")) for name in differing} for of in (known, asked))
            difference = "; ".join(f"{name} is {known[name]} there and {asked[name]} here" for name in differing)
            raise ValueError(
                f"Expected argument `out` to name a new folder, or one of the same run, but {self.path} holds another "
                f"({difference}). Choose another folder."
            )
        files = manifest.get("files")
        for name, digest in files.items() if isinstance(files, Mapping) else ():
            if isinstance(digest, str) and _DIGEST.fullmatch(digest):
                self._files[name] = digest


def _check_writable(out: Path) -> None:
    """Raise where no folder can be made, or nothing be written, before anything is computed for it."""
    there = next(each for each in (out.absolute(), *out.absolute().parents) if each.exists())
    if not there.is_dir():
        raise ValueError(f"Expected argument `out` to name a folder but {there} is none. Name another.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"Expected argument `out` to name a folder that can be written to but {there} cannot.")


def _check_alone(**given: tuple[Any, Any]) -> None:
    """Raise for what only the workers of a cluster have."""
    for name, (value, default) in given.items():
        if value != default:
            raise ValueError(
                f"Argument `{name}` says nothing with engine={LOCAL!r}, which scores in this process. Leave it out, or "
                f"score by the workers of a cluster: engine={RAY!r}."
            )


def _stem(each: Range) -> str:
    return f"{each[0]:09d}-{each[1]:09d}"


def _flat(manifest: Mapping[str, Any]) -> dict[str, Any]:
    of = manifest.get("of")
    own = {name: value for name, value in manifest.items() if name not in ("of", "files")}
    return own | (dict(of) if isinstance(of, Mapping) else {})


def _identity(name: str, value: Any) -> str:
    """Return what tells a setting, weights or data apart."""
    if isinstance(value, nn.Module):
        return module_hash(value)
    if isinstance(value, Tensor | np.ndarray):
        array = np.ascontiguousarray(to_numpy(value))
        return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()
    if isinstance(value, Path):
        if not value.is_file():
            raise ValueError(f"Expected argument `fingerprint` to name files but there is none at {value}.")
        return hash_file(value)
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Expected argument `fingerprint` to hold modules, arrays, paths of files and what JSON can hold but got "
            f"{type(value).__name__} under {name!r} ({reason_of(error)})."
        ) from error


def _failure(failed: Sequence[Outcome], n_ranges: int, names: Sequence[str] | None, folder: Path) -> ValueError:
    """Say which items failed, and why."""
    by_reason: dict[str, list[str]] = {}
    for (start, stop), _, reason, *_ in failed[:_SHOWN]:
        named = "" if names is None else f" ({shortened(names[start])} to {shortened(names[stop - 1])})"
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
