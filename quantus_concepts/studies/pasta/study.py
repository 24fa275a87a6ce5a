"""The study `benchmark pasta`: simulated ratings, scorers, and the uses of a PASTA-score."""

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

from captum_concepts._support.fingerprints import fingerprint_of
from captum_concepts._support.running import device_of, seeded_generators
from captum_concepts.attributions.methods import CONTROL_METHODS, PAPER_METHODS, build_methods
from captum_concepts.attributions.steered_rise import SteeredRISE
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.functional.intervals import t_interval
from quantus_concepts.functional.overlay import unit_maps
from quantus_concepts.metrics.faithfulness.faithfulness import Faithfulness
from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
from quantus_concepts.metrics.pasta.rated_metrics import Explainer, metric_values
from quantus_concepts.pasta.applications.correlations import rating_correlations
from quantus_concepts.pasta.applications.mixture import best_explainer
from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS
from quantus_concepts.pasta.applications.robustness import RobustnessPairs, robustness_pairs
from quantus_concepts.pasta.applications.steering import score_masks
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.page import Page
from quantus_concepts.studies._kit.pictures import PictureRow, shown_picture, top_concepts
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies.pasta.evaluation import (
    UNBOUNDED,
    SplitResult,
    best_split,
    identity_of_ratings,
    kept_arrays,
    save_scorers,
    train_on_ratings,
)
from quantus_concepts.studies.pasta.options import CORRELATED_THRESHOLDS, N_CLASSIFIER, SIMULATED, PastaOptions
from quantus_concepts.studies.pasta.page import training_page
from quantus_concepts.studies.pasta.preparing import (
    Classifier,
    RatedBirds,
    study_embedder,
    study_plan,
    train_classifier,
)

#: Weights of the score in the steered RISE; 0 is RISE itself.
WEIGHTS = (0.0, 0.7, 1.0)
N_STEERED = 4
#: Cells of a side of a mask: images are small.
CELLS = 5
#: Explanations on either end of the sheet of explanations by score.
N_RANKED = 6
#: Longer side of a drawing among them, concepts named of a list, and the placeholder of a missing picture.
RANKED_SIZE, N_NAMED = 224, 2
_NO_PICTURE = np.ones((1, 1, 3))
#: Rated maps on which votes are correlated with metrics.
N_CORRELATED = 120
MEAN_COLUMNS = ["name", "mean", "low", "high", "n", "difference", "difference_low", "difference_high"]


@named_as_typed(PastaOptions)
def collect(options: PastaOptions, run: Run[PastaOptions]) -> pd.DataFrame:
    """Train and test scorers on simulated ratings, and use the best."""
    birds = RatedBirds(options.n_explained, image_size=options.image_size, seed=options.seed)
    run.say(f"Drawing explanations of {options.n_images} painted birds; five simulated raters vote")
    ratings = simulated_ratings(
        n_images=options.n_images, n_per_image=options.n_per_image, image_size=options.image_size, seed=options.seed
    )
    embedder = study_embedder(options)
    plan = study_plan(options, ratings)
    frame, results = train_on_ratings(run, ratings, embedder, plan, expected=ratings.expected)
    if options.uses:
        run.say("Choosing, steering, perturbing")
        apply_score(run, best_split(results), ratings, embedder, birds)
    save_scorers(run, frame, results, embedder, ratings)
    return frame


def page(frame: pd.DataFrame, run: Run[PastaOptions]) -> Page:
    """Declare the page."""
    return training_page("PASTA-score: simulated raters of painted birds", frame, run)


STUDY = Study("pasta", collect, page)


