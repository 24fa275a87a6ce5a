"""Faithfulness: does the model need what an attribution calls relevant, and only that?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from quantus.helpers.enums import DataType, EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts._support.constraints import WEIGHT, Choice, Ends, Seed, Whole, check_arguments
from captum_concepts._support.running import alone_with, tensor_output, to_host, to_model
from quantus_concepts.functional.faithfulness import PERCENTAGES, faithfulness, pixel_counts, pixel_ranks
from quantus_concepts.metrics.faithfulness.perturbation import PERTURBATIONS, PixelPerturbation, Prepared
from quantus_concepts.metrics.host.base import ImageMetric
from quantus_concepts.metrics.host.call import QuantusArguments, WholeProgress
from quantus_concepts.metrics.host.checks import check_images, check_outputs, checked_classes

THRESHOLDS = tuple(range(10, 100, 10))
OUTPUTS = ("logits", "probabilities")
#: How far rounding may carry a probability out of [0, 1].
ROUNDING = 1e-3


class Faithfulness(ImageMetric):
    """Faithfulness: harmonic mean of an explanation's sufficiency and necessity.

    Kazmierczak et al., Appendix B.2, Eq. 5 and Algorithm 1, after Azzolin et al. (2025). The i % least relevant pixels
    are perturbed, for i = 1, 3, ... below a threshold; d, the mean of ``|p(y|x) - p(y|x')|``, gives the sufficiency
    exp(-d). The same with the most relevant pixels gives the necessity 1 - exp(-d). Each of the two is the best value
    over the thresholds. An image perturbed at i % serves all thresholds, so that the model sees each of them once:
    1 + 2 L images, L the number of different pixel counts.

    Parameters
    ----------
    perturbation : str
        "black"; "uniform" or "gaussian" noise, added to the pixels as Quantus's functions do; or "road", which
        imputes them from their neighbours as Quantus's `noisy_linear_imputation` does: on an accelerator in one step
        by conjugate gradients, to 1e-10 of the equations; on a CPU exactly, which takes a multiple of the time of a
        small network (20 ms for most of 64 x 64 px) and up to half a second for most of 224 x 224.
    thresholds : sequence of int
        Percentages of the pixels, whole numbers in [2, 100]; the largest tells how many images the model sees. The
        paper does not give its list.
    noise : float, optional
        As a share of the range from black to white: half the width of uniform noise, standard deviation of Gaussian
        noise and of the one on ROAD's imputed pixels. 0.2, 0.2 and 0.01 if None; the paper gives none.
    mean : sequence of float, optional
        Mean of the normalisation of the images, for each channel: black is -mean / std, and the range 1 / std.
    std : sequence of float, optional
        Standard deviation of the normalisation.
    pixel_range : tuple of float, optional
        Black and white, in place of `mean` and `std`. With neither, black is 0 and white 1, unless the image has
        darker and brighter pixels: then they are its darkest and its brightest value, as Quantus's baseline "black".
    outputs : str
        Outputs of the model: "logits", of which the softmax is taken, or "probabilities".
    chunk_size : int, optional
        Images the model sees at a time; if None, as many as there are samples in a batch.
    seed : int
        Seed of the noise and of the order of equally relevant pixels. The draw for an image depends on this and on
        the image only.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Only the order of the pixels counts,
        which no normalisation by scale changes. The default aggregate is the mean of the defined scores.

    Attributes
    ----------
    sufficiency : list of float
        N values of the last call.
    necessity : list of float
        N values of the last call.

    Raises
    ------
    TypeError
        If a threshold, `chunk_size` or `seed` is no whole number.
    ValueError
        If an argument is out of range or arguments contradict each other.

    Notes
    -----
    Higher is better. The formula keeps necessity below 1 - 1/e = 0.63 and so the score below 0.77. y is the class in
    ``y_batch``; the paper takes the predicted one. Attributions (N, C, H, W) are summed over channels. Equally
    relevant pixels are taken in an order drawn at random: in that of their position a map with a large plateau would
    lose the image from its upper edge on, and score what happens to be there. NaN: attributions that are the same at
    every pixel, not finite, or of another size than the image. The best over thresholds favours the smallest one
    for sufficiency, where the fewest pixels are gone; compare scores of the same list only. On small images black and
    noisy pixels are so unusual for a network that any scattered map moves it: compare a method with a random one
    (`captum_concepts.RandomAttribution`), not with 0.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from quantus_concepts import Faithfulness
    >>> model = nn.Sequential(nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten())  # top or bottom?
    >>> images = torch.tensor([1.0, 1, 0, 0]).view(4, 1).expand(1, 1, 4, 4)
    >>> metric, y = Faithfulness(thresholds=[50]), torch.tensor([0])
    >>> right = metric(model, images, y, a_batch=images)
    >>> wrong = metric(model, images, y, a_batch=1 - images)
    >>> right > wrong
    True
    """

    name = "Faithfulness"
    data_applicability = {DataType.IMAGE}  # noqa: RUF012
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.FAITHFULNESS
    bounds = (0.0, 1.0)

    results = ("sufficiency", "necessity")

    sufficiency: list[float]
    necessity: list[float]

    @check_arguments(
        perturbation=Choice(PERTURBATIONS),
        thresholds=PERCENTAGES,
        noise=WEIGHT,
        pixel_range=Ends(),
        outputs=Choice(OUTPUTS),
        chunk_size=Whole(1),
        seed=Seed(),
    )
    def __init__(
        self,
        perturbation: str = "black",
        thresholds: Sequence[int] = THRESHOLDS,
        noise: float | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        pixel_range: tuple[float, float] | None = None,
        outputs: str = "logits",
        chunk_size: int | None = None,
        seed: int = 0,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Set the perturbation. A score of 1 says that the model needs the relevant pixels and no others.

        A score of 0 says that it does without them. The formula ends at 2 (e - 1) / (2 e - 1) = 0.77.
        """
        super().__init__(**quantus)
        self._pixels = PixelPerturbation(perturbation, noise, mean, std, pixel_range, seed)
        self.perturbation = perturbation
        self.noise = self._pixels.level
        self.mean = mean
        self.std = std
        self.pixel_range = pixel_range
        self.seed = seed
        self.thresholds = tuple(sorted(set(thresholds)))
        self.outputs = outputs
        self.chunk_size = chunk_size
        self.sufficiency = []
        self.necessity = []

    def _check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, s_batch: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        if model is None:
            raise ValueError("Faithfulness needs argument `model`, to see what it makes of perturbed images.")
        check_images(x_batch)
        self._pixels.check_images(x_batch)
        n_pixels = x_batch.shape[2] * x_batch.shape[3]
        if not pixel_counts(n_pixels, self.thresholds).any():
            raise ValueError(
                f"Expected argument `thresholds` to reach a pixel but {max(self.thresholds)} % of images of "
                f"{n_pixels} pixels are none. Add larger ones."
            )
        self.sufficiency = []
        self.necessity = []
        self._passes_per_image = 1 + 2 * len(set(pixel_counts(n_pixels, self.thresholds).tolist()) - {0})
        self._begin(
            WholeProgress(self.name, len(x_batch) * self._passes_per_image, "image", bool(self._display_progressbar))
        )
        return {}

    def evaluate_batch(
        self,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray,
        rows_batch: np.ndarray,
        **kwargs: Any,
    ) -> list[float]:
        """Score some samples; keep sufficiency and necessity."""
        maps, usable = self._relevance(a_batch, x_batch.shape[2:])
        self._advance(int((~usable).sum()) * self._passes_per_image)
        scores = np.full((3, len(x_batch)), np.nan)
        if usable.any():
            irrelevant, relevant = self._changes(
                model.get_model(),
                x_batch[usable],
                y_batch[usable],
                torch.as_tensor(maps[usable]),
                len(x_batch),
                rows_batch[usable],
            )
            scores[:, usable] = torch.stack(faithfulness(irrelevant, relevant, self.thresholds)).numpy()
            undefined = int(np.isnan(scores[0, usable]).sum())
            if undefined:
                self.leave_out("the model's outputs are not finite", undefined)
        self.sufficiency.extend(scores[1].tolist())
        self.necessity.extend(scores[2].tolist())
        return scores[0].tolist()

    def _relevance(self, a_batch: np.ndarray, size: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return maps (n, H, W), summed over channels, and which of them give an order; the reason is noted."""
        by_channel, usable = self._usable_maps(a_batch, size)
        maps = by_channel.sum(1, dtype=float)
        constant = np.ptp(maps, axis=(1, 2)) == 0
        if constant.any():
            self.fail("attributions are the same at every pixel, so that pixels have no order", int(constant.sum()))
        return maps, usable & ~constant

    def _changes(
        self,
        model: nn.Module,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        maps: Tensor,
        n_samples: int,
        rows: np.ndarray,
    ) -> tuple[Tensor, Tensor]:
        """Return by how much perturbations move p(y|x), each (n, L) in float64 on the CPU."""
        # First of the least, then of the most relevant pixels.
        chunk = self.chunk_size or n_samples
        images = to_model(model, x_batch)
        prepared = self._pixels.prepare(x_batch, images)
        ranks = pixel_ranks(maps.to(images.device), prepared.order)
        counts = pixel_counts(maps[0].numel(), self.thresholds)
        # Several percentages of a small image are the same pixels.
        distinct = counts[counts > 0].unique()
        classes = torch.as_tensor(y_batch.astype(np.int64))
        if len(images) <= chunk:
            outputs = self._logits(model, rows, lambda: self._outputs(model, images))
            clean = self._probability(outputs, classes)
        else:
            parts = zip(images.split(chunk), classes.split(chunk), strict=True)
            clean = torch.cat([self._probability(self._outputs(model, x), y) for x, y in parts])
        self._advance(len(images))
        outputs_of_chunks = []
        for perturbed in _perturb(prepared, ranks, distinct.to(ranks.device), chunk):
            outputs_of_chunks.append(self._outputs(model, perturbed))
            self._advance(len(perturbed))
        # All together: what is done for each chunk is launched as often as the model is.
        probabilities = self._probability(torch.cat(outputs_of_chunks), classes.repeat_interleave(2 * len(distinct)))
        changes = (probabilities.view(len(images), 2, -1) - clean[:, None, None]).abs()
        table, defined = to_host(changes, clean.isfinite())
        # No pixel perturbed, no change.
        table = torch.cat([torch.zeros(len(images), 2, 1, dtype=torch.float64), table.double()], 2)
        column = torch.searchsorted(distinct, counts) + (counts > 0)
        # A clean output that is not finite has no changes.
        table = torch.where(defined[:, None, None], table, torch.nan)
        irrelevant, relevant = table[:, :, column].unbind(1)
        return irrelevant, relevant

    @torch.no_grad()
    def _outputs(self, model: nn.Module, images: Tensor) -> Tensor:
        # Images are on the model's device already; looking for it again with each batch takes time.
        with alone_with(model):
            return check_outputs(tensor_output(model(images, **self.call.model_predict_kwargs)), len(images))

    def _probability(self, outputs: Tensor, classes: Tensor) -> Tensor:
        """Return p(y|x), (b,)."""
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        if self.outputs == "probabilities":
            if ((outputs < -ROUNDING) | (outputs > 1 + ROUNDING)).any():
                raise ValueError(
                    "Expected the model to return probabilities, as argument `outputs` says, but some are outside "
                    "[0, 1]. Pass outputs='logits'."
                )
        elif outputs.shape[1] == 1:
            raise ValueError(
                "Expected the model to return a logit for each of at least two classes but got one: its softmax is "
                "always 1. Return the probabilities of both classes and pass outputs='probabilities'."
            )
        else:
            outputs = outputs.softmax(1)
        return outputs.gather(1, checked_classes(classes.numpy(), outputs)[:, None])[:, 0]


def _perturb(prepared: Prepared, ranks: Tensor, counts: Tensor, length: int) -> Iterator[Tensor]:
    """Yield every perturbed image, a few at a time."""
    # The order is by sample, then the least before the most relevant pixels, then by their number.
    # Places in ascending relevance, and in descending.
    # Of 32 bits, since comparing those of 64 takes twice as long.
    places = torch.stack([ranks, ranks[0].numel() - 1 - ranks], 1).flatten(0, 1).int()
    counts = counts.int()
    n_each, total = len(counts), len(places) * len(counts)
    for start in range(0, total, length):
        stop = min(start + length, total)
        images = prepared.images.new_empty(stop - start, *prepared.images.shape[1:])
        for side in range(start // n_each, (stop - 1) // n_each + 1):
            first, last = max(side * n_each, start), min((side + 1) * n_each, stop)
            masks = places[side] < counts[first - side * n_each : last - side * n_each, None, None]
            prepared.perturb(side // 2, masks, out=images[first - start : last - start])
        yield images
