"""The scores that are tried by default: those of this package, and of others where these can be called."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import torch
from quantus.helpers.enums import ScoreDirection
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.models.interventions import Levels
from quantus_concepts.functional.concepts.interventions import intervention_ranks
from quantus_concepts.metrics import (
    CEM,
    CGIM,
    CLM,
    Completeness,
    ConceptAUC,
    ConceptTaskLeakage,
    InterconceptLeakage,
    Locality,
    OracleHead,
    SparseHeadAccuracy,
)
from quantus_concepts.metrics.concepts.accuracy import right_concepts
from quantus_concepts.metrics.concepts.locations import first_with_part
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.looks import Looked, Looking
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import nanmean
from quantus_concepts.testing.damages import BATCH, FITTED, HIDDEN, MAPS, NETWORK, SIZE, thresholds

#: A metric of concept models, or what gives one, or a number, of rows.
Scorer = ConceptMetric | Callable[[ConceptPredictions], "ConceptMetric | float"]
#: Of scores that are no metric: whether less is better.
LOWER = {"head gap", "KSG leakage"}


class KeptLooking(Looking):
    """Images of which maps, and values without each part, are kept with the rows: a look at a model without a model."""

    def __init__(self, rows: ConceptPredictions) -> None:
        height, width = rows.tables.get(SIZE, (1, 1))
        images = torch.empty(len(rows), 0, height, width)
        super().__init__(None, rows, images, None, rows.truth)

    def maps(self, concepts: Tensor) -> Tensor:
        """Return the maps (n, k, h, w) of concepts (n, k)."""
        return self._columns(MAPS)["maps"][torch.arange(len(concepts))[:, None], concepts]

    def ask(self, key: Hashable, make: Callable[[torch.device], Any]) -> tuple[Tensor, Tensor]:
        """Return the values (n, L) of the images with a part, of the number in `key`, hidden, where it is visible."""
        part = cast("tuple[str, int]", key)[1]
        visible = torch.as_tensor(self.truth["points"])[:, part].isfinite().all(-1).any(-1)
        values = self._columns(HIDDEN)["values"][visible, part]
        return values, values

    def _columns(self, name: str) -> Mapping[str, Tensor]:
        return cast(ConceptPredictions, self.rows).looks[name].columns


def score_world(scorer: Scorer, rows: ConceptPredictions) -> float:
    """Return the score of rows: of a metric the mean of its defined scores, NaN where there are none."""
    if not isinstance(scorer, ConceptMetric):
        found = scorer(rows)
        return score_world(found, rows) if isinstance(found, ConceptMetric) else float(found)
    look = scorer.look()
    if look is not None and look.name not in rows.looks:
        size = rows.tables.get(BATCH, len(rows))
        parts = [rows[slice(start, start + size)] for start in range(0, len(rows), size)]
        seen = Looked.join([(len(part), look.see(KeptLooking(part))) for part in parts])
        rows = rows.knowing(looks={**rows.looks, look.name: seen})
    scores = scorer.score_rows(rows)
    return nanmean(scores.means[0][[*scores.path]])


def is_lower_better(name: str, scorer: Scorer, rows: ConceptPredictions) -> bool:
    """Return whether less of a score is better."""
    if not isinstance(scorer, ConceptMetric):
        found = getattr(scorer, "score_direction", None) or (None if name in LOWER else scorer(rows))
        if not isinstance(found, ConceptMetric):
            return name in LOWER or found == ScoreDirection.LOWER
        scorer = found
    return scorer.score_direction == ScoreDirection.LOWER


def scored_rows(rows: ConceptPredictions) -> ConceptPredictions:
    """Return the rows of the images that are scored, with what scores need of the others."""
    own = rows.truth[FITTED].bool()
    values, labels = cast(Tensor, rows.values)[own], rows.truth["concept_labels"][own] > 0
    low, high = (values.masked_fill(side, torch.nan).nanmean(0) for side in (labels, ~labels))
    middle = values.mean(0)
    levels = Levels(*(torch.where(level.isnan(), middle, level) for level in (low, high)))
    return replace(rows[torch.nonzero(~own)[:, 0]], tables={**rows.tables, "levels": levels})


# Scores that are no metric of their own.


def accuracy(rows: ConceptPredictions) -> float:
    """Return how often the predicted class is the true one."""
    return float(rows.correct.float().mean())


def concept_accuracy(rows: ConceptPredictions) -> float:
    """Return the share of concepts that are rightly present or absent."""
    return nanmean(right_concepts(from_thresholds(rows)).numpy())


def from_thresholds(rows: ConceptPredictions) -> ConceptPredictions:
    """Return the rows with values counted from their thresholds."""
    return replace(rows, values=cast(Tensor, rows.values) - thresholds(rows), threshold=0.0)


def oracle(rows: ConceptPredictions, score: str) -> float:
    """Return a score of the oracle head, of values counted from their thresholds."""
    metric = OracleHead(rows.tables["class_concepts"], score, threshold=0.0)
    return score_world(metric, from_thresholds(rows))


def auc_within(rows: ConceptPredictions) -> float:
    """Return the concept AUC of pairs of images of one predicted class."""
    return nanmean(ConceptAUC().table_scores(rows)[1].values)


@torch.no_grad()
def gain_by_corrections(rows: ConceptPredictions) -> float:
    """Return how much more often the class is right after people answered for a third of the concepts, at random."""
    values, (low, high) = cast(Tensor, rows.values), rows.tables["levels"]
    targets = torch.where(rows.truth["concept_labels"] > 0, high, low)
    answered = intervention_ranks("random", values, targets) < max(1, rows.shape[1] // 3)
    after = cast(nn.Module, rows.head)(torch.where(answered, targets, values)).argmax(1)
    return float((after == rows.labels).float().mean()) - accuracy(rows)


# Scores of others.


def ksg_leakage(rows: ConceptPredictions, n_neighbours: int = 3) -> float:
    """Return the mutual information of value and class among images with the same true concept, mean over concepts.

    By nearest neighbours, without bins, in nats (Kraskov, Stoegbauer and Grassberger 2004; Ross 2014 for classes). An
    image without another one of its class and concept is left out.
    """
    values, labels = cast(Tensor, rows.values).double().T, rows.truth["concept_labels"].T > 0
    same_class = rows.labels[:, None] == rows.labels
    # As scikit-learn has it, a little noise breaks the ties of values that are no continuous ones.
    noise = torch.randn(values.shape, generator=torch.Generator().manual_seed(0), dtype=values.dtype)
    values = values + 1e-10 * values.abs().mean(1, keepdim=True).clamp(min=1) * noise
    total = []
    for value, shows in zip(values, labels, strict=True):
        same_concept = shows[:, None] == shows
        n_alike = (same_concept & same_class).sum(1)
        kept = n_alike > 1
        distances = (value[kept, None] - value[kept]).abs()
        same_concept, n_alike = same_concept[kept][:, kept], n_alike[kept]
        alike = torch.where(same_concept & same_class[kept][:, kept], distances, torch.inf)
        k = (n_alike - 1).clamp(max=n_neighbours)
        # The image itself is the first.
        radius = alike.sort(1).values.gather(1, k[:, None])
        within = (same_concept & (distances <= torch.nextafter(radius, torch.zeros_like(radius)))).sum(1)
        digamma = torch.special.digamma(torch.stack([same_concept.sum(1), k, n_alike, within.clamp(min=1)]).double())
        total.append((digamma[0] + digamma[1] - digamma[2] - digamma[3]).mean().clamp(min=0))
    return float(torch.stack(total).mean())


def pyc_completeness(rows: ConceptPredictions) -> float:
    """Return PyC's `completeness_score`: area under the ROC curve of predicted classes, by that of the network's."""
    from torch_concepts.nn.functional import completeness_score

    there = torch.unique(rows.labels)
    one_hot = (
        (classes[:, None] == there).float()
        for classes in (rows.labels, rows.truth[NETWORK], cast(Tensor, rows.predicted))
    )
    return float(completeness_score(*one_hot))


@torch.no_grad()
def pyc_cace(rows: ConceptPredictions) -> float:
    """Return the mean size of PyC's `cace_score` over concepts and classes: what setting a concept does to classes."""
    from torch_concepts.nn.functional import cace_score

    values, head, sizes = cast(Tensor, rows.values), cast(nn.Module, rows.head), []
    for concept in range(values.shape[1]):
        sides = []
        for level in rows.tables["levels"]:
            changed = values.clone()
            changed[:, concept] = level[concept]
            sides.append(head(changed).softmax(1))
        sizes.append(cace_score(*sides).abs().mean())
    return float(torch.stack(sizes).mean())


