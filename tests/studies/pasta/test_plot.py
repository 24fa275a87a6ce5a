import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from fixtures_pasta_report import ALL, made_outcome, made_ratings, made_uses
from quantus_concepts.studies.pasta.plot import (
    default_figures,
    explainer_points,
    panels,
    plot_curves,
    plot_explainers,
    plot_measure,
    plot_votes,
)
from quantus_concepts.studies.pasta.results import CEILING, SCORER, SHUFFLED, Record
from quantus_concepts.studies.pasta.uses_plot import (
    perturbation_sheet,
    plot_faithfulness,
    plot_ranked,
    plot_wins,
    steering_sheet,
    uses_figures,
)
from quantus_concepts.studies.pasta.uses_results import RankedRow, Uses
from quantus_concepts.studies.rating.label_places import extremes, label_points


@pytest.fixture(scope="module")
def ratings():
    return made_ratings(12, 9)


@pytest.fixture(scope="module")
def outcome(ratings):
    return made_outcome(ratings, ("Q1", "Q5"), 3)


def texts(figure):
    """Every text that a figure shows."""
    return " ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


def of(model, *values, question="Q1", measure="SCC"):
    return [Record(model, question, measure, value, 50, seed) for seed, value in enumerate(values)]


def test_bars_are_means_points_are_splits_and_the_ceiling_a_line():
    _, ax = plot_measure(of(SCORER, 0.4, 0.6) + of(SHUFFLED, 0.1, -0.1) + of(CEILING, 0.8, 0.9))
    heights = [bar.get_height() for bar in ax.patches if not math.isnan(bar.get_height())]
    assert heights == pytest.approx([0.5, 0.0])
    assert [offset[1] for offset in ax.collections[0].get_offsets()] == [0.4, 0.6]
    assert ax.lines[0].get_ydata() == pytest.approx([0.85, 0.85])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [CEILING, SCORER, SHUFFLED]
    assert ax.get_ylabel() == "SCC (higher is better)"
    assert "lower is better" in plot_measure(of(SCORER, 1, measure="MSE"), "MSE")[1].get_ylabel()


def test_undefined_numbers_and_no_records_draw_nothing():
    _, ax = plot_measure(of(SCORER, math.nan))
    assert all(math.isnan(bar.get_height()) for bar in ax.patches)
    plot_measure([])[0].draw_without_rendering()


def test_curves_have_a_line_a_split_and_a_point_at_the_epoch_kept(outcome):
    _, ax = plot_curves(outcome.seeds, "Q5")
    assert len(ax.lines) == 3
    training = outcome.seeds[0].training
    best = training.best_epoch["Q5"]
    assert ax.collections[0].get_offsets()[0].tolist() == [best, training.curve[best - 1]["qwk"]["Q5"]]


def test_explainers_stand_at_their_means_over_the_splits_that_never_saw_them(ratings, outcome):
    points = explainer_points(outcome.seeds, ratings, "Q5")
    unseen = {name for result in outcome.seeds for name in result.split.explainers["test"]}
    assert set(points) == unseen
    name = outcome.seeds[0].split.explainers["test"][0]
    votes, scores = [], []
    for result in outcome.seeds:
        rows = ratings.explainer_ids[result.split.test] == name
        votes += result.targets[rows, 1].tolist()
        scores += result.scores[rows, 1].tolist()
    assert points[name][:2] == pytest.approx((np.mean(votes), np.mean(scores)))
    assert points[name][2] == ("concepts" if name.startswith("list") else "map")
    _, ax = plot_explainers(outcome.seeds, ratings, "Q5")
    assert sum(len(each.get_offsets()) for each in ax.collections) == len(points)


def test_an_explainer_without_votes_is_left_out(ratings):
    outcome = made_outcome(ratings, ("Q1",), 1)
    outcome.seeds[0].targets[:] = math.nan
    assert explainer_points(outcome.seeds, ratings, "Q1") == {}
    plot_explainers(outcome.seeds, ratings, "Q1")[0].draw_without_rendering()


def test_only_extremes_are_named_and_names_do_not_overlap():
    rng = np.random.default_rng(0)
    places = rng.normal(0.5, 0.06, (46, 2))
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


def test_votes_by_kind_are_means_over_images(ratings):
    _, ax = plot_votes(ratings)
    joined = ratings.targets()
    maps = ratings.modalities == "map"
    means = [joined[(ratings.image_ids == image) & maps, 0].mean() for image in np.unique(ratings.image_ids)]
    assert ax.patches[0].get_y() == 1
    assert 1 + ax.patches[0].get_height() == pytest.approx(np.mean(means))
    assert [tick.get_text() for tick in ax.get_xticklabels()][4] == "Q5\n(low is good)"
    assert ax.get_ylabel() == "mean vote"


