"""What the command `benchmark concepts` runs; loaded when it runs, so that --help answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.concepts.collection import Scored
    from quantus_concepts.studies.concepts.settings import Concepts


def run(settings: Concepts, folder: RunFolder) -> None:
    """Score all models, and write the report."""
    from quantus_concepts.studies._kit.folder import warnings_as_notes
    from quantus_concepts.studies._kit.report import print_verdicts, write_report
    from quantus_concepts.studies.concepts.collection import collect
    from quantus_concepts.studies.concepts.models import load_models
    from quantus_concepts.studies.concepts.report import build_report, shown_rows, verdicts, whose_concepts

    def tell(scored: Scored, by_class: bool, how_far: str) -> None:
        rows = shown_rows(scored, settings.same_images)
        print_verdicts(verdicts(rows, scored.observed, whose_concepts(by_class)), f"{scored.kind} of {how_far}")

    loaded = load_models(settings)
    with folder:
        with warnings_as_notes(folder):
            collected = collect(settings, folder, loaded, tell)
        more = {"device": str(settings.place), "bfloat16": str(settings.bfloat16)}
        write_report(folder, collected.results, build_report(collected, settings), more)
