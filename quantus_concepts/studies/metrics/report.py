"""The report of `benchmark metrics`: the table, the picture, and how to read them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, number
from quantus_concepts.studies.metrics.command import Metrics
from quantus_concepts.testing import noticed, plot_trial, trial_table
from quantus_concepts.testing.damages import DAMAGES
from quantus_concepts.testing.trial import DAMAGE, NOTHING_KNOWN, UNMOVED, WORSE
from quantus_concepts.testing.worlds import RIGHT, TRAINED

#: What each world is, for readers.
WORLDS = {
    RIGHT: "a planted model that is right",
    TRAINED: "post-hoc concept models trained on painted birds",
    "photographs": "a post-hoc concept model of the network on photographs",
}
READING = {
    "The table": "A cell is the smallest size of damage from which on the score is worse beyond luck. “~”: not in "
    "order, “–”: not noticed, “up”: the score gets better. In brackets: the score claims nothing there, or must not "
    "move. Red: the score misses what it must notice, or rewards it.",
    "Size of damage": "The share of names, concepts, images or classes that is damaged, the angle by which directions "
    "are turned (1: a right angle), or the share of another value or map that is mixed in.",
    "Beyond luck": "The mean change exceeds 1.96 √2 standard deviations over undamaged worlds, what two of them differ "
    "by in one of twenty cases, and a fiftieth of the range of the score in this trial.",
    "In order": "The mean rank correlation of size and score is below −0.8.",
    "What must react": "Written down before the first run, with a sentence for each cell (expected.csv). A deviation "
    "is printed as a finding.",
    "Models that know nothing": "Random concepts, a private code of the class, a recital of the class, values of other "
    "images, the commonest concepts, and one map for all images. One that scores no worse than the undamaged models "
    "passes, and stands in red: a high score does not exclude it.",
    "What must not move": "Three changes leave every prediction as it is: a constant added to a concept's values and "
    "taken off the head's bias, one vector added to all rows of the head, values times a factor and their weights "
    "divided by it. So do the order of the images and the size of batches.",
    "Worlds": "“right” has the labels of painted birds and an embedding in which each concept is a coordinate with "
    "noise; nothing is trained. “trained” is a post-hoc CBM of a network that is trained anew for each world. Of "
    "photographs one model is fitted, and each world scores another half of the test images: luck is then that of the "
    "images, and not of the training.",
}


def build_report(frames: Mapping[str, pd.DataFrame], settings: Metrics, about: str, folder: RunFolder) -> Report:
    """Declare the report over the scores of each world; write what was noticed, with the reasons."""
    found = {name: noticed(frame) for name, frame in frames.items()}
    folder.write("tables/noticed.csv", pd.concat([of.assign(model=name) for name, of in found.items()]).to_csv(index=False))
    first = next(iter(frames))
    sections = [Section("Which score notices what", [_table(name, of) for name, of in found.items()])]
    pictures = [Picture(f"trial_{name}", plot_trial(frame)[0], _about(name), wide=True) for name, frame in frames.items()]
    sections += [
        Section("Models that know nothing, and changes that must move nothing", [_passing(name, of) for name, of in found.items()]),
        Section("All scores and damages", [pictures[0]], pictures[1:]),
    ]
    counts = "; ".join(f"{name}: {_count(of)}" for name, of in found.items())
    return Report(
        "Which metric would have noticed?",
        [],
        None,
        sections,
        lead=f"Planted damage to concept models ({about}), {settings.worlds} worlds, {settings.repetitions} "
        f"repetition{'s' * (settings.repetitions > 1)}. {counts}.",
        reading=READING,
    )


def _about(name: str) -> str:
    return f"Scores against the size of damage: {WORLDS.get(name, name)}."


def _count(found: pd.DataFrame) -> str:
    own = found[(found["kind"] == DAMAGE) & (found["expected"] == WORSE)]
    findings = own["finding"].value_counts()
    missed, rewarded, apart = (int(findings.get(name, 0)) for name in ("misses", "rewards", "out of order"))
    seen = len(own) - missed - rewarded - apart
    return f"of {len(own)} cells that must get worse {seen} do in order, {apart} out of order, {missed} are missed, {rewarded} rewarded"


def _table(name: str, found: pd.DataFrame) -> Table:
    """Return the table of a world; what is wrong is marked."""
    texts = trial_table(found)
    own = found[found["kind"] == DAMAGE]
    cells = own.assign(
        value=own["t"],
        text=[texts.loc[row["metric"], row["damage"]].replace("-", "–") for row in own.to_dict("records")],
        wrong=own["finding"].isin(["misses", "rewards"]),
        damage=[_title(damage) for damage in own["damage"]],
    )
    start = own.drop_duplicates("metric").assign(damage="undamaged", text=lambda of: of["start"].map(number), wrong=False)
    cells = pd.concat([start.assign(value=start["start"]), cells], ignore_index=True)
    title = f"Smallest damage that is noticed: {WORLDS.get(name, name)}"
    return Table(f"noticed_{name}", title, cells, ["metric"], ["damage"], number)


def _title(damage: str) -> str:
    return DAMAGES[damage].title.replace("\n", " ") if damage in DAMAGES else damage


def _passing(name: str, found: pd.DataFrame) -> Table:
    """Return the scores of models that know nothing, and the largest changes under what must move nothing."""
    nothing = found[found["kind"] == NOTHING_KNOWN]
    cells = nothing.assign(value=nothing["end"], wrong=nothing["finding"] == "passes")
    moved = found[found["kind"] == UNMOVED]
    moved = moved.assign(value=moved["change"].abs(), damage="change by " + moved["damage"], wrong=moved["finding"] == "moves")
    start = nothing.drop_duplicates("metric").assign(damage="undamaged", wrong=False)
    cells = pd.concat([start.assign(value=start["start"]), cells, moved], ignore_index=True)
    title = f"Scores of models that know nothing, and changes that must be 0: {WORLDS.get(name, name)}"
    caption = "Red: passes, or moves."
    return Table(f"nothing_{name}", title, cells, ["metric"], ["damage"], number, caption)
