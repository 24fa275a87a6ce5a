"""Comparisons of the concept study: models on the same images, and concepts against their own random range."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from quantus_concepts.functional import cgim, find_discoveries, paired_difference
from quantus_concepts.functional.statistics.differences import Difference, seeds_difference
from quantus_concepts.functional.statistics.discoveries import Discoveries
from quantus_concepts.functional.statistics.intervals import UNBOUNDED, baseline_range, clipped_interval, t_quantile
from quantus_concepts.metrics.concepts.completeness import Completeness
from quantus_concepts.metrics.concepts.leakage import ConceptTaskLeakage
from quantus_concepts.metrics.concepts.names import (
    ACCURACY,
    BOUNDS,
    CEM,
    CEM_GAIN,
    CGIM,
    CGIM_CORRELATION,
    CLASS_CONCEPTS,
    CLASS_IMPORTANCE,
    CLM,
    ITEM,
    PART_SPECIFICITY,
    SCORE,
)
from quantus_concepts.metrics.concepts.oracle_head import LABELS
from quantus_concepts.metrics.concepts.sparse_heads import NEC
from quantus_concepts.painted.subject import POST_HOC, RANDOM, TRADITIONAL
from quantus_concepts.results.comparison import compare, of_one_convention
from quantus_concepts.results.verdicts import CHANCE, RANKINGS
from quantus_concepts.studies._kit.comparisons import adjusted
from quantus_concepts.studies._kit.results import image_intervals, pick

PLAIN = "plain backbone"
#: Rows of the table of images that have no image.
OF_CLASSES = (CLASS_IMPORTANCE, CLASS_CONCEPTS)
#: Times that classes are shuffled for a range of chance.
N_SHUFFLED = 199
ROUNDING = 1e-9
KEYS = ["metric", "explanation", "l", "alpha"]

Pair = tuple[str, str, pd.DataFrame, pd.DataFrame]
#: Of the scores of bottlenecks that do not lie between 0 and 1.
OTHER_BOUNDS = {metric.name: metric.bounds for metric in (ConceptTaskLeakage, Completeness)}
OTHER_BOUNDS |= {LABELS["gap"]: (-1.0, 1.0), NEC: (0.0, math.inf)}


def is_shown_set(row: Mapping[str, Any]) -> bool:
    """Whether a CGIM correlation is over the images that the report shows: by value all, else the correct ones."""
    return bool(row["explanation"] != "value" or row.get("set", "all") == "all")


def compared_rows(images: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of images that enter comparisons and intervals: the first concept, and the smallest region."""
    first = images["l"].isna() | (images["l"] == 1)
    smallest = images["alpha"].isna() | (images["alpha"] == 1)
    own = images["metric"].isin([ACCURACY, CEM_GAIN, CEM, PART_SPECIFICITY, *OF_CLASSES])
    own &= images["baseline"].fillna("") == ""
    maps = (images["metric"] == CLM) & (images["explanation"] == "effect")
    return images[first & smallest & (own | maps)].reset_index(drop=True)


def compare_answers(images: pd.DataFrame, same_images: bool) -> pd.DataFrame:
    """Compare the post-hoc model with the traditional one, the backbone, and its maps with their baselines.

    P-values are corrected for all rows (Holm). Several seeds have the `same_images`, or images of their own: seeds are
    then what is independent.
    """
    return _compare_pairs(_pairs(images[images["metric"] != CEM]), same_images)


