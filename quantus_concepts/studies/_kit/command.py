"""Commands from dataclasses of options: signature, help, bounds and printed settings, declared once."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import os
import re
import stat
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from quantus_concepts.metrics.ray_workers import ENGINES, LOCAL

if TYPE_CHECKING:
    import torch


@contextmanager
def named_as_typed(options: type[Options], **more: str) -> Iterator[None]:
    """Name options as they are typed where a function that got them refuses them by the names of its arguments."""
    names = {field.name: field.metadata["flag"] or option_name(field.name) for field in dataclasses.fields(options)}
    names |= more
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        text = re.sub(r"`(\w+)`", lambda match: f"`{names.get(match[1], match[1])}`", str(error))
        if text == str(error):
            raise
        raise ValueError(text) from error


AUTO = "auto"
RUN = "Run"
#: Most that counts of images, epochs and the like may be.
MANY = 10_000_000


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    panel: str | None = None,
    flag: str | None = None,
    bounds: tuple[float, float] | None = None,
    open_low: bool = False,
    open_high: bool = False,
    choices: Sequence[str] | str | None = None,
    path: Literal["", "file", "folder", "new folder"] = "",
    argument: bool = False,
    shown: bool = True,
    matters: bool = True,
) -> Any:
    """Declare an option as the field of a dataclass.

    `bounds`, `choices` and `path`, which says what has to be there or may be made, are checked where the options are
    made, by a command or by a call; None passes. `choices` may name where they stand, ``"package.module:NAME"``, so
    that ``--help`` need not load it. `flag` replaces the name on the command line, `argument` makes it positional, and
    without `shown` no report lists it. An option that does not `matters` leaves the results the same: an interrupted
    run goes on with another value of it.
    """
    metadata: dict[str, Any] = {"help": help, "panel": panel, "flag": flag, "bounds": bounds, "choices": choices}
    metadata |= {"open": {"open_low": open_low, "open_high": open_high}, "path": path, "argument": argument}
    return dataclasses.field(default=default, metadata=metadata | {"shown": shown, "matters": matters})


#: A share that is neither none nor all, and an option about where and how a run works, not about its results.
share = partial(option, bounds=(0, 1), open_low=True, open_high=True)
_run_option = partial(option, shown=False, matters=False)


def redeclared(options: type[Options], name: str, default: Any, **changed: Any) -> Any:
    """Declare an option of a mixin again, with another default."""
    metadata = {field.name: field.metadata for field in dataclasses.fields(options)}[name]
    return dataclasses.field(default=default, metadata={**metadata, **changed})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The base of all options: checks what their declarations say."""

    #: Command lines, without the program's name, with which the help ends.
    examples: ClassVar[tuple[str, ...]] = ()
    #: Arguments of a run that takes seconds, where one needs no files: the last line of the help, and what tests run.
    quick: ClassVar[str] = ""
    #: Options that several studies share come after a study's own: those of a class of a higher number later.
    late: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """Write ``~`` out in paths, and raise ValueError for what lies out of bounds, is no choice or is empty."""
        from captum_concepts._support.checks import check_choice, check_range

        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _without_tilde(getattr(self, field.name)))
            value, declared = getattr(self, field.name), field.metadata
            if value is None or not declared:
                continue
            name = field.name if declared["argument"] else option_name(field.name)
            if declared["choices"] is not None:
                check_choice(name, value, resolve(declared["choices"]))
            elif value == "" != field.default:
                raise ValueError(f"Expected argument `{name}` to be some text but got ''. Or leave it out.")
            if declared["bounds"] is not None:
                check_range(name, value, *declared["bounds"], **declared["open"])
            for path in (value if isinstance(value, list) else [value]) if declared["path"] else ():
                _check_there(name, path, declared["path"])

    def settings(self) -> dict[str, str]:
        """Return what a report lists: the options by name, without those that were not given or play no role."""
        return {
            field.name.replace("_", " "): str(value)
            for field in fields_in_order(type(self))
            if field.metadata.get("shown") and (value := getattr(self, field.name)) is not None
            if field.name not in self.idle
        }

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Raise ValueError where one of these options is given: "Argument `--name` " and the reason."""
        for name in names:
            if getattr(self, name) is not None and getattr(self, name) is not False:
                raise ValueError(f"Argument `{option_name(name)}` {reason}")

    @property
    def idle(self) -> tuple[str, ...]:
        """Options that have no effect with the other options."""
        return ()

    def identity(self) -> dict[str, str]:
        """Return what an interrupted run must share with the one that goes on: what matters, and the files it names."""
        identity = {
            option_name(field.name): f"{value}{_stamp(value)}"
            for field in fields_in_order(type(self))
            if field.metadata.get("matters", True) and (value := getattr(self, field.name)) is not None
        }
        return identity | {"version": importlib.metadata.version("quantus-concepts")}


@dataclass(frozen=True, kw_only=True)
class ProgressOptions(Options):
    """Whether to show how far a run is."""

    late: ClassVar[int] = 3

    progress: bool = _run_option(True, "Progress bars.", panel=RUN)


@dataclass(frozen=True, kw_only=True)
class OutOptions(Options):
    """Output folder of a run."""

    late: ClassVar[int] = 3

    out: Path | None = option(None, "Output folder; by default a new one under reports/.", panel=RUN, matters=False)
    overwrite: bool = _run_option(False, "Replace an earlier run in --out.", panel=RUN)


@dataclass(frozen=True, kw_only=True)
class TableOptions(OutOptions):
    """Output folder of a run that prints tables."""

    late: ClassVar[int] = 3

    xlsx: bool = _run_option(
        False, "Also write the printed tables as sheets of a workbook, results.xlsx (needs the extra xlsx).", panel=RUN
    )

    def __post_init__(self) -> None:
        from captum_concepts._support.lazy import check_extra

        super().__post_init__()
        if self.xlsx:
            check_extra("openpyxl", "xlsx", "--xlsx")


@dataclass(frozen=True, kw_only=True)
class SeedOptions(Options):
    """Random seed of the run."""

    late: ClassVar[int] = 3

    seed: int = option(0, "Random seed.", panel=RUN, bounds=(0, 2**31))


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
    """Device and batch size of a run."""

    late: ClassVar[int] = 3

    device: str = option(AUTO, "cpu, cuda, cuda:1, ...; auto takes a GPU where there is one.", panel=RUN)
    batch_size: int = option(64, "Batch size.", panel=RUN, bounds=(1, MANY))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.torch_device()

    def torch_device(self) -> torch.device:
        """Return the device of the models."""
        return torch_device(self.device)

    def settings(self) -> dict[str, str]:
        """Return what a report lists, with the device that was chosen."""
        return super().settings() | {"device": str(self.torch_device())}


@dataclass(frozen=True, kw_only=True)
class RunOptions(ProgressOptions, TableOptions, SeedOptions, DeviceOptions):
    """Options of every study."""


_CLUSTER = "Many machines"


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """Machines on which a run computes its scores."""

    late: ClassVar[int] = 2

    engine: str = _run_option(
        LOCAL,
        "Where scores are computed: local, or ray, by workers on one machine or many (needs the extra ray).",
        panel=_CLUSTER,
        choices=ENGINES,
    )
    address: str | None = _run_option(
        None,
        "ray: of a running cluster, auto for the one of this machine; by default one is started for the run.",
        panel=_CLUSTER,
    )
    workers: int | None = _run_option(
        None, "ray: how many score at the same time; by default one.", panel=_CLUSTER, bounds=(1, 100_000)
    )
    gpus_per_worker: float | None = _run_option(
        None, "ray: GPUs of each worker, or a share of one; by default none.", panel=_CLUSTER, bounds=(0, 1024)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine == LOCAL:
            self.refuse(
                ("address", "workers", "gpus_per_worker"),
                f"has no effect with `--engine {LOCAL}`. Leave it out, or score by the workers of a cluster: "
                "--engine ray.",
            )


def option_name(field: str) -> str:
    """Return the option of a field: ``n_train`` is ``--n-train``."""
    return "--" + field.replace("_", "-")


def fields_in_order(options: type[Options]) -> list[dataclasses.Field[Any]]:
    """Return the fields of options as a command has them: those that studies share come last."""

    def place(field: dataclasses.Field[Any]) -> int:
        declared = next(base for base in reversed(options.__mro__) if field.name in inspect.get_annotations(base))
        return int(declared.__dict__.get("late", 0))

    return sorted(dataclasses.fields(options), key=place)


def resolve(value: Any) -> Any:
    """Return what a string ``"package.module:NAME"`` stands for; anything else as it is."""
    if not isinstance(value, str):
        return value
    module, _, name = value.partition(":")
    return getattr(importlib.import_module(module), name)


class _PlainHelp:
    """Shows no kind of value for the flag `--help`."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.metavar = ""
        return option


