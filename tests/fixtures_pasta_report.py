"""Made-up trainings of scorers, as the report gets them, without training anything."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from quantus_concepts.datasets.ratings.explanations import QUESTIONS, ConceptExplanation, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.split import leak_free_split
from quantus_concepts.functional.agreement import human_figures
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import Training
from quantus_concepts.studies.pasta.scorers import (
    CEILING,
    HUMAN,
    SCORER,
    SHUFFLED,
    SIMULATED_HUMAN,
    SplitResult,
    figure_rows,
)

ALL = tuple(QUESTIONS)


def made_ratings(
    n_images: int = 12,
    n_explainers: int = 9,
    n_raters: int = 5,
    *,
    simulated: bool = False,
    missing: float = 0.0,
    seed: int = 0,
) -> RatedExplanations:
    """Return ratings of every image by every explainer; good explainers first, every third gives concepts."""
    rng = np.random.default_rng(seed)
    images = [f"image {number:03d}" for number in range(n_images)]
    kinds = ["concepts" if number % 3 == 2 else "map" for number in range(n_explainers)]
    names = [f"{'list' if kind == 'concepts' else 'shifted'} {7 * i} %" for i, kind in enumerate(kinds)]
    rows = [(image, place) for image in images for place in range(n_explainers)]
    quality = np.array([4.2 - 2.4 * place / n_explainers - 0.6 * (kinds[place] == "concepts") for _, place in rows])
    level = quality + rng.normal(0, 0.5, len(rows))
    votes = level[:, None, None] + rng.normal(0, 0.7, (len(rows), n_raters, 6))
    votes[..., 4] = 6 - votes[..., 4]
    votes = np.clip(np.rint(votes), 1, 5)
    votes[rng.random(votes.shape) < missing] = np.nan
    explanations = {
        "map": MapExplanation(torch.zeros(3, 4, 4), torch.eye(4)),
        "concepts": ConceptExplanation({"wing": 0.4, "beak": 0.2}),
    }
    return RatedExplanations(
        [explanations[kinds[place]] for _, place in rows],
        votes,
        image_ids=np.array([image for image, _ in rows]),
        explainer_ids=np.array([names[place] for _, place in rows]),
        labels=np.full(len(rows), "bird"),
        datasets=np.full(len(rows), "made up"),
        modalities=np.array([kinds[place] for _, place in rows]),
        name="made up",
        simulated=simulated,
    )


def rows_of(model: str, *values: float, **fields: str) -> pd.DataFrame:
    """Return one number of several splits."""
    row = {"model": model, "question": "Q1", "measure": "SCC", "modality": "all", "n": 50} | fields
    return pd.DataFrame([{**row, "value": value, "seed": seed} for seed, value in enumerate(values)])


def made_outcome(
    ratings: RatedExplanations,
    questions: tuple[str, ...] = ALL,
    n_splits: int = 5,
    *,
    control: bool = True,
    regressors: bool = False,
) -> tuple[pd.DataFrame, list[SplitResult]]:
    """Return what a scorer that sees the joined votes through noise would give."""
    rows, results = [], []
    columns = [ALL.index(question) for question in questions]
    targets = ratings.targets()[:, columns]
    models = {SCORER: 0.5} | ({"ridge": 0.8, "lasso": 0.9, "SVM": 0.6} if regressors else {})
    for seed in range(n_splits):
        rng = np.random.default_rng([seed, 5])
        split = leak_free_split(ratings.image_ids, ratings.explainer_ids, train_share=0.5, seed=seed)
        goal, kinds = targets[split.test], ratings.modalities[split.test]
        for model, spread in models.items():
            noisy = 0.4 * np.nanmean(goal) + 0.6 * np.nan_to_num(goal, nan=3)
            scores = np.clip(noisy + rng.normal(0, spread, goal.shape), 1, 5)
            rows += figure_rows(model, scores, goal, questions, seed, kinds)
            if model == SCORER:
                results.append(SplitResult(seed, split, made_training(questions, 40, rng), scores, goal))
        if control:
            rows += figure_rows(
                SHUFFLED, np.clip(3 + rng.normal(0, 0.5, goal.shape), 1, 5), goal, questions, seed, kinds
            )
        for place, question in enumerate(questions):
            agreement = human_figures(ratings.votes[split.test][:, :, columns[place]])
            if agreement is not None:
                name = SIMULATED_HUMAN if ratings.simulated else HUMAN
                limits = {"QWK": 0.8 + rng.normal(0, 0.02), "SCC": 0.85 + rng.normal(0, 0.02)}
                values = [(name, "MSE", agreement.mse), (name, "QWK", agreement.qwk), (name, "SCC", agreement.spearman)]
                values += [(CEILING, measure, limit) for measure, limit in limits.items()]
                for model, measure, value in values:
                    row = {"model": model, "question": question, "measure": measure, "value": value, "n": agreement.n}
                    rows.append(row | {"seed": seed, "modality": "all"})
    return pd.DataFrame(rows), results


def made_training(questions: tuple[str, ...], n_epochs: int, rng: np.random.Generator) -> Training:
    """Return a learning curve that rises and levels off."""
    steps = np.arange(1, n_epochs + 1)
    curves = {q: 0.6 * (1 - np.exp(-steps / 9)) + rng.normal(0, 0.02, n_epochs) for q in questions}
    curve = [
        {
            "epoch": int(step),
            "loss": dict.fromkeys(questions, 1 / step),
            "qwk": {q: float(curves[q][step - 1]) for q in questions},
        }
        for step in steps
    ]
    best = {q: int(curves[q].argmax()) + 1 for q in questions}
    return Training(Scorer(4, questions, None, hidden=(3, 2)), curve, best)