def quantus_localisation(name: str) -> Callable[[ConceptPredictions], float]:
    """Return a localisation metric of Quantus on the map of the first concept with a part, by effect.

    The mask is the disc of a twelfth of the image about the part, the region of `CLM`.
    """

    def score(rows: ConceptPredictions) -> float:
        import quantus

        maps, masks = rows.once(("first maps",), lambda: _first_maps(rows))
        metric = getattr(quantus, name)(disable_warnings=True, abs=True, normalise=False)
        scores = np.asarray(metric.evaluate_batch(a_batch=maps, s_batch=masks, x_batch=maps), dtype=float)
        return nanmean(scores)

    return score


def _first_maps(rows: ConceptPredictions, side: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Return maps and masks (n, 1, side, side) of the first concepts whose part is visible."""
    parts = rows.tables["part_of_concept"]
    first = first_with_part(rows.naming("effect"), parts, 1)
    maps = functional.interpolate(
        KeptLooking(rows).maps(first), size=(side, side), mode="bilinear", align_corners=False
    )
    maps = maps - maps.amin((2, 3), keepdim=True)
    height, width = rows.tables[SIZE]
    own = rows.truth["points"][torch.arange(len(rows)), torch.as_tensor(parts)[first[:, 0]]]
    pixels = torch.arange(side) + 0.5
    x, y = own[..., 0, None, None] * side / width, own[..., 1, None, None] * side / height
    masks = ((pixels - x) ** 2 + (pixels[:, None] - y) ** 2 <= side**2 / 12 / math.pi).any(1)
    visible = own.isfinite().all(-1).any(1)
    return maps[visible].numpy(), masks[visible, None].numpy()


def trial_metrics(rows: ConceptPredictions | None = None, *, peers: bool = True) -> dict[str, Scorer]:
    """Return the scores of this package and, where they can be called, of others, by the names of the trial's table.

    Parameters
    ----------
    rows : ConceptPredictions, optional
        Rows of a world: scores that they cannot have are left out.
    peers : bool
        Whether scores of others are among them: Quantus's localisation metrics, a leakage by nearest neighbours
        (scikit-learn) and, if it is installed, PyC's completeness and CaCE.

    Returns
    -------
    dict
        What `meta_evaluate` takes as `metrics`.

    Examples
    --------
    >>> from quantus_concepts.testing import trial_metrics
    >>> [*trial_metrics()][:3]
    ['concept AUC', 'concept AUC within classes', 'concept accuracy']
    """

    def table(rows: ConceptPredictions) -> np.ndarray:
        return cast(np.ndarray, rows.tables["class_concepts"])

    kinds = ("effect", "value", "contribution", "weight")
    found: dict[str, Scorer] = {
        "concept AUC": ConceptAUC(),
        "concept AUC within classes": auc_within,
        "concept accuracy": concept_accuracy,
    }
    found |= {f"CEM gain ({kind})": CEM(top_l=3, importance=kind, gain=True) for kind in kinds[:3]}
    found |= {
        f"CGIM correlation ({kind})": lambda rows, kind=kind: CGIM(table(rows), importance=kind, centred=True)  # type: ignore[misc]
        for kind in kinds
    }
    found |= {
        "oracle accuracy": lambda rows: oracle(rows, "oracle"),
        "head gap": lambda rows: oracle(rows, "gap"),
    }
    found |= {f"CEM ({kind})": CEM(top_l=3, importance=kind) for kind in kinds}
    found |= {f"CGIM ({kind})": lambda rows, kind=kind: CGIM(table(rows), importance=kind) for kind in kinds}  # type: ignore[misc]
    found |= {
        "CLM": lambda rows: CLM(part_of_concept=rows.tables["part_of_concept"]),
        "part specificity": lambda rows: CLM(part_of_concept=rows.tables["part_of_concept"], specificity=True),
        "locality": lambda rows: Locality(rows.tables["part_of_concept"]),
        "concept-task leakage": ConceptTaskLeakage(n_permutations=9),
        "inter-concept leakage": InterconceptLeakage(n_permutations=5),
        "ANEC-5": SparseHeadAccuracy(sizes=[5], n_iterations=30),
        "gain by corrections": gain_by_corrections,
        "completeness": Completeness(),
        "accuracy": accuracy,
    }
    if peers:
        found["KSG leakage"] = ksg_leakage
        found |= {f"{title} (Quantus)": quantus_localisation(name) for title, name in QUANTUS.items()}
        if find_spec("torch_concepts") is not None:
            found |= {"completeness (PyC)": pyc_completeness, "CaCE (PyC)": pyc_cace}
    lacks = set() if rows is None else {name for name, needs in NEEDS.items() if needs - {*rows.looks, *rows.truth}}
    return {name: scorer for name, scorer in found.items() if name not in lacks}


#: Localisation metrics of Quantus, by the name of their rows.
QUANTUS = {
    "pointing game": "PointingGame",
    "attribution localisation": "AttributionLocalisation",
    "relevance rank": "RelevanceRankAccuracy",
}
#: What scores need beside values, classes, concepts and their table.
NEEDS = {name: {MAPS, "points"} for name in ("CLM", "part specificity", *(f"{title} (Quantus)" for title in QUANTUS))}
NEEDS |= {"locality": {HIDDEN, "points"}}
