"""The command line: the commands that the studies export, by the words that are typed."""

from __future__ import annotations

import codecs
import ctypes
import errno
import importlib
import importlib.metadata
import io
import os
import pkgutil
import platform
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from captum_concepts._support.files import printable
from quantus_concepts import studies
from quantus_concepts.metrics.host.errors import import_advice
from quantus_concepts.studies._kit.command import CommandGroup, add_command, resolve

#: From click, or from typer's own copy of click, which depends on the version of typer.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
#: Help of the groups of commands, in their order.
GROUPS = {
    "benchmark": "Evaluate models on a data set and write a report.",
    "pasta": "How people rate explanations: collect ratings, train scorers, score explanations.",
    "substitute": "Birds with one attribute replaced, as SUB was made: generate, filter, let people check, export.",
}
#: Replacements of signs that the output's encoding lacks, as wide as the signs so that columns stay aligned.
PLAIN_SIGNS = str.maketrans("−–—≈▼↑↓·±θαλ…“”✓✗→", '---~v^v*+wal.""yx>')

#: From malloc.h: the size from which an array gets a mapping of its own, and how much freed memory is kept.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1

#: Errors of writing to a pipe that nobody reads any more; the second on Windows.
_NO_READER = (errno.EPIPE, errno.EINVAL)

app = typer.Typer(name="quantus-concepts", cls=CommandGroup, add_completion=False, pretty_exceptions_enable=False)


def exported_commands() -> dict[str, Any]:
    """Return the options and the name of what runs, ``"package.module:NAME"``, of every command of every study.

    A study is a folder next to this file; its ``COMMANDS`` map the words that are typed to two names in that folder.
    """
    commands: dict[str, Any] = {}
    for folder in pkgutil.iter_modules(studies.__path__, f"{studies.__name__}."):
        if folder.ispkg and not folder.name.rpartition(".")[2].startswith("_"):
            for words, command in importlib.import_module(folder.name).COMMANDS.items():
                if callable(command):
                    commands[words] = command
                    continue
                options, run = command
                # What runs is loaded when it runs: the options alone make the help.
                commands[words] = resolve(f"{folder.name}.{options}"), f"{folder.name}.{run}"
    return commands


COMMANDS = exported_commands()


def _add_commands() -> None:
    groups = {name: typer.Typer(cls=CommandGroup, help=text) for name, text in GROUPS.items()}
    for words, command in COMMANDS.items():
        group, _, name = words.rpartition(" ")
        if callable(command):
            (groups[group] if group else app).command(name)(command)
        else:
            add_command(groups[group] if group else app, words, *command)
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name)


_add_commands()


def _tell_version(requested: bool) -> None:
    if requested:
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


def console() -> int:
    """Run the command line in a process of its own, which ends with it."""
    # Python's own helper processes, which 3.14 starts more of, would import from the working directory.
    os.environ["PYTHONSAFEPATH"] = "1"
    keep_freed_memory()
    sys.stdout, sys.stderr = tolerant_stream(sys.stdout), tolerant_stream(sys.stderr)
    return main()


def keep_freed_memory() -> None:
    """Let this process keep the memory of freed arrays for the next ones; only glibc gives it back each time."""
    # Taking an activation of some megabytes from the system page by page costs more than computing it.
    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    with suppress(AttributeError, OSError):
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(option, 2**31 - 1)


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
        except OSError as error:
            if error.errno not in _NO_READER:
                raise
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
    words = sys.argv[1:] if arguments is None else list(arguments)
    with _terminated_like_interrupted() as terminated:
        code = _run(words or ["--help"])
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
        explanation = import_advice(error)
        if explanation is error:
            raise
        typer.echo(f"Error: {printable(explanation)}", err=True)
        return EXIT_BAD_INPUT
    if code == EXIT_INTERRUPTED:
        typer.echo("Interrupted.", err=True)
    if isinstance(code, Path):
        typer.echo(printable(code))
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
