"""Constraints of arguments: declared once for each callable, checked before it runs, read by the tests."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from captum_concepts._support import checks

F = TypeVar("F", bound=Callable[..., Any])
#: Sizes of the named axes in one call.
Sizes = dict[str, int]


def check_arguments(sizes_of: Callable[[Any], Sizes] | None = None, /, **constraints: Constraint) -> Callable[[F], F]:
    """Check the arguments of a function, or of a class's constructor, in the order given, before it runs.

    A constraint raises, or returns the argument in its plain form (a path expanded, a sequence as a list), which the
    callable then gets. An axis of one name has one size in a call:
    that of the first argument, or that which `sizes_of` reads from the object of a method.
    """

    def decorate(target: F) -> F:
        function = getattr(target, "__init__") if isinstance(target, type) else target  # noqa: B009 (mypy)
        parameters = inspect.signature(function).parameters
        keyword_only = inspect.Parameter.KEYWORD_ONLY
        places = {
            name: sys.maxsize if parameter.kind is keyword_only else place
            for place, (name, parameter) in enumerate(parameters.items())
        }
        plan = [(places[name], name, parameters[name].default, rule) for name, rule in constraints.items()]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            sizes = dict(sizes_of(args[0])) if sizes_of else {}
            positional, named = list(args), dict(kwargs)
            for place, name, default, constraint in plan:
                by_place = place < len(positional)
                value = positional[place] if by_place else named.get(name, default)
                # Of a missing argument Python's own error is the best.
                if value is inspect.Parameter.empty or (value is None and (default is None or constraint.optional)):
                    continue
                value = constraint.check(name, value, sizes)
                if by_place:
                    positional[place] = value
                else:
                    named[name] = value
            return function(*positional, **named)

        wrapper.constraints, wrapper.known = constraints, sizes_of  # type: ignore[attr-defined]
        if not isinstance(target, type):
            return wrapper  # type: ignore[return-value]
        target.__init__ = wrapper  # type: ignore[misc]
        return target

    return decorate


@dataclass(frozen=True)
class Constraint:
    """What one argument has to be; None too if it is `optional`, or if that is its default."""

    optional: bool = field(default=False, kw_only=True)

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return a value in its plain form, or raise; add the sizes of its axes."""
        raise NotImplementedError


@dataclass(frozen=True)
class Whole(Constraint):
    """A whole number; `high` may be an axis, the number of `noun`."""

    low: int = 0
    high: int | str | None = None
    noun: str = ""

    def check(self, name: str, value: Any, sizes: Sizes) -> int:
        """Return an int, or raise."""
        if not isinstance(self.high, str):
            return checks.check_whole(name, value, self.low, self.high)
        number, high = checks.check_whole(name, value, self.low), sizes[self.high]
        if number > high:
            raise ValueError(
                f"Expected argument `{name}` to lie in [{self.low}, {high}], the number of {self.noun}, but got "
                f"{number}."
            )
        return number


@dataclass(frozen=True)
class Number(Constraint):
    """A real number other than NaN."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return the number as it is, or raise."""
        checks.check_range(name, value, self.low, self.high, open_low=self.open_low, open_high=self.open_high)
        return value


#: A number other than NaN and infinity.
FINITE = Number(open_low=True, open_high=True)
#: A finite number above 0, and one of at least 0.
POSITIVE, WEIGHT = Number(0, open_low=True, open_high=True), Number(0, open_high=True)
#: A share.
SHARE = Number(0, 1)


@dataclass(frozen=True)
class Seed(Constraint):
    """A seed that the generators of NumPy and PyTorch take."""

    def check(self, name: str, value: Any, sizes: Sizes) -> int:
        """Return an int, or raise."""
        seed = checks.check_whole(name, value, 0)
        checks.check_range(name, seed, 0, 2**63 - 1)
        return seed


@dataclass(frozen=True)
class Flag(Constraint):
    """True or False; 0 and 1 are such."""

    def check(self, name: str, value: Any, sizes: Sizes) -> bool:
        """Return a bool, or raise."""
        return checks.check_flag(name, value)


@dataclass(frozen=True)
class Choice(Constraint):
    """One of some texts; True and False may be among them."""

    options: Iterable[Any]

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return the value as it is, or raise."""
        checks.check_choice(name, value, self.options)
        return value


@dataclass(frozen=True)
class Instance(Constraint):
    """An object of a class, or of one of several; a function returns a class that is not defined or imported yet."""

    kind: Any
    expected: str

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return the object as it is, or raise."""
        checks.check_kind(name, value, self.kind() if inspect.isfunction(self.kind) else self.kind, self.expected)
        return value


