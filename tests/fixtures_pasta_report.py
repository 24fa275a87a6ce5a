"""Made-up trainings of scorers, as the report gets them, without training anything."""

from __future__ import annotations

import math

import numpy as np
import torch

from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, MapExplanation
from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.split import leak_free_split
from quantus_concepts.functional.agreement import figures, human_figures
from quantus_concepts.pasta.correlations import RatingCorrelation
from quantus_concepts.pasta.perturbations import PERTURBATIONS
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import Training
from quantus_concepts.studies.pasta.results import CEILING, HUMAN, SCORER, SHUFFLED, SIMULATED_HUMAN, Record
from quantus_concepts.studies.pasta.seeds import Outcome, Plan, SeedResult
from quantus_concepts.studies.pasta.uses_results import (
    MeanRow,
    PerturbedRow,
    RankedRow,
    SteeredRow,
    Uses,
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
    shown = {
        "map": MapExplanation(torch.zeros(3, 4, 4), torch.eye(4)),
        "concepts": ConceptExplanation({"wing": 0.4, "beak": 0.2}),
    }
    return RatedExplanations(
        [shown[kinds[place]] for _, place in rows],
        votes,
        image_ids=np.array([image for image, _ in rows]),
        explainer_ids=np.array([names[place] for _, place in rows]),
        labels=np.full(len(rows), "bird"),
        datasets=np.full(len(rows), "made up"),
        modalities=np.array([kinds[place] for _, place in rows]),
        name="made up",
        simulated=simulated,
    )


def made_outcome(
    ratings: RatedExplanations,
    questions: tuple[str, ...] = ALL,
    n_seeds: int = 5,
    *,
    noise: float = 0.5,
    control: bool = True,
    regressors: bool = False,
    n_epochs: int = 40,
) -> Outcome:
    """Return what a scorer that sees the joined votes through noise would give."""
    outcome = Outcome()
    columns = [ALL.index(question) for question in questions]
    targets = ratings.targets()[:, columns]
    models = {SCORER: noise} | ({"ridge": 0.8, "lasso": 0.9, "SVM": 0.6} if regressors else {})
    for seed in range(n_seeds):
        rng = np.random.default_rng([seed, 5])
        split = leak_free_split(ratings.image_ids, ratings.explainer_ids, train_share=0.5, seed=seed)
        goal = targets[split.test]
        middle = np.nanmean(goal)
        for model, spread in models.items():
            seen = 0.4 * middle + 0.6 * np.nan_to_num(goal, nan=3)
            scores = np.clip(seen + rng.normal(0, spread, goal.shape), 1, 5)
            add_figures(outcome.records, model, questions, scores, goal, ratings.modalities[split.test], seed)
            if model == SCORER:
                outcome.seeds.append(SeedResult(seed, split, made_training(questions, n_epochs, rng), scores, goal))
        if control:
            scores = np.clip(3 + rng.normal(0, 0.5, goal.shape), 1, 5)
            add_figures(outcome.records, SHUFFLED, questions, scores, goal, ratings.modalities[split.test], seed)
        for place, question in enumerate(questions):
            found = human_figures(ratings.votes[split.test][:, :, columns[place]])
            if found is not None:
                name = SIMULATED_HUMAN if ratings.simulated else HUMAN
                for measure, value in (("MSE", found.mse), ("QWK", found.qwk), ("SCC", found.spearman)):
                    outcome.records.append(Record(name, question, measure, value, found.n, seed))
                for measure, value in (("QWK", 0.8), ("SCC", 0.85)):
                    limit = value + rng.normal(0, 0.02)
                    outcome.records.append(Record(CEILING, question, measure, limit, found.n, seed))
    return outcome


def add_figures(
    records: list[Record],
    model: str,
    questions: tuple[str, ...],
    scores: np.ndarray,
    goal: np.ndarray,
    kinds: np.ndarray,
    seed: int,
) -> None:
    """Add the records of one model: of all explanations, and of each kind."""
    for place, question in enumerate(questions):
        for kind in ("all", "map", "concepts"):
            rows = np.ones(len(goal), dtype=bool) if kind == "all" else kinds == kind
            found = figures(scores[rows, place], goal[rows, place])
            measured = {
                "MSE": found.mse,
                "QWK": found.qwk,
                "SCC": found.spearman,
                "SCC rounded": found.spearman_rounded,
            }
            records += [Record(model, question, name, value, found.n, seed, kind) for name, value in measured.items()]


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


def made_plan(questions: tuple[str, ...] = ALL, **changes: object) -> Plan:
    """Return a plan for these questions."""
    return Plan(questions, **changes)  # type: ignore[arg-type]


def made_uses(size: int = 32, n_explainers: int = 8, n_perturbations: int = 2) -> Uses:
    """Return something for every section."""
    rng = np.random.default_rng(1)
    across = np.linspace(0, 1, size)

    def image() -> np.ndarray:
        colours = rng.random((2, 3))
        return 0.6 * across[:, None, None] * colours[0] + 0.4 * (1 - across[None, :, None]) * colours[1]

    def spot() -> np.ndarray:
        centre = rng.uniform(0.2, 0.8, 2)
        return np.exp(-((across[:, None] - centre[0]) ** 2 + (across - centre[1]) ** 2) / 0.03)

    def overlay(picture: np.ndarray) -> np.ndarray:
        heat = spot()[..., None]
        return 0.5 * picture + 0.5 * (heat * np.array([1.0, 0, 0]) + (1 - heat) * np.array([0, 0, 1.0]))

    def perturbed(name: str, magnitude: float, score: float = math.nan) -> PerturbedRow:
        return PerturbedRow(name, magnitude, image(), image(), spot(), spot(), score)

    known = ("Grad-CAM", "integrated gradients", "guided backpropagation", "SmoothGrad", "occlusion", "RISE", "LIME")
    names = (*known, *(f"explainer {number}" for number in range(n_explainers)))[:n_explainers]
    wins = (*sorted((int(count) for count in rng.integers(1, 40, n_explainers - 1)), reverse=True), 0)
    faithful = [MeanRow("mixture", 0.063, 0.051, 0.075, 200)]
    faithful.append(MeanRow("average of explainers", 0.052, 0.044, 0.060, 200, 0.011, 0.004, 0.018))
    for name in names:
        mean = float(rng.normal(0.05, 0.02))
        faithful.append(MeanRow(name, mean, mean - 0.012, mean + 0.012, 200, 0.063 - mean, 0.05 - mean, 0.076 - mean))
    weights = (0.0, 0.7, 1.0)
    chosen = list(PERTURBATIONS.values())[:n_perturbations]
    words = ["long red beak", "spotted wing", "white belly", "crested head", "forked tail", "yellow eye", "dark back"]
    ranked = []
    for number in range(20):
        picture = image()
        shown = words[: 2 + number % 6] if number % 4 == 3 else overlay(picture)
        ranked.append(RankedRow(f"shifted {number} %", picture, shown, 4.8 - 0.18 * number, float(5 - number // 5)))
    ranked[3] = RankedRow("replaced in 15 concepts 20 %", None, words * 2, ranked[3].score, math.nan)
    return Uses(
        mixture_names=names,
        mixture_wins=wins,
        faithfulness=tuple(faithful),
        steering_weights=weights,
        steering=tuple(SteeredRow(f"bird {n}", image(), [spot() for _ in weights], [3.1, 3.6, 4.2]) for n in range(3)),
        steering_scores=tuple(MeanRow("", mean, mean - 0.2, mean + 0.2, 4) for mean in (3.1, 3.6, 4.2)),
        steering_faithfulness=tuple(MeanRow("", mean, mean - 0.1, mean + 0.1, 4) for mean in (0.31, 0.3, 0.25)),
        light=tuple(perturbed(each.name, each.light, 1.8) for each in chosen),
        strong=tuple(perturbed(each.name, each.strong) for each in chosen),
        ranked=tuple(ranked),
        correlations=tuple(
            RatingCorrelation(metric, question, -0.02 * k, 0.2, -0.05 * k, 0.00001 if k > 2 else 0.3, 340, 2)
            for metric in ("Sparseness", "Faithfulness (ROAD)", "MaxSensitivity (uniform)")
            for k, question in enumerate(ALL)
        ),
        notes=("The classifier is a small network.",),
    )