def test_a_question_nobody_was_asked_has_no_bar(ratings):
    some = made_ratings(4, 3)
    some.votes[:, :, 1:] = math.nan
    _, ax = plot_votes(some)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["Q1"]


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (2, (1, 2)), (6, (2, 3)), (4, (2, 3))])
def test_a_panel_for_each_question(count, shape):
    drawn = []
    figure = panels(ALL[:count], lambda question, ax: drawn.append(question))
    assert tuple(drawn) == ALL[:count]
    assert len(figure.axes) == shape[0] * shape[1]
    assert sum(panel.get_visible() for panel in figure.axes) == count


def test_every_figure_of_simulated_raters_says_so():
    ratings = made_ratings(12, 9, simulated=True)
    outcome = made_outcome(ratings, ("Q1", "Q5"), 2)
    figures = default_figures(outcome.seeds, outcome.records, ratings, "mode") | uses_figures(made_uses(), True)
    assert set(figures) == {
        *("scc", "qwk", "mse", "explainers", "curves", "votes"),
        *("wins", "faithfulness", "ranked", "steering", "light", "strong"),
    }
    # Nothing on the strong perturbations is scored.
    silent = {name for name, figure in figures.items() if "simulated" not in " ".join(texts(figure).split())}
    assert silent == {"strong"}


def test_no_figure_of_people_speaks_of_simulation(ratings, outcome):
    figures = default_figures(outcome.seeds, outcome.records, ratings, "mode") | uses_figures(made_uses(), False)
    assert not [name for name, figure in figures.items() if "simulated" in texts(figure)]


def test_nothing_found_draws_nothing(ratings):
    assert set(default_figures([], [], ratings, "mode")) == {"votes"}
    assert uses_figures(Uses(), False) == {}


def test_wins_are_sorted_and_the_rare_ones_joined():
    uses = Uses(mixture_names=tuple("abc"), mixture_wins=(1, 3, 0))
    _, ax = plot_wins(uses)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["b", "a", "c"]
    assert [text.get_text() for text in ax.texts] == ["3 (75 %)", "1 (25 %)", "0"]
    names = tuple(f"e{number}" for number in range(40))
    _, ax = plot_wins(Uses(mixture_names=names, mixture_wins=(2,) * 40))
    assert len(ax.patches) == 16
    assert ax.get_yticklabels()[-1].get_text() == "25 others"
    assert ax.patches[-1].get_width() == 50


def test_the_choice_stands_first_then_the_most_faithful():
    uses = made_uses(n_explainers=3)
    _, ax = plot_faithfulness(uses)
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names[:2] == ["chosen by the score", "average of the explainers"]
    means = {row.name: row.mean for row in uses.faithfulness}
    assert names[2:] == sorted(names[2:], key=lambda name: -means[name])


@pytest.mark.parametrize(("question", "best"), [("Q1", "high"), ("Q5", "low")])
def test_the_best_explanation_follows_the_direction_of_the_question(question, best):
    image = np.zeros((4, 4, 3))
    rows = [
        RankedRow("low", image, ["wing", "beak"], 1.2, 2.0),
        RankedRow("undefined", image, image, math.nan),
        RankedRow("high", image, image, 4.6, math.nan),
    ]
    figure, axes = plot_ranked(rows, question)
    assert axes.shape == (2, 2, 1)
    assert axes[0, 1, 0].get_xlabel().startswith(best)
    assert axes[0, 0, 0].get_ylabel() == f"best\n{question}"
    assert "score 4.60, vote –" in texts(figure)
    assert "wing\nbeak" in texts(figure)
    assert "undefined" not in texts(figure)


def test_a_single_ranked_explanation_and_one_without_its_image():
    figure, _ = plot_ranked([RankedRow("a", None, [f"concept {n}" for n in range(15)], 3.0)])
    assert "no image" in texts(figure)
    assert "and 7 more" in texts(figure)


def test_sheets_of_steering_and_perturbations():
    uses = made_uses()
    sheet = steering_sheet(uses)
    assert sheet.columns == ["λ = 0", "λ = 0.7", "λ = 1"]
    assert sheet.rows[0].values == ["score 3.10", "score 3.60", "score 4.20"]
    sheet = perturbation_sheet(uses.light, "Q5")
    assert len(sheet.rows) == 2
    assert sheet.rows[0].label == "brightness\njitter\n1"
    assert sheet.rows[0].values == ["", "", "Q5: 1.80"]
    assert perturbation_sheet(uses.strong, "Q6").rows[0].values == ["", "", ""]
