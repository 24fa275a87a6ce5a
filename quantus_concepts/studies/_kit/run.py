"""A study and its run: collect a tidy frame, declare a page over it, and write the folder of results."""

from __future__ import annotations

import io
import json
import pickle
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pandas as pd
import torch
import typer
from torch import Tensor

from captum_concepts._support.disk_cache import DiskCache, bytes_tensor, frame_of, frame_tensors, tensor_bytes
from captum_concepts._support.files import printable, reason_of
from captum_concepts._support.fingerprints import fingerprint_of
from captum_concepts._support.progress import hide_bars
from quantus_concepts.metrics.host.call import DurationWarning
from quantus_concepts.metrics.ray_workers import LOCAL
from quantus_concepts.studies._kit.command import EngineOptions, TableOptions, named_as_typed
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.results import WORKBOOK, write_csv, write_workbook
from quantus_concepts.studies._kit.tables import Table, print_table, table_grid, terminal

if TYPE_CHECKING:
    from quantus_concepts.studies._kit.page import Page


class Kept:
    """The tensors of one result, found by its name and a fingerprint of what they depend on, and its checkpoint."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any], seconds: float = 60.0) -> None:
        self.name = name
        self.key = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}-{fingerprint_of(settings)[:16]}"
        self.seconds = seconds
        self._cache = DiskCache(folder)
        self._checkpoint = f"{self.key}.checkpoint"
        self._written = time.monotonic()

    def load(self) -> dict[str, Tensor] | None:
        """Read the tensors, None where they are not finished."""
        return self._cache.get(self.key)

    def save(self, state: Mapping[str, Tensor]) -> None:
        """Write the finished tensors, and remove the checkpoint."""
        self._cache.put(self.key, state)
        self._cache.remove(self._checkpoint)

    def read(self) -> dict[str, Any] | None:
        """Read the checkpoint."""
        if (tensors := self._cache.get(self._checkpoint)) is None:
            return None
        try:
            file = io.BytesIO(tensor_bytes(tensors["state"]))
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError) as error:
            path = self._cache.path(self._checkpoint)
            warnings.warn(
                f"{path} cannot be used ({reason_of(error)}): {self.name} is trained from the start.",
                UserWarning,
                stacklevel=2,
            )
            return None
        return state

    def write(self, state: Mapping[str, Any]) -> None:
        """Write the checkpoint in place of the one before."""
        file = io.BytesIO()
        torch.save(dict(state), file)
        self._cache.put(self._checkpoint, {"state": bytes_tensor(file.getvalue())})
        self._written = time.monotonic()

    def due(self, *, end_of_epoch: bool) -> bool:
        """Return whether to write a checkpoint now."""
        return end_of_epoch or time.monotonic() - self._written >= self.seconds


O = TypeVar("O", bound=TableOptions)  # noqa: E741
#: Before the name of a fact of bytes, a picture for instance, among kept tensors.
_FACT = "fact "


@dataclass
class Run(Generic[O]):
    """One run of a study: its options and folder, and the notes of its report."""

    options: O
    folder: OutputFolder
    settings: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    #: Content of the page that is no number: pictures, whether the data are published, ...
    facts: dict[str, Any] = field(default_factory=dict)
    #: Further frames, each written to a file of its own.
    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    #: Functions that write other files, by the names of the files.
    files: dict[str, Callable[[Path], object]] = field(default_factory=dict)

    @property
    def progress(self) -> bool:
        """Whether to show progress bars."""
        return bool(getattr(self.options, "progress", False))

    def say(self, text: str) -> None:
        """Say what is being done."""
        if self.progress:
            with hide_bars():
                typer.echo(printable(text), err=True)

    def show(self, table: Table) -> None:
        """Print a table of what is known so far; results, not progress, so that a log has it too."""
        with hide_bars():
            print_table(table)

    def note(self, *texts: str) -> None:
        """Add what a reader of the report has to know, each text once."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]

    def kept(
        self, name: str, settings: Mapping[str, Any], make: Callable[[Kept], Mapping[str, Tensor]]
    ) -> dict[str, Tensor]:
        """Return tensors that are expensive to make: from an interrupted run of the same --out, or made and kept.

        `settings` are all that they depend on. `make` is handed the files, to write and read checkpoints.
        """
        files = Kept(self.folder.kept, name, settings)
        tensors = files.load()
        if tensors is None:
            tensors = {key: tensor.detach().cpu() for key, tensor in make(files).items()}
            files.save(tensors)
        return tensors

    def kept_frame(self, name: str, settings: Mapping[str, Any], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Return a frame that is expensive to make, as `kept` does, and repeat the notes, settings, facts with it."""
        frames: list[pd.DataFrame] = []

        def make_tensors(_: Kept) -> dict[str, Tensor]:
            notes, settings, facts = list(self.notes), dict(self.settings), dict(self.facts)
            with warnings_as_notes() as warned:
                frames.append(make())
            new = {key: value for key, value in self.facts.items() if key not in facts}
            pictures = {key: value for key, value in new.items() if isinstance(value, bytes)}
            about = {
                "warnings": warned,
                "notes": [note for note in self.notes if note not in notes],
                "settings": {key: value for key, value in self.settings.items() if settings.get(key) != value},
                "facts": {key: value for key, value in new.items() if key not in pictures},
            }
            parts = {"about": json.dumps(about).encode()} | {f"{_FACT}{key}": pictures[key] for key in pictures}
            return frame_tensors(frames[0]) | {key: bytes_tensor(part) for key, part in parts.items()}

        tensors = self.kept(name, settings, make_tensors)
        about = json.loads(tensor_bytes(tensors["about"]))
        self.note(*about["notes"])
        self.settings |= about["settings"]
        self.facts |= about["facts"]
        self.facts |= {key[len(_FACT) :]: tensor_bytes(tensors[key]) for key in tensors if key.startswith(_FACT)}
        for text in about["warnings"]:
            warnings.warn(text, UserWarning, stacklevel=2)
        return frames[0] if frames else frame_of(tensors)


@dataclass(frozen=True)
class Study(Generic[O]):
    """A study: from options to one tidy frame, and from the frame to a page. Called with options, it runs."""

    name: str
    collect: Callable[[O, Run[O]], pd.DataFrame]
    page: Callable[[pd.DataFrame, Run[O]], Page]

    def __call__(self, options: O) -> Path:
        """Run the study, write results.csv, figures and report.html, and then print the main tables."""
        started = time.monotonic()
        # Where pyarrow is installed pandas keeps texts in it, and names of files may hold halves of characters.
        texts = pd.option_context("mode.string_storage", "python")
        place = OutputFolder(self.name, options.out, options.identity(), overwrite=options.overwrite)
        with texts, place as folder:
            run = Run(options, folder, settings=options.settings())
            with told_if_interrupted(folder):
                if folder.resumed:
                    typer.echo(f"Going on with the run that was interrupted in {folder.path}.", err=True)
                with warnings_as_notes() as warned:
                    frame = self.collect(options, run)
                run.note(*warned)
                run.settings["time"] = f"{time.monotonic() - started:.0f} s"
                page = self.page(frame, run)
                try:
                    write(page, frame, run)
                except OSError:
                    # A full disk takes the files, not what was computed.
                    print_page(page, run.notes)
                    raise
        print_page(page, run.notes)
        return folder.path


def print_page(page: Page, notes: Sequence[str]) -> None:
    """Print notes, the main tables and the findings of a page."""
    for note in notes:
        typer.echo(f"Note: {printable(note)}", err=True)
    for table in page.main:
        print_table(table)
    for finding in [*page.answers, *page.printed]:
        terminal().print(str(finding), highlight=False)


def write(page: Page, frame: pd.DataFrame, run: Run[Any]) -> None:
    """Write frames, figures and report.html."""
    # Loaded only where a report is written.
    from quantus_concepts.studies._kit.charts import png
    from quantus_concepts.studies._kit.page import render

    for name, table in {"results": frame, **run.frames}.items():
        with run.folder.file(f"{name}.csv") as path:
            write_csv(table, path)
    for name, save in run.files.items():
        with run.folder.file(name) as path:
            save(path)
    pictures = {chart.name: png(chart.figure) for chart in page.charts}
    for name, picture in pictures.items():
        run.folder.write_bytes(f"figures/{name}.png", picture)
    files = [f"{name}.csv" for name in ("results", *run.frames)]
    if run.options.xlsx and page.main:
        files.append(WORKBOOK)
        with run.folder.file(WORKBOOK) as path:
            write_workbook([(table.title, table_grid(table)) for table in page.main], path)
    text = render(page, settings=run.settings, notes=run.notes, files=files, pictures=pictures)
    run.folder.write_text("report.html", text)


@contextmanager
def told_if_interrupted(folder: OutputFolder) -> Iterator[None]:
    """Say how to go on where a run was interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        if folder.started:
            typer.echo(f"What is done is kept: go on with the same options and --out {folder.path}.", err=True)
        raise


@contextmanager
def warnings_as_notes() -> Iterator[list[str]]:
    """Collect warnings; yield the list, which is full only at the end."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for kind in (DeprecationWarning, DurationWarning):
            warnings.filterwarnings("ignore", category=kind)
        yield notes
    notes += dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)


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
