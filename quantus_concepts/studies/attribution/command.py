"""What the command `benchmark attribution` runs; loaded when it runs, so that --help answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.attribution.settings import Attribution


def run(settings: Attribution, folder: RunFolder) -> None:
    """Train and verify the models, score all methods, and write the report."""
    from quantus_concepts.studies._kit.folder import warnings_as_notes
    from quantus_concepts.studies._kit.report import write_report
    from quantus_concepts.studies.attribution.report import make_attribution_report
    from quantus_concepts.studies.attribution.study import collect

    with folder, warnings_as_notes(folder):
        results = collect(settings, folder)
        folder.write("premises.csv", results.premises.to_csv(index=False))
        if len(results.layers):
            folder.write("tcav_layers.csv", results.layers.to_csv(index=False))
        report = make_attribution_report(results, data=settings.data, as_printed=settings.as_printed)
        write_report(folder, results.frame, report, results.details)