def apply_score(
    run: Run[PastaOptions], result: SplitResult, ratings: RatedExplanations, embedder: Embedder, birds: RatedBirds
) -> None:
    """Use a scorer for everything the paper uses it for; add the results to the frames and facts of the run."""
    options, scorer = run.options, result.training.scorer
    question = scorer.questions[0]
    classifier = train_classifier(
        birds,
        epochs=options.classifier_epochs,
        device=options.torch_device(),
        progress=options.progress,
        keep=run.kept,
    )
    images = classifier.images.numpy()
    run.note(
        f"The classifier is a small network that classifies {classifier.accuracy:.0%} of {len(images)} birds it has "
        "not seen correctly; its own prediction is explained. It has seen the rated birds (the first "
        f"{N_CLASSIFIER:,}), on which votes are correlated with metrics."
    )
    metric = PASTAScore(scorer, embedder, question=question, class_names=classifier.class_names, disable_warnings=True)
    network = {"network": [classifier.model, images]}
    maps = kept_arrays(run.kept, "maps", network | {"seed": options.seed}, partial(_explain, classifier, options.seed))
    mixture = best_explainer(
        {name: metric(classifier.model, images, classifier.predicted, values) for name, values in maps.items()},
        question,
    )
    wins = sorted(mixture.wins.items(), key=lambda pair: -pair[1])
    faithful = partial(_faithfulness, classifier, maps, options)
    correlations = kept_arrays(run.kept, "faithfulness", network | {"seed": options.seed}, faithful)
    run.facts |= {"mixture": mixture, "question": question}
    run.frames["wins"] = pd.DataFrame(wins, columns=["explainer", "images"])
    run.frames["faithfulness"] = mixture.compare(correlations).reset_index(names="name")[MEAN_COLUMNS]
    mask_score = Memoised(score_masks(scorer, embedder, question=question, labels=classifier.class_names))
    settings: dict[str, Any] = {**network, "scorer": scorer}
    settings |= {"embedder": embedder.settings, "question": question}
    settings |= {"masks": options.n_masks, "cells": CELLS, "weights": WEIGHTS, "seed": options.seed}
    steering = partial(_steer, classifier, SteeredRISE(classifier.model, mask_score), metric, options)
    _add_steering(run, classifier, kept_arrays(run.kept, "steered RISE", settings, steering))
    explain = build_methods(["Grad-CAM"])["Grad-CAM"]
    for name, question_of_change in (("light", "Q5"), ("strong", "Q6")):
        pairs = robustness_pairs(
            classifier.model, images, classifier.labels, explain, question=question_of_change, seed=options.seed
        )
        run.facts[name] = perturbation_rows(pairs)
    run.facts["ranked"] = ranked_rows(result, ratings, question)
    run.frames["correlations"] = _correlate_metrics(run, classifier, network, ratings, scorer.questions)


def _explain(classifier: Classifier, seed: int) -> dict[str, np.ndarray]:
    images = classifier.images.numpy()
    methods = build_methods([*PAPER_METHODS, *CONTROL_METHODS], n_samples=8, n_steps=16, seed=seed)
    return {
        name: explain(model=classifier.model, inputs=images, targets=classifier.predicted)
        for name, explain in methods.items()
    }


def _faithfulness(
    classifier: Classifier, maps: Mapping[str, np.ndarray], options: PastaOptions
) -> dict[str, np.ndarray]:
    size = options.image_size**2 // 16
    return subset_correlations(
        classifier.model, classifier.images.numpy(), classifier.predicted, maps, subset_size=size, seed=options.seed
    )


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
    classifier: Classifier, rise: SteeredRISE, metric: PASTAScore, options: PastaOptions
) -> dict[str, np.ndarray]:
    """Explain some images by RISE with growing weight of the score; return maps and their scores, by weight."""
    faithfulness = Faithfulness(pixel_range=(0, 1), disable_warnings=True)
    images = classifier.images[:N_STEERED].to(options.torch_device())
    targets = torch.as_tensor(classifier.predicted[: len(images)], device=images.device)
    results: dict[str, list[np.ndarray]] = {"maps": [], "score": [], "faithfulness": []}
    for weight in WEIGHTS:
        maps = rise.attribute(images, targets, lam=weight, n_masks=options.n_masks, cells=CELLS, seed=options.seed)
        arguments = (classifier.model, images.cpu().numpy(), classifier.predicted[: len(images)], maps.cpu().numpy())
        results["maps"].append(unit_maps(maps[:, 0].cpu()).numpy())
        results["score"].append(np.array(metric(*arguments)))
        results["faithfulness"].append(np.array(faithfulness(*arguments)))
    return {name: np.stack(arrays) for name, arrays in results.items()}


