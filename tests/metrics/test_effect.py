"""Importance by effect, the level that it is counted from, and the law of the three gauges."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM
from captum_concepts.models import effects
from captum_concepts.models.residual import fit_residual
from quantus_concepts import CEM, CGIM, CLM, UsualMetrics, predict_concepts, score_concepts
from quantus_concepts.functional import random_banks
from quantus_concepts.results.verdicts import no_baseline
from reference.evaluation import effect as reference_effect
from tiny_models import SharingConceptModel, two_concepts

K, L, D = 3, 4, 6


class Product(nn.Module):
    """A head that is not linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(L, 8), nn.Linear(8, K)

    def forward(self, values: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(values)) * self.first(values))


class Hidden(nn.Module):
    """A linear head of a form that is not known as one."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, values: Tensor) -> Tensor:
        return self.linear(values)


def effects_of(model: Any, values: Tensor, classes: Tensor) -> Tensor:
    """Return the effects (n, L) of concept values for classes."""
    return effects.concept_effects(model.head, values, classes, effects.effect_level(model)[0]).detach()


def test_by_hand() -> None:
    model = two_concepts()
    # Centred rows are (.5, -1.5) and (-.5, 1.5). The second concept is absent at 1, and has the value 1 or 3.
    values, labels = torch.tensor([[1.0, 1.0], [1.0, 3.0]]), [[1, 0], [0, 1]]
    model.absent_values = torch.tensor([0.0, 1.0])
    found = effects_of(model, values, torch.tensor([0, 1]))
    assert found.tolist() == [[0.5, 0.0], [-0.5, 3.0]]
    assert CEM(labels)(model, values.numpy(), np.array([0, 1])) == [1, 1]
    # At -1 the second concept says more for the first class than the first one, by being absent: it is not named.
    away = torch.tensor([[1.0, -1.0]])
    for k, effect, named in ((0, [[0.5, 3.0]], [[0.5, -3.0]]), (1, [[-0.5, -3.0]], [[-0.5, -3.0]])):
        assert effects_of(model, away, torch.tensor([k])).tolist() == effect
        assert effects.named_effects(torch.tensor(effect), away, model.absent_values).tolist() == named
    rows = predict_concepts(model, [(away, torch.tensor([0]))])
    assert rows.importance("effect").tolist() == [[0.5, 3.0]]
    assert rows.naming("effect").tolist() == [[0.5, -3.0]]
    assert rows.ranked("effect", 2)[0].tolist() == [[0, 1]]


def test_linear_shap_where_only_the_training_mean_is_known_and_zero_of_probabilities() -> None:
    model = two_concepts()
    model.mean_values = torch.tensor([1.0, 2.0])
    values, classes = torch.tensor([[1.0, 1.0], [1.0, 3.0]]), torch.tensor([0, 1])
    found = effects_of(model, values, classes)
    assert found.tolist() == [[0.0, 1.5], [0.0, 1.5]]
    assert effects.effect_level(model)[1] == effects.TRAINING_MEAN
    model.concept_layer.activation = torch.sigmoid
    # A probability has its own level.
    found = effects_of(model, values, classes)
    assert found.tolist() == [[0.5, -1.5], [-0.5, 4.5]]
    assert effects.effect_level(model)[1] == effects.ABSENT_LEVEL


@pytest.mark.parametrize("together", [1, 2**24])
def test_a_head_of_any_form_agrees_with_the_reference(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_AT_ONCE", together)
    torch.manual_seed(0)
    model = (
        BottleneckCBM(nn.Identity(), nn.Linear(D, L), Product(), pool=lambda rows: rows, activation=None)
        .double()
        .eval()
    )
    model.absent_values = torch.randn(L).double()
    values, classes = torch.randn(7, L).double(), torch.arange(7) % K

    def run(u: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model.head(torch.tensor(u)).numpy()

    found = effects_of(model, values, classes).numpy()
    level = model.absent_values.numpy()
    expected = [reference_effect(u, level, k, run) for u, k in zip(values.numpy(), classes.tolist(), strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # Samples together or one by one.
    alone = [effects_of(model, values[[i]], classes[[i]])[0] for i in range(7)]
    np.testing.assert_allclose(found, torch.stack(alone), atol=1e-12)
    # The finite difference of a linear head is the formula.
    linear = nn.Linear(L, K).double()
    both = [effects_of(model.with_head(head), values, classes).detach()
            for head in (linear, Hidden(linear))]  # fmt: skip
    np.testing.assert_allclose(*both, atol=1e-12)


def world(n: int, seed: int, noise: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return embeddings (n, D), classes and concept labels (n, L); concepts move the embedding."""
    generator = torch.Generator().manual_seed(seed)
    fixed = torch.Generator().manual_seed(0)
    table = torch.rand(K, L, generator=fixed).round() * 0.8 + 0.1
    directions = torch.linalg.qr(torch.randn(D, D, generator=fixed))[0][:L] * 4
    labels = torch.arange(n) % K
    concepts = (torch.rand(n, L, generator=generator) < table[labels]).int()
    return concepts.float() @ directions + noise * torch.randn(n, D, generator=generator), labels, concepts


