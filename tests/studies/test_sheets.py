import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from quantus_concepts.studies.sheets import Sheet, SheetRow, plot_sheet


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
    return SheetRow(**{**content, **changes})


@pytest.fixture
def sheet():
    return Sheet("sheet_mcs", ["Grad-CAM", "guided backpropagation"], [row(), row("$f_s$")], "Two models.")


def test_sheet_has_the_image_first_and_a_column_a_method(sheet):
    fig, axes = plot_sheet(sheet)
    assert all(panel.figure is fig for panel in axes.flat)
    assert axes.shape == (2, 3)
    assert [panel.get_title() for panel in axes[0]] == ["image", "Grad-CAM", "guided\nbackpropagation"]
    assert [panel.get_ylabel() for panel in axes[:, 0]] == ["$f_o$\ndog", "$f_s$"]
    np.testing.assert_array_equal(axes[0, 0].images[0].get_array(), np.full((8, 8, 3), 0.5))
    np.testing.assert_array_equal(axes[1, 1].images[0].get_array(), np.eye(8))


def test_every_map_has_the_same_scale_and_its_attribution(sheet):
    _, axes = plot_sheet(sheet)
    for panel in axes[:, 1:].flat:
        assert panel.images[0].get_clim() == (0, 1)
    assert [text.get_text() for panel in axes[0, 1:] for text in panel.texts] == ["0.33", "–"]


def test_a_coarse_map_covers_the_image(sheet):
    _, axes = plot_sheet(sheet)
    assert list(axes[0, 2].images[0].get_extent()) == [0, 8, 8, 0]


def test_the_outline_runs_along_the_mask(sheet):
    _, axes = plot_sheet(sheet)
    for panel in axes[0]:
        drawn = np.concatenate([path.vertices for path in panel.collections[0].get_paths()])
        # Rows 2 to 4, columns 3 to 5: the border lies between pixels, x from 3 to 6 and y from 2 to 5.
        assert (drawn.min(0).tolist(), drawn.max(0).tolist()) == ([3, 2], [6, 5])
        assert panel.get_xlim() == (0, 8)


def test_an_object_at_the_border_is_closed():
    mask = np.zeros((8, 8), dtype=bool)
    mask[:, :4] = True
    _, axes = plot_sheet(Sheet("a", ["b"], [row(mask=mask, maps=[np.eye(8)], values=[0.1])]))
    drawn = np.concatenate([path.vertices for path in axes[0, 0].collections[0].get_paths()])
    assert (drawn.min(0).tolist(), drawn.max(0).tolist()) == ([0, 0], [4, 8])


@pytest.mark.parametrize("mask", [None, np.zeros((8, 8), dtype=bool), np.ones((8, 8), dtype=bool)])
def test_no_outline_without_a_border(mask):
    _, axes = plot_sheet(Sheet("a", ["b"], [row(mask=mask, maps=[np.eye(8)], values=[0.1])]))
    assert len(axes[0, 0].collections) == 0


def test_a_missing_map_says_so(sheet):
    sheet.rows[0].maps[0] = np.full((8, 8), np.nan)
    fig, axes = plot_sheet(sheet)
    assert [text.get_text() for text in axes[0, 1].texts] == ["no map"]
    fig.draw_without_rendering()


def test_long_labels_are_broken_once():
    sheet = Sheet("a", ["b"], [row("integrated gradients", maps=[np.eye(8)], values=[0.1])])
    assert plot_sheet(sheet)[1][0, 0].get_ylabel() == "integrated\ngradients"


def test_axes_given_are_used(sheet):
    figure = Figure()
    given = figure.subplots(2, 3)
    assert plot_sheet(sheet, given)[0] is figure
    assert len(given[1, 2].images) == 1
    with pytest.raises(ValueError, match=r"`ax` to have shape \(R, C\) = \(2, 3\) but got \(3, 2\)"):
        plot_sheet(sheet, Figure().subplots(3, 2))


def test_bad_sheets_are_refused(sheet):
    with pytest.raises(ValueError, match=r"'empty' has none"):
        plot_sheet(Sheet("empty", ["a"]))
    sheet.rows[1].values.pop()
    with pytest.raises(ValueError, match=r"row 1 of the sheet 'sheet_mcs' .* 2 columns but got 2 maps and 1 values"):
        plot_sheet(sheet)


def test_pictures_and_texts_stand_in_for_maps_and_values():
    picture = np.linspace(0, 1, 48).reshape(4, 4, 3)
    fig, axes = plot_sheet(Sheet("a", ["overlay"], [row(maps=[picture], values=["score 4.2"])]))
    np.testing.assert_array_equal(axes[0, 1].images[0].get_array(), picture)
    assert [text.get_text() for text in axes[0, 1].texts] == ["score 4.2"]
    assert len(fig.axes) == 2  # no scale, which belongs to maps


def test_a_sheet_of_maps_has_their_scale(sheet):
    assert len(plot_sheet(sheet)[0].axes) == 7
