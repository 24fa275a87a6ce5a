"""Leakage, sparse heads and completeness as rows of `score_concepts`: the numbers of the formulas, and controls."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from captum_concepts import ConceptBank, PostHocCBM
from quantus_concepts import compare, score_concepts
from quantus_concepts.functional import (
    ceiling_noise_equivalent,
    completeness,
    concept_set_ceiling,
    concept_task_leakage,
    interconcept_leakage,
    interval,
    noise_equivalent,
    sparse_head_path,
)
from quantus_concepts.functional.bottleneck.leakage import commonest_classes
from quantus_concepts.functional.bottleneck.wrong_labels import unique_share
from quantus_concepts.metrics import (
    Completeness,
    ConceptSetCeiling,
    ConceptTaskLeakage,
    InterconceptLeakage,
    SparseHeadAccuracy,
    plot_sparse_heads,
)
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import commonest
from refusals import refusals

N, N_CONCEPTS, N_CLASSES = 240, 6, 4
GENERATOR = torch.Generator().manual_seed(0)
CLASSES = torch.arange(N) % N_CLASSES
TABLE = torch.tensor([[1, 0, 0, 1, 0, 1], [0, 1, 0, 1, 1, 0], [0, 0, 1, 0, 1, 1], [0, 0, 1, 0, 1, 0]])
#: One image in ten deviates from its class in each concept.
CONCEPTS = TABLE[CLASSES] ^ (torch.rand(N, N_CONCEPTS, generator=GENERATOR) < 0.1).long()
NOISE = torch.randn(N, N_CONCEPTS, generator=GENERATOR)
HONEST = CONCEPTS + 0.2 * NOISE
#: The values of the first concept also say whether it is class 3.
LEAKING = HONEST + torch.nn.functional.one_hot(3 * (CLASSES == 3).long() - 0, 4)[:, 3:] * torch.eye(N_CONCEPTS)[0]


def loader(values: Tensor, batch_size: int = 64) -> DataLoader:
    return DataLoader(TensorDataset(values, CLASSES, CONCEPTS), batch_size)


def model(seed: int = 0) -> PostHocCBM:
    """Return a model whose values are its inputs."""
    head = nn.Linear(N_CONCEPTS, N_CLASSES)
    head.weight.data, head.bias.data = 2.0 * TABLE - 1, torch.zeros(N_CLASSES)
    names = [f"concept {j}" for j in range(N_CONCEPTS)]
    return PostHocCBM(nn.Identity(), ConceptBank(torch.eye(N_CONCEPTS), names=names), head, values="raw")


def score(values: Tensor, *metrics: object, **settings: object) -> pd.DataFrame:
    return score_concepts(model(), loader(values), metrics=[*metrics], **settings)


def test_rows_of_leakage_are_those_of_the_formulas() -> None:
    table = score(LEAKING, ConceptTaskLeakage(), InterconceptLeakage(), ConceptSetCeiling())
    rows = {name: part.set_index("item") for name, part in table.groupby("metric")}
    task = concept_task_leakage(LEAKING, CLASSES, CONCEPTS)
    own = rows["concept-task leakage"]
    np.testing.assert_allclose(own["value"].iloc[1:], task.scores, atol=1e-6)
    assert own.loc["", "value"] == pytest.approx(task.scores.mean().item(), abs=1e-6)
    p = rows["concept-task leakage p"]
    np.testing.assert_allclose(p["value"].iloc[1:], task.p)
    assert p.loc["", "value"] == task.mean_p == pytest.approx(1 / 40)
    # The concept that leaks, and no other, is found.
    assert own.loc["concept 0", "value"] > 0.1
    assert p.loc["concept 0", "value"] == pytest.approx(1 / 40)
    assert (own["value"].iloc[2:] < 0.03).all()
    pairs = interconcept_leakage(LEAKING, CONCEPTS)
    own = rows["inter-concept leakage"]
    np.testing.assert_allclose(own["value"].iloc[1:], pairs.scores.nanmean(1), atol=1e-6)
    assert rows["inter-concept leakage p"].loc["", "value"] == pairs.mean_p
    assert rows["concept-set ceiling"].loc["", "value"] == pytest.approx(concept_set_ceiling(CONCEPTS, CLASSES))


def test_shares_of_wrong_labels_stand_beside_leakage_and_ceiling() -> None:
    turned = torch.rand(CONCEPTS.shape, generator=torch.Generator().manual_seed(2)) < 0.08
    labels = CONCEPTS ^ turned.long()
    batches = [(HONEST, CLASSES, labels)]
    metrics = [ConceptTaskLeakage(), InterconceptLeakage(), ConceptSetCeiling()]
    rows = score_concepts(model(), batches, metrics).set_index(["metric", "item"])
    means = rows.xs("", level="item")
    share = noise_equivalent(HONEST, CLASSES, labels, means.loc["concept-task leakage", "value"])
    assert means.loc["concept-task leakage as wrong labels", ["value", "n", "undefined"]].tolist() == [share, 1, 0]
    assert share == pytest.approx(0.08, abs=0.03)
    assert len(rows.loc["concept-task leakage as wrong labels"]) == 1
    # What wrong labels do to pairs is not known.
    assert "inter-concept leakage as wrong labels" not in means.index
    accuracy = (HONEST @ (2.0 * TABLE.T - 1)).argmax(1).eq(CLASSES).double().mean().item()
    found = means.loc["concept-set ceiling as wrong labels"]
    assert found["value"] == ceiling_noise_equivalent(labels, CLASSES, accuracy)
    assert means.loc["images with unique concepts", "value"] == unique_share(labels) < 0.25
    # Ten further concepts at random: nearly every image has its own row.
    extra = torch.rand(N, 12, generator=torch.Generator().manual_seed(3)) < 0.5
    wide = torch.cat([CONCEPTS, extra.long()], 1)
    bank = ConceptBank(torch.eye(6).repeat(3, 1))
    unique = PostHocCBM(nn.Identity(), bank, nn.Linear(18, N_CLASSES), values="raw")
    means = score_concepts(unique, [(HONEST, CLASSES, wide)], [ConceptSetCeiling()]).set_index("metric")
    found = means.loc["concept-set ceiling as wrong labels"]
    assert (found["n"], found["undefined"], np.isnan(found["value"])) == (0, 1, True)
    percent = round(100 * means.loc["images with unique concepts", "value"])
    assert found["reason"] == f"{percent} % of the images have concepts that no other image has, above 25 %"


def test_a_share_of_wrong_labels_beyond_the_largest_is_a_number_with_its_reason() -> None:
    # Values that give the class, and nothing of their concepts.
    copies = CLASSES[:, None].float().expand(-1, N_CONCEPTS) + 0.01 * NOISE
    rows = score(copies, ConceptTaskLeakage()).set_index(["metric", "item"])
    row = rows.loc[("concept-task leakage as wrong labels", "")]
    assert row[["value", "n", "undefined", "reason"]].tolist() == [0.3, 1, 0, "beyond 30 % wrong labels"]


def test_random_banks_have_a_range_of_leakage_from_few_draws_and_no_p() -> None:
    banks = [
        PostHocCBM(nn.Identity(), ConceptBank.random(6, 6, seed=seed), model().head, values="raw") for seed in (0, 1)
    ]
    # The ceiling is of the labels alone, and has none.
    metrics = [ConceptTaskLeakage(n_permutations=19), InterconceptLeakage(n_permutations=19), ConceptSetCeiling()]
    table = score_concepts(model(), loader(HONEST), metrics, controls={"random banks": banks})
    of_banks = table[table["what"] == "random range"]
    assert {*of_banks["metric"]} == {"concept-task leakage", "inter-concept leakage"}
    scores = []
    for bank in banks:
        values = bank.concept_predictor(HONEST)
        scores.append(concept_task_leakage(values, CLASSES, CONCEPTS, n_permutations=3).scores.mean().item())
    row = of_banks[(of_banks["metric"] == "concept-task leakage") & (of_banks["item"] == "")].iloc[0]
    assert [row["low"], row["high"]] == pytest.approx(sorted(scores), abs=1e-6)


def test_p_of_pairs_is_the_smallest_times_their_number() -> None:
    table = score(LEAKING, InterconceptLeakage(n_permutations=19))
    p = interconcept_leakage(LEAKING, CONCEPTS, n_permutations=19).p
    pairs = p[~torch.eye(N_CONCEPTS, dtype=torch.bool)].view(N_CONCEPTS, N_CONCEPTS - 1)
    rows = table[(table["metric"] == "inter-concept leakage p") & (table["item"] != "")]
    np.testing.assert_allclose(rows["value"], (pairs.amin(1) * (N_CONCEPTS - 1)).clamp(max=1), atol=1e-6)
    # Five times .05 is less than 1.
    assert 0.2 < rows["value"].min() < 1


def test_the_ceiling_has_an_interval_over_classes() -> None:
    row = score(HONEST, ConceptSetCeiling()).set_index("metric").loc["concept-set ceiling"]
    hits = commonest_classes(CONCEPTS, CLASSES)
    assert [row["low"], row["high"]] == pytest.approx(interval(hits, clusters=CLASSES))
    assert row["low"] != pytest.approx(interval(hits)[0])


def test_sparse_heads_and_their_plot() -> None:
    banks = [
        PostHocCBM(nn.Identity(), ConceptBank.random(N_CONCEPTS, N_CONCEPTS, seed=seed), model().head, values="raw")
        for seed in range(3)
    ]
    metric = SparseHeadAccuracy([1, 2, 3, 6, 7])
    table = score_concepts(model(), loader(HONEST), metrics=[metric], controls={"random banks": banks})
    rows = table[table["metric"] == metric.name].set_index(["what", "l"])
    assert sorted({*rows.index.get_level_values("l")}) == [1, 2, 3, 6]  # there are no seven concepts
    places = torch.arange(N) // N_CLASSES % 2  # every other image of each class
    halves = [
        sparse_head_path(
            *(HONEST[places == half], CLASSES[places == half], [1, 2, 3, 6]),
            *(HONEST[places != half], CLASSES[places != half], 25),
        ).accuracy
        for half in (0, 1)
    ]
    np.testing.assert_allclose(rows.loc["score", "value"], (halves[0] + halves[1]) / 2, atol=1e-6)
    assert rows.loc[("score", 6), "value"] > rows.loc[("score", 1), "value"] + 0.1
    # Mixtures of concepts say little with one weight a class, and as much with all.
    assert rows.loc[("random range", 6), "value"] == pytest.approx(rows.loc[("score", 6), "value"], abs=0.06)
    nec = table[(table["metric"] == "NEC") & (table["what"] == "score")]
    assert nec["value"].tolist() == pytest.approx([1, 2, 3, 6], abs=0.8)
    figure, ax = plot_sparse_heads(table)
    assert ax.get_legend_handles_labels()[1] == ["random banks", "model"]
    plt.close(figure)
    with pytest.raises(ValueError, match="rows of 'sparse head accuracy'"):
        plot_sparse_heads(table.iloc[:0])
    with pytest.raises(ValueError, match=r"what `score_concepts` returns but it has no column \['what'\]"):
        plot_sparse_heads(table.drop(columns="what"))


@pytest.mark.filterwarnings("error")
def test_names_of_models_are_drawn_as_they_are() -> None:
    rows = {
        "metric": "sparse head accuracy",
        "what": "score",
        "l": [1, 5],
        "value": [0.5, 0.8],
        "low": 0.4,
        "high": 0.9,
    }
    names = [r"$\frac{$", "_mine", "plain"]
    table = pd.concat([pd.DataFrame(rows | {"model": name}) for name in names])
    figure, ax = plot_sparse_heads(table)
    figure.draw_without_rendering()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == names
    plt.close(figure)


def test_images_are_compared_with_the_ceiling_and_between_models() -> None:
    metrics = [ConceptSetCeiling(), SparseHeadAccuracy([2])]
    tables = [score(values, *metrics, per_image=True) for values in (HONEST, LEAKING)]
    result = compare(*tables).set_index("metric")
    assert result.loc["concept-set ceiling", "difference"] == 0
    assert result.loc["sparse head accuracy", "n"] == N


def test_completeness_is_that_of_the_formula() -> None:
    predicted = torch.where(torch.arange(N) < 20, (CLASSES + 1) % N_CLASSES, CLASSES)
    table = score(HONEST, Completeness(predicted))
    with torch.no_grad():
        own = model().head(HONEST).argmax(1)
    assert table["value"].tolist() == [completeness(own, predicted, CLASSES)]
    assert table["chance"].tolist() == [0]
    given = score_concepts(model(), loader(HONEST), metrics=[Completeness()], truth={"network_classes": predicted})
    pd.testing.assert_frame_equal(given, table)


def rows_of(values: Tensor) -> ConceptPredictions:
    """Return the rows of images with these values."""
    truth = {"labels": CLASSES, "concept_labels": CONCEPTS}
    return ConceptPredictions(classes=CLASSES, predicted=CLASSES, values=values, truth=truth)


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    values = LEAKING.clone()
    values[0, 0] = -torch.inf
    seen = rows_of(values)
    expected = concept_task_leakage(LEAKING[1:], CLASSES[1:], CONCEPTS[1:])
    leakage = ConceptTaskLeakage().score_rows(seen)
    np.testing.assert_allclose(leakage.of_call, expected.scores)
    assert "not finite (1 of 240" in commonest(leakage.reasons(0))
    hits = SparseHeadAccuracy([2]).score_rows(seen)
    assert np.flatnonzero(np.isnan(hits.of_call)).tolist() == [0]
    nothing = ConceptTaskLeakage().score_rows(seen[:1])
    assert np.isnan(nothing.values).all()


test_refused = refusals(
    (lambda: ConceptTaskLeakage(n_bins=1), "`n_bins`"),
    (lambda: SparseHeadAccuracy([]), "`sizes`"),
    (lambda: SparseHeadAccuracy([0]), "`sizes`"),
)


def test_sparse_heads_of_classes_with_one_image_are_unknown():
    model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)), nn.Linear(3, 2), values="raw")
    images, classes = torch.eye(3)[:2], torch.tensor([0, 1])
    table = score_concepts(model, [(images, classes)], [SparseHeadAccuracy(sizes=[1])]).set_index("metric")
    reason = "there are no other images to fit a head to (2 of 2 samples)"
    assert table.loc["sparse head accuracy", ["n", "undefined", "reason"]].tolist() == [0, 2, reason]
    assert table.loc["NEC", ["n", "undefined"]].tolist() == [1, 1]