@pytest.mark.parametrize("values", ["margin", "raw"])
def test_a_fitted_model_knows_the_levels_of_its_values_and_of_its_random_banks(values: str, tmp_path: Path) -> None:
    rows, labels, concepts = world(200, 1)
    loader = [(rows, labels, concepts)]
    fit: dict[str, Any] = {"n_pos": 10, "n_neg": 10, "random_banks": 2, "values": values}
    model = PostHocCBM.fit(nn.Identity(), loader, pool=lambda out: out, **fit).eval()
    with torch.no_grad():
        models = [model, *model.random_models()]
        for each in models:
            own = each.concept_predictor(rows)
            expected = torch.stack([own[concepts[:, j] == 0, j].mean() for j in range(L)])
            torch.testing.assert_close(each.absent_values, expected, atol=1e-5, rtol=0)
        for each in models[1:]:
            torch.testing.assert_close(each.mean_values, each.concept_predictor(rows).mean(0), atol=1e-4, rtol=0)
    model.save(tmp_path / "model.safetensors")
    loaded = PostHocCBM.load(tmp_path / "model.safetensors", nn.Identity(), pool=lambda out: out, strict=False)
    assert torch.equal(loaded.absent_values, model.absent_values)
    assert loaded.mean_values is None
    for mine, theirs in zip(loaded.random_models(), models[1:], strict=True):
        assert torch.equal(mine.absent_values, theirs.absent_values)
    # Copies, other devices and types, and what is built on the model keep it; its state dict is as it was.
    assert copy.deepcopy(model).double().absent_values.dtype == torch.float64
    assert torch.equal(fit_residual(model, loader).absent_values, model.absent_values)
    assert torch.equal(model.with_head(nn.Linear(L, K)).absent_values, model.absent_values)
    assert not [key for key in model.state_dict() if "_values" in key]
    # The concepts of a bank of the user's need not be those of the labels.
    given = PostHocCBM.fit(nn.Identity(), loader, bank=model.bank, pool=lambda out: out, values=values, random_banks=1)
    assert given.absent_values is None
    torch.testing.assert_close(given.mean_values, given.concept_predictor(rows).mean(0).detach())
    given.save(tmp_path / "given.safetensors")
    loaded = PostHocCBM.load(tmp_path / "given.safetensors", nn.Identity(), pool=lambda out: out, strict=False)
    assert torch.equal(loaded.mean_values, given.mean_values)
    (control,) = loaded.random_models()
    assert control.absent_values is None
    assert effects.effect_level(control)[1] == effects.TRAINING_MEAN


def test_labels_of_random_banks_have_a_row_for_each_image() -> None:
    rows, labels, concepts = world(60, 1)
    with pytest.raises(ValueError, match=r"`concept_labels` to have shape \(N, L\) = \(60, 4\) but got \(59, 4\)"):
        random_banks(rows, labels, L, concept_labels=concepts[1:])


def test_random_banks_beside_a_model_of_probabilities() -> None:
    rows, labels, concepts = world(120, 2)
    model = BottleneckCBM(nn.Identity(), nn.Linear(D, L), nn.Linear(L, K), pool=lambda out: out).eval()
    table = score_concepts(
        model, [(rows, labels, concepts)], [CEM()], controls=random_banks(rows, labels, L, n_banks=3)
    )
    own = table[(table["metric"] == "CEM") & (table["baseline"] == "")].set_index("model")
    assert own["convention"].to_dict() == {"model": "absent level", "control": "training mean"}
    assert own["value"].notna().all()


