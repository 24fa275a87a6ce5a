"""A complete study, to copy: how many of its concepts does a painted bird show, compared with a coin?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.functional.intervals import interval
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.options import Out, Overwrite, Seed, given_settings
from quantus_concepts.studies._kit.plots import dots, report_style
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, write_report


# study.py
def collect(folder: RunFolder, n_images: int, seed: int) -> pd.DataFrame:
    """Return a row for each number of concepts."""
    rows = []
    for n_concepts in (10, 30):
        birds = PaintedBirds(n_images, image_size=32, n_classes=5, n_concepts=n_concepts, seed=seed)
        # What is expensive is made once: the key holds all that it depends on.
        key = {"images": n_images, "concepts": n_concepts, "seed": seed}
        labels = folder.cached("labels", key, lambda birds=birds: {"labels": birds.concept_labels.double()})["labels"]
        density = labels.mean(1).numpy()
        low, high = interval(density)
        row = {
            "metric": "density",
            "model": f"{n_concepts} concepts",
            "value": density.mean(),
            "low": low,
            "high": high,
        }
        rows.append({**row, "random_low": 0.45, "random_high": 0.55, "n": n_images})
    return pd.DataFrame(rows)


# report.py
def report(frame: pd.DataFrame) -> Report:
    """Declare the report over the table."""
    verdicts = [Verdict.of(f"Does an image show half of {row['model']}?", row) for row in frame.to_dict("records")]
    figure, _ = dots(frame, "model", label="concepts shown (%)", reference=0.5)
    table = Table("density", "Share of the concepts an image shows, in %", frame, ["model"], ["metric"])
    return Report(
        "How many concepts does an image show?",
        verdicts,
        Picture("shares", figure, "Means with 95 % intervals, over the range of a coin."),
        [Section("Labels", [table])],
        reading={"Random range": "Where the share of heads of 95 % of coins lies."},
    )


# command.py: nothing heavy is imported at its top, so that --help answers at once
def density(
    n_images: Annotated[int, typer.Option(min=2, max=10_000, help="Number of images.")] = 100,
    seed: Seed = 0,
    out: Out = None,
    overwrite: Overwrite = False,
) -> Path:
    """How many of the concepts does an image of a painted bird show?

    Example: quantus-concepts benchmark density --n-images 500
    """
    settings = given_settings(locals())
    with RunFolder("benchmark density", settings, out, overwrite=overwrite) as folder, report_style():
        frame = collect(folder, n_images, seed)
        write_report(folder, frame, report(frame))
    return folder.path


# __init__.py
COMMANDS = {"benchmark density": density}
