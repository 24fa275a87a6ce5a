"""An accelerator that is none: tensors that say they are on ``sim:0`` while the CPU keeps their numbers.

As on a GPU, a tensor of it meets one of the CPU by an explicit copy only, and whatever else brings them together
raises; its numbers are those of the CPU to the bit. What passes between them is counted, with the line that asked for
it: on a GPU each crossing to the host waits for all that was queued before.

Torch keeps a backend once it is registered. This one is registered when it is first asked for, says that it is not
available outside the block, and handles what happens inside it only.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
NAME = "sim"

_ITEM = {aten._local_scalar_dense.default, aten.equal.default}
# How large their result is depends on the numbers: a GPU is waited for.
_DYNAMIC = {
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.unique_consecutive.default,
    aten.unique_dim_consecutive.default,
    aten.bincount.default,
    aten.repeat_interleave.Tensor,
}
_INDEXED = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}
# Beside what works on each number by itself: they take one number (0 dimensions) of the CPU.
_TAKES_A_NUMBER = {aten.fill.Tensor, aten.fill_.Tensor, aten.masked_fill.Tensor, aten.masked_fill_.Tensor}
#: Allocations, and a view whose schema does not say that it is one: they launch nothing.
_LAUNCHES_NOTHING = {
    aten.empty.memory_format,
    aten.new_empty.default,
    aten.empty_like.default,
    aten._unsafe_view.default,
}
_FROM_NUMBERS = (torch.tensor, torch.as_tensor, torch.asarray)


@dataclass
class Simulation:
    """A block in which the device is there: the device, and the crossings, by kind and by the line that caused them.

    `operators` counts, by name, the operators run on it but for views, allocations and copies from and to the host:
    each is a launch on a GPU. Without `float64` the device refuses float64, as Apple's GPUs do.
    """

    device: torch.device
    float64: bool = True
    crossed: Counter[tuple[str, str]] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)

    def count(self, kind: str) -> None:
        """Count a crossing: ``to_host``, ``to_device``, ``item`` or ``nonzero``."""
        self.crossed[kind, _place()] += 1

    def kinds(self) -> Counter[str]:
        """Return the number of crossings of each kind."""
        kinds: Counter[str] = Counter()
        for (kind, _), count in self.crossed.items():
            kinds[kind] += count
        return kinds


_current: Simulation | None = None


# Torch before 2.10 takes no backend written in Python, and has no base for one.
class _Backend(getattr(backend_registration, "_DummyBackendModule", object)):
    """What torch asks of a device; numbers at random are the CPU's."""

    def is_available(self) -> bool:
        return _current is not None

    def device_count(self) -> int:
        return int(_current is not None)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        pass


# What autocast computes in the lower precision; everything else is left as it is.
_LOWERED = ("addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "linear", "matmul", "mm")
_LIBRARIES: list[torch.library.Library] = []


@functools.cache
def _registered() -> torch.device:
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    # Torch has the rules of autocast for such a device, but none for what they do not name.
    every, some = (torch.library.Library(name, "IMPL", "AutocastPrivateUse1") for name in ("_", "aten"))
    _LIBRARIES.extend([every, some])
    every.fallback(torch.library.fallthrough_kernel)
    for name in _LOWERED:
        some.impl(name, functools.partial(_lowered, getattr(aten, name).default))
    return torch.device(NAME, 0)


def _lowered(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation of autocast in the lower precision."""
    dtype = torch.get_autocast_dtype(NAME)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        args, kwargs = _mapped(
            lambda tensor: tensor.to(dtype) if tensor.dtype == torch.float32 else tensor, (args, kwargs)
        )
        return func(*args, **kwargs)


class SimulatedTensor(Tensor):
    """A tensor of the device; `inner` is the one of the CPU that holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> SimulatedTensor:
        tensor = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=_registered(),
        )
        tensor.inner = inner
        return tensor

    def __repr__(self, **_: Any) -> str:
        return f"SimulatedTensor({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _mapped(change: Callable[[Tensor], Any], values: Any) -> Any:
    """Return arguments or results with every tensor in them changed; torch's own way takes three times as long."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, list | tuple):
        return type(values)([_mapped(change, value) for value in values])
    if isinstance(values, dict):
        return {name: _mapped(change, value) for name, value in values.items()}
    return values


def _has_simulated(values: Iterable[Any]) -> bool:
    for value in values:
        if isinstance(value, SimulatedTensor) or (isinstance(value, list | tuple) and _has_simulated(value)):
            return True
    return False


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the numbers, where its tensors may meet; its result is of the device where they are."""
    target = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    here = target is not None and target.type == NAME
    # Most operations are of the CPU alone.
    if not (here or _has_simulated(args) or _has_simulated(kwargs.values())):
        return func(*args, **kwargs)
    tensors: list[Tensor] = []
    _mapped(tensors.append, (args, kwargs))
    simulated = [tensor for tensor in tensors if isinstance(tensor, SimulatedTensor)]
    if _current is None:
        raise RuntimeError(f"{func} got a tensor of the simulated device, which is there inside its block only.")
    _check(func, args, kwargs, [tensor for tensor in tensors if not isinstance(tensor, SimulatedTensor)], simulated)
    _count(_current, func, args, simulated, target)
    view = any(output.alias_info is not None and not output.alias_info.is_write for output in func._schema.returns)
    crosses = func is aten._to_copy.default and target is not None and (target.type == NAME) != bool(simulated)
    if not view and not crosses and func not in _LAUNCHES_NOTHING:
        _current.operators[str(func)] += 1
    settings = {**kwargs, "device": torch.device("cpu")} if here else dict(kwargs)
    settings.pop("pin_memory", None)
    inside, settings = _mapped(_inner, (args, settings))
    result = func(*inside, **settings)
    if not (here or (simulated and target is None)):
        return result
    if not _current.float64:
        _mapped(_check_float64, result)
    # What was changed in place is returned as it came.
    wrapper_of = {id(tensor.inner): tensor for tensor in simulated}
    if func is aten.copy_.default:
        return args[0]
    return _mapped(
        lambda tensor: wrapper_of[id(tensor)] if id(tensor) in wrapper_of else SimulatedTensor(tensor), result
    )


def _inner(tensor: Tensor) -> Tensor:
    return tensor.inner if isinstance(tensor, SimulatedTensor) else tensor


def _check_float64(tensor: Tensor) -> None:
    if tensor.dtype == torch.float64:
        raise TypeError(f"Cannot convert a {NAME} tensor to float64: the device has no float64. ({_place()})")


def _check(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], host_tensors: list[Tensor], simulated: list[Any]
) -> None:
    """Raise where a GPU would: two devices meet, or numbers are drawn by a generator of the CPU."""
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type != NAME:
        raise RuntimeError(f"Expected a {NAME!r} device type for generator but found {generator.device.type!r}.")
    if func in (aten._to_copy.default, aten.copy_.default) or not simulated:
        return
    if func in _INDEXED and isinstance(args[0], SimulatedTensor):
        host_tensors = [
            value for value in args[2:3] if isinstance(value, Tensor) and type(value) is not SimulatedTensor
        ]
    if torch.Tag.pointwise in func.tags or func in _TAKES_A_NUMBER or func in _INDEXED:
        host_tensors = [tensor for tensor in host_tensors if tensor.ndim > 0]
    if host_tensors:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and cpu! ({func})"
        )


