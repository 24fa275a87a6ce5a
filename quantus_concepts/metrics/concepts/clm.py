"""The concept location metric: do concept maps point at the parts their concepts are about?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, Unpack, cast

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
    BASELINES,
    NOT_SPECIFIC,
    chance_at_places,
    hits_of_concepts,
    locate,
    mean_place_hits,
)
from quantus_concepts.metrics.host.checks import Truth, check_image_axes, check_mask_size, check_parts, to_parts
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.explanations import Explanations, add_reason, usable_maps
from quantus_concepts.metrics.host.looks import Look, Looked, Looking, named_by
from quantus_concepts.metrics.host.metric import scores_of_samples
from quantus_concepts.metrics.host.model import IMPORTANCES, is_concept_model, no_concept_model
from quantus_concepts.metrics.host.predictions import ConceptPredictions, Scored
from quantus_concepts.metrics.host.record import AsPrinted, QuantusArguments
from quantus_concepts.metrics.host.scores import Counts, MetricScores, counted, no_counts

MASK_HITS = ("centre", "share")


@dataclass(frozen=True)
class Maps(Look):
    """Hits of the maps of the first concepts that have a part, Equation 11, of several explanations and baselines."""

    reads: tuple[str, ...] = ("points", "elsewhere", "masks")
    strided: bool = True
    parts: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=int))
    kinds: tuple[str, ...] = ()
    tops: tuple[int, ...] = ()
    alphas: tuple[float, ...] = ()
    specific_tops: tuple[int, ...] = ()
    threshold: float | None = None
    baselines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What rows call it."""
        threshold = "" if self.threshold is None else f" from {self.threshold:g}"
        return f"maps{threshold}{named_by(self.parts.astype(np.int64), self.bound.get('points'))}"

    def __add__(self, other: Any) -> Maps:
        names = ("kinds", "tops", "alphas", "specific_tops", "baselines")
        joined: dict[str, Any] = {
            name: (*dict.fromkeys((*getattr(self, name), *getattr(other, name))),) for name in names
        }
        sorted_tops = {name: tuple(sorted(joined[name])) for name in ("tops", "specific_tops")}
        return replace(self, **joined | sorted_tops, optional=self.optional and other.optional)

    def baselines_of(self, *, specific: bool) -> list[str]:
        """Return the baselines, of CLM or of part specificity, in the order of a table."""
        return [name for name in BASELINES if name in self.baselines and not (specific and name in NOT_SPECIFIC)]

    def see(self, looking: Looking) -> Looked:
        """Return the hits of some images."""
        # The last explanation ranks the concepts that the baselines look for.
        names = self.baselines_of(specific=False) if looking.baselines else []
        kinds = [kind for kind in self.kinds if kind != "effect" or looking.rows.convention(kind)]
        about: dict[str, Any] = {"tops": self.tops, "alphas": self.alphas, "specific_tops": self.specific_tops}
        about |= {"rows": (*kinds, *names), "size": looking.size}
        if not kinds:
            # A model whose effects are unknown ranks no concept.
            return Looked({}, about)
        columns = locate(
            looking,
            kinds,
            self.tops,
            self.alphas,
            self.parts,
            baselines=names,
            specific_tops=self.specific_tops,
            threshold=self.threshold,
        )
        return Looked(columns, about)


def location(
    rows: ConceptPredictions,
    seen: Looked,
    kind: str,
    tops: Sequence[int],
    alphas: Sequence[float],
    *,
    specific: bool = False,
    baseline: str = "",
    threshold: float | None = None,
    parts: np.ndarray | None = None,
) -> MetricScores:
    """Score CLM, or part specificity, of an importance, or of a baseline of the last one, of what was seen of maps."""
    about, columns = seen.about, seen.columns
    if baseline == col.MEAN_PLACE:
        return _by_mean_place(rows, seen, kind, tops, alphas, specific=specific, parts=parts)
    names, n, variants = [*about["rows"]], len(columns["norms"]), [*product(tops, alphas)]
    own = names.index(baseline or kind)
    # Baselines are about the concepts of the last explanation.
    norms = columns["norms"][:, min(own, columns["norms"].shape[1] - 1)].numpy()
    ranks, row, known, means = (norms > 0) & (norms < np.inf), own, about["tops"], columns["means"]
    if specific:
        row, known, means = _specific_row(names, own), about["specific_tops"], columns["specific"]
    places = [known.index(top) for top, _ in variants], [about["alphas"].index(alpha) for _, alpha in variants]
    values = np.where(ranks[:, None], means[:, row][:, places[0], places[1]].double().numpy(), np.nan)
    chance = np.array([[np.nan if specific or threshold is not None else alpha / 12 for _, alpha in variants]])
    if "chance" in columns and not specific and threshold is None:
        chance = np.where(ranks[:, None], columns["chance"][:, row][:, places[0], places[1]].double().numpy(), np.nan)

    def reasons(variant: int) -> Counts:
        if baseline:
            return {}
        top = variants[variant][0]
        unseen = columns["hidden"][:, own, :top].all(1).numpy()
        masks = {"the model's importances are not finite": ~(norms < np.inf), ZERO: norms == 0}
        first = "the first concept" if top == 1 else f"the first {top} concepts"
        masks[f"no part of {first} is visible"] = ranks & unseen
        masks["the model's maps are not finite"] = np.isnan(values[:, variant]) & ranks & ~unseen
        return counted(masks, n)

    return _located(rows, seen, kind, variants, values, chance, specific=specific, baseline=baseline, reasons=reasons)


