"""The study `benchmark pasta`: simulated ratings, scorers, and what they are used for."""

from __future__ import annotations

import pandas as pd

from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.page import Page
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies.pasta.applications import apply_score
from quantus_concepts.studies.pasta.evaluation import best_split, save_scorers, trained
from quantus_concepts.studies.pasta.options import PastaOptions
from quantus_concepts.studies.pasta.page import training_page
from quantus_concepts.studies.pasta.preparing import RatedBirds, study_embedder, study_plan


@named_as_typed(PastaOptions)
def collect(options: PastaOptions, run: Run[PastaOptions]) -> pd.DataFrame:
    """Train and test scorers on simulated ratings, and use the best."""
    birds = RatedBirds(options.n_explained, image_size=options.image_size, seed=options.seed)
    run.say(f"Drawing explanations of {options.n_images} painted birds; five simulated raters vote")
    ratings = simulated_ratings(
        n_images=options.n_images, n_per_image=options.n_per_image, image_size=options.image_size, seed=options.seed
    )
    embedder = study_embedder(options)
    plan = study_plan(options, ratings)
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
