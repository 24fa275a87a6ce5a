"""Concept maps against the masks or boxes of their parts: IoU, energy inside, pointing game, coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Unpack, cast

import numpy as np
import torch
from quantus.helpers.enums import DataType, EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.backbones.pooling import project_maps
from captum_concepts.support.checks import check_binary, check_choice, check_finite, check_whole, to_array, to_masks
from captum_concepts.support.running import widest_float
from quantus_concepts.functional import region_scores
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.clm import clm
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.cem import ZERO
from quantus_concepts.metrics.concepts.locations import first_with_part
from quantus_concepts.metrics.host.checks import Truth, check_image_axes, check_mask_size, to_parts
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.explanations import Explanations, add_reason, usable_maps
from quantus_concepts.metrics.host.looks import Look, Looked, Looking, named_by
from quantus_concepts.metrics.host.metric import scores_of_samples
from quantus_concepts.metrics.host.model import IMPORTANCES, check_concept_count, in_precision_of, is_concept_model
from quantus_concepts.metrics.host.predictions import ConceptPredictions, Scored
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import MetricScores, counted

#: Scores of a map, and what tables call them.
SCORES = {"iou": col.REGION_IOU, "energy": col.ENERGY_INSIDE, "hit": col.POINTING_GAME, "coverage": col.COVERAGE}
#: Random maps that a map has to be above to name anything; one of 40 is above 39 by luck.
N_RANDOM = 39
BASELINES = (col.GAUSSIAN, col.MEAN_REGION)
NO_DIRECTIONS, NOT_FINITE = "the model has no directions to compare with random ones", "the model's maps are not finite"


@dataclass(frozen=True)
class Regions(Look):
    """Scores of the maps of the first concepts that have a part, and of baselines, against the regions of the parts."""

    reads: tuple[str, ...] = ("regions",)
    strided: bool = True
    parts: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=int))
    kind: str = "effect"
    top: int = 1
    #: Names the regions that are bound.
    bound_name: str = ""

    @property
    def name(self) -> str:
        """What rows call it."""
        return f"regions {self.kind} {self.top}{named_by(self.parts.astype(np.int64))}{self.bound_name}"

    @cached_property
    def _totals(self) -> dict[tuple[int, int], tuple[Tensor, Tensor]]:
        return {}

    def totals(self, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Return the sum (P, H, W) of all bound regions, and in how many images each is seen (P,)."""
        if size not in self._totals:
            regions = self.bound["regions"]
            total, count = torch.zeros(regions.shape[1], *size), torch.zeros(regions.shape[1])
            for start in range(0, len(regions), 64):
                masks = region_masks(torch.as_tensor(regions[start : start + 64]), size)
                total += masks.sum(0)
                count += masks.flatten(2).any(2).sum(0)
            self._totals[size] = total, count
        return self._totals[size]

    def see(self, looking: Looking) -> Looked:
        """Return the scores (n, R, 4) of the model's maps and of baselines, and what they rest on."""
        importance, size = looking.rows.naming(self.kind), looking.size
        check_concept_count("part_of_concept", "(L,)", self.parts, importance.shape[1])
        regions = looking.truth["regions"]
        check_regions(self.parts, regions, size)
        ranked = first_with_part(importance, self.parts, self.top)
        part = torch.as_tensor(self.parts, device=ranked.device)[ranked]
        maps = looking.maps(ranked)
        images = torch.arange(len(part))[:, None]
        # (n, T, H, W): the region of the part that each concept is about.
        masks = region_masks(torch.as_tensor(regions)[images, part.cpu()], size).to(maps.device)
        hidden = ~masks.flatten(2).any(2)
        scores = [[*_scores_of(maps, masks), _coverage(looking, ranked, maps).masked_fill(hidden, torch.nan)]]
        names = [name for name in BASELINES if looking.baselines and (name == col.GAUSSIAN or "regions" in self.bound)]
        for name in names:
            others = _gaussian(size).expand(*part.shape, -1, -1) if name == col.GAUSSIAN else self._others(part, masks)
            scores.append([*_scores_of(others.to(maps), masks), maps.new_full(part.shape, torch.nan)])
        # The mean over the concepts whose part is visible, as in CLM.
        table = torch.stack([torch.stack(row, 1) for row in scores], 1)
        area = masks.to(widest_float(masks.device)).mean((2, 3)).masked_fill(hidden, torch.nan)
        columns = {
            "scores": clm(table, self.top).float(),
            "area": clm(area, self.top),
            "hidden": hidden.all(1),
            "norms": torch.linalg.vector_norm(importance, torch.inf, 1),
        }
        return Looked(columns, {"rows": ("", *names), "size": size})

    def _others(self, part: Tensor, masks: Tensor) -> Tensor:
        """Return the mean regions (n, T, H, W) of parts (n, T) in all other images; NaN where there are none."""
        total, count = (of.to(masks.device)[part] for of in self.totals((masks.shape[2], masks.shape[3])))
        seen = masks.flatten(2).any(2)
        # 0 / 0 where no other image shows the part.
        return (total - masks.float()) / (count - seen.float())[..., None, None]