def _add_steering(run: Run[PastaOptions], classifier: Classifier, results: Mapping[str, np.ndarray]) -> None:
    """Add the results of the steered RISE to the frames and facts of the run."""
    rows = []
    for place, weight in enumerate(WEIGHTS):
        for measure in ("score", "faithfulness"):
            values = results[measure][place]
            values = values[~np.isnan(values)]
            mean = float(values.mean()) if values.size else math.nan
            rows.append((measure, f"{weight:g}", mean, *t_interval(values, UNBOUNDED), values.size))
    frame = run.facts["steering"] = pd.DataFrame(rows, columns=["measure", *MEAN_COLUMNS[:5]])
    run.frames["steering"] = frame[frame["measure"] == "score"].reindex(columns=MEAN_COLUMNS)
    mark = f"\n{SIMULATED}" if run.facts["ratings"].simulated else ""
    maps, scores = results["maps"], results["score"]
    run.facts["steered"] = [
        PictureRow(
            f"{classifier.class_names[classifier.predicted[place]]}{mark}",
            _picture(classifier.images[place]),
            [*maps[:, place]],
            None,
            ["" if math.isnan(score) else f"score {score:.2f}" for score in scores[:, place]],
        )
        for place in range(maps.shape[1])
    ]


def perturbation_rows(pairs: RobustnessPairs) -> list[PictureRow]:
    """Return one pair of each perturbation that was used."""
    rows = []
    for name in (name for name in PERTURBATIONS if name in pairs.names):
        place = pairs.names.index(name)
        before, after = (
            unit_maps(torch.as_tensor(values[place]).float().sum(0)[None])[0].numpy()
            for values in (pairs.explanations, pairs.perturbed_explanations)
        )
        image, perturbed = (_picture(images[place]) for images in (pairs.images, pairs.perturbed))
        label = f"{name.replace(' ', chr(10))}\n{float(pairs.magnitudes[place]):g}"
        rows.append(PictureRow(label, image, [perturbed, before, after], None, ["", "", ""]))
    return rows


def ranked_rows(result: SplitResult, ratings: RatedExplanations, question: str) -> dict[str, list[PictureRow]]:
    """Return the explanations never seen in training that score best and worst, the best and the worst first."""
    column = result.training.scorer.questions.index(question)
    scores, votes = result.scores[:, column], result.targets[:, column]
    order = np.argsort(-scores)
    order = order[::-1] if question == "Q5" else order
    n = max(1, min(N_RANKED, len(order) // 2))

    def row_of(place: int) -> PictureRow:
        row = int(result.split.test[place])
        explanation = ratings.explanations[row]
        vote = "–" if math.isnan(votes[place]) else f"{votes[place]:g}"
        label = f"{ratings.explainer_ids[row]}\nscore {scores[place]:.2f}, vote {vote}"
        if isinstance(explanation, ConceptExplanation):
            first = "\n".join(name for name, _ in top_concepts(explanation)[:N_NAMED])
            return PictureRow(f"{label}\n{first}", _NO_PICTURE, [_NO_PICTURE], None, [""])
        size = max(explanation.image.shape[:2]) if isinstance(explanation, MapExplanation) else RANKED_SIZE
        image = _picture(explanation.image) if isinstance(explanation, MapExplanation) else _NO_PICTURE
        return PictureRow(label, image, [_picture(shown_picture(explanation, size))], None, [""])

    return {"best": [row_of(place) for place in order[:n]], "worst": [row_of(place) for place in order[::-1][:n]]}


def _correlate_metrics(
    run: Run[PastaOptions],
    classifier: Classifier,
    network: Mapping[str, Any],
    ratings: RatedExplanations,
    questions: tuple[str, ...],
) -> pd.DataFrame:
    """Return the correlations of votes with metrics, on some of the rated maps."""
    seed = run.options.seed
    maps = np.flatnonzero(ratings.modalities == "map")
    rng = np.random.default_rng([seed, 7])
    sample = ratings.select(np.sort(rng.permutation(maps)[:N_CORRELATED]))
    # Under one name, metrics are computed on all maps together: those of a map do not depend on its explainer.
    renamed = replace(sample, explainer_ids=np.full(len(sample), "any"))
    measure = partial(
        metric_values, renamed, {"any": Explainer(classifier.model)}, thresholds=CORRELATED_THRESHOLDS, seed=seed
    )
    settings = {**network, "ratings": identity_of_ratings(sample), "seed": seed}
    values = kept_arrays(run.kept, "metrics", settings, measure)
    columns = [ratings.questions.index(question) for question in questions]
    return pd.DataFrame(rating_correlations(values, sample.targets()[:, columns], questions))


def _picture(image: Tensor) -> np.ndarray:
    """Return an image (3, H, W) as (H, W, 3)."""
    return image.detach().cpu().clamp(0, 1).permute(1, 2, 0).numpy()


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