def test_tables_name_what_an_importance_is_counted_from() -> None:
    rows, labels, concepts = world(60, 2)
    bank, head = ConceptBank(torch.eye(L, D)), nn.Linear(L, K)
    parts = {"features": nn.Identity(), "pool": lambda out: out}
    models = {
        "zero at the margin": PostHocCBM(bank=bank, head=head, **parts),
        "zero of the raw value": PostHocCBM(bank=bank, head=head, values="raw", **parts),
        "probability": BottleneckCBM(concept_layer=nn.Linear(D, L), head=head, **parts),
        "zero of the logit": BottleneckCBM(concept_layer=nn.Linear(D, L), head=head, activation=None, **parts),
        "zero of the activation": BottleneckCBM(
            concept_layer=nn.Linear(D, L), head=head, activation=torch.tanh, **parts
        ),
    }
    models["zero of the raw value"].mean_values = torch.zeros(L)
    levels = {"zero of the raw value": "training mean", "probability": "absent level"}
    table = score_concepts(models, [(rows, labels, concepts)], UsualMetrics(top_l=[1]))
    for name, model_rows in table[table["metric"] == "CEM"].groupby("model"):
        found = model_rows.set_index("explanation")["convention"].groupby(level=0).first().to_dict()
        expected = dict.fromkeys(("weight", "value", "contribution"), name) | {"": ""}
        assert found == expected | ({"effect": levels[name]} if name in levels else {})


