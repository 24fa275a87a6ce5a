import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from quantus_concepts.studies.concepts.plot import (
    default_figures,
    plot_cem,
    plot_cgim_histograms,
    plot_clm,
    plot_ranked_items,
    ranked_items,
)
from quantus_concepts.studies.concepts.results import Record, baseline_name, item_records

POST_HOC, TRADITIONAL = "post-hoc CBM", "traditional CBM"


RANDOM = "random directions"


@pytest.fixture
def records():
    found = []
    for explanation in ("weight", "value", "contribution"):
        fields = {"explanation": explanation, "l": 1, "low": 0.1, "high": 0.35, "value": 0.25}
        found.append(Record(RANDOM, "CEM", set="correct", **fields))
        found += [Record(RANDOM, "CLM", alpha=alpha, **fields) for alpha in (1.0, 3.0, 6.0)]
        for kind in ("concept", "class"):
            fields = {"explanation": explanation, "item_kind": kind, "low": 0.1, "high": 0.35, "value": 0.25}
            found += [Record(RANDOM, "CGIM", item=name, **fields) for name in ("", f"{kind} 8", f"{kind} 0")]
    for model, value in ((POST_HOC, 0.4), (TRADITIONAL, 0.7)):
        for explanation in ("weight", "value", "contribution"):
            fields = {
                "explanation": explanation,
                "l": 1,
                "low": value - 0.1,
                "high": value + 0.1,
                "value": value,
            }
            found.append(Record(model, "CEM", set="correct", chance=0.25, **fields))
            for alpha in (1.0, 3.0, 6.0):
                found.append(Record(model, "CLM", alpha=alpha, chance=alpha / 12, **fields))
            for kind in ("concept", "class"):
                scores = np.linspace(-0.4, value, 9).tolist()
                names = [f"{kind} {index}" for index in range(9)]
                found += item_records(scores, names, model=model, item_kind=kind, explanation=explanation)
    for alpha in (1.0, 3.0, 6.0):
        name = baseline_name("centred Gaussian")
        found.append(Record(name, "CLM", "contribution", alpha=alpha, l=1, value=0.5, low=0.45, high=0.55))
    return found


def test_nothing_is_shown_and_no_global_state_is_touched(records):
    before = plt.get_fignums(), dict(plt.rcParams)
    figures = default_figures(records)
    assert list(figures) == ["cem", "clm", "cgim_histograms", "concepts", "classes"]
    assert all(isinstance(figure, Figure) for figure in figures.values())
    assert (plt.get_fignums(), dict(plt.rcParams)) == before


def test_figures_of_nothing_are_none():
    assert default_figures([]) == {}


def test_cem_bars_have_the_height_of_the_numbers(records):
    _, ax = plot_cem(records)
    heights = [round(bar.get_height(), 6) for bar in ax.patches]
    assert heights == [40.0] * 3 + [70.0] * 3
    lines = [line.get_ydata().tolist() for line in ax.lines if line.get_color() == "#333333"]
    # The mean of the random banks and their 97.5 %, over each group of bars; no bar is theirs.
    assert lines.count([25.0, 25.0]) == 3
    assert lines.count([35.0, 35.0]) == 3
    assert "% of correctly classified images" in ax.get_ylabel()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[:2] == [POST_HOC, TRADITIONAL]
    assert "95 % of random banks" in labels[2]
    assert "of its class" in plot_cem(records, by_class=True)[1].get_ylabel()


def test_clm_lines_hold_the_numbers_and_chance_is_the_diagonal(records):
    _, ax = plot_clm(records)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    expected = {POST_HOC, TRADITIONAL, "baseline: centred Gaussian", "chance, a point anywhere"}
    expected |= {"95 % of random banks", "their mean"}
    assert set(labels) == expected
    drawn = {container.get_label(): container.lines[0] for container in ax.containers}
    np.testing.assert_allclose(drawn[POST_HOC].get_ydata().astype(float), [40, 40, 40])
    np.testing.assert_allclose(drawn[TRADITIONAL].get_xdata().astype(float), [100 / 12, 25, 50], atol=1)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["8 %\nα = 1", "25 %\nα = 3", "50 %\nα = 6"]


def test_histograms_count_every_item_once(records):
    fig, axes = plot_cgim_histograms(records, models=[POST_HOC])
    assert axes.shape == (3, 2)
    for panel in axes.flat:
        *bars, band = sorted(panel.patches, key=lambda patch: patch.get_width())
        assert sum(bar.get_height() for bar in bars) == 9
        assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((0.1, 0.35))
    assert axes[0, 0].get_ylabel() == "number of classes"
    assert axes[2, 1].get_title() == "CGIM₃ of concepts, by contribution θ·u"
    assert len(fig.legends) == 1


def test_histograms_leave_nan_out():
    found = item_records([0.5, math.nan], ["a", "b"], model=POST_HOC, item_kind="class", explanation="weight")
    _, axes = plot_cgim_histograms(found)
    assert sum(bar.get_height() for bar in axes[0, 0].patches) == 1


def test_histograms_refuse_axes_of_another_shape(records):
    with pytest.raises(ValueError, match=r"`ax` to have shape \(3, 2\) but got \(2, 2\)"):
        plot_cgim_histograms(records, Figure().subplots(2, 2))


@pytest.mark.parametrize("draw", [plot_cem, plot_clm, plot_ranked_items])
def test_axes_given_are_used(records, draw):
    figure = Figure()
    ax = figure.add_subplot()
    assert draw(records, ax) == (figure, ax)
    assert ax.has_data()


def test_ranked_items_are_best_and_worst_in_descending_order(records):
    best, worst = ranked_items(records, count=2)
    assert [record.item for record in best] == ["concept 8", "concept 7"]
    assert [record.item for record in worst] == ["concept 1", "concept 0"]
    everything, rest = ranked_items(records, count=5)
    assert (len(everything), rest) == (9, [])


def test_ranked_bars_name_the_items(records):
    _, ax = plot_ranked_items(records, item_kind="class", count=1, model=TRADITIONAL)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["class 8", "class 0"]
    assert [round(float(line.get_xdata()[0]), 6) for line in ax.lines if line.get_marker() == "o"] == [0.7, -0.4]
    bands = [collection.get_paths()[0].get_extents().intervalx for collection in ax.collections]
    np.testing.assert_allclose(bands, [[0.1, 0.35]] * 2)


def test_figures_can_be_drawn_without_intervals(records):
    bare = [
        Record(r.model, r.metric, r.explanation, r.set, r.l, r.alpha, r.item_kind, r.item, r.value) for r in records
    ]
    for figure in default_figures(bare).values():
        figure.draw_without_rendering()
