"""Made-up trainings of scorers, as the report gets them, without training anything."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pandas as pd
import torch

from quantus_concepts.datasets.ratings.explanations import QUESTIONS, ConceptExplanation, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.studies._kit.report import Report
from quantus_concepts.studies.pasta.report import said_section, said_verdicts, training_report
from quantus_concepts.studies.pasta.scorers import SCORER, SHUFFLED, Plan, Trained, agreement, rater_rows
from quantus_concepts.studies.pasta.votes import vote_differences, vote_means

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
) -> tuple[pd.DataFrame, pd.DataFrame, dict[int, Trained], RatedExplanations, Plan]:
    """Return what a scorer that sees the joined votes through noise would give, as `training_report` takes it."""
    plan = Plan(questions, n_splits=n_splits, train_share=0.5)
    spreads = {SCORER: 0.5}
    parts = []
    for seed, split in plan.splits(ratings).items():
        rng = np.random.default_rng([seed, 5])
        for question, column in zip(questions, plan.columns(ratings), strict=True):
            vote = ratings.targets()[split.test, column]
            seen = 0.4 * np.nanmean(vote) + 0.6 * np.nan_to_num(vote, nan=3)
            scores = {model: seen + rng.normal(0, spread, len(vote)) for model, spread in spreads.items()}
            scores |= {SHUFFLED: 3 + rng.normal(0, 0.5, len(vote))} if control else {}
            of = {"question": question, "seed": seed, "item": split.test, "vote": vote}
            of |= {"modality": ratings.modalities[split.test], "explainer": ratings.explainer_ids[split.test]}
            parts += [pd.DataFrame(of | {"model": name, "score": own.clip(1, 5)}) for name, own in scores.items()]
    scores = pd.concat(parts, ignore_index=True)
    curve = np.linspace(0, 0.6, 40)[:, None].repeat(len(questions), axis=1)
    scorer = Scorer(4, questions, None, hidden=(3, 2))
    trained = {seed: Trained(scorer, 1 - curve, curve, np.full(len(questions), 40)) for seed in range(n_splits)}
    frame = pd.concat([agreement(scores), rater_rows(ratings, plan)], ignore_index=True)
    return frame, scores, trained, ratings, plan


def made_report(ratings: RatedExplanations, encoder: str, *outcome: Any) -> Report:
    """Return the report of a made-up outcome with an encoder of some name."""
    means = vote_means(ratings, outcome[-1].questions)
    compared = vote_differences(ratings, outcome[-1].questions)
    first = said_verdicts(means, compared, ratings), said_section(means, compared, ratings, outcome[-1].questions)
    return training_report("Training", *outcome, types.SimpleNamespace(name=encoder), first=first)
