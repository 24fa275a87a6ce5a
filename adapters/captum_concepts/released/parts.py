"""What all formats of released models share: the files of a release, its tensors by name, and what is read of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Normalisation
from captum_concepts.support.files import list_some, non_file_kind, quote, read_text, shorten
from captum_concepts.support.pickles import Bag, read_objects

#: Weight (n, m) and bias (n,) of a linear layer, in float64.
Layer = tuple[Tensor, Tensor]
Activation = Callable[[Tensor], Tensor] | None

_MAX_FILES = 10_000
_MAX_TEXT = 64 * 2**20
_SUFFIXES = (".pkl", ".ckpt", ".pth", ".pt")


@dataclass(frozen=True)
class Options:
    """What a user says of a release, beside its backbone."""

    nec: int | None = None
    head: Path | None = None
    activation: Activation | str = "file"
    names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None


@dataclass
class Release:
    """What a release holds: linear layers from embeddings to concepts to classes."""

    layers: list[Layer]
    #: Empty for a bank.
    head: list[Layer] = field(default_factory=list)
    activation: Activation = None
    #: Whether values are margins of vectors, which are no layer.
    margins: bool = False
    residual: Layer | None = None
    names: Sequence[str] | None = None
    #: Whether the release has to name its concepts.
    named: bool = True
    class_names: Sequence[str] | None = None
    normalisation: Normalisation | None = None
    #: Whether Inception normalises its images once more; None for other networks.
    transform_input: bool | None = None
    #: Accuracies of a bank on training and on test images.
    accuracies: tuple[Tensor, Tensor] | None = None
    warnings: list[str] = field(default_factory=list)


class Tensors:
    """The tensors of one file by name, checked as they are taken; letters of axes stand for sizes of the release."""

    def __init__(self, path: Path, found: object, sizes: dict[str, int], prefix: str = "") -> None:
        if isinstance(found, Bag):
            found = dict(found.tensors())
        if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
            raise ValueError(f"Expected {path} to hold tensors by name but got {describe(found)}.")
        self.path, self.found, self._sizes, self._prefix = path, found, sizes, prefix

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def names(self) -> list[str]:
        """Return the names of the tensors."""
        return sorted(map(str, self.found))

    def take(self, name: str, axes: str) -> Tensor:
        """Return a tensor in float64, or raise unless it is there, of these axes, and of floating-point numbers."""
        tensor = self.found.get(name)
        label = f"{self._prefix}{name} in {self.path}" if self._prefix + name else str(self.path)
        listed = ", ".join(axes.split())
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise ValueError(
                f"Expected {label} to be a tensor ({listed}) of floating-point numbers but got {describe(tensor)}."
            )
        wanted = [int(axis) if axis.isdecimal() else self._sizes.get(axis) for axis in axes.split()]
        fits = tensor.ndim == len(wanted) and tensor.numel() > 0
        if not fits or any(size not in (None, there) for size, there in zip(wanted, tensor.shape, strict=True)):
            known = ", ".join("*" if size is None else str(size) for size in wanted)
            raise ValueError(f"Expected {label} to have shape ({listed}) = ({known}) but got {tuple(tensor.shape)}.")
        self._sizes |= {a: n for a, n in zip(axes.split(), tensor.shape, strict=True) if not a.isdecimal()}
        return tensor.detach().double()

    def layer(self, name: str = "", axes: str = "K L") -> Layer:
        """Return weight and bias of a linear layer."""
        return self.take(f"{name}weight", axes), self.take(f"{name}bias", axes.split()[0])

    def stack(self, name: str, axes: Sequence[str]) -> list[Layer]:
        """Return the linear layers of a Sequential that has other layers, without tensors, in between."""
        return [self.layer(f"{name}{2 * i}.", each) for i, each in enumerate(axes)]


class Reading:
    """A folder or a file of a release, opened on demand."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path, self.options, self.sizes = path, options, dict[str, int]()
        self.found: Any = None
        #: By name, relative to the folder.
        self.files = _list_files(path) if path.is_dir() else {}

    def only_file(self) -> Path:
        """Return the path of the file, or of the only one in the folder that may hold a model."""
        if not self.path.is_dir():
            return self.path
        files = [path for name, path in self.files.items() if path.suffix in _SUFFIXES and "run_info" not in name]
        if len(files) > 1:
            shown = list_some(path.relative_to(self.path) for path in files)
            raise self.error(f"holds several files that may be a model: {shown}. Pass one as `path`")
        if not files:
            raise self.error(
                "holds no released model of a known format: neither cbl.pt (VLG-CBM), W_c.pt (Label-free CBM), "
                "sparse_autoencoder_final.pt (DN-CBM), means and vocab (SpLiCE), nor a .pkl, .ckpt, .pth or .pt file"
            )
        return files[0]

    def matching(self, pattern: str) -> list[Path]:
        """Return the files of the folder whose relative name a pattern matches."""
        return [path for name, path in self.files.items() if re.fullmatch(pattern, name)]

    def only(self, pattern: str, what: str, remedy: str) -> Path:
        """Return the only file of a kind, or raise."""
        files = self.matching(pattern)
        if len(files) == 1:
            return files[0]
        if files:
            shown = list_some(path.relative_to(self.path) for path in files)
            raise self.error(f"holds several {what}: {shown}. {remedy}")
        raise self.error(f"holds no {what} under a known name. {remedy}")

    def file(self, path: str | Path) -> Tensors:
        """Return the tensors of a file, one alone under an empty name; a name is that of a file in the folder."""
        if isinstance(path, str):
            if path not in self.files:
                raise self.error(f"is not complete: there is no {path} in it")
            path = self.files[path]
        found = read_objects(path)
        return Tensors(path, found if isinstance(found, Mapping) else {"": found}, self.sizes)

    def one(self, name: str, axes: str) -> Tensor:
        """Return the tensor that a file is."""
        return self.file(name).take("", axes)

    def part(self, found: object, prefix: str = "") -> Tensors:
        """Return the tensors of a part of the file."""
        return Tensors(self.path, found if isinstance(found, Bag | Mapping) else {}, self.sizes, prefix)

    def text(self, path: str | Path, what: str) -> str:
        """Return the text of a file, which is no larger than a list of names can be."""
        path = self.path / path
        if not non_file_kind(path) and path.stat().st_size > _MAX_TEXT:
            raise ValueError(f"{what} {path} cannot be read: it has more than {_MAX_TEXT >> 20} MB.")
        return read_text(path, what)

    def activation(self, message: str) -> Activation:
        """Return the activation that the user says, or raise."""
        if isinstance(self.options.activation, str):
            raise self.error(message)
        return self.options.activation

    def error(self, message: str) -> ValueError:
        """Return the error of a release that cannot be represented; the message follows the path."""
        return ValueError(f"{self.path} {message}.")


