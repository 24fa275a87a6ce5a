"""What the score is used for, on painted birds: choosing explanations, steering one, robustness, other metrics."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from quantus.metrics.faithfulness.faithfulness_correlation import FaithfulnessCorrelation
from torch import Tensor

from captum_concepts.paper_methods import CONTROL_METHODS, PAPER_METHODS, build_methods
from captum_concepts.running import device_of, seeded_generators
from captum_concepts.steered_rise import SteeredRISE
from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import N_CLASSES, N_CONCEPTS
from quantus_concepts.functional.intervals import t_interval
from quantus_concepts.functional.overlay import unit_maps
from quantus_concepts.metrics.explainer_values import Explainer, metric_values
from quantus_concepts.metrics.faithfulness import Faithfulness
from quantus_concepts.metrics.pasta_score import PASTAScore
from quantus_concepts.pasta.correlations import RatingCorrelation, rating_correlations
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.mixture import best_explainer
from quantus_concepts.pasta.perturbations import PERTURBATIONS
from quantus_concepts.pasta.robustness import RobustnessPairs, robustness_pairs
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.steering import score_masks
from quantus_concepts.studies.loading import KeptImages
from quantus_concepts.studies.pasta.options import Options
from quantus_concepts.studies.pasta.seeds import SeedResult
from quantus_concepts.studies.pasta.uses_results import (
    MeanRow,
    PerturbedRow,
    RankedRow,
    SteeredRow,
    Uses,
    mean_rows,
)
from quantus_concepts.studies.rating.pictures import shown_picture, top_concepts
from quantus_concepts.studies.training import SmallResNet, train

#: Birds the small network learns from.
N_CLASSIFIER = 2000
#: Weights of the score in the steered RISE; 0 is RISE itself.
WEIGHTS = (0.0, 0.7, 1.0)
N_STEERED = 4
#: Cells of a side of a mask: images are small.
CELLS = 5
N_RANKED = 8
#: Longer side of a drawing among them.
RANKED_SIZE = 224
#: Explanations whose correlation with metrics is looked at.
N_CORRELATED = 120
#: ROAD is slow, so only few of the most and least relevant pixels are gone.
CORRELATED_THRESHOLDS = (6, 12)


@dataclass(frozen=True)
class Classifier:
    """A small network and the birds it is asked about."""

    model: SmallResNet
    images: Tensor
    labels: np.ndarray
    predicted: np.ndarray
    class_names: list[str]

    @property
    def accuracy(self) -> float:
        """Share of the images it classifies correctly."""
        return float((self.predicted == self.labels).mean())


def _birds(options: Options) -> Callable[..., PaintedBirds]:
    # The seed, the numbers of classes and of concepts settle which classes there are.
    return partial(
        PaintedBirds, image_size=options.image_size, n_classes=N_CLASSES, n_concepts=N_CONCEPTS, seed=options.seed
    )


def classifier_birds(options: Options, n_train: int = N_CLASSIFIER) -> tuple[KeptImages, KeptImages]:
    """Return birds of the classes that were rated: those a network learns from, and those it has not seen."""
    birds = _birds(options)
    return KeptImages(birds(n_train, "train")), KeptImages(birds(max(options.n_explained, N_CLASSES), "test"))


def bird_masks(options: Options) -> np.ndarray:
    """Return which pixels show the bird, (N, H, W) of bool, of the birds that a classifier has not seen."""
    unseen = _birds(options)(max(options.n_explained, N_CLASSES), "test")
    return np.stack([unseen.part_masks(place).any(0).numpy() for place in range(options.n_explained)])


def train_classifier(
    options: Options, birds: tuple[KeptImages, KeptImages] | None = None, *, channels: int = 64, network: int = 0
) -> Classifier:
    """Train a small network on painted birds of the classes that were rated, all drawn anew for each `network`."""
    known, unseen = birds or classifier_birds(options)
    seed = options.seed + network
    model = SmallResNet(N_CLASSES, channels=channels, seed=seed).to(options.torch_device())
    train(
        model,
        known.images,
        known.labels,
        epochs=options.classifier_epochs,
        seed=seed,
        description="training the classifier",
        display_progressbar=options.progress,
    )
    images = unseen.images[: options.n_explained].float() / 255
    with torch.no_grad():
        predicted = torch.cat([model(rows.to(options.torch_device())) for rows in images.split(64)]).argmax(1)
    labels = unseen.labels[: options.n_explained].numpy()
    return Classifier(model, images, labels, predicted.cpu().numpy(), list(unseen.class_names))


def gather_uses(options: Options, result: SeedResult, ratings: RatedExplanations, embedder: Embedder) -> Uses:
    """Use a scorer for everything the paper uses it for."""
    scorer = result.training.scorer
    question = scorer.questions[0]
    classifier = train_classifier(options)
    metric = PASTAScore(scorer, embedder, question=question, class_names=classifier.class_names, disable_warnings=True)
    faithfulness = Faithfulness(pixel_range=(0, 1), disable_warnings=True)
    images = classifier.images.numpy()
    maps = {
        name: explain(model=classifier.model, inputs=images, targets=classifier.predicted)
        for name, explain in build_methods(
            [*PAPER_METHODS, *CONTROL_METHODS], n_samples=8, n_steps=16, seed=options.seed
        ).items()
    }

    scores = {name: metric(classifier.model, images, classifier.predicted, values) for name, values in maps.items()}
    mixture = best_explainer(scores, question)
    correlation = FaithfulnessCorrelation(
        nr_runs=50, subset_size=options.image_size**2 // 16, disable_warnings=True, return_aggregate=False
    )
    faithful = {name: _faithful(correlation, classifier, images, values, options.seed) for name, values in maps.items()}
    steering = _steer(options, classifier, scorer, embedder, metric, faithfulness, question)
    explain = build_methods(["Grad-CAM"])["Grad-CAM"]
    pairs = {
        name: robustness_pairs(classifier.model, images, classifier.labels, explain, question=name, seed=options.seed)
        for name in ("Q5", "Q6")
    }
    return Uses(
        mixture_names=mixture.names,
        mixture_wins=tuple(mixture.wins.values()),
        mixture_tied=mixture.tied,
        mixture_question=question,
        faithfulness=mean_rows(mixture.compare(faithful)),
        **steering,
        light=_perturbed_rows(pairs["Q5"]),
        strong=_perturbed_rows(pairs["Q6"]),
        ranked=_ranked(result, ratings, question),
        ranked_question=question,
        correlations=tuple(_correlations(options, classifier, ratings, result)),
        notes=(
            f"The classifier is a small network that classifies {classifier.accuracy:.0%} of "
            f"{len(classifier.images)} birds it has not seen correctly; its own prediction is explained. It has seen "
            f"the rated birds (the first {N_CLASSIFIER:,}), on which votes are correlated with metrics.",
        ),
    )


def _faithful(
    metric: FaithfulnessCorrelation, of: Classifier, images: np.ndarray, maps: np.ndarray, seed: int
) -> np.ndarray:
    """Return Quantus's faithfulness correlation of each image; NaN where it refuses an explanation."""
    values = np.full(len(images), math.nan)
    summed = maps.sum(1, keepdims=True)
    # It refuses a whole batch for one constant map.
    rows = np.flatnonzero(np.ptp(summed.reshape(len(summed), -1), axis=1) > 0)
    if rows.size:
        # It draws from NumPy's global generator.
        with seeded_generators(device_of(of.model), seed):
            values[rows] = metric(of.model, images[rows], of.predicted[rows], summed[rows])
    return values


