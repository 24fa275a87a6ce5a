"""RISE steered by a score: random masks, weighted by how much they change it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor
from torch.nn import functional

from captum_concepts._support.checks import check_axes, check_choice, check_range, check_shape, check_whole, to_tensor
from captum_concepts._support.progress import progress
from captum_concepts._support.running import evaluation_mode, tensor_output, without_autocast
from captum_concepts._support.shown import describe, show_value
from captum_concepts.attributions.outputs import Targets, as_targets, check_targets, extra_arguments, input_tensors


@dataclass(frozen=True)
class RandomMasks:
    """The masks of RISE: random grids, and where each is cut out once it is enlarged."""

    grids: Tensor
    rows: Tensor
    columns: Tensor
    size: tuple[int, int]

    @classmethod
    def draw(
        cls, n_masks: int, size: tuple[int, int], cells: int | Sequence[int] = (7, 7), p: float = 0.5, seed: int = 0
    ) -> RandomMasks:
        """Draw masks; no global generator is touched, and every device gets the same."""
        pair = (cells, cells) if isinstance(cells, int) else tuple(cells)
        if len(pair) != 2:
            raise ValueError(f"Expected argument `cells` to be a whole number or two but got {cells!r}.")
        s1, s2 = (check_whole("cells", number, 2, side) for number, side in zip(pair, size, strict=True))
        generator = torch.Generator().manual_seed(seed)
        grids = (torch.rand(n_masks, s1, s2, generator=generator) < p).float()
        rows, columns = (
            torch.randint(math.ceil(side / s), (n_masks,), generator=generator)
            for side, s in zip(size, (s1, s2), strict=True)
        )
        return cls(grids, rows, columns, size)

    def __len__(self) -> int:
        return len(self.grids)

    def render(self, some: slice, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
        """Return some of the masks, enlarged and cut out."""
        grids = self.grids[some].to(device, dtype)
        # Bilinear enlarging is separable, and the rows cut out of a matrix are rows of it: two products do all.
        down, across = (
            _enlarging_matrix(side, s, device, dtype)[(cut[some, None] + torch.arange(side)).to(device)]
            for side, s, cut in zip(self.size, self.grids.shape[1:], (self.rows, self.columns), strict=True)
        )
        with without_autocast(grids.device):
            # Products of a convex combination may leave [0, 1] by rounding.
            return (down @ grids @ across.mT).clamp_(0, 1)


def _enlarging_matrix(side: int, cells: int, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Return the matrix that enlarges `cells` numbers to one cell more than `side` pixels."""
    length = (cells + 1) * math.ceil(side / cells)
    unit = torch.eye(cells, device=device, dtype=dtype)
    return functional.interpolate(unit[None], length, mode="linear", align_corners=False)[0].T


ACTIVATIONS = ("softmax", "sigmoid", "none")

# How far rounding may carry a score out of [0, 1].
_ROUNDING = 1e-6

