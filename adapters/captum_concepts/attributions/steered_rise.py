"""RISE steered by a score: random masks, weighted by how much they change it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor
from torch.nn import functional

from captum_concepts.attributions.outputs import Targets, as_targets, check_targets, extra_arguments, input_tensors
from captum_concepts.support import checks
from captum_concepts.support.running import evaluation_mode, progress, tensor_output, without_autocast
from captum_concepts.texts import describe, show_value


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
        s1, s2 = (checks.check_whole("cells", number, 2, side) for number, side in zip(pair, size, strict=True))
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
        checks.check_range("lam", lam, 0, 1)
        checks.check_range("p", p, 0, 1, open_low=True)
        checks.check_whole("n_masks", n_masks, 1)
        checks.check_whole("batch_size", batch_size, 1)
        checks.check_choice("activation", activation, ACTIVATIONS)
        n, channels, height, width = images.shape
        if lam > 0 and self.score_func is None:
            raise ValueError(
                f"Expected argument `score_func` for `lam` = {lam} but it is None. Give the constructor one, or use "
                "lam=0, which is RISE itself."
            )
        targets = [None] * n if target is None else as_targets(target, n).expand(n).tolist()
        hidden, extra = _as_baselines(baselines, images), extra_arguments(additional_forward_args)
        masks = RandomMasks.draw(n_masks, (height, width), cells, p, seed)
        dtype = images.dtype if images.dtype in (torch.float32, torch.float64) else torch.float32
        total = torch.zeros(n, height * width, dtype=dtype, device=images.device)
        bar = progress(description="RISE", total=n * n_masks, show=display_progressbar, leave=True)
        with torch.no_grad(), evaluation_mode(self.forward_func), bar:
            for start in range(0, n_masks, batch_size):
                visible = masks.render(slice(start, start + batch_size), images.device, dtype)
                for i, chosen in enumerate(targets):
                    behind = hidden[i if len(hidden) > 1 else 0]
                    masked = _Masked(images[i], visible.to(images.dtype)[:, None], behind)
                    weights = self._weights(masked, chosen, _rows_of(extra, i, n, len(visible)), lam, activation)
                    with without_autocast(images.device):
                        total[i] += weights.to(dtype) @ visible.flatten(1)
                    bar.update(len(visible))
        maps = (total / (n_masks * p)).view(n, 1, height, width)
        if input_shaped:
            maps = (maps / channels).expand(n, channels, height, width).contiguous()
        return (maps,) if isinstance(inputs, tuple) else maps

    def _weights(
        self, masked: _Masked, target: int | None, extra: tuple[object, ...], lam: float, activation: str
    ) -> Tensor:
        """Return the weights (k,) of k masks for an image."""
        image, masks, hidden = masked
        k, weights = len(masks), torch.zeros((), device=masks.device)
        if lam < 1:
            outputs = tensor_output(self.forward_func(image * masks + hidden * (1 - masks), *extra))
            chosen = _probabilities(outputs, target, activation, k)
            if lam > 0 and activation == "none":
                # NaN is no reason to stop: the map of that image becomes NaN.
                _check_probabilities(lam, chosen[~chosen.isnan()])
            weights = (1 - lam) * chosen
        if lam > 0 and self.score_func is not None:
            targets = None if target is None else torch.full((k,), target, device=masks.device)
            weights = weights + lam * _as_scores(self.score_func(image.expand(k, -1, -1, -1), masks[:, 0], targets), k)
        return weights


class _Masked(NamedTuple):
    """An image (C, H, W), masks (k, 1, H, W), and what is seen where a mask hides the image."""

    image: Tensor
    masks: Tensor
    hidden: Tensor


def _rows_of(extra: tuple[object, ...], i: int, n: int, k: int) -> tuple[object, ...]:
    """Return the further arguments of image i of n, k times."""
    return tuple(
        argument[i : i + 1].expand(k, *argument.shape[1:])
        if isinstance(argument, Tensor) and argument.ndim and len(argument) == n
        else argument
        for argument in extra
    )


def _check_image(inputs: Any) -> Tensor:
    tensors = input_tensors(inputs)
    if len(tensors) != 1:
        raise ValueError(
            f"Expected argument `inputs` to be one tensor of images but got {len(tensors)}. Pass what else the model "
            "takes as `additional_forward_args`."
        )
    images: Tensor = tensors[0].detach()
    checks.check_axes(inputs=(images, "N C H W"))
    if not images.is_floating_point():
        raise ValueError(
            f"Expected argument `inputs` to be of a floating-point dtype but got {images.dtype}. Convert it with "
            ".float()."
        )
    return images


def _as_baselines(baselines: Any, images: Tensor) -> Tensor:
    """Return what is seen in the place of hidden pixels, (1 or N, C, H, W) or a number (1,)."""
    if isinstance(baselines, tuple) and len(baselines) == 1:
        (baselines,) = baselines
    values = checks.to_tensor("baselines", baselines).to(images.device, images.dtype)
    checks.check_finite("baselines", values)
    if values.ndim:
        n = len(images) if len(values) != 1 else 1
        checks.check_shape("baselines", values, ("N", "C", "H", "W"), (n, *images.shape[1:]))
    return values if values.ndim else values[None]


def _as_scores(scores: Any, k: int) -> Tensor:
    """Return the scores (k,) of masks, or raise if they are none."""
    values = torch.as_tensor(scores).detach()
    if values.shape != (k,):
        raise ValueError(
            f"Expected argument `score_func` to return one score for each mask, shape (n,) = ({k},), but got "
            f"{tuple(values.shape)}."
        )
    low, high = values.aminmax()
    # NaN compares false.
    if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
        actual = "NaN" if low.isnan() else f"scores from {low:.3g} to {high:.3g}"
        raise ValueError(
            f"Expected argument `score_func` to return scores in [0, 1] but got {actual}. Bring a rating from 1 to 5 "
            "there by (rating - 1) / 4, one where low is good by (5 - rating) / 4; give a mask that cannot be rated 0."
        )
    return values if values.dtype == torch.float64 else values.float()


def _probabilities(outputs: Tensor, target: int | None, activation: str, k: int) -> Tensor:
    """Return the probability (k,) of the class explained."""
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    if outputs.ndim != 2 or len(outputs) != k:
        raise ValueError(
            f"Expected argument `forward_func` to return shape (N, K), N = {k}, but got {tuple(outputs.shape)}."
        )
    outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
    n_classes = outputs.shape[1]
    if n_classes == 1 and activation == "softmax":
        raise ValueError(
            "Expected argument `activation` to be 'sigmoid' or 'none' for a model of one output, whose softmax is "
            "always 1, but got 'softmax'."
        )
    if target is None and n_classes != 1:
        raise ValueError(
            f"Expected argument `target` to name one of {n_classes} classes but got None. Pass the class to be "
            "explained."
        )
    check_targets(torch.tensor([target or 0]), n_classes)
    if activation == "softmax":
        outputs = outputs.softmax(1)
    elif activation == "sigmoid":
        outputs = outputs.sigmoid()
    return outputs[:, target or 0]


def _check_probabilities(lam: float, values: Tensor) -> None:
    if ((values < -_ROUNDING) | (values > 1 + _ROUNDING)).any():
        raise ValueError(
            "Expected argument `forward_func` to return probabilities in [0, 1], since `activation` is 'none' and they "
            f"are mixed with scores (`lam` = {lam}), but got values from {values.min():.3g} to {values.max():.3g}. Use "
            "'softmax' or 'sigmoid'."
        )