def _steer(
    options: Options,
    of: Classifier,
    scorer: Scorer,
    embedder: Embedder,
    metric: PASTAScore,
    faithfulness: Faithfulness,
    question: str,
) -> dict[str, Any]:
    """Explain some images by RISE with growing weight of the score."""
    shown = of.images[:N_STEERED].to(options.torch_device())
    targets = torch.as_tensor(of.predicted[: len(shown)], device=shown.device)
    steered = SteeredRISE(of.model, score_masks(scorer, embedder, question=question, labels=of.class_names))
    maps, scores, faithful = [], [], []
    for weight in WEIGHTS:
        found = steered.attribute(shown, targets, lam=weight, n_masks=options.n_masks, cells=CELLS, seed=options.seed)
        a_batch = found.cpu().numpy()
        arguments = (of.model, shown.cpu().numpy(), of.predicted[: len(shown)], a_batch)
        maps.append(unit_maps(found[:, 0].cpu()).numpy())
        scores.append(np.array(metric(*arguments)))
        faithful.append(np.array(faithfulness(*arguments)))
    rows = tuple(
        SteeredRow(
            of.class_names[of.predicted[place]],
            _picture(of.images[place]),
            [each[place] for each in maps],
            [float(each[place]) for each in scores],
        )
        for place in range(len(shown))
    )
    return {
        "steering_weights": WEIGHTS,
        "steering": rows,
        "steering_scores": tuple(_mean_row(weight, values) for weight, values in zip(WEIGHTS, scores, strict=True)),
        "steering_faithfulness": tuple(
            _mean_row(weight, values) for weight, values in zip(WEIGHTS, faithful, strict=True)
        ),
    }


