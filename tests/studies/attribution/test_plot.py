import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from quantus_concepts.studies.attribution.plot import (
    CONTROL,
    MASK,
    METHOD,
    default_figures,
    plot_correlation,
    plot_idr,
    plot_iir,
    plot_mcs,
    plot_perturbation,
    plot_relative,
)
from quantus_concepts.studies.attribution.premises import CommonalityRow
from quantus_concepts.studies.attribution.results import Record

METHODS = {"random": 0.0, "Grad-CAM": 0.4, "guided backpropagation": -0.1}
FAMILY = [CommonalityRow(k, 0.9, 0.9 - drop, 50) for k, drop in ((1.0, 0.0), (0.1, 0.5), (0.5, 0.2))]


@pytest.fixture
def records():
    found = []
    for method, value in METHODS.items():
        for metric in ("MCS", "correlation"):
            found.append(Record(method, metric, value=value, low=value - 0.1, high=value + 0.2))
        found.append(Record(method, "MCS baseline", value=0.05, low=0.04, high=0.06))
        for metric in ("IDR", "IIR"):
            found.append(Record(method, metric, value=0.5 + value, low=0.4 + value, high=0.6 + value))
        found.append(Record(method, "perturbation", value=1 + value, low=0.5 + value, high=2 + value))
        for k in (0.5, 0.1, 1.0):
            at = value * (1 - k)
            found.append(Record(method, "relative MCS", k=k, value=at, low=at - 0.02, high=at + 0.02))
    return found


def names(ax):
    return [tick.get_text() for tick in ax.get_yticklabels()]


def widths(ax, colour):
    return [round(bar.get_width(), 6) for bar in ax.patches if to_hex(bar.get_facecolor()).upper() == colour.upper()]


def test_nothing_is_shown_and_no_global_state_is_touched(records):
    before = plt.get_fignums(), dict(plt.rcParams)
    figures = default_figures(records, FAMILY)
    assert list(figures) == ["mcs", "relative", "correlation", "idr", "iir", "perturbation"]
    assert all(isinstance(figure, Figure) for figure in figures.values())
    assert (plt.get_fignums(), dict(plt.rcParams)) == before


def test_figures_of_nothing_are_none():
    assert default_figures([]) == {}
    assert default_figures([Record("a", "MCS")]) == {}


def test_mcs_bars_have_the_numbers_and_the_random_mask_beside_each(records):
    _, ax = plot_mcs(records)
    assert names(ax) == ["Grad-CAM", "guided backpropagation", "random"]
    assert widths(ax, METHOD) == [0.4, -0.1]
    assert widths(ax, CONTROL) == [0.0]
    assert widths(ax, MASK) == [0.05] * 3
    assert [text.get_text() for text in ax.texts] == ["0.400", "−0.100", "0"]


def test_mcs_draws_the_reference_where_the_random_mask_has_no_record():
    _, ax = plot_mcs([Record("TCAV", "MCS", value=0.3, reference=-0.2)])
    assert (widths(ax, METHOD), widths(ax, MASK)) == ([0.3], [-0.2])
    assert ax.containers[0].errorbar is None


def test_intervals_are_drawn_from_low_to_high(records):
    _, ax = plot_idr(records)
    ends = [segment[:, 0].tolist() for bars in ax.collections for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [[80, 100], [30, 50], [40, 60]])


def test_shares_are_in_percent_and_idr_has_its_chance(records):
    for draw, at_chance in ((plot_idr, True), (plot_iir, False)):
        _, ax = draw(records)
        np.testing.assert_allclose(widths(ax, METHOD), [90, 40])
        assert [text.get_text() for text in ax.texts] == ["90", "40", "50"]
        assert ([50, 50] in [list(line.get_xdata()) for line in ax.lines]) == at_chance


def test_iir_names_its_threshold(records):
    assert "by less than 25%" in plot_iir(records, threshold=0.25)[1].get_xlabel()


def test_perturbation_is_logarithmic_only_where_numbers_are_far_apart(records):
    _, ax = plot_perturbation(records)
    assert ax.get_xscale() == "linear"
    assert ax.get_xlim()[0] == 0
    assert widths(ax, METHOD) == [1.4, 0.9]
    _, ax = plot_perturbation([*records, Record("SmoothGrad", "perturbation", value=40.0)])
    assert ax.get_xscale() == "log"
    assert len(ax.patches) == 0
    assert [40.0] in [list(line.get_xdata()) for line in ax.lines]
    assert "logarithmic" in ax.get_xlabel()


def test_correlation_bars(records):
    _, ax = plot_correlation(records)
    assert widths(ax, METHOD) == [0.4, -0.1]
    assert ax.get_xlim()[0] < -0.2


def test_relative_has_a_panel_a_method_with_curve_and_drop(records):
    fig, axes = plot_relative(records, FAMILY)
    assert axes.shape == (1, 3)
    assert [panel.get_title() for panel in axes.flat] == [
        "Grad-CAM, r = 0.40",
        "guided backpropagation, r = −0.10",
        "random, r = 0.00",
    ]
    curve = axes[0, 0].lines[1]
    assert list(curve.get_xdata()) == [0.1, 0.5, 1.0]
    np.testing.assert_allclose(curve.get_ydata(), [0.36, 0.2, 0.0])
    other = [ax for ax in fig.axes if ax not in axes.ravel()]
    assert len(other) == 3
    for ax in other:
        (drop,) = ax.lines
        np.testing.assert_allclose(drop.get_ydata(), [0.5, 0.2, 0.0])
        assert drop.get_linestyle() == "--"


def test_both_scales_of_relative_have_their_zero_at_one_height(records):
    fig, axes = plot_relative(records, FAMILY)
    heights = {round(-ax.get_ylim()[0] / (ax.get_ylim()[1] - ax.get_ylim()[0]), 6) for ax in fig.axes}
    assert len(heights) == 1
    assert axes[0, 0].get_ylim()[0] < -0.11  # the lowest interval is inside


def test_panels_without_a_method_are_hidden(records):
    more = [Record(f"method {n}", "relative MCS", k=0.5, value=0.1, low=0.0, high=0.2) for n in range(3)]
    _, axes = plot_relative([*records, *more])
    assert axes.shape == (2, 4)
    assert [panel.get_visible() for panel in axes.flat] == [True] * 6 + [False] * 2


def test_relative_refuses_too_few_axes(records):
    with pytest.raises(ValueError, match=r"`ax` to hold 3 axes, one a method, but got 2"):
        plot_relative(records, ax=Figure().subplots(1, 2))


@pytest.mark.parametrize("draw", [plot_mcs, plot_idr, plot_iir, plot_perturbation, plot_correlation])
def test_axes_given_are_used(records, draw):
    figure = Figure()
    ax = figure.add_subplot()
    assert draw(records, ax) == (figure, ax)
    assert ax.has_data()


def test_figures_can_be_drawn_without_intervals_and_with_undefined_numbers(records):
    bare = [Record(r.method, r.metric, r.k, r.value) for r in records]
    bare += [Record("broken", metric) for metric in ("MCS", "IDR", "IIR", "perturbation", "correlation")]
    bare.append(Record("broken", "relative MCS", k=0.5, value=math.nan))
    figures = default_figures(bare, FAMILY)
    assert "not defined" in [text.get_text() for text in figures["idr"].axes[0].texts]
    for figure in figures.values():
        figure.draw_without_rendering()
