"""Scoring by ranges within a study: the options of where, and the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from quantus_concepts.metrics.ray_workers import ENGINES, LOCAL
from quantus_concepts.studies._kit.command import Options, option, option_name

if TYPE_CHECKING:
    import pandas as pd

    from quantus_concepts.studies._kit.run import Run

_PANEL = "Many machines"
#: Of a range: what is lost where a worker dies.
BATCHES = 2


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """Where the scoring stage of a run computes."""

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
    gpus_per_worker: float | None = option(
        None,
        "ray: GPUs of each worker, or a share of one; by default none.",
        panel=_PANEL,
        bounds=(0, 1024),
        shown=False,
        matters=False,
    )

    #: Options that say nothing where this process scores.
    of_ray: ClassVar[tuple[str, ...]] = ("address", "gpus_per_worker")

    def __post_init__(self) -> None:
        """Raise ValueError for what lies out of bounds, is no choice, or says nothing."""
        super().__post_init__()
        for name in self.of_ray if self.engine == LOCAL else ():
            if getattr(self, name) is not None:
                raise ValueError(
                    f"Argument `{option_name(name)}` says nothing with `--engine {LOCAL}`. Leave it out, or score by "
                    "the workers of a cluster: --engine ray."
                )


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(EngineOptions):
    """The same, of a study whose workers do nothing else."""

    workers: int | None = option(
        None,
        "ray: how many score at the same time; by default one.",
        panel=_PANEL,
        bounds=(1, 100_000),
        shown=False,
        matters=False,
    )

    of_ray: ClassVar[tuple[str, ...]] = (*EngineOptions.of_ray, "workers")


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
    """Return the rows of all items; ranges of an interrupted run of the same --out are taken from there."""
    from quantus_concepts.metrics import score_shards
    from quantus_concepts.studies._kit.command import named_as_typed
    from quantus_concepts.studies._kit.kept import fingerprint as digest

    options = run.options
    if options.engine == LOCAL and find_spec("pyarrow") is None:
        return make_scorer()(0, n_items)  # without the extra nothing is kept
    # What differs, a file that was repaired for instance, stands beside.
    out = run.folder.kept / f"{name}-{digest(fingerprint)[:8]}"
    of_cluster: dict[str, Any] = {}
    if options.engine != LOCAL:
        of_cluster = {"address": options.address, "n_workers": options.workers or 1}
        of_cluster["num_gpus"] = options.gpus_per_worker or 0
    with named_as_typed(type(options), n_workers="--workers", num_gpus="--gpus-per-worker"):
        return score_shards(
            make_scorer,
            n_items,
            out,
            fingerprint=fingerprint,
            shard_size=shard_size,
            names=names,
            engine=options.engine,
            **of_cluster,
            display_progressbar=run.progress,
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
    from captum_concepts._support.fingerprints import module_hash

    size = run.options.batch_size
    starts = range(0, n_images, size)
    return score_by_ranges(
        run,
        name,
        partial(_by_batches, score, size, n_images),
        len(starts),
        fingerprint=run.options.identity() | depends | {"models": [module_hash(model) for model in models]},
        shard_size=BATCHES,
        names=[f"image {start} ... {min(start + size, n_images) - 1}" for start in starts],
    )


def _by_batches(score: Callable[[range], pd.DataFrame], size: int, n_images: int) -> Callable[[int, int], pd.DataFrame]:
    return lambda start, stop: score(range(start * size, min(stop * size, n_images)))
