"""Scorers over several splits: embeddings of ratings, trainings with baselines, and their agreement with votes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from functools import partial
from threading import Event
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from captum_concepts._support.fingerprints import fingerprint_of
from quantus_concepts.datasets.ratings.annotations import PREDICTED
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, ConceptExplanation, Explanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.split import Split, leak_free_split
from quantus_concepts.functional.agreement import ceiling, correlation_interval, figures, human_figures, split_interval
from quantus_concepts.functional.intervals import baseline_range
from quantus_concepts.painted.training import run_together
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.labels import label_indices
from quantus_concepts.pasta.regressors import KINDS, Regressor, fit_regressor
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import scorer_bytes
from quantus_concepts.pasta.training import Training, TrainingSettings, train_scorer
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.results import pick

SCORER, SHUFFLED, CEILING = "PASTA-score", "shuffled votes", "ceiling"
HUMAN, SIMULATED_HUMAN = "one annotator", "one simulated rater"
#: The other scoring functions, as the paper's Table 17 calls them, by their kind.
REGRESSORS = {"svm": "SVM", "ridge": "ridge", "lasso": "lasso"}
#: Measures, and where `figures` has them.
MEASURES = {"MSE": "mse", "QWK": "qwk", "SCC": "spearman", "SCC rounded": "spearman_rounded"}
PAPER_MEASURES = ("MSE", "QWK", "SCC")
#: Measures in [-1, 1], whose intervals are those of their Fisher z.
CORRELATIONS = ("QWK", "SCC")
#: Batches of a range, the most that is lost if a worker dies.
_BATCHES = 4
_EMBEDDING = "embedding"
#: Shuffles behind a random range.
N_SHUFFLED = 199

#: `RunFolder.cached` for tensors.
Cache = Callable[[str, object, Callable[[], dict[str, Tensor]]], dict[str, Tensor]]
Row = dict[str, Any]


def not_cached(name: str, key: object, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Make tensors, and keep nothing."""
    return make()


