"""Checks of arguments, whose errors say what was expected, what came and what to do."""

from __future__ import annotations

import difflib
import fnmatch
import operator
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import TypeAlias, TypeVar

import numpy as np
import torch

T = TypeVar("T")
Chosen: TypeAlias = str | int | np.integer
Names: TypeAlias = Iterable[object] | None


def image_remedy(shape: Sequence[int]) -> str:
    """Return what to do with images of an unexpected shape."""
    if len(shape) == 3:
        return "Of one image make a batch: `image[None]`."
    last = len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)
    return "Move the channels to the second axis." if last else "Resize them."


def check_shape(name: str, value: object, axes: Sequence[str], sizes: Sequence[int | None], more: bool = False) -> None:
    """Raise unless an array has the axes and the sizes expected, None for any.

    With `more` further axes may follow; where the first axis is called ``...``, any may come before.
    """
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        raise TypeError(f"Expected argument `{name}` to be an array or a tensor but got {type(value).__name__}.")
    before = axes[0] == "..."
    there = shape[max(len(shape) - len(axes) + 1, 0) :] if before else shape
    expected = sizes[1:] if before else sizes
    rank_fits = len(there) >= len(expected) if more else len(there) == len(expected)
    if rank_fits and all(size in (None, length) for size, length in zip(expected, there, strict=False)):
        return
    comma = ", ..." if more else "," if len(axes) == 1 else ""
    known = ", ".join("*" if size is None else str(size) for size in sizes)
    sizes_text = "" if all(size is None for size in sizes) else f" = ({known}{',' if comma == ',' else ''})"
    raise ValueError(
        f"Expected argument `{name}` to have shape ({', '.join(axes)}{comma}){sizes_text} but got {tuple(shape)}."
    )


def check_axes(**arguments: tuple[object, str]) -> dict[str, int]:
    """Raise unless arrays have the axes named, and return the sizes: ``check_axes(values=(values, "N L"))``.

    An axis of one name has one size; a number is a size, ``...`` stands for any axes before or after. None passes.
    """
    sizes: dict[str, int] = {}
    for name, (value, text) in arguments.items():
        if value is None:
            continue
        axes = text.removesuffix("...").split()
        expected = [int(axis) if axis.isdecimal() else sizes.get(axis) for axis in axes]
        check_shape(name, value, axes, expected, text.endswith("..."))
        shape: tuple[int, ...] = getattr(value, "shape", ())
        if axes[0] == "...":
            axes, shape = axes[1:], shape[len(shape) - len(axes) + 1 :]
        sizes |= {axis: size for axis, size in zip(axes, shape, strict=False) if not axis.isdecimal()}
    return sizes


def check_choice(name: str, value: object, choices: Collection[str | bool]) -> None:
    """Raise unless a value is one of the allowed texts or flags, naming the nearest."""
    if not isinstance(value, str | bool) or value not in choices:
        near = difflib.get_close_matches(str(value), map(str, choices), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"Expected argument `{name}` to be one of {[*choices]} but got {value!r}.{hint}")


