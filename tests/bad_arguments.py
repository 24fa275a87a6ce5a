"""Good and bad arguments, made from the constraints that a callable declares."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import singledispatch
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from captum_concepts._support import constraints as rules

NAN, INF = math.nan, math.inf
Bad = dict[str, Any]


def public_functions(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the functions that a package exports, and the constructors and public methods of the classes, once each."""
    yielded: set[Any] = set()
    for name in package.__all__:
        value = getattr(package, name)
        members = _members(value) if isinstance(value, type) else [("", value)] if callable(value) else []
        for suffix, member in members:
            if member not in yielded:
                yielded.add(member)
                yield f"{name}{suffix}", member


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] not in ("captum_concepts", "quantus_concepts"):
            continue
        for name, member in vars(base).items():
            function = getattr(member, "__func__", member)
            private = name.startswith("_") and name not in ("__init__", "__new__", "__call__")
            # That of a named tuple is made by Python.
            private |= name == "__new__" and not hasattr(function, "constraints")
            if private or name in names or not inspect.isfunction(function) or not own_parameters(function):
                continue
            names.add(name)
            yield ("" if name in ("__init__", "__new__") else f".{name}"), function


def own_parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function, without the object of a method and those of any name or number."""
    return [
        parameter
        for place, parameter in enumerate(inspect.signature(function).parameters.values())
        if not (place == 0 and parameter.name in ("self", "cls"))
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]


def frames_of(error: BaseException) -> list[Any]:
    """Return the code of each frame that an error went through."""
    frames, step = [], error.__traceback__
    while step is not None:
        frames.append(step.tb_frame.f_code)
        step = step.tb_next
    return frames


class Other:
    """What no argument can be."""


#: What is no array of numbers.
NO_ARRAY: Bad = {
    "a text": "a",
    "texts": np.array([["a", "b"]]),
    "objects": np.array([[Other(), None]]),
    "complex": np.array([[1j, 0]]),
    "ragged": [[1.0], [1.0, 2.0]],
    "masked": np.ma.masked_invalid([[NAN, 1.0]]),
    "a number": 3.0,
}
#: Texts, numbers and containers that are no whole number.
NO_WHOLE: Bad = {"a fraction": 1.5, "a bool": True, "a text": "many", "NaN": NAN, "a list": [1]}
NO_NUMBER: Bad = {"a text": "much", "a list": [1.0], "complex": 1j, "a bool": True, "NaN": NAN}


@singledispatch
def good_value(rule: Any, sizes: dict[str, int]) -> Any:
    """Return a value that a constraint lets through."""
    raise TypeError(f"Add a good value by hand: {rule}.")


@singledispatch
def bad_values(rule: Any, good: Any, sizes: dict[str, int]) -> Bad:
    """Return values that a constraint must refuse, by what is wrong with them."""
    raise TypeError(f"Unknown constraint {rule}.")


def all_bad_values(rule: Any, good: Any, sizes: dict[str, int], required: bool) -> Bad:
    """Return bad values of an argument, also what no argument can be, and None where that has no meaning."""
    nothing = {"None": None} if required else {}
    other = {"another object": Other()} if not isinstance(rule, rules.Instance) or rule.kind is not object else {}
    return {**other, **nothing, **bad_values(rule, good, sizes)}


@bad_values.register
def _(rule: rules.Whole, good: Any, sizes: dict[str, int]) -> Bad:
    high = sizes[rule.high] if isinstance(rule.high, str) else rule.high
    return {**NO_WHOLE, "too small": rule.low - 1} | ({} if high is None else {"too large": high + 1})


@good_value.register
def _(rule: rules.Number, sizes: dict[str, int]) -> Any:
    if math.isfinite(rule.low):
        return (rule.low + rule.high) / 2 if math.isfinite(rule.high) else rule.low + 1
    return 0.5


@bad_values.register
def _(rule: rules.Number, good: Any, sizes: dict[str, int]) -> Bad:
    below = rule.low if rule.open_low else rule.low - 1 if math.isfinite(rule.low) else None
    above = rule.high if rule.open_high else rule.high + 1 if math.isfinite(rule.high) else None
    return NO_NUMBER | {what: end for what, end in (("too small", below), ("too large", above)) if end is not None}


@bad_values.register
def _(rule: rules.Instance, good: Any, sizes: dict[str, int]) -> Bad:
    kinds = rule.kind() if inspect.isfunction(rule.kind) else rule.kind
    of_other_kinds = {"a text": "some", "a number": 3, "a list": [1], "a class": Other}
    return {what: value for what, value in of_other_kinds.items() if not isinstance(value, kinds)}


@bad_values.register
def _(rule: rules.Dictionary, good: Any, sizes: dict[str, int]) -> Bad:
    broken = {} if rule.item is None else bad_values(rule.item, next(iter((good or {}).values()), None), sizes)
    entries = {f"of {what}": {"a": value} for what, value in broken.items()}
    return {"a text": "a", "a list": [1], "a set": {"a"}, **entries} | ({"empty": {}} if rule.filled else {})


@bad_values.register
def _(rule: rules.Location, good: Any, sizes: dict[str, int]) -> Bad:
    nowhere = {"nowhere": "nowhere", "below a file": f"{__file__}/x"} if rule.what else {}
    other = {"folder": {"a file": __file__}, "file": {"a folder": "/"}}.get(rule.what, {})
    return {"empty": "", "with a null": "a\0b", "too long": "x" * 300, "a number": 3, **nowhere, **other}


@bad_values.register
def _(rule: rules.Items, good: Any, sizes: dict[str, int]) -> Bad:
    items = list(good or ())
    broken = bad_values(rule.item, items[0] if items else None, sizes)
    return {
        "a text": "one",
        "a number": 1,
        **({"too few": items[: rule.least - 1]} if rule.least else {}),
        **{f"with {what}": [*items[1:], value] for what, value in broken.items()},
    }


@bad_values.register
def _(rule: rules.ByName, good: Any, sizes: dict[str, int]) -> Bad:
    broken = bad_values(rule.item, good, sizes)
    return broken | {f"by name, {what}": {"model": value} for what, value in broken.items()}


@bad_values.register
def _(rule: rules.Ends, good: Any, sizes: dict[str, int]) -> Bad:
    low, high = good_value(rule, sizes)
    pairs = {"descending": (high, low), "equal": (low, low), "NaN": (NAN, high), "infinite": (low, INF)}
    limited = {"too small": (rule.low - 1, high)} if math.isfinite(rule.low) else {}
    return {**pairs, **limited, "texts": ("a", "b"), "one": (low,), "three": (low, high, high + 1), "a number": 1.0}


def shape_of(axes: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an array with these axes; any axes are one of size 2."""
    return tuple(int(axis) if axis.isdigit() else sizes[axis] for axis in axes.split(", "))


