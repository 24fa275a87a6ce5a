"""What the commands around ratings run; loaded when they run, so that --help answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.pasta import settings as of


def train(settings: of.BenchmarkPasta | of.Train, folder: RunFolder) -> None:
    """Train scorers on ratings and test them; `benchmark pasta` also uses the one of all ratings."""
    from quantus_concepts.studies.pasta.training import run_training

    run_training(settings, folder)


def ablate(settings: of.Ablate, folder: RunFolder) -> None:
    """Train and test scorers for each choice."""
    from quantus_concepts.studies.pasta.ablate import run_ablations

    run_ablations(settings, folder)


def relate(settings: of.Metrics, folder: RunFolder) -> None:
    """Relate measures of explanations to the votes on them."""
    from quantus_concepts.studies.pasta.metrics import run_metrics

    run_metrics(settings, folder)


def score(settings: of.Score, folder: RunFolder) -> None:
    """Score explanations on disk."""
    from quantus_concepts.studies.pasta.score import run_score

    run_score(settings, folder)


def make_sheet(settings: of.Sheet, folder: RunFolder) -> None:
    """Write the page on which people rate explanations."""
    from quantus_concepts.studies.pasta.sheet import write_sheet

    write_sheet(settings, folder)
