"""The scores of explanations as tables: one row for each, and one for each explainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from quantus_concepts.datasets.ratings.questions import question_named
from quantus_concepts.pasta.mixture import Mixture, best_explainer
from quantus_concepts.studies.rating.explanation_files import ExplanationFile


@dataclass(frozen=True)
class Scores:
    """What was scored."""

    frame: pd.DataFrame
    questions: Sequence[str]
    files: Sequence[ExplanationFile]

    @property
    def question(self) -> str:
        """The question that is sorted by."""
        return self.questions[0]

    @cached_property
    def best_first(self) -> pd.DataFrame:
        """The frame, the best explanation first and those without a score last; its index still tells the file."""
        low_is_good = question_named(self.question).low_is_good
        return self.frame.sort_values(self.question, ascending=low_is_good, kind="stable", na_position="last")

    @property
    def explainers(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(self.frame["explainer"]))

    @cached_property
    def mixture(self) -> Mixture | None:
        """The best explainer of each image; None with a single explainer."""
        if len(self.explainers) < 2:
            return None
        image = self.frame["dataset"] + "_" + self.frame["image_id"]
        table = self.frame.assign(image=image).pivot_table(
            index="image", columns="explainer", values=self.question, dropna=False, aggfunc="first"
        )
        return best_explainer({name: table[name].to_numpy() for name in self.explainers}, self.question)

    @cached_property
    def by_explainer(self) -> pd.DataFrame:
        """A row for each explainer: n, mean and deviation of each question, wins, ties; the best mean first."""
        groups = self.frame.groupby("explainer", sort=False)
        rows = pd.DataFrame({"n": groups[self.question].count()})
        for question in self.questions:
            rows[question] = groups[question].mean()
            rows[f"{question} deviation"] = groups[question].std()
        if self.mixture is not None:
            rows["wins"] = pd.Series(self.mixture.wins)
            rows["ties"] = pd.Series(self.mixture.ties)
        return rows.sort_values(self.question, ascending=question_named(self.question).low_is_good, na_position="last")


def score_text(value: float) -> str:
    """Write a score."""
    return "–" if np.isnan(value) else f"{value:.2f}"


def arrow(question: str) -> str:
    """Return ↓ where a low score is good, else ↑."""
    return "↓" if question_named(question).low_is_good else "↑"


def terminal_table(scores: Scores) -> Table:
    """Draw the table of explainers."""
    table = Table(title="Predicted ratings, 1 to 5: means over explanations", title_justify="left", box=box.SIMPLE)
    table.add_column("explainer", overflow="fold")
    table.add_column("n", justify="right")
    for question in scores.questions:
        table.add_column(f"{question} {arrow(question)}", justify="right", no_wrap=True)
    if scores.mixture is not None:
        table.add_column(f"wins ({scores.question})", justify="right")
    for name, row in scores.by_explainer.iterrows():
        table.add_row(str(name), *_cells(row, scores))
    return table


def _cells(row: Mapping[str, float], scores: Scores) -> list[str]:
    cells = [str(int(row["n"])), *(score_text(row[question]) for question in scores.questions)]
    return cells if scores.mixture is None else [*cells, wins_text(row)]


def wins_text(row: Mapping[str, float]) -> str:
    """Write for how many images an explainer is best: alone, and with others."""
    return str(int(row["wins"])) + (f" + {int(row['ties'])} tied" if row["ties"] else "")
