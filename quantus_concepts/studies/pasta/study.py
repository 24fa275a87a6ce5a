"""The study `benchmark pasta`: simulated ratings, scorers, and what they are used for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from quantus_concepts.datasets.ratings.annotations import PREDICTED
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer_files import save_scorer
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.page import Page
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies.pasta.applications import apply_score
from quantus_concepts.studies.pasta.evaluation import (
    Plan,
    SplitResult,
    Trainer,
    best_split,
    embedded_ratings,
    splits_of,
    train_splits,
)
from quantus_concepts.studies.pasta.options import SCORER, SHOWN, PastaOptions
from quantus_concepts.studies.pasta.page import training_page
from quantus_concepts.studies.pasta.preparing import EMBEDDED_SETTINGS, RatedBirds, embedded_embedder


@named_as_typed(PastaOptions)
def collect(options: PastaOptions, run: Run[PastaOptions]) -> pd.DataFrame:
    """Train and test scorers on simulated ratings, and use the best."""
    birds = RatedBirds(options.n_explained, image_size=options.image_size, seed=options.seed)
    run.say(f"Drawing explanations of {options.n_images} painted birds; five simulated raters vote")
    ratings = simulated_ratings(
        n_images=options.n_images, n_per_image=options.n_per_image, image_size=options.image_size, seed=options.seed
    )
    device = options.torch_device()
    embedder = embedded_embedder(device=device, batch_size=options.batch_size, display_progressbar=options.progress)
    plan = Plan(
        questions=options.questions,
        label_names=tuple(sorted(set(ratings.labels.tolist()))),
        settings=replace(EMBEDDED_SETTINGS, epochs=options.epochs, learning_rate=options.learning_rate),
        train_share=options.train_share,
        seed=options.seed,
        n_splits=options.seeds,
        regressors=options.regressors,
        device=device,
        progress=options.progress,
    )
    frame, results = trained(run, ratings, embedder, plan, expected=ratings.expected)
    if options.uses:
        run.say("Choosing, steering, perturbing")
        apply_score(run, best_split(results), ratings, embedder, birds)
    save_scorers(run, frame, results, embedder, ratings)
    return frame


def page(frame: pd.DataFrame, run: Run[PastaOptions]) -> Page:
    """Declare the page."""
    return training_page("PASTA-score: simulated raters of painted birds", frame, run)


STUDY = Study("pasta", collect, page)


def trained(
    run: Run[Any],
    ratings: RatedExplanations,
    embedder: Embedder,
    plan: Plan,
    expected: np.ndarray | None = None,
) -> tuple[pd.DataFrame, list[SplitResult]]:
    """Embed ratings, train and test on every split, and say what a page shows of it."""
    run.note(*ratings.notes)
    # Before anything expensive.
    splits_of(ratings, plan)
    run.say(f"Embedding {len(ratings)} explanations with {embedder.name}")
    embeddings = embedded_ratings(run, embedder, ratings)
    frame, results = train_splits(Trainer(ratings, embeddings, plan, run.kept), expected=expected, say=run.say)
    run.settings |= {"encoder": embedder.name, "device": str(plan.device)}
    run.facts |= {"ratings": ratings, "splits": results}
    run.note(*(note for result in results for note in result.training.notes))
    return frame, results


def save_scorers(
    run: Run[Any],
    frame: pd.DataFrame,
    results: Sequence[SplitResult],
    embedder: Embedder,
    ratings: RatedExplanations,
    labels_from: str = PREDICTED,
) -> None:
    """Let the scorer of every split be written, and once more the one that did best on its validation explanations."""
    lists = (ratings.explanations[int(row)] for row in np.flatnonzero(ratings.modalities == "concepts"))
    concepts = {name for each in lists if isinstance(each, ConceptExplanation) for name in each.values}
    for result in results:
        scorer = result.training.scorer
        scorer.encoder, scorer.settings = embedder.encoder.name, embedder.settings
        figures = pick(frame, model=SCORER, modality="all", seed=result.seed, measure=list(SHOWN))
        scorer.metadata |= {
            "ratings": ratings.name,
            "simulated": ratings.simulated,
            "labels_from": labels_from,
            "seed": result.seed,
            "images": result.split.images,
            "explainers": result.split.explainers,
            "concept_names": sorted(concepts),
            "figures": {
                question: dict(zip(of["measure"], of["value"].tolist(), strict=True))
                for question, of in figures.groupby("question")
            },
        }
        run.files[f"scorer-{result.seed}.safetensors"] = partial(save_scorer, scorer)
    run.files["scorer.safetensors"] = partial(save_scorer, best_split(results).training.scorer)
