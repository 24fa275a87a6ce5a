"""What a PASTA-score is used for: mixtures, steering, subsets of concepts."""

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
from quantus_concepts.studies._kit.pictures import PictureRow, shown_picture, top_concepts
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies.pasta.evaluation import UNBOUNDED, SplitResult, identity_of_ratings, kept_arrays
from quantus_concepts.studies.pasta.metrics import CORRELATED_THRESHOLDS
from quantus_concepts.studies.pasta.options import N_CLASSIFIER, SIMULATED, PastaOptions
from quantus_concepts.studies.pasta.preparing import Classifier, RatedBirds, train_classifier


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
    found = {}
    for name, each in maps.items():
        summed = each.sum(1, keepdims=True)
        # It refuses a whole batch for one constant map.
        rows = np.flatnonzero(np.ptp(summed.reshape(len(summed), -1), axis=1) > 0)
        found[name] = np.full(len(images), math.nan)
        if rows.size:
            metric: Any = FaithfulnessCorrelation(
                nr_runs=n_runs, subset_size=subset_size, disable_warnings=True, return_aggregate=False
            )
            # It draws subsets of pixels from NumPy's global generator: the same ones for each explanation.
            with seeded_generators(device_of(model), seed):
                found[name][rows] = metric(model, images[rows], targets[rows], summed[rows], device=device_of(model))
    return found


#: Weights of the score in the steered RISE; 0 is RISE itself.
WEIGHTS = (0.0, 0.7, 1.0)
N_STEERED = 4
#: Cells of a side of a mask: images are small.
CELLS = 5
#: Explanations on either end of the sheet of explanations by score.
N_RANKED = 6
#: Longer side of a drawing among them, concepts named of a list, and what stands for a picture that there is not.
RANKED_SIZE, N_NAMED = 224, 2
_NO_PICTURE = np.ones((1, 1, 3))
#: Explanations whose correlation with metrics is looked at.
N_CORRELATED = 120
MEAN_COLUMNS = ["name", "mean", "low", "high", "n", "difference", "difference_low", "difference_high"]


def apply_score(
    run: Run[PastaOptions], result: SplitResult, ratings: RatedExplanations, embedder: Embedder, birds: RatedBirds
) -> None:
    """Use a scorer for everything the paper uses it for; frames and facts of the run hold what is found."""
    options, scorer = run.options, result.training.scorer
    question = scorer.questions[0]
    of = train_classifier(
        birds,
        epochs=options.classifier_epochs,
        device=options.torch_device(),
        progress=options.progress,
        keep=run.kept,
    )
    run.note(
        f"The classifier is a small network that classifies {of.accuracy:.0%} of {len(of.images)} birds it has not "
        f"seen correctly; its own prediction is explained. It has seen the rated birds (the first {N_CLASSIFIER:,}), "
        "on which votes are correlated with metrics."
    )
    metric = PASTAScore(scorer, embedder, question=question, class_names=of.class_names, disable_warnings=True)
    images = of.images.numpy()
    network = {"network": [of.model, images]}
    maps = kept_arrays(run.kept, "maps", network | {"seed": options.seed}, partial(_explained, of, options.seed))
    mixture = best_explainer(
        {name: metric(of.model, images, of.predicted, values) for name, values in maps.items()}, question
    )
    wins = sorted(mixture.wins.items(), key=lambda pair: -pair[1])
    faithful = partial(_faithful, of, maps, options)
    correlations = kept_arrays(run.kept, "faithfulness", network | {"seed": options.seed}, faithful)
    compared = mixture.compare(correlations).reset_index(names="name")[MEAN_COLUMNS]
    run.facts |= {"mixture": mixture, "question": question}
    run.frames["wins"] = pd.DataFrame(wins, columns=["explainer", "images"])
    run.frames["faithfulness"] = compared
    masked = Remembered(score_masks(scorer, embedder, question=question, labels=of.class_names))
    settings: dict[str, Any] = {**network, "scorer": scorer}
    settings |= {"embedder": embedder.settings, "question": question}
    settings |= {"masks": options.n_masks, "cells": CELLS, "weights": WEIGHTS, "seed": options.seed}
    steering = partial(_steered, of, SteeredRISE(of.model, masked), metric, options)
    _steer(run, of, kept_arrays(run.kept, "steered RISE", settings, steering))
    explain = build_methods(["Grad-CAM"])["Grad-CAM"]
    for name, asked in (("light", "Q5"), ("strong", "Q6")):
        pairs = robustness_pairs(of.model, images, of.labels, explain, question=asked, seed=options.seed)
        run.facts[name] = _perturbed(pairs)
    run.facts["ranked"] = ranked(result, ratings, question)
    run.frames["correlations"] = _correlated(run, of, network, ratings, scorer.questions)


def _explained(of: Classifier, seed: int) -> dict[str, np.ndarray]:
    images = of.images.numpy()
    methods = build_methods([*PAPER_METHODS, *CONTROL_METHODS], n_samples=8, n_steps=16, seed=seed)
    return {name: explain(model=of.model, inputs=images, targets=of.predicted) for name, explain in methods.items()}


