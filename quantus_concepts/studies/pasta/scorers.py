"""Scorers on several splits: one frame of what they, and baselines, say of explanations that they never saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.support.running import progress
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, Explanation, papers
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.rated_file import PREDICTED
from quantus_concepts.datasets.ratings.split import Split, leak_free_split
from quantus_concepts.functional.statistics.intervals import baseline_range
from quantus_concepts.pasta.agreement import (
    ceiling,
    correlation_interval,
    figures,
    human_figures,
    spearman,
    split_interval,
)
from quantus_concepts.pasta.embedder import Embedder, fingerprint_of_encoder
from quantus_concepts.pasta.labels import label_indices
from quantus_concepts.pasta.regressors import Regressor, fit_regressor
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import TrainingSettings, train_scorer
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies.pasta.material import label_names_of, training_settings, voted_questions
from quantus_concepts.studies.pasta.settings import Ablate, BenchmarkPasta, Train
from quantus_concepts.studies.pasta.votes import N_SHUFFLED, ranking, vote_differences, vote_means

SCORER, SHUFFLED, CEILING = "PASTA-score", "shuffled votes", "ceiling"
HUMAN, SIMULATED_HUMAN = "one annotator", "one simulated rater"
#: The other scoring functions, as the paper's Table 17 calls them, by their kind.
REGRESSORS = {"svm": "SVM", "ridge": "ridge", "lasso": "lasso"}
#: Measures, and where `figures` has them.
MEASURES = {"MSE": "mse", "QWK": "qwk", "SCC": "spearman", "SCC rounded": "spearman_rounded"}
PAPER_MEASURES = ("MSE", "QWK", "SCC")
#: Measures in [-1, 1], whose intervals are those of their Fisher z.
CORRELATIONS = ("QWK", "SCC")
#: Batches that are embedded, and cached, at a time.
BATCHES = 4

Row = dict[str, Any]


class Trained(NamedTuple):
    """A scorer, its loss and validation kappa by epoch (E, Q), and the best epoch of each question, from 1."""

    scorer: Scorer
    loss: np.ndarray
    qwk: np.ndarray
    best_epoch: np.ndarray


@dataclass(frozen=True)
class Plan:
    """How scorers are trained and tested; `only` is the kind of a regressor in place of the network."""

    questions: tuple[str, ...]
    votes: str = "mode"
    label_names: tuple[str, ...] | None = None
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    train_share: float = 0.7
    seed: int = 0
    n_splits: int = 5
    control: bool = True
    only: str = ""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    progress: bool = False

    def columns(self, ratings: RatedExplanations) -> list[int]:
        """Return the places of the questions among those of ratings."""
        return [ratings.questions.index(name) for name in self.questions]

    def splits(self, ratings: RatedExplanations) -> dict[int, Split]:
        """Return splits by seed; no image and no explainer is in two parts. Raises where there are too few."""
        ids = (ratings.image_ids, ratings.explainer_ids)
        seeds = range(self.seed, self.seed + self.n_splits)
        return {seed: leak_free_split(*ids, train_share=self.train_share, seed=seed) for seed in seeds}


def plan_of(settings: BenchmarkPasta | Train | Ablate, ratings: RatedExplanations) -> Plan:
    """Return how scorers of the questions that an option names are trained and tested."""
    return Plan(
        voted_questions(settings.question, ratings),
        label_names=label_names_of(ratings),
        settings=training_settings(settings.encoder, settings.epochs, settings.learning_rate),
        seed=settings.seed,
        n_splits=settings.seeds,
        device=settings.place,
        progress=settings.progress,
    )


def embed_ratings(folder: RunFolder, embedder: Embedder, explanations: Sequence[Explanation]) -> Tensor:
    """Embed explanations (N, dim), some at a time: an interrupted run goes on behind those that are finished."""
    parts, size, show = [], BATCHES * embedder.batch_size, embedder.display_progressbar
    for start in progress(range(0, len(explanations), size), "Embedding explanations", show=show):
        stop = min(start + size, len(explanations))
        part = [explanations[place] for place in range(start, stop)]
        # What is in them, not what they are called: a folder may hold other pictures than yesterday.
        key = [fingerprint_of_encoder(embedder.encoder), embedder.settings, [vars(explanation) for explanation in part]]
        made = folder.cached(f"embeddings {start}", key, partial(_embed, embedder, part))
        parts.append(made["embeddings"])
    return torch.cat(parts)


def _embed(embedder: Embedder, explanations: Sequence[Explanation]) -> dict[str, Tensor]:
    return {"embeddings": embedder.embed(explanations)}


@dataclass(frozen=True)
class Material:
    """What scorers learn from: embeddings (N, dim), joined votes (N, Q), and the places (N,) of the labels they see."""

    folder: RunFolder
    plan: Plan
    embeddings: Tensor
    votes: np.ndarray
    labels: Tensor | None

    @classmethod
    def of(cls, folder: RunFolder, ratings: RatedExplanations, embeddings: Tensor, plan: Plan) -> Material:
        """Return the material of ratings."""
        labels = None
        if plan.label_names is not None:
            names = [label or None for label in ratings.labels.tolist()]
            labels = label_indices(plan.label_names, names, len(ratings))
        return cls(folder, plan, embeddings, ratings.targets(plan.votes)[:, plan.columns(ratings)], labels)

    def key(self, votes: np.ndarray, split: Split, seed: int, *more: object) -> list[object]:
        """Return all that a training depends on."""
        plan, inputs = self.plan, fingerprint_of(self.embeddings, self.labels)
        settings = [plan.questions, plan.label_names, asdict(plan.settings), str(plan.device)]
        return [inputs, *settings, votes, split.train, split.validation, seed, *more]

    def score(self, scorer: Scorer | Regressor, split: Split) -> Tensor:
        """Return scores (n, Q) of the test explanations."""
        return scorer.score(self.embeddings[split.test], None if self.labels is None else self.labels[split.test])

    def regress(self, name: str, votes: np.ndarray, split: Split, seed: int) -> Tensor:
        """Fit the plan's regressor, and return its scores (n, Q) of the test explanations."""
        plan = self.plan

        def make() -> dict[str, Tensor]:
            fitted = fit_regressor(
                plan.only,
                self.embeddings,
                votes,
                self.labels,
                train=split.train,
                questions=plan.questions,
                label_names=plan.label_names,
            )
            return {"scores": self.score(fitted, split)}

        return self.folder.cached(name, self.key(votes, split, seed, plan.only), make)["scores"]

    def train(
        self, name: str, votes: np.ndarray, split: Split, seed: int, keep: Mapping[str, int] | None = None
    ) -> Trained:
        """Train a scorer; `keep` names the epoch that is kept of each question, by default the best."""
        plan = self.plan

        def make() -> dict[str, Tensor]:
            training = train_scorer(
                self.embeddings,
                votes,
                self.labels,
                train=split.train,
                validation=split.validation,
                keep=keep,
                questions=plan.questions,
                label_names=plan.label_names,
                settings=plan.settings,
                seed=seed,
                device=plan.device,
                display_progressbar=plan.progress,
            )
            curves = {
                what: torch.tensor([[*point[what].values()] for point in training.curve], dtype=torch.float64)
                for what in ("loss", "qwk")
            }
            best = torch.tensor([*training.best_epoch.values()])
            return {**training.scorer.state_dict(), **curves, "best_epoch": best}

        tensors = self.folder.cached(name, self.key(votes, split, seed, keep), make)
        loss, qwk, best = (tensors.pop(what).numpy() for what in ("loss", "qwk", "best_epoch"))
        scorer = Scorer(self.embeddings.shape[1], plan.questions, plan.label_names)
        scorer.load_state_dict(tensors)
        return Trained(scorer.eval().to(plan.device), loss, qwk, best)