def check_range(
    name: str, value: float, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> None:
    """Raise unless a number lies in an interval."""
    try:
        inside = (low < value if open_low else low <= value) and (value < high if open_high else value <= high)
    except TypeError as error:
        raise TypeError(f"Expected argument `{name}` to be a number but got {value!r}.") from error
    if not inside:
        interval = f"{'(' if open_low else '['}{low}, {high}{')' if open_high else ']'}"
        raise ValueError(f"Expected argument `{name}` to lie in {interval} but got {value}.")


def check_whole(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return a whole number, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"Expected argument `{name}` to be a whole number but got {value!r}.")
    if high is not None:
        check_range(name, int(value), low, high)
    elif value < low:
        raise ValueError(f"Expected argument `{name}` to be at least {low} but got {value}.")
    return int(value)


def check_index(index: int, n_items: int, noun: str = "items") -> int:
    """Return an index counted from the start, or raise; one below 0 counts from the end."""
    if not -n_items <= (position := operator.index(index)) < n_items:
        raise IndexError(f"Expected argument `index` to be below the number of {noun}, {n_items}, but got {index}.")
    return position % n_items


def check_path(name: str, value: str | os.PathLike[str]) -> Path:
    """Return a path, ``~`` expanded, or raise if it cannot exist."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise TypeError(f"Expected argument `{name}` to be a path but got {value!r}.")
    path = Path(value)
    # If there is no such user, keep `~name` literally.
    with suppress(RuntimeError):
        path = path.expanduser()
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"Expected argument `{name}` to be a path but got {os.fspath(value)!r} ({reason}).") from error
    return path


def check_folder(name: str, value: str | os.PathLike[str], expected: str = "a folder") -> Path:
    """Return the path of a folder, or raise where there is none."""
    return _check_there(name, check_path(name, value), Path.is_dir, expected)


def check_file(name: str, value: str | os.PathLike[str], expected: str = "a file") -> Path:
    """Return the path of a file, or raise where there is none."""
    return _check_there(name, check_path(name, value), Path.is_file, expected)


def _check_there(name: str, path: Path, is_there: Callable[[Path], bool], expected: str) -> Path:
    if not is_there(path):
        raise FileNotFoundError(f"Expected argument `{name}` to name {expected} but there is none at {path}.")
    return path


def check_keywords(owner: str, keywords: Iterable[str], names: Sequence[str], otherwise: str) -> None:
    """Raise for a keyword that is none of the names, with the nearest of them, or what else to do."""
    for keyword in keywords:
        if keyword not in names:
            near = difflib.get_close_matches(keyword, names, n=1)
            raise TypeError(
                f"{owner} has no argument `{keyword}`. {f'Did you mean `{near[0]}`?' if near else otherwise}"
            )


def check_kind(name: str, value: object, kind: type | UnionType, expected: str) -> None:
    """Raise unless a value is of a kind, or of one of several."""
    if not isinstance(value, kind):
        raise TypeError(f"Expected argument `{name}` to be {expected} but got {_value_text(value)}.")


def check_callable(name: str, value: object) -> None:
    """Raise unless a value can be called."""
    check_kind(name, value, Callable, "callable")  # type: ignore[arg-type]


def check_module(name: str, model: object) -> None:
    """Raise unless a model is a module."""
    check_kind(name, model, torch.nn.Module, "a torch.nn.Module")


def check_mapping(name: str, value: object, remedy: str = "") -> Mapping[object, object]:
    """Return a mapping, or raise."""
    if not isinstance(value, Mapping):
        raise TypeError(f"Expected argument `{name}` to be a dict but got {type(value).__name__}. {remedy}".rstrip())
    return value


def as_list(name: str, value: Iterable[T], what: str = "values") -> list[T]:
    """Return the items of a sequence, or raise; one text is no sequence of texts."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"Expected argument `{name}` to be a sequence of {what} but got {_value_text(value)}.")
    return list(value)


def check_names(names: Sequence[str] | None, n_concepts: int) -> list[str]:
    """Return L different names: those given, or numbers."""
    if names is None:
        return [f"concept {j}" for j in range(n_concepts)]
    if isinstance(names, set | frozenset):
        raise TypeError("Expected argument `names` to be a sequence of names but got a set, which has no order.")
    listed = different_names("names", names)
    if any(not name.strip() for name in listed) or any(name is None or isinstance(name, bytes) for name in names):
        raise ValueError(f"Expected argument `names` to hold texts that are not empty but got {listed[:3]}.")
    if len(listed) != n_concepts:
        raise ValueError(
            f"Expected argument `names` to hold one name for each of {n_concepts} concepts but got {len(listed)}."
        )
    return listed


def different_names(name: str, value: Iterable[object]) -> list[str]:
    """Return names as texts, or raise where two are one."""
    names = [str(item) for item in as_list(name, value, "names")]
    if twice := sorted(item for item, count in Counter(names).items() if count > 1):
        raise ValueError(f"Expected argument `{name}` to hold different names but {twice[:3]} occur more than once.")
    return names


def match_names(name: str, names: Names, expected: Names, noun: str) -> list[int] | None:
    """Return the place of each expected name; None if they are in their order, or one side has no names of its own."""
    given, known = _texts(names), _texts(expected)
    if not given or not known or given == known or only_numbers(given) or only_numbers(known):
        return None
    place_of = {item: place for place, item in enumerate(given)}
    missing = [item for item in known if item not in place_of]
    if missing or len(place_of) < len(given):
        twice = f" {given[0]!r} and others occur more than once." if not missing else ""
        raise ValueError(
            f"Expected argument `{name}` to have the {noun} {known[:3]}, ..., by their names, but {len(missing)} of "
            f"{len(known)} are not there: {missing[:3]}, among {given[:3]} and others.{twice} Give both the same names "
            "(`bank.rename` renames a bank's concepts, and `load_released` takes `names` and `class_names`), or leave "
            "the names of one out."
        )
    return [place_of[item] for item in known]


def check_name_order(name: str, names: Names, known: Names, owner: str) -> None:
    """Raise for names that are those of an owner in another order."""
    given, theirs = _texts(names), _texts(known)
    if given != theirs and sorted(given) == sorted(theirs):
        raise ValueError(
            f"Expected argument `{name}` to be in the order of {owner}, {theirs[:3]}, ..., but got {given[:3]}, .... "
            "Leave it out: the names are known."
        )


def _texts(names: Names) -> list[str]:
    return [] if names is None else [str(item) for item in names]


def only_numbers(names: Sequence[str]) -> bool:
    """Return whether names only number the items, as `check_names` and pandas do where none are given."""
    return any(list(names) == [f"{prefix}{place}" for place in range(len(names))] for prefix in ("", "concept "))


def check_size(name: str, value: object) -> tuple[int, int]:
    """Return an image size as two ints, or raise."""
    size = tuple(value) if isinstance(value, Sequence) else ()
    if len(size) != 2 or not all(type(side) is int and side >= 1 for side in size):
        raise ValueError(
            f"Expected argument `{name}` to be (M1, M2), height and width of the image in pixels, but got {value!r}."
        )
    return size[0], size[1]


def find_names(argument: str, names: Sequence[str], chosen: Chosen | Iterable[Chosen]) -> list[int]:
    """Return the positions of names chosen by name, by pattern (``has_wing_*``) or by number, in this order."""
    values = [chosen] if isinstance(chosen, str | int | np.integer) else as_list(argument, chosen, "names or patterns")
    positions: list[int] = []
    for value in values:
        if isinstance(value, str):
            places = [j for j, name in enumerate(names) if name == value]
            places = places or [j for j, name in enumerate(names) if fnmatch.fnmatchcase(name, value)]
        else:
            places = [check_whole(argument, value, 0, len(names) - 1)]
        if not places:
            near = difflib.get_close_matches(str(value), names, n=3, cutoff=0.4) or list(names[:3])
            raise ValueError(
                f"Expected argument `{argument}` to hold names or patterns of the {len(names)} that there are but none "
                f"is {value!r}. The nearest are {near}."
            )
        positions += places
    if not positions:
        raise ValueError(f"Expected argument `{argument}` to name something but it is empty.")
    return list(dict.fromkeys(positions))


def check_finite(name: str, value: object) -> None:
    """Raise if an array holds NaN or infinity, naming the first such entry."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
        # On the tensor's device, and without a mask of its size.
        low, high = value.detach().aminmax()
        if low.isfinite() & high.isfinite():
            return
    array = to_array(name, value)
    # A sum propagates NaN and infinity and needs no mask of the array's size; if it only overflowed, go on below.
    with np.errstate(all="ignore"):
        if array.dtype.kind != "f" or np.isfinite(array.sum()):
            return
    bad = ~np.isfinite(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"Expected argument `{name}` to be finite but {int(bad.sum())} of {array.size} entries are NaN or "
            f"infinite, the first at {first}. Remove or repair these samples."
        )


def check_binary(name: str, value: object, remedy: str = "") -> None:
    """Raise unless every entry is 0 or 1."""
    array = to_array(name, value)
    bad = ~((array == 0) | (array == 1))
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"Expected argument `{name}` to hold only 0 and 1 but got {array[first]} at {first}; "
            f"{int(bad.sum())} of {array.size} entries are neither.{remedy}"
        )


def to_presence(name: str, value: object) -> np.ndarray:
    """Return which concepts images show, (N, L) of 0 and 1, or raise."""
    labels = to_array(name, value)
    check_shape(name, labels, ("N", "L"), (None, None))
    check_binary(name, labels)
    # Torch warns of what cannot be written, as the array of a DataFrame is.
    return np.require(labels, requirements=("C", "W"))


def to_masks(name: str, value: object, *, usable: bool = False) -> np.ndarray:
    """Return masks (N, 1, H, W) of bool, of 0 and 1 or 0 and 255, with `usable` not all of them empty or full."""
    array = to_array(name, value)
    masks = array[:, None] if array.ndim == 3 else array
    if masks.ndim != 4 or masks.shape[1] != 1:
        raise ValueError(
            f"Expected argument `{name}` to have shape (N, 1, H, W) or (N, H, W), one mask for each image, but got "
            f"{array.shape}."
        )
    if masks.size and masks.dtype != bool and masks.max() == 255 and np.isin(masks, (0, 255)).all():
        masks = masks > 0
    check_binary(name, masks, " A mask of a picture has to be 0 and 255, or to be made so: `masks > 127`.")
    masks = masks.astype(bool)
    if usable and len(masks) and unusable_masks(masks).all():
        kind = "full" if masks.all() else "empty" if not masks.any() else "empty or full"
        raise ValueError(
            f"Expected argument `{name}` to mark the pixels of the region the metric asks about but all {len(masks)} "
            f"masks are {kind}."
        )
    return masks


def unusable_masks(masks: np.ndarray) -> np.ndarray:
    """Return (N,) of bool: which masks mark no pixel, or every one."""
    flat = masks.reshape(len(masks), -1)
    return np.logical_or(~flat.any(1), flat.all(1))


def to_points(name: str, value: object) -> np.ndarray:
    """Return places (x, y) of parts, (N, P, Q, 2) of float64 with NaN where not visible, or raise."""
    array = to_array(name, value)
    shape = array.shape
    if array.ndim == 3:
        array = array[:, :, None]
    if array.ndim != 4 or array.shape[-1] != 2:
        raise ValueError(
            f"Expected argument `{name}` to have shape (N, P, 2) or (N, P, Q, 2), x and y of each part with NaN where "
            f"it is not visible, but got {shape}."
        )
    return array.astype(float)


def check_logits(logits: torch.Tensor) -> torch.Tensor:
    """Return class logits (N, K), or raise for those of one output, of which the largest is always the first."""
    if logits.ndim == 2 and logits.shape[1] == 1:
        raise ValueError(
            "Expected argument `model` to have an output for each class, at least two, but got one. Give a head of one "
            "logit z two outputs, -z / 2 and z / 2: nn.Linear(L, 2) with the weights torch.cat([-w, w]) / 2 and the "
            "bias torch.cat([-b, b]) / 2."
        )
    return logits


def check_normalisation(mean: object, std: object) -> None:
    """Raise unless mean and deviation are both None, or have a finite number for each channel, deviations above 0."""
    if mean is None and std is None:
        return
    if mean is None or std is None:
        there, lacks = ("std", "mean") if mean is None else ("mean", "std")
        raise ValueError(f"Expected arguments `mean` and `std` together but got `{there}` without `{lacks}`.")
    arrays = {"mean": to_array("mean", mean), "std": to_array("std", std)}
    for name, numbers in arrays.items():
        check_finite(name, numbers)
    check_axes(mean=(arrays["mean"], "C"), std=(arrays["std"], "C"))
    if not arrays["std"].size or not (arrays["std"] > 0).all():
        raise ValueError(f"Expected argument `std` to be positive, a number for each channel, but got {std}.")


def to_numpy(value: object) -> np.ndarray:
    """Return an array of a tensor, an array or a sequence, on the CPU and without gradient."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("Expected an array without a mask but got a numpy.ma.MaskedArray, whose mask would be lost.")
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    detached = value.detach().cpu()
    # NumPy has no bfloat16, and float32 holds all its values.
    return (detached.float() if detached.dtype == torch.bfloat16 else detached).numpy()


def to_array(name: str, value: object) -> np.ndarray:
    """Return an array of real numbers or bools, as `to_numpy` does, or raise."""
    try:
        array = to_numpy(value)
    except (TypeError, ValueError) as error:
        # A mask, the meta device, rows of different lengths.
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"Expected argument `{name}` to be an array of numbers but: {error}") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"Expected argument `{name}` to be an array of real numbers but got {_value_text(value)} of type "
            f"{array.dtype}."
        )
    return array