def _faithful(of: Classifier, maps: Mapping[str, np.ndarray], options: PastaOptions) -> dict[str, np.ndarray]:
    size = options.image_size**2 // 16
    return subset_correlations(of.model, of.images.numpy(), of.predicted, maps, subset_size=size, seed=options.seed)


class Remembered:
    """A function that computes nothing twice: every weight of the steered RISE asks it of the same masks."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self.found: dict[str, Tensor] = {}

    def __call__(self, images: Tensor, masks: Tensor, targets: Tensor | None) -> Tensor:
        """Return what the function gives."""
        known = fingerprint_of(images, masks, targets)
        if known not in self.found:
            self.found[known] = self.function(images, masks, targets)
        return self.found[known]


def _steered(of: Classifier, steered: SteeredRISE, metric: PASTAScore, options: PastaOptions) -> dict[str, np.ndarray]:
    """Explain some images by RISE with growing weight of the score; return maps and what they score, by weight."""
    faithfulness = Faithfulness(pixel_range=(0, 1), disable_warnings=True)
    shown = of.images[:N_STEERED].to(options.torch_device())
    targets = torch.as_tensor(of.predicted[: len(shown)], device=shown.device)
    found: dict[str, list[np.ndarray]] = {"maps": [], "score": [], "faithfulness": []}
    for weight in WEIGHTS:
        maps = steered.attribute(shown, targets, lam=weight, n_masks=options.n_masks, cells=CELLS, seed=options.seed)
        arguments = (of.model, shown.cpu().numpy(), of.predicted[: len(shown)], maps.cpu().numpy())
        found["maps"].append(unit_maps(maps[:, 0].cpu()).numpy())
        found["score"].append(np.array(metric(*arguments)))
        found["faithfulness"].append(np.array(faithfulness(*arguments)))
    return {name: np.stack(each) for name, each in found.items()}


def _steer(run: Run[PastaOptions], of: Classifier, found: Mapping[str, np.ndarray]) -> None:
    """Say what the steered RISE gave; frames and facts of the run hold it."""
    rows = []
    for place, weight in enumerate(WEIGHTS):
        for measure in ("score", "faithfulness"):
            values = found[measure][place]
            known = values[~np.isnan(values)]
            mean = float(known.mean()) if known.size else math.nan
            rows.append((measure, f"{weight:g}", mean, *t_interval(known, UNBOUNDED), known.size))
    frame = run.facts["steering"] = pd.DataFrame(rows, columns=["measure", *MEAN_COLUMNS[:5]])
    run.frames["steering"] = frame[frame["measure"] == "score"].reindex(columns=MEAN_COLUMNS)
    mark = f"\n{SIMULATED}" if run.facts["ratings"].simulated else ""
    maps, scores = found["maps"], found["score"]
    run.facts["steered"] = [
        PictureRow(
            f"{of.class_names[of.predicted[place]]}{mark}",
            _picture(of.images[place]),
            [each[place] for each in maps],
            None,
            ["" if math.isnan(each[place]) else f"score {each[place]:.2f}" for each in scores],
        )
        for place in range(maps.shape[1])
    ]


def _perturbed(pairs: RobustnessPairs) -> list[PictureRow]:
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
        label = f"{name.replace(' ', chr(10))}\n{float(pairs.magnitudes[place]):g}"
        rows.append(PictureRow(label, image, [perturbed, before, after], None, ["", "", ""]))
    return rows


def ranked(result: SplitResult, ratings: RatedExplanations, question: str) -> dict[str, list[PictureRow]]:
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


def _correlated(
    run: Run[PastaOptions],
    of: Classifier,
    network: Mapping[str, Any],
    ratings: RatedExplanations,
    questions: tuple[str, ...],
) -> pd.DataFrame:
    """Return how votes go with metrics, on some of the rated maps."""
    seed = run.options.seed
    maps = np.flatnonzero(ratings.modalities == "map")
    rng = np.random.default_rng([seed, 7])
    some = ratings.select(np.sort(rng.permutation(maps)[:N_CORRELATED]))
    # Under one name: the metrics of a map do not depend on who made it, and are those of many maps at once.
    alike = replace(some, explainer_ids=np.full(len(some), "any"))
    measure = partial(metric_values, alike, {"any": Explainer(of.model)}, thresholds=CORRELATED_THRESHOLDS, seed=seed)
    settings = {**network, "ratings": identity_of_ratings(some), "seed": seed}
    values = kept_arrays(run.kept, "metrics", settings, measure)
    columns = [ratings.questions.index(question) for question in questions]
    return pd.DataFrame(rating_correlations(values, some.targets()[:, columns], questions))


def _picture(image: Tensor) -> np.ndarray:
    """Return an image (3, H, W) as (H, W, 3)."""
    return image.detach().cpu().clamp(0, 1).permute(1, 2, 0).numpy()
