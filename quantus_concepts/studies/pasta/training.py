"""`benchmark pasta` and `pasta train`: scorers that learn from votes, tested on what they never saw, and their uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from quantus.metrics.faithfulness.faithfulness_correlation import FaithfulnessCorrelation
from torch import Tensor, nn

from captum_concepts.attributions.methods import CONTROL_METHODS, PAPER_METHODS, build_methods
from captum_concepts.attributions.steered_rise import SteeredRISE
from captum_concepts.support.fingerprints import fingerprint_of
from captum_concepts.support.running import device_of, seeded_generators
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.functional.attribution.overlay import unit_maps
from quantus_concepts.functional.statistics.intervals import t_interval
from quantus_concepts.metrics.faithfulness import Faithfulness
from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
from quantus_concepts.pasta.applications.correlations import rating_correlations
from quantus_concepts.pasta.applications.mixture import best_explainer
from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS
from quantus_concepts.pasta.applications.robustness import RobustnessPairs, robustness_pairs
from quantus_concepts.pasta.applications.steering import score_masks
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.report import write_report
from quantus_concepts.studies.pasta.cards import GalleryRow, pixels
from quantus_concepts.studies.pasta.material import (
    CORRELATED_THRESHOLDS,
    EMBEDDED,
    N_CLASSIFIER,
    Classifier,
    RatedBirds,
    label_names_of,
    load_embedder,
    train_classifier,
)
from quantus_concepts.studies.pasta.metrics import measure_ratings
from quantus_concepts.studies.pasta.report import MEAN_COLUMNS, Uses, training_report
from quantus_concepts.studies.pasta.scorers import (
    Plan,
    best_seed,
    cached_arrays,
    identity_of_ratings,
    train_on_ratings,
    write_scorers,
)

#: Weights of the score in the steered RISE; 0 is RISE itself.
WEIGHTS = (0.0, 0.7, 1.0)
N_STEERED = 4
#: Cells of a side of a mask: images are small.
CELLS = 5
#: Rated maps on which votes are correlated with metrics.
N_CORRELATED = 120


def run_benchmark(
    folder: RunFolder,
    plan: Plan,
    n_images: int,
    n_per_image: int,
    image_size: int,
    batch_size: int,
    birds: RatedBirds | None,
    n_masks: int,
    epochs: int,
) -> None:
    """Train and test scorers on simulated ratings, use the best on explanations of `birds`, and write all of it."""
    with warnings_as_notes(folder):
        ratings = simulated_ratings(n_images=n_images, n_per_image=n_per_image, image_size=image_size, seed=plan.seed)
        embedder = load_embedder(EMBEDDED, device=plan.device, batch_size=batch_size, display_progressbar=plan.progress)
        plan = replace(plan, label_names=label_names_of(ratings))
        frame, scores, trained = train_on_ratings(folder, ratings, embedder, plan, ratings.expected)
        used = None
        if birds is not None:
            scorer = trained[best_seed(trained)].scorer
            used = use_score(folder, scorer, embedder, ratings, birds, plan, epochs, n_masks)
            for name, table in used.frames.items():
                folder.write(f"{name}.csv", table.to_csv(index=False))
        write_scorers(folder, frame, trained, embedder, ratings, plan)
    title = "PASTA-score: does it predict how people rate explanations?"
    report = training_report(title, frame, scores, trained, ratings, plan, embedder.encoder.name, used=used)
    write_report(folder, frame, report, {"encoder": embedder.name, "device": str(plan.device)})


def run_training(
    folder: RunFolder, ratings: PastaRatings, embedder: Embedder, plan: Plan, maps: PastaRatings | None, labels: str
) -> None:
    """Train and test scorers on a folder's ratings; with `maps`, correlate their sparseness with the votes."""
    with warnings_as_notes(folder):
        frame, scores, trained = train_on_ratings(folder, ratings, embedder, plan)
        correlations = None if maps is None else _sparseness(folder, maps, plan)
        if correlations is not None:
            folder.write("correlations.csv", correlations.to_csv(index=False))
        write_scorers(folder, frame, trained, embedder, ratings, plan, labels)
    report = training_report(
        f"PASTA-score: training on {ratings.name}",
        frame,
        scores,
        trained,
        ratings,
        plan,
        embedder.encoder.name,
        correlations=correlations,
    )
    settings = {name.replace("_", " "): str(value) for name, value in embedder.settings.items()}
    write_report(folder, frame, report, settings | {"encoder": embedder.name, "device": str(plan.device)})