TEXT = Instance(str, "a text")


def _axes_class() -> type:
    # Who draws nothing does not wait for matplotlib.
    from matplotlib.axes import Axes

    return Axes


def data_frame() -> type:
    """Return the class of tables of pandas, which not everyone waits for."""
    import pandas as pd

    return pd.DataFrame


AXES = Instance(_axes_class, "Axes of matplotlib")


@dataclass(frozen=True)
class Function(Constraint):
    """Anything that can be called, or the name of such."""

    names: Iterable[str] = ()

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return it as it is, or raise."""
        if isinstance(value, str) and self.names:
            checks.check_choice(name, value, self.names)
        else:
            checks.check_callable(name, value)
        return value


@dataclass(frozen=True)
class Module(Constraint):
    """A `torch.nn.Module`."""

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return it as it is, or raise."""
        checks.check_module(name, value)
        return value


@dataclass(frozen=True)
class Loader(Constraint):
    """What gives batches."""

    def check(self, name: str, value: Any, sizes: Sizes) -> Iterable[Any]:
        """Return it as it is, or raise."""
        if isinstance(value, str) or not (isinstance(value, Iterable) or hasattr(value, "__getitem__")):
            raise TypeError(
                f"Expected argument `{name}` to give batches, as a torch.utils.data.DataLoader does, but got "
                f"{type(value).__name__}."
            )
        return value


@dataclass(frozen=True)
class Dictionary(Constraint):
    """A mapping, not empty if `filled`, with entries under a constraint if there is one."""

    item: Constraint | None = None
    filled: bool = False
    remedy: str = ""

    def check(self, name: str, value: Any, sizes: Sizes) -> Mapping[Any, Any]:
        """Return it as it is, or raise."""
        mapping = checks.check_mapping(name, value, self.remedy)
        if self.filled and not mapping:
            raise ValueError(f"Expected argument `{name}` to hold at least one entry but it is empty.")
        if self.item is not None:
            for key, entry in mapping.items():
                self.item.check(f"{name}[{key!r}]", entry, sizes)
        return mapping


def check_device(name: str, value: Any, *, there: bool = False) -> Any:
    """Return a device, or None as it is; raise if it is invalid or, with `there`, not on this machine."""
    if value is None:
        return None
    try:
        if not isinstance(value, str | int | torch.device) or isinstance(value, bool):
            raise TypeError(f"it is a {type(value).__name__}")
        device = torch.device(value)
        if there:
            torch.empty(1, device=device)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"Expected argument `{name}` to be a torch.device of this machine or the name of one, 'cpu' or 'cuda:0' "
            f"for instance, but got {checks._value_text(value)} ({reason})."
        ) from error
    return device


def is_integral(tensor: Tensor) -> bool:
    """Whether a tensor holds whole numbers, as indices are; bools are none."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


@dataclass(frozen=True)
class Device(Constraint):
    """A device, or the name of one."""

    there: bool = False

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return a `torch.device`, or raise."""
        if value is None:
            raise TypeError(f"Expected argument `{name}` to be a torch.device or the name of one but got None.")
        return check_device(name, value, there=self.there)


@dataclass(frozen=True)
class Location(Constraint):
    """A path; of a "folder" or "file" that exists where `what` says so, described by `expected`."""

    what: str = ""
    expected: str = ""

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return a `pathlib.Path` with ``~`` expanded, or raise."""
        if not self.what:
            return checks.check_path(name, value)
        check = checks.check_folder if self.what == "folder" else checks.check_file
        return check(name, value, self.expected or f"a {self.what}")


@dataclass(frozen=True)
class Items(Constraint):
    """A sequence of at least so many items, each under a constraint."""

    item: Constraint
    what: str = "values"
    least: int = 0

    def check(self, name: str, value: Any, sizes: Sizes) -> list[Any]:
        """Return a list, or raise."""
        items = checks.as_list(name, value, self.what)
        if len(items) < self.least:
            raise ValueError(
                f"Expected argument `{name}` to hold {self.what}, at least {self.least}, but got {len(items)}."
            )
        return [self.item.check(name, item, sizes) for item in items]


@dataclass(frozen=True)
class ByName(Constraint):
    """A value under a constraint, or a dict of such values by name; of `gaps`, None for some."""

    item: Constraint
    gaps: bool = False

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return the value, or a dict, in its plain form, or raise."""
        if not isinstance(value, Mapping):
            return self.item.check(name, value, sizes)
        return {
            key: None if self.gaps and entry is None else self.item.check(name, entry, sizes)
            for key, entry in value.items()
        }


