"""The picture of a metric's scores: what is drawn, and that nothing is left open."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from quantus_concepts import CEM

LABELS = np.array([[1, 0, 1], [0, 0, 1], [0, 1, 1]])
VALUES = np.array([[3.0, 2, 1], [3, 1, 2], [np.nan, 0, 1]])


@pytest.fixture
def metric() -> CEM:
    metric = CEM(LABELS, disable_warnings=True)
    metric(None, np.ones((3, 3)), np.zeros(3, int), VALUES)
    return metric


def test_mean_chance_and_what_is_undefined(metric: CEM, tmp_path: Path) -> None:
    aggregating = CEM(LABELS, return_aggregate=True, disable_warnings=True)
    assert aggregating(None, np.ones((3, 3)), np.zeros(3, int), VALUES) == [0.5]
    for each in (metric, aggregating):
        # A $ in a name begins no formula.
        each.name = r"$a_1$ and $\frac$"
        figure, ax = each.plot_scores()
        figure.savefig(tmp_path / "a.png")
        assert ax.get_legend_handles_labels()[1] == ["mean 0.500", "chance 0.500"]
        assert [line.get_xdata()[0] for line in ax.lines] == [0.5, 0.5]
        assert ax.get_title() == r"$a_1$ and $\frac$: 2 defined, 1 undefined"
    for scores, shown in (([0.0, 1.0], ["mean 0.500"]), ([np.nan], [])):
        _, ax = metric.plot_scores(scores)
        assert ax.get_legend_handles_labels()[1] == shown
    plt.close("all")


def test_figures_are_closed_unless_shown(metric: CEM, tmp_path: Path) -> None:
    plt.figure()
    kept = plt.get_fignums()
    metric.plot(show=False, path_to_save=str(tmp_path / "a.png"))
    metric.plot(show=False)
    with pytest.raises(RuntimeError, match="no drawing"):
        metric.plot(plot_func=raising, show=False)
    assert plt.get_fignums() == kept
    metric.plot(show=True)
    assert len(plt.get_fignums()) == len(kept) + 1
    plt.close("all")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def raising() -> None:
    plt.figure()
    raise RuntimeError("no drawing")