def _scores_of(maps: Tensor, masks: Tensor) -> list[Tensor]:
    found = region_scores(maps.flatten(0, 1), masks.flatten(0, 1))
    return [score.view(masks.shape[:2]) for score in found]


def _coverage(looking: Looking, concepts: Tensor, maps: Tensor) -> Tensor:
    """Return whether maps (n, T) span more than those of all random directions of the same features; NaN if unknown."""
    model: Any = looking.model
    if looking.features is None or not hasattr(model, "map_weights"):
        return maps.new_full(concepts.shape, torch.nan)
    weights = model.map_weights() if looking.bank is None else looking.bank.cavs
    features = model.feature_maps(in_precision_of(model, looking.features))
    drawn = torch.randn(N_RANDOM, features.shape[1], generator=torch.Generator().manual_seed(0))
    random = nn.functional.normalize(drawn, dim=1).to(features)
    spans = [of.flatten(2).amax(2) - of.flatten(2).amin(2) for of in (maps, project_maps(features, random))]
    # Of directions of length 1.
    own = spans[0] / weights.detach().to(maps).norm(dim=1)[concepts]
    return (own > spans[1].amax(1, keepdim=True)).to(maps).masked_fill(own.isnan(), torch.nan)


def _gaussian(size: tuple[int, int]) -> Tensor:
    """Return a Gaussian (H, W) at the centre of the image, whose deviation is a quarter of each side."""
    y, x = (((torch.arange(side) + 0.5) / side - 0.5) * 4 for side in size)
    return (-(y[:, None] ** 2 + x**2) / 2).exp()


def to_regions(name: str, value: Any) -> np.ndarray:
    """Return masks (N, P, H, W) of bool, or boxes (N, P, 4) of float, NaN where not visible; or raise."""
    array = to_array(name, value)
    if array.ndim == 4:
        if array.size and array.dtype != bool:
            check_binary(name, array, " Masks are 0 and 1: `masks > 127`.")
        return array.astype(bool, copy=False)
    if array.ndim != 3 or array.shape[2] != 4:
        raise ValueError(
            f"Expected argument `{name}` to be masks (N, P, H, W), or boxes (N, P, 4) of x, y, width and height, but "
            f"got shape {array.shape}."
        )
    boxes = array.astype(np.float64)
    hidden = np.isnan(boxes).any(2)
    check_finite(name, boxes[~hidden])
    if (boxes[~hidden][:, 2:] <= 0).any():
        raise ValueError(
            f"Expected argument `{name}` to hold boxes of x, y, width and height above 0, NaN where a part is not "
            "visible, but got a width or height that is not above 0. Corners (x0, y0, x1, y1) are another form."
        )
    return boxes


