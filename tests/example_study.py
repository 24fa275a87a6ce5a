"""A complete study, to copy: does a concept model name what an image shows, more often than random directions do?"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from quantus_concepts import UsualMetrics, painted_subject, score_concepts
from quantus_concepts.painted.subject import RANDOM
from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.plots import lines
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, write_report
from quantus_concepts.studies._kit.results import pick, with_random_range
from quantus_concepts.studies._kit.study import Settings, command_of

N_CLASSES, NAMED = 10, (1, 2, 3)


# settings.py
@dataclass(frozen=True, kw_only=True)
class Presence(Settings):
    """Count how often a concept model names concepts that the image shows.

    Example: quantus-concepts benchmark presence --n-test 500
    """

    words = "benchmark presence"

    # Each field is an option: its type has the help and the bounds.
    n_train: kit.NTrain = 300
    n_test: kit.NTest = 100
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    out: kit.Out = None
    overwrite: kit.Overwrite = False
    progress: kit.Progress = True

    def check(self) -> None:
        """Raise ValueError for too few birds, before the folder is opened."""
        kit.check_birds(N_CLASSES, None, {"--n-train": self.n_train, "--n-test": self.n_test})


# study.py
def collect(settings: Presence, folder: RunFolder) -> pd.DataFrame:
    """Return CEM of each model, and of random directions, by the number of concepts that it names."""
    n_train, n_test, seed = settings.n_train, settings.n_test, settings.seed

    def score() -> pd.DataFrame:
        subject = painted_subject(
            n_train,
            n_test,
            image_size=32,
            n_classes=N_CLASSES,
            n_concepts=10,
            seed=seed,
            display_progressbar=settings.progress,
        )
        models = {name: model.to(settings.place) for name, model in subject.models.items()}
        # One row for all of a name: their mean, and the range of 95 % of them.
        controls = {name: [bank.to(settings.place) for bank in banks] for name, banks in subject.baselines.items()}
        table = score_concepts(
            models,
            subject.loader(),
            UsualMetrics(explanations=["value"], top_l=NAMED),
            controls=controls,
            baselines=False,
            display_progressbar=settings.progress,
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


# command.py: in a package the functions above are imported in `run`, so that --help answers at once
def run(settings: Presence, folder: RunFolder) -> None:
    """Write the report into the folder."""
    with folder:
        frame = collect(settings, folder)
        write_report(folder, frame, report(frame))


# __init__.py
COMMANDS = {Presence.words: command_of(Presence, run)}