class _Command(_PlainHelp, TyperCommand):
    """A command."""


class CommandGroup(_PlainHelp, TyperGroup):
    """A group of commands."""


def add_command(app: typer.Typer, words: str, options: type[Options], run: str) -> None:
    """Add the command of some options to an app; its help ends with the options' examples and its quick run."""
    lines = ["Examples:", *options.examples, *([f"{words} {options.quick}"] if options.quick else [])]
    epilog = "\n\n".join([lines[0], *(f"quantus-concepts {line}" for line in lines[1:])])
    app.command(words.rpartition(" ")[2], cls=_Command, epilog=epilog)(command(options, run))


def command(options: type[Options], run: Callable[[Any], object] | str) -> Callable[..., None]:
    """Make the command of some options: `run` gets them, and what it returns is printed last.

    The options' docstring is the command's help. `run` may be named, ``"package.module:NAME"``, and is then loaded
    when the command runs, not for its help.
    """
    hints = typing.get_type_hints(options)

    def call(**values: Any) -> None:
        from captum_concepts._support.files import printable

        # Bad options raise before anything is imported.
        chosen = options(**values)
        for line in str(resolve(run)(chosen)).splitlines():
            typer.echo(printable(line))

    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=Annotated[hints[field.name], _declaration(field, hints[field.name])],
        )
        for field in fields_in_order(options)
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # The lines of a docstring are not those of a terminal.
    paragraphs = (inspect.getdoc(options) or "").split("\n\n")
    call.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return call