def _mean_row(weight: float, values: np.ndarray) -> MeanRow:
    defined = values[~np.isnan(values)]
    mean = float(defined.mean()) if defined.size else math.nan
    low, high = t_interval(defined, (-math.inf, math.inf))
    return MeanRow(f"{weight:g}", mean, low, high, defined.size)


def _perturbed_rows(pairs: RobustnessPairs) -> tuple[PerturbedRow, ...]:
    """Return one pair of each perturbation that was used."""
    rows = []
    for name in PERTURBATIONS:
        if name not in pairs.names:
            continue
        place = pairs.names.index(name)
        before, after = (
            unit_maps(torch.as_tensor(values[place]).float().sum(0)[None])[0].numpy()
            for values in (pairs.explanations, pairs.perturbed_explanations)
        )
        image, perturbed = (_picture(each[place]) for each in (pairs.images, pairs.perturbed))
        rows.append(PerturbedRow(name, float(pairs.magnitudes[place]), image, perturbed, before, after))
    return tuple(rows)


def _ranked(result: SeedResult, ratings: RatedExplanations, question: str) -> tuple[RankedRow, ...]:
    """Return the explanations never seen in training that score best and worst."""
    column = result.training.scorer.questions.index(question)
    scores, votes = result.scores[:, column], result.targets[:, column]
    order = np.argsort(-scores)
    chosen = [*order[:N_RANKED], *order[max(N_RANKED, len(order) - N_RANKED) :]]
    rows = []
    for place in chosen:
        row = int(result.split.test[place])
        explanation = ratings.explanations[row]
        image = _picture(explanation.image) if isinstance(explanation, MapExplanation) else np.empty((0, 0, 3))
        if isinstance(explanation, ConceptExplanation):
            seen: np.ndarray | list[str] = [name for name, _ in top_concepts(explanation)]
        else:
            seen = _picture(shown_picture(explanation, max(image.shape[:2]) or RANKED_SIZE))
        rows.append(RankedRow(str(ratings.explainer_ids[row]), image, seen, float(scores[place]), float(votes[place])))
    return tuple(rows)


def _correlations(
    options: Options, of: Classifier, ratings: RatedExplanations, result: SeedResult
) -> list[RatingCorrelation]:
    """Return how votes go with metrics, on some of the rated maps."""
    maps = np.flatnonzero(ratings.modalities == "map")
    rng = np.random.default_rng([options.seed, 7])
    some = ratings.select(np.sort(rng.permutation(maps)[:N_CORRELATED]))
    explainers = {name: Explainer(of.model) for name in set(some.explainer_ids.tolist())}
    values = metric_values(some, explainers, thresholds=CORRELATED_THRESHOLDS, seed=options.seed)
    questions = result.training.scorer.questions
    columns = [ratings.questions.index(question) for question in questions]
    return rating_correlations(values, some.targets()[:, columns], questions)


def _picture(image: Tensor) -> np.ndarray:
    """Return an image (3, H, W) as (H, W, 3)."""
    return image.detach().cpu().clamp(0, 1).permute(1, 2, 0).numpy()
