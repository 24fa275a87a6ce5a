"""A study is declared once: the fields of its settings are the options of its command."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_type_hints

from quantus_concepts.studies._kit.options import given_settings, refuse_without_effect, torch_device

if TYPE_CHECKING:
    import torch

    from quantus_concepts.studies._kit.folder import RunFolder

Chosen = TypeVar("Chosen", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a study, which `command_of` makes the options of a command.

    Each field is an option, in the order of the help; its annotation has the help and the bounds, as a parameter of
    typer's functions. The docstring of a subclass is the help of its command. The module of a subclass is imported for
    the help of all commands, and by the modules of its study: it loads what is heavy in its methods, and no study.
    """

    #: The words of the command, as they are typed and as run.json has them.
    words: ClassVar[str]
    #: Names of the options that the help shows, with spaces between; with none all. Its last line names the others.
    shown: ClassVar[str] = ""

    @property
    def place(self) -> torch.device:
        """The device of `--device`."""
        return torch_device(self.options()["device"])

    def check(self) -> None:
        """Raise ValueError for settings that cannot be worked with, before anything is written."""

    def idle(self) -> tuple[str, tuple[str, ...]]:
        """Return why some options have no effect here, and their names: these are refused if given, and not listed."""
        return "", ()

    def options(self) -> dict[str, Any]:
        """Return every option with its value."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def listed(self) -> dict[str, str]:
        """Return the settings that can change the results, as run.json and the report list them."""
        _, idle = self.idle()
        return given_settings({name: value for name, value in self.options().items() if name not in idle})


def command_of(settings: type[Chosen], run: Callable[[Chosen, RunFolder], Path | None]) -> Callable[..., Path]:
    """Return the command whose options are the fields of these settings.

    `run` loads what may be refused, opens the folder, which is not made before, and writes into it. A command that
    writes elsewhere returns where.
    """

    def command(**given: Any) -> Path:
        chosen = settings(**given)
        reason, idle = chosen.idle()
        changed = {field.name: getattr(chosen, field.name) != field.default for field in fields(chosen)}
        refuse_without_effect(reason, **{name: changed[name] for name in idle})
        chosen.check()
        from quantus_concepts.studies._kit.folder import RunFolder
        from quantus_concepts.studies._kit.plots import report_style

        options = chosen.options()
        folder = RunFolder(settings.words, chosen.listed(), options["out"], overwrite=options.get("overwrite", False))
        with report_style():
            return run(chosen, folder) or folder.path

    hints = get_type_hints(settings, include_extras=True)
    parameters = []
    for field in fields(settings):
        kind = hints[field.name]
        if settings.shown and field.name not in settings.shown.split():
            option = copy.copy(kind.__metadata__[0])
            option.hidden = True
            kind = Annotated[kind.__origin__, option]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = settings.__doc__
    return command