def check_numbers(name: str, value: object) -> np.ndarray:
    """Return an array of real numbers, also of objects such as those of nullable frames, or raise."""
    array = to_numpy(value)
    try:
        return array if array.dtype.kind in "biuf" else array.astype(object).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Expected argument `{name}` to hold numbers but got {value!r:.80}.") from error


def to_tensor(name: str, value: object) -> torch.Tensor:
    """Return real numbers as a tensor without gradient; a TypeError if masked or complex. Not copied needlessly."""
    try:
        if isinstance(value, np.ma.MaskedArray):
            to_numpy(value)
        tensor = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"Expected argument `{name}` to be a tensor or an array of numbers but got {_value_text(value)} ({error})."
        ) from error
    if tensor.is_complex():
        raise TypeError(f"Expected argument `{name}` to be real but got {tensor.dtype}.")
    return tensor


def to_class_indices(name: str, value: object) -> torch.Tensor:
    """Return class indices as int64, (), (N,) or as they come: also of whole floats, (N, 1) and one-hot (N, K)."""
    if not isinstance(value, torch.Tensor):
        array = to_array(name, value)
        value = np.array(array, dtype=np.int64 if array.dtype.kind in "iu" else None)
    values = to_tensor(name, value)
    if values.ndim == 2 and values.shape[1] > 1:
        present = values == 1
        if not ((present.sum(1) == 1) & ((values == 0) | present).all(1)).all():
            raise ValueError(
                f"Expected argument `{name}` to hold class indices (N,), or one 1 and 0 else in each row (N, K), but "
                f"got other numbers of shape {tuple(values.shape)}."
            )
        return present.int().argmax(1)
    # Infinity, too, is its own floor.
    whole = not values.is_floating_point() or bool(((values == values.trunc()) & values.isfinite()).all())
    if values.dtype == torch.bool or not whole:
        raise (TypeError if values.dtype == torch.bool else ValueError)(
            f"Expected argument `{name}` to hold indices 0, 1, 2, ..., or one-hot rows, but got "
            f"{str(values.dtype)[6:]}: {values.flatten()[:5].tolist()}."
        )
    return (values.squeeze(1) if values.ndim == 2 else values).long()


def _value_text(value: object) -> str:
    """Return a text or a number as it is written, and the kind of anything else."""
    return repr(value) if isinstance(value, str | int | float | complex | None) else type(value).__name__
