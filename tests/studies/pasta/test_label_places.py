import numpy as np
from matplotlib.figure import Figure

from quantus_concepts.studies.pasta.charts import extremes, label_points


def test_only_extremes_are_named_and_names_do_not_overlap():
    places = np.random.default_rng(0).normal(0.5, 0.06, (46, 2))
    ax = Figure(figsize=(3, 3)).add_subplot()
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    written = label_points(ax, [f"explainer {number}" for number in range(46)], places)
    assert 2 <= len(written) <= 6
    assert len(ax.texts) == len(written)
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    window = ax.get_window_extent()
    assert all(window.x0 <= box.x0 and box.x1 <= window.x1 for box in boxes)


def test_extremes_are_the_furthest_from_the_diagonal_and_the_ends():
    places = np.array([[1.0, 1.0], [2, 3.5], [3, 1.5], [4, 4], [2.5, 2.5]])
    assert extremes(places) == [1, 2, 0, 3]
    assert extremes(places[:0]) == []