def score_splits(
    folder: RunFolder, ratings: RatedExplanations, embeddings: Tensor, plan: Plan
) -> tuple[pd.DataFrame, dict[int, Trained]]:
    """Train on each split; return what every model says of the test explanations, and the scorers by seed.

    A row has a `seed`, `model`, `question`, the `item` of the ratings with its `modality` and `explainer`, its `score`
    and the joined `vote` on it.
    """
    material = Material.of(folder, ratings, embeddings, plan)
    frames, trained = [], {}
    for seed, split in plan.splits(ratings).items():
        goals = {SCORER: material.votes}
        if plan.control:
            goals[SHUFFLED] = shuffled_votes(material.votes, split, seed)
        for model, votes in goals.items():
            name = f"{plan.only or 'scorer'} {seed} {model}"
            if plan.only:
                scores = material.regress(name, votes, split, seed)
            else:
                one = material.train(name, votes, split, seed)
                scores = material.score(one.scorer, split)
                if model == SCORER:
                    trained[seed] = one
            rows = pd.DataFrame(scores.double().cpu().numpy(), columns=list(plan.questions)).assign(item=split.test)
            rows = rows.melt("item", var_name="question", value_name="score")
            frames.append(rows.assign(seed=seed, model=model, vote=material.votes[split.test].T.ravel()))
    frame = pd.concat(frames, ignore_index=True)
    items = frame["item"].to_numpy()
    return frame.assign(modality=ratings.modalities[items], explainer=ratings.explainer_ids[items]), trained


