"""The picture of a metric's scores: what is drawn, and that nothing is left open."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from quantus_concepts import CEM, CGIM, IIR

LABELS = np.array([[1, 0, 1], [0, 0, 1], [0, 1, 1]])
VALUES = np.array([[3.0, 2, 1], [3, 1, 2], [np.nan, 0, 1]])


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture
def metric():
    metric = CEM(LABELS, disable_warnings=True)
    metric(None, np.ones((3, 3)), np.zeros(3, int), VALUES)
    return metric


def test_mean_chance_and_what_is_undefined(metric, tmp_path):
    aggregating = CEM(LABELS, return_aggregate=True, disable_warnings=True)
    assert aggregating(None, np.ones((3, 3)), np.zeros(3, int), VALUES) == [0.5]
    for drawing in (metric, aggregating):
        # A $ in a name begins no formula.
        drawing.name = r"$a_1$ and $\frac$"
        figure, ax = drawing.plot_scores()
        figure.savefig(tmp_path / "a.png", dpi=30)
        assert ax.get_legend_handles_labels()[1] == ["mean 0.500", "chance 0.500"]
        assert [line.get_xdata()[0] for line in ax.lines] == [0.5, 0.5]
        assert ax.get_title() == r"$a_1$ and $\frac$: 2 defined, 1 undefined"


def test_control_direction_and_bars(metric):
    _, ax = metric.plot_scores(control=np.linspace(0, 0.4, 39))
    assert ax.get_legend_handles_labels()[1] == ["mean 0.500", "chance 0.500", "control 0.200", "95 % of controls"]
    (band,) = (patch for patch in ax.patches if patch.get_alpha() == 0.15)
    # A rectangle since version 3.9 of matplotlib, a polygon before.
    corners = band.get_path().transformed(band.get_patch_transform()).get_extents()
    assert (corners.x0, corners.x1) == pytest.approx((0, 0.4))
    assert ax.get_xlabel() == "score (higher is better)"
    assert IIR(average=True).plot_scores([0.5])[1].get_xlabel() == "score (lower is better)"
    _, ax = metric.plot_scores([0.0, 1.0, 1.0, np.nan])
    assert [(round(bar.get_center()[0], 6), bar.get_height()) for bar in ax.patches] == [(0, 1), (1, 2)]
    _, ax = metric.plot_scores(np.linspace(0.2, 0.4, 50))
    assert sum(bar.get_height() for bar in ax.patches) == 50


def test_concepts_are_named_and_sorted():
    metric = CGIM(np.eye(3), disable_warnings=True)
    _, ax = metric.plot_scores([0.1, np.nan, 0.7], names=["has_$bill$::long", "wing", "t" * 99])
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"{'t' * 19}...{'t' * 18}", "$bill$: long"]
    assert [bar.get_width() for bar in ax.patches] == [0.7, 0.1]
    _, ax = metric.plot_scores(np.arange(100.0))
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert [labels[0], *labels[14:17], labels[-1]] == ["99", "85", "... 70 between", "14", "0"]
    with pytest.raises(ValueError, match="a name for each of 3 scores but got 2"):
        metric.plot_scores([0.1, 0.2, 0.3], names=["a", "b"])


def test_nothing_defined_says_why():
    metric = CEM(LABELS, disable_warnings=True)
    metric(None, np.ones((3, 3)), np.zeros(3, int), VALUES * np.nan)
    _, ax = metric.plot_scores()
    (explanation,) = (text.get_text() for text in ax.texts)
    assert "no score is defined" in explanation
    assert "NaN or infinity" in explanation.replace("\n", " ")


def test_figures_are_closed_unless_shown(metric, tmp_path):
    plt.figure()
    open_figures = plt.get_fignums()
    metric.plot(show=False, path_to_save=str(tmp_path / "a.png"))
    assert plt.get_fignums() == open_figures
    metric.plot(show=True)
    assert len(plt.get_fignums()) == len(open_figures) + 1
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
