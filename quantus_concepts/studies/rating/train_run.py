"""One run of `pasta train`: embed, train and test over several splits, report."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import typer

from quantus_concepts.datasets.ratings.annotations import PREDICTED
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.metrics.explainer_values import metric_values
from quantus_concepts.pasta.correlations import rating_correlations
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.labels import LABEL_ALIASES, RELEASED_LABELS
from quantus_concepts.pasta.scorer_files import save_scorer
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.pasta.encoder_option import load_encoder
from quantus_concepts.studies.pasta.report import write_report
from quantus_concepts.studies.pasta.results import SCORER, summary
from quantus_concepts.studies.pasta.seeds import Outcome, Plan, train_seeds
from quantus_concepts.studies.pasta.uses_results import Uses
from quantus_concepts.studies.rating.train_options import TrainOptions
from quantus_concepts.studies.run import warnings_as_notes

COMMAND = "pasta-train"
FIGURE_NAMES = ("MSE", "QWK", "SCC")


def run_training(options: TrainOptions) -> Path:
    """Train scorers, print the table, and write the folder of results."""
    started = time.monotonic()
    with OutputFolder(COMMAND, options.out, overwrite=options.overwrite) as folder:
        with warnings_as_notes() as notes:
            ratings = _ratings(options, options.modality)
            embedder = _embedder(options)
            _say(options, f"Embedding {len(ratings)} explanations with {embedder.name}")
            embeddings = embedder.embed(ratings.explanations).cpu()
            plan = training_plan(options, ratings)
            outcome = train_seeds(ratings, embeddings, plan, say=lambda text: _say(options, text))
            uses = _sparseness(options) if options.sparseness else None
        save_scorers(folder, outcome, embedder, ratings, labels_from=options.labels)
        write_report(
            folder,
            title=f"PASTA-score: training on {ratings.name}",
            outcome=outcome,
            ratings=ratings,
            plan=plan,
            encoder=embedder.encoder.name,
            settings=_settings(options, embedder, f"{time.monotonic() - started:.0f} s"),
            notes=[*ratings.notes, *notes],
            uses=uses,
        )
    return folder.path


def _ratings(options: TrainOptions, modality: str | None) -> PastaRatings:
    return PastaRatings(
        options.data,
        datasets=None if options.datasets is None else [name.strip() for name in options.datasets.split(",")],
        modality=modality,
        drawings=options.drawings,
        labels=options.labels,
    )


def _sparseness(options: TrainOptions) -> Uses:
    """Correlate votes with the one metric that needs neither a classifier nor its explainers: the paper's Table 9."""
    # Of the maps themselves, whatever people saw of them.
    ratings = _ratings(options, "map")
    columns = [ratings.questions.index(question) for question in options.questions]
    values = metric_values(ratings, display_progressbar=options.progress)
    return Uses(
        correlations=tuple(rating_correlations(values, ratings.targets(options.votes)[:, columns], options.questions))
    )


def training_plan(options: TrainOptions, ratings: RatedExplanations) -> Plan:
    """Return how scorers are trained on some ratings."""
    return Plan(
        questions=options.questions,
        votes=options.votes,
        label_names=known_labels(ratings) if options.labelled else None,
        settings=options.settings,
        train_share=options.train_share,
        seed=options.seed,
        n_seeds=options.seeds,
        control=False,
        regressors=options.regressors,
        device=options.torch_device(),
        progress=options.progress,
    )


def known_labels(ratings: RatedExplanations) -> tuple[str, ...]:
    """Return the labels a scorer of these ratings has to know."""
    names = set(ratings.labels.tolist()) - {""}
    released = {LABEL_ALIASES.get(name, name) for name in names} <= set(RELEASED_LABELS)
    return tuple(RELEASED_LABELS) if released else tuple(sorted(names))


def save_scorers(
    folder: OutputFolder, outcome: Outcome, embedder: Embedder, ratings: RatedExplanations, labels_from: str = PREDICTED
) -> None:
    """Write the scorer of every split, and once more the one that did best on its validation explanations."""
    names = _concept_names(ratings)
    for result in outcome.seeds:
        scorer = result.training.scorer
        scorer.encoder, scorer.settings = embedder.encoder.name, embedder.settings
        scorer.metadata |= {
            "ratings": ratings.name,
            "simulated": ratings.simulated,
            "labels_from": labels_from,
            "seed": result.seed,
            "images": result.split.images,
            "explainers": result.split.explainers,
            "concept_names": names,
            "figures": {
                question: {
                    measure: found.mean
                    for measure in FIGURE_NAMES
                    if (
                        found := summary(
                            [record for record in outcome.records if record.seed == result.seed],
                            SCORER,
                            question,
                            measure,
                        )
                    )
                }
                for question in scorer.questions
            },
        }
        with folder.file(f"scorer-{result.seed}.safetensors") as path:
            save_scorer(scorer, path)
    with folder.file("scorer.safetensors") as path:
        save_scorer(outcome.best.training.scorer, path)


def _concept_names(ratings: RatedExplanations) -> list[str]:
    """Return every concept that is named in the ratings."""
    names: set[str] = set()
    for row in np.flatnonzero(ratings.modalities == "concepts"):
        explanation = ratings.explanations[int(row)]
        if isinstance(explanation, ConceptExplanation):
            names.update(explanation.values)
    return sorted(names)


def _embedder(options: TrainOptions) -> Embedder:
    encoder = load_encoder(
        options.encoder, options.encoder_weights, options.encoder_tokenizer, device=options.torch_device()
    )
    return Embedder(
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


def _settings(options: TrainOptions, embedder: Embedder, time_taken: str) -> dict[str, str]:
    shown = (
        "datasets",
        "modality",
        "drawings",
        "labels",
        "votes",
        "loss",
        "epochs",
        "learning_rate",
        "train_share",
        "labelled",
        "seeds",
    )
    chosen = {name.replace("_", " "): str(value) for name in shown if (value := getattr(options, name)) is not None}
    embedding = {name.replace("_", " "): str(value) for name, value in embedder.settings.items()}
    return {"encoder": embedder.name} | embedding | chosen | {"device": str(options.torch_device()), "time": time_taken}


def _say(options: TrainOptions, text: str) -> None:
    if options.progress:
        typer.echo(text, err=True)
