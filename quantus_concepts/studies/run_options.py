"""Options that every run has, as typer declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RUN_HELP = "Run"

DeviceOption = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, ...; auto takes a GPU where there is one.", rich_help_panel=RUN_HELP)
]
BatchSizeOption = Annotated[int, typer.Option(help="Images at once.", rich_help_panel=RUN_HELP)]
SeedOption = Annotated[int, typer.Option(help="Of everything that is drawn.", rich_help_panel=RUN_HELP)]
OutOption = Annotated[
    Path | None, typer.Option(help="Folder to write; by default a new one under reports/.", rich_help_panel=RUN_HELP)
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace an earlier run in --out.", rich_help_panel=RUN_HELP)
]
ProgressOption = Annotated[bool, typer.Option(help="Progress bars.", rich_help_panel=RUN_HELP)]
