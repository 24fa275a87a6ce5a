"""Scoring by ranges within a study: the options of where, and the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from quantus_concepts.metrics.ray_workers import ENGINES, LOCAL
from quantus_concepts.studies._kit.command import Options, named_as_typed, option, option_name

if TYPE_CHECKING:
    import pandas as pd

    from quantus_concepts.studies._kit.run import Run

_PANEL = "Many machines"
#: Options that have no effect where this process scores.
_OF_RAY = ("address", "workers", "gpus_per_worker")
#: Batches of a range: what is lost where a worker dies.
BATCHES = 2


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """Where the scoring stage of a run computes."""

    late: ClassVar[int] = 2

    engine: str = option(
        LOCAL,
        "Where scores are computed: local, or ray, by workers on one machine or many (needs the extra ray).",
        panel=_PANEL,
        choices=ENGINES,
        shown=False,
        matters=False,
    )
    address: str | None = option(
        None,
        "ray: of a running cluster, auto for the one of this machine; by default one is started for the run.",
        panel=_PANEL,
        shown=False,
        matters=False,
    )
    workers: int | None = option(
        None,
        "ray: how many score at the same time; by default one.",
        panel=_PANEL,
        bounds=(1, 100_000),
        shown=False,
        matters=False,
    )
    gpus_per_worker: float | None = option(
        None,
        "ray: GPUs of each worker, or a share of one; by default none.",
        panel=_PANEL,
        bounds=(0, 1024),
        shown=False,
        matters=False,
    )

    def __post_init__(self) -> None:
        """Raise ValueError for what lies out of bounds, is no choice, or says nothing."""
        super().__post_init__()
        for name in _OF_RAY if self.engine == LOCAL else ():
            if getattr(self, name) is not None:
                raise ValueError(
                    f"Argument `{option_name(name)}` has no effect with `--engine {LOCAL}`. Leave it out, or score by "
                    "the workers of a cluster: --engine ray."
                )


def score_by_ranges(
    run: Run[Any],
    name: str,
    make_scorer: Callable[[], Callable[[int, int], pd.DataFrame]],
    n_items: int,
    *,
    fingerprint: Mapping[str, Any],
    shard_size: int,
    names: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the rows of all items; those of an interrupted run of the same --out are read from there."""
    from quantus_concepts.metrics import score_shards

    options = run.options
    cluster: dict[str, Any] = {}
    if isinstance(options, EngineOptions) and options.engine != LOCAL:
        cluster = {
            "engine": options.engine,
            "address": options.address,
            "n_workers": options.workers or 1,
            "num_gpus": options.gpus_per_worker or 0,
        }
    with named_as_typed(type(options), n_workers="--workers", num_gpus="--gpus-per-worker"):
        return score_shards(
            make_scorer,
            n_items,
            run.folder.kept / name,
            fingerprint=fingerprint,
            shard_size=shard_size,
            names=names,
            display_progressbar=run.progress,
            **cluster,
        )


def score_by_batches(
    run: Run[Any],
    name: str,
    score: Callable[[range], pd.DataFrame],
    n_images: int,
    *,
    models: Sequence[Any],
    depends: Mapping[str, Any],
) -> pd.DataFrame:
    """Return the rows of all images by ranges of batches, each batch what it is in one pass.

    `score` makes those of some images; they depend on the options, the models and what `depends` holds.
    """
    size = run.options.batch_size
    starts = range(0, n_images, size)
    return score_by_ranges(
        run,
        name,
        partial(_by_batches, score, size, n_images),
        len(starts),
        fingerprint=run.options.identity() | depends | {"models": [*models]},
        shard_size=BATCHES,
        names=[f"image {start} ... {min(start + size, n_images) - 1}" for start in starts],
    )


def _by_batches(score: Callable[[range], pd.DataFrame], size: int, n_images: int) -> Callable[[int, int], pd.DataFrame]:
    return lambda start, stop: score(range(start * size, min(stop * size, n_images)))