ScoreFunction = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class SteeredRISE(Attribution):
    r"""RISE whose masks are weighted by a score of how people would rate them, too.

    Kazmierczak et al., "Benchmarking XAI Explanations with Human-Aligned Evaluations" (PASTA), Eq. 4, on RISE of
    Petsiuk, Das and Saenko (2018). Images are seen through n random masks M_i, and the map is

    .. math:: S = \frac{1}{n p} \sum_{i=1}^{n} w_i M_i, \qquad
        w_i = \lambda \, s(x, M_i) + (1 - \lambda) \, f_c(x \odot M_i),

    with f_c the probability of the class, s the score of the mask laid over the image, and p the probability that
    a cell of a mask is kept. Both f_c and s lie in [0, 1]. ``lam=0`` is RISE itself; ``lam=1`` no longer asks the
    model.

    A mask is a grid of ``cells``, each kept with probability p, enlarged bilinearly
    (``align_corners=False``) to one cell more than the image in each direction and cut out at a random place. A cell
    has ceil(H / s) pixels, as in the release of RISE; the paper rounds down, and images whose size is no multiple
    would not be covered. The masks depend on ``seed`` and on the size of the images alone: all images share them, so
    that a map depends neither on the batch an image comes in nor on `batch_size` (but for rounding). What they share
    is also the sampling error: use several seeds to learn how large that is.

    Parameters
    ----------
    forward_func : callable or nn.Module
        The model, (N, C, H, W) to (N, K), or to what holds these outputs as `.logits` or first. A module is in eval
        mode meanwhile, and gets its flags back.
    score_func : callable, optional
        ``score_func(images, masks, targets)`` with images (n, C, H, W) as given, masks (n, H, W) in [0, 1] and
        targets (n,) or None returns (n,) scores in [0, 1], higher is better;
        `quantus_concepts.pasta.score_masks` makes one of a scorer. Without it only ``lam=0`` is possible.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import SteeredRISE
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
    >>> rise = SteeredRISE(model)
    >>> images = torch.rand(2, 3, 8, 8)
    >>> rise.attribute(images, target=1, lam=0, n_masks=10, cells=4).shape
    torch.Size([2, 1, 8, 8])
    """

    def __init__(self, forward_func: Callable[..., object], score_func: ScoreFunction | None = None) -> None:
        super().__init__(forward_func)
        self.score_func = score_func

    def __repr__(self) -> str:
        return describe(self, show_value(self.forward_func), score_func=self.score_func)

    @log_usage()
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Targets = None,
        additional_forward_args: object = None,
        lam: float = 0.5,
        n_masks: int = 4000,
        cells: int | Sequence[int] = (7, 7),
        p: float = 0.5,
        seed: int = 0,
        batch_size: int = 64,
        baselines: float | Tensor | tuple[float | Tensor] = 0.0,
        activation: str = "softmax",
        input_shaped: bool = False,
        display_progressbar: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Return a map for each image.

        Through `captum_concepts.explain_func`, which has a `batch_size` and a `seed` of its own, give these two in
        its `attribute_kwargs`.

        Parameters
        ----------
        inputs : Tensor or tuple of Tensor
            (N, C, H, W), or a tuple of one.
        target : int, Tensor, list or array, optional
            Class explained, the same for all images (int, or a tensor of one element), or one for each (N,). None
            for a model of one output.
        additional_forward_args : object
            Handed to `forward_func` behind the images. A tensor of length N has one entry for each image, and is
            repeated with the images.
        lam : float
            Weight of the score against the class probability, in [0, 1].
        n_masks : int
            Masks; the paper of RISE uses 4000 to 8000. The model runs so often for each image, and so does
            `score_func` unless `lam` is 0.
        cells : int or sequence of int
            Cells (s1, s2) of a mask, at least 2 and at most the size of the image.
        p : float
            Probability that a cell is kept, in (0, 1].
        seed : int
            Random seed of the masks.
        batch_size : int
            Number of masked images in a batch; memory is bounded by it.
        baselines : float or Tensor
            Values that replace hidden pixels: a number, or (1, C, H, W) or (N, C, H, W). As in RISE, 0: the mean
            colour where images are normalised, black where they are in [0, 1].
        activation : {"softmax", "sigmoid", "none"}
            Turns the model's outputs into probabilities; "none" if they already are. With ``lam=0`` any
            output may be explained with "none", the value of a concept for instance.
        input_shaped : bool
            Whether to share a map out equally among the C channels, as `captum.metrics.infidelity` needs.
        display_progressbar : bool
            Whether to show progress.

        Returns
        -------
        Tensor or tuple of Tensor
            (N, 1, H, W), or (N, C, H, W) if `input_shaped`; contiguous, without gradient, on the device of the
            inputs, float32 for images of half precision. A tuple of one if `inputs` is a tuple. NaN where
            the model's output is.

        Raises
        ------
        ValueError
            If an argument is out of range or has the wrong shape, `lam` is above 0 without a `score_func`, scores
            are not in [0, 1], or outputs are no probabilities where they have to be.
        """
        images = _check_image(inputs)
        check_range("lam", lam, 0, 1)
        check_range("p", p, 0, 1, open_low=True)
        check_whole("n_masks", n_masks, 1)
        check_whole("batch_size", batch_size, 1)
        check_choice("activation", activation, ACTIVATIONS)
        n, channels, *size = images.shape
        if lam > 0 and self.score_func is None:
            raise ValueError(
                f"Expected argument `score_func` for `lam` = {lam} but it is None. Give the constructor one, or use "
                "lam=0, which is RISE itself."
            )
        masks = RandomMasks.draw(n_masks, (size[0], size[1]), cells, p, seed)
        targets = None if target is None else as_targets(target, n).expand(n)
        call = _Call(
            images,
            None if targets is None else targets.to(images.device),
            -1 if targets is None or not n else int(targets.max()),
            _as_baselines(baselines, images),
            extra_arguments(additional_forward_args),
            _Extremes(_check_scores),
            _Extremes(partial(_check_probabilities, lam)),
        )
        dtype = images.dtype if images.dtype in (torch.float32, torch.float64) else torch.float32
        total = torch.zeros(n, size[0] * size[1], dtype=dtype, device=images.device)
        with torch.no_grad(), evaluation_mode(self.forward_func):
            bar = progress(description="RISE", total=n * len(masks), show=display_progressbar, leave=True)
            for some, rows in _batch_slices(len(masks), n, batch_size):
                visible = masks.render(some, images.device, dtype)
                weights = self._weights(call, visible, rows, lam, activation)
                with without_autocast(images.device):
                    total[rows] += weights.to(dtype).T @ visible.flatten(1)
                bar.update(weights.numel())
            bar.close()
            call.scores.check()
            call.probabilities.check()
        maps = (total / (len(masks) * p)).view(n, 1, *size)
        if input_shaped:
            maps = (maps / channels).expand(n, channels, *size).contiguous()
        return (maps,) if isinstance(inputs, tuple) else maps

    def _weights(self, call: _Call, visible: Tensor, rows: slice, lam: float, activation: str) -> Tensor:
        """Return the weights (k, n) of k masks for n images."""
        k, n = len(visible), rows.stop - rows.start
        images = call.images[rows].repeat(k, 1, 1, 1)
        masks = visible.repeat_interleave(n, 0)
        targets = None if call.targets is None else call.targets[rows].repeat(k)
        weights: Tensor = torch.zeros((), device=visible.device)
        if lam < 1:
            outputs = tensor_output(
                self.forward_func(call.mask_images(images, masks, rows), *call.repeat_extra(rows, k))
            )
            chosen = _probabilities(outputs, targets, call.largest, activation, len(images))
            if lam > 0 and activation == "none":
                # NaN is no reason to stop: the map of that image becomes NaN.
                call.probabilities.add(chosen.masked_fill(chosen.isnan(), 0))
            weights = (1 - lam) * chosen
        if lam > 0 and self.score_func is not None:
            scores = _as_scores(self.score_func(images, masks.to(images.dtype), targets), images)
            call.scores.add(scores)
            weights = weights + lam * scores
        return weights.view(k, n)


class _Extremes:
    """The extremes of many values, checked after the first batch and at the end, since a check synchronises."""

    def __init__(self, check: Callable[[float, float], None]) -> None:
        self._check = check
        self._found: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """Include the values of a batch, without a transfer."""
        low, high = torch.aminmax(values)
        if self._found is not None:
            # Both propagate NaN.
            low, high = torch.minimum(self._found[0], low), torch.maximum(self._found[1], high)
        first, self._found = self._found is None, torch.stack([low, high])
        if first:
            self.check()

    def check(self) -> None:
        """Raise if a value is not allowed."""
        if self._found is not None:
            self._check(*self._found.tolist())


@dataclass(frozen=True)
class _Call:
    """The inputs of one call of `attribute`, and the extremes of its scores and probabilities."""

    images: Tensor
    targets: Tensor | None
    largest: int
    baselines: float | Tensor
    extra: tuple[Any, ...]
    scores: _Extremes
    probabilities: _Extremes

    def mask_images(self, images: Tensor, masks: Tensor, rows: slice) -> Tensor:
        """Return images of `rows`, repeated, behind as many masks."""
        visible = masks.to(images.dtype).unsqueeze(1)
        visible_part = images * visible
        if isinstance(self.baselines, Tensor):
            baselines = self.baselines[rows] if len(self.baselines) > 1 else self.baselines
            hidden = baselines.repeat(len(images) // len(baselines), 1, 1, 1)
            return visible_part + hidden * (1 - visible)
        return visible_part + self.baselines * (1 - visible) if self.baselines else visible_part

    def repeat_extra(self, rows: slice, k: int) -> tuple[object, ...]:
        """Return the further arguments of the images of `rows`, k times."""
        return tuple(
            argument[rows].repeat(k, *[1] * (argument.ndim - 1))
            if isinstance(argument, Tensor) and argument.ndim and len(argument) == len(self.images)
            else argument
            for argument in self.extra
        )


def _batch_slices(n_masks: int, n_images: int, batch_size: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of masks and of images that form batches of at most `batch_size` pairs."""
    groups = math.ceil(n_images / batch_size)
    # Groups of one size, or a last small one would run as often as the others for little.
    group = math.ceil(n_images / groups) if groups else 1
    at_once = max(1, batch_size // group)
    for start in range(0, n_images, group):
        rows = slice(start, min(start + group, n_images))
        for first in range(0, n_masks, at_once):
            yield slice(first, min(first + at_once, n_masks)), rows


def _check_image(inputs: Any) -> Tensor:
    tensors = input_tensors(inputs)
    if len(tensors) != 1:
        raise ValueError(
            f"Expected argument `inputs` to be one tensor of images but got {len(tensors)}. Pass what else the model "
            "takes as `additional_forward_args`."
        )
    images: Tensor = tensors[0].detach()
    check_axes(inputs=(images, "N C H W"))
    if not images.is_floating_point():
        raise ValueError(
            f"Expected argument `inputs` to be of a floating-point dtype but got {images.dtype}. Convert it with "
            ".float()."
        )
    return images


def _as_baselines(baselines: Any, images: Tensor) -> float | Tensor:
    if isinstance(baselines, tuple) and len(baselines) == 1:
        (baselines,) = baselines
    values = to_tensor("baselines", baselines)
    if values.ndim == 0:
        number = float(baselines)
        check_range("baselines", number, -math.inf, math.inf, open_low=True, open_high=True)
        return number
    values = values.to(images.device, images.dtype)
    n = len(images) if len(values) != 1 else 1
    check_shape("baselines", values, ("N", "C", "H", "W"), (n, *images.shape[1:]))
    return values


def _as_scores(scores: Any, images: Tensor) -> Tensor:
    """Return the scores of masks, or raise if they are none."""
    values = torch.as_tensor(scores).detach().to(images.device)
    if values.shape != (len(images),):
        raise ValueError(
            "Expected argument `score_func` to return one score for each mask, shape (n,) = "
            f"({len(images)},), but got {tuple(values.shape)}."
        )
    return values if values.dtype == torch.float64 else values.float()


def _check_scores(low: float, high: float) -> None:
    # NaN compares false.
    if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
        actual = "NaN" if math.isnan(low) else f"scores from {low:.3g} to {high:.3g}"
        raise ValueError(
            f"Expected argument `score_func` to return scores in [0, 1] but got {actual}. Bring a rating from 1 to 5 "
            "there by (rating - 1) / 4, one where low is good by (5 - rating) / 4; give a mask that cannot be rated 0."
        )


def _probabilities(outputs: Tensor, targets: Tensor | None, largest: int, activation: str, n: int) -> Tensor:
    """Return the probability (n,) of each masked image's class."""
    if outputs.ndim not in (1, 2) or len(outputs) != n:
        raise ValueError(
            f"Expected argument `forward_func` to return shape (N, K), N = {n}, but got {tuple(outputs.shape)}."
        )
    outputs = outputs.detach()
    outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
    if outputs.ndim == 1:
        outputs = outputs.unsqueeze(1)
    k = outputs.shape[1]
    if k == 1 and activation == "softmax":
        raise ValueError(
            "Expected argument `activation` to be 'sigmoid' or 'none' for a model of one output, whose softmax is "
            "always 1, but got 'softmax'."
        )
    if targets is None:
        if k != 1:
            raise ValueError(
                f"Expected argument `target` to name one of {k} classes but got None. Pass the class to be explained."
            )
        targets = torch.zeros(n, dtype=torch.long, device=outputs.device)
    if largest >= k:
        check_targets(torch.tensor([largest]), k)
    if activation != "none":
        outputs = outputs.softmax(1) if activation == "softmax" else outputs.sigmoid()
    return outputs.gather(1, targets[:, None].to(outputs.device))[:, 0]


def _check_probabilities(lam: float, low: float, high: float) -> None:
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        raise ValueError(
            "Expected argument `forward_func` to return probabilities in [0, 1], since `activation` is 'none' and they "
            f"are mixed with scores (`lam` = {lam}), but got values from {low:.3g} to {high:.3g}. Use 'softmax' or "
            "'sigmoid'."
        )