def shuffled_votes(votes: np.ndarray, split: Split, seed: int) -> np.ndarray:
    """Return votes (N, Q) of which those for training and for validation are shuffled among each other: the control."""
    rng, shuffled = np.random.default_rng([seed, 1]), votes.copy()
    for part in (split.train, split.validation):
        shuffled[part] = votes[rng.permutation(part)]
    return shuffled


def agreement(scores: pd.DataFrame, by: Sequence[str] = ("seed", "model", "question")) -> pd.DataFrame:
    """Compare scores with votes, of all explanations and of each kind, if there are several: a row a measure."""
    rows = []
    for key, group in scores.groupby(list(by), sort=False):
        kinds = sorted(set(group["modality"]))
        for kind in ("all", *(kinds if len(kinds) > 1 else ())):
            part = group if kind == "all" else pick(group, modality=kind)
            found = figures(part["score"].to_numpy(), part["vote"].to_numpy())
            rows += _rows(found, **dict(zip(by, key, strict=True)), modality=kind)
    return pd.DataFrame(rows)


def _rows(found: Any, measures: Sequence[str] = tuple(MEASURES), **about: Any) -> list[Row]:
    return [
        {**about, "measure": name, "value": getattr(found, MEASURES[name]), "n": found.n, "modality": about["modality"]}
        for name in measures
    ]


def rater_rows(ratings: RatedExplanations, plan: Plan) -> pd.DataFrame:
    """Return how single raters agree with the joined vote, and the ceiling: exact where expected votes are known."""
    rater, rows = SIMULATED_HUMAN if ratings.simulated else HUMAN, list[Row]()
    for seed, split in plan.splits(ratings).items():
        for column, question in zip(plan.columns(ratings), plan.questions, strict=True):
            votes = ratings.votes[split.test, :, column]
            about: Row = {"question": question, "seed": seed, "modality": "all"}
            if (human := human_figures(votes, plan.votes)) is not None:
                rows += _rows(human, model=rater, **about)
            joined = ratings.targets(plan.votes)[split.test, column]
            limit: Any = (
                ceiling(votes, plan.votes)
                if ratings.expected is None
                else figures(ratings.expected[split.test, column], joined)
            )
            rows += [] if limit is None else _rows(limit, ("QWK", "SCC"), model=CEILING, **about)
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Outcome:
    """A training over splits: agreement with the votes, scores, scorers by seed, and the scorer of all ratings."""

    frame: pd.DataFrame
    scores: pd.DataFrame
    trained: dict[int, Trained]
    scorer: Scorer


def train_on_ratings(
    folder: RunFolder,
    ratings: RatedExplanations,
    embedder: Embedder,
    plan: Plan,
    labels_from: str = PREDICTED,
) -> Outcome:
    """Embed ratings, train and test on every split, and train the scorer that is used on all ratings."""
    folder.note(*ratings.notes)
    splits = plan.splits(ratings)  # too few images raise before the expensive embedding
    folder.note(next(iter(splits.values())).summary())
    embeddings = embed_ratings(folder, embedder, ratings.explanations)
    scores, trained = score_splits(folder, ratings, embeddings, plan)
    frame = pd.concat([agreement(scores), rater_rows(ratings, plan)], ignore_index=True)
    frame = frame.assign(raters="simulated" if ratings.simulated else "people")
    scorer = train_on_all(folder, ratings, embeddings, plan, trained)
    _describe(scorer, frame, embeddings, embedder, ratings, plan, labels_from)
    return Outcome(frame, scores, trained, scorer)


def train_on_all(
    folder: RunFolder, ratings: RatedExplanations, embeddings: Tensor, plan: Plan, trained: Mapping[int, Trained]
) -> Scorer:
    """Train on all ratings, for as many epochs as are best on the validation explanations (median over splits)."""
    best = np.median([of.best_epoch for of in trained.values()], axis=0).round().astype(int)
    everything = np.arange(len(ratings))
    split = Split(everything, everything[:0], everything[:0], 0, {}, {})
    material = Material.of(folder, ratings, embeddings, plan)
    keep = dict(zip(plan.questions, best.tolist(), strict=True))
    return material.train("scorer all", material.votes, split, plan.seed, keep).scorer