def check_regions(parts: np.ndarray, regions: Any, size: tuple[int, int]) -> None:
    """Raise where regions do not fit the images, or the parts of concepts."""
    if parts.max(initial=-1) >= regions.shape[1]:
        raise ValueError(
            f"Expected argument `part_of_concept` to name parts below P = {regions.shape[1]}, the parts in `regions`, "
            f"but got {parts.max()}."
        )
    if regions.ndim == 4 and tuple(regions.shape[2:]) != size:
        raise ValueError(
            f"Expected argument `regions` to have the size of the images, (H, W) = {size}, but got "
            f"{tuple(regions.shape[2:])}. Resize masks with nearest-neighbour interpolation."
        )
    if regions.ndim == 3:
        x, y, width, height = torch.as_tensor(regions).unbind(2)
        # Annotators draw a pixel over the edge.
        outside = (x < -1) | (y < -1) | (x + width > size[1] + 1) | (y + height > size[0] + 1)
        if outside.any():
            raise ValueError(
                f"Expected argument `regions` to hold boxes in the images, of (H, W) = {size} pixels, but "
                f"{int(outside.sum())} reach outside. Give x, y, width and height in pixels of the images passed, not "
                "of the photographs they were made from."
            )


def region_masks(regions: Tensor, size: tuple[int, int]) -> Tensor:
    """Return masks (..., H, W) of bool of regions that are masks, or boxes (..., 4) around the centres of pixels."""
    if regions.dtype == torch.bool:
        return regions
    x, y, width, height = regions.unbind(-1)
    columns, rows = torch.arange(size[1]) + 0.5, torch.arange(size[0]) + 0.5
    across = (columns >= x[..., None]) & (columns < (x + width)[..., None])
    down = (rows >= y[..., None]) & (rows < (y + height)[..., None])
    return down[..., None] & across[..., None, :]