def cached_arrays(
    folder: RunFolder, name: str, key: object, make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return arrays by name, in the order in which they were made, from the folder's cache or made."""

    def tensors() -> dict[str, Tensor]:
        arrays = enumerate(make().items())
        return {f"{place:04d} {key}": torch.as_tensor(np.ascontiguousarray(array)) for place, (key, array) in arrays}

    return {key[5:]: tensor.numpy() for key, tensor in sorted(folder.cached(name, key, tensors).items())}


def identity_of(embedder: Embedder) -> Row:
    """Return what embeddings depend on, apart from the explanations."""
    return {"encoder": embedder.encoder.fingerprint, "shown": embedder.settings}


def identity_of_ratings(ratings: RatedExplanations) -> list[np.ndarray]:
    """Return what identifies ratings: the names of what was rated, and the votes."""
    return [ratings.image_ids, ratings.explainer_ids, ratings.modalities, ratings.votes]


def embed_ratings(folder: RunFolder, embedder: Embedder, ratings: RatedExplanations) -> Tensor:
    """Embed rated explanations: (N, dim), on the CPU."""
    return embed_by_ranges(
        folder,
        lambda: embedder,
        ratings.explanations,
        modalities=ratings.modalities.tolist(),
        batch_size=embedder.batch_size,
        key=[identity_of_ratings(ratings), identity_of(embedder)],
        progress=embedder.display_progressbar,
    )


def embed_by_ranges(
    folder: RunFolder,
    make_embedder: Callable[[], Embedder],
    explanations: Sequence[Explanation],
    *,
    modalities: Sequence[str],
    batch_size: int,
    key: object,
    engine: Literal["local", "ray"] = "local",
    progress: bool = False,
) -> Tensor:
    """Embed explanations by ranges of batches, those of an interrupted run excepted: (N, dim), on the CPU."""
    from quantus_concepts.metrics import score_ranges

    # Batches of one kind, as an `Embedder` encodes them together.
    batches: list[list[int]] = []
    for kind in dict.fromkeys(modalities):
        places = [place for place, modality in enumerate(modalities) if modality == kind]
        batches += [places[start : start + batch_size] for start in range(0, len(places), batch_size)]
    states = score_ranges(
        partial(_range_embedder, make_embedder, explanations, batches),
        len(batches),
        store=folder,
        key=f"embeddings-{fingerprint_of(key, batch_size)[:16]}",
        size=_BATCHES,
        engine=engine,
        display_progressbar=progress,
    )
    return torch.cat([state[_EMBEDDING] for state in states])[np.argsort(np.concatenate(batches))]


def _range_embedder(
    make_embedder: Callable[[], Embedder], explanations: Sequence[Explanation], batches: Sequence[Sequence[int]]
) -> Callable[[int, int], dict[str, Tensor]]:
    # The ranges have a bar.
    embedder = copy(make_embedder())
    embedder.display_progressbar = False

    def embed(start: int, stop: int) -> dict[str, Tensor]:
        parts = [embedder.embed([explanations[place] for place in batch]) for batch in batches[start:stop]]
        return {_EMBEDDING: torch.cat(parts)}

    return embed


@dataclass(frozen=True)
class Plan:
    """How scorers are trained and tested."""

    questions: tuple[str, ...]
    votes: str = "mode"
    label_names: tuple[str, ...] | None = None
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    train_share: float = 0.7
    seed: int = 0
    n_splits: int = 5
    control: bool = True
    regressors: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    progress: bool = False

    @property
    def columns(self) -> list[int]:
        """Places of the questions among the six."""
        return [list(QUESTIONS).index(name) for name in self.questions]


@dataclass(frozen=True)
class SplitResult:
    """One split: its scorer, and scores and votes of the test explanations."""

    seed: int
    split: Split
    training: Training
    scores: np.ndarray
    targets: np.ndarray


def splits_of(ratings: RatedExplanations, plan: Plan) -> dict[int, Split]:
    """Return splits by seed; no image and no explainer is in more than one part. Raises where there are too few."""
    ids = (ratings.image_ids, ratings.explainer_ids)
    seeds = range(plan.seed, plan.seed + plan.n_splits)
    return {seed: leak_free_split(*ids, train_share=plan.train_share, seed=seed) for seed in seeds}


def training_tensors(training: Training) -> dict[str, Tensor]:
    """Return all of a training as tensors."""
    about = {"curve": training.curve, "best_epoch": training.best_epoch, "notes": training.notes}
    return {
        **training.scorer.state_dict(),
        "about": torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8),
    }


def training_of(
    tensors: Mapping[str, Tensor], questions: Sequence[str], label_names: Sequence[str] | None, dim: int
) -> Training:
    """Return the training that `training_tensors` took apart."""
    scorer = Scorer(dim, questions, label_names)
    scorer.load_state_dict({name: tensors[name] for name in scorer.state_dict()})
    about = json.loads(tensors["about"].numpy().tobytes())
    return Training(scorer.eval(), about["curve"], about["best_epoch"], tuple(about["notes"]))


