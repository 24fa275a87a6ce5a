import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from quantus_concepts.studies._kit.pictures import PictureGrid, PictureRow, plot_grid


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
    fig, axes = plot_grid(grid)
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
    axes = plot_grid(grid)[1]
    # Rows 2 to 4, columns 3 to 5: the border lies between pixels, x from 3 to 6 and y from 2 to 5.
    for panels, ends in ((axes[0], ([3, 2], [6, 5])), (axes[1], ([0, 0], [4, 8]))):
        for panel in panels:
            drawn = np.concatenate([path.vertices for path in panel.collections[0].get_paths()])
            assert (drawn.min(0).tolist(), drawn.max(0).tolist()) == ends
            assert panel.get_xlim() == (0, 8)


@pytest.mark.parametrize("mask", [None, np.zeros((8, 8), dtype=bool), np.ones((8, 8), dtype=bool)])
def test_no_outline_without_a_border(mask):
    _, axes = plot_grid(PictureGrid("a", ["b"], [row(mask=mask, maps=[np.eye(8)], values=[0.1])]))
    assert len(axes[0, 0].collections) == 0


def test_a_missing_map_says_so(grid):
    grid.rows[0].maps[0] = np.full((8, 8), np.nan)
    fig, axes = plot_grid(grid)
    assert [text.get_text() for text in axes[0, 1].texts] == ["no map"]
    fig.draw_without_rendering()


def test_pictures_and_texts_stand_in_for_maps_and_values():
    picture = np.linspace(0, 1, 48).reshape(4, 4, 3)
    fig, axes = plot_grid(PictureGrid("a", ["overlay"], [row(maps=[picture], values=["score 4.2"])]))
    np.testing.assert_array_equal(axes[0, 1].images[0].get_array(), picture)
    assert [text.get_text() for text in axes[0, 1].texts] == ["score 4.2"]
    assert len(fig.axes) == 2  # no scale, which belongs to maps


def test_axes_given_are_used(grid):
    figure = Figure()
    given = figure.subplots(2, 3)
    assert plot_grid(grid, given)[0] is figure
    assert len(given[1, 2].images) == 1
    with pytest.raises(ValueError, match=r"`ax` to have shape \(R, C\) = \(2, 3\) but got \(3, 2\)"):
        plot_grid(grid, Figure().subplots(3, 2))


def test_bad_grids_are_refused(grid):
    with pytest.raises(ValueError, match=r"'empty' has none"):
        plot_grid(PictureGrid("empty", ["a"]))
    grid.rows[1].values.pop()
    with pytest.raises(ValueError, match=r"row 1 of the grid 'mcs' .* 2 columns but got 2 maps and 1 values"):
        plot_grid(grid)