def _located(
    rows: ConceptPredictions,
    seen: Looked,
    kind: str,
    variants: Sequence[tuple[int, float]],
    values: np.ndarray,
    chance: np.ndarray,
    *,
    specific: bool,
    baseline: str,
    reasons: Callable[[int], Counts] = no_counts,
) -> MetricScores:
    metric = col.PART_SPECIFICITY if specific else col.CLM
    named = {"metric": metric, "explanation": kind, "baseline": baseline, "convention": rows.convention(kind)}
    return MetricScores(
        [named | {"l": top, "alpha": alpha} for top, alpha in variants],
        values,
        chance,
        (rows.classes if seen.places is None else rows.classes[seen.places]).numpy(),
        (-1.0, 1.0) if specific else (0.0, 1.0),
        reasons,
        places=None if seen.places is None else seen.places.numpy(),
    )


def _by_mean_place(
    rows: ConceptPredictions,
    seen: Looked,
    kind: str,
    tops: Sequence[int],
    alphas: Sequence[float],
    *,
    specific: bool,
    parts: np.ndarray | None,
) -> MetricScores:
    """Score maps that are the mean place of their part in other images."""
    columns, variants = seen.columns, [*product(tops, alphas)]
    norms, part, n = columns["norms"][:, -1], columns["first_parts"].long(), len(columns["norms"])
    chance = np.array([[np.nan if specific else alpha / 12 for _, alpha in variants]])
    if (size := seen.about["size"]) is None:
        values = np.full((n, len(variants)), np.nan)
        return _located(rows, seen, kind, variants, values, chance, specific=specific, baseline=col.MEAN_PLACE)
    hits = torch.as_tensor(mean_place_hits(columns["points"].double().numpy(), size, alphas))
    # Of each concept the hits of its map at every part.
    of_concepts = hits_of_concepts(hits[torch.arange(n)[:, None], part], part, cast(np.ndarray, parts))
    table = of_concepts.difference if specific else of_concepts.own
    ranks = ((norms > 0) & (norms < np.inf)).numpy()
    scores = [table[:, :top, [*alphas].index(alpha)].nanmean(1).numpy() for top, alpha in variants]
    values = np.where(ranks[:, None], np.stack(scores, 1), np.nan)
    return _located(rows, seen, kind, variants, values, chance, specific=specific, baseline=col.MEAN_PLACE)


def _specific_row(names: Sequence[str], own: int) -> int:
    return [name for name in names if name not in NOT_SPECIFIC].index(names[own])


class CLM(AsPrinted, ConceptMetric):
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
    ``CLM.as_printed(...)`` ranks by the paper's ``importance="contribution"``; still signed, hidden parts left out.

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
    sample_truth = ("points", "masks")
    printed: ClassVar[Mapping[str, Any]] = {"importance": "contribution", "specificity": False}

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

    def rows_of(
        self,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        explain: Explanations,
        truth: Mapping[str, Any],
        *,
        banks: Sequence[Any] = (),
    ) -> Any:
        """Return the scores of some maps, or the rows of some images with a concept model."""
        if "points" in truth and is_concept_model(model):
            return super().rows_of(model, x_batch, y_batch, explain, truth, banks=banks)
        return self._score_maps(x_batch, y_batch, explain, truth.get("points"), truth.get("masks"))

    def _score_maps(
        self,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        explain: Explanations,
        points: np.ndarray | None,
        masks: np.ndarray | None,
    ) -> Scored:
        size = (x_batch.shape[2], x_batch.shape[3])
        attributions, why, explained = usable_maps(explain, size)
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

    def with_tables(self, tables: Mapping[str, Any]) -> CLM:
        """Return the metric with the parts that a call knows, if it was given none."""
        parts = tables.get("part_of_concept")
        if self.part_of_concept is not None or parts is None:
            return self
        return self.vary(part_of_concept=parts, _parts=parts)

    def look(self) -> Maps | None:
        """Return which maps to look at."""
        if self.part_of_concept is None:
            return None
        bound = {name: value for name, value in self.bound_truth.items() if name == "points"}
        return Maps(
            bound=bound,
            parts=self.part_of_concept,
            kinds=(self.importance,),
            tops=(self.top_l,),
            alphas=(self.alpha,),
            specific_tops=(self.top_l,) if self.specificity else (),
            threshold=self.threshold,
            baselines=() if self.threshold is not None else BASELINES,
        )

    def missing(self, rows: ConceptPredictions) -> str:
        """Return the name of what rows have to have and lack, "" for nothing."""
        look = self.look()
        if look is None:
            return "part_of_concept"
        seen = rows.looks.get(look.name)
        if seen is None:
            return "points"
        of_rows = (seen.about[name] for name in ("rows", "tops", "alphas", "specific_tops"))
        asked = ((self.importance,), look.tops, look.alphas, look.specific_tops)
        return "" if all({*own} <= {*there} for own, there in zip(asked, of_rows, strict=True)) else "points"

    def score_rows(self, rows: Any) -> MetricScores:
        """Return how often regions hold their parts."""
        if isinstance(rows, Scored):
            return scores_of_samples(self.name, rows, self.bounds)
        return self._location(rows, "")

    def baselines(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the same maps at other parts, and other maps at the same parts."""
        look = cast(Maps, self.look())
        names = look.baselines_of(specific=self.specificity)
        return [self._location(rows, name) for name in names if name in rows.looks[look.name].about["rows"]]

    def _location(self, rows: ConceptPredictions, baseline: str) -> MetricScores:
        seen = rows.looks[cast(Maps, self.look()).name]
        settings: dict[str, Any] = {"specific": self.specificity, "threshold": self.threshold, "baseline": baseline}
        settings["parts"] = self.part_of_concept
        return location(rows, seen, self.importance, [self.top_l], [self.alpha], **settings)

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
