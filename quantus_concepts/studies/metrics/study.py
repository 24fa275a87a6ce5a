"""The worlds of `benchmark metrics`, their trials, and what was not tried."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import pandas as pd

from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.painted.images import sample_loader
from quantus_concepts.painted.training import one_thread, quiet_fits
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.report import write_report
from quantus_concepts.studies._models.named_networks import Network
from quantus_concepts.studies.concepts.data import load_concept_data
from quantus_concepts.studies.concepts.models import load_models
from quantus_concepts.studies.concepts.seed import Seed
from quantus_concepts.studies.concepts.settings import Concepts
from quantus_concepts.studies.metrics.report import build_report
from quantus_concepts.studies.metrics.settings import Metrics
from quantus_concepts.testing import meta_evaluate, predict_world
from quantus_concepts.testing.trial import COLUMNS
from quantus_concepts.testing.worlds import RIGHT, TRAINED, World

#: The world of a user's photographs, in results.csv.
PHOTOGRAPHS = "photographs"
LEFT_OUT = (
    "Left out: scores that need another model or images of their own (PASTA-score, MCS, IDR, IIR, S+ and S-), and "
    "those that are the same for all models (concept-set ceiling)."
)


def run_trial(settings: Metrics, folder: RunFolder) -> None:
    """Try all scores in each world, and write the report."""
    worlds: dict[str, Callable[[], World]] = {name: partial(str, name) for name in (RIGHT, TRAINED)}
    network = None if settings.photographs is None else load_models(settings.photographs).networks[0]
    with folder:
        about = "painted birds"
        with warnings_as_notes(folder):
            if settings.photographs is not None:
                rows, about = photographs(settings.photographs, network, folder)
                worlds = {PHOTOGRAPHS: rows}
            frames = {name: trial_of(name, world, settings, folder) for name, world in worlds.items()}
        if find_spec("torch_concepts") is None:
            folder.note("PyC (torch_concepts) is not installed: its completeness and CaCE are left out.")
        folder.note(LEFT_OUT)
        frame = pd.concat([part.assign(model=name) for name, part in frames.items()], ignore_index=True)
        write_report(folder, frame[["model", *COLUMNS]], build_report(frames, settings, about, folder))


def trial_of(name: str, world: Callable[[], World], settings: Metrics, folder: RunFolder) -> pd.DataFrame:
    """Return the scores of a world, which is made if they are not in the cache."""
    key = {"world": name, "settings": folder.settings}

    def tried() -> pd.DataFrame:
        with one_thread(), quiet_fits():
            return meta_evaluate(
                world=world(),
                worlds=settings.worlds,
                repetitions=settings.repetitions,
                seed=settings.seed,
                display_progressbar=settings.progress,
            )

    return folder.cached(f"trial {name}", key, tried).fillna({"damage": ""})


def photographs(
    settings: Concepts, network: Network | None, folder: RunFolder
) -> tuple[Callable[[], ConceptPredictions], str]:
    """Return what makes the rows of a post-hoc CBM, as `benchmark concepts` fits it, and what its images are."""
    data = next(load_concept_data(settings, network))
    folder.note(*data.notes)
    seed = Seed(folder, settings, network, data, settings.seed)
    loader = partial(sample_loader, batch_size=settings.batch_size, n_workers=settings.readers)

    def rows() -> ConceptPredictions:
        model, loaders = seed.models.post_hoc, [loader(part) for part in (data.train, data.test)]
        return predict_world(model, *loaders, display_progressbar=settings.progress)

    counts = f"{len(data.train)} training and {len(data.test)} test images"
    return rows, f"{data.title}: {counts}, {data.n_classes} classes, {len(data.concept_names)} concepts"