def _count(to: Simulation, func: Any, args: tuple[Any, ...], simulated: list[Any], target: torch.device | None) -> None:
    if func is aten._to_copy.default and target is not None:
        if target.type != NAME:
            to.count("to_host")
        elif not simulated:
            to.count("to_device")
    elif func is aten.copy_.default and len(simulated) == 1:
        to.count("to_device" if isinstance(args[0], SimulatedTensor) else "to_host")
    elif func in _ITEM:
        to.count("item")
    elif func in _DYNAMIC:
        to.count("nonzero")
    elif func in _INDEXED:
        indices = [index for index in args[1] if index is not None]
        filled = len(args) > 2 and args[2].numel() == 1
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices) and not filled:
            to.count("nonzero")
        if not all(isinstance(index, SimulatedTensor) for index in indices):
            to.count("to_device")


def _place() -> str:
    """Return the innermost line of the two packages that is running, but for the way to the host itself."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        for package in ("/quantus_concepts/", "/captum_concepts/"):
            if package in path and "/tests/" not in path and not path.endswith("/transfer.py"):
                return f"{path.rpartition(package)[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class _Dispatch(TorchDispatchMode):
    """Sees what is made on the device of nothing that is there already."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """Sees what torch does without its dispatcher."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FROM_NUMBERS and kwargs.get("device") is not None and torch.device(kwargs["device"]).type == NAME:
            on_cpu = func(*args, **{name: value for name, value in kwargs.items() if name != "device"})
            return on_cpu.to(_registered())
        if func is Tensor.new_tensor and isinstance(args[0], SimulatedTensor):
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype} | kwargs).to(args[0].device)
        if func in _SPECIAL and isinstance(args[0], SimulatedTensor | tuple | list):
            return _SPECIAL[func](*args, **kwargs)
        return func(*args, **kwargs)


def _backward(func: Any, *args: Any, **kwargs: Any) -> Any:
    # In this thread: the others are for the devices there were when torch first went backward in this process.
    with torch.autograd.set_multithreading_enabled(False):
        return func(*args, **kwargs)


def _at(func: Any, tensor: Tensor, index: Any, *values: Any) -> Any:
    """Index by what is no tensor yet, which torch makes one of without asking."""
    parts = index if isinstance(index, tuple) else (index,)
    parts = tuple(torch.as_tensor(part) if isinstance(part, list | np.ndarray) else part for part in parts)
    return func(tensor, parts, *values)


def _to_list(tensor: SimulatedTensor) -> Any:
    return tensor.cpu().tolist()


def _to_array(*_: Any, **__: Any) -> Any:
    raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy. Use Tensor.cpu() to copy it first.")


def _set_data(tensor: SimulatedTensor, value: Any) -> None:
    if not isinstance(value, SimulatedTensor) or value.shape != tensor.shape or value.dtype != tensor.dtype:
        raise RuntimeError("incompatible tensor type")
    tensor.inner = value.inner


_SPECIAL: dict[Any, Callable[..., Any]] = {
    Tensor.tolist: _to_list,
    Tensor.numpy: _to_array,
    Tensor.__array__: _to_array,
    Tensor.data.__get__: Tensor.detach,  # type: ignore[attr-defined]
    Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    **{func: functools.partial(_at, func) for func in (Tensor.__getitem__, Tensor.__setitem__)},
    **{func: functools.partial(_backward, func) for func in (torch.autograd.grad, Tensor.backward)},
}


@contextmanager
def simulated_device(float64: bool = True) -> Iterator[Simulation]:
    """Have the device for as long as the block lasts; what was moved there is of use inside it only."""
    global _current
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("This version of torch takes no backend written in Python.")
    if torch.cuda.is_available():
        pytest.skip("To torch it would be the accelerator of this machine, in place of the one there is.")
    # Else a module that is moved or converted keeps its parameters, and changes what torch holds of them.
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    _current = Simulation(_registered(), float64)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with _Functions(), _Dispatch():
            yield _current
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
        _current = None
