"""The command line: `quantus-concepts benchmark ...`, `pasta ...`, `substitute ...` and `compose`."""

from __future__ import annotations

import codecs
import importlib.metadata
import io
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer

from captum_concepts._support.files import printable
from quantus_concepts.metrics.host.errors import explained
from quantus_concepts.studies._kit.command import CommandGroup, add_command
from quantus_concepts.studies.attribution.options import AttributionOptions
from quantus_concepts.studies.compose_options import ComposeOptions
from quantus_concepts.studies.concepts.options import ConceptOptions
from quantus_concepts.studies.pasta.options import AblateOptions, MetricsOptions, PastaOptions, SizesOptions
from quantus_concepts.studies.rating.options import JoinOptions, ScoreOptions, SheetOptions
from quantus_concepts.studies.rating.train_options import TrainOptions
from quantus_concepts.studies.substitute.options import ExportOptions, FilterOptions, GenerateOptions, VerifyOptions
from quantus_concepts.studies.substitution.options import SubstitutionOptions

#: Of click, or of typer's own copy of click: which one depends on the version of typer.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
STUDIES = "quantus_concepts.studies"
#: What is printed for a sign that the output's encoding lacks, as wide as the sign so that columns stay aligned.
PLAIN_SIGNS = str.maketrans("−–—≈▼↑↓·±θαλ…“”✓✗→", '---~v^v*+wal.""yx>')

app = typer.Typer(name="quantus-concepts", cls=CommandGroup, add_completion=False, pretty_exceptions_enable=False)
benchmark = typer.Typer(cls=CommandGroup)
pasta = typer.Typer(cls=CommandGroup)
substitute = typer.Typer(cls=CommandGroup)

# Modules of a command are named, and loaded when it runs: its options alone tell its help.
add_command(app, "compose", ComposeOptions, f"{STUDIES}.compose:compose")
app.add_typer(benchmark, name="benchmark")
add_command(benchmark, "concepts", ConceptOptions, f"{STUDIES}.concepts.study:STUDY")
add_command(benchmark, "attribution", AttributionOptions, f"{STUDIES}.attribution.study:STUDY")
add_command(benchmark, "substitution", SubstitutionOptions, f"{STUDIES}.substitution.study:STUDY")
add_command(benchmark, "pasta", PastaOptions, f"{STUDIES}.pasta.study:STUDY")
app.add_typer(pasta, name="pasta")
add_command(pasta, "train", TrainOptions, f"{STUDIES}.rating.train_study:STUDY")
add_command(pasta, "score", ScoreOptions, f"{STUDIES}.rating.score:STUDY")
add_command(pasta, "sheet", SheetOptions, f"{STUDIES}.rating.sheet:make_sheet")
add_command(pasta, "join", JoinOptions, f"{STUDIES}.rating.join:join")
add_command(pasta, "ablate", AblateOptions, f"{STUDIES}.pasta.ablate:STUDY")
add_command(pasta, "sizes", SizesOptions, f"{STUDIES}.pasta.sizes:STUDY")
add_command(pasta, "metrics", MetricsOptions, f"{STUDIES}.pasta.metrics:STUDY")
app.add_typer(substitute, name="substitute")
add_command(substitute, "generate", GenerateOptions, f"{STUDIES}.substitute.generate:generate")
add_command(substitute, "filter", FilterOptions, f"{STUDIES}.substitute.filtering:filter_images")
add_command(substitute, "sheet", VerifyOptions, f"{STUDIES}.substitute.sheet:make_sheet")
add_command(substitute, "export", ExportOptions, f"{STUDIES}.substitute.export:export")


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"quantus-concepts {importlib.metadata.version('quantus-concepts')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", help="Show the version and exit.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """Are a model's concepts real, present, in the right place? Does an attribution find what matters?"""


@benchmark.callback()
def _benchmark() -> None:
    """Evaluate models on a data set and write a report."""


@pasta.callback()
def _pasta() -> None:
    """How people rate explanations: collect ratings, train scorers, score explanations."""


@substitute.callback()
def _substitute() -> None:
    """Birds with one attribute replaced, as SUB was made: generate, filter, let people check, export."""


def console() -> int:
    """Run the command line in a process of its own, which ends with it."""
    sys.stdout, sys.stderr = tolerant_stream(sys.stdout), tolerant_stream(sys.stderr)
    return main()


def _plain_signs(error: UnicodeError) -> tuple[str, int]:
    """Replace signs that an encoding lacks: an error handler of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end].translate(PLAIN_SIGNS)
    return signs.encode("ascii", "replace").decode("ascii"), error.end


class _Pipe(io.FileIO):
    """The end of a pipe to write to, which drops what is written after the reader has left."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def tolerant_stream(stream: Any) -> Any:
    """Return a standard stream that neither a sign nor a reader that leaves (`| head`) can break."""
    if not isinstance(stream, io.TextIOWrapper):  # closed, or replaced by the program that called
        return stream
    codecs.register_error("quantus_concepts.plain", _plain_signs)
    if not stream.isatty():
        stream.flush()
        raw = _Pipe(stream.fileno(), "w", closefd=False)
        return io.TextIOWrapper(
            io.BufferedWriter(raw),
            stream.encoding,
            "quantus_concepts.plain",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
    stream.reconfigure(errors="quantus_concepts.plain")
    return stream


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns 0; 2 for input that cannot be worked with, reported in one line on stderr; 130 after Ctrl-C, 143 after
    SIGTERM.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    with _terminated_like_interrupted() as terminated:
        code = _run(given or ["--help"])
    return EXIT_TERMINATED if terminated and code == EXIT_INTERRUPTED else code


def _run(arguments: Sequence[str]) -> int:
    try:
        code = app(args=arguments, standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):  # newer versions of typer return the code instead
        code = EXIT_INTERRUPTED
    except (UsageError, ValueError, TypeError, OSError) as error:
        message = getattr(error, "format_message", error.__str__)()
        typer.echo(f"Error: {printable(' '.join(message.split()))}", err=True)
        return EXIT_BAD_INPUT
    except ImportError as error:
        explanation = explained(error)
        if explanation is error:
            raise
        typer.echo(f"Error: {printable(explanation)}", err=True)
        return EXIT_BAD_INPUT
    if code == EXIT_INTERRUPTED:
        typer.echo("Interrupted; nothing half-written was left.", err=True)
    return code if isinstance(code, int) else 0


@contextmanager
def _terminated_like_interrupted() -> Iterator[list[int]]:
    """Let SIGTERM, by which schedulers end a run, do what Ctrl-C does; yield a list that then holds its number."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # where no signal can be handled
        yield received
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    raise SystemExit(console())
