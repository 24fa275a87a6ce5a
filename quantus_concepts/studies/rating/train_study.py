"""The study `pasta train`: embed ratings, train and test scorers over several splits."""

from __future__ import annotations

from functools import partial

import pandas as pd

from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.metrics.pasta.rated_metrics import metric_values
from quantus_concepts.pasta.applications.correlations import rating_correlations
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.page import Page
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies.pasta.evaluation import identity_of_ratings, kept_arrays, save_scorers, train_on_ratings
from quantus_concepts.studies.pasta.page import training_page
from quantus_concepts.studies.pasta.preparing import label_names_of, load_encoder, study_plan
from quantus_concepts.studies.rating.options import TrainOptions


@named_as_typed(TrainOptions, weights="--encoder-weights", tokenizer="--encoder-tokenizer")
def collect(options: TrainOptions, run: Run[TrainOptions]) -> pd.DataFrame:
    """Train and test scorers on the ratings of a folder."""
    ratings = _ratings(options, options.modality)
    files = options.encoder_weights, options.encoder_tokenizer
    encoder = load_encoder(options.encoder, *files, device=options.torch_device())
    embedder = Embedder(
        encoder,
        saliency=options.saliency,
        n_top=options.n_top,
        template=options.template,
        concepts=options.concepts,
        sentence=options.sentence,
        cache=options.cache,
        batch_size=options.batch_size,
        display_progressbar=options.progress,
    )
    labels = label_names_of(ratings) if options.labelled else None
    # The options have the paper's epochs and learning rate, whatever the encoder.
    plan = study_plan(options, ratings, votes=options.votes, label_names=labels, control=False)
    frame, results = train_on_ratings(run, ratings, embedder, plan)
    run.settings |= {name.replace("_", " "): str(value) for name, value in embedder.settings.items()}
    run.facts["encoder"] = embedder.encoder.name
    if options.sparseness:
        run.frames["correlations"] = _sparseness(options, run)
    save_scorers(run, frame, results, embedder, ratings, labels_from=options.labels)
    return frame


def page(frame: pd.DataFrame, run: Run[TrainOptions]) -> Page:
    """Declare the page."""
    title = f"PASTA-score: training on {run.facts['ratings'].name}"
    return training_page(title, frame, run, run.options.votes, run.facts["encoder"])


STUDY = Study("pasta-train", collect, page)


def _ratings(options: TrainOptions, modality: str | None) -> PastaRatings:
    return PastaRatings(
        options.data,
        datasets=None if options.datasets is None else [name.strip() for name in options.datasets.split(",")],
        modality=modality,
        drawings=options.drawings,
        labels=options.labels,
    )


def _sparseness(options: TrainOptions, run: Run[TrainOptions]) -> pd.DataFrame:
    """Correlate votes with the one metric that needs neither a classifier nor its explainers: the paper's Table 9."""
    # Of the maps themselves, not of the drawings that people saw.
    ratings = _ratings(options, "map")
    columns = [ratings.questions.index(question) for question in options.questions]
    make = partial(metric_values, ratings, display_progressbar=options.progress)
    values = kept_arrays(run.kept, "sparseness", {"ratings": identity_of_ratings(ratings)}, make)
    return pd.DataFrame(rating_correlations(values, ratings.targets(options.votes)[:, columns], options.questions))
