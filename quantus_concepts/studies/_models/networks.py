"""Networks that are trained on images of a study, each with classes of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.support.checks import check_normalisation, check_range
from quantus_concepts.painted.networks import Residual, SmallResNet, convolution, with_seed
from quantus_concepts.studies._kit.options import SMALL, Normalisation
from quantus_concepts.studies._models.named_networks import NO_WEIGHTS, Network, load_network

#: Pixels for each place of the small network's maps.
STRIDE = 8
#: Takes images in [0, 1], stretched to its size.
SMALL_NETWORK = Network(nn.Identity(), "small networks, trained on these images", image_size=96)


class OverlappingMeans(nn.Module):
    """``AvgPool2d(4, 2, 1)`` of maps of few channels."""

    # As a convolution it takes less time, there and back: of four channels torch vectorises nothing.

    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.full((channels, 1, 4, 4), 1 / 16), persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, C, H / 2, W / 2)."""
        return functional.conv2d(maps, self.weight, stride=2, padding=1, groups=len(self.weight))


class FineResNet(SmallResNet):
    """The same without a stride: resolution is lost by overlapping averages, which treat all pixels alike."""

    # Folded pixels each have weights of their own, and a stride passes over some: both draw a grid of 4 pixels into
    # the gradient, which a study of pixel attributions would take for the methods'.

    def _features(self, channels: int) -> nn.Sequential:
        # Few channels, normalised where maps are small: what is done at full size takes most of the time.
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(),
            OverlappingMeans(4),
            nn.Conv2d(4, 8, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(4, 2, 1),
            convolution(8, channels // 2),
            nn.AvgPool2d(4, 2, 1),
            convolution(channels // 2, channels),
            Residual(channels),
        )


class Normalised(nn.Module):
    """A network with its normalisation in front, so that it takes images in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, network: nn.Module, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        check_normalisation(mean, std)
        self.network = network
        self.register_buffer("mean", torch.tensor(mean or (0.0,), dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(std or (1.0,), dtype=torch.float32)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) of images (N, 3, H, W) in [0, 1]."""
        return self.network((images - self.mean) / self.std)


def network_builder(
    spec: str = SMALL,
    weights: str | None = None,
    *,
    image_size: int = 128,
    channels: int = 32,
    normalisation: Normalisation | None = None,
) -> Callable[[int, int], nn.Module]:
    """Return a function that builds networks of one kind, for `train_models`."""
    # The backbone is loaded once. Each network is a copy with a fresh linear last layer: timm's own
    # ``reset_classifier``, otherwise the last linear layer among the modules, or the last convolution, of 1 x 1,
    # where there is no linear one (SqueezeNet). Activations are made not to work in place, which Captum's guided
    # methods and hooks cannot stand. What a model calls as a function (DenseNet, GoogLeNet and Inception of
    # torchvision: ``functional.relu``) is not changed, and guided backpropagation does not see it.
    check_range("image_size", image_size, 1, 100_000)
    if spec == SMALL:
        if weights is not None and weights != NO_WEIGHTS:
            raise ValueError("Expected no argument `weights` for the small network: it is trained from the start.")
        if image_size % STRIDE:
            raise ValueError(
                f"Expected argument `image_size` to be a multiple of {STRIDE} for the small network but got "
                f"{image_size}."
            )
        return lambda n_classes, seed: FineResNet(n_classes, channels, seed).eval()
    normalised = normalisation or Normalisation(mean=None, std=None, unnormalised=False)
    with with_seed(0):
        loaded = load_network(spec, weights, **normalised)

    def build(n_classes: int, seed: int) -> nn.Module:
        with with_seed(seed):
            network = load_network(spec, weights, **normalised) if weights == NO_WEIGHTS else copy.deepcopy(loaded)
            return _with_classes(network, spec, n_classes)

    _try(build(2, 0), spec, 2, image_size)
    return build


def _with_classes(network: Network, spec: str, n_classes: int) -> nn.Module:
    module = network.module
    # Side outputs of GoogLeNet and Inception are for their own training, and turn the output into a tuple.
    for name in ("aux1", "aux2", "AuxLogits"):
        if isinstance(getattr(module, name, None), nn.Module):
            setattr(module, name, None)
            setattr(module, "aux_logits", False)  # noqa: B010
    if callable(reset := getattr(module, "reset_classifier", None)):
        reset(n_classes)
    else:
        module = _replace_last(module, spec, n_classes)
    for part in module.modules():
        if getattr(part, "inplace", None) is True:
            setattr(part, "inplace", False)  # noqa: B010
    return Normalised(module, network.mean, network.std).eval()


def _replace_last(module: nn.Module, spec: str, n_classes: int) -> nn.Module:
    named = list(module.named_modules())
    for kind in (nn.Linear, nn.Conv2d):
        last = next(((name, part) for name, part in reversed(named) if isinstance(part, kind)), None)
        if last is None or (kind is nn.Conv2d and last[1].kernel_size != (1, 1)):
            continue
        name, part = last
        bias = part.bias is not None
        new: nn.Module = (
            nn.Linear(part.in_features, n_classes, bias)
            if isinstance(part, nn.Linear)
            else nn.Conv2d(part.in_channels, n_classes, 1, bias=bias)
        )
        new.to(part.weight)
        if not name:
            return new
        parent, _, attribute = name.rpartition(".")
        setattr(module.get_submodule(parent), attribute, new)
        return module
    raise ValueError(f"The network {spec} has no linear layer that could be replaced. Name another with --backbone.")


def _try(network: nn.Module, spec: str, n_classes: int, image_size: int) -> None:
    try:
        with torch.no_grad():
            logits = network(torch.zeros(1, 3, image_size, image_size))
    except (RuntimeError, TypeError, IndexError, AttributeError, AssertionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"The network {spec} does not take images of shape (3, {image_size}, {image_size}): {reason.rstrip('.')}. "
            "Change the size with --image-size, or name a network for such images."
        ) from error
    if not isinstance(logits, Tensor) or logits.shape != (1, n_classes):
        output = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"Expected the network {spec} to give logits (1, {n_classes}) after its last linear layer was replaced but "
            f"got {output}. Register the classifier as the last of its modules."
        )