def _describe(
    scorer: Scorer,
    frame: pd.DataFrame,
    embeddings: Tensor,
    embedder: Embedder,
    ratings: RatedExplanations,
    plan: Plan,
    labels_from: str,
) -> None:
    """Keep with a scorer what it learned from, and whether it ranks the explainers as people did."""
    lists = (ratings.explanations[int(row)] for row in np.flatnonzero(ratings.modalities == "concepts"))
    concepts = {name for listed in lists if isinstance(listed, ConceptExplanation) for name in listed.values}
    labels = None if plan.label_names is None else [label or None for label in ratings.labels.tolist()]
    scores = pd.DataFrame(scorer.score(embeddings, labels).cpu().numpy(), columns=list(scorer.questions))
    by_explainer = scores.groupby(ratings.explainer_ids).mean()
    compared = vote_differences(ratings, scorer.questions)
    means = vote_means(ratings, scorer.questions)
    own = pick(frame, model=SCORER, modality="all", measure=list(PAPER_MEASURES))
    figures_of = own.groupby(["question", "measure"])["value"].mean()
    scorer.encoder, scorer.settings = embedder.encoder.name, embedder.settings
    scorer.metadata |= {
        "ratings": ratings.name,
        "simulated": ratings.simulated,
        "untrained_encoder": bool(getattr(embedder.encoder, "untrained", False)),
        "labels_from": labels_from,
        "seed": plan.seed,
        "explanations": len(ratings),
        "concept_names": sorted(concepts),
        # Means over the splits, on explanations that their scorers had not seen; this one has seen all.
        "figures": {name: figures_of[name].to_dict() for name in scorer.questions},
        "ranking": {name: ranking(means, compared, by_explainer[name].to_dict(), name) for name in scorer.questions},
        # The paper's need no word.
        **({"asked": asked} if (asked := own_questions(ratings, scorer.questions)) else {}),
    }


def own_questions(ratings: RatedExplanations, questions: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return wording and direction of the questions that are not the paper's, as a scorer keeps them."""
    chosen = [ratings.asked[name] for name in questions if name not in papers(ratings.asked.values())]
    return {question.name: {"text": question.text, "low_is_good": question.low_is_good} for question in chosen}


def cached_arrays(
    folder: RunFolder, name: str, key: object, make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return arrays by name, in the order in which they were made, from the folder's cache or made."""

    def tensors() -> dict[str, Tensor]:
        arrays = enumerate(make().items())
        return {f"{place:04d} {key}": torch.as_tensor(np.ascontiguousarray(array)) for place, (key, array) in arrays}

    return {key[5:]: tensor.numpy() for key, tensor in sorted(folder.cached(name, key, tensors).items())}


def identity_of_ratings(ratings: RatedExplanations) -> list[np.ndarray]:
    """Return what identifies ratings: the names of what was rated, and the votes."""
    return [ratings.image_ids, ratings.explainer_ids, ratings.modalities, ratings.votes]


def splits_interval(group: pd.DataFrame) -> tuple[float, float]:
    """Return Student's 95 % interval of one measure over splits, of correlations on Fisher's z, as `over_seeds` asks.

    There is none below 3 splits, or of equal numbers.
    """
    interval = correlation_interval if group["measure"].iloc[0] in CORRELATIONS else split_interval
    return interval(group["value"].dropna().to_numpy(float))


def shuffled_ranges(scores: pd.DataFrame) -> pd.DataFrame:
    """Return where 95 % of the mean SCC over splits lie if the votes on the test explanations are shuffled."""
    rng, rows = np.random.default_rng(0), []
    for question, of in pick(scores, model=SCORER).groupby("question", sort=False):
        pairs = [(part["score"].to_numpy(), part["vote"].to_numpy()) for _, part in of.groupby("seed", sort=False)]
        draws = [[spearman(own, rng.permutation(votes)) for own, votes in pairs] for _ in range(N_SHUFFLED)]
        rows.append((question, *baseline_range(pd.DataFrame(draws).mean(axis=1))))
    return pd.DataFrame(rows, columns=["question", "random_low", "random_high"])
