"""Faithfulness: does the model need what an attribution calls relevant, and only that?"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Unpack, cast

import numpy as np
import torch
from quantus.helpers.enums import DataType, EvaluationCategory, ScoreDirection
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor, nn
from torch.nn.functional import pad

from captum_concepts.support.checks import check_choice, check_normalisation, check_range, check_whole
from captum_concepts.support.running import tensor_output, to_host, to_model, widest_float
from quantus_concepts.functional.attribution.faithfulness import faithfulness, pixel_counts, relevance_ranks
from quantus_concepts.metrics.host.checks import check_image_axes, check_outputs, checked_classes
from quantus_concepts.metrics.host.explanations import FAILED, Explanations, add_reason, usable
from quantus_concepts.metrics.host.metric import AttributionMetric
from quantus_concepts.metrics.host.model import share
from quantus_concepts.metrics.host.predictions import Scored
from quantus_concepts.metrics.host.record import QuantusArguments

THRESHOLDS = tuple(range(10, 100, 10))
OUTPUTS = ("logits", "probabilities")
#: How far rounding may carry a probability out of [0, 1].
ROUNDING = 1e-3
CONSTANT = "attributions are the same at every pixel, so that pixels have no order"


@dataclass(frozen=True)
class FaithfulnessScored(Scored):
    """Scores with the sufficiency and the necessity (n,) of each."""

    sufficiency: np.ndarray = field(default_factory=partial(np.empty, 0))
    necessity: np.ndarray = field(default_factory=partial(np.empty, 0))


class Faithfulness(AttributionMetric):
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

    settings = ("perturbation", "thresholds", "noise", "mean", "std", "pixel_range", "outputs", "seed")
    results = ("sufficiency", "necessity")

    sufficiency: list[float]
    necessity: list[float]

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
        for threshold in thresholds:
            check_whole("thresholds", threshold, 2, 100)
        if not len(thresholds):
            raise ValueError("Expected argument `thresholds` to hold at least one percentage but it is empty.")
        check_choice("outputs", outputs, OUTPUTS)
        if chunk_size is not None:
            check_whole("chunk_size", chunk_size, 1)
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

    def check_call(
        self,
        model: nn.Module | None,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        truth: dict[str, np.ndarray],
        explain: Explanations,
    ) -> dict[str, np.ndarray]:
        """Check all samples of a call together."""
        if model is None:
            raise ValueError("Faithfulness needs argument `model`, to see what it makes of perturbed images.")
        check_image_axes(x_batch)
        self._pixels.check_images(x_batch)
        n_pixels = x_batch.shape[2] * x_batch.shape[3]
        if not pixel_counts(n_pixels, self.thresholds).any():
            raise ValueError(
                f"Expected argument `thresholds` to reach a pixel but {max(self.thresholds)} % of images of "
                f"{n_pixels} pixels are none. Add larger ones."
            )
        return {}

    def score_batch(
        self, model: nn.Module, x_batch: np.ndarray, y_batch: np.ndarray, explain: Explanations, **truth: np.ndarray
    ) -> FaithfulnessScored:
        """Score some samples, with their sufficiency and necessity."""
        a_batch, failure = explain()
        by_channel = a_batch[:, None] if a_batch.ndim == 3 else a_batch
        shape = (by_channel.shape[1] if by_channel.ndim == 4 else 1, *x_batch.shape[2:])
        attributed = usable(by_channel, failure, shape, "a map (C, H, W) of the images' size")
        maps = attributed.values.sum(1, dtype=float)
        constant = np.ptp(maps, axis=(1, 2)) == 0
        why = add_reason(attributed.reason, constant, FAILED + CONSTANT)
        good = why == ""
        scores = np.full((3, len(x_batch)), np.nan)
        if good.any():
            # An array of its own where some are left out: a batch as it is shares its outputs.
            images, rows = (x_batch, slice(None)) if good.all() else (x_batch[good], good)
            kwargs = explain.call.model_predict_kwargs
            changes = self._changes(model, images, y_batch[rows], torch.as_tensor(maps[rows]), len(x_batch), kwargs)
            scores[:, good] = torch.stack(faithfulness(*changes, self.thresholds)).numpy()
            why = add_reason(why, good & np.isnan(scores[0]), "the model's outputs are not finite")
        unknown = np.full(len(x_batch), np.nan)
        return FaithfulnessScored(scores[0], unknown, why, None, attributed.explained, scores[1], scores[2])

    def keep_results(self, scored: Any) -> None:
        """Keep what else the samples have."""
        scored = cast(FaithfulnessScored, scored)
        self.sufficiency, self.necessity = scored.sufficiency.tolist(), scored.necessity.tolist()

    def _changes(
        self,
        model: nn.Module,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        maps: Tensor,
        n_samples: int,
        predict_kwargs: Mapping[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """Return by how much perturbations move p(y|x), each (n, L) in float64 on the CPU."""
        # First of the least, then of the most relevant pixels.
        chunk = self.chunk_size or n_samples
        images = to_model(model, x_batch)
        prepared = self._pixels.prepare(x_batch, images)
        ranks = relevance_ranks(maps.to(images.device, widest_float(images.device)), prepared.order)
        counts = pixel_counts(maps[0].numel(), self.thresholds)
        # Several percentages of a small image are the same pixels.
        distinct = counts[counts > 0].unique()
        classes = torch.as_tensor(y_batch.astype(np.int64))
        if len(x_batch) == n_samples <= chunk and not predict_kwargs:
            outputs = share("logits", model, x_batch, lambda: _outputs(model, images, predict_kwargs))
            clean = self._probability(outputs, classes)
        else:
            parts = zip(images.split(chunk), classes.split(chunk), strict=True)
            clean = torch.cat([self._probability(_outputs(model, x, predict_kwargs), y) for x, y in parts])
        perturbed = _perturb(prepared, ranks, distinct.to(ranks.device), chunk)
        outputs_of_chunks = [_outputs(model, part, predict_kwargs) for part in perturbed]
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

    def _probability(self, outputs: Tensor, classes: Tensor) -> Tensor:
        """Return p(y|x), (b,)."""
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        if self.outputs == "probabilities":
            if ((outputs < -ROUNDING) | (outputs > 1 + ROUNDING)).any():
                raise ValueError(
                    "Expected the model to return probabilities, as argument `outputs` says, but some are outside "
                    "[0, 1]. Pass outputs='logits'."
                )
        else:
            outputs = outputs.softmax(1)
        return outputs.gather(1, checked_classes(classes.numpy(), outputs)[:, None])[:, 0]


@torch.no_grad()
def _outputs(model: nn.Module, images: Tensor, predict_kwargs: Mapping[str, Any]) -> Tensor:
    # Images are on the model's device already; looking for it again with each batch takes time.
    return check_outputs(tensor_output(model(images, **predict_kwargs)), len(images))


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


#: Kinds of perturbation, with how strong their noise is by default, as a share of the range from black to white.
NOISE = {"black": 0.0, "uniform": 0.2, "gaussian": 0.2, "road": 0.01}


@dataclass(frozen=True)
class Prepared:
    """Images, and all that is needed to perturb any of their pixels."""

    images: Tensor
    replacements: Tensor
    order: Tensor
    imputing: bool

    def perturb(self, row: int, masks: Tensor, out: Tensor) -> None:
        """Perturb some pixels of an image, in several ways."""
        image, other = self.images[row], self.replacements[row]
        if self.imputing:
            other = impute_pixels(image.expand_as(out), masks) + other
        # With weights of 0 and 1 exactly one of the two, and several times as fast as torch.where on a CPU.
        torch.lerp(image, other, masks[:, None].view(torch.uint8).to(image.dtype), out=out)


@dataclass(frozen=True)
class PixelPerturbation:
    """A kind of perturbation, in the units of a model's images."""

    # The noise of an image depends on `seed` and on the image only: neither on the batch it is in nor on its
    # explanation, so that methods are compared under the same noise.

    kind: str
    noise: float | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    pixel_range: tuple[float, float] | None = None
    seed: int = 0
    level: float = field(init=False)

    def __post_init__(self) -> None:
        check_choice("perturbation", self.kind, NOISE)
        if self.noise is not None and self.kind == "black":
            raise ValueError("Expected no argument `noise` with perturbation 'black', which has none.")
        if self.noise is not None:
            check_range("noise", self.noise, 0, math.inf, open_low=self.kind != "road", open_high=True)
        object.__setattr__(self, "level", NOISE[self.kind] if self.noise is None else float(self.noise))
        check_normalisation(self.mean, self.std)
        if self.mean is not None and self.pixel_range is not None:
            raise ValueError("Expected either `mean` and `std` or argument `pixel_range` but got all of them.")
        if self.pixel_range is not None and not self.pixel_range[0] < self.pixel_range[1]:
            raise ValueError(f"Expected argument `pixel_range` to be black and white but got {self.pixel_range}.")

    def check_images(self, images: np.ndarray) -> None:
        """Raise where images contradict the normalisation."""
        if self.mean is not None and len(self.mean) != images.shape[1]:
            raise ValueError(
                f"Expected argument `mean` to have {images.shape[1]} numbers, one for each channel of `x_batch`, but "
                f"got {len(self.mean)}."
            )

    def prepare(self, images: np.ndarray, like: Tensor) -> Prepared:
        """Draw what the perturbations of some images need."""
        orders, noises = zip(*(self._draw_noise(image) for image in images), strict=True)
        black, scale = self._range(like)
        if self.kind == "black":
            replacements = black.expand_as(like)
        else:
            noise = torch.as_tensor(np.stack(noises)).to(like) * (self.level * scale)
            replacements = noise if self.kind == "road" else like + noise
        order = torch.as_tensor(np.stack(orders), device=like.device)
        return Prepared(like, replacements, order, imputing=self.kind == "road")

    def _draw_noise(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw an order (P,) of an image's pixels, and noise (C, H, W) of unit strength."""
        rng = generator_of(image, self.seed)
        order = rng.permutation(image.shape[1] * image.shape[2])
        if self.kind == "black":
            return order, np.empty(0)
        if self.kind == "uniform":
            return order, rng.uniform(-1, 1, image.shape).astype(np.float32)
        return order, rng.standard_normal(image.shape, dtype=np.float32)

    def _range(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return what black is in images, and how far white is from it; both broadcast to (N, C, H, W)."""

        def tensor(value: Any) -> Tensor:
            return torch.as_tensor(np.asarray(value, dtype=float)).to(images)[..., None, None]

        if self.mean is not None and self.std is not None:
            mean, std = np.asarray(self.mean, dtype=float), np.asarray(self.std, dtype=float)
            return tensor(-mean / std), tensor(1 / std)
        if self.pixel_range is not None:
            low, high = self.pixel_range
            return tensor([low]), tensor([high - low])
        black = images.amin((1, 2, 3), keepdim=True).clamp(max=0)
        return black, images.amax((1, 2, 3), keepdim=True).clamp(min=1) - black


def generator_of(image: np.ndarray, *seeds: int) -> np.random.Generator:
    """Return a generator that depends on an image's content, and so not on the batch it comes in."""
    digest = hashlib.blake2b(image.astype(np.float32).tobytes(), digest_size=8).digest()
    return np.random.default_rng([*seeds, int.from_bytes(digest, "little")])


#: Weights of the neighbours beside and above, and of those at the corners.
EDGE, CORNER = 1 / 6, 1 / 12
#: Norm of what is left of the equations, as a share of their right side, at which an image is done.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}
#: Steps between two looks at whether all images are done, each of which waits for the device.
BETWEEN_LOOKS = 16


def impute_pixels(images: Tensor, masks: Tensor) -> Tensor:
    """Fill the masked pixels (n, H, W) of images (n, C, H, W) in from the others, on the images' device."""
    # Rong et al. (2022), "ROAD": each missing pixel is the weighted mean of its eight neighbours, missing ones
    # included, which is a system of linear equations for each image. They are those of Quantus's
    # `noisy_linear_imputation` without its noise, which is of the global generator and left to the caller.
    if images.device.type == "cpu":
        return solve_system(images, masks)
    return descend(images, masks)


def solve_system(images: Tensor, masks: Tensor) -> Tensor:
    """Solve each image's equations by elimination, on the CPU; several times as fast there as iterating."""
    equations = _equations(*images.shape[2:])
    imputed = [_eliminate(equations, *pair) for pair in zip(images.double().numpy(), masks.numpy(), strict=True)]
    return torch.as_tensor(np.stack(imputed)).to(images)


@lru_cache(maxsize=4)
def _equations(height: int, width: int) -> Any:
    """Return (P, P): the weights a pixel's neighbours have in all, and minus that of each."""
    places = np.arange(height * width).reshape(height, width)
    rows, columns, weights = [], [], []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            if down or right:
                here = places[max(0, -down) : height - max(0, down), max(0, -right) : width - max(0, right)]
                there = places[max(0, down) : height + min(0, down), max(0, right) : width + min(0, right)]
                rows.append(here.ravel())
                columns.append(there.ravel())
                weights.append(np.full(here.size, CORNER if down and right else EDGE))
    joined = [np.concatenate(parts) for parts in (weights, rows, columns)]
    neighbours = sparse.csr_matrix((joined[0], (joined[1], joined[2])), shape=(places.size, places.size))
    return (sparse.diags(np.asarray(neighbours.sum(1)).ravel()) - neighbours).tocsr()


def _eliminate(equations: Any, image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    missing = np.flatnonzero(mask)
    pixels = image.reshape(len(image), -1).T.copy()
    if missing.size:
        pixels[missing] = 0
        rows_of_missing = equations[missing]
        # Symmetric and dominated by its diagonal, so that no pivot is needed.
        factors = splu(
            rows_of_missing[:, missing].tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        pixels[missing] = factors.solve(-(rows_of_missing @ pixels))
    return pixels.T.reshape(image.shape)


def descend(images: Tensor, masks: Tensor) -> Tensor:
    """Solve the equations of all images together by conjugate gradients, on their device."""
    # In double precision where the device has it. An image that is done stays as it is, whatever is in the batch.
    exact = widest_float(images.device)
    missing = masks[:, None].to(exact)
    known_pixels = images.to(exact) * (1 - missing)
    total_weights = _neighbours(torch.ones_like(missing))
    right_side = _neighbours(known_pixels) * missing
    share = (1 - missing).mean((2, 3), keepdim=True)
    values = known_pixels.mean((2, 3), keepdim=True) / share * missing

    def left_side(pixels: Tensor) -> Tensor:
        return (total_weights * pixels - _neighbours(pixels)) * missing

    def product(first: Tensor, second: Tensor) -> Tensor:
        return (first * second).sum((2, 3), keepdim=True)

    residual = right_side - left_side(values)
    direction, size = residual, product(residual, residual)
    # Not of the right side alone, which is 0 where all the neighbours are.
    enough = TOLERANCE[exact] ** 2 * (product(right_side, right_side) + size)
    # In exact arithmetic the number of unknowns suffices; in practice a few times the image's side does.
    for step in range(16 * (images.shape[2] + images.shape[3])):
        going = size > enough
        if step % BETWEEN_LOOKS == 0 and not bool(going.any()):
            break
        image = left_side(direction)
        along = torch.where(going, size / product(direction, image), 0)
        values = values + along * direction
        residual = residual - along * image
        before, size = size, torch.where(going, product(residual, residual), size)
        direction = residual + torch.where(going, size / before, 0) * direction
    return torch.where(masks[:, None], values, images.to(exact)).to(images)


def _neighbours(pixels: Tensor) -> Tensor:
    """Return the weighted sum of each pixel's eight neighbours; there are none beyond the edge."""
    # (1, 2, 1) down and across has weights 1 and 2, and 4 in the middle.
    padded = pad(pixels, (1, 1, 1, 1))
    down = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    across = down[..., :-2] + 2 * down[..., 1:-1] + down[..., 2:]
    return across * CORNER - pixels * (4 * CORNER)
