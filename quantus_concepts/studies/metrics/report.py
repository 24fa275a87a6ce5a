"""The report of `benchmark metrics`: the table, the picture, and how to read them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number
from quantus_concepts.studies._kit.results import arrange
from quantus_concepts.studies.metrics.settings import Metrics
from quantus_concepts.testing import noticed, plot_trial, trial_table
from quantus_concepts.testing.expected import WORSE
from quantus_concepts.testing.trial import DAMAGE, NOTHING_KNOWN, UNMOVED
from quantus_concepts.testing.worlds import RIGHT, TRAINED

#: What each world is, for readers.
WORLDS = {
    RIGHT: "a planted model that is right",
    TRAINED: "post-hoc concept models trained on painted birds",
    "photographs": "a post-hoc concept model of the network on photographs",
}
HOW = (
    "Grey band: what two undamaged worlds differ by through luck; ▾ must get worse; blue does, red misses it or "
    "rewards it, orange moves where it must not or out of order, purple gets better without a claim."
)
TABLE_KEY = "~: out of order, –: not noticed, up: gets better, in brackets: no claim or must not move, red: wrong."
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


#: The picture of the page and of README: eight scores and six kinds of damage.
FEW_SCORES: tuple[str, ...] = (
    "concept AUC",
    "CEM gain (value)",
    "CEM gain (effect)",
    "CGIM correlation (value)",
    "CEM (contribution)",
)
FEW_SCORES += ("concept-task leakage", "ANEC-5", "accuracy")
FEW_DAMAGES: tuple[str, ...] = (
    "names permuted",
    "directions rotated",
    "polarity reversed",
    "head rows permuted",
    "private code",
)
FEW_DAMAGES += ("class recited",)


def build_report(frames: Mapping[str, pd.DataFrame], settings: Metrics, about: str, folder: RunFolder) -> Report:
    """Declare the report over the scores of each world; write what was noticed, with the reasons."""
    found = {name: noticed(frame) for name, frame in frames.items()}
    every = pd.concat([of.assign(model=name) for name, of in found.items()])
    folder.write("tables/all_noticed.csv", every.to_csv(index=False))
    first, frame = next(iter(frames.items()))
    few = Picture(
        "few", plot_trial(frame, FEW_SCORES, FEW_DAMAGES, legend=False)[0], f"{_about(first)} {HOW}", wide=True
    )
    pictures = [Picture(f"trial_{name}", plot_trial(of)[0], _about(name), wide=True) for name, of in frames.items()]
    sections = [
        Section("Which score notices what", [_table(name, of) for name, of in found.items()]),
        Section(
            "Models that know nothing, and what must move nothing", [_passing(name, of) for name, of in found.items()]
        ),
        Section("All scores and damages", folded=pictures),
    ]
    worlds = f"{settings.worlds} worlds, {settings.repetitions} repetition{'s' * (settings.repetitions > 1)}"
    return Report(
        "Which metric would have noticed?",
        [verdict for name, of in found.items() for verdict in _verdicts(name, of)],
        few,
        sections,
        lead=f"Planted damage to concept models ({about}), {worlds}.",
        reading=READING,
        subject="cells of the table that must get worse",
    )


def _about(name: str) -> str:
    return f"Scores against the size of damage: {WORLDS.get(name, name)}."


def _verdicts(name: str, found: pd.DataFrame) -> list[Verdict]:
    """Return how many of the cells that must get worse do, and how many do not."""
    own = found[(found["kind"] == DAMAGE) & (found["expected"] == WORSE)]
    counts = {"get worse in order": "", "get worse out of order": "out of order", "miss it": "misses"}
    counts["reward it"] = "rewards"
    shares = {text: int((own["finding"] == finding).sum()) for text, finding in counts.items()}
    return [Verdict(f"{name}: {text}", n / max(1, len(own)), text=f"{n} of {len(own)}") for text, n in shares.items()]


def _table(name: str, found: pd.DataFrame) -> Table:
    """Return the table of a world; what is wrong is marked."""
    texts = trial_table(found)
    own = found[found["kind"] == DAMAGE]
    cells = own.assign(
        value=own["t"],
        text=[texts.loc[row["metric"], row["damage"]].replace("-", "–") for row in own.to_dict("records")],
        wrong=own["finding"].isin(["misses", "rewards"]),
    )
    title = f"Smallest damage that is noticed: {WORLDS.get(name, name)}"
    return Table(f"noticed_{name}", title, cells, ["metric"], ["damage"], number, TABLE_KEY)


def _passing(name: str, found: pd.DataFrame) -> Table:
    """Return the scores of models that know nothing, and the largest changes under what must move nothing."""
    nothing = found[found["kind"] == NOTHING_KNOWN]
    cells = nothing.assign(value=nothing["end"], wrong=nothing["finding"] == "passes")
    moved = found[found["kind"] == UNMOVED]
    moved = moved.assign(
        value=moved["change"].abs(), damage="change by " + moved["damage"], wrong=moved["finding"] == "moves"
    )
    start = nothing.drop_duplicates("metric").assign(damage="undamaged", wrong=False)
    cells = pd.concat([start.assign(value=start["start"]), cells, moved], ignore_index=True)
    cells = arrange(cells, metric=[*dict.fromkeys(found["metric"])])
    title = f"Scores of models that know nothing, and changes that must be 0: {WORLDS.get(name, name)}"
    caption = "Red: a model that knows nothing passes, or a score moves that must not."
    return Table(f"nothing_{name}", title, cells, ["metric"], ["damage"], number, caption)
