"""Locality (arXiv 2401.01259): does a concept's value change most where its own part is hidden?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Unpack, cast

import numpy as np
import torch
from quantus.helpers.enums import DataType, EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import to_points
from captum_concepts.support.running import floating_images, onto_device
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.attribution.regions import check_places
from quantus_concepts.functional.bottleneck.locality import hide_part, locality
from quantus_concepts.metrics.host.checks import Truth, check_image_axes, check_parts, to_parts
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.looks import Look, Looked, Looking, named_by
from quantus_concepts.metrics.host.model import is_concept_model, no_concept_model
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import MetricScores, counted

NOT_VISIBLE = "no concept's part is visible together with another part"
NOT_VARIED = "concept values do not vary over the images"
NOT_FINITE = "the model's concept values are not finite"
NOT_ASKED = "the model cannot be asked about changed images"


@dataclass(frozen=True)
class Hidden(Look):
    """Locality (n, L) of concept values, in their units, of the same images without each part."""

    reads: tuple[str, ...] = ("points", "without")
    parts: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=int))
    #: Names the truth that is bound.
    bound_name: str = ""

    @property
    def name(self) -> str:
        """What rows call it."""
        return f"hidden parts{named_by(self.parts)}{self.bound_name}"

    def see(self, looking: Looking) -> Looked:
        """Compare the concept values of some images with those of the same images without each part."""
        values = cast(Tensor, looking.rows.values)
        # On the host, where it is known which rows there are without waiting for a device.
        visible = torch.as_tensor(looking.truth["points"]).isfinite().all(-1).any(-1)
        hidden = values.new_full((*visible.shape, values.shape[1]), torch.nan)
        answers = getattr(looking.model, "answers_changed_images", True)
        for part in np.unique(self.parts[self.parts >= 0]).tolist() if answers else ():
            numbers = visible[:, part].nonzero()[:, 0]
            if len(numbers):
                without, _ = looking.ask((self.name, part), lambda device: _without(looking, part, numbers, device))  # noqa: B023
                hidden[numbers.to(values.device), part] = without.to(hidden)
        changes = locality(values, hidden, self.parts).float()
        return Looked({"changes": changes, "asked": torch.full((len(looking),), answers)})


def _without(looking: Looking, part: int, numbers: Tensor, device: torch.device) -> Tensor:
    """Return images of these numbers without a part."""
    if "without" in looking.truth:
        return floating_images(onto_device(torch.as_tensor(looking.truth["without"][numbers, part]), device))
    points = onto_device(torch.as_tensor(looking.truth["points"]), device)
    rows = numbers.to(device)
    return hide_part(floating_images(torch.as_tensor(looking.images, device=device)[rows]), points[rows, part])


class Locality(ConceptMetric):
    """Locality: change of concept values where their own part is hidden, less where another part is.

    After arXiv 2401.01259, which asks whether a concept's value depends on pixels far away from it. Each part of an
    image is hidden in turn, and for every concept with a visible part ``|change of u_j|`` at its own part less the
    weighted mean at the other visible parts is taken, in units of the standard deviation of u_j over the images
    (`functional.locality`). The score of an image is the mean over its concepts. `CLM` asks a map where a concept is;
    this asks the model.

    Parameters
    ----------
    part_of_concept : array_like
        (L,) of int: the part of each concept, -1 for none.
    points : array_like, optional
        (N, P, 2) or (N, P, Q, 2), the places of the parts as (x, y) in pixels, NaN where not visible, aligned with
        ``x_batch``. A part is hidden behind discs of a twelfth of the image in its mean colour.
    without : array_like, optional
        (N, P, C, H, W): the images without each part, in place of discs; `PaintedBirds.without_part` paints them.
    **quantus : Unpack[QuantusArguments]
        What every Quantus metric takes, by keyword.

    Raises
    ------
    ValueError
        If a shape is wrong or a concept is about a part that there is not.

    Notes
    -----
    Higher is better; above 0 values depend on their own part more than on others. 0 is not what a model without
    knowledge scores, since some parts matter more than others for any direction: compare with random banks. NaN: an
    image in which no two parts are visible, or none that a concept is about. A concept whose value does not vary is
    left out. P passes of the backbone, one for each part that a concept is about. A disc may hide neighbouring parts as
    well, and is a thing that no photograph shows: where images without a part can be made, take these.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import Locality
    >>> features = nn.Sequential(
    ...     nn.AdaptiveAvgPool2d((1, 2)),
    ...     nn.Flatten(2),
    ...     nn.Flatten(),
    ...     nn.Unflatten(1, (-1, 1, 1)),
    ... )
    >>> left_and_right = ConceptBank(torch.eye(2))
    >>> model = PostHocCBM(features, left_and_right, nn.Linear(2, 2)).eval()
    >>> images = torch.rand(8, 1, 12, 12, generator=torch.Generator().manual_seed(0)) ** 4
    >>> images[:, :, 5:7, 2:4] += 1 + torch.arange(8.0).view(8, 1, 1, 1) % 3
    >>> images[:, :, 5:7, 8:10] += 1 + torch.arange(8.0).view(8, 1, 1, 1) % 2
    >>> points = torch.tensor([[2.5, 5.5], [8.5, 5.5]]).expand(8, 2, 2)
    >>> metric = Locality(part_of_concept=[0, 1], points=points)
    >>> min(metric(model, images.numpy(), torch.zeros(8, dtype=int).numpy())) > 0
    True
    """

    name = "locality"
    data_applicability = {DataType.IMAGE}  # noqa: RUF012
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.LOCALISATION
    sample_truth = ("points", "without")
    needed = ("points",)

    def __init__(
        self,
        part_of_concept: Numbers,
        points: Numbers | None = None,
        without: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the parts. A score of 1 says that hiding its own part moves a value one standard deviation more."""
        super().__init__(**quantus)
        self.part_of_concept = to_parts("part_of_concept", part_of_concept)
        self._bind(points=points, without=without)
        # Once: images without their parts are many.
        self._bound_name = named_by(*self.bound_truth.values())

    def check_truth(self, name: str, value: Numbers) -> np.ndarray:
        """Return places (N, P, Q, 2) or images (N, P, C, H, W), or raise."""
        if name != "points":
            return super().check_truth(name, value)
        points = to_points(name, value)
        check_parts(self.part_of_concept, points)
        return points

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Raise for anything but images and a concept model."""
        check_image_axes(x_batch)
        if not is_concept_model(model):
            wrong = no_concept_model(self.name, model, x_batch) or "there is none"
            raise ValueError(f"Locality hides parts of images and asks a concept model about them, but {wrong}.")
        check_places(truth["points"], (x_batch.shape[2], x_batch.shape[3]), ("sample", "part", "place"))
        return truth

    def look(self) -> Hidden:
        """Return what has to be seen of the model while it is there."""
        return Hidden(bound=self.bound_truth, bound_name=self._bound_name, parts=self.part_of_concept)

    def missing(self, rows: ConceptPredictions) -> str:
        """Return the name of what rows have to have and lack, "" for nothing."""
        return "" if self.look().name in rows.looks else "points"

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the scores of all images, in units of the standard deviation of each value over them."""
        seen = rows.looks[self.look().name].columns
        values, changes, asked = cast(Tensor, rows.values).float().double(), seen["changes"].double(), seen["asked"]
        finite, visible = values.isfinite().all(1), ~changes.isnan().all(1)
        spread = values[finite].std(0) if int(finite.sum()) > 1 else torch.zeros(values.shape[1])
        scores = (changes / torch.where(spread > 0, spread, torch.nan)).nanmean(1)
        reasons = {
            NOT_ASKED: ~asked,
            NOT_FINITE: asked & ~finite,
            NOT_VISIBLE: asked & finite & ~visible,
            NOT_VARIED: asked & finite & visible & scores.isnan(),
        }
        return MetricScores(
            [{"metric": self.name}],
            scores.numpy()[:, None],
            clusters=rows.classes.int().numpy(),
            bounds=self.bounds,
            reasons=lambda _: counted(reasons, len(scores)),
        )