def compare_rivals(compared: Mapping[str, pd.DataFrame], same_images: bool) -> pd.DataFrame:
    """Compare the study's model of each table with those of all others; p-values are corrected for all rows (Holm)."""
    own = {
        name: pick(_own_scores(images[images["metric"] != CEM]), model=[POST_HOC, ""]).drop(columns="model")
        for name, images in compared.items()
    }
    # Without part points there is no place, and a model may lack concepts.
    own = {name: rows[rows["explanation"].fillna("").isin(["", *RANKINGS])] for name, rows in own.items()}
    # A model that knows no level of absent concepts has no effects.
    scores = {name: pd.MultiIndex.from_frame(rows[["metric", "explanation"]].fillna("")) for name, rows in own.items()}
    shared = set.intersection(*({*index} for index in scores.values()))
    concepts = set.intersection(*(concepts_of(rows) for rows in own.values()))
    own = {
        name: rows[scores[name].isin(shared) & (rows["item"].isin(concepts) | ~rows["metric"].isin(OF_CLASSES))]
        for name, rows in own.items()
    }
    return _compare_pairs(((a, b, own[a], own[b]) for a, b in itertools.combinations(own, 2)), same_images)


def concepts_of(images: pd.DataFrame) -> set[str]:
    """Return the concepts that a table of scores of images is about."""
    return {*pick(images, metric=CLASS_CONCEPTS)["item"]}