@dataclass(frozen=True)
class Ends(Constraint):
    """Two numbers in ascending order."""

    low: float = -math.inf
    high: float = math.inf

    def check(self, name: str, value: Any, sizes: Sizes) -> tuple[Any, Any]:
        """Return a pair, or raise."""
        ends = [checks.check_number(name, end) for end in checks.as_list(name, value, "two numbers")]
        finite = all(math.isfinite(end) and self.low <= end <= self.high for end in ends)
        if len(ends) != 2 or not finite or not ends[0] < ends[1]:
            within = f" in [{self.low:g}, {self.high:g}]" if math.isfinite(self.low) else ""
            raise ValueError(
                f"Expected argument `{name}` to be two finite numbers (low, high){within} with low < high but got "
                f"{value}."
            )
        return ends[0], ends[1]


@dataclass(frozen=True)
class ImageSize(Constraint):
    """(M1, M2), height and width of an image in pixels."""

    def check(self, name: str, value: Any, sizes: Sizes) -> tuple[int, int]:
        """Return two ints, or raise."""
        return checks.check_size(name, value)


@dataclass(frozen=True)
class Tensors(Constraint):
    """A tensor with named axes, separated by commas; `filled` if only the first may be of size 0.

    Numbers have a fixed size, and "..." is any axes. Nothing is copied; only what has `finite`, `low` or `high` waits
    for the device.
    """

    axes: str
    filled: bool = False
    finite: bool = False
    low: float | None = None
    high: float | str | None = None
    nan: bool = False
    remedy: str = ""

    def check(self, name: str, value: Any, sizes: Sizes) -> Tensor:
        """Return the tensor as it is, or raise."""
        self.check_kind(name, value)
        check_axes(name, value, self.axes, sizes)
        if self.filled and 0 in value.shape[1:]:
            raise ValueError(
                f"Expected argument `{name}` to have at least one entry along each axis of ({self.axes}) after the "
                f"first but got shape {tuple(value.shape)}.{self.remedy and ' '}{self.remedy}"
            )
        if self.finite:
            _check_finite(name, value)
        if self.low is not None or self.high is not None:
            self._check_range(name, value, sizes)
        return value

    def check_kind(self, name: str, value: Any) -> None:
        """Raise unless a value is a tensor of the numbers wanted."""
        if not isinstance(value, Tensor):
            raise TypeError(
                f"Expected argument `{name}` to be a torch.Tensor but got {type(value).__name__}. "
                "Convert it with torch.as_tensor."
            )

    def _check_range(self, name: str, value: Tensor, sizes: Sizes) -> None:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else sizes[self.high] - 1 if isinstance(self.high, str) else self.high
        inside = ~((value < low) | (value > high)) if self.nan else (value >= low) & (value <= high)
        if inside.all():
            return
        if not self.nan:
            _check_finite(name, value)
        numbers = value[~value.isnan()]
        raise ValueError(
            f"Expected argument `{name}` to lie in [{low:g}, {high:g}] but got values from {numbers.min().item():g} to "
            f"{numbers.max().item():g}.{self.remedy and ' '}{self.remedy}"
        )


class Reals(Tensors):
    """A tensor of real numbers other than bools."""

    def check_kind(self, name: str, value: Any) -> None:
        """Raise unless a value is such a tensor."""
        super().check_kind(name, value)
        if value.is_complex() or value.dtype == torch.bool:
            raise TypeError(f"Expected argument `{name}` to hold real numbers but got {value.dtype}.")


class Floats(Tensors):
    """A tensor of real floating-point numbers."""

    def check_kind(self, name: str, value: Any) -> None:
        """Raise unless a value is such a tensor."""
        super().check_kind(name, value)
        if not value.is_floating_point():
            raise TypeError(
                f"Expected argument `{name}` to be of a floating-point dtype but got {value.dtype}. "
                "Convert it with .float()."
            )


NAMES = Items(TEXT, "names")
#: How features become an embedding.
POOL = Function(("mean",))
#: Images, or anything of that shape.
IMAGES = Tensors("N, C, H, W")


class Bools(Tensors):
    """A tensor of bool."""

    def check_kind(self, name: str, value: Any) -> None:
        """Raise unless a value is such a tensor."""
        if not isinstance(value, Tensor) or value.dtype != torch.bool:
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(
                f"Expected argument `{name}` to be a tensor of torch.bool but got {kind}. Convert it with .bool()."
            )


