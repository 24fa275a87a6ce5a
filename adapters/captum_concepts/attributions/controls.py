"""Baseline attributions that do not depend on what the model sees: random numbers, and edges."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.attributions.outputs import Targets, as_targets, input_tensors
from captum_concepts.support.checks import check_axes, check_range
from captum_concepts.support.running import to_host
from captum_concepts.texts import describe, show_value

# Of each parameter so many entries, evenly spread, tell two models apart without hashing all their weights.
_ENTRIES = 64


class RandomAttribution(Attribution):
    """Random attribution, uniform in [0, 1); the same call always gives the same numbers.

    A metric calls an explanation with two models or with two versions of an image, and again to see that it
    does not change. So the numbers are drawn, for each sample, from a generator seeded by the seed, the
    sample, its target and the parameters of the model: independent between samples, targets and models,
    alike in every call and every batch. No global generator is used. One bit of images or weights that differs, as
    between kinds of processors that computed them or where they are cast to half precision, gives another draw.

    Parameters
    ----------
    forward_func : callable or nn.Module
        The model, which is not run. A callable that is no module counts as a model without parameters.
    seed : int
        Random seed of the draw, not negative.

    Raises
    ------
    ValueError
        If `seed` is negative.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import RandomAttribution
    >>> baseline = RandomAttribution(nn.Identity())
    >>> images = torch.ones(2, 3, 4, 4)
    >>> maps = baseline.attribute(images, target=0)
    >>> maps.shape
    torch.Size([2, 3, 4, 4])
    >>> bool((maps == baseline.attribute(images, target=0)).all())
    True
    """

    def __init__(self, forward_func: Callable[..., object], seed: int = 0) -> None:
        check_range("seed", seed, 0, 2**63 - 1)
        super().__init__(forward_func)
        self.seed = seed

    def __repr__(self) -> str:
        return describe(self, show_value(self.forward_func), seed=self.seed)

    @log_usage()
    def attribute(
        self, inputs: Tensor | tuple[Tensor, ...], target: Targets = None, additional_forward_args: object = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Draw an attribution.

        Parameters
        ----------
        inputs : Tensor or tuple of Tensor
            (N, ...), images are (N, C, H, W).
        target : int, tuple, Tensor or list, optional
            As in all of Captum: one for all samples, or one for each.
        additional_forward_args : object
            Not used.

        Returns
        -------
        Tensor or tuple of Tensor
            Attributions with the shape, type and device of the inputs.

        Raises
        ------
        ValueError
            If there is neither one target for all samples nor one for each.
        """
        tensors = input_tensors(inputs)
        n = len(tensors[0])
        # Adding 0 turns -0 into 0, so that inputs that compare equal have the same digest.
        digested = [tensor.detach().float() + 0 for tensor in tensors]
        some = _some_entries(self.forward_func)
        targets = [target] if isinstance(target, Tensor) else []
        on_host = to_host(*targets, *digested, *some)
        chosen = on_host.pop(0) if targets else target
        target_texts = _target_texts(chosen, n)
        arrays = [tensor.numpy() for tensor in on_host[: len(tensors)]]
        model = _fingerprint(some, on_host[len(tensors) :])
        draws = [np.empty_like(array) for array in arrays]
        for i in range(n):
            digest = hashlib.blake2b(f"{self.seed} {target_texts[i]} ".encode() + model, digest_size=16)
            for array in arrays:
                digest.update(str(array.shape[1:]).encode() + array[i].tobytes())
            generator = np.random.default_rng(int.from_bytes(digest.digest()))
            for draw in draws:
                draw[i] = generator.random(draw.shape[1:], dtype=np.float32)
        results = tuple(torch.from_numpy(draw).to(tensor) for draw, tensor in zip(draws, tensors, strict=True))
        return results if isinstance(inputs, tuple) else results[0]


