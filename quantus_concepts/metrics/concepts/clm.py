"""The concept location metric: do concept maps point at the parts their concepts are about?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack, cast

import numpy as np
import torch
from quantus.helpers.enums import DataType, EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import check_choice, check_range, check_whole, to_masks, to_points
from quantus_concepts.functional import mask_centres, mask_shares, mask_threshold_shares
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.attribution.normalisation import finite_rows
from quantus_concepts.functional.attribution.regions import (
    check_places,
    pixel_hits,
    pixel_threshold_hits,
    pixels_of,
)
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.cem import ZERO
from quantus_concepts.metrics.concepts.locations import (
    NOT_SPECIFIC,
    Located,
    chance_at_places,
    hits_of_concepts,
    locate,
    mean_place_hits,
)
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.checks import Truth, check_image_axes, check_mask_size, check_parts, to_parts
from quantus_concepts.metrics.host.explanations import Explanations, add_reason, usable
from quantus_concepts.metrics.host.metric import ConceptMetric
from quantus_concepts.metrics.host.model import IMPORTANCES, convention_of, is_concept_model, no_concept_model
from quantus_concepts.metrics.host.observing import Counted, Known, Observed, Observer, Result, Scored, counted
from quantus_concepts.metrics.host.record import QuantusArguments

#: The baselines of a table.
BASELINES = (*NOT_SPECIFIC, col.FEATURE_NORM, col.GAUSSIAN, col.MEAN_PLACE)
MASK_HITS = ("centre", "share")


class CLM(ConceptMetric):
    """Concept location metric: does the most active region of a concept's map hold the concept's part?

    Aysel et al. (2025), Equation 11. The region is the ``alpha / 12`` of the image with the largest map values
    or, with `threshold`, where the map is at least the threshold. Ties at the border of the region count by
    their share, so that a constant map scores exactly ``alpha / 12``.

    - **On explanations** ``model`` is a concept predictor, ``y_batch`` the concept explained, the
      attributions are the map (summed over channels; upsampled bilinearly where they are smaller than the
      image, averaged down where they are larger), and ``s_batch`` (N, 1, H, W) or `masks` marks the annotated pixels,
      for which their middle stands or which are counted, see `mask_hit`. With `points` and `part_of_concept` bound,
      the points of the concept's part take the place of the mask.
    - **On images** ``model`` is a concept model (`ConceptModel`) and `points` and
      `part_of_concept` are bound: the metric ranks the concepts that have a part by importance for
      ``y_batch``, takes the first `top_l`, drops those whose part is not visible and averages the rest.
      The explanation method then plays no role.

    If the backbone does not pool by the mean (``model.linear_pool`` is false), maps are local evidence and
    not a decomposition of the concept value.

    Parameters
    ----------
    alpha : float
        Size of the region in twelfths of the image, in (0, 12]; the paper uses 1, 3 and 6.
    threshold : float, optional
        Map value from which on a pixel belongs to the region, in place of `alpha`.
    points : array_like, optional
        (N, P, 2): place (x, y) of each part in pixels of the images in ``x_batch``, (0, 0) being the centre of the
        first, NaN where not visible; or (N, P, Q, 2) where a part has up to Q places (left and right), of which the
        best counts. A place up to half a pixel beyond the border counts as on it, one further out is an error.
    part_of_concept : array_like, optional
        (L,) of int: the part each concept is about, -1 for none.
    top_l : int
        On images: how many concepts count.
    masks : array_like, optional
        (N, 1, H, W) or (N, H, W) of 0 and 1: annotated pixels, in place of ``s_batch``.
    mask_hit : str
        "centre": the marked pixel nearest the centroid of the mask is the place that has to lie in the region; of
        several connected parts (left and right wing) each has its own, and the best counts. "share": the share of the
        region's pixels that are marked.
    importance : str
        On images: "effect", what the logit of the explained class, less the mean of all, loses if the concept is set to
        its absent level (see the notes of `CEM`); or, as the paper has it, "contribution" (theta times u), "value" (u)
        or "weight" (theta), which depend on what a value of 0 means.
    specificity : bool
        With points: score how much more often a map holds the concept's part than the other visible parts of the same
        image (`functional.part_specificity`), in [-1, 1]. Compare with random banks: a map
        without knowledge scores above or below 0, by the part that is named first.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Off by default: no increasing change of
        a map moves its region. The default aggregate is the mean of the defined scores.

    Raises
    ------
    ValueError
        If an argument is out of its range, or `points` and `part_of_concept` do not go together.

    Notes
    -----
    Higher is better. Chance, in ``records[-1].chance``: a place is hit by white noise in ``alpha / 12`` of the images,
    one of k places in 1 - (1 - alpha / 12)^k; NaN for a `threshold`, and for `specificity`, of which 0 is not chance.
    For "share" it is the share of the image that is marked. A real part is hit more often, whatever the map shows,
    since parts and activations both sit on the object:
    compare with the same maps on the parts of other images too. Images explained for one class share their ranking:
    ``records[-1].clusters`` holds the classes where concepts are ranked. NaN, counted by reason in
    ``records[-1].reasons``: no annotated pixel, no visible part, a map that cannot be used. Values, maps and hits are
    compared in float32; a model in half precision gives other, coarser maps, and with them ties. The paper's Table 2,
    ranked by contribution, l = 1, alpha = 1 / 3 / 6: 13.3 / 33.4 / 59.0 %.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import CLM
    >>> model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> images = np.zeros((2, 3, 12, 12), dtype="float32")
    >>> maps = np.zeros((2, 1, 12, 12), dtype="float32")
    >>> maps[:, :, 3] = 1  # row 3 is a twelfth of the image
    >>> metric = CLM(alpha=1, points=[[[4, 3]], [[9, 9]]], part_of_concept=[0])
    >>> metric(model, images, y_batch=np.array([0, 0]), a_batch=maps)
    [1.0, 0.0]
    """

    name = "CLM"
    data_applicability = {DataType.IMAGE}  # noqa: RUF012
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.LOCALISATION
    bounds = (0.0, 1.0)
    asks_concept_models = True
    sample_truth = ("points", "masks")
    family = ("threshold", "part_of_concept")
    makes_maps = True
    #: "", or what stands in place of the concept maps or of their parts.
    baseline = ""

    def __init__(
        self,
        alpha: float = 1.0,
        threshold: float | None = None,
        points: Numbers | None = None,
        part_of_concept: Numbers | None = None,
        top_l: int = 1,
        masks: Numbers | None = None,
        mask_hit: str = "centre",
        importance: str = "effect",
        specificity: bool = False,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Set the region and bind the parts. A score of 1 says that every region holds its part.

        A constant map scores alpha / 12.
        """
        super().__init__(**quantus)
        check_range("alpha", alpha, 0, 12, open_low=True)
        if threshold is not None:
            check_range("threshold", threshold, -math.inf, math.inf, open_low=True, open_high=True)
        check_choice("mask_hit", mask_hit, MASK_HITS)
        check_choice("importance", importance, IMPORTANCES)
        if specificity:
            if threshold is not None or masks is not None:
                raise ValueError("Expected argument `specificity` without `threshold` and `masks`: it compares parts.")
            self.bounds = (-1.0, 1.0)
        if points is not None and part_of_concept is None:
            raise ValueError("Argument `points` also needs `part_of_concept`, the part of each concept.")
        self.alpha, self.threshold, self.mask_hit, self.importance = alpha, threshold, mask_hit, importance
        self.top_l, self.specificity = check_whole("top_l", top_l, 1), specificity
        self.part_of_concept = None if part_of_concept is None else to_parts("part_of_concept", part_of_concept)
        #: (L,): the part of each concept; none where no points are bound.
        self._parts = np.empty(0, dtype=int) if self.part_of_concept is None else self.part_of_concept
        if self.part_of_concept is not None:
            localisable = int((self.part_of_concept >= 0).sum())
            if top_l > localisable:
                raise ValueError(
                    f"Expected argument `top_l` to be at most the number of concepts with a part, {localisable}, but "
                    f"got {top_l}."
                )
        self._bind(points=points, masks=masks)

    def check_truth(self, name: str, value: Numbers) -> np.ndarray:
        """Return places (N, P, Q, 2) or masks (N, 1, H, W), or raise."""
        if name != "points":
            return to_masks(name, value)
        if self.part_of_concept is None:
            raise ValueError("Argument `points` needs `part_of_concept` in the constructor.")
        points = to_points(name, value)
        check_parts(self.part_of_concept, points)
        return points

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Return the places of parts, or else the masks, of a call; raise where there are none."""
        check_image_axes(x_batch)
        has_points = "points" in truth
        if has_points:
            check_places(truth["points"], (x_batch.shape[2], x_batch.shape[3]), ("sample", "part", "place"))
            if is_concept_model(model):
                return {"points": truth["points"]}
        elif self.specificity:
            raise ValueError("Argument `specificity` needs `points` and `part_of_concept`.")
        if has_points and "masks" not in truth:
            self._check_explained(model, x_batch, y_batch)
            return {"points": truth["points"]}
        name, masks = ("masks", truth["masks"]) if "masks" in truth else ("s_batch", truth.get("s_batch"))
        if masks is None:
            raise ValueError(
                "CLM needs to know where concepts are: pass `s_batch` (N, 1, H, W), or bind `masks`, or `points` and "
                "`part_of_concept`, in the constructor."
            )
        masks = to_masks(name, masks)
        check_mask_size(name, masks, x_batch)
        return {"masks": masks[:, 0]}

    def _check_explained(self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray) -> None:
        """Raise where the explained concepts are none of those with a part."""
        n_concepts = len(self._parts)
        outside = (y_batch < 0) | (y_batch >= n_concepts)
        if outside.any():
            wrong = no_concept_model(self.name, model, x_batch)
            raise ValueError(
                f"Expected argument `y_batch` to hold concepts 0 to {n_concepts - 1}, as many as `part_of_concept` "
                f"has, but got {int(y_batch[outside][0])}. Where `y_batch` holds classes, pass a concept model"
                f"{'; but ' + wrong if wrong else ' as `model`'}."
            )

    def score_batch(
        self,
        model: nn.Module,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        explain: Explanations,
        *,
        points: np.ndarray | None = None,
        masks: np.ndarray | None = None,
        **truth: np.ndarray,
    ) -> Observed:
        """Score some maps, or some images with a concept model."""
        if points is not None and is_concept_model(model):
            return super().score_batch(model, x_batch, y_batch, explain, points=points)
        size = (x_batch.shape[2], x_batch.shape[3])
        a_batch, failure = explain()
        if a_batch.ndim == 4:
            channel_last = a_batch.shape[1:3] == size != a_batch.shape[2:]
            a_batch = a_batch.sum(axis=3 if channel_last else 1)
        shape = a_batch.shape[1:] if a_batch.ndim == 3 else size
        attributions, why, explained = usable(a_batch, failure, shape, "a map (H, W)")
        maps = torch.as_tensor(attributions.astype(float))
        if masks is not None and self.mask_hit == "share":
            scores, chance, why = self._score_shares(maps, masks, why)
            return Scored(scores, chance, why, None, explained)
        if masks is not None:
            # The middle of a mask stands for it, as the one part that there is.
            why = add_reason(why, ~masks.any((1, 2)), "nothing is marked")
            part, points = np.zeros(len(masks), int), mask_centres(masks).numpy()[:, None]
            hidden = np.isnan(points[:, 0]).any(-1)
        else:
            # Without masks there are points: a call without either was refused.
            points, part = cast(np.ndarray, points), self._parts[y_batch]
            hidden = np.isnan(points[np.arange(len(part)), part]).any(-1) | (part < 0)[:, None]
            why = add_reason(why, part < 0, "the explained concept has no part")
            why = add_reason(why, np.asarray((part >= 0) & hidden.all(1)), "the part is not visible")
        hits = self._hits(maps, pixels_of(points, size), torch.as_tensor(part), size)
        return Scored(hits.numpy().astype(float), self._chance(hidden[:, None]), why, None, explained)

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return col.PART_SPECIFICITY if self.specificity else self.name

    @classmethod
    def usual(cls, known: Known) -> Sequence[CLM]:
        """Return the usual variants for a table; without those of an l that not enough concepts have a part for."""
        parts, variants = known.truth("part_of_concept"), known.variants
        tops = [] if parts is None else [top for top in variants.top_l if top <= int((parts >= 0).sum())]
        if not tops:
            return []
        metrics = []
        for specificity in (False, True):
            metric = cls(part_of_concept=parts, specificity=specificity)
            own = [metric.vary(importance=kind) for kind in variants.explanations]
            of_tops = sorted(tops)[:1] if specificity else tops
            for each in (*own, *own[-1].baselines(known)):
                metrics += [each.vary(top_l=top, alpha=alpha) for top in of_tops for alpha in variants.alphas]
        return metrics

    def with_truth(self, known: Known) -> CLM:
        """Return the metric with the parts that a stream knows, if it was given none."""
        parts = known.truth("part_of_concept")
        if self.part_of_concept is not None or parts is None:
            return self
        return self.vary(part_of_concept=parts, _parts=parts)

    def baselines(self, known: Known) -> Sequence[CLM]:
        """Return the same maps at other parts, and other maps at the same parts."""
        names = [name for name in BASELINES if not (self.specificity and name in NOT_SPECIFIC)]
        return [self.vary(baseline=name) for name in names] if known.baselines and self.threshold is None else []

    def for_model(self, name: str, model: Any, control: int | None) -> Observer | None:
        """Return what observes a model; its baselines look for the concepts of the last importance that it has."""
        unknown = self.importance == "effect" and not convention_of(model, "effect")
        own = self.vary(importance="contribution") if self.baseline and self.level_optional and unknown else self
        return super(CLM, own).for_model(name, model, control)

    def missing(self, batch: Batch) -> str:
        """Return the name of what a batch has to have and lacks, "" for nothing."""
        if self.part_of_concept is None:
            return "part_of_concept"
        return "" if "points" in batch.truth or "points" in self.bound_truth else "points"

    @classmethod
    def observe(cls, metrics: Sequence[CLM], batch: Batch) -> Located:
        """Return the hits of the maps of the most important concepts that have a part, Equation 11."""

        def each(name: str, of: Sequence[CLM] = metrics) -> tuple[Any, ...]:
            return tuple({getattr(metric, name): None for metric in of})

        own = [metric for metric in metrics if not metric.baseline]
        # The last explanation ranks the concepts that the baselines look for.
        return locate(
            batch,
            each("importance", own) or each("importance"),
            sorted(each("top_l")),
            each("alpha"),
            metrics[0]._parts,
            baselines=[name for name in BASELINES if name in each("baseline")],
            specific_tops=sorted(each("top_l", [metric for metric in metrics if metric.specificity])),
            threshold=metrics[0].threshold,
        )

    def finish(self, observed: Any) -> Result:
        """Return the scores of all batches, and why some are undefined."""
        if isinstance(observed, Scored):
            return super().finish(observed)
        if self.baseline == col.MEAN_PLACE:
            return self._by_mean_place(observed)
        row, column = observed.rows.index(self.baseline or self.importance), observed.alphas.index(self.alpha)
        place, n = observed.tops.index(self.top_l), observed.n_samples
        scores, chance = observed.means[:, row, place, column].double().numpy(), np.full(n, self.alpha / 12)
        # Baselines are about the concepts of the last explanation.
        norms = observed.norms[:, min(row, observed.norms.shape[1] - 1)].numpy()
        ranks, own = (norms > 0) & (norms < np.inf), row
        if self.specificity:
            rows = [name for name in observed.rows if name not in NOT_SPECIFIC]
            row, top = rows.index(observed.rows[row]), observed.specific_tops.index(self.top_l)
            scores, chance = observed.specific[:, row, top, column].double().numpy(), np.full(n, np.nan)
        elif self.threshold is not None:
            chance = np.full(n, np.nan)
        elif observed.chance is not None:
            chance = np.where(ranks, observed.chance[:, row, place, column].numpy(), np.nan)
        scores = np.where(ranks, scores, np.nan)

        def reasons() -> dict[str, Counted]:
            unseen = observed.hidden[:, own, : self.top_l].all(1).numpy()
            masks = {"the model's importances are not finite": ~(norms < np.inf), ZERO: norms == 0}
            first = "the first concept" if self.top_l == 1 else f"the first {self.top_l} concepts"
            masks[f"no part of {first} is visible"] = ranks & unseen
            masks["the model's maps are not finite"] = np.isnan(scores) & ranks & ~unseen
            return counted(masks, n)

        return Result(
            scores, (lambda: {}) if self.baseline else reasons, chance=chance, clusters=observed.clusters.numpy()
        )

    def _by_mean_place(self, observed: Located) -> Result:
        """Return the scores of maps that are the mean place of their part in other images."""
        n, chance = observed.n_samples, math.nan if self.specificity else self.alpha / 12
        if observed.size is None or observed.points is None or observed.first_parts is None:
            return Result(np.full(n, np.nan), {}, chance=chance, clusters=observed.clusters.numpy())
        part = observed.first_parts[:, : self.top_l].long()
        hits = torch.as_tensor(mean_place_hits(observed.points.double().numpy(), observed.size, (self.alpha,)))
        # Of each concept the hits of its map at every part.
        of_concepts = hits_of_concepts(
            hits[torch.arange(n)[:, None], part], part, cast(np.ndarray, self.part_of_concept)
        )
        scores = (of_concepts.difference if self.specificity else of_concepts.own)[..., 0].nanmean(1)
        ranks = (observed.norms[:, -1] > 0) & (observed.norms[:, -1] < np.inf)
        defined = np.where(ranks.numpy(), scores.numpy(), np.nan)
        return Result(defined, {}, chance=np.full(n, chance), clusters=observed.clusters.numpy())

    def _hits(self, maps: Tensor, pixels: Tensor, part: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the hits (n,) of maps about parts (n,), or their part specificity, by pixels (n, P, Q) of parts."""
        place = part.clamp(min=0)
        at_own_part = pixels.take_along_dim(place[:, None, None], 1)
        if self.threshold is not None:
            hits = pixel_threshold_hits(maps, at_own_part[:, 0], size, self.threshold)
        elif self.specificity:
            at_parts = pixel_hits(maps, pixels, size, (self.alpha,))
            hits = hits_of_concepts(at_parts, place, self._parts).difference[:, 0]
        else:
            hits = pixel_hits(maps, at_own_part, size, (self.alpha,))[:, 0, 0]
        return hits.masked_fill(part < 0, torch.nan)

    def _chance(self, hidden: np.ndarray) -> np.ndarray:
        """Return the mean chance (n,) of white noise at the best of the places (n, T, Q) that are not hidden."""
        if self.threshold is not None or self.specificity:
            return np.full(len(hidden), np.nan)
        chance = chance_at_places(torch.as_tensor(hidden), (self.alpha,))[..., 0].numpy()
        defined = (~np.isnan(chance)).sum(1)
        return np.where(defined > 0, np.nansum(chance, 1) / np.maximum(defined, 1), np.nan)

    def _score_shares(
        self, maps: Tensor, masks: np.ndarray, why: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which share of each region is marked, its chance, and why some are undefined."""
        marked = torch.as_tensor(masks)
        why = add_reason(why, ~masks.any((1, 2)), "nothing is marked")
        if self.threshold is None:
            shares = mask_shares(maps, marked, (self.alpha,))[:, 0]
        else:
            shares = mask_threshold_shares(maps, marked, self.threshold)
            nowhere = finite_rows(maps) & marked.flatten(1).any(1) & shares.isnan()
            why = add_reason(why, nowhere.numpy(), "no pixel of the map reaches `threshold`")
        density = masks.mean((1, 2))
        return shares.numpy().astype(float), np.where(density > 0, density, np.nan), why