def with_chance(rows: pd.DataFrame, images: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a model without random banks, with chance in place of their range.

    For the accuracy it is the share of the commonest class, for CEM gain 0. For the mean CGIM correlation it is the
    range of 95 % of those with the classes of the truth shuffled, by effect. Part specificity has none: parts lie where
    they lie.
    """
    rows = rows.assign(against=CHANCE)
    counts = pick(images, metric=ACCURACY)["label"].value_counts(normalize=True)
    chance = {ACCURACY: counts.max(), CEM_GAIN: 0.0}
    for metric, value in chance.items():
        # Means of scores that add up to chance miss it by rounding.
        ends = value - ROUNDING, value + ROUNDING
        rows.loc[pick(rows, metric=metric, what=SCORE).index, ["random_low", "random_high"]] = ends
    correlations = pick(rows, metric=CGIM_CORRELATION, item_kind="concept", what=SCORE)
    chosen = pick(correlations, explanation=RANKINGS[0]).index
    if len(chosen):
        draws = [shuffled_correlations(seed, RANKINGS[0]) for _, seed in images.groupby("seed")]
        rows.loc[chosen, ["random_low", "random_high"]] = baseline_range(np.mean(draws, axis=0))
    return rows


def shuffled_correlations(images: pd.DataFrame, explanation: str) -> np.ndarray:
    """Return the mean CGIM correlation for each of `N_SHUFFLED` times that the classes of the truth are shuffled."""
    importance, truth = (
        torch.tensor(part.pivot(index="label", columns="item", values="value").to_numpy(float))
        for part in (
            pick(images, metric=CLASS_IMPORTANCE, explanation=explanation),
            pick(images, metric=CLASS_CONCEPTS),
        )
    )
    rng = np.random.default_rng(0)
    orders = (torch.as_tensor(rng.permutation(len(truth))) for _ in range(N_SHUFFLED))
    return np.array([float(cgim(importance, truth[order], centred=True).nanmean()) for order in orders])


def _own_scores(images: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of models, without those of maps and their baselines."""
    return images[(images["baseline"].fillna("") == "") & (images["metric"] != CLM)].drop(columns="baseline")


def _compare_pairs(pairs: Iterable[Pair], same_images: bool) -> pd.DataFrame:
    results = []
    for a, b, first, second in pairs:
        first, second, _ = of_one_convention(first, second)
        if first["seed"].nunique() > 1:
            of_images = _compare_seeds if same_images else _compare_own_images
            parts = of_images(first, second), _compare_classes(first, second, same_images)
            result = pd.concat([part for part in parts if len(part)], ignore_index=True)
        else:
            result = compare(first.drop(columns="seed"), second.drop(columns="seed"))
        results.append(result.assign(a=a, b=b))
    if not results:
        return adjusted([])
    result = pd.concat([part[part["metric"] != CGIM] for part in results], ignore_index=True)
    if "item_kind" in result:
        result = result[result["item_kind"].fillna("") != "class"]
    ranked = result["explanation"].fillna("") if "explanation" in result else pd.Series("", result.index)
    named = [
        f"{metric}, by {ranking}" if ranking else metric
        for metric, ranking in zip(result["metric"], ranked, strict=True)
    ]
    return adjusted([result.assign(what=named)])


def _pairs(images: pd.DataFrame) -> Iterator[Pair]:
    """Yield what is compared: the names of both, and their rows."""
    own = _own_scores(images)
    truth = pick(own, metric=CLASS_CONCEPTS).drop_duplicates(["seed", "label", "item"])
    own = own[own["metric"] != CLASS_CONCEPTS]
    ours = pick(own, model=POST_HOC)
    for name in (TRADITIONAL, PLAIN):
        theirs = pick(own, model=name)
        shared = ours["metric"].isin(set(theirs["metric"]))
        if shared.any():
            with_truth = [truth] if name == TRADITIONAL else []
            parts = (pd.concat([rows, *with_truth]).drop(columns="model") for rows in (ours[shared], theirs))
            yield POST_HOC, name, *parts
    maps = pick(images, model=POST_HOC, metric=CLM).drop(columns="model")
    for baseline in dict.fromkeys(name for name in maps["baseline"].fillna("") if name):
        parts = (maps[maps["baseline"].fillna("") == name].drop(columns="baseline") for name in ("", baseline))
        yield "its maps", baseline, *parts


def _compare_own_images(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Compare scores of several seeds, each of which has images of its own: the same number is another image."""
    parts = (rows[~rows["metric"].isin(OF_CLASSES)] for rows in (first, second))
    parts = (rows.assign(image=rows["seed"].astype(str) + " " + rows["image"].astype(str)) for rows in parts)
    own, theirs = parts
    return compare(own, theirs, clusters="seed") if len(own) else pd.DataFrame()


def _compare_classes(first: pd.DataFrame, second: pd.DataFrame, same_images: bool) -> pd.DataFrame:
    """Compare CGIM over several seeds: the mean of the seeds' differences.

    With images of their own the seeds are what is independent. On the same images the variance is that over classes,
    the mean of the single seeds', and that of the seeds, as `functional.seeds_interval` adds them.
    """
    own, theirs = (rows[rows["metric"].isin(OF_CLASSES)] for rows in (first, second))
    if own[own["metric"] == CLASS_IMPORTANCE].empty:
        return pd.DataFrame()
    with warnings.catch_warnings():
        # A single seed may have no interval.
        warnings.simplefilter("ignore", UserWarning)
        parts = [
            compare(*(pick(rows, seed=seed).drop(columns="seed") for rows in (own, theirs)))
            for seed in own["seed"].unique()
        ]
    n_classes, rows = own["label"].nunique(), []
    about = ["metric", "explanation", "item_kind"]
    for key, group in pd.concat(parts).groupby(about, dropna=False, sort=False):
        numbers = paired_difference(group["value_a"], group["value_b"], bounds=UNBOUNDED)
        counts = {"n": group["n"].min(), "undefined": group["undefined"].max()}
        if same_images:
            errors = (group["high"] - group["low"]) / 2 / t_quantile(n_classes - 1)
            numbers = _over_classes(numbers, group["difference"], float((errors**2).mean()), n_classes)
        named = numbers._asdict() | counts
        values = {"value_a": named.pop("first"), "value_b": named.pop("second")}
        rows.append(dict(zip(about, key, strict=True)) | values | named)
    # Two correlations are at most 2 apart.
    return pd.DataFrame(rows).assign(**{end: lambda found, end=end: found[end].clip(-2, 2) for end in ("low", "high")})


def _over_classes(numbers: Difference, differences: pd.Series, of_classes: float, n_classes: int) -> Difference:
    """Return a mean difference over seeds of the same classes with its interval and p-value; NaN without a variance."""
    of_seeds, others = float(differences.var(ddof=1)) / len(differences), len(differences) - 1
    both = of_classes + of_seeds
    if not both > 0:
        return numbers._replace(low=math.nan, high=math.nan, p=math.nan if math.isnan(both) else numbers.p)
    # Satterthwaite's rule takes the variance of a few seeds as better known than it is.
    freedom = both**2 / (of_classes**2 / (n_classes - 1) + of_seeds**2 / others)
    freedom = others if of_seeds > of_classes else freedom
    low, high = clipped_interval(numbers.difference, math.sqrt(both), freedom, UNBOUNDED)
    p = 2 * stats.t.sf(abs(numbers.difference) / math.sqrt(both), freedom)
    return numbers._replace(low=low, high=high, p=float(p))


def _compare_seeds(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Compare scores of the same images over several seeds."""
    rows = []
    for key, group in first[~first["metric"].isin(OF_CLASSES)].groupby(KEYS, dropna=False, sort=False):
        about = dict(zip(KEYS, key, strict=True))
        same = pick(second, **{name: None if pd.isna(value) else value for name, value in about.items()})
        ours, theirs = (
            part.pivot(index="seed", columns="image", values="value").to_numpy(float) for part in (group, same)
        )
        clusters = group.drop_duplicates("image").sort_values("image")["label"].to_numpy()
        numbers = seeds_difference(ours, theirs, clusters)._asdict()
        rows.append(about | {"value_a": numbers.pop("first"), "value_b": numbers.pop("second")} | numbers)
    return pd.DataFrame(rows)


def bounds_of(row: pd.Series) -> tuple[float, float]:
    """Return the smallest and largest value of a row's metric."""
    return (BOUNDS | OTHER_BOUNDS).get(row["metric"], (0.0, 1.0))


def with_image_intervals(rows: pd.DataFrame, images: pd.DataFrame) -> pd.DataFrame:
    """Return numbers of several seeds on the same images with intervals over seeds and images.

    Those that have no score of each image keep the interval over seeds.
    """
    rows, own = rows.copy(), images[(images["image"] >= 0) & (images["baseline"].fillna("") == "")]
    for row in image_intervals(own, ["model", *KEYS], bounds_of).to_dict("records"):
        about = {name: None if pd.isna(row[name]) else row[name] for name in KEYS}
        chosen = pick(rows, model=row["model"], set="all", what=SCORE, **about).index
        rows.loc[chosen, ["low", "high"]] = row["low"], row["high"]
    return rows


def mean_draws(observed: pd.DataFrame, explanation: str, concepts: Sequence[str]) -> np.ndarray:
    """Return what each random bank (n, L) scores for each concept, the mean over seeds."""
    chosen = pick(observed, model=RANDOM, metric=CGIM_CORRELATION, explanation=explanation)
    if chosen.empty:
        return np.full((0, len(concepts)), np.nan)
    means = chosen.groupby(["draw", "item"])["value"].mean().unstack()
    return means.reindex(columns=list(concepts)).to_numpy(float)


def discoveries_of(rows: pd.DataFrame, observed: pd.DataFrame, explanation: str) -> tuple[pd.DataFrame, Discoveries]:
    """Return the concepts of the post-hoc model by one ranking, and which lie outside their own random range."""
    items = pick(rows, model=POST_HOC, metric=CGIM_CORRELATION, explanation=explanation, item_kind="concept")
    items = items[(items["what"] == ITEM) & items["value"].notna()]
    found = find_discoveries(items["value"].to_numpy(float), mean_draws(observed, explanation, list(items["item"])))
    return items, found


def with_own_ranges(rows: pd.DataFrame, observed: pd.DataFrame) -> pd.DataFrame:
    """Return numbers in which each concept has the range of the means over seeds of its random banks."""
    rows = rows.copy()
    for explanation in dict.fromkeys(pick(observed, model=RANDOM)["explanation"]):
        chosen = pick(rows, metric=CGIM_CORRELATION, explanation=explanation, item_kind="concept")
        chosen = chosen[chosen["what"] == ITEM]
        names = list(dict.fromkeys(chosen["item"]))
        ends = {
            name: baseline_range(column)
            for name, column in zip(names, mean_draws(observed, explanation, names).T, strict=True)
        }
        rows.loc[chosen.index, ["random_low", "random_high"]] = [ends[name] for name in chosen["item"]]
    return rows
