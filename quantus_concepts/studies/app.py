"""The command line: `quantus-concepts benchmark ...`, `quantus-concepts pasta ...` and `quantus-concepts compose`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from quantus_concepts.studies.attribution.command import attribution
from quantus_concepts.studies.command import command
from quantus_concepts.studies.compose_command import compose
from quantus_concepts.studies.concepts.command import concepts
from quantus_concepts.studies.pasta.options import AblateOptions, MetricsOptions, PastaOptions, SizesOptions
from quantus_concepts.studies.rating.score_command import score
from quantus_concepts.studies.rating.sheet_command import join, sheet
from quantus_concepts.studies.rating.train_options import TrainOptions

#: Of click, or of typer's own copy of click: which one depends on the version of typer.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="quantus-concepts",
    help="Are a model's concepts real, present, in the right place? Does an attribution find what matters?",
    add_completion=False,
    pretty_exceptions_enable=False,
)
benchmark = typer.Typer(help="Evaluate models on a data set and write a report.")
app.add_typer(benchmark, name="benchmark")
benchmark.command()(concepts)
benchmark.command()(attribution)
benchmark.command("pasta")(command(PastaOptions, "quantus_concepts.studies.pasta.study:STUDY"))
app.command()(compose)
pasta = typer.Typer(help="How people rate explanations: collect ratings, train scorers, score explanations.")
app.add_typer(pasta, name="pasta")
pasta.command("train")(command(TrainOptions, "quantus_concepts.studies.rating.train_study:STUDY"))
pasta.command()(score)
pasta.command()(sheet)
pasta.command()(join)
pasta.command("ablate")(command(AblateOptions, "quantus_concepts.studies.pasta.ablate:STUDY"))
pasta.command("sizes")(command(SizesOptions, "quantus_concepts.studies.pasta.sizes:STUDY"))
pasta.command("metrics")(command(MetricsOptions, "quantus_concepts.studies.pasta.metrics_study:STUDY"))


@app.callback()
def _root() -> None:
    """Are a model's concepts real, present, in the right place? Does an attribution find what matters?"""


@benchmark.callback()
def _benchmark() -> None:
    """Evaluate models on a data set and write a report."""


@pasta.callback()
def _pasta() -> None:
    """How people rate explanations: collect ratings, train scorers, score explanations."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; None for those of the process.

    Returns
    -------
    int
        0; 2 for input that cannot be worked with, told in one line on stderr; 130 after Ctrl-C.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = app(args=given or ["--help"], standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):  # newer versions of typer return the code instead
        code = EXIT_INTERRUPTED
    except (UsageError, ValueError, TypeError, OSError) as error:
        message = getattr(error, "format_message", error.__str__)()
        typer.echo(f"Error: {' '.join(message.split())}", err=True)
        return EXIT_BAD_INPUT
    if code == EXIT_INTERRUPTED:
        typer.echo("Interrupted; nothing half-written was left.", err=True)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    raise SystemExit(main())
