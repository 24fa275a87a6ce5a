"""The command line: the commands that the studies export, by the words that are typed."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import io
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from captum_concepts.support.files import printable
from quantus_concepts import studies
from quantus_concepts.studies._kit.options import hidden_options

#: From click, or from typer's own copy of click, which depends on the version of typer.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
#: Help of the groups of commands, in their order.
GROUPS = {
    "benchmark": "Evaluate models on a data set and write a report.",
    "pasta": "How people rate explanations: collect ratings, train scorers, score explanations.",
    "substitute": "Birds with one attribute replaced, as SUB was made: generate and filter.",
}
#: What is called, by the words that are typed: what the ``COMMANDS`` of all studies' folders hold.
COMMANDS: dict[str, Any] = {}

app = typer.Typer(name="quantus-concepts", add_completion=False, pretty_exceptions_enable=False)


def _add_commands() -> None:
    groups = {name: typer.Typer(help=text) for name, text in GROUPS.items()}
    for folder in pkgutil.iter_modules(studies.__path__, f"{studies.__name__}."):
        if not folder.ispkg or folder.name.rpartition(".")[2].startswith("_"):
            continue
        for words, command in importlib.import_module(folder.name).COMMANDS.items():
            group, _, name = words.rpartition(" ")
            place = groups[group] if group else app
            # The lines of a docstring are not those of a terminal.
            paragraphs = (inspect.getdoc(command) or "").split("\n\n")
            if further := hidden_options(command):
                paragraphs.append(f"Further options, described in the command reference: {', '.join(further)}.")
            place.command(name, help="\n\n".join(" ".join(text.split()) for text in paragraphs))(command)
            COMMANDS[words] = command
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name)


_add_commands()


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"quantus-concepts {importlib.metadata.version('quantus-concepts')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Are a model's concepts real, present, in the right place? Does an attribution find what matters?"""


def console() -> int:
    """Run the command line in a process of its own, which ends with it.

    Returns what `main` returns; 143 after SIGTERM, by which schedulers end a run and which does what Ctrl-C does.
    """
    # Python's own helper processes, which 3.14 starts more of, would import from the working directory.
    os.environ["PYTHONSAFEPATH"] = "1"
    # OpenMP's waiting threads spin, which makes a run on a busy machine many times longer; read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if not sys.stderr.isatty() and "--no-progress" not in sys.argv:
        from captum_concepts.support.log import LOG

        LOG.is_on = True
    terminated = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        terminated.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # a reader that leaves, `| head`
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return 0
    return EXIT_TERMINATED if terminated and code == EXIT_INTERRUPTED else code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns 0; 2 for input that cannot be worked with, reported in one line on stderr; 130 after Ctrl-C.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if sum(word.partition("=")[0] == "--painted" for word in words) > 1:
        return _refuse("`--painted` is given twice, and only the last would count. Give all keys once, with commas.")
    try:
        code = app(args=words or ["--help"], standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):  # newer versions of typer return the code instead
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except (UsageError, ValueError, TypeError, OSError) as error:
        message = getattr(error, "format_message", error.__str__)()
        return _refuse(" ".join(message.split()))
    if code == EXIT_INTERRUPTED:
        typer.echo("Interrupted.", err=True)
    if isinstance(code, Path):
        typer.echo(printable(code))
    return code if isinstance(code, int) else 0


def _refuse(reason: object) -> int:
    typer.echo(f"Error: {printable(reason)}", err=True)
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    raise SystemExit(console())