@good_value.register
def _(rule: rules.Tensors, sizes: dict[str, int]) -> Any:
    shape = shape_of(rule.axes, sizes)
    generator = torch.Generator().manual_seed(0)
    if isinstance(rule, rules.Bools):
        return torch.ones(shape, dtype=torch.bool)
    if isinstance(rule, rules.ZeroOne):
        return torch.randint(2, shape, generator=generator)
    if isinstance(rule, rules.Indices):
        return torch.randint(2, shape, generator=generator)
    return torch.rand(shape, generator=generator)


@bad_values.register
def _(rule: rules.Tensors, good: Any, sizes: dict[str, int]) -> Bad:
    bad: Bad = {
        "a list": good.tolist(),
        "an array": good.numpy(),
        "a text": "maps",
        "of one more axis": good[..., None],
        "a number": 1.0,
    }
    if isinstance(rule, rules.Reals | rules.Floats | rules.ZeroOne):
        bad["complex"] = good + 1j
    if isinstance(rule, rules.Floats):
        bad["whole numbers"] = good.long()
    if isinstance(rule, rules.Bools):
        bad["numbers"] = good.float()
    if isinstance(rule, rules.Indices):
        bad |= {"fractions": good.double() + 0.5, "bools": good > 0}
    if isinstance(rule, rules.Reals):
        bad["bools"] = good > 0
    if isinstance(rule, rules.ZeroOne):
        bad |= {"halves": good * 0 + 0.5, "levels of a picture": good * 0 + 255, "NaN": good * NAN}
    if rule.finite:
        bad |= {"NaN": good * NAN, "infinite": good * 0 + INF}
    if rule.filled:
        bad["empty"] = good[:, :0]
    if rule.low is not None and math.isfinite(rule.low):
        bad["too small"] = good * 0 + rule.low - 1
    if rule.high is not None:
        bad["too large"] = good * 0 + (sizes[rule.high] if isinstance(rule.high, str) else rule.high + 1)
    if (rule.low is not None or rule.high is not None) and not rule.nan and good.is_floating_point():
        bad["NaN"] = good * NAN
    return bad


@good_value.register
def _(rule: rules.Arrays, sizes: dict[str, int]) -> Any:
    shape = shape_of(rule.axes.replace("...", "2"), sizes) if rule.axes else (3,)
    return np.random.default_rng(0).integers(0, 2, shape) if rule.binary else np.random.default_rng(0).random(shape)


@bad_values.register
def _(rule: rules.Arrays, good: Any, sizes: dict[str, int]) -> Bad:
    if good is None:
        good = good_value(rule, sizes | dict.fromkeys(rule.axes.split(", "), 3))
    array = np.asarray(good)
    bad: Bad = {what: value for what, value in NO_ARRAY.items() if rule.axes or what != "a number"}
    if rule.axes:
        bad["of too few axes"] = array.ravel() if "..." in rule.axes else array[0]
    if rule.axes and "..." not in rule.axes:
        bad["of one more axis"] = array[..., None]
    if rule.binary:
        bad |= {"halves": array * 0 + 0.5, "levels of a picture": array * 0 + 255}
    if rule.binary or rule.finite:
        bad |= {"NaN": array * NAN, "infinite": array * 0.0 + INF}
    if rule.filled:
        bad["empty"] = array[:0]
    if rule.high is not None:
        bad["too large"] = array * 0.0 + rule.high + 1
    return bad


