"""Running a user's model: device, dtype, eval mode, generators, errors, progress; copies between devices."""

from __future__ import annotations

import difflib
import importlib.machinery
import importlib.util
import os
import random
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
import tqdm as plain_tqdm
from torch import Tensor, nn
from tqdm.auto import tqdm

from captum_concepts.support.checks import check_path
from captum_concepts.support.files import check_plain_file, printable, reason_of
from captum_concepts.support.log import LOG

T = TypeVar("T")
PACKAGES = ("captum_concepts", "quantus_concepts")


def warn_user(message: str) -> None:
    """Warn at the line outside these packages that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PACKAGES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def first_floating(module: nn.Module) -> Tensor | None:
    """Return the first floating-point parameter or buffer of a module, which has its device and type; else None."""
    for tensor in chain(module.parameters(), module.buffers()):
        if tensor.is_floating_point():
            return tensor
    return None


def device_of(module: object, default: torch.device | None = None) -> torch.device:
    """Return the device of a module; without parameters and buffers the default, which is the CPU."""
    reference = first_floating(module) if isinstance(module, nn.Module) else None
    return (default or torch.device("cpu")) if reference is None else reference.device


def to_model(model: nn.Module, array: object) -> Tensor:
    """Put images or rows on a model's device, in its precision; without parameters, in float32 where they are."""
    reference = first_floating(model)
    if reference is None:
        return floating_images(array if isinstance(array, Tensor) else torch.as_tensor(np.asarray(array))).float()
    tensor = floating_images(onto_device(torch.as_tensor(array), reference.device))
    _warn_of_half_precision(tensor.dtype, reference.dtype)
    return tensor.to(reference.dtype)


def floating_images(images: Tensor) -> Tensor:
    """Return images in floating point, those of uint8 divided by 255 and no more; rows of a table are not divided."""
    if images.dtype == torch.uint8 and images.ndim > 2:
        return images.float() / 255
    return images if images.is_floating_point() else images.float()


def _warn_of_half_precision(given: torch.dtype, own: torch.dtype) -> None:
    """Warn of inputs of half precision that a model of full precision gets."""
    if given in (torch.float16, torch.bfloat16) and own in (torch.float32, torch.float64):
        warn_user(
            f"Inputs of {str(given)[6:]} go into a model of {str(own)[6:]}, which takes them as they were rounded: "
            "pass inputs in the model's precision, or `model.half()`, for its scores in half precision."
        )


def to_device(name: str, device: str | torch.device) -> torch.device:
    """Return a device, or raise where this machine has none of this name."""
    try:
        place = torch.device(device)
        torch.zeros(1, device=place).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        usable = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        none = " PyTorch sees no GPU here." if str(device).startswith("cuda") and len(usable) == 1 else ""
        raise ValueError(
            f"Expected argument `{name}` to name a device of this machine, one of {usable}, but got {str(device)!r}."
            f"{none}"
        ) from error
    return place


def at_least_float32(values: Tensor) -> Tensor:
    """Return values of half precision in float32, and others as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


#: Kinds of device that compute in no float64: Apple's GPUs.
WITHOUT_FLOAT64 = {"mps"}


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 where the device has none."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def onto_device(values: Tensor, device: torch.device) -> Tensor:
    """Return values on a device, those of float64 in the widest float that it has."""
    return values.to(device, widest_float(device) if values.dtype == torch.float64 else values.dtype)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Switch autocast off, so that it does not round the products that ranks depend on."""
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else nullcontext()


def tensor_output(output: object, source: str = "the model") -> Tensor:
    """Return the tensor a model gives: itself, its `.logits`, or the first tensor of a tuple, list or mapping."""
    # A tuple or list of maps (N, d, h, w) alone, as timm's ``features_only=True`` gives it, is a pyramid, whose
    # last and deepest maps are returned.
    if isinstance(output, Tensor):
        return output
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(output, Mapping):
        values = [output["logits"], *output.values()] if "logits" in output else list(output.values())
    else:
        values = list(output) if isinstance(output, tuple | list) else []
    if not isinstance(output, Mapping) and all(isinstance(value, Tensor) and value.ndim == 4 for value in values):
        values.reverse()
    tensor = next((value for value in values if isinstance(value, Tensor)), None)
    if tensor is None:
        raise TypeError(
            f"Expected {source} to return a tensor, an object with `.logits`, or a tuple, list or mapping that holds "
            f"a tensor, but got {type(output).__name__}. Wrap it in a module whose forward returns the logits."
        )
    return tensor


@contextmanager
def evaluation_mode(*modules: object) -> Iterator[None]:
    """Put modules into eval mode, and every part back into its own mode afterwards, also after an interrupt."""
    parts = [part for module in modules if isinstance(module, nn.Module) for part in module.modules()]
    modes = [(part, part.training) for part in parts if hasattr(part, "training")]
    try:
        for part, training in modes:
            if training:
                part.training = False
        yield
    finally:
        # An explanation method may have changed any of them.
        for part, training in modes:
            if part.training != training:
                part.training = training