class Indices(Tensors):
    """A tensor of whole numbers; `high` may be the axis that they count."""

    def check_kind(self, name: str, value: Any) -> None:
        """Raise unless a value is such a tensor."""
        if not isinstance(value, Tensor) or not is_integral(value):
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(
                f"Expected argument `{name}` to be a tensor of an integer dtype but got {kind}. Convert it with "
                ".long()."
            )
        if self.low is not None and self.low < 0 and not value.dtype.is_signed:
            raise ValueError(
                f"Expected argument `{name}` to have a signed dtype but got {value.dtype}, in which {self.low} becomes "
                "a large number. Pass whole numbers as int64."
            )


class ZeroOne(Tensors):
    """A tensor of 0 and 1, of any real dtype or of bool."""

    def check(self, name: str, value: Any, sizes: Sizes) -> Tensor:
        """Return the tensor as it is, or raise."""
        super().check(name, value, sizes)
        if value.is_complex():
            raise TypeError(f"Expected argument `{name}` to be real but got {value.dtype}.")
        # The full message needs the values on the CPU; only a failure pays for that.
        if value.dtype != torch.bool and not ((value == 0) | (value == 1)).all():
            checks.check_binary(name, value)
        return value


@dataclass(frozen=True)
class Arrays(Constraint):
    """Real numbers as an array, a tensor or nested sequences, with axes if given; NaN has no limits.

    They are returned as an "array" on the CPU, as a "tensor" on the device they are on, or as the "same" kind.
    """

    axes: str = ""
    binary: bool = False
    finite: bool = False
    filled: bool = False
    low: float | None = None
    high: float | None = None
    kind: str = "array"
    remedy: str = ""

    def check(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return an array on the CPU, or raise."""
        is_tensor = self.kind == "tensor" or (self.kind == "same" and isinstance(value, Tensor))
        array: Any = checks.to_tensor(name, value) if is_tensor else checks.to_array(name, value)
        if self.axes:
            check_axes(name, array, self.axes, sizes)
        if self.filled and 0 in array.shape:
            shape = tuple(array.shape)
            raise ValueError(f"Expected argument `{name}` to hold at least one number but got shape {shape}.")
        if self.binary:
            checks.check_binary(name, array)
        if self.finite and isinstance(array, Tensor):
            _check_finite(name, array)
        elif self.finite:
            checks.check_finite(name, array)
        if self.low is not None and ((array < self.low) | (array > self.high)).any():
            unknown = "" if self.finite else ", with NaN where unknown,"
            raise ValueError(
                f"Expected argument `{name}` to lie in [{self.low:g}, {self.high:g}]{unknown} but got values from "
                f"{array.min().item():g} to {array.max().item():g}.{self.remedy and ' '}{self.remedy}"
            )
        return value if self.kind == "same" and is_tensor else array


@dataclass(frozen=True)
class Names(Constraint):
    """Different texts, as many as an axis has."""

    axis: str

    def check(self, name: str, value: Any, sizes: Sizes) -> list[str]:
        """Return a list, or raise."""
        return checks.check_names(value, sizes[self.axis])


def check_axes(name: str, value: Any, axes: str, sizes: Sizes) -> None:
    """Raise unless an array has the axes; add their sizes to those of the call."""
    names, numbers, open_end = _parse_axes(axes)
    shape = tuple(value.shape)
    fits = len(shape) > len(names) if open_end else len(shape) == len(names)
    for axis, number, size in zip(names, numbers, shape, strict=False):
        fits = fits and sizes.get(axis, number) in (None, size)
    if not fits:
        expected = [sizes.get(axis, number) for axis, number in zip(names, numbers, strict=True)]
        checks.check_shape(name, value, [*names, *(["..."] * open_end)], [*expected, *([None] * open_end)])
    sizes.update(zip(names, shape, strict=False))


@functools.cache
def _parse_axes(axes: str) -> tuple[tuple[str, ...], tuple[int | None, ...], bool]:
    """Return the names of axes, their sizes where these are their names, and whether any others follow."""
    names = tuple(axis.strip() for axis in axes.split(","))
    open_end = names[-1] == "..."
    names = names[:-1] if open_end else names
    return names, tuple(int(axis) if axis.isdigit() else None for axis in names), open_end


def _check_finite(name: str, value: Tensor) -> None:
    """Raise if a tensor holds NaN or infinity; the message needs the values on the CPU, and only a failure pays."""
    if not value.numel() or not (value.is_floating_point() or value.is_meta):
        return
    low, high = value.detach().aminmax()
    if value.is_meta or not (low.isfinite() & high.isfinite()):
        checks.check_finite(name, value)
