"""What the command `explain` runs; loaded when it runs, so that --help answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.explain.settings import Explain


def run(settings: Explain, folder: RunFolder) -> None:
    """Explain photographs, or painted birds where none are given."""
    from quantus_concepts.studies.explain.study import run_explain

    with folder:
        run_explain(settings, folder)