class ConceptRegions(ConceptMetric):
    """Concept maps against the masks, or boxes, of their parts: how much of a map is where its concept is?

    `CLM` asks whether a point lies in the most active twelfth of a map. With the whole region of a part known, no size
    has to be chosen (`functional.region_scores`):

    - "iou": the pixels of largest value, as many as the part has, against the part. Intersection over union.
    - "energy": the share of the map that lies inside; the energy-based pointing game (Wang et al. 2020).
    - "hit": the pixel of largest value lies inside; the pointing game (Zhang et al. 2018).
    - "coverage": the map spans more than those of 39 random directions of the same features. A map that names nothing
      counts as the same everywhere, so that silence is not rewarded; coverage says how often maps name something.

    In tables of `score_concepts` coverage stands beside each of the others.

    - **On explanations** ``model`` is a concept predictor, ``y_batch`` the concept explained, the attributions are the
      map (summed over channels; resized as in `CLM`), and ``s_batch`` (N, 1, H, W) marks its region, or `regions` and
      `part_of_concept` are bound. There is no coverage.
    - **On images** ``model`` is a concept model (`ConceptModel`): the metric ranks the concepts that have a part by
      importance for ``y_batch``, takes the first `top_l`, drops those whose part is not visible and averages the rest.
      The explanation method then plays no role.

    Parameters
    ----------
    score : str
        "iou", "energy", "hit" or "coverage": what a call gives.
    regions : array_like, optional
        (N, P, H, W) of 0 and 1: the mask of each part at the size of the images in ``x_batch``, empty where not
        visible; or (N, P, 4): boxes as x, y, width and height in their pixels, (0, 0) being the corner of the first,
        NaN where not visible. Batches may have them under this name.
    part_of_concept : array_like, optional
        (L,) of int: the part each concept is about, -1 for none. Of one mask for the whole object, (N, 1, H, W), all
        concepts have part 0.
    top_l : int
        On images: how many concepts count.
    importance : str
        On images: "effect", "contribution", "value" or "weight", as in `CLM`.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Of signed attributions energy depends
        on what is done with the sign: ``abs=True``, or a `normalise_func`.

    Raises
    ------
    ValueError
        If an argument is out of its range, or regions are no masks or boxes in the images.

    Notes
    -----
    Scores are in [0, 1], higher is better, 1 where the map is the mask. Chance, in ``records[-1].chance``, is the share
    of the image that the part takes, which a map that is the same everywhere scores; white noise does, too, but for its
    IoU, which is about half of that for small parts. Coverage has a chance of 1 in 40. Any map that sits on the object
    scores more: compare with random banks, and in tables with "mean region of the part" in the other images (of
    `regions` that are bound to the metric) and with a centred Gaussian. NaN, counted by reason in
    ``records[-1].reasons``: no visible part, a map or an importance that cannot be used; coverage, of a model without
    directions (``map_weights``).

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import ConceptRegions
    >>> model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> images = np.zeros((2, 3, 12, 12), dtype="float32")
    >>> maps = np.zeros((2, 1, 12, 12), dtype="float32")
    >>> maps[:, :, 3] = 1
    >>> boxes = [[[0, 3, 12, 1]], [[0, 2, 12, 2]]]  # row 3, and rows 2 and 3
    >>> metric = ConceptRegions("iou", regions=boxes, part_of_concept=[0])
    >>> metric(model, images, y_batch=np.array([0, 0]), a_batch=maps)
    [1.0, 0.5]
    """

    name = "ConceptRegions"
    data_applicability = {DataType.IMAGE}  # noqa: RUF012
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.LOCALISATION
    bounds = (0.0, 1.0)
    sample_truth = ("regions",)

    def __init__(
        self,
        score: str = "iou",
        regions: Numbers | None = None,
        part_of_concept: Numbers | None = None,
        top_l: int = 1,
        importance: str = "effect",
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Set the score and bind the regions. A score of 1 says that the map is the part.

        A map that is the same everywhere scores the share of the image that the part takes.
        """
        super().__init__(**quantus)
        check_choice("score", score, SCORES)
        check_choice("importance", importance, IMPORTANCES)
        if regions is not None and part_of_concept is None:
            raise ValueError("Argument `regions` also needs `part_of_concept`, the part of each concept.")
        self.score, self.importance, self.top_l = score, importance, check_whole("top_l", top_l, 1)
        self.part_of_concept = None if part_of_concept is None else to_parts("part_of_concept", part_of_concept)
        if self.part_of_concept is not None and top_l > (known := int((self.part_of_concept >= 0).sum())):
            raise ValueError(
                f"Expected argument `top_l` to be at most the number of concepts with a part, {known}, but got {top_l}."
            )
        self._bind(regions=regions)
        self._bound_name = named_by(self.bound_truth.get("regions"))

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return masks (N, P, H, W) or boxes (N, P, 4), or raise."""
        return to_regions(name, value)

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Return the regions of a call, those of parts or the masks of the explained concepts; raise without any."""
        check_image_axes(x_batch)
        if "regions" in truth:
            if self.part_of_concept is None:
                raise ValueError("Argument `regions` needs `part_of_concept` in the constructor.")
            check_regions(self.part_of_concept, truth["regions"], (x_batch.shape[2], x_batch.shape[3]))
            if not is_concept_model(model) and ((y_batch < 0) | (y_batch >= len(self.part_of_concept))).any():
                raise ValueError(
                    f"Expected argument `y_batch` to hold concepts 0 to {len(self.part_of_concept) - 1}, as many as "
                    "`part_of_concept` has. Where it holds classes, pass a concept model as `model`."
                )
            return {"regions": truth["regions"]}
        if truth.get("s_batch") is None:
            raise ValueError(
                "ConceptRegions needs to know where concepts are: bind `regions` and `part_of_concept`, or pass "
                "`s_batch` (N, 1, H, W) with explanations of concepts."
            )
        masks = to_masks("s_batch", truth["s_batch"])
        check_mask_size("s_batch", masks, x_batch)
        return {"masks": masks[:, 0]}

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
        if "regions" in truth and is_concept_model(model):
            return super().rows_of(model, x_batch, y_batch, explain, truth, banks=banks)
        if self.score == "coverage":
            raise ValueError(
                "Expected argument `score` to be another than 'coverage' of explanations: it compares maps with those "
                "of random directions of a concept model. Pass images with a concept model, and `regions`."
            )
        size = (x_batch.shape[2], x_batch.shape[3])
        attributions, why, explained = usable_maps(explain, size)
        if "masks" in truth:
            masks = torch.as_tensor(truth["masks"])
        else:
            part = cast(np.ndarray, self.part_of_concept)[y_batch]
            why = add_reason(why, part < 0, "the explained concept has no part")
            masks = region_masks(torch.as_tensor(truth["regions"])[torch.arange(len(part)), part.clip(0)], size)
            masks = masks & torch.as_tensor(part >= 0)[:, None, None]
        seen = masks.flatten(1).any(1).numpy()
        why = add_reason(why, ~seen & (why == ""), "nothing is marked")
        found = region_scores(torch.as_tensor(attributions.astype(float)), masks)
        area = np.where(seen, masks.numpy().mean((1, 2)), np.nan)
        return Scored(getattr(found, self.score).numpy(), area, why, None, explained)

    def with_tables(self, tables: Mapping[str, Any]) -> ConceptRegions:
        """Return the metric with the parts that a call knows, if it was given none."""
        parts = tables.get("part_of_concept")
        if self.part_of_concept is not None or parts is None or int((parts >= 0).sum()) < self.top_l:
            return self
        return self.vary(part_of_concept=parts)

    def look(self) -> Regions | None:
        """Return which maps to look at."""
        if self.part_of_concept is None:
            return None
        settings: dict[str, Any] = {"bound": self.bound_truth, "bound_name": self._bound_name, "top": self.top_l}
        return Regions(optional=self.optional, parts=self.part_of_concept, kind=self.importance, **settings)

    def missing(self, rows: ConceptPredictions) -> str:
        """Return the name of what rows have to have and lack, "" for nothing."""
        return "part_of_concept" if self.part_of_concept is None else super().missing(rows)

    @classmethod
    def usual(cls, tables: Mapping[str, Any]) -> Sequence[ConceptMetric]:
        """Return the scores of a table of all metrics."""
        return [cls(score) for score in ("iou", "energy", "hit")]

    def score_rows(self, rows: Any) -> MetricScores:
        """Return how well maps cover their parts."""
        if isinstance(rows, Scored):
            return scores_of_samples(self.name, rows, self.bounds)
        return self._scores(rows, self.score)

    def table_scores(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the score, and beside it how often maps name anything."""
        kinds = dict.fromkeys((self.score, "coverage"))
        return [self._scores(rows, kind) for kind in kinds]

    def baselines(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the scores of other maps against the same regions."""
        if self.score == "coverage":
            return ()
        names = rows.looks[cast(Regions, self.look()).name].about["rows"][1:]
        return [self._scores(rows, self.score, name) for name in names]

    def _scores(self, rows: ConceptPredictions, kind: str, baseline: str = "") -> MetricScores:
        seen = rows.looks[cast(Regions, self.look()).name]
        norms, unseen, area = (seen.columns[name].double().numpy() for name in ("norms", "hidden", "area"))
        ranks, hidden = (norms > 0) & (norms < np.inf), unseen > 0
        column = seen.columns["scores"][:, seen.about["rows"].index(baseline), [*SCORES].index(kind)]
        values = np.where(ranks, column.double().numpy(), np.nan)[:, None]
        masks = {
            "the model's importances are not finite": ~(norms < np.inf),
            ZERO: norms == 0,
            "no part of the first concepts is visible": ranks & hidden,
            NO_DIRECTIONS if kind == "coverage" else NOT_FINITE: np.isnan(values[:, 0]) & ranks & ~hidden,
        }
        # Of another name the title says which metric it is beside.
        name = f"{self.title}, {SCORES[kind]}" if self.title and kind != self.score else SCORES[kind]
        named = {"metric": name, "explanation": self.importance, "baseline": baseline, "l": self.top_l}
        return MetricScores(
            [named | {"convention": rows.convention(self.importance)}],
            values,
            1 / (N_RANDOM + 1) if kind == "coverage" else area[:, None],
            (rows.classes if seen.places is None else rows.classes[seen.places]).numpy(),
            self.bounds,
            lambda _: {} if baseline else counted(masks, len(values)),
        )
