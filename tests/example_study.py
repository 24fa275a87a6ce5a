"""A complete study, to copy: does a concept model name what an image shows, more often than random directions do?"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from quantus_concepts import UsualMetrics, painted_subject, score_concepts
from quantus_concepts.painted.subject import RANDOM
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.options import (
    AUTO,
    Device,
    NTest,
    NTrain,
    Out,
    Overwrite,
    Progress,
    Seed,
    check_birds,
    given_settings,
    torch_device,
)
from quantus_concepts.studies._kit.plots import lines, report_style
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, write_report
from quantus_concepts.studies._kit.results import pick, with_random_range

N_CLASSES, NAMED = 10, (1, 2, 3)


# study.py
def collect(
    folder: RunFolder, n_train: int, n_test: int, seed: int, *, device: torch.device, progress: bool
) -> pd.DataFrame:
    """Return CEM of each model, and of random directions, by the number of concepts that it names."""

    def score() -> pd.DataFrame:
        subject = painted_subject(
            n_train,
            n_test,
            image_size=32,
            n_classes=N_CLASSES,
            n_concepts=10,
            seed=seed,
            display_progressbar=progress,
        )
        models = {name: model.to(device) for name, model in subject.models.items()}
        # One row for all of a name: their mean, and the range of 95 % of them.
        controls = {name: [bank.to(device) for bank in banks] for name, banks in subject.baselines.items()}
        table = score_concepts(
            models,
            subject.loader(),
            UsualMetrics(explanations=["value"], top_l=NAMED),
            controls=controls,
            baselines=False,
            display_progressbar=progress,
        )
        return pick(table, metric="CEM", set="all")

    # What is expensive is made once: the key holds all that it depends on.
    return folder.cached("scores", {"train": n_train, "test": n_test, "seed": seed}, score)


# report.py
def report(frame: pd.DataFrame) -> Report:
    """Declare the report over the table."""
    ranged = with_random_range(frame, RANDOM)
    # At most nine, each a number that stands in a table.
    verdicts = [
        Verdict.of(f"Does an image show the concept that the {row['model']} names first?", row)
        for row in pick(ranged, l=1).to_dict("records")
    ]
    ticks = {float(number): str(number) for number in NAMED}
    figure, _ = lines(frame, "l", "model", label_x="concepts named", label="shown (%)", band=RANDOM, ticks=ticks)
    table = Table("presence", "Share of the named concepts that an image shows, in %", ranged, ["model"], ["l"])
    return Report(
        "Do the models name what an image shows?",
        verdicts,
        Picture("named_concepts", figure, "CEM by value with 95 % intervals, over the range of random directions."),
        [Section("Presence", [table])],
        reading={RANDOM: "Concept models of random directions in place of concepts, with heads of their own."},
    )


# command.py: in a package the functions above are imported in the command, so that --help answers at once
def presence(
    n_train: NTrain = 300,
    n_test: NTest = 100,
    seed: Seed = 0,
    device: Device = AUTO,
    out: Out = None,
    overwrite: Overwrite = False,
    progress: Progress = True,
) -> Path:
    """Count how often a concept model names concepts that the image shows.

    Example: quantus-concepts benchmark presence --n-test 500
    """
    settings = given_settings(locals())
    check_birds(N_CLASSES, None, {"--n-train": n_train, "--n-test": n_test})
    place = torch_device(device)
    with RunFolder("benchmark presence", settings, out, overwrite=overwrite) as folder, report_style():
        frame = collect(folder, n_train, n_test, seed, device=place, progress=progress)
        write_report(folder, frame, report(frame))
    return folder.path


# __init__.py
COMMANDS = {"benchmark presence": presence}
