"""The same work on the CPU and on another device, simulated or real, and what both give."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from simulated_device import simulated_device

#: Of what a GPU rounds otherwise, against the size of the array.
TOLERANCE = 1e-3

Work = Callable[[torch.device], Any]
Arrays = dict[str, np.ndarray]


def on_cpu(work: Work) -> Arrays:
    return _as_arrays(run_work(work, torch.device("cpu")))


def simulated(work: Work, *, float64: bool = True) -> tuple[Arrays, Counter[tuple[str, str]]]:
    """Return what is given, and what crossed meanwhile: kind and place, and how often."""
    with simulated_device(float64) as there:
        result = run_work(work, there.device)
        crossed = there.crossed.copy()
        return _as_arrays(result), crossed


def assert_same(work: Work) -> None:
    """Assert that both give the same numbers to the bit."""
    assert_equal(simulated(work)[0], on_cpu(work))


def assert_near(work: Work, *, is_random: bool = False) -> None:
    """Assert that a GPU of this machine gives the same numbers but for rounding; skipped where none is.

    Random numbers (`is_random`) only have to be as many, of the same type, and undefined in the same places.
    """
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        arrays = _as_arrays(run_work(work, torch.device("cuda")))
    expected = on_cpu(work)
    assert_rounded(arrays, expected, is_random=is_random)


def assert_rounded(arrays: Arrays, expected: Arrays, *, is_random: bool = False, tolerance: float = TOLERANCE) -> None:
    """Assert that numbers are the same but for rounding."""
    assert arrays.keys() == expected.keys()
    for place, array in expected.items():
        assert (arrays[place].shape, arrays[place].dtype) == (array.shape, array.dtype), place
        if array.dtype.kind != "f":
            # pandas.NA is equal to nothing.
            assert is_random or repr(arrays[place].tolist()) == repr(array.tolist()), place
            continue
        np.testing.assert_array_equal(np.isfinite(arrays[place]), np.isfinite(array), err_msg=place)
        if not is_random:
            difference, size = (np.linalg.norm(np.nan_to_num(values)) for values in (arrays[place] - array, array))
            assert difference <= tolerance * size, f"{place}: {difference / size}"


def assert_equal(arrays: Arrays, expected: Arrays) -> None:
    assert arrays.keys() == expected.keys()
    for place, array in expected.items():
        assert arrays[place].dtype == array.dtype, place
        if array.dtype.kind == "O":  # pandas.NA is equal to nothing
            assert repr(arrays[place].tolist()) == repr(array.tolist()), place
            continue
        np.testing.assert_array_equal(arrays[place], array, err_msg=place)
    # What is undefined throughout is equal whatever was computed.
    assert any(np.isfinite(array).any() for array in expected.values() if array.dtype.kind in "fi")


def run_work(work: Work, device: torch.device) -> Any:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    # Which of its kernels torch takes for attention depends on the device.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work(device)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _as_arrays(result: Any, place: str = "") -> Arrays:
    """Return all that a result holds, by its place there."""
    if isinstance(result, Tensor):
        # NumPy has no bfloat16, and float32 holds all its values.
        values = result.detach().cpu()
        return {place: (values.float() if values.dtype == torch.bfloat16 else values).numpy()}
    if isinstance(result, pd.DataFrame):
        result = {name: result[name].to_numpy() for name in result}
    elif hasattr(result, "__dict__") and not isinstance(result, Mapping):
        result = vars(result)
    if isinstance(result, list | tuple):
        result = dict(enumerate(result))
    if not isinstance(result, Mapping):
        return {place: np.asarray(result)}
    parts = (_as_arrays(part, f"{place}/{name}") for name, part in result.items())
    return {key: array for part in parts for key, array in part.items()}
