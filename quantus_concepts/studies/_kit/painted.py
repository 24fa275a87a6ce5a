"""What only shapes embedded data: one option, `--painted KEY=VALUE,...`, checked by one dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import typer

from quantus_concepts.studies._kit.options import (
    PAINTED,
    Correlation,
    Deviation,
    NClasses,
    NConcepts,
    NTest,
    NTrain,
    check_birds,
)


def _key(default: float, kind: Any) -> Any:
    """Return a field with the help and the bounds of an option."""
    return field(default=default, metadata={"option": kind.__metadata__[0]})


@dataclass(frozen=True, kw_only=True)
class Painted:
    """Painted birds: how many are drawn, of how many classes, with how many concepts."""

    n_train: int = _key(2400, NTrain)
    n_test: int = _key(400, NTest)
    n_classes: int = _key(20, NClasses)
    n_concepts: int = _key(69, NConcepts)
    correlation: float = _key(0.0, Correlation)
    deviation: float = _key(0.1, Deviation)

    def __post_init__(self) -> None:
        """Raise ValueError for a number out of its bounds, or fewer images than classes."""
        for key in fields(self):
            option, value = key.metadata["option"], getattr(self, key.name)
            if not option.min <= value <= option.max:
                raise ValueError(
                    f"Expected `--painted {key.name}` to lie in [{option.min}, {option.max}] but got {value}."
                )
        check_birds(self.n_classes, None, {f"--painted {name}": getattr(self, name) for name in ("n_train", "n_test")})

    def __str__(self) -> str:
        return ", ".join(f"{name}={value:g}" for name, value in asdict(self).items())

    def birds(self, image_size: int, seed: int) -> dict[str, Any]:
        """Return the settings of `PaintedBirds` for every split."""
        names = ("n_classes", "n_concepts", "correlation", "deviation")
        return {name: getattr(self, name) for name in names} | {"image_size": image_size, "seed": seed}


def read_painted(text: str, defaults: Painted | None = None) -> Painted:
    """Read ``n_train=300,n_classes=6``; "help" prints the keys and ends the command."""
    defaults, keys = defaults or Painted(), {key.name: key for key in fields(Painted)}
    if text == "help":
        lines = [f"{name}={getattr(defaults, name):g}  {key.metadata['option'].help}" for name, key in keys.items()]
        typer.echo("\n".join(lines))
        raise typer.Exit
    try:
        return replace(defaults, **_pairs(text, keys))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _pairs(text: str, keys: Mapping[str, Field[Any]]) -> dict[str, Any]:
    values: dict[str, float] = {}
    for pair in text.replace(",", " ").split():
        name, _, number = pair.partition("=")
        if name not in keys:
            raise ValueError(f"Expected the keys {', '.join(keys)} but got {name!r}. `--painted help` explains them.")
        if name in values:
            raise ValueError(f"Expected `{name}=` once but got it twice, and only the last would count.")
        is_whole = isinstance(keys[name].default, int)
        try:
            values[name] = int(number) if is_whole else float(number)
        except ValueError:
            kind = "a whole number" if is_whole else "a number"
            raise ValueError(f"Expected `{name}=` with {kind} but got {pair!r}.") from None
    return values


def painted_option(defaults: Painted | None = None) -> Any:
    """Return the option ``--painted`` of a study, which has these numbers where no other is given."""
    return typer.Option(
        parser=partial(read_painted, defaults=defaults),
        metavar="KEY=VALUE,...",
        help="Painted birds, n_train=300,n_classes=6; `--painted help` lists the keys.",
        rich_help_panel=PAINTED,
    )