class SobelEdges(Attribution):
    r"""Edges of the image: the magnitude of the Sobel gradient of each channel.

    .. math:: e = \sqrt{(S_x * x)^2 + (S_y * x)^2}

    with the 3 x 3 Sobel kernels, not divided by 8, and the border pixels repeated, as
    ``scipy.ndimage.sobel(mode="nearest")`` does. It ignores the model: an explanation that scores no better
    than this one may only be an edge detector.

    Parameters
    ----------
    forward_func : callable or nn.Module
        The model, which is not run.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import SobelEdges
    >>> image = torch.tensor([0.0, 0, 0, 1, 1]).expand(1, 1, 3, 5)  # one vertical edge
    >>> SobelEdges(nn.Identity()).attribute(image)[0, 0, 0].tolist()
    [0.0, 0.0, 4.0, 4.0, 0.0]
    """

    def __repr__(self) -> str:
        return describe(self, show_value(self.forward_func))

    @log_usage()
    def attribute(
        self, inputs: Tensor | tuple[Tensor, ...], target: Targets = None, additional_forward_args: object = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Return the edges.

        Parameters
        ----------
        inputs : Tensor or tuple of Tensor
            (N, C, H, W).
        target : int, tuple, Tensor or list, optional
            Not used: the edges are the same for all.
        additional_forward_args : object
            Not used.

        Returns
        -------
        Tensor or tuple of Tensor
            (N, C, H, W), at least 0, of the type and on the device of the inputs.

        Raises
        ------
        ValueError
            If `inputs` has another rank.
        TypeError
            If it is no tensor of a floating-point dtype.
        """
        tensors = input_tensors(inputs)
        for images in tensors:
            check_axes(inputs=(images, "N C H W"))
            if not images.is_floating_point():
                raise TypeError(f"Expected argument `inputs` to hold floats but got {images.dtype}. Use .float().")
        edges = tuple(_edges(images) for images in tensors)
        return edges if isinstance(inputs, tuple) else edges[0]


def _edges(images: Tensor) -> Tensor:
    padded = functional.pad(images.detach(), (1, 1, 1, 1), mode="replicate")
    # Sums of slices rather than a convolution, which a GPU may compute in the reduced precision of TF32.
    across = padded[..., 2:] - padded[..., :-2]
    down = padded[..., 2:, :] - padded[..., :-2, :]
    horizontal = across[..., :-2, :] + 2 * across[..., 1:-1, :] + across[..., 2:, :]
    vertical = down[..., :-2] + 2 * down[..., 1:-1] + down[..., 2:]
    return (horizontal.square() + vertical.square()).sqrt()


def _target_texts(target: Targets, n: int) -> list[str]:
    """Return one text for each sample that tells its target."""
    if target is None:
        return [repr(None)] * n
    # Tuples are places in outputs of more axes, as in all of Captum.
    if isinstance(target, tuple) or (isinstance(target, list) and any(isinstance(place, tuple) for place in target)):
        places = target if isinstance(target, list) else [target] * n
        if len(places) != n:
            raise ValueError(
                f"Expected argument `target` to hold one for each of N = {n} inputs but got {len(places)}."
            )
        return [str(place) for place in places]
    return [str(place) for place in as_targets(target, n).expand(n).tolist()]


def _some_entries(model: object) -> list[Tensor]:
    """Return some entries of all parameters, where they are."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return [
        parameter.detach().flatten()[:: max(1, parameter.numel() // _ENTRIES)][:_ENTRIES].contiguous()
        for parameter in parameters
        if not parameter.is_complex()
    ]


def _fingerprint(entries: list[Tensor], on_host: list[Tensor]) -> bytes:
    """Return a digest of entries of parameters; the same on every device."""
    digest = hashlib.blake2b(digest_size=16)
    for device in sorted({entry.device for entry in entries}, key=str):
        values_there = [values for entry, values in zip(entries, on_host, strict=True) if entry.device == device]
        digest.update(torch.cat([values.double() for values in values_there]).numpy().tobytes())
    return digest.digest()
