"""The decorator that checks arguments, and what it leaves as it is."""

from __future__ import annotations

import inspect
import pickle
import timeit
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from captum_concepts._support.constraints import (
    Arrays,
    Bools,
    Floats,
    Indices,
    Items,
    Location,
    Number,
    Seed,
    Whole,
    ZeroOne,
    check_arguments,
)


@check_arguments(
    values=Floats("N, L"), labels=ZeroOne("N, L"), top=Whole(1, "L", "concepts"), where=Location(), tops=Items(Whole())
)
def example(values: Tensor, labels: Tensor | None = None, top: int = 1, *, where: Any = None, tops: Any = (1,)) -> Any:
    """Return what came."""
    return values, labels, top, where, tops


class Holder:
    """It knows the size of an axis."""

    @check_arguments(lambda self: {"L": 3}, values=Floats("N, L"))
    def hold(self, values: Tensor) -> Tensor:
        return values


def test_function_is_the_same_from_outside() -> None:
    parameters = inspect.signature(example).parameters
    assert [*parameters] == ["values", "labels", "top", "where", "tops"]
    assert parameters["top"].default == 1
    assert parameters["where"].kind is inspect.Parameter.KEYWORD_ONLY
    assert example.__doc__ == "Return what came."
    assert example.__annotations__["values"] == "Tensor"
    assert pickle.loads(pickle.dumps(example)) is example


def test_constraints_are_data() -> None:
    assert [*example.constraints] == ["values", "labels", "top", "where", "tops"]  # type: ignore[attr-defined]


def test_tensors_are_handed_on_as_they_are() -> None:
    values = torch.rand(2, 3, requires_grad=True)
    assert example(values, torch.ones(2, 3))[0] is values
    assert example(values=values)[0] is values


def test_plain_form() -> None:
    assert example(torch.ones(2, 3), where="~/x", tops=np.array([1, 2]))[3:] == (Path("~/x").expanduser(), [1, 2])
    assert example(torch.ones(2, 3), None, np.int64(2))[1:3] == (None, 2)
    assert type(example(torch.ones(2, 3), None, np.int64(2))[2]) is int


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [[1.0]]}, "`values` to be a torch.Tensor but got list. Convert it with torch.as_tensor."),
        ({"values": torch.ones(2, 3).long()}, "`values` to be of a floating-point dtype but got torch.int64."),
        ({"values": torch.ones(3)}, r"`values` to have shape \(N, L\) but got \(3,\)"),
        ({"labels": torch.ones(2, 4)}, r"`labels` to have shape \(N, L\) = \(2, 3\) but got \(2, 4\)"),
        ({"labels": torch.full((2, 3), 255)}, "`labels` to hold only 0 and 1 but got 255 .* pass `labels > 0`"),
        ({"top": 4}, r"`top` to lie in \[1, 3\], the number of concepts, but got 4"),
        ({"top": 1.0}, "`top` to be a whole number but got 1.0"),
        # A default has its constraint too.
        ({"values": torch.ones(2, 0)}, "`top` to lie in .* but got 1"),
        ({"tops": (1, -1)}, "`tops` to be at least 0 but got -1"),
    ],
)
def test_messages(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^Expected argument {message}"):
        example(**{"values": torch.ones(2, 3), **arguments})


def test_sizes_that_an_object_knows() -> None:
    assert Holder().hold(torch.ones(1, 3)).shape == (1, 3)
    with pytest.raises(ValueError, match=r"`values` to have shape \(N, L\) = \(\*, 3\) but got \(1, 2\)"):
        Holder().hold(torch.ones(1, 2))


@pytest.mark.parametrize(
    ("rule", "value", "message"),
    [
        (Floats("N", finite=True), torch.tensor([0.0, torch.nan]), "to be finite but 1 of 2"),
        (Floats("N", low=0, high=1, remedy="Divide."), torch.tensor([0.5, 3.0]), r"\[0, 1\] .* 0.5 to 3. Divide."),
        (Floats("N", low=0, high=1), torch.tensor([torch.nan]), "to be finite"),
        (Floats("N, d", filled=True), torch.ones(2, 0), "at least one entry along each axis"),
        (Indices("N", low=-1, high="L"), torch.tensor([-1, 3]), r"to lie in \[-1, 2\] but got values from -1 to 3"),
        (Bools("N"), torch.ones(2), "to be a tensor of torch.bool but got torch.float32. Convert it with .bool()"),
        (Arrays("N, ..."), [1.0], r"to have shape \(N, ...\) but got \(1,\)"),
        (Number(0, open_low=True), 0, r"to lie in \(0, inf\] but got 0"),
        (Seed(), 2**63, r"to lie in \[0, 9223372036854775807\]"),
    ],
)
def test_values(rule: Any, value: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^Expected argument `x` .*{message}"):
        rule.check("x", value, {"L": 3})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_finite_numbers_whose_sum_overflows_are_finite(dtype: type) -> None:
    largest = np.full((2, 3), np.finfo(dtype).max, dtype)
    assert Arrays("N, L", finite=True).check("values", largest, {}) is largest
    with pytest.raises(ValueError, match=r"2 of 6 entries are NaN or infinite, the first at \(0, 1\)"):
        Arrays("N, L", finite=True).check("values", np.array([[0, np.inf, -np.inf], [0, 0, 0]], dtype), {})


def test_nan_where_it_has_a_meaning() -> None:
    hits = torch.tensor([0.0, torch.nan, 1.0])
    assert Floats("N", low=0, high=1, nan=True).check("hits", hits, {}) is hits


def test_unknown_argument_is_an_error_where_it_is_declared() -> None:
    with pytest.raises(KeyError, match="valeus"):
        check_arguments(valeus=Seed())(lambda values: values)


def test_a_call_takes_microseconds_more() -> None:
    plain, values = inspect.unwrap(example), torch.ones(2, 3)
    checked, bare = (min(timeit.repeat(lambda f=f: f(values), number=200, repeat=5)) for f in (example, plain))
    # Measured: 5 microseconds. The bound is for a loaded machine.
    assert (checked - bare) / 200 < 1e-4