def _sparseness(folder: RunFolder, maps: PastaRatings, plan: Plan) -> pd.DataFrame:
    """Correlate votes with the one metric that needs neither a classifier nor its explainers: the paper's Table 9."""
    values = cached_arrays(
        folder, "sparseness", identity_of_ratings(maps), lambda: measure_ratings(maps, progress=plan.progress)
    )
    return pd.DataFrame(rating_correlations(values, maps.targets(plan.votes)[:, plan.columns], plan.questions))


def use_score(
    folder: RunFolder,
    scorer: Scorer,
    embedder: Embedder,
    ratings: RatedExplanations,
    birds: RatedBirds,
    plan: Plan,
    epochs: int,
    n_masks: int,
) -> Uses:
    """Use a scorer for everything the paper uses it for."""
    question, seed = scorer.questions[0], birds.seed
    classifier = train_classifier(folder, birds, epochs=epochs, device=plan.device, progress=plan.progress)
    images = classifier.images.numpy()
    folder.note(
        f"The classifier is a small network that classifies {classifier.accuracy:.0%} of {len(images)} birds it has "
        "not seen correctly; its own prediction is explained. It has seen the rated birds (the first "
        f"{N_CLASSIFIER:,}), on which votes are correlated with metrics."
    )
    metric = PASTAScore(scorer, embedder, question=question, class_names=classifier.class_names, disable_warnings=True)
    network = [classifier.model, images]
    maps = cached_arrays(folder, "maps", [network, seed], partial(_explain, classifier, seed))
    mixture = best_explainer(
        {name: metric(classifier.model, images, classifier.predicted, values) for name, values in maps.items()},
        question,
    )

    def measure() -> dict[str, np.ndarray]:
        size = birds.image_size**2 // 16
        return subset_correlations(classifier.model, images, classifier.predicted, maps, subset_size=size, seed=seed)

    correlations = cached_arrays(folder, "faithfulness", [network, seed], measure)
    mask_score = Memoised(score_masks(scorer, embedder, question=question, labels=classifier.class_names))
    rise = SteeredRISE(classifier.model, mask_score)
    key = [network, scorer, embedder.settings, question, n_masks, CELLS, WEIGHTS, seed]
    steered = cached_arrays(
        folder, "steered RISE", key, partial(_steer, classifier, rise, metric, n_masks, seed, plan.device)
    )
    explain = build_methods(["Grad-CAM"])["Grad-CAM"]
    light, strong = (
        perturbation_rows(
            robustness_pairs(classifier.model, images, classifier.labels, explain, question=change, seed=seed)
        )
        for change in ("Q5", "Q6")
    )
    return Uses(
        question,
        mixture,
        mixture.compare(correlations).reset_index(names="name")[MEAN_COLUMNS],
        _steering_frame(steered),
        _correlate_metrics(folder, classifier, network, ratings, scorer.questions, seed),
        _steered_rows(classifier, steered),
        light,
        strong,
    )


def _explain(classifier: Classifier, seed: int) -> dict[str, np.ndarray]:
    images = classifier.images.numpy()
    methods = build_methods([*PAPER_METHODS, *CONTROL_METHODS], n_samples=8, n_steps=16, seed=seed)
    return {
        name: explain(model=classifier.model, inputs=images, targets=classifier.predicted)
        for name, explain in methods.items()
    }


class Memoised:
    """A function with a memory: every weight of the steered RISE scores the same masks."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self.results: dict[str, Tensor] = {}

    def __call__(self, images: Tensor, masks: Tensor, targets: Tensor | None) -> Tensor:
        """Return the function's result."""
        key = fingerprint_of(images, masks, targets)
        if key not in self.results:
            self.results[key] = self.function(images, masks, targets)
        return self.results[key]


def _steer(
    classifier: Classifier, rise: SteeredRISE, metric: PASTAScore, n_masks: int, seed: int, device: torch.device
) -> dict[str, np.ndarray]:
    """Explain some images by RISE with growing weight of the score; return maps and their scores, by weight."""
    faithfulness = Faithfulness(pixel_range=(0, 1), disable_warnings=True)
    images = classifier.images[:N_STEERED].to(device)
    targets = torch.as_tensor(classifier.predicted[: len(images)], device=images.device)
    results: dict[str, list[np.ndarray]] = {"maps": [], "score": [], "faithfulness": []}
    for weight in WEIGHTS:
        maps = rise.attribute(images, targets, lam=weight, n_masks=n_masks, cells=CELLS, seed=seed)
        arguments = (classifier.model, images.cpu().numpy(), classifier.predicted[: len(images)], maps.cpu().numpy())
        results["maps"].append(unit_maps(maps[:, 0].cpu()).numpy())
        results["score"].append(np.array(metric(*arguments)))
        results["faithfulness"].append(np.array(faithfulness(*arguments)))
    return {name: np.stack(arrays) for name, arrays in results.items()}


