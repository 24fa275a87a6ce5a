"""Curves of interventions: an oracle's, one by hand, their controls, and their picture."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import ConceptBank, PostHocCBM
from captum_concepts.models.interventions import Levels
from quantus_concepts import intervention_curve, plot_interventions, score_concepts
from quantus_concepts.functional import interval, simulate_answers
from quantus_concepts.metrics import InterventionAccuracy
from telling_models import Shown, TellingModel, images_showing
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel
from untouched import untouched

#: A code of four bits for each of sixteen classes.
CODES = torch.tensor([[int(bit) for bit in f"{code:04b}"] for code in range(16)])
LABELS = torch.arange(16).repeat(2)
PRESENT = CODES[LABELS]


def decoder() -> TellingModel:
    """A model whose head knows the code: the class whose code is nearest."""
    model = TellingModel(Shown(4), 4, 16)
    model.head = nn.Linear(4, 16)
    with torch.no_grad():
        model.head.weight.copy_(2.0 * CODES - 1)
        model.head.bias.copy_(-CODES.sum(1).float())
    return model.eval()


def curve(values: Tensor, model: Any = None, batch_size: int = 32, **changed: Any) -> pd.DataFrame:
    arrays = images_showing(values), LABELS, PRESENT
    loader = list(zip(*(array.split(batch_size) for array in arrays), strict=True))
    table = intervention_curve(decoder() if model is None else model, loader, **changed)
    return table.set_index(["order", "labels", "count"])


def noisy(strength: float = 0.8) -> Tensor:
    return PRESENT + strength * torch.randn(32, 4, generator=torch.Generator().manual_seed(0))


def test_all_true_labels_give_the_accuracy_of_the_head_and_wrong_ones_none():
    model = decoder()
    values = noisy()
    with untouched(model, values):
        table = curve(values, model)
    before = (model.head(values).argmax(1) == LABELS).float().mean().item()
    assert 0.2 < before < 0.9
    for order in ("random", "uncertainty", "contribution"):
        rows = table.loc[order]
        assert list(rows.loc["true labels"].index) == [0, 1, 2, 4]
        assert rows.loc[("true labels", 0), "value"] == pytest.approx(before)
        assert rows.loc[("wrong labels", 0), "value"] == pytest.approx(before)
        assert rows.loc[("true labels", 4), "value"] == 1
        assert rows.loc[("wrong labels", 4), "value"] == 0
        assert rows.loc["true labels"]["value"].is_monotonic_increasing
    assert (table["n"] == 32).all()
    # Codes on which nothing is wrong are an oracle's: nothing is to be gained, all to be lost.
    oracle = curve(PRESENT.float())["value"].unstack("labels")
    assert (oracle["true labels"] == 1).all()
    assert oracle.loc[("random", 4), "wrong labels"] == 0


def test_intervals_take_the_true_classes_as_clusters():
    """Answers that are those of the class are right or wrong for all its images: repeated draws of classes tell."""
    rng, n_classes, per_class = torch.Generator().manual_seed(0), 5, 6
    labels, covered = torch.arange(n_classes).repeat_interleave(per_class), []
    model = TellingModel(Shown(n_classes), n_classes, n_classes).eval()
    for _ in range(100):
        # For a share of the images of each class people name another class; the shares differ, and are 1/2 on average.
        share = torch.rand(n_classes, generator=rng)[labels]
        misled = torch.rand(len(labels), generator=rng) < share
        present = nn.functional.one_hot((labels + misled) % n_classes, n_classes)
        loader = [(images_showing(torch.zeros(len(labels), n_classes)), labels, present)]
        row = intervention_curve(model, loader, counts=[n_classes], orders=["random"]).iloc[0]
        right = (~misled).float()
        assert row["value"] == pytest.approx(right.mean().item())
        assert (row["low"], row["high"]) == interval(right, clusters=labels)
        covered.append(row["low"] <= 0.5 <= row["high"])
    # Two standard errors of a count of 100 are 4 %. With the images as clusters it is 0.82.
    assert sum(covered) / len(covered) >= 0.95 - 0.04


def test_the_wrong_bit_is_found_by_uncertainty_and_by_contribution():
    # One bit in each image is wrong, and nearest to the boundary; the others are right and certain.
    wrong = torch.arange(32) // 4 % 4
    values = PRESENT.float().scatter(1, wrong[:, None], 0.55 - 0.1 * PRESENT.gather(1, wrong[:, None]))
    table = curve(values)["value"].unstack("order").loc["true labels"]
    assert table.loc[0, "random"] == 0
    assert table.loc[1, "uncertainty"] == 1
    assert table.loc[1, "contribution"] == 1
    # A quarter of 32 images, give or take three standard deviations.
    assert abs(table.loc[1, "random"] - 0.25) < 0.23
    grouped = curve(values, groups=[0, 0, 1, 1])["value"].unstack("order").loc["true labels"]
    assert list(grouped.index) == [0, 1, 2]
    assert grouped.loc[1, "random"] > table.loc[1, "random"]


def test_people_who_err() -> None:
    values = noisy()
    right = curve(values)
    pd.testing.assert_frame_equal(curve(values, error_rate=0.0, abstention_rate=0.0), right)
    # All wrong is the control; no answer leaves the class as it was.
    wrong = curve(values, error_rate=1.0)["value"].unstack("labels")
    assert wrong["true labels"].tolist() == right["value"].unstack("labels")["wrong labels"].tolist()
    silent = curve(values, abstention_rate=1.0)["value"].unstack("labels")
    assert (silent == silent.loc[("random", 0), "true labels"]).all(axis=None)
    # By hand, after all answers: the class of the code that people said.
    table = curve(values, error_rate=0.3, abstention_rate=0.2, counts=[4], orders=["random"], seed=5)
    answers = simulate_answers(PRESENT, 0.3, 0.2, seed=5)
    after = torch.where(answers.isnan(), values, answers)
    expected = (decoder().head(after).argmax(1) == LABELS).float().mean().item()
    assert table["value"].tolist()[0] == pytest.approx(expected)
    pd.testing.assert_frame_equal(
        curve(values, batch_size=5, error_rate=0.3, abstention_rate=0.2, counts=[4], orders=["random"], seed=5), table
    )


def test_half_wrong_answers_are_no_gain() -> None:
    # Each bit of the code is there in half of the classes: answers of a coin say nothing, whatever the model knew.
    tables = [curve(noisy(), error_rate=0.5, seed=seed)["value"].unstack("labels")["true labels"] for seed in range(40)]
    means, before = sum(tables) / len(tables), tables[0].loc[("random", 0)]
    gains = means - before
    assert (gains.drop(0, level="count") < 0).all()
    # After all of them one class of 16 is named by chance: of 1,280 draws, three standard deviations.
    assert (means.xs(4, level="count") - 1 / 16).abs().max() < 0.025
    # A model that knows nothing gains nothing, and loses nothing.
    tables = [curve(torch.full((32, 4), 0.5), error_rate=0.5, orders=["random"], seed=seed) for seed in range(40)]
    means = sum(table["value"] for table in tables) / len(tables)
    assert (means.loc["random", "true labels"] - 1 / 16).abs().max() < 0.025
    # Fewer errors are better.
    last = [curve(noisy(), error_rate=rate, counts=[4])["value"].iloc[0] for rate in (0, 0.1, 0.3, 0.5)]
    assert last == sorted(last, reverse=True)


def test_costs_are_budgets() -> None:
    wrong = torch.arange(32) // 4 % 4
    values = PRESENT.float().scatter(1, wrong[:, None], 0.55 - 0.1 * PRESENT.gather(1, wrong[:, None]))
    table = curve(values, costs=[1, 1, 3, 3], orders=["uncertainty"])["value"].unstack("labels")["true labels"]
    # The wrong bit is asked first; in half of the images it costs 3.
    assert table.loc["uncertainty"].to_dict() == {0: 0, 1: 0.5, 2: 0.5, 4: 1, 8: 1}
    pd.testing.assert_frame_equal(curve(values, costs=[1, 1, 1, 1]), curve(values))
    grouped = curve(values, groups=[0, 0, 1, 1], costs=[2, 3], counts=[1, 2, 3, 5], orders=["uncertainty"])
    assert grouped["value"].unstack("labels")["true labels"].tolist() == [0, 0.5, 1, 1]
    with pytest.raises(ValueError, match="`counts` to lie in"):
        curve(values, costs=[1, 1, 1, 1], counts=[5])
    with pytest.raises(ValueError, match="`costs` to have shape"):
        curve(values, costs=[1, 1])
    with pytest.raises(ValueError, match="`error_rate` to lie in"):
        curve(values, error_rate=2)
    with pytest.raises(ValueError, match="`abstention_rate` to lie in"):
        curve(values, abstention_rate=2)


def test_batches_and_the_scorer_give_the_same():
    values = noisy()
    table = curve(values, counts=(1, 4))
    pd.testing.assert_frame_equal(curve(values, batch_size=5, counts=(1, 4)), table)
    loader = [(images_showing(values), LABELS, PRESENT)]
    rows = score_concepts(decoder(), loader, InterventionAccuracy([1, 4]), controls=[decoder()])
    rows = rows[rows["metric"] == "accuracy after interventions"]
    assert set(rows["model"]) == {"model"}
    answers = rows["baseline"].where(rows["baseline"] != "", "true labels")
    rows = rows.set_index([rows["explanation"], answers, rows["l"]])["value"]
    assert rows.tolist() == table["value"].tolist()
    assert list(rows.index) == list(table.index)


def test_controls_with_levels_are_intervened_on():
    loader = [(images_showing(noisy()), LABELS, PRESENT)]
    controls = {"nothing": [decoder(), decoder()]}
    # The second takes what is there for absent.
    levels = [Levels(torch.zeros(4), torch.ones(4)), Levels(torch.full((4,), 0.4), torch.full((4,), 0.4))]
    metric = InterventionAccuracy([0, 4], levels={"nothing": levels})
    rows = score_concepts({"model": decoder()}, loader, metric, controls=controls)
    rows = rows[rows["metric"] == "accuracy after interventions"]
    control = rows[rows["model"] == "nothing"]
    assert control["explanation"].tolist() == ["random"] * 2
    assert control["baseline"].tolist() == [""] * 2
    before = rows[(rows["model"] == "model") & (rows["l"] == 0)]["value"].iloc[0]
    # Right answers make one an oracle; of equal values the head says class 0, which 2 of 32 images are of.
    assert control["value"].tolist() == pytest.approx([before, (1 + 2 / 32) / 2])
    assert control["n"].tolist() == [2, 2]
    metric = InterventionAccuracy([0, 4], levels={"nothing": levels[:1]})
    with pytest.raises(ValueError, match="`levels` to hold a list of levels for 'nothing', one for each of its models"):
        score_concepts({"model": decoder()}, loader, metric, controls=controls)


def test_levels_are_those_of_the_model():
    images, labels = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2
    head = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
    cbm = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)[:2]), head).eval()
    present = nn.functional.one_hot(labels, 2)
    loader = [(images, labels, present)]
    with pytest.raises(ValueError, match="`levels` to give the values"):
        intervention_curve(cbm, loader)
    levels = Levels(torch.tensor([-5.0, -5.0]), torch.tensor([5.0, 5.0]))
    table = intervention_curve(cbm, loader, counts=[1], orders=["random"], levels=levels)
    # One bit of two set to 5 or -5 decides, for values are between 0 and 1.
    assert table["value"].tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"accuracy after interventions needs `concept_labels`"):
        intervention_curve(cbm, [(images, labels)], levels=levels)


def test_picture():
    loader = [(torch.rand(8, 3, 6, 6), torch.arange(8) % N_CLASSES, torch.ones(8, N_CONCEPTS))]
    models = {"first $": SharingConceptModel(), "second": SharingConceptModel(1)}
    table = intervention_curve(models, loader, orders=["random", "uncertainty"])
    rows = table[(table["model"] == "second") & (table["order"] == "random") & (table["labels"] == "true labels")]
    _, axes = plot_interventions(table, control=rows.assign(model="nothing", value=0.5, low=0.4, high=0.6))
    assert [panel.get_title() for panel in axes] == ["first $", "second"]
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes[1].get_lines()}
    assert lines["random"] == (100 * rows["value"]).tolist()
    assert {"uncertainty", "random, wrong labels", "uncertainty, wrong labels"} < set(lines)
    assert axes[0].get_lines()[0].get_ydata().tolist() == [50] * len(rows)
    assert "95 % of nothing" in [text.get_text() for text in axes[1].get_legend().get_texts()]