def _declaration(field: dataclasses.Field[Any], hint: Any) -> Any:
    declared = field.metadata
    paths: dict[str, Any] = {"parser": _path, "metavar": "PATH"} if Path in (hint, *typing.get_args(hint)) else {}
    if declared["argument"]:
        return typer.Argument(help=declared["help"], show_default=False, **paths | {"metavar": field.name})
    # A switch that is off needs no --no-.
    flag = declared["flag"] or (option_name(field.name) if field.default is False else None)
    kind = {"metavar": ""} if hint is bool else paths
    return typer.Option(*([flag] if flag else []), help=declared["help"], rich_help_panel=declared["panel"], **kind)


def _path(text: str) -> Path:
    # Path("") is the working directory.
    if not text or "\0" in text:
        raise typer.BadParameter(f"Expected a path but got {text!r}.")
    return Path(text)


def _check_there(name: str, path: Any, kind: str) -> None:
    from captum_concepts._support.checks import check_file, check_folder, check_path

    if kind != "new folder":
        (check_file if kind == "file" else check_folder)(name, path)
    elif check_path(name, path).exists() and not Path(path).is_dir():
        raise ValueError(f"Expected argument `{name}` to name a folder but {path} is a file.")


def _without_tilde(value: Any) -> Any:
    # A shell leaves --out=~/x as it is. An unknown user stays, and is named as a path that does not exist.
    if isinstance(value, list | tuple):
        return type(value)(_without_tilde(part) for part in value)
    return type(value)(os.path.expanduser(value)) if isinstance(value, str | Path) else value  # noqa: PTH111


def _stamp(value: Any) -> str:
    """Return what changes with a file that an option names."""
    try:
        # The file of a network comes with the name of a function in it; a path of Windows has a colon of its own.
        file = Path(value.rpartition(":")[0] if ".py:" in str(value) else value).stat()
    except (TypeError, OSError, ValueError):
        return ""
    return f" ({file.st_size} bytes of {file.st_mtime_ns})" if stat.S_ISREG(file.st_mode) else ""


def torch_device(name: str) -> torch.device:
    """Return the device that `--device` names."""
    import torch

    if name == AUTO:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        usable = [AUTO, "cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        usable += ["mps"] if torch.backends.mps.is_available() else []
        raise ValueError(
            f"Expected argument `--device` to be one of {usable}, the devices of this machine, but got {name!r}."
        ) from error
    return device
