"""Charts draw every number that is there, lying and standing; grids show images and their maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from quantus_concepts.studies._kit.charts import Bars, Curves, Histograms, Plane, png
from quantus_concepts.studies._kit.pictures import PictureGrid, PictureRow


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


def test_a_single_curve_stands_at_its_places() -> None:
    rows = pd.concat([FRAME[(FRAME["model"] == "a") & (FRAME["group"] == "x")].assign(k=k) for k in (0, 1)])
    _, axes = Curves(frame=rows, x="k", series="model").draw()
    assert [0, 1] in [list(line.get_xdata()) for line in axes[0].lines]


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


def row(label="$f_o$\ndog", size=8, **changes):
    mask = np.zeros((size, size), dtype=bool)
    mask[2:5, 3:6] = True
    content = {
        "label": label,
        "image": np.full((size, size, 3), 0.5),
        "maps": [np.eye(size), np.zeros((2, 2))],
        "mask": mask,
        "values": [0.333, math.nan],
    }
    return PictureRow(**{**content, **changes})


@pytest.fixture
def grid():
    return PictureGrid("mcs", ["Grad-CAM", "guided backpropagation"], [row(), row("$f_s$")], "Two models.")


def test_the_image_comes_first_then_a_map_a_method_on_one_scale_with_its_value(grid):
    fig, axes = grid.draw()
    assert all(panel.figure is fig for panel in axes.flat)
    assert [panel.get_title() for panel in axes[0]] == ["image", "Grad-CAM", "guided\nbackpropagation"]
    assert [panel.get_ylabel() for panel in axes[:, 0]] == ["$f_o$\ndog", "$f_s$"]
    np.testing.assert_array_equal(axes[0, 0].images[0].get_array(), np.full((8, 8, 3), 0.5))
    np.testing.assert_array_equal(axes[1, 1].images[0].get_array(), np.eye(8))
    assert {panel.images[0].get_clim() for panel in axes[:, 1:].flat} == {(0, 1)}
    assert [text.get_text() for panel in axes[0, 1:] for text in panel.texts] == ["0.33", "–"]
    # A coarse map covers the image it explains.
    assert list(axes[0, 2].images[0].get_extent()) == [0, 8, 8, 0]
    # Six panels, and the scale of the maps.
    assert len(fig.axes) == 7


def test_the_outline_runs_along_the_mask_and_is_closed_at_the_border(grid):
    border = np.zeros((8, 8), dtype=bool)
    border[:, :4] = True
    grid.rows[1].mask = border
    axes = grid.draw()[1]
    # Rows 2 to 4, columns 3 to 5: the border lies between pixels, x from 3 to 6 and y from 2 to 5.
    for panels, ends in ((axes[0], ([3, 2], [6, 5])), (axes[1], ([0, 0], [4, 8]))):
        for panel in panels:
            outline = np.concatenate([path.vertices for path in panel.collections[0].get_paths()])
            assert (outline.min(0).tolist(), outline.max(0).tolist()) == ends
            assert panel.get_xlim() == (0, 8)


@pytest.mark.parametrize("mask", [None, np.zeros((8, 8), dtype=bool), np.ones((8, 8), dtype=bool)])
def test_no_outline_without_a_border(mask):
    _, axes = PictureGrid("a", ["b"], [row(mask=mask, maps=[np.eye(8)], values=[0.1])]).draw()
    assert len(axes[0, 0].collections) == 0


def test_a_missing_map_says_so(grid):
    grid.rows[0].maps[0] = np.full((8, 8), np.nan)
    fig, axes = grid.draw()
    assert [text.get_text() for text in axes[0, 1].texts] == ["no map"]
    fig.draw_without_rendering()


def test_pictures_and_texts_stand_in_for_maps_and_values():
    picture = np.linspace(0, 1, 48).reshape(4, 4, 3)
    fig, axes = PictureGrid("a", ["overlay"], [row(maps=[picture], values=["score 4.2"])]).draw()
    np.testing.assert_array_equal(axes[0, 1].images[0].get_array(), picture)
    assert [text.get_text() for text in axes[0, 1].texts] == ["score 4.2"]
    assert len(fig.axes) == 2  # no scale, which belongs to maps


def test_bad_grids_are_refused(grid):
    with pytest.raises(ValueError, match="'empty' to have rows but it has none"):
        PictureGrid("empty", ["a"]).draw()
    grid.rows[1].values.pop()
    with pytest.raises(ValueError, match=r"row 1 of the grid 'mcs' .* 2 columns but got 2 maps and 1 values"):
        grid.draw()