def _steering_frame(results: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return the mean score and faithfulness of the steered explanations by the weight of the score."""
    rows = []
    for place, weight in enumerate(WEIGHTS):
        for measure in ("score", "faithfulness"):
            values = results[measure][place]
            values = values[~np.isnan(values)]
            mean = float(values.mean()) if values.size else math.nan
            rows.append((measure, f"{weight:g}", mean, *t_interval(values, (-math.inf, math.inf)), values.size))
    return pd.DataFrame(rows, columns=["measure", *MEAN_COLUMNS[:5]])


def _steered_rows(classifier: Classifier, results: Mapping[str, np.ndarray]) -> list[GalleryRow]:
    maps, scores = results["maps"], results["score"]
    return [
        GalleryRow(
            classifier.class_names[classifier.predicted[place]],
            [pixels(classifier.images[place]), *maps[:, place]],
            ["", *("" if math.isnan(score) else f"score {score:.2f}" for score in scores[:, place])],
        )
        for place in range(maps.shape[1])
    ]


def perturbation_rows(pairs: RobustnessPairs) -> list[GalleryRow]:
    """Return one pair of each perturbation that was used: image, perturbed, and the explanation of both."""
    rows = []
    for name in (name for name in PERTURBATIONS if name in pairs.names):
        place = pairs.names.index(name)
        before, after = (
            unit_maps(torch.as_tensor(values[place]).float().sum(0)[None])[0].numpy()
            for values in (pairs.explanations, pairs.perturbed_explanations)
        )
        image, perturbed = (pixels(images[place]) for images in (pairs.images, pairs.perturbed))
        rows.append(GalleryRow(f"{name}, {float(pairs.magnitudes[place]):g}", [image, perturbed, before, after]))
    return rows


def _correlate_metrics(
    folder: RunFolder,
    classifier: Classifier,
    network: Any,
    ratings: RatedExplanations,
    questions: tuple[str, ...],
    seed: int,
) -> pd.DataFrame:
    """Return the correlations of votes with metrics, on some of the rated maps."""
    maps = np.flatnonzero(ratings.modalities == "map")
    rng = np.random.default_rng([seed, 7])
    sample = ratings.select(np.sort(rng.permutation(maps)[:N_CORRELATED]))
    # Under one name, metrics are computed on all maps together: those of a map do not depend on its explainer.
    renamed = replace(sample, explainer_ids=np.full(len(sample), "any"))
    measure = partial(
        measure_ratings, renamed, classifier.model, {"any": None}, thresholds=CORRELATED_THRESHOLDS, seed=seed
    )
    values = cached_arrays(folder, "metrics", [network, identity_of_ratings(sample), seed], measure)
    columns = [ratings.questions.index(question) for question in questions]
    return pd.DataFrame(rating_correlations(values, sample.targets()[:, columns], questions))


def subset_correlations(
    model: nn.Module,
    images: np.ndarray,
    targets: np.ndarray,
    maps: Mapping[str, np.ndarray],
    *,
    subset_size: int,
    n_runs: int = 50,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return the correlation of each image (N,) under each explanation (N, C, H, W); NaN where Quantus refuses one."""
    correlations = {}
    for name, attributions in maps.items():
        summed = attributions.sum(1, keepdims=True)
        # Quantus refuses a whole batch for one constant map.
        rows = np.flatnonzero(np.ptp(summed.reshape(len(summed), -1), axis=1) > 0)
        correlations[name] = np.full(len(images), math.nan)
        if rows.size:
            metric: Any = FaithfulnessCorrelation(
                nr_runs=n_runs, subset_size=subset_size, disable_warnings=True, return_aggregate=False
            )
            # Quantus draws subsets of pixels from NumPy's global generator: the same ones for each explanation.
            with seeded_generators(device_of(model), seed):
                scores = metric(model, images[rows], targets[rows], summed[rows], device=device_of(model))
            correlations[name][rows] = scores
    return correlations