def predict_logits(model: nn.Module, inputs: object, **kwargs: object) -> Tensor:
    """Return a model's outputs for a batch, without gradient and on its device."""
    with torch.no_grad():
        return tensor_output(model(to_model(model, inputs), **kwargs))


@contextmanager
def keep_generators(device: torch.device) -> Iterator[None]:
    """Restore PyTorch's generators of the CPU and of a device after the block."""
    on_device = device.type != "cpu"
    with torch.random.fork_rng([device] if on_device else [], device_type=device.type if on_device else "cuda"):
        yield


@contextmanager
def keep_numpy_state() -> Iterator[None]:
    """Restore the state of NumPy's global generator after the block."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def import_sklearn(part: str) -> Any:
    """Import a part of scikit-learn where it fits: only fitting needs it, and it takes longer than all else."""
    # With it comes rich, which draws from Python's generator.
    state = random.getstate()
    try:
        return importlib.import_module(f"sklearn.{part}")
    finally:
        random.setstate(state)


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed PyTorch's generators of the CPU and of a device; `torch.manual_seed` would seed the other devices too."""
    torch.default_generator.manual_seed(seed)
    module = getattr(torch, device.type, None)
    if device.type != "cpu" and module is not None:
        with module.device(device) if hasattr(module, "device") else nullcontext():
            module.manual_seed(seed)


@contextmanager
def seeded_generators(device: torch.device, seed: int | None) -> Iterator[None]:
    """Seed the generators of PyTorch and NumPy, and put them back as they were."""
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    # GradientShap draws from NumPy's global generator.
    with keep_generators(device), keep_numpy_state():
        seed_generators(device, seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        yield


#: Prefix of the module names of users' files.
USER_FILE = "_captum_concepts_user_file_"


class _WithoutCache(importlib.machinery.SourceFileLoader):
    """Loads a file and leaves no bytecode next to it, where the user may not look for it."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Write nothing."""


def run_file(path: str | os.PathLike[str]) -> ModuleType:
    """Run a user's Python file as a module; its errors become a ValueError."""
    # Registered, as pickle and dataclasses require, under a name that no library has.
    path = check_path("path", path)
    check_plain_file(path, "Python file")
    name = f"{USER_FILE}{path.stem}"
    loader = _WithoutCache(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if path.suffix != ".py" or spec is None:
        raise ValueError(f"Expected a Python file but got {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[name]
        raise ValueError(f"{path} cannot be run: {error_text(error)}.") from error
    return module


def nearest_functions(module: ModuleType, name: str) -> list[str]:
    """Return the functions of a user's module whose names are nearest; the first ones where none is near."""
    functions = {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("_")}
    if module.__name__.startswith(USER_FILE):  # not what it imports
        functions = {
            key: value for key, value in functions.items() if getattr(value, "__module__", None) == module.__name__
        }
    return difflib.get_close_matches(name, functions, n=3, cutoff=0.4) or [*functions][:5]


def error_text(error: BaseException) -> str:
    """Return the class and the text of an error, on one line."""
    kind, reason = type(error).__name__, reason_of(error)
    return kind if reason == kind else f"{kind}: {reason}"


def to_host(*tensors: Tensor) -> list[Tensor]:
    """Return tensors of any shapes and types on the CPU, without gradient, in one transfer from each device."""
    results = [tensor.detach() for tensor in tensors]
    for device in dict.fromkeys(tensor.device for tensor in results):
        if device.type == "cpu":
            continue
        indices = [index for index, tensor in enumerate(results) if tensor.device == device]
        parts = [results[index].reshape(-1).view(torch.uint8) for index in indices]
        # Bytes of one tensor begin anywhere among those of the others, and so they are copied.
        packed = torch.cat(parts).cpu().split([len(part) for part in parts])
        for index, part in zip(indices, packed, strict=True):
            results[index] = part.clone().view(results[index].dtype).view(results[index].shape)
    return results


def progress(iterable: Iterable[T] | None = None, description: str = "", *, show: bool, **settings: Any) -> Any:
    """Return a bar of tqdm over an iterable: a widget in notebooks, silent or a log where the stream is no terminal."""
    if show and LOG.is_on:
        form: dict[str, Any] = {"file": LOG, "bar_format": "{desc}: {n_fmt} of {total_fmt} {unit}", "leave": False}
        return plain_tqdm.tqdm(iterable, printable(description), **form | settings)
    return tqdm(iterable, printable(description), **{"disable": None if show else True, "leave": False} | settings)


def hide_bars() -> AbstractContextManager[None]:
    """Take bars off the terminal while something else is written there."""
    return tqdm.external_write_mode(file=sys.stderr)
