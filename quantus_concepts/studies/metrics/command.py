"""What the command `benchmark metrics` runs; loaded when it runs, so that --help answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.metrics.settings import Metrics


def run(settings: Metrics, folder: RunFolder) -> None:
    """Damage models, score them, and write the report."""
    from quantus_concepts.studies.metrics.study import run_trial

    run_trial(settings, folder)
