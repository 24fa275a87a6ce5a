"""Count how often the intervals of the package hold the truth, and how often its tests reject what is true.

python speed/coverage.py            # ten minutes on one core
python speed/coverage.py --quick    # a twentieth of the replicates

Prints the table of docs/coverage.md.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from scipy import stats

from captum_concepts.bank.directions import Fitting, fit_drawn
from captum_concepts.bank.folders import set_p_values
from captum_concepts.tcav.score import permutation_score, random_splits
from quantus_concepts.functional import (
    adjust_p_values,
    baseline_range,
    cgim,
    cgim_difference,
    cgim_interval,
    concept_auc,
    concept_auc_interval,
    find_discoveries,
    interval,
    paired_difference,
    seeds_interval,
)
from quantus_concepts.functional.statistics.reliability import crossed_models, separate_models
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE, vote_difference

UNBOUNDED = (-math.inf, math.inf)
Rng = np.random.Generator
#: What was counted, in which data, what it should be, and the share for each setting.
Row = tuple[str, str, str, list[float]]


def count(replicate: Callable[..., float], settings: Sequence[Any], n: int, *key: int) -> list[float]:
    """Return the mean of n replicates for each setting; draws depend on the key and the place of the setting."""
    counted = []
    for place, setting in enumerate(settings):
        rng = np.random.default_rng([*key, place])
        counted.append(float(np.mean([replicate(rng, setting) for _ in range(n)])))
    return counted


def holds(ends: tuple[float, float], truth: float) -> bool:
    """Return whether an interval holds the truth."""
    return ends[0] <= truth <= ends[1]


def clusters_of(rng: Rng, n_clusters: int, size: int = 20) -> np.ndarray:
    """Return the cluster of each image; sizes are unequal."""
    return np.repeat(np.arange(n_clusters), rng.geometric(1 / size, n_clusters))


def dependent(rng: Rng, clusters: np.ndarray, rho: float) -> np.ndarray:
    """Return scores of mean 0 and variance 1 with a correlation of rho within a cluster."""
    effects = rng.normal(size=clusters.max() + 1)
    return math.sqrt(rho) * effects[clusters] + math.sqrt(1 - rho) * rng.normal(size=len(clusters))


def class_chances(rng: Rng, n_clusters: int, mean: float, rho: float) -> np.ndarray:
    """Return the chance of a hit in each cluster, so that hits have a correlation of rho within it."""
    if not rho:
        return np.full(n_clusters, mean)
    return rng.beta(mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1), n_clusters)


def hits(rng: Rng, clusters: np.ndarray, mean: float, rho: float) -> np.ndarray:
    """Return scores of 0 and 1 with a correlation of rho within a cluster."""
    return (rng.random(len(clusters)) < class_chances(rng, clusters.max() + 1, mean, rho)[clusters]).astype(float)


def intervals(n: int) -> Iterator[Row]:
    """Count the coverage of `interval`, `seeds_interval` and `paired_difference`, the test of `compare`."""

    def plain(rng: Rng, size: int) -> bool:
        return holds(interval(rng.normal(size=size), UNBOUNDED), 0)

    def clustered(rng: Rng, n_clusters: int) -> bool:
        clusters = clusters_of(rng, n_clusters)
        return holds(interval(dependent(rng, clusters, rho), UNBOUNDED, clusters), 0)

    def wilson(rng: Rng, size: int) -> bool:
        return holds(interval((rng.random(size) < mean).astype(float)), mean)

    def bounded(rng: Rng, n_clusters: int, bounds: tuple[float, float] = (0.0, 1.0)) -> bool:
        clusters = clusters_of(rng, n_clusters)
        return holds(interval(hits(rng, clusters, mean, rho), bounds, clusters), mean)

    def over_seeds(rng: Rng, n_seeds: int, *, alone: bool = False) -> bool:
        clusters = clusters_of(rng, n_classes)
        scores = dependent(rng, clusters, 0.2) + 0.15 * rng.normal(size=(n_seeds, 1))
        scores = scores + 0.5 * rng.normal(size=scores.shape)
        ends = interval(scores.mean(1), UNBOUNDED) if alone else seeds_interval(scores, clusters, UNBOUNDED)
        return holds(ends, 0)

    def paired(rng: Rng, n_classes: int) -> bool:
        clusters = clusters_of(rng, n_classes)
        second = dependent(rng, clusters, 0.3)
        result = paired_difference(second + dependent(rng, clusters, rho), second, clusters)
        return holds((result.low, result.high), 0)

    def hits_over_seeds(rng: Rng, n_classes: int) -> bool:
        clusters = clusters_of(rng, n_classes)
        chances = class_chances(rng, n_classes, mean, rho)[clusters]
        # Four fifths of the images have one score with all three seeds.
        images, anew = rng.random(len(clusters)) < chances, rng.random((3, len(clusters))) < chances
        scores = np.where(rng.random(anew.shape) < 0.8, images, anew).astype(float)
        return holds(seeds_interval(scores, clusters), mean)

    def apart(rng: Rng, n_seeds: int) -> bool:
        clusters = np.repeat(np.arange(40), 10)
        truth = float(stats.norm.cdf(1.2 / math.sqrt(0.99 + deviation**2)))
        images = 0.5 * rng.normal(size=40)[clusters] + 0.7 * rng.normal(size=400)
        trainings = deviation * rng.normal(size=(n_seeds, 1)) + 0.5 * rng.normal(size=(n_seeds, 400))
        return holds(seeds_interval((images + trainings > -1.2).astype(float), clusters), truth)

    def losses(rng: Rng, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
        clusters = clusters_of(rng, n_classes, size)
        return hits(rng, clusters, share, rho), clusters

    def lost(rng: Rng, n_classes: int) -> bool:
        lost_hits, clusters = losses(rng, n_classes)
        result = paired_difference(np.ones(len(clusters)), 1 - lost_hits, clusters)
        return holds((result.low, result.high), share)

    def swapped(rng: Rng, n_classes: int) -> bool:
        differ, clusters = losses(rng, n_classes)
        wins = rng.choice([-1.0, 1.0], len(clusters)) * differ
        return paired_difference((wins > 0).astype(float), (wins < 0).astype(float), clusters).p < 0.05

    def head_gap(rng: Rng, n_classes: int) -> bool:
        clusters = clusters_of(rng, n_classes)
        gaps = hits(rng, clusters, above, rho) - hits(rng, clusters, below, rho)
        return holds(interval(gaps, (-1, 1), clusters), above - below)

    sizes, groups, seeds, classes = (5, 20, 200), (4, 10, 25, 100), (2, 3, 4, 5, 10), (5, 10, 30)
    of_sizes, of_groups = "5 / 20 / 200 scores", "4 / 10 / 25 / 100 clusters"
    of_seeds, of_classes = "2 / 3 / 4 / 5 / 10 seeds", "5 / 10 / 30 classes"
    yield "`interval`, independent scores (t)", f"normal; {of_sizes}", ".95", count(plain, sizes, n, 1)
    for mean in (0.5, 0.95):
        counted = count(wilson, sizes, n, 2, int(100 * mean))
        yield "`interval`, independent 0 and 1 (Wilson)", f"mean {mean}; {of_sizes}", ".95", counted
    for rho in (0.0, 0.1, 0.3):
        counted = count(clustered, groups, n, 3, int(10 * rho))
        yield "`interval(clusters=)`, unbounded (CR3)", f"rho {rho}; {of_groups}", ".95", counted
    for mean, rho in product((0.5, 0.8, 0.95, 0.98), (0.0, 0.1, 0.3)):
        counted = count(bounded, groups, n, 4, int(100 * mean), int(10 * rho))
        yield "`interval(clusters=)` in [0, 1]", f"mean {mean}, rho {rho}; {of_groups}", ".95", counted
    mean, rho = 0.95, 0.3
    counted = count(partial(bounded, bounds=UNBOUNDED), groups, n, 4, 95, 3)
    yield "the same without pseudo-clusters", f"mean {mean}, rho {rho}; {of_groups}", ".95", counted
    for n_classes in (10, 30):
        counted = count(over_seeds, seeds, n, 5, n_classes)
        yield "`seeds_interval`", f"the same images, {n_classes} classes; {of_seeds}", ".95", counted
        counted = count(partial(over_seeds, alone=True), seeds, n, 5, n_classes)
        yield "`interval` of the seeds' means (do not use)", "the same", ".95", counted
    for mean, rho in product((0.8, 0.95, 0.98), (0.1, 0.3)):
        counted = count(hits_over_seeds, (5, 10, 25), n, 13, int(100 * mean), int(10 * rho))
        data = f"three seeds, 0 and 1, mean {mean}, rho {rho}; 5 / 10 / 25 classes"
        yield "`seeds_interval` in [0, 1]", data, ".95", counted
    for deviation, of_accuracy in ((0.1, 0.02), (0.3, 0.06), (0.6, 0.13)):
        counted = count(apart, seeds, n, 19, int(10 * deviation))
        data = f"accuracies of the seeds differ by {of_accuracy:g} (deviation); {of_seeds}"
        yield "`seeds_interval` in [0, 1]", data, ".95", counted
    for rho in (0.0, 0.1, 0.3):
        counted = count(paired, classes, n, 6, int(10 * rho))
        yield "`compare`, unbounded scores", f"rho {rho}; {of_classes}", ".95", counted
    for share, rho in product((0.01, 0.03, 0.1, 0.3), (0.0, 0.1, 0.3)):
        size = 20
        counted = count(lost, (3, 5, 10, 25, 100), n // 2, 14, int(100 * share), int(10 * rho))
        data = f"the second model loses {share:g} of the hits, rho {rho}; 3 / 5 / 10 / 25 / 100 classes"
        yield "`compare`, 0 and 1", data, ".95", counted
    for share in (0.01, 0.03, 0.1, 0.3):
        size, rho = 1, 0.0
        counted = count(lost, (10, 30, 100, 200), n // 2, 15, int(100 * share))
        data = f"the second model loses {share:g} of the hits; 10 / 30 / 100 / 200 images"
        yield "`compare(clusters=None)`, 0 and 1", data, ".95", counted
    for share, rho in product((0.03, 0.3), (0.0, 0.3)):
        size = 20
        counted = count(swapped, (3, 5, 10, 25, 100), n // 2, 16, int(100 * share), int(10 * rho))
        data = f"each model wins half of {share:g}, rho {rho}; 3 / 5 / 10 / 25 / 100 classes"
        yield "`compare`, 0 and 1: its test", data, ".05", counted
    for (above, below), rho in product(((0.05, 0.02), (0.2, 0.05)), (0.0, 0.1, 0.3)):
        counted = count(head_gap, (5, 10, 25, 100), n // 2, 18, int(100 * above), int(10 * rho))
        data = f"the head alone is right on {above:g}, the oracle on {below:g}, rho {rho}; 5 / 10 / 25 / 100 classes"
        yield "`interval(clusters=)` of a head gap", data, ".95", counted


def of_classes(n: int) -> Iterator[Row]:
    """Count the coverage of the jackknife of CGIM: two models of unequal noise, classes drawn from a population."""

    def draw(rng: Rng, n_classes: int) -> tuple[torch.Tensor, ...]:
        # Concepts go together, as those of birds do.
        kinds = rng.random((n_classes, 3))
        truth = (0.6 * kinds[:, np.arange(12) % 3] + 0.4 * rng.random((n_classes, 12))) ** 2
        noise = rng.normal(size=(2, n_classes, 12))
        return *(torch.tensor(truth + s * e) for s, e in zip((0.4, 0.2), noise, strict=True)), torch.tensor(truth)

    for centred, per in product((True, False), ("concept", "class")):
        counted = []
        for n_classes in (10, 25, 100):
            rng = np.random.default_rng(n_classes)
            # The truth is the mean difference of as many classes.
            results = [cgim_difference(*draw(rng, n_classes), per, centred) for _ in range(n)]
            truth = np.mean([cgim_difference(*draw(rng, n_classes), per, centred).difference for _ in range(n)])
            counted.append(float(np.mean([holds((result.low, result.high), truth) for result in results])))
        name = "CGIM correlation" if centred else "CGIM"
        yield (f"`cgim_difference`, {name}", f"per {per}; 10 / 25 / 100 classes", ".95", counted)

    counted = []
    for n_classes in (6, 10, 25, 100):
        rng = np.random.default_rng([n_classes, 1])
        draws = [draw(rng, n_classes)[::2] for _ in range(n)]
        truth = np.mean([float(cgim(*pair, centred=True).nanmean()) for pair in draws])
        counted.append(float(np.mean([holds(cgim_interval(*pair), truth) for pair in draws])))
    yield "`cgim_interval`, CGIM correlation", "per concept; 6 / 10 / 25 / 100 classes", ".95", counted

    for strength, effect in ((0.8, 0.5), (0.36, 0.0), (3.2, 0.4)):
        counted = []
        for n_classes in (6, 10, 25, 100):
            rng = np.random.default_rng([n_classes, 2])
            worlds = [values_of_classes(rng, n_classes, strength, effect) for _ in range(n)]
            means = [float(concept_auc(values, concepts).nanmean()) for values, concepts, _ in worlds]
            found = [holds(concept_auc_interval(*world), float(np.mean(means))) for world in worlds]
            counted.append(float(np.mean(found)))
        data = f"concepts {strength:g} and classes {effect:g} deviations apart; 6 / 10 / 25 / 100 classes"
        yield "`concept_auc_interval`", data, ".95", counted


def values_of_classes(
    rng: Rng, n_classes: int, strength: float, effect: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values and concepts (N, 12) of about 20 images a class, drawn with the classes, and the classes (N,)."""
    shares, level = rng.beta(0.5, 1, (n_classes, 12)), rng.normal(0, effect, (n_classes, 12))
    n = 20 * n_classes
    more = rng.choice(n_classes, n - n_classes, p=rng.dirichlet(np.full(n_classes, 5.0)))
    classes = np.concatenate([np.arange(n_classes), more])
    concepts = (rng.random((n, 12)) < shares[classes]).astype(int)
    return strength * concepts + level[classes] + rng.normal(size=(n, 12)), concepts, classes


