"""Explanations of a network and their votes beside other measures: the paper's Tables 2, 8, 10 and 11."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from quantus_concepts.datasets.ratings.explanations import MapExplanation
from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import SimulatedRaters, first_answers, map_likeness, rate_map
from quantus_concepts.functional.intervals import interval
from quantus_concepts.functional.overlay import unit_maps
from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.robustness import QUESTIONS_OF_CHANGE, robustness_pairs
from quantus_concepts.studies.pasta.uses import Classifier

IMAGE, EXPLAINER, MODALITY = "image", "explainer", "modality"
#: Resamplings of the images behind an interval, and deals behind the range of what knows nothing.
N_DRAWN = 200


def rated_methods(
    of: Classifier, masks: np.ndarray, methods: Mapping[str, Callable[..., Any]], seed: int = 0
) -> RatedExplanations:
    """Let simulated raters vote on explanations of a network by the masks (N, H, W) of the birds."""
    # The predicted class is explained. Q5 and Q6 are of the pairs that `robustness_pairs` finds, and NaN where it
    # finds none.
    images, n = of.images.numpy(), len(of.images)
    parts = []
    for name, explain in methods.items():
        maps = np.asarray(explain(model=of.model, inputs=images, targets=of.predicted)).reshape(n, -1, *masks.shape[1:])
        maps = maps.sum(1)
        expected = np.full((n, len(QUESTIONS)), np.nan)
        expected[:, :4] = [first_answers(*rate_map(*pair)) for pair in zip(maps, masks, strict=True)]
        for question in QUESTIONS_OF_CHANGE:
            pairs = robustness_pairs(of.model, of.images, None, explain, question=question, seed=seed)
            for place, index in enumerate(pairs.indices):
                both = (pairs.explanations[place], pairs.perturbed_explanations[place])
                likeness = map_likeness(*(np.asarray(each).reshape(-1, *masks.shape[1:]).sum(0) for each in both))
                expected[index, list(QUESTIONS).index(question)] = 1 - likeness
        parts.append((name, maps, MIN_VOTE + (MAX_VOTE - MIN_VOTE) * expected))
    expected = np.concatenate([each for *_, each in parts])
    places = np.tile(np.arange(n), len(parts))
    return RatedExplanations(
        [
            MapExplanation(image, torch.as_tensor(heat).float())
            for _, maps, _ in parts
            for image, heat in zip(of.images, maps, strict=True)
        ],
        SimulatedRaters().vote(expected, seed),
        image_ids=np.array([f"bird {place:04d}" for place in places]),
        explainer_ids=np.repeat([name for name, *_ in parts], n),
        labels=np.array(of.class_names)[of.predicted[places]],
        datasets=np.full(len(places), "painted birds"),
        modalities=np.full(len(places), "map"),
        name="methods on painted birds, simulated raters",
        simulated=True,
        notes=(
            "No person voted: simulated raters vote by a stated function of the overlap with the bird in the picture.",
        ),
    )


def mask_error(ratings: RatedExplanations, masks: np.ndarray) -> np.ndarray:
    """Return the mean absolute difference of each map, scaled to [0, 1], from the mask of its image: (N,)."""
    # Masks stand for what a person would mark: `ratings` holds their images in the same order for each explainer.
    errors = [
        float(np.abs(unit_maps(explanation.map[None].float())[0].numpy() - masks[place % len(masks)]).mean())
        for place, explanation in enumerate(ratings.explanations)
        if isinstance(explanation, MapExplanation)
    ]
    return np.array(errors)


def explanation_frame(ratings: RatedExplanations, values: Mapping[str, Any], how: str = "mode") -> pd.DataFrame:
    """Return a row for each explanation: image, explainer, modality, joined votes by question, and other measures."""
    columns = {IMAGE: ratings.image_ids, EXPLAINER: ratings.explainer_ids, MODALITY: ratings.modalities}
    votes = dict(zip(ratings.questions, ratings.targets(how).T, strict=True))
    return pd.DataFrame({**columns, **votes, **{name: np.asarray(each) for name, each in values.items()}})


def explainer_means(frame: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Return mean, deviation over explanations and interval of each measure by explainer (Tables 10 and 11)."""
    # The interval is over images, which are independent where an explainer rates each once. The explainer "all"
    # comes last; its interval is clustered by image.
    rows = []
    groups = [*frame.groupby(EXPLAINER, sort=False), ("all", frame)]
    for explainer, group in groups:
        for measure in measures:
            known = group.dropna(subset=[measure])
            values = known[measure].to_numpy(float)
            bounds = (MIN_VOTE, MAX_VOTE) if measure in QUESTIONS else (-math.inf, math.inf)
            low, high = interval(values, bounds, known[IMAGE].to_numpy())
            value = values.mean() if values.size else math.nan
            deviation = values.std(ddof=1) if values.size > 1 else math.nan
            rows.append((explainer, measure, value, deviation, low, high, values.size))
    return pd.DataFrame(rows, columns=[EXPLAINER, "measure", "value", "deviation", "low", "high", "n"])


def share_between(frame: pd.DataFrame, of: str) -> float:
    """Return which share of the variance of a column lies between the means of explainers; NaN without variance."""
    known = frame.dropna(subset=[of])
    variance = known[of].var(ddof=0)
    if not variance > 0:
        return math.nan
    return float(known.groupby(EXPLAINER)[of].transform("mean").var(ddof=0) / variance)


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation over the places where both are defined; NaN below 3 of them or without variance."""
    known = ~(np.isnan(first) | np.isnan(second))
    first, second = first[known], second[known]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return float(stats.spearmanr(first, second).statistic)


def across_explainers(frame: pd.DataFrame, first: str, second: str) -> float:
    """Return Spearman's correlation of two measures' means over explainers (Table 2)."""
    means = frame.groupby(EXPLAINER, sort=False)[[first, second]].mean()
    return spearman(means[first].to_numpy(), means[second].to_numpy())


def with_control(
    frame: pd.DataFrame, statistic: Callable[[pd.DataFrame], float], shuffled: str, seed: int = 0, n: int = N_DRAWN
) -> dict[str, float]:
    """Return a statistic with its interval and its control."""
    # The interval (low, high) is the 2.5 to 97.5 % range over images drawn anew with all their explanations; the
    # control (control low, control high) is that range with the column `shuffled` dealt out anew among all
    # explanations, where nothing is related to anything.
    rng = np.random.default_rng([seed, 3])
    groups = list(frame.groupby(IMAGE, sort=False).indices.values())
    drawn, dealt = [], []
    for _ in range(n):
        chosen = rng.integers(0, len(groups), len(groups))
        drawn.append(statistic(frame.iloc[np.concatenate([groups[place] for place in chosen])]))
        dealt.append(statistic(frame.assign(**{shuffled: rng.permutation(frame[shuffled].to_numpy())})))
    ends = pd.DataFrame({"drawn": drawn, "dealt": dealt}).quantile([0.025, 0.975])
    names = ("low", "high", "control low", "control high")
    return {"value": statistic(frame)} | dict(zip(names, ends.to_numpy().T.ravel().tolist(), strict=True))
