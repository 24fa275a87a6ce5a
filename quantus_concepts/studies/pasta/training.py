"""`benchmark pasta` and `pasta train`: scorers that learn from votes, and are tested on what they never saw."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.metrics.pasta.rated_metrics import metric_values
from quantus_concepts.pasta.applications.correlations import rating_correlations
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.report import write_report
from quantus_concepts.studies.pasta.material import EMBEDDED, RatedBirds, label_names_of, load_embedder
from quantus_concepts.studies.pasta.report import training_report
from quantus_concepts.studies.pasta.scorers import (
    Plan,
    best_split,
    cached_arrays,
    identity_of_ratings,
    train_on_ratings,
    write_scorers,
)
from quantus_concepts.studies.pasta.uses import use_score


def run_benchmark(
    folder: RunFolder,
    plan: Plan,
    *,
    n_images: int,
    n_per_image: int,
    image_size: int,
    batch_size: int,
    uses: bool,
    n_explained: int,
    n_masks: int,
    classifier_epochs: int,
) -> None:
    """Train and test scorers on simulated ratings, use the best, and write all of it."""
    with warnings_as_notes(folder):
        birds = RatedBirds(n_explained, image_size=image_size, seed=plan.seed)
        ratings = simulated_ratings(n_images=n_images, n_per_image=n_per_image, image_size=image_size, seed=plan.seed)
        embedder = load_embedder(EMBEDDED, device=plan.device, batch_size=batch_size, display_progressbar=plan.progress)
        plan = replace(plan, label_names=label_names_of(ratings))
        frame, results = train_on_ratings(folder, ratings, embedder, plan, ratings.expected)
        best = best_split(results)
        used = None
        if uses:
            used = use_score(
                folder,
                best.training.scorer,
                embedder,
                ratings,
                birds,
                epochs=classifier_epochs,
                n_masks=n_masks,
                device=plan.device,
                progress=plan.progress,
            )
            for name, table in used.frames.items():
                folder.write(f"{name}.csv", table.to_csv(index=False))
        write_scorers(folder, frame, results, embedder, ratings)
    report = training_report(
        "PASTA-score: does it predict how people rate explanations?",
        frame,
        results,
        ratings,
        embedder.encoder.name,
        used=used,
    )
    write_report(folder, frame, report, {"encoder": embedder.name, "device": str(plan.device)})


def run_training(
    folder: RunFolder, ratings: PastaRatings, embedder: Embedder, plan: Plan, maps: PastaRatings | None, labels: str
) -> None:
    """Train and test scorers on a folder's ratings; with `maps`, correlate their sparseness with the votes."""
    with warnings_as_notes(folder):
        frame, results = train_on_ratings(folder, ratings, embedder, plan)
        correlations = None if maps is None else _sparseness(folder, maps, plan)
        if correlations is not None:
            folder.write("correlations.csv", correlations.to_csv(index=False))
        write_scorers(folder, frame, results, embedder, ratings, labels_from=labels)
    report = training_report(
        f"PASTA-score: training on {ratings.name}",
        frame,
        results,
        ratings,
        embedder.encoder.name,
        votes=plan.votes,
        correlations=correlations,
    )
    settings = {name.replace("_", " "): str(value) for name, value in embedder.settings.items()}
    write_report(folder, frame, report, settings | {"encoder": embedder.name, "device": str(plan.device)})


def _sparseness(folder: RunFolder, maps: PastaRatings, plan: Plan) -> pd.DataFrame:
    """Correlate votes with the one metric that needs neither a classifier nor its explainers: the paper's Table 9."""
    values = cached_arrays(
        folder, "sparseness", identity_of_ratings(maps), lambda: metric_values(maps, display_progressbar=plan.progress)
    )
    return pd.DataFrame(rating_correlations(values, maps.targets(plan.votes)[:, plan.columns], plan.questions))