class TestUnknownLevel:
    """A model of which nothing is known."""

    BATCH = (torch.rand(6, 3, 12, 12, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2,
             torch.eye(5, dtype=torch.int)[torch.arange(6) % 5])  # fmt: skip

    def model(self) -> SharingConceptModel:
        model = SharingConceptModel()
        model.absent_values = None
        return model

    def test_metrics_and_effects_asked_for_by_name_raise(self) -> None:
        images, labels, concepts = self.BATCH
        points, parts = np.ones((6, 1, 2)), [0] * 5
        metrics = (CEM(concepts), CGIM(torch.full((4, 5), 0.5)), CLM(points=points, part_of_concept=parts))
        for metric in metrics:
            with pytest.raises(ValueError, match=r"Set `model.absent_values` \(L,\).*importance='contribution'"):
                metric(self.model(), images.numpy(), labels.numpy())
        for metric in (CEM(), UsualMetrics(explanations=["effect"])):
            with pytest.raises(ValueError, match=r"Set `model.absent_values`"):
                score_concepts(self.model(), [self.BATCH], [metric])

    def test_usual_rows_by_effect_are_left_out(self) -> None:
        truth = {"points": torch.ones(6, 1, 2), "part_of_concept": [0] * 5}
        table = score_concepts(self.model(), [self.BATCH], truth=truth)
        assert "effect" not in {*table["explanation"]}
        # Baselines then look for the concepts of the contribution, as its rows.
        baselines = table[(table["metric"] == "CLM") & (table["baseline"] != "")]
        assert {*baselines["explanation"]} == {"contribution"}
        assert {*table["convention"]} == {""}

    def test_a_level_of_a_wrong_length(self) -> None:
        model = self.model()
        model.absent_values = torch.zeros(3)
        with pytest.raises(ValueError, match=r"`absent_values of the model` to have shape \(L,\) = \(5,\)"):
            score_concepts(model, [self.BATCH], [CEM()])


# The law of the three changes that leave every prediction alone: a constant added to a concept's values and taken off
# the head's bias ("zero"), one vector added to all rows of the head ("rows"), values times a factor ("factor").

#: Rows that may carry a verdict: they stay under all three changes. (metric, explanation, item_kind)
#: Whoever gives a verdict to another row adds it here.
CARRY_A_VERDICT = {
    ("accuracy", "", ""),
    ("concept AUC", "", "concept"),
    ("concept AUC within predicted classes", "", "concept"),
    ("CEM", "effect", ""),
    ("CEM gain", "effect", ""),
    ("CLM", "effect", ""),
    ("part specificity", "effect", ""),
    ("CGIM", "effect", "concept"),
    ("CGIM", "effect", "class"),
    ("CGIM correlation", "effect", "concept"),
    ("CGIM correlation", "effect", "class"),
    ("CGIM correlation", "value", "concept"),
}
#: Rows that may move, and under which change: the table of docs/metrics/index.md. They carry no verdict.
MOVE = {
    ("negative first", "contribution", ""): {"zero", "rows"},
    **{(name, "weight", ""): {"rows", "factor"} for name in ("CEM", "CEM gain", "CLM", "part specificity")},
    **{(name, "value", ""): {"zero", "factor"} for name in ("CEM", "CEM gain", "CLM", "part specificity")},
    **{(name, "contribution", ""): {"zero", "rows"} for name in ("CEM", "CEM gain", "CLM", "part specificity")},
    ("CGIM", "weight", "concept"): {"rows"},
    ("CGIM", "value", "concept"): {"zero"},
    ("CGIM", "contribution", "concept"): {"zero", "rows"},
    ("CGIM", "weight", "class"): {"rows", "factor"},
    ("CGIM", "value", "class"): {"zero", "factor"},
    ("CGIM", "contribution", "class"): {"zero", "rows"},
    ("CGIM correlation", "contribution", "concept"): {"zero", "rows"},
    ("CGIM correlation", "weight", "class"): {"rows", "factor"},
    ("CGIM correlation", "value", "class"): {"zero", "factor"},
    ("CGIM correlation", "contribution", "class"): {"zero", "rows"},
}
GAUGES = ("zero", "rows", "factor")


def changed(model: BottleneckCBM, gauge: str) -> BottleneckCBM:
    """Return a model of the same predictions, whose values or head are written in another way."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(1)
    layer, head = other.concept_layer.layer, other.head
    with torch.no_grad():
        if gauge == "zero":
            shift = 2 * torch.randn(L, generator=generator).double()
            layer.bias += shift
            head.bias -= head.weight @ shift
            other.absent_values += shift
        elif gauge == "rows":
            head.weight += torch.tensor([-9.0, 4.0, -6.0, 5.0])
            head.bias += 0.7
        else:
            factor = torch.tensor([5.0, 0.2, 0.5, 3.0]).double()
            layer.weight *= factor[:, None]
            layer.bias *= factor
            head.weight /= factor
            other.absent_values *= factor
    return other


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """The table of a trained model, and of the same predictions in three other forms."""
    rows, labels, concepts = world(120, 5)
    generator = torch.Generator().manual_seed(2)
    places = torch.rand(120, 3, 2, generator=generator) * 5
    # Maps whose mean is the embedding.
    maps = torch.randn(120, D, 6, 6, generator=generator)
    images = (rows[:, :, None, None] + maps - maps.mean((2, 3), keepdim=True)).double()
    layer, head = nn.Linear(D, L), nn.Linear(L, K)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        for part in (layer, head):
            part.reset_parameters()
    fitted = PostHocCBM.fit(nn.Identity(), [(rows, labels, concepts)], n_pos=10, n_neg=10, pool=lambda out: out)
    with torch.no_grad():
        norms = fitted.bank.cavs.norm(dim=1)
        layer.weight.copy_(fitted.bank.cavs / norms[:, None])
        layer.bias.copy_(fitted.bank.intercepts / norms)
        # All weights positive: a factor then changes which is the largest.
        head.weight.copy_(fitted.head.weight + 3)
        head.bias.copy_(fitted.head.bias)
    model = BottleneckCBM(nn.Identity(), layer, head, activation=None).double().eval()
    model.absent_values = fitted.absent_values.double()
    truth = {"points": places, "part_of_concept": [0, 1, 2, -1]}
    shares = torch.stack([concepts[labels == k].double().mean(0) for k in range(K)])

    def table(own: BottleneckCBM) -> pd.DataFrame:
        with torch.no_grad():
            assert torch.equal(own(images).argmax(1), model(images).argmax(1))
        usual = UsualMetrics(top_l=[1, 2], alphas=[3])
        return score_concepts(own, [(images, labels, concepts)], [usual], class_concepts=shares, truth=truth)

    return {gauge: table(changed(model, gauge) if gauge else model) for gauge in ("", *GAUGES)}


@pytest.mark.parametrize("gauge", GAUGES)
def test_what_carries_a_verdict_stays_where_predictions_stay(tables: dict[str, pd.DataFrame], gauge: str) -> None:
    first, second = tables[""], tables[gauge]
    moved = (first["value"] - second["value"]).abs() > 1e-5
    assert second["value"].isna().equals(first["value"].isna())
    own = first[first["baseline"] == ""]
    keys = pd.Series([*zip(own["metric"], own["explanation"], own["item_kind"], strict=True)], index=own.index)
    assert {*keys} >= CARRY_A_VERDICT
    assert not {*keys[moved]} & CARRY_A_VERDICT
    # The rule gives a verdict to no other row.
    judged = [not no_baseline(row) for row in own.to_dict("records")]
    assert {*keys[judged]} <= CARRY_A_VERDICT
    # What moves is what the page says, and all of it does here.
    assert {*keys[moved]} == {key for key, gauges in MOVE.items() if gauge in gauges}
