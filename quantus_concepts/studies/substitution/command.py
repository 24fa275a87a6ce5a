"""What the command `benchmark substitution` runs; loaded when it runs, so that --help answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.substitution.settings import Substitution


def run(settings: Substitution, folder: RunFolder) -> None:
    """Score all models, and write the report."""
    from quantus_concepts.studies._kit.folder import warnings_as_notes
    from quantus_concepts.studies._kit.report import write_report
    from quantus_concepts.studies.substitution.report import make_report
    from quantus_concepts.studies.substitution.study import collect

    with folder:
        with warnings_as_notes(folder):
            frame, images, gallery = collect(settings, folder)
        published, main = settings.data == "sub", settings.birds.correlation
        write_report(folder, frame, make_report(frame, images, main, gallery, published=published))
