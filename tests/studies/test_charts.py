"""Charts draw every number that is there, with and without series, lying and standing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from quantus_concepts.studies._kit.charts import Bars, Curves, Histograms, Plane, png


def frame_of(**values: dict[str, float]) -> pd.DataFrame:
    """Return rows of models and groups, with intervals of 0.1 to both sides."""
    rows = [
        {"model": model, "group": group, "value": value, "low": value - 0.1, "high": value + 0.1}
        for model, of in values.items()
        for group, value in of.items()
    ]
    return pd.DataFrame(rows)


FRAME = frame_of(a={"x": 0.5, "y": 0.7}, b={"x": 0.2, "y": math.nan}, random={"x": 0.3, "y": 0.4})


@pytest.mark.parametrize("flat", [False, True])
def test_a_bar_for_each_number(flat: bool) -> None:
    ax = Bars(frame=FRAME, groups="group", series="model", band="random", flat=flat, reference=(0.6, "ours")).draw()[1]
    lengths = [patch.get_width() if flat else patch.get_height() for patch in ax.patches]
    assert lengths == [0.5, 0.2, 0.7]
    assert [text.get_text() for text in ax.texts] == ["0.50", "0.20", "0.70"]
    # A band in each group.
    assert len(ax.collections) == 2 + len(lengths)
    alone: Any = Bars(frame=FRAME[FRAME["model"] == "b"], groups="group", flat=flat).draw()[1]
    assert len(alone.patches) == 1
    assert ["not defined"] * flat == [text.get_text() for text in alone.texts][1:]


def test_points_and_single_seeds() -> None:
    frame = FRAME[FRAME["model"] == "a"]
    ax = Bars(frame=frame, groups="group", flat=True, points=True, singles=frame.assign(series="")).draw()[1]
    assert not ax.patches
    assert [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"] == [0.5, 0.7]


def test_curves_have_a_band_and_a_panel_each() -> None:
    rows = pd.concat([FRAME.assign(k=k, panel=panel) for k in (0, 1) for panel in ("left", "right")])
    _, axes = Curves(frame=rows, x="k", series="model", panels="panel", band="random", styles={"b": ":"}).draw()
    assert [ax.get_title() for ax in axes] == ["left", "right"]
    assert [text.get_text() for text in axes[-1].get_legend().get_texts()][:2] == [
        "95 % of random baselines",
        "their mean",
    ]


def test_histograms_hold_all_values() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"model": model, "row": row, "column": column, "value": value}
        for model in ("a", "b")
        for row in "rs"
        for column in "cd"
        for value in rng.random(9)
    ]
    _, axes = Histograms(frame=pd.DataFrame(rows), rows="row", columns="column", series="model").draw()
    assert axes.shape == (2, 2)
    assert all(sum(patch.get_height() for patch in ax.patches[:20]) == 9 for ax in axes.flat)


def test_a_plane_has_a_point_for_each_model() -> None:
    rows = pd.concat([FRAME[FRAME["group"] == "x"].assign(metric=metric, kind="") for metric in ("S+", "S-")])
    chart = Plane(frame=rows, x="S+", y="S-", series="model", kinds="kind", band="random")
    ax = chart.draw()[1]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["95 % of random baselines", "a", "b"]
    assert png(chart).startswith(b"\x89PNG")
