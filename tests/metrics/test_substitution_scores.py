"""Concept models on substitutions in one pass: what the metric class gives, controls, pairs, items."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from quantus_concepts import SubstitutionScore, score_concepts, score_substitutions
from quantus_concepts.datasets import PaintedBirds, PaintedSubstitutions
from quantus_concepts.functional.statistics.intervals import interval
from quantus_concepts.metrics import UsualMetrics
from telling_models import Recited, Shown, TellingModel, images_showing
from tiny_models import SharingConceptModel

NAMES = ["wing::red", "wing::blue", "beak::cone", "beak::needle"]
#: Three classes with one concept of each group.
OWN = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
LABELS = torch.tensor([0, 0, 1, 2, 2, 2])
ADDED = torch.tensor([1, 3, 0, 2, 2, -1])
REMOVED = torch.tensor([0, 2, 1, 3, 3, 0])
ROWS = torch.arange(5)
AFTER = OWN[LABELS].clone()
AFTER[ROWS, ADDED[:5]], AFTER[ROWS, REMOVED[:5]] = 1, 0
BOUND = {"added": ADDED, "removed": REMOVED, "class_concepts": OWN, "concept_names": NAMES}


READING, RECITING = TellingModel(Shown(4), 4, 3), TellingModel(Recited(OWN), 4, 3)


def batches(size: int = 4) -> list[dict[str, torch.Tensor]]:
    """Return images that show four concepts and tell a class."""
    split = (
        tensor.split(size) for tensor in (images_showing(AFTER, LABELS), images_showing(OWN[LABELS], LABELS), LABELS)
    )
    return [dict(zip(("images", "before", "labels"), parts, strict=True)) for parts in zip(*split, strict=True)]


def of_all(table: pd.DataFrame, model: str) -> dict[str, float]:
    chosen = table[(table["model"] == model) & (table["item_kind"] == "")]
    return dict(zip(chosen["metric"], chosen["value"], strict=True))


def test_what_reads_scores_one_and_what_recites_zero():
    table = score_substitutions({"oracle": READING, "memoriser": RECITING}, batches(), **BOUND)
    rows = of_all(table, "oracle")
    # The last one is its class, with nothing put in.
    assert (rows["S+"], rows["S-"], rows["recital"]) == (1, 1, 1 / 6)
    assert (rows["added moves"], rows["removed moves"], rows["others move"]) == (1, pytest.approx(5 / 6), 0)
    assert (rows["rises"], rows["selectivity"]) == (1, 1)
    rows = of_all(table, "memoriser")
    assert (rows["S+"], rows["S-"], rows["recital"], rows["class kept"]) == (0, 0, 1, 1)
    assert (rows["added moves"], rows["rises"], rows["others move"]) == (0, 0, 0)
    assert np.isnan(rows["selectivity"])
    for metric in ("S+", "rises"):
        first = table[table["metric"] == metric].iloc[0]
        assert (first["n"], first["undefined"]) == (5, 1)
    assert table.loc[table["metric"] == "S+", "chance"].iloc[0] == 0.5


def test_items_pairs_and_images():
    values = images_showing(torch.tensor([[0.9, 0.1, 0.2, 0.8]] * 6), LABELS)
    loader = DataLoader(TensorDataset(values, LABELS), 4)
    table = score_substitutions(READING, loader, **BOUND, class_names=["a", "b", "c"])
    plus = table[table["metric"] == "S+"].set_index(["item_kind", "item"])
    # Put in are blue (0.1), needle (0.8), red (0.9), and cone (0.2) twice.
    assert plus.loc[("", ""), "value"] == 0.4
    expected = {"wing::red": 1, "wing::blue": 0, "beak::cone": 0, "beak::needle": 1}
    assert plus.loc["attribute", "value"].to_dict() == expected
    assert plus.loc["group", "value"].to_dict() == {"wing": 0.5, "beak": 1 / 3}
    # The last of class c is undefined.
    assert plus.loc["class", "value"].to_dict() == {"a": 0.5, "b": 1, "c": 0}
    assert plus.loc[("attribute", "beak::cone"), "n"] == 2
    assert "selectivity" not in set(table["metric"])
    # Many images of few pairs have a wider interval than as many that are independent.
    repeated = DataLoader(TensorDataset(values.repeat(20, 1, 1, 1), LABELS.repeat(20)), 60)
    many = BOUND | {name: BOUND[name].repeat(20) for name in ("added", "removed")}
    scores, pair = [0, 1, 1, 0, 0] * 20, [0, 1, 2, 3, 3] * 20
    for bound, clusters in (({}, pair), ({"pairs": np.arange(120)}, range(100))):
        first = score_substitutions(READING, repeated, **many, **bound).query("metric == 'S+'").iloc[0]
        assert (first["low"], first["high"]) == interval(scores, clusters=list(clusters))
    images = score_substitutions(READING, loader, **BOUND, class_names=["a", "b", "c"], per_image=True)
    assert len(images) == 6 * 3
    # The two images of class c with a cone are one pair.
    pairs = images[images["metric"] == "S+"]["pair"].tolist()
    assert pairs[3] == pairs[4]
    assert len({*pairs}) == 5
    row = images[(images["metric"] == "S+") & (images["image"] == 3)].iloc[0]
    assert row.drop("value").tolist() == ["model", 3, row["pair"], "c", "beak::cone", "beak::needle", "a", "S+"]
    assert images[images["metric"] == "S+"]["added"].tolist()[-1] == ""


@pytest.fixture(scope="module")
def pairs():
    birds = PaintedBirds(12, "test", image_size=32, n_classes=4, n_concepts=6)
    return PaintedSubstitutions(birds)


def sharing(seed: int = 0) -> SharingConceptModel:
    """Return a small model of six concepts."""
    model, generator = SharingConceptModel(seed), torch.Generator().manual_seed(seed)
    model.concept_predictor.cavs = torch.randn(6, 6, generator=generator)
    model.head = torch.nn.utils.skip_init(torch.nn.Linear, 6, 4, bias=False)
    model.head.weight.data = torch.randn(4, 6, generator=generator)
    model.absent_values = torch.zeros(6)
    return model.eval()


def test_a_column_is_what_the_metric_gives_and_models_of_one_backbone_share_it(pairs):
    model, other = sharing(), sharing(1)
    other.concept_predictor.features = model.features
    loader = DataLoader(pairs, 5)
    images = score_substitutions({"a": model, "b": other}, loader, threshold={"a": 0.1, "b": -0.2}, per_image=True)
    # Each batch before and after once.
    assert model.runs == 2 * len(loader)
    substituted = torch.stack([pairs[i].image for i in range(len(pairs))]).numpy()
    for name, concept_model, threshold in (("a", model, 0.1), ("b", other, -0.2)):
        for metric, score in (("S+", "added"), ("S-", "removed")):
            scorer = SubstitutionScore(pairs.added, pairs.removed, score, threshold)
            expected = scorer(concept_model, substituted, pairs.labels.numpy())
            column = images[(images["model"] == name) & (images["metric"] == metric)]["value"]
            np.testing.assert_array_equal(column, expected)


def test_score_concepts_with_a_threshold_has_the_same_rows(pairs):
    models, controls = {"a": sharing(), "b": sharing(1)}, [sharing(2), sharing(3)]
    loader, usual = DataLoader(pairs, 5), UsualMetrics(top_l=[1], alphas=[1])
    tables = (
        score_substitutions(models, loader, threshold=0, controls=controls),
        score_concepts(models, loader, usual, value_threshold=0, controls=controls),
    )
    columns = ["model", "metric", "value", "low", "high", "n", "undefined", "chance"]
    chosen = (table[table["metric"].isin(["S+", "S-", "recital"]) & (table["item_kind"] == "")] for table in tables)
    first, second = (table[columns].reset_index(drop=True) for table in chosen)
    pd.testing.assert_frame_equal(first, second)
    assert not set(score_concepts(models["a"], loader, usual)["metric"]) & {"S+", "S-", "recital"}
    with pytest.raises(ValueError, match="`value_threshold` with `added`"):
        score_concepts(models["a"], loader, usual, truth={"added": pairs.added})


def test_accuracy_on_what_was_seen_and_controls(pairs):
    controls = [sharing(seed) for seed in range(3)]
    unsubstituted = DataLoader(pairs.birds, 6)
    table = score_substitutions(controls[0], DataLoader(pairs, 6), seen=unsubstituted, threshold=0, controls=controls)
    with torch.no_grad():
        values = controls[0].concept_predictor(pairs.birds.images()).numpy()
    right = (values >= 0) == (pairs.birds.concept_labels.numpy() > 0.5)
    some = np.unique(pairs.added.numpy())
    rows = of_all(table, "model")
    assert rows["T"] == pytest.approx(right.mean())
    assert rows["T_A"] == pytest.approx(right[:, some].mean())
    tables = [score_substitutions(model, DataLoader(pairs, 6), threshold=0) for model in controls]
    alone = [of_all(alone_table, "model")["S+"] for alone_table in tables]
    control = table[(table["model"] == "control") & (table["metric"] == "S+") & (table["item_kind"] == "")].iloc[0]
    assert control["value"] == pytest.approx(np.mean(alone))
    assert control["low"] == pytest.approx(min(alone))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"added": None}, r"`added` to hold the concept put into each image but it is not given"),
        ({"added": -torch.ones(6, dtype=torch.int64)}, r"nothing in common"),
        ({"added": ADDED + 4}, r"`added` to lie in \[-1, 3\]"),
        ({"added": ADDED[:4]}, r"`added` to hold as many rows as `loader` gives images"),
        ({"pairs": [0, 1]}, r"`pairs` to have shape \(N,\) = \(6,\)"),
        ({"class_concepts": OWN[:2]}, r"logits of the model` to have shape \(B, K\) = \(\*, 2\)"),
        ({"seen": batches()}, r"`seen` to give batches with concept labels"),
    ],
)
def test_bad_input_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        score_substitutions(READING, batches(), **{**BOUND, **changed})