def good_values(function: Any, arguments: Mapping[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """Return good arguments: the given ones, and what the constraints make for the others that are required."""
    completed = dict(arguments)
    for key, rule in function.constraints.items():
        required = inspect.signature(function).parameters[key].default is inspect.Parameter.empty
        if key not in completed and (required or not arguments):
            with suppress(TypeError):
                completed[key] = good_value(rule, sizes)
    return completed


def resized(
    name: str, constraints: Mapping[str, Any], good: Mapping[str, Any], fixed: Container[str]
) -> Iterator[tuple[Any, set[str]]]:
    """Yield an array with one more entry along each axis whose size is known, and what may be named for it."""
    axes = {key: getattr(rule, "axes", "").split(", ") for key, rule in constraints.items()}
    for place, axis in enumerate(axes[name]):
        sharing = {key for key in good if good[key] is not None and axis in axes.get(key, ())}
        if axis not in ("", "...") and (len(sharing) > 1 or axis.isdigit() or axis in fixed):
            array = torch.as_tensor(good[name])
            yield array.index_select(place, torch.tensor([*range(array.shape[place]), 0])), sharing


#: Good values of constraints that need no statement, by kind.
GOOD: dict[type, Callable[[Any, dict[str, int]], Any]] = {
    rules.Whole: lambda rule, sizes: rule.low,
    rules.Seed: lambda rule, sizes: 3,
    rules.Flag: lambda rule, sizes: True,
    rules.Choice: lambda rule, sizes: next(iter(rule.options)),
    rules.Device: lambda rule, sizes: "cpu",
    rules.Items: lambda rule, sizes: [good_value(rule.item, sizes) for _ in range(max(rule.least, 1))],
    rules.Ends: lambda rule, sizes: (0.0, 1.0),
    rules.ImageSize: lambda rule, sizes: (4, 4),
    rules.Names: lambda rule, sizes: [f"name {j}" for j in range(sizes[rule.axis])],
}
#: Bad values and a good one.
BAD: dict[type, Callable[[Any, Any, dict[str, int]], Bad]] = {
    rules.Seed: lambda rule, good, sizes: {**NO_WHOLE, "negative": -1, "too large": 2**63},
    rules.Flag: lambda rule, good, sizes: {"a text": "yes", "two": 2},
    rules.Choice: lambda rule, good, sizes: {"unknown": "nonsense", "a number": 1, "an array": np.array(["a", "b"])},
    rules.Function: lambda rule, good, sizes: {"an unknown name": "nonsense", "a number": 3},
    rules.Module: lambda rule, good, sizes: {"a text": "resnet18", "a list": [1], "a class": torch.nn.Linear},
    rules.Loader: lambda rule, good, sizes: {"a text": "images", "a number": 3},
    rules.Device: lambda rule, good, sizes: {"an unknown name": "gpu number one", "a list": [], "a bool": True},
    rules.ImageSize: lambda rule, good, sizes: {
        "a number": 9,
        "one": (9,),
        "three": (9, 9, 9),
        "a bool": (True, 4),
        "NaN": (NAN, 4),
        "zero": (0, 4),
        "a fraction": (9, 9.0),
    },
    rules.Names: lambda rule, good, sizes: {
        "a number": 3,
        "a text": "abc",
        "a set": {"a"},
        "not texts": [None],
        "empty": [" "],
        "twice the same": ["a", "a"],
        "too many": [f"name {j}" for j in range(99)],
    },
}


for _kind, _value in GOOD.items():
    good_value.register(_kind, _value)
for _kind, _values in BAD.items():
    bad_values.register(_kind, _values)


#: A call and what the message of its error has to say.
Case = tuple[Callable[[], object], str]


def spoilt(
    call: Callable[..., object], good: Callable[[], Mapping[str, Any]] | Mapping[str, Any], **bad: Any
) -> dict[str, Case]:
    """Return a case for each bad value of each argument of an otherwise good call."""

    def case(name: str, value: Any) -> Case:
        return lambda: call(**{**(good() if callable(good) else good), name: value}), f"`{name}"

    return {
        f"{name}: {what}": case(name, value)
        for name, values in bad.items()
        for what, value in (values if isinstance(values, Mapping) else dict(enumerate(values))).items()
    }


def assert_refused(cases: Mapping[str, Case]) -> None:
    """Assert that each call raises an error that says what it has to, and writes no file here."""
    before, wrong = files_below(Path()), {}
    for what, (call, message) in cases.items():
        try:
            call()
        except (ValueError, TypeError, OSError, IndexError) as error:
            if message not in str(error) or len(str(error).split()) < 4:
                wrong[what] = f"{type(error).__name__}: {error}"
        else:
            wrong[what] = "not refused"
    assert not wrong, "\n".join(f"{what}: {problem}" for what, problem in wrong.items())
    assert files_below(Path()) == before


def files_below(folder: Path) -> set[tuple[str, int]]:
    """Return what lies below a folder: names and, but for folders, sizes."""
    return {(str(path), 0 if path.is_dir() else path.lstat().st_size) for path in folder.rglob("*")}
