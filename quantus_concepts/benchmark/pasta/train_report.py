"""The report of `pasta train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quantus_concepts.benchmark.output import OutputFolder
from quantus_concepts.benchmark.pasta.report import write_report
from quantus_concepts.datasets.rated_explanations import RatedExplanations

if TYPE_CHECKING:
    from quantus_concepts.benchmark.pasta.seeds import Outcome, Plan


def write_training(
    folder: OutputFolder,
    *,
    title: str,
    outcome: Outcome,
    ratings: RatedExplanations,
    plan: Plan,
    encoder: str | None,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> None:
    """Write results.csv, the figures and report.html of a training, and print the main table.

    Parameters
    ----------
    folder : OutputFolder
        Where to.
    title : str
        Heading.
    outcome : Outcome
        Of the training.
    ratings : RatedExplanations
        What it learned from.
    plan : Plan
        How.
    encoder : str or None
        The preset used, whose figures of the paper stand beside ours.
    settings : mapping of str to Any
        What the run was made with.
    notes : sequence of str
        What the reader must know besides.
    """
    write_report(
        folder,
        title=title,
        outcome=outcome,
        ratings=ratings,
        plan=plan,
        encoder=encoder,
        settings=settings,
        notes=notes,
    )
