"""Captum attributions adapted to any model: layer lookup, guided ReLUs, noise scaled to each image."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from captum.attr import Attribution, GuidedBackprop, NoiseTunnel
from captum.log import log_usage
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from captum_concepts.attributions.outputs import Targets
from captum_concepts.backbones.layers import find_layer, last_spatial_layer
from captum_concepts.support.running import evaluation_mode, keep_generators, to_host

_RELU_FUNCTIONS = frozenset({functional.relu, functional.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})


class AtLayer(Attribution):
    """A layer attribution whose layer is looked up when inputs come."""

    def __init__(self, forward_func: nn.Module, attribution: type[Attribution], layer: str | None = None) -> None:
        super().__init__(forward_func)
        if not isinstance(forward_func, nn.Module):
            raise TypeError(
                "Expected argument `model` to be an nn.Module, to look a layer up in, but got "
                f"{type(forward_func).__name__}."
            )
        self.attribution = attribution
        self.layer = layer

    @log_usage()
    def attribute(self, inputs: Tensor, target: Targets = None, **kwargs: object) -> Tensor | tuple[Tensor, ...]:
        """Return what the attribution gives at the layer."""
        if self.layer is None:
            self.layer = last_spatial_layer(self.forward_func, inputs.detach())
        inner = self.attribution(self.forward_func, find_layer(self.forward_func, self.layer))
        # Activations have no target.
        return inner.attribute(inputs, **kwargs, **({} if target is None else {"target": target}))


class Guided(Attribution):
    """A guided method of Captum on a model as it is, every ReLU having an input of its own."""

    # Captum hooks the tensor that enters an `nn.ReLU`. Where another layer uses that tensor as well, as in residual
    # networks that activate first, Captum 0.9.0 clips the gradient of both uses. A copy before each ReLU, taken off
    # again, keeps them apart. ReLUs in place and ReLU modules used several times are right.

    def __init__(self, forward_func: nn.Module, inner: Callable[..., Attribution] = GuidedBackprop) -> None:
        super().__init__(forward_func)
        if not isinstance(forward_func, nn.Module) or not _relus(forward_func):
            raise ValueError(
                "Expected argument `model` to have layers of type nn.ReLU, the only ones that guided methods change, "
                f"but {type(forward_func).__name__} has none, and the result would be the plain gradient. Make its "
                "ReLUs modules instead of functions, or leave the guided methods out."
            )
        self.guided = inner(forward_func)
        self._checked = False

    @log_usage()
    def attribute(self, inputs: Tensor, target: Targets = None, **kwargs: object) -> Tensor | tuple[Tensor, ...]:
        """Return what the guided method gives; one warning if some ReLUs cannot be guided."""
        if not self._checked:
            _warn_of_functions(self.forward_func, inputs.detach())
            self._checked = True
        # A gradient that is changed at a copy is that of one use of a tensor.
        with _pre_hooks(_relus(self.forward_func), _copy_inputs):
            return self.guided.attribute(inputs, target=target, **kwargs)


class InModelType(Attribution):
    """An attribution whose inputs are brought to one type, and whose results are at least of float32."""

    # The noise of `NoiseTunnel` is of float32, and makes images of half precision such that half weights refuse
    # them; and the mean of many attributions is no sum for half precision.

    def __init__(self, forward_func: Callable[..., object], inner: Attribution) -> None:
        super().__init__(forward_func)
        self.inner = inner
        self.dtype: torch.dtype | None = None

    @log_usage()
    def attribute(self, inputs: Tensor, **kwargs: object) -> Tensor:
        """Return what the attribution gives for `inputs` (N, C, H, W) as images of `dtype`."""
        noisy = inputs.detach().to(self.dtype).requires_grad_()
        result = self.inner.attribute(noisy, **kwargs).detach()
        return result.to(torch.promote_types(result.dtype, torch.float32))


class Smoothed(Attribution):
    """`NoiseTunnel` over one image at a time, since Captum's noise has one size for a whole batch."""

    def __init__(
        self,
        forward_func: Callable[..., object],
        inner: Callable[..., Attribution],
        n_samples: int,
        noise: float,
        stdev: float | None,
        batch_size: int,
    ) -> None:
        super().__init__(forward_func)
        self.inner = InModelType(forward_func, inner(forward_func))
        self.tunnel = NoiseTunnel(self.inner)
        self.noise, self.stdev = noise, stdev
        self.samples = {"nt_samples": n_samples, "nt_samples_batch_size": min(n_samples, batch_size)}

    @log_usage()
    def attribute(
        self, inputs: Tensor, target: Targets = None, baselines: Tensor | None = None, **kwargs: object
    ) -> Tensor:
        """Return the mean of the attributions of noisy copies (Smilkov et al. 2017)."""
        # The noise comes from the global generator, which is left as it was: the same for every image.
        self.inner.dtype = inputs.dtype
        of_each = target if isinstance(target, Tensor) and target.ndim and len(target) > 1 else None
        pixels = inputs.detach().flatten(1)
        # One transfer from the device: Captum would fetch the target of each image.
        spans, targets = to_host(pixels.amax(1) - pixels.amin(1), pixels.new_empty(0) if of_each is None else of_each)
        results = []
        for i in range(len(inputs)):
            image = inputs[i : i + 1].detach()
            stdev = self.noise * float(spans[i]) if self.stdev is None else self.stdev
            more = dict(kwargs) if baselines is None else {**kwargs, "baselines": baselines[i : i + 1]}
            # Each image starts from the same state, whichever images come before it.
            with keep_generators(inputs.device):
                result = self.tunnel.attribute(
                    image.requires_grad_(),
                    nt_type="smoothgrad",
                    stdevs=float(stdev),
                    target=target if of_each is None else int(targets[i]),
                    **self.samples,
                    **more,
                )
            results.append(result.detach())
        return torch.cat(results)


def _relus(model: nn.Module) -> list[nn.Module]:
    return [layer for layer in model.modules() if isinstance(layer, nn.ReLU)]


def _copy_inputs(_layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[object, ...]:
    return tuple(value.clone() if isinstance(value, Tensor) else value for value in inputs)


@contextmanager
def _pre_hooks(layers: list[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    handles = [layer.register_forward_pre_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _ReluCalls(TorchFunctionMode):
    """Counts ReLUs called as functions; an `nn.ReLU` calls one, too."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in _RELU_FUNCTIONS
        return func(*args, **(kwargs or {}))


def _warn_of_functions(model: nn.Module, images: Tensor) -> None:
    """Warn if a model calls ReLUs that are no modules, whose gradients no hook can change."""
    calls: list[nn.Module] = []
    count = _pre_hooks(_relus(model), lambda module, _inputs: calls.append(module))
    with count, evaluation_mode(model), torch.no_grad(), _ReluCalls() as functions:
        model(images)
    unguided = functions.count - len(calls)
    if unguided > 0:
        warnings.warn(
            f"{type(model).__name__} calls {unguided} of its {functions.count} ReLUs as functions, and guided "
            "backpropagation leaves their gradients as they are. Make them nn.ReLU modules.",
            stacklevel=2,
        )
