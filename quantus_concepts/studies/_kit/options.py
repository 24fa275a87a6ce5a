"""Options that several commands share, as types of a command's parameters, and what is done with all of them."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    import torch

Command = TypeVar("Command", bound=Callable[..., Any])
AUTO = "auto"
#: Most that counts of images, epochs and the like may be.
MANY = 10_000_000
RUN, BACKBONE, PAINTED = "Run", "Backbone", "Painted birds"
SMALL = "small"
#: Smallest and largest painted birds, and pixels for each place of the small network's maps.
PAINTED_SIZES, STRIDE = (32, 512), 8
#: Options about where and how a run works: its results are the same.
_NO_RESULT = ("out", "overwrite", "progress", "engine", "readers", "cache", "models")

Out = Annotated[
    Path | None, typer.Option(help="Output folder; by default a new one under reports/.", rich_help_panel=RUN)
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", metavar="", help="Replace an earlier run in --out.", rich_help_panel=RUN)
]
Progress = Annotated[bool, typer.Option(metavar="", help="Progress bars.", rich_help_panel=RUN)]
Seed = Annotated[int, typer.Option(min=0, max=2**31, help="Random seed.", rich_help_panel=RUN)]
Seeds = Annotated[
    int, typer.Option(min=1, max=1000, help="Number of seeds, counted up from --seed.", rich_help_panel=RUN)
]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, ...; auto takes a GPU where there is one.", rich_help_panel=RUN)
]
BatchSize = Annotated[int, typer.Option(min=1, max=MANY, help="Batch size.", rich_help_panel=RUN)]
Readers = Annotated[
    int,
    typer.Option(
        min=0,
        max=256,
        help="Number of processes that read images; 0 reads in the main process.",
        rich_help_panel=RUN,
    ),
]
Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Where scores are computed: local, or ray (needs the extra ray).", rich_help_panel=RUN),
]

Layer = Annotated[
    str | None,
    typer.Option(help="Layer whose maps are used; by default the last before pooling.", rich_help_panel=BACKBONE),
]
Weights = Annotated[
    str | None,
    typer.Option(help="File of weights (safetensors or state dict), or none.", rich_help_panel=BACKBONE),
]
Mean = Annotated[
    str | None, typer.Option(help="Normalisation: mean per channel, 0.5,0.5,0.5.", rich_help_panel=BACKBONE)
]
Std = Annotated[str | None, typer.Option(help="Normalisation: deviation per channel.", rich_help_panel=BACKBONE)]
Unnormalised = Annotated[
    bool,
    typer.Option("--unnormalised", metavar="", help="The backbone takes images in [0, 1].", rich_help_panel=BACKBONE),
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        min=8,
        max=4096,
        help="Height and width in pixels; by default the size for which the backbone is made.",
        rich_help_panel=BACKBONE,
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="small (trained here), resnet18_cub, a torchvision or timm name, or path.py:factory.",
        rich_help_panel=BACKBONE,
    ),
]

NTrain = Annotated[int, typer.Option(min=1, max=MANY, help="Training images.", rich_help_panel=PAINTED)]
NTest = Annotated[int, typer.Option(min=1, max=MANY, help="Test images.", rich_help_panel=PAINTED)]
NClasses = Annotated[int, typer.Option(min=2, max=60, help="Classes.", rich_help_panel=PAINTED)]
NConcepts = Annotated[int, typer.Option(min=4, max=104, help="Concepts.", rich_help_panel=PAINTED)]
Correlation = Annotated[
    float, typer.Option(min=0, max=1, help="Correlation of attributes, 0 to 1.", rich_help_panel=PAINTED)
]
Deviation = Annotated[
    float,
    typer.Option(min=0, max=1, help="Share of attributes that deviate from the class.", rich_help_panel=PAINTED),
]
Epochs = Annotated[int, typer.Option(min=1, max=MANY, help="Passes over the training images.", rich_help_panel=PAINTED)]


def option_name(parameter: str) -> str:
    """Return the option of a parameter: ``n_train`` is ``--n-train``."""
    return "--" + parameter.replace("_", "-")


def hidden_options(command: Callable[..., object]) -> list[str]:
    """Return the options that the help of a command does not show."""
    hints = get_type_hints(command, include_extras=True)
    return [
        option_name(name) for name, hint in hints.items() if any(map(_is_hidden, getattr(hint, "__metadata__", ())))
    ]


def _is_hidden(option: object) -> bool:
    return bool(getattr(option, "hidden", False))


def given_settings(values: Mapping[str, object]) -> dict[str, str]:
    """Return the options of a run that can change its results, as its folder and its report list them.

    A file is listed with the hash of its content, a folder
    with that of what is in it (`hash_folder`), the output folder left out.
    """
    out = values.get("out")
    settings = {
        name.replace("_", " "): _shown(value, out if isinstance(out, Path) else None)
        for name, value in values.items()
        if name not in _NO_RESULT and value is not None and value is not False and value != []
    }
    return settings | {"version": importlib.metadata.version("quantus-concepts")}


def folder_or_word(text: str) -> Path | str:
    """Return the value of an option that takes a word or a folder, as `given_settings` lists it."""
    return Path(text) if Path(text).is_dir() else text


def _shown(value: object, out: Path | None) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_shown(part, out) for part in value)
    return f"{value}{_content(value, out)}"


def _content(value: object, out: Path | None) -> str:
    """Return the hash of the file or folder that an option names, in path.py:factory and library:model:folder too."""
    if not isinstance(value, str | Path):
        return ""
    from captum_concepts.fingerprints import hash_file, hash_folder

    first, _, last = str(value).rpartition(":")
    path = Path(first if last.isidentifier() and first.endswith(".py") else value)
    # A word, "painted" for instance, names no folder, even if there is one of that name.
    folder = path if isinstance(value, Path) else Path(last)
    try:
        is_file, is_folder = path.is_file(), (isinstance(value, Path) or bool(first)) and folder.is_dir()
    except OSError:  # a text that is too long for a path
        return ""
    try:
        return f" ({(hash_file(path) if is_file else hash_folder(folder, out))[:12]})" if is_file or is_folder else ""
    except OSError as error:
        raise ValueError(
            f"{error.filename or value} cannot be read ({error.strerror or error}), so that a change in it would not "
            "be noticed. Make it readable, or move it elsewhere."
        ) from error


def refuse_without_effect(reason: str, **values: object) -> None:
    """Raise ValueError where one of these options is given: "`--name` has no effect" and the reason."""
    for name, value in values.items():
        if value is not None and value is not False:
            raise ValueError(f"`{option_name(name)}` has no effect {reason}. Leave it out.")


def require(reason: str, **values: object) -> None:
    """Raise ValueError where one of these options is missing: "Expected `--name`" and the reason."""
    for name, value in values.items():
        if value is None:
            raise ValueError(f"Expected `{option_name(name)}` {reason} but it is missing.")


def check_birds(n_classes: int, image_size: int | None, counts: Mapping[str, int] | None = None) -> None:
    """Raise ValueError for too few painted birds, `counts` by option, or for birds that are too small or too large."""
    for option, count in (counts or {}).items():
        if count < n_classes:
            raise ValueError(
                f"Expected `{option}` to be at least {n_classes}, an image of each class, but got {count}."
            )
    low, high = PAINTED_SIZES
    if image_size is not None and not low <= image_size <= high:
        raise ValueError(f"Expected `--image-size` to lie in [{low}, {high}] for painted birds but got {image_size}.")


def check_stride(image_size: int | None) -> None:
    """Raise ValueError where `--image-size` is not one for the small network."""
    if image_size is not None and image_size % STRIDE:
        raise ValueError(
            f"Expected `--image-size` to be a multiple of {STRIDE}, the stride of the small network, but got "
            f"{image_size}."
        )


def channel_numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """Read the numbers of `--mean` or `--std`, one a channel."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(f"Expected `{option}` to be one number a channel, 0.5,0.5,0.5, but got {text!r}.")
    return tuple(numbers)


class Normalisation(TypedDict):
    """How images are normalised, as arguments of `load_network`."""

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    unnormalised: bool


def normalisation(mean: str | None, std: str | None, unnormalised: bool) -> Normalisation:
    """Return the normalisation of `--mean`, `--std` and `--unnormalised`."""
    if (mean is None) != (std is None):
        raise ValueError("Expected `--mean` and `--std` to be given together but got only one of them.")
    if unnormalised and mean is not None:
        raise ValueError("Expected either `--mean` and `--std` or `--unnormalised` but got both.")
    deviations = channel_numbers("--std", std)
    if deviations and min(deviations) <= 0:
        raise ValueError(f"Expected `--std` to hold numbers above 0 but got {std}.")
    return {"mean": channel_numbers("--mean", mean), "std": deviations, "unnormalised": unnormalised}


def torch_device(name: str) -> torch.device:
    """Return the device that `--device` names."""
    import torch

    from captum_concepts.support.running import to_device

    if name == AUTO:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return to_device("--device", name)