def _list_files(folder: Path) -> dict[str, Path]:
    listed: Iterator[Path] = islice(folder.rglob("*"), _MAX_FILES + 1)
    paths = [path for path in listed if not path.is_dir()]
    if len(paths) > _MAX_FILES:
        raise ValueError(f"{folder} holds more than {_MAX_FILES} files. Pass the folder of one model.")
    return {path.relative_to(folder).as_posix(): path for path in sorted(paths)}


def describe(value: object) -> str:
    """Return what a value of a file is, for a message."""
    if isinstance(value, Tensor):
        return str(value.dtype)
    if isinstance(value, Bag):
        return f"an object of the class {quote(value.called)}, which was not made"
    return "nothing" if value is None else f"a {type(value).__name__}"


def distinguish(names: Sequence[str]) -> list[str]:
    """Return names in which those that repeat have their number: dog [0], dog [17]."""
    counts = Counter(names)
    shown = [name if counts[name] == 1 else f"{name} [{i}]" for i, name in enumerate(names)]
    return shown if len({*shown}) == len(shown) else [f"{name} [{i}]" for i, name in enumerate(names)]


def texts_of(value: object) -> list[str] | None:
    """Return a list of texts of a file; None for anything else."""
    if isinstance(value, list | tuple) and all(isinstance(item, str | int) for item in value):
        return [shorten(item) for item in value]
    return None


def zeros(rows: Tensor) -> Tensor:
    """Return the bias of a layer without one."""
    return torch.zeros(len(rows), dtype=torch.float64)


def sequence_of(layers: Sequence[nn.Module], between: type[nn.Module]) -> nn.Module:
    """Return a layer, or several with an activation between them."""
    if len(layers) == 1:
        return layers[0]
    parts = [part for layer in layers for part in (layer, between())]
    return nn.Sequential(*parts[:-1])
