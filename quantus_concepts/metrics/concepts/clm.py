"""The concept location metric: do concept maps point at the parts their concepts are about?"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from quantus.helpers.enums import DataType, EvaluationCategory, ScoreDirection
from torch import Tensor

from captum_concepts._support.constraints import FINITE, Choice, Flag, Number, Whole, check_arguments
from quantus_concepts.functional import mask_centres, mask_shares, mask_threshold_shares
from quantus_concepts.functional.normalisation import finite_rows
from quantus_concepts.functional.part_specificity import own_and_other_hits
from quantus_concepts.functional.ranking import first_concepts
from quantus_concepts.functional.regions import (
    check_places,
    hits_of_parts,
    hits_of_pixels,
    pixels_of,
    threshold_hits_of_pixels,
)
from quantus_concepts.metrics.host.base import UpdatedMetric
from quantus_concepts.metrics.host.call import QuantusArguments
from quantus_concepts.metrics.host.checks import (
    MASKS,
    PARTS,
    POINTS,
    SELECT,
    check_images,
    check_mask_size,
    check_parts,
    checked_classes,
)
from quantus_concepts.metrics.host.model import (
    IMPORTANCES,
    concept_importances,
    concept_maps,
    is_concept_model,
    no_concept_model,
)

MASK_HITS = ("centre", "share")


class CLM(UpdatedMetric):
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
        On images: "contribution" (theta times u), "value" (u) or "weight" (theta).
    specificity : bool
        With points: score how much more often a map holds the concept's part than the other visible parts of the same
        image (`functional.part_specificity`), in [-1, 1]. A map that is on the object and knows no concept scores 0.
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
    one of k places in 1 - (1 - alpha / 12)^k; NaN for a `threshold`. For "share" it is the share of the image that is
    marked. A real part is hit more often, whatever the map shows, since parts and activations both sit on the object:
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
    settings = ("alpha", "threshold", "top_l", "mask_hit", "importance", "part_of_concept", "specificity")

    @check_arguments(
        points=POINTS,
        part_of_concept=PARTS,
        masks=MASKS,
        alpha=Number(0, 12, open_low=True),
        threshold=FINITE,
        top_l=Whole(1),
        mask_hit=Choice(MASK_HITS),
        importance=Choice(IMPORTANCES),
        specificity=Flag(),
    )
    def __init__(
        self,
        alpha: float = 1.0,
        threshold: float | None = None,
        points: Any = None,
        part_of_concept: Any = None,
        top_l: int = 1,
        masks: Any = None,
        mask_hit: str = "centre",
        importance: str = "contribution",
        specificity: bool = False,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Set the region and bind the parts. A score of 1 says that every region holds its part.

        A constant map scores alpha / 12.
        """
        super().__init__(**quantus)
        if specificity:
            if threshold is not None or masks is not None:
                raise ValueError("Expected argument `specificity` without `threshold` and `masks`: it compares parts.")
            self.bounds = (-1.0, 1.0)
        if points is not None and part_of_concept is None:
            raise ValueError("Argument `points` also needs `part_of_concept`, the part of each concept.")
        self.alpha = alpha
        self.threshold = threshold
        self.top_l = top_l
        self.mask_hit = mask_hit
        self.importance = importance
        self.specificity = specificity
        self.part_of_concept = part_of_concept
        localisable = int((self._parts >= 0).sum())
        if part_of_concept is not None and top_l > localisable:
            raise ValueError(
                f"Expected argument `top_l` to be at most the number of concepts with a part, {localisable}, but got "
                f"{top_l}."
            )
        self._bind(points=points, masks=masks)

    def _truth_array(self, name: str, value: Any) -> np.ndarray:
        if name == "points":
            if self.part_of_concept is None:
                raise ValueError("Argument `points` needs `part_of_concept` in the constructor.")
            check_parts(self.part_of_concept, value)
        return super()._truth_array(name, value)

    def _works_on_images(self, model: Any, x_batch: np.ndarray) -> bool:
        return is_concept_model(model) and "points" in self.call.truth

    def _check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, s_batch: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        check_images(x_batch)
        size = (x_batch.shape[2], x_batch.shape[3])
        if "points" in self.call.truth:
            check_places(self.call.truth["points"], size, ("sample", "part", "place"))
        elif self.specificity:
            raise ValueError("Argument `specificity` needs `points` and `part_of_concept`.")
        if self.call.on_images:
            self.call.clusters = y_batch
            return {}
        if "masks" not in self.call.truth and "points" in self.call.truth:
            return {"places": self._places_of_concepts(model, x_batch, y_batch)}
        masks = self._masks(x_batch, s_batch)
        self.leave_out("nothing is marked", int((~masks.any((1, 2))).sum()))
        if self.mask_hit == "share":
            density = masks.mean((1, 2))
            self.call.chances = np.where(density > 0, density, np.nan).tolist()
            return {"masks": masks}
        places = mask_centres(masks).numpy()
        self._note_chance(places[..., 0])
        return {"places": places}

    def _masks(self, x_batch: np.ndarray, s_batch: np.ndarray | None) -> np.ndarray:
        """Return (N, H, W) of bool, bound or passed."""
        if "masks" in self.call.truth:
            name, masks = "masks", self.call.truth["masks"]
        elif s_batch is not None:
            name, masks = "s_batch", MASKS.check("s_batch", s_batch, {})
        else:
            raise ValueError(
                "CLM needs to know where concepts are: pass `s_batch` (N, 1, H, W), or bind `masks`, or `points` and "
                "`part_of_concept`, in the constructor."
            )
        check_mask_size(name, masks, x_batch)
        return masks[:, 0]

    def _places_of_concepts(self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray) -> np.ndarray:
        """Return the places (N, Q, 2) of the part of each explained concept."""
        parts = self._parts
        outside = (y_batch < 0) | (y_batch >= len(parts))
        if outside.any():
            wrong = no_concept_model(self.name, model, x_batch)
            raise ValueError(
                f"Expected argument `y_batch` to hold concepts 0 to {len(parts) - 1}, as many as `part_of_concept` "
                f"has, but got {int(y_batch[outside][0])}. Where `y_batch` holds classes, pass a concept model"
                f"{'; but ' + wrong if wrong else ' as `model`'}."
            )
        points = self.call.truth["points"]
        has_part = parts[y_batch] >= 0
        places = np.where(has_part[:, None, None], points[np.arange(len(points)), parts[y_batch]], np.nan)
        visible = ~np.isnan(places).any(-1)
        self.leave_out("the explained concept has no part", int((~has_part).sum()))
        self.leave_out("the part is not visible", int((has_part & ~visible.any(1)).sum()))
        self._note_chance(places[..., 0] + places[..., 1])
        return places

    @property
    def _parts(self) -> np.ndarray:
        """(L,): the part of each concept; none where no points are bound."""
        return np.empty(0, dtype=int) if self.part_of_concept is None else self.part_of_concept

    def _note_chance(self, places: np.ndarray) -> None:
        """Note the chance of white noise at the best of Q places (n, ..., Q), averaged over the axes between."""
        if self.threshold is not None:
            return
        count = (~np.isnan(places)).sum(-1)
        chance = np.where(count > 0, 1 - (1 - self.alpha / 12) ** count, 0.0).reshape(len(places), -1)
        defined = (count > 0).reshape(len(places), -1).sum(1)
        means = np.zeros(len(places)) if self.specificity else chance.sum(1) / np.maximum(defined, 1)
        self.call.chances += np.where(defined > 0, means, np.nan).tolist()

    def evaluate_batch(
        self,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray,
        rows_batch: np.ndarray,
        masks_batch: np.ndarray | None = None,
        points_batch: np.ndarray | None = None,
        places_batch: np.ndarray | None = None,
        **kwargs: Any,
    ) -> list[float]:
        """Score some maps, or some images with a concept model."""
        if self.call.on_images and points_batch is not None:
            return self._score_images(model.get_model(), x_batch, y_batch, rows_batch, points_batch).tolist()
        if self.specificity and points_batch is not None:
            maps, size = self._maps(x_batch, a_batch), (x_batch.shape[2], x_batch.shape[3])
            # Concepts without a part have part -1 and score NaN.
            parts = torch.as_tensor(self._parts[y_batch])
            scores = self._differences(maps, pixels_of(points_batch, size), parts.clamp(min=0), size)
            return scores.masked_fill(parts < 0, torch.nan).tolist()
        return self._score_maps(x_batch, a_batch, masks_batch, places_batch).numpy().astype(float).tolist()

    def _score_images(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, rows: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        # The key holds all that scores depend on besides the images, so that the methods of one evaluation share them.
        settings = self.alpha, self.threshold, self.top_l, self.importance, self.specificity, points.shape
        arrays = (array.tobytes() for array in (self._parts, y_batch, points))
        make = partial(self._score_located, model, x_batch, y_batch, rows, points)
        scores, unknown, parts = self.recall((type(self), *settings, *arrays), model, rows, make)
        unseen = np.isnan(points[np.arange(len(points))[:, None], parts]).any(-1)
        hidden = ~unknown & unseen.reshape(len(unseen), -1).all(1)
        self.leave_out("the model's importances are not finite", int(unknown.sum()))
        self.leave_out(f"no part of the first {self.top_l} concepts is visible", int(hidden.sum()))
        self.leave_out("the model's maps are not finite", int((np.isnan(scores) & ~unknown & ~hidden).sum()))
        self._note_chance(np.where(unseen, np.nan, 0.0))
        return scores

    def _score_located(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, rows: np.ndarray, points: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return scores (n,), which importances are not finite (n,), and the parts (n, l) of the concepts ranked."""
        features = self.concept_features(model, x_batch, rows)
        _, values, logits = self.concept_outputs(model, x_batch, rows, features)
        parts = self._parts
        if len(parts) != values.shape[1]:
            raise ValueError(
                f"Expected argument `part_of_concept` to have shape (L,) with the model's L = {values.shape[1]} "
                f"concepts but got {parts.shape}. {SELECT}"
            )
        classes = checked_classes(y_batch, logits)
        importance = concept_importances(model, values, classes, (self.importance,))[self.importance]
        # Equation 11: whether the maps of the first concepts that have a part are largest at that part.
        with_part = torch.as_tensor(np.flatnonzero(parts >= 0), device=importance.device)
        ranked = with_part[first_concepts(importance[:, with_part], self.top_l)]
        maps = concept_maps(model, features, x_batch, ranked)
        size = (x_batch.shape[2], x_batch.shape[3])
        pixels = pixels_of(points, size)[:, parts].to(maps.device)
        places = pixels.gather(1, ranked[..., None].expand(*ranked.shape, pixels.shape[2]))
        flat = maps.flatten(0, 1)
        if self.specificity:
            every = pixels_of(points, size).to(maps.device).repeat_interleave(ranked.shape[1], 0)
            parts_of_maps = torch.as_tensor(parts, device=maps.device)[ranked].flatten()
            hits = self._differences(flat, every, parts_of_maps, size).view(ranked.shape)
        else:
            hits = self._hits(flat, places.flatten(0, 1), size).view(ranked.shape)
        # One transfer from the device for each batch; infinity or NaN among the importances shows in their norm.
        norms = torch.linalg.vector_norm(importance, torch.inf, 1)
        table = torch.cat([norms[:, None], hits, ranked], 1).cpu().numpy()
        unknown, hits_of_images, ranks = np.split(table, [1, 1 + self.top_l], 1)
        unknown = ~np.isfinite(unknown[:, 0])
        defined = ~np.isnan(hits_of_images)
        with np.errstate(invalid="ignore"):
            scores = np.where(defined, hits_of_images, 0).sum(1) / defined.sum(1).astype(table.dtype)
        return np.where(unknown, np.nan, scores).astype(float), unknown, parts[ranks.astype(int)]

    def _differences(self, maps: Tensor, pixels: Tensor, parts: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the part specificity (n,) of maps of concepts about these parts, in images with pixels (n, P, Q)."""
        weights = torch.as_tensor(np.bincount(self._parts[self._parts >= 0], minlength=pixels.shape[1]))
        own_hits, other_hits = own_and_other_hits(hits_of_parts(maps, pixels, size, (self.alpha,)), parts, weights)
        return (own_hits - other_hits)[:, 0]

    def _hits(self, maps: Tensor, pixels: Tensor, size: tuple[int, int]) -> Tensor:
        if self.threshold is not None:
            return threshold_hits_of_pixels(maps, pixels, size, self.threshold)
        return hits_of_pixels(maps, pixels, size, (self.alpha,))[:, 0]

    def _maps(self, x_batch: np.ndarray, a_batch: np.ndarray) -> Tensor:
        """Return explanations as maps (n, h, w), summed over channels; NaN where one cannot be used."""
        size = x_batch.shape[2:]
        channel_last = a_batch.ndim == 4 and a_batch.shape[1:3] == size != a_batch.shape[2:]
        if a_batch.ndim == 4:
            a_batch = a_batch.sum(axis=3 if channel_last else 1)
        usable, _ = self.usable(a_batch, a_batch.shape[1:] if a_batch.ndim == 3 else size, "a map (H, W)")
        return torch.as_tensor(usable.astype(float))

    def _score_maps(
        self, x_batch: np.ndarray, a_batch: np.ndarray, masks: np.ndarray | None, places: np.ndarray | None
    ) -> Tensor:
        size = (x_batch.shape[2], x_batch.shape[3])
        maps = self._maps(x_batch, a_batch)
        if places is not None:
            return self._hits(maps, pixels_of(places, size), size)
        marked = torch.as_tensor(masks)
        if self.threshold is None:
            return mask_shares(maps, marked, (self.alpha,))[:, 0]
        shares = mask_threshold_shares(maps, marked, self.threshold)
        marked_map = finite_rows(maps) & marked.flatten(1).any(1)
        self.leave_out("no pixel of the map reaches `threshold`", int((marked_map & shares.isnan()).sum()))
        return shares
