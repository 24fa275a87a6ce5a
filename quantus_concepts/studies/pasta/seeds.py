"""Training and testing scorers over several splits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.split import Split, leak_free_split
from quantus_concepts.functional.agreement import Figures, ceiling, figures, human_figures
from quantus_concepts.pasta.labels import label_indices
from quantus_concepts.pasta.regressors import KINDS, fit_regressor
from quantus_concepts.pasta.training import Training, TrainingSettings, train_scorer
from quantus_concepts.studies.pasta.results import CEILING, HUMAN, MEASURES, SCORER, SHUFFLED, SIMULATED_HUMAN, Record

QUESTION_NAMES = tuple(QUESTIONS)
#: Names of the other scoring functions in tables, as in the paper's Table 17.
REGRESSOR_NAMES = {"ridge": "ridge", "lasso": "lasso", "svm": "SVM"}


@dataclass(frozen=True)
class Plan:
    """How scorers are trained and tested."""

    questions: tuple[str, ...]
    votes: str = "mode"
    label_names: tuple[str, ...] | None = None
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    train_share: float = 0.7
    seed: int = 0
    n_seeds: int = 5
    control: bool = True
    regressors: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    progress: bool = False

    @property
    def columns(self) -> list[int]:
        """Places of the questions among the six."""
        return [QUESTION_NAMES.index(name) for name in self.questions]


@dataclass(frozen=True)
class SeedResult:
    """One split: its scorer and what it says of the explanations held back."""

    seed: int
    split: Split
    training: Training
    scores: np.ndarray
    targets: np.ndarray


@dataclass
class Outcome:
    """What all splits have given."""

    records: list[Record] = field(default_factory=list)
    seeds: list[SeedResult] = field(default_factory=list)

    @property
    def best(self) -> SeedResult:
        """The split whose scorer does best on its own validation explanations."""
        return max(self.seeds, key=lambda result: _validation(result.training))


def _validation(training: Training) -> float:
    """Return the mean kappa on the validation explanations, of each question at its best epoch."""
    kept = (training.curve[epoch - 1]["qwk"][question] for question, epoch in training.best_epoch.items())
    found = [value for value in kept if not math.isnan(value)]
    return float(np.mean(found)) if found else -math.inf


def train_seeds(
    ratings: RatedExplanations,
    embeddings: Tensor,
    plan: Plan,
    *,
    expected: np.ndarray | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Train and test a scorer on each of several splits."""
    # No image and no explainer is in more than one part of a split.
    outcome = Outcome()
    labels = label_places(ratings, plan)
    targets = ratings.targets(plan.votes)[:, plan.columns]
    votes = ratings.votes[:, :, plan.columns]
    human = SIMULATED_HUMAN if ratings.simulated else HUMAN
    for number in range(plan.n_seeds):
        seed = plan.seed + number
        split = leak_free_split(ratings.image_ids, ratings.explainer_ids, train_share=plan.train_share, seed=seed)
        say(f"Split {number + 1} of {plan.n_seeds}: {split.summary()}")
        test = split.test
        told = None if labels is None else labels[test]

        def tested(name: str, scores: np.ndarray, seed: int = seed, test: np.ndarray = test) -> None:
            _record(outcome.records, name, scores, targets[test], ratings.modalities[test], plan, seed)

        def trained(goal: np.ndarray, seed: int = seed, split: Split = split) -> Training:
            return train_scorer(
                embeddings,
                goal,
                labels,
                train=split.train,
                validation=split.validation,
                questions=plan.questions,
                label_names=plan.label_names,
                settings=plan.settings,
                seed=seed,
                device=plan.device,
                display_progressbar=plan.progress,
            )

        training = trained(targets)
        scores = predicted_votes(training.scorer, embeddings[test], told)
        outcome.seeds.append(SeedResult(seed, split, training, scores, targets[test]))
        tested(SCORER, scores)
        if plan.control:
            tested(
                SHUFFLED, predicted_votes(trained(shuffled_votes(targets, split, seed)).scorer, embeddings[test], told)
            )
        if plan.regressors:
            for kind in KINDS:
                regressor = fit_regressor(
                    kind,
                    embeddings[split.train],
                    targets[split.train],
                    None if labels is None else labels[split.train],
                    questions=plan.questions,
                    label_names=plan.label_names,
                )
                tested(REGRESSOR_NAMES[kind], predicted_votes(regressor, embeddings[test], told))
        for column, question in enumerate(plan.questions):
            found = human_figures(votes[test, :, column], plan.votes)
            if found is not None:
                outcome.records += _records(human, question, found, seed)
            if expected is None:
                estimate = ceiling(votes[test, :, column], plan.votes)
                allowed = None if estimate is None else (estimate.qwk, estimate.spearman, estimate.n)
            else:
                exact = figures(expected[test, plan.columns[column]], targets[test, column])
                allowed = (exact.qwk, exact.spearman, exact.n)
            if allowed is not None:
                qwk, spearman, n = allowed
                outcome.records += [
                    Record(CEILING, question, "QWK", qwk, n, seed),
                    Record(CEILING, question, "SCC", spearman, n, seed),
                ]
    return outcome


def label_places(ratings: RatedExplanations, plan: Plan) -> np.ndarray | None:
    """Return the place of each label among those a scorer is told; None where it is told none."""
    if plan.label_names is None:
        return None
    known = [label or None for label in ratings.labels.tolist()]
    return label_indices(plan.label_names, known, len(ratings)).numpy()


def shuffled_votes(targets: np.ndarray, split: Split, seed: int) -> np.ndarray:
    """Return targets dealt out anew among the explanations of each part."""
    rng = np.random.default_rng([seed, 1])
    shuffled = targets.copy()
    for part in (split.train, split.validation):
        shuffled[part] = targets[rng.permutation(part)]
    return shuffled


def predicted_votes(scorer: object, embeddings: Tensor, labels: np.ndarray | None) -> np.ndarray:
    """Return what a scorer, or a regressor, gives embeddings: (n, Q)."""
    told = None if labels is None else torch.as_tensor(labels)
    return scorer.score(embeddings, told).cpu().numpy().astype(np.float64)  # type: ignore[attr-defined]


def _record(
    records: list[Record],
    model: str,
    scores: np.ndarray,
    targets: np.ndarray,
    modalities: np.ndarray,
    plan: Plan,
    seed: int,
) -> None:
    """Add the figures of one scorer: of all test explanations, and of each modality where there are both."""
    kinds = sorted(set(modalities.tolist()))
    for column, question in enumerate(plan.questions):
        records += _records(model, question, figures(scores[:, column], targets[:, column]), seed)
        for kind in kinds if len(kinds) > 1 else ():
            rows = modalities == kind
            found = figures(scores[rows, column], targets[rows, column])
            records += [replace(record, modality=kind) for record in _records(model, question, found, seed)]


def _records(model: str, question: str, found: Figures, seed: int) -> list[Record]:
    values = dict(zip(MEASURES, (found.mse, found.qwk, found.spearman, found.spearman_rounded), strict=True))
    return [Record(model, question, measure, value, found.n, seed) for measure, value in values.items()]