def of_draws(n: int) -> Iterator[Row]:
    """Count what random ranges and discoveries enclose."""

    def enclosed(rng: Rng, n_draws: int) -> bool:
        return holds(baseline_range(rng.exponential(size=n_draws)), rng.exponential())

    counted = count(enclosed, (5, 20, 39, 79), 4 * n, 8)
    yield "`baseline_range`", "one further draw; 5 / 20 / 39 / 79 draws", ".67 / .90 / .95 / .95", counted

    def false_ones(rng: Rng, n_planted: int) -> float:
        scores = rng.normal(size=100)
        scores[:n_planted] += 5
        passed = find_discoveries(scores, rng.normal(size=(799, 100))).passed
        return passed[n_planted:].sum() / max(1, passed.sum())

    counted = count(false_ones, (0, 10, 50), max(50, n // 10), 9)
    yield (
        "`find_discoveries`, share of false ones",
        "100 concepts, 799 draws; 0 / 10 / 50 planted",
        "at most .05",
        counted,
    )

    def folders(rng: Rng, n_sets: int) -> bool:
        part, pair = rng.normal(size=n_sets + 1), np.triu(rng.normal(size=(n_sets + 1, n_sets + 1)), 1)
        table = part[:, None] + part + pair + pair.T
        np.fill_diagonal(table, np.nan)
        return bool(set_p_values(table[:1, 1:], table[1:, 1:])[0] <= 0.05)

    data = "a random set as the concept; 5 / 10 / 20 random sets"
    yield "`ConceptBank.from_folders`, test of a concept", data, ".05", count(folders, (5, 10, 20), n, 10)


def of_tcav(n: int) -> Iterator[Row]:
    """Count how often TCAV's tests reject, and pass, concepts of 20 images; embeddings of 16 numbers."""

    def derivatives(rng: Rng, n_images: int, method: str, planted: float, n_concept: int = 20) -> np.ndarray:
        gradients = 0.5 * rng.normal(size=(40, 16)) + rng.normal(size=16) / 4
        images = torch.tensor(rng.exponential(size=(n_concept + n_images, 16)))
        images[:n_concept] += planted * torch.tensor(gradients.mean(0) / np.linalg.norm(gradients.mean(0)))
        rows = np.split(np.arange(n_concept + n_images), [n_concept])
        splits = random_splits(*rows, None, 99, int(rng.integers(2**31)))
        directions = np.array([_direction(images, *split, method) for split in splits])
        along = gradients @ (directions / np.linalg.norm(directions, axis=1, keepdims=True)).T
        return np.stack([(along > 0).mean(0), along.mean(0)], 1)

    def _direction(images: torch.Tensor, positive: np.ndarray, negative: np.ndarray, method: str) -> np.ndarray:
        if method == "mean":
            return (images[positive].mean(0) - images[negative].mean(0)).numpy()
        present = np.arange(len(positive) + len(negative))[:, None] < len(positive)
        fitting = Fitting(method, len(positive), len(negative), 1.0, 0, 0)
        return fit_drawn(images[np.concatenate([positive, negative])], present, fitting).cavs[0].numpy()

    def p_values(method: str, n_images: int, planted: float, replicates: int) -> np.ndarray:
        rng = np.random.default_rng([len(method), n_images, int(planted)])
        layers = [permutation_score(derivatives(rng, n_images, method, planted)) for _ in range(replicates)]
        return np.array([(layer.p_value, layer.p_score) for layer in layers])

    for method, replicates in (("mean", n), ("svm", max(20, n // 16))):
        null = [p_values(method, size, 0, replicates) for size in (60, 160)]
        for level in (0.05, 0.01):
            for column, statistic in enumerate(("mean derivative", "score")):
                yield (
                    f"TCAV, permutation test of the {statistic}",
                    f"concept from the random images, {method}; 60 / 160 random images",
                    f"{level:g}"[1:],
                    [float((p[:, column] <= level).mean()) for p in null],
                )
    few = []
    for size in (4, 8, 12, 20):
        rng = np.random.default_rng([17, size])
        scored = (permutation_score(derivatives(rng, size, "mean", 0, size)) for _ in range(n))
        few.append(float(np.mean([layer.p_value <= 0.05 for layer in scored])))
    data = "concept from the random images, mean; 4 / 8 / 12 / 20 images of either"
    yield "the same of the mean derivative, few images (warns below 20)", data, ".05", few
    planted = [p_values("mean", 160, size, max(20, n // 40)) for size in (1, 2)]
    yield (
        "the same, planted concept passes at .05",
        "mean, 160 random images; shift of 1 / 2 deviations",
        "",
        [float((p[:, 0] <= 0.05).mean()) for p in planted],
    )

    def t_test(rng: Rng, n_images: int) -> bool:
        gradients = 0.5 * rng.normal(size=(40, 16)) + rng.normal(size=16) / 4
        concept, random = rng.exponential(size=(n_images, 16)), rng.exponential(size=(160, 16))
        scores = []
        for _ in range(20):
            order = rng.permutation(160)
            with_it, without, others = rng.permutation(n_images)[:40], order[:40], order[40:80]
            for side in (concept[with_it], random[others]):
                scores.append((gradients @ (side.mean(0) - random[without].mean(0)) > 0).mean())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(stats.ttest_ind(scores[::2], scores[1::2], equal_var=False).pvalue <= 0.01)

    data = "concept from the random images; 20 draws of 40 of 60 / 160 images"
    yield (
        "t-test of the original TCAV over draws (not here; Captum's `TCAV` gives its scores)",
        data,
        ".01",
        count(t_test, (60, 160), n // 4, 12),
    )


def of_votes(n: int) -> Iterator[Row]:
    """Yield the counts of the differences of votes on explainers."""

    def votes(rng: Rng, n_raters: int, n_images: int, n_explainers: int = 2) -> np.ndarray:
        # Raters are strict, images easy, and both differ in how much they like an explainer.
        level = rng.normal(3, 0.7, n_images) + rng.normal(0, 0.5, (n_raters, 1))
        shape = (n_explainers, n_raters, n_images)
        parts = [(n_explainers, n_raters, 1), (n_explainers, 1, n_images)]
        likes = [
            0.5 / math.sqrt(2) * part * rng.normal(size=size) for part, size in zip(cases[which], parts, strict=True)
        ]
        liking = planted * (np.arange(n_explainers) == 0)[:, None, None] + likes[0] + likes[1]
        given = np.clip(np.rint(level + liking + rng.normal(0, 0.6, shape)), MIN_VOTE, MAX_VOTE)
        return np.where(rng.random(shape) < missing, np.nan, given)

    def differs(rng: Rng, size: tuple[int, int]) -> bool:
        return vote_difference(*votes(rng, *size)).p < 0.05

    def wider(rng: Rng, size: tuple[int, int]) -> bool:
        first, second = votes(rng, *size)
        raters, images = np.indices(size)
        ps = [
            paired_difference(first.ravel(), second.ravel(), members.ravel(), UNBOUNDED).p
            for members in (raters, images)
        ]
        return max(ps) < 0.05

    def any_pair(rng: Rng, size: tuple[int, int]) -> bool:
        given = votes(rng, *size, n_explainers=4)
        ps = [vote_difference(a, b).p for a, b in combinations(given, 2)]
        return bool((adjust_p_values(ps, "holm") < 0.05).any())

    sizes = ((2, 12), (3, 12), (5, 12), (10, 12), (30, 40))
    of_sizes = "2 x 12 / 3 x 12 / 5 x 12 / 10 x 12 / 30 x 40 raters x images"
    planted, missing = 0.0, 0.0
    # Whether raters and whether images differ in how much they like an explainer.
    cases = {"alike": (0, 0), "raters differ": (1, 0), "images differ": (0, 1), "raters and images differ": (1, 1)}
    for place, which in enumerate(cases):
        counted = count(differs, sizes, n, 20, place)
        yield "difference of votes on two explainers: its test", f"equally good, {which}; {of_sizes}", ".05", counted
    counted = count(wider, sizes, n, 20, 3)
    yield "the wider of two intervals, over raters or over images (do not use)", "the same", ".05", counted
    missing = 0.5
    counted = count(differs, sizes, n, 20, 4)
    yield "difference of votes on two explainers: its test", "the same, half of the votes missing", ".05", counted
    missing = 0.0
    counted = count(any_pair, sizes, n // 2, 20, 5)
    yield "any difference among four explainers (Holm)", f"equally good, {which}; {of_sizes}", "at most .05", counted
    for planted in (0.5, 1.0):
        counted = count(differs, sizes, n // 2, 21, int(10 * planted))
        data = f"one is {planted:g} better, {which}; {of_sizes}"
        yield "difference of votes on two explainers: found", data, "", counted


def of_seeds(n: int) -> Iterator[Row]:
    """Count how often `reliability` separates models that are alike, and that differ."""
    tests: dict[str, Callable[[np.ndarray], float]] = {
        "two-way": lambda scores: crossed_models(scores).p,
        "Welch": lambda scores: separate_models([*scores]).p,
        "one-way F (not here)": lambda scores: stats.f_oneway(*scores).pvalue,
    }

    def deviations(rng: Rng, n_models: int, kind: str) -> np.ndarray:
        few = {"alike": np.ones(n_models), "one varies five-fold": np.where(np.arange(n_models) == 0, 1, 0.2)}
        return few.get(kind, 4 ** rng.uniform(-1, 1, n_models))[:, None]

    def separates(rng: Rng, size: tuple[int, int], name: str, kind: str, shared: float, ratio: float = 0) -> bool:
        spread = deviations(rng, size[0], kind)
        spread = spread / np.sqrt((spread**2).mean())
        seeds = math.sqrt(shared) * rng.normal(size=size[1]) + math.sqrt(1 - shared) * spread * rng.normal(size=size)
        return tests[name](ratio * rng.normal(size=(size[0], 1)) + seeds) <= 0.05

    sizes = ((3, 3), (3, 4), (4, 4), (6, 4), (10, 4), (10, 10))
    of_sizes = "3 x 3 / 3 x 4 / 4 x 4 / 6 x 4 / 10 x 4 / 10 x 10 models x seeds"
    kinds = ("alike", "one varies five-fold", "deviations of 1/4 to 4")
    for place, (name, kind) in enumerate(product(tests, kinds)):
        shares = (0.0, 0.5) if name == "two-way" else (0.0,)
        for shared in shares:
            replicate = partial(separates, name=name, kind=kind, shared=shared)
            data = f"no difference, {kind}{', seeds shared (half of the variance)' if shared else ''}; {of_sizes}"
            expected = "at most .06" if name == "two-way" else ".05"
            yield f"`reliability`, {name}", data, expected, count(replicate, sizes, n, 22, place, int(2 * shared))
    for place, (name, shared) in enumerate([("two-way", 0.5), ("two-way", 0.0), ("Welch", 0.0)]):
        replicate = partial(separates, name=name, kind="alike", shared=shared, ratio=2)
        data = f"models differ twice as much as seeds{', seeds shared' if shared else ''}; {of_sizes}"
        yield f"`reliability`, {name}: found", data, "", count(replicate, sizes, n, 23, place)


def markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    lines = ["| interval or test | data | should be | counted |", "| --- | --- | --- | --- |"]
    for name, data, expected, counted in rows:
        numbers = " / ".join(f"{number:.3f}".removeprefix("0") for number in counted)
        lines.append(f"| {name} | {data} | {expected} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="A twentieth of the replicates.")
    n = 80 if parser.parse_args().quick else 1600
    torch.set_num_threads(1)
    rows = [*intervals(n), *of_votes(n // 2), *of_classes(max(40, n // 5)), *of_draws(n), *of_tcav(2 * n), *of_seeds(n)]
    print(markdown(rows))
    print(
        f"\nReplicates: {n:,}; half for `compare` of 0 and 1 and for votes, a fifth for CGIM and concept AUC, "
        "twice for TCAV (an eighth by SVM)."
    )


if __name__ == "__main__":
    main()