class Trainer:
    """Trains scorers and regressors on one embedding of rated explanations; what is trained is cached."""

    def __init__(self, ratings: RatedExplanations, embeddings: Tensor, plan: Plan, cached: Cache = not_cached) -> None:
        self.ratings, self.embeddings, self.plan, self.cached = ratings, embeddings, plan, cached
        self.splits = splits_of(ratings, plan)
        self.targets = ratings.targets(plan.votes)[:, plan.columns]
        self.labels: np.ndarray | None = None
        if plan.label_names is not None:
            names = [label or None for label in ratings.labels.tolist()]
            self.labels = label_indices(plan.label_names, names, len(ratings)).numpy()
        self._identity = fingerprint_of(embeddings, self.labels)

    def train(self, goals: Sequence[np.ndarray], split: Split, seed: int) -> list[Training]:
        """Train a scorer for each goal, at the same time on a CPU."""
        plan = self.plan

        def make() -> dict[str, Tensor]:
            trainings: dict[int, Training] = {}

            def train(place: int, stop: Event | None = None, _: int = 0) -> None:
                trainings[place] = train_scorer(
                    self.embeddings,
                    goals[place],
                    self.labels,
                    train=split.train,
                    validation=split.validation,
                    questions=plan.questions,
                    label_names=plan.label_names,
                    settings=plan.settings,
                    seed=seed,
                    device=plan.device,
                    # One bar for trainings at the same time, which take equally long.
                    display_progressbar=plan.progress and (stop is None or place == 0),
                    stop=stop,
                )

            if len(goals) == 1 or plan.device.type != "cpu" or torch.get_num_threads() == 1:
                for place in range(len(goals)):
                    train(place)
            else:
                run_together([partial(train, place) for place in range(len(goals))])
            parts = (training_tensors(trainings[place]) for place in range(len(goals)))
            return {f"{place} {name}": tensor for place, part in enumerate(parts) for name, tensor in part.items()}

        tensors = self.cached(f"scorers {seed}", self._key(np.stack(goals), split, seed), make)
        trainings = []
        for place in range(len(goals)):
            prefix = f"{place} "
            part = {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
            trainings.append(training_of(part, plan.questions, plan.label_names, self.embeddings.shape[1]))
            trainings[-1].scorer.to(plan.device)
        return trainings

    def regressor_scores(self, kind: str, goal: np.ndarray, split: Split, seed: int) -> np.ndarray:
        """Fit a regressor, and return its scores (n, Q) of the test explanations."""

        def make() -> dict[str, Tensor]:
            fitted = fit_regressor(
                kind,
                self.embeddings[split.train],
                goal[split.train],
                None if self.labels is None else self.labels[split.train],
                questions=self.plan.questions,
                label_names=self.plan.label_names,
            )
            return {"scores": torch.as_tensor(self.predict(fitted, split.test))}

        return self.cached(f"scores of {kind} {seed}", [self._key(goal, split, seed), kind], make)["scores"].numpy()

    def _key(self, goal: np.ndarray, split: Split, seed: int) -> Row:
        return {
            "embeddings": self._identity,
            "votes": [goal, split.train, split.validation, split.test],
            "questions": self.plan.questions,
            "labels": self.plan.label_names,
            "training": asdict(self.plan.settings),
            "seed": seed,
            "device": str(self.plan.device),
        }

    def test_scores(self, split: Split, seed: int) -> tuple[Training, dict[str, np.ndarray]]:
        """Train a scorer and, if planned, one on shuffled votes; return the first and the test scores of both."""
        goals = {SCORER: self.targets}
        if self.plan.control:
            goals[SHUFFLED] = self.shuffled_targets(split, seed)
        trainings = self.train([*goals.values()], split, seed)
        scores = [self.predict(training.scorer, split.test) for training in trainings]
        return trainings[0], dict(zip(goals, scores, strict=True))

    def predict(self, scorer: Scorer | Regressor, rows: np.ndarray) -> np.ndarray:
        """Return the scores (n, Q) of some explanations by a scorer or a regressor."""
        labels = None if self.labels is None else torch.as_tensor(self.labels[rows])
        return scorer.score(self.embeddings[rows], labels).cpu().numpy().astype(np.float64)

    def shuffled_targets(self, split: Split, seed: int) -> np.ndarray:
        """Return the votes shuffled among the explanations of each part."""
        rng = np.random.default_rng([seed, 1])
        shuffled = self.targets.copy()
        for part in (split.train, split.validation):
            shuffled[part] = self.targets[rng.permutation(part)]
        return shuffled


def figure_rows(
    model: str,
    scores: np.ndarray,
    targets: np.ndarray,
    questions: Sequence[str],
    seed: int,
    modalities: np.ndarray,
    kinds: Sequence[str] | None = None,
) -> list[Row]:
    """Compare scores with votes, by question, of all explanations and of each kind, if there are several."""
    kinds = sorted(set(modalities.tolist())) if kinds is None else kinds
    rows: list[Row] = []
    for column, question in enumerate(questions):
        for kind in ("all", *(kinds if len(kinds) > 1 else ())):
            chosen = (modalities == kind) | (kind == "all")
            agreement = figures(scores[chosen, column], targets[chosen, column])
            rows += _agreement_rows(model, question, agreement, seed, kind)
    return rows


def _agreement_rows(
    model: str, question: str, agreement: Any, seed: int, kind: str = "all", measures: Iterable[str] = MEASURES
) -> list[Row]:
    about = {"n": agreement.n, "seed": seed, "modality": kind}
    return [
        {"model": model, "question": question, "measure": measure, "value": getattr(agreement, MEASURES[measure])}
        | about
        for measure in measures
    ]


def train_splits(trainer: Trainer, expected: np.ndarray | None = None) -> tuple[pd.DataFrame, list[SplitResult]]:
    """Train and test a scorer on each split, with baselines: shuffled votes, a single rater, what noise allows.

    `expected` are votes (N, 6) without the raters' noise, where these are known.
    """
    plan, results, rows = trainer.plan, [], []
    for seed, split in trainer.splits.items():
        training, scores = trainer.test_scores(split, seed)
        targets, modalities = trainer.targets[split.test], trainer.ratings.modalities[split.test]
        results.append(SplitResult(seed, split, training, scores[SCORER], targets))
        for kind in KINDS if plan.regressors else ():
            scores[REGRESSORS[kind]] = trainer.regressor_scores(kind, trainer.targets, split, seed)
        for model, predicted in scores.items():
            rows += figure_rows(model, predicted, targets, plan.questions, seed, modalities)
        rows += _rater_rows(trainer, split, seed, expected)
    frame = pd.DataFrame(rows)
    return frame.assign(raters="simulated" if trainer.ratings.simulated else "people"), results


def _rater_rows(trainer: Trainer, split: Split, seed: int, expected: np.ndarray | None) -> list[Row]:
    """Return how single raters agree with the joined vote, and the ceiling."""
    plan, rows = trainer.plan, []
    for place, (column, question) in enumerate(zip(plan.columns, plan.questions, strict=True)):
        votes = trainer.ratings.votes[split.test, :, column]
        rater = human_figures(votes, plan.votes)
        if rater is not None:
            rows += _agreement_rows(SIMULATED_HUMAN if trainer.ratings.simulated else HUMAN, question, rater, seed)
        if expected is None:
            limit: Any = ceiling(votes, plan.votes)
        else:
            limit = figures(expected[split.test, column], trainer.targets[split.test, place])
        if limit is not None:
            rows += _agreement_rows(CEILING, question, limit, seed, measures=("QWK", "SCC"))
    return rows


def best_split(results: Sequence[SplitResult]) -> SplitResult:
    """Return the split whose scorer does best on its own validation explanations."""

    def validation(result: SplitResult) -> float:
        training = result.training
        kappas = [training.curve[epoch - 1]["qwk"][question] for question, epoch in training.best_epoch.items()]
        defined = [kappa for kappa in kappas if not math.isnan(kappa)]
        return float(np.mean(defined)) if defined else -math.inf

    return max(results, key=validation)


def make_trainer(folder: RunFolder, ratings: RatedExplanations, embedder: Embedder, plan: Plan) -> Trainer:
    """Embed ratings; too few images raise before that, which is expensive."""
    splits_of(ratings, plan)
    return Trainer(ratings, embed_ratings(folder, embedder, ratings), plan, folder.cached)


def best_scorer(folder: RunFolder, ratings: RatedExplanations, embedder: Embedder, plan: Plan) -> Scorer:
    """Embed ratings, train on every split, and return the scorer that is best on its validation explanations."""
    return best_split(train_splits(make_trainer(folder, ratings, embedder, plan))[1]).training.scorer


def train_on_ratings(
    folder: RunFolder, ratings: RatedExplanations, embedder: Embedder, plan: Plan, expected: np.ndarray | None = None
) -> tuple[pd.DataFrame, list[SplitResult]]:
    """Embed ratings, and train and test scorers on every split."""
    folder.note(*ratings.notes)
    frame, results = train_splits(make_trainer(folder, ratings, embedder, plan), expected)
    folder.note(*(note for result in results for note in result.training.notes))
    return frame, results


def write_scorers(
    folder: RunFolder,
    frame: pd.DataFrame,
    results: Sequence[SplitResult],
    embedder: Embedder,
    ratings: RatedExplanations,
    labels_from: str = PREDICTED,
) -> None:
    """Write the scorers of all splits, and the one that is best on its validation explanations."""
    lists = (ratings.explanations[int(row)] for row in np.flatnonzero(ratings.modalities == "concepts"))
    concepts = {name for listed in lists if isinstance(listed, ConceptExplanation) for name in listed.values}
    for result in results:
        scorer = result.training.scorer
        scorer.encoder, scorer.settings = embedder.encoder.name, embedder.settings
        agreement = pick(frame, model=SCORER, modality="all", seed=result.seed, measure=list(PAPER_MEASURES))
        scorer.metadata |= {
            "ratings": ratings.name,
            "simulated": ratings.simulated,
            "labels_from": labels_from,
            "seed": result.seed,
            "images": result.split.images,
            "explainers": result.split.explainers,
            "concept_names": sorted(concepts),
            "figures": {
                question: dict(zip(rows["measure"], rows["value"].tolist(), strict=True))
                for question, rows in agreement.groupby("question")
            },
        }
        folder.write(f"scorer-{result.seed}.safetensors", scorer_bytes(scorer))
    folder.write("scorer.safetensors", scorer_bytes(best_split(results).training.scorer))


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation over the places where both are defined; NaN below 3 of them or without variance."""
    complete = ~(np.isnan(first) | np.isnan(second))
    first, second = first[complete], second[complete]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return float(stats.spearmanr(first, second).statistic)


def over_splits(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return mean (value), deviation, low, high and number of splits of each group of `by`, in which `measure` is.

    Splits without a number, such as the SCC of scores that are all alike, are left out and counted as `undefined`.
    The 95 % interval is Student's, of correlations on Fisher's z; there is none below 3 splits, or of equal numbers.
    """
    rows = []
    for key, group in frame.groupby(list(by), sort=False):
        values = group["value"].dropna().to_numpy(dtype=float)
        interval = correlation_interval if group["measure"].iloc[0] in CORRELATIONS else split_interval
        low, high = interval(values)
        numbers = {
            "value": values.mean() if values.size else math.nan,
            "deviation": values.std(ddof=1) if values.size > 1 else math.nan,
            "low": low,
            "high": high,
            "splits": values.size,
            "undefined": len(group) - values.size,
        }
        rows.append(dict(zip(by, key, strict=True)) | numbers)
    return pd.DataFrame(rows)


def shuffled_ranges(results: Sequence[SplitResult]) -> pd.DataFrame:
    """Return where 95 % of the mean SCC over splits lie if the votes on the test explanations are shuffled."""
    rng, rows = np.random.default_rng(0), []
    for place, question in enumerate(results[0].training.scorer.questions):
        pairs = [(result.scores[:, place], result.targets[:, place]) for result in results]
        draws = pd.DataFrame(
            [[spearman(scores, rng.permutation(votes)) for scores, votes in pairs] for _ in range(N_SHUFFLED)]
        )
        rows.append((question, *baseline_range(draws.mean(axis=1))))
    return pd.DataFrame(rows, columns=["question", "random_low", "random_high"])
