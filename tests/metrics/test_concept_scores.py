"""The streaming scorer: against the formulas, against the metric classes, against the controls it measures."""

from __future__ import annotations

import cProfile
import itertools
import pstats
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM, embed
from quantus_concepts import CEM, CLM, score_concepts
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.functional import point_hits, random_banks
from quantus_concepts.metrics import InterventionAccuracy, UsualMetrics, predict_concepts, score_predictions
from quantus_concepts.metrics.concepts.locations import GaussianRegion
from quantus_concepts.metrics.host import predictions
from quantus_concepts.metrics.host.model import IMPORTANCES
from quantus_concepts.metrics.streaming.loader import EarlierPoints
from reference import clm as reference_clm
from reference import part_specificity as reference_specificity
from reference.comparisons import bounded_cluster_interval
from reference.comparisons import cem_gain as reference_gain
from reference.evaluation import evaluate
from reference.intervals import wilson_interval
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel, seeded
from untouched import untouched

N, SIZE = 11, (12, 15)
PARTS = torch.tensor([2, 0, -1, 1, 0])
TOPS, ALPHAS = (1, 2, 4), (1.0, 3.0, 12.0)


def make_samples(dtype: torch.dtype = torch.float64) -> list[ConceptSample]:
    generator = torch.Generator().manual_seed(0)

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    samples = []
    for _ in range(N):
        points = rand(3, 2, 2) * torch.tensor([SIZE[1], SIZE[0]]) - 0.5
        points[rand(3, 2) < 0.4] = torch.nan
        label = int(rand(1) * N_CLASSES)
        image, concepts = rand(3, *SIZE).to(dtype), (rand(N_CONCEPTS) < 0.4).to(dtype)
        samples.append(ConceptSample(image, label, concepts, points.to(dtype)))
    return samples


SAMPLES = make_samples()
CLASS_CONCEPTS = torch.rand(N_CLASSES, N_CONCEPTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def run(model: Any, samples: list[ConceptSample] = SAMPLES, batch_size: int = 4, **changed: Any) -> pd.DataFrame:
    names = [name for name in ("explanations", "top_l", "alphas") if name in changed]
    usual = UsualMetrics(**{"top_l": TOPS, "alphas": ALPHAS} | {name: changed.pop(name) for name in names})
    truth = {"part_of_concept": PARTS} | changed.pop("truth", {})
    metrics = [usual, *changed.pop("metrics", [])]
    settings = {"metrics": metrics, "class_concepts": CLASS_CONCEPTS, "truth": truth} | changed
    # Without a generator of its own a loader draws from the global one.
    return score_concepts(model, DataLoader(samples, batch_size, generator=torch.Generator()), **settings)


def images_of(model: Any, **changed: Any) -> dict[tuple[Any, ...], np.ndarray]:
    """Scores of the images by metric, explanation, l, alpha and baseline; 0 for an empty l or alpha."""
    table = run(model, per_image=True, **changed)
    keys = ["metric", "explanation", "l", "alpha", "baseline"]
    table[["l", "alpha"]] = table[["l", "alpha"]].astype(float).fillna(0)
    return {key: group.sort_values("image")["value"].to_numpy() for key, group in table.groupby(keys)}


@pytest.mark.parametrize("kind", [SharingConceptModel, TinyConceptModel])
def test_every_variant_agrees_with_the_formulas(kind):
    model = kind(dtype=torch.float64)
    images, labels, present, points = next(iter(DataLoader(SAMPLES, N)))
    values = model.concept_predictor(images).detach().numpy()
    linear = model.head[0]
    weights = {"theta": linear.weight.detach().numpy(), "bias": linear.bias.detach().numpy()}
    truth = {"present": present.numpy(), "points": points.numpy(), "parts": PARTS.numpy()}
    maps = model.concept_maps(images).detach().numpy()
    truth["absent"] = model.absent_values.numpy()
    expected = evaluate(values=values, maps=maps, size=SIZE, tops=TOPS, alphas=ALPHAS, **weights, **truth)
    first = run(model, per_image=True, value_threshold=0.1).query("metric == 'density'")
    np.testing.assert_array_equal(first["predicted"], expected[("predicted",)])
    np.testing.assert_array_equal(first["label"], labels)

    columns = images_of(model, value_threshold=0.1)
    theta = weights["theta"]
    chosen = theta[expected[("predicted",)]]
    importances = {"weight": chosen, "value": values, "contribution": chosen * values}
    importances["effect"] = (chosen - theta.mean(0)) * (values - truth["absent"])
    for (name, importance), top in itertools.product(importances.items(), TOPS):
        np.testing.assert_allclose(columns["CEM", name, top, 0, ""], expected["cem", name, top], atol=1e-6)
        gains = reference_gain(importance, present.numpy(), top)
        np.testing.assert_allclose(columns["CEM gain", name, top, 0, ""], gains, atol=1e-12)
        for alpha in ALPHAS:
            column = columns["CLM", name, top, alpha, ""]
            np.testing.assert_allclose(column, expected["clm", name, top, alpha], atol=1e-6)
    np.testing.assert_allclose(columns["density", "", 0, 0, ""], present.mean(1), atol=1e-6)
    right = ((values >= 0.1) == (present.numpy() == 1)).mean(1)
    np.testing.assert_allclose(columns["concept accuracy", "", 0, 0, ""], right, atol=1e-6)
    # "speaks by being absent": the first concept by contribution has a negative value
    absent = values[np.arange(N), (chosen * values).argmax(1)] < 0
    np.testing.assert_array_equal(columns["negative first", "contribution", 1, 0, ""], absent)
    assert 0 < absent.sum() < N


class TestBaselinesByHand:
    """Two concepts, two classes, four birds, of which the third is taken for one of the other class."""

    ROWS = torch.tensor([[2.0, 1], [2, 1], [2, 1], [1, 2]])
    LABELS = torch.tensor([[1, 0], [0, 1], [1, 1], [1, 0]])
    CLASSES = torch.tensor([0, 0, 1, 1])
    CLASS_CONCEPTS = torch.tensor([[1.0, 0.0], [0.2, 0.8]])

    def table(self, **changed: Any) -> pd.DataFrame:
        head = nn.Linear(2, 2, bias=False)
        head.weight.data = torch.eye(2)
        model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(2)), head, values="raw")
        batches = [tuple(part[rows] for part in (self.ROWS, self.CLASSES, self.LABELS)) for rows in ([0, 1, 2], [3])]
        return score_concepts(model, batches, UsualMetrics(top_l=[1, 2]), class_concepts=self.CLASS_CONCEPTS, **changed)

    def rows(self, table: pd.DataFrame, **fields: Any) -> list[float]:
        for name, value in fields.items():
            table = table[table[name] == value]
        return table["value"].tolist()

    def test_baselines_of_cem(self):
        table = self.table()
        cem = table[table["metric"] == "CEM"]
        # The concepts are on three and on two of four birds; of the three that are right on two and on one.
        assert self.rows(cem, baseline="commonest concept", set="all") == [3 / 4, 5 / 8]
        assert self.rows(cem, baseline="commonest concept", set="correct") == [2 / 3, 3 / 6]
        # The classes name concepts 0, 0, 1, 1, which are there, not there, there and not there.
        assert self.rows(cem, baseline="class recital", set="all") == [1 / 2, 5 / 8]
        assert self.rows(cem, baseline="class recital", set="correct") == pytest.approx([1 / 3, 3 / 6])
        counted = cem[(cem["set"] == "correct") & (cem["baseline"] != "")]
        assert set(zip(counted["n"], counted["undefined"], strict=True)) == {(3, 1)}

    def test_gain(self):
        # Concepts 0, 0, 0, 1 are named; the others show them 2 of 3, 3 of 3, 2 of 3 and 2 of 3 times.
        images = self.table(per_image=True)
        gains = self.rows(images, metric="CEM gain", explanation="value", l=1)
        np.testing.assert_allclose(gains, [1 / 3, -1, 1 / 3, -2 / 3])
        fields = {"metric": "CEM gain", "explanation": "value", "l": 1}
        table = self.table()
        assert self.rows(table, **fields, set="all") == pytest.approx([-1 / 4])
        # Of birds 0, 1 and 3: 1 - 1/2, 0 - 2/2, 0 - 1/2.
        assert self.rows(table, **fields, set="correct") == pytest.approx([-1 / 3])

    def test_the_same_importance_everywhere(self):
        table = self.table()
        fields = {"metric": "CGIM", "baseline": "the same importance everywhere"}
        concepts = (1.2 / 1.04**0.5 + 1) / 2 / 2**0.5
        classes = (1 + 1 / 0.68**0.5) / 2 / 2**0.5
        assert self.rows(table, **fields, item_kind="concept") == pytest.approx([concepts])
        assert self.rows(table, **fields, item_kind="class") == pytest.approx([classes])

    def test_rows_of_classes_and_accuracy(self):
        images = self.table(per_image=True)
        assert self.rows(images, metric="accuracy") == [1, 1, 0, 1]
        # Of values: the mean of birds 0 and 1, and bird 3.
        assert self.rows(images, metric="class importance", explanation="value") == [2, 1, 1, 2]
        truth = images[images["metric"] == "class concepts"]
        np.testing.assert_allclose(truth["value"], [1, 0, 0.2, 0.8])
        assert truth[["model", "image", "label", "item"]].values.tolist() == [
            ["", -1, label, f"concept {item}"] for label in (0, 1) for item in (0, 1)
        ]


def test_a_zero_importance_ranks_no_concept():
    """A black image has values of 0, and no concept comes first; its weights rank all the same."""
    backbone = nn.Conv2d(3, 4, 3, stride=2, bias=False)
    model = PostHocCBM(backbone, ConceptBank(torch.randn(5, 4)), nn.Linear(5, N_CLASSES), values="raw")
    samples = [sample._replace(points=sample.points.nan_to_num(3.0)) for sample in make_samples(torch.float32)]
    samples[6] = samples[6]._replace(image=torch.zeros(3, *SIZE))
    columns = images_of(model, samples=samples)
    others = np.arange(N) != 6
    for column in (
        ("CLM", "value", 1, 3.0, ""),
        ("CLM", "contribution", 1, 3.0, "centred Gaussian"),
        ("part specificity", "value", 1, 3.0, ""),
        ("CEM", "value", 2, 0, ""),
        ("CEM gain", "value", 2, 0, ""),
    ):
        np.testing.assert_array_equal(np.isfinite(columns[column]), others)
    assert np.isfinite(columns["CLM", "weight", 1, 3.0, ""]).all()


#: By metric and baseline: what the images of a cluster share. A model's first concepts are those of the class it
#: predicts; recitals, and people's answers, are those of the true class.
CLUSTERS = {
    ("accuracy", ""): "",
    ("concept accuracy", ""): "predicted",
    ("negative first", ""): "predicted",
    ("S+", ""): "pair",
    ("S-", ""): "pair",
    ("recital", ""): "pair",
    ("accuracy after interventions", ""): "label",
    ("accuracy after interventions", "wrong labels"): "label",
    ("CEM", ""): "predicted",
    ("CEM", "class recital"): "label",
    ("CEM gain", ""): "predicted",
    ("CLM", ""): "predicted",
    ("CLM", "parts of another image"): "predicted",
    ("CLM", "other parts of the image"): "predicted",
    ("CLM", "centred Gaussian"): "predicted",
    ("CLM", "mean place of the part"): "predicted",
    ("part specificity", ""): "predicted",
    ("part specificity", "centred Gaussian"): "predicted",
    ("part specificity", "mean place of the part"): "predicted",
}


@pytest.fixture(scope="module")
def rows_and_images():
    """Return the rows with an interval, and the scores of the images with their clusters."""
    # Images of which a model predicts all classes: one cluster has no interval.
    generator, model = torch.Generator().manual_seed(0), SharingConceptModel(dtype=torch.float64)
    samples = [
        sample._replace(image=torch.randn(3, *SIZE, generator=generator, dtype=torch.float64)) for sample in 6 * SAMPLES
    ]
    with torch.no_grad():
        model.head[0].bias -= model(torch.stack([sample.image for sample in samples])).mean(0)
    added = np.arange(len(samples)) % 3
    settings = {
        "top_l": (1,),
        "alphas": (3.0,),
        "explanations": ["contribution"],
        "metrics": [InterventionAccuracy([1])],
    }
    settings |= {"value_threshold": 0.1, "truth": {"added": added, "removed": added + 1}}
    table, images = (run(model, samples, **settings, per_image=per_image) for per_image in (False, True))
    rows = table[(table["set"] == "all") & table["low"].notna() & (table["item_kind"] == "")]
    assert {*zip(rows["metric"], rows["baseline"], strict=True)} == {*CLUSTERS}
    images = images[(images["image"] >= 0) & images["value"].notna()]
    return rows, images.assign(pair=10 * images["label"] + added[images["image"]])


@pytest.mark.parametrize(("metric", "baseline"), CLUSTERS)
def test_intervals_are_over_the_right_clusters(metric, baseline, rows_and_images):
    def reference(clusters):
        scores = chosen["value"].tolist()
        if not clusters:
            return wilson_interval(scores)
        bounds = (-1.0, 1.0) if metric in ("CEM gain", "part specificity") else (0.0, 1.0)
        return bounded_cluster_interval(scores, chosen[clusters].tolist(), bounds)

    rows, images = (table[(table["metric"] == metric) & (table["baseline"] == baseline)] for table in rows_and_images)
    for row in rows.to_dict("records"):
        chosen = images[images["explanation"] == row["explanation"]]
        right = CLUSTERS[metric, baseline]
        np.testing.assert_allclose([row["low"], row["high"]], reference(right), atol=1e-9)
        for wrong in {"image", "label", "predicted", "pair"} - {right}:
            assert np.abs(np.subtract((row["low"], row["high"]), reference(wrong))).max() > 1e-3


def test_the_backbone_runs_once_a_batch_and_the_model_is_left_as_it_was():
    model, other = SharingConceptModel(), SharingConceptModel()
    model.train()
    model.features[1].eval()
    other.concept_predictor.features = model.features
    with untouched(model):
        run({"one": model, "same backbone": other}, batch_size=4, controls=[other] * 3)
    assert model.runs == 3


def test_controls_are_summed_up_by_their_distribution():
    random_models = [SharingConceptModel(seed) for seed in range(1, 13)]
    table = run(SharingConceptModel(), controls={"random": random_models}, control_stride=1, baselines=False)
    values = np.stack([run(model, baselines=False)["value"] for model in random_models])
    control = table[table["model"] == "random"]
    np.testing.assert_allclose(control["value"], [np.nanmean(column) for column in values.T], rtol=1e-12)
    # The range of twelve draws is the smallest to the largest.
    np.testing.assert_allclose(control["low"], np.nanmin(values, 0), rtol=1e-12)
    np.testing.assert_allclose(control["high"], np.nanmax(values, 0), rtol=1e-12)
    np.testing.assert_array_equal(control["n"], (~np.isnan(values)).sum(0))
    np.testing.assert_array_equal(control["n"] + control["undefined"], 12)


def test_random_banks_are_controls():
    """Those of `fit(random_banks=)`, and those of the embeddings of a model trained with its concepts."""
    backbone = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU()).eval()
    joint = BottleneckCBM(backbone, nn.Linear(6, N_CONCEPTS), nn.Linear(N_CONCEPTS, N_CLASSES))
    batches = [next(iter(DataLoader(make_samples(torch.float32), N)))]
    bank = ConceptBank.random(N_CONCEPTS, 6)
    model = PostHocCBM.fit(backbone, batches, bank=bank, random_banks=3)
    settings = {"class_concepts": CLASS_CONCEPTS, "truth": {"part_of_concept": PARTS, "concept_names": list("vwxyz")}}
    table = score_concepts(model, batches, **settings)
    # Each of several models has those that it has alone.
    other = PostHocCBM.fit(backbone, batches, bank=bank, random_banks=2, seed=1)
    several = score_concepts({"A": model, "B": joint, "C": other}, batches, **settings)
    assert [*several["model"].unique()] == ["A", "B", "C", "random banks of A", "random banks of C"]
    for name, fitted in (("A", model), ("C", other)):
        alone = score_concepts(fitted, batches, **settings).query("model == 'random banks'")
        rows = several[several["model"] == f"random banks of {name}"].assign(model="random banks")
        pd.testing.assert_frame_equal(rows.reset_index(drop=True), alone.reset_index(drop=True), check_exact=True)
    embeddings = embed(backbone, batches)
    banks = random_banks(embeddings.features, embeddings.labels, N_CONCEPTS, N_CLASSES, n_banks=3)
    control = score_concepts(joint, batches, controls=banks, **settings).query("model == 'control'")
    columns = ["metric", "explanation", "l", "alpha", "item_kind", "item", "set"]
    expected = table[table["model"] == "random banks"].set_index(columns)["value"]
    pd.testing.assert_series_equal(control.set_index(columns)["value"], expected)


def banks_of(n_banks: int, n_images: int = 40) -> tuple[PostHocCBM, list[Any]]:
    backbone = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU()).eval()
    samples = [*make_samples(torch.float32)] * (n_images // N + 1)
    batches = [next(iter(DataLoader(samples[:n_images], n_images)))]
    bank = ConceptBank.random(N_CONCEPTS, 6, seed=1)
    return PostHocCBM.fit(backbone, batches, bank=bank, random_banks=n_banks), batches


def test_random_banks_scored_together_are_as_each_by_itself(monkeypatch):
    model, batches = banks_of(5)
    # Importances, values and predictions of banks are far apart, so that one in the place of another is seen.
    swap = {"added": torch.arange(40) % N_CONCEPTS, "removed": torch.arange(40) // 3 % N_CONCEPTS}
    settings = {"truth": {"part_of_concept": PARTS} | swap, "class_concepts": CLASS_CONCEPTS}
    metrics = [UsualMetrics(top_l=[1, 2]), CEM(top_l=4)]
    rows = predict_concepts(model, batches, metrics, control_stride=17, **settings)
    tables = [score_predictions(rows, metrics, value_threshold=0.0)]
    stacks = [*rows.stacked_banks()]
    for kind in IMPORTANCES:
        # Also of banks with levels of their own.
        expected = torch.cat([bank.naming(kind) for bank in rows.of_banks()])
        assert torch.equal(stacks[0].naming(kind), expected)
    monkeypatch.setattr(predictions, "AT_A_TIME", 1)
    tables.append(score_predictions(rows, metrics, value_threshold=0.0))
    assert (len(stacks), len([*rows.stacked_banks()])) == (1, 5)
    pd.testing.assert_frame_equal(*tables, rtol=1e-12, atol=1e-12)
    of_banks = tables[0].query("model == 'random banks'")
    assert {"CEM gain", "CLM", "CGIM", "CGIM correlation", "concept AUC", "S+", "S-"} <= {*of_banks["metric"]}
    # With a stride of 17 images a bank sees two or three of 40; each has numbers of its own.
    assert (of_banks.query("metric == 'CLM' and l == 1 and explanation == 'value'")["n"] > 2).all()
    assert (of_banks.query("metric == 'CEM' and l == 4")["n"] == 5).all()


def test_a_further_random_bank_costs_few_calls():
    calls = []
    for n_banks in (4, 12):
        model, batches = banks_of(n_banks)
        profile = cProfile.Profile()
        profile.runcall(score_concepts, model, batches, class_concepts=CLASS_CONCEPTS)
        calls.append(pstats.Stats(profile).total_calls)
    # 1,400; scored one after another they were 5,500 each.
    assert calls[1] - calls[0] < 8 * 2200


def test_location_of_a_control_is_scored_on_some_images_only():
    """A control with the offset 1, every third image: images 2, 5, 8 (from 0), for all batches."""
    model = SharingConceptModel()
    column = images_of(model, baselines=False)["CLM", "value", 2, 3.0, ""]
    table = run(model, baselines=False, controls=[model], control_stride=3, batch_size=2)
    rows = table[(table["metric"] == "CLM") & (table["explanation"] == "value") & (table["l"] == 2)]
    rows = rows[rows["alpha"] == 3].set_index("model")
    assert rows.loc["control", "value"] == pytest.approx(np.nanmean(column[[2, 5, 8]]), abs=1e-7)


def test_bound_arrays_and_other_batches_give_the_same_as_the_samples():
    images, labels, concepts, points = next(iter(DataLoader(SAMPLES, N)))
    truth = {"concept_labels": concepts, "points": points, "part_of_concept": PARTS}
    usual = UsualMetrics(top_l=TOPS, alphas=ALPHAS)
    model = SharingConceptModel(dtype=torch.float64)
    expected = run(model)
    for loader, bound in (
        (DataLoader(TensorDataset(images, labels), 4), truth),
        ([images[:6], images[6:]], truth | {"labels": labels}),
    ):
        table = score_concepts(model, loader, usual, class_concepts=CLASS_CONCEPTS, truth=bound)
        pd.testing.assert_frame_equal(table, expected, atol=1e-6)


def test_only_what_the_truth_allows_is_scored():
    model = SharingConceptModel()
    loader = DataLoader([(sample.image.float(), sample.label) for sample in SAMPLES], 4)
    assert set(score_concepts(model, loader)["metric"]) == {"accuracy", "negative first"}
    assert "CLM" not in set(run(model, truth={"part_of_concept": torch.full((N_CONCEPTS,), -1)})["metric"])
    some = run(model, truth={"part_of_concept": torch.tensor([0, -1, -1, 1, -1])}, top_l=(1, 2, 3))
    assert set(some.loc[some["metric"] == "CLM", "l"]) == {1, 2}
    assert "negative first" not in set(run(model, explanations=("value",))["metric"])


def test_the_other_image_is_an_earlier_one_and_every_earlier_one_occurs():
    points = torch.arange(200.0).view(200, 1, 1, 1).expand(200, 1, 1, 2)
    at_once = EarlierPoints(3).draw(points)[:, 0, 0, 0]
    cut = EarlierPoints(3)
    pieces = torch.cat([cut.draw(piece) for piece in points.split(7)])[:, 0, 0, 0]
    assert at_once[0].isnan()
    assert torch.equal(at_once[1:], pieces[1:])
    assert (at_once[1:] < torch.arange(1, 200)).all()
    # Uniform on [0, 1) the ratio has mean 1/2 and standard error 0.0205 over 199 images: four of them.
    assert abs((at_once[1:] / torch.arange(1, 200)).mean() - 0.5) < 0.082 + 0.02


def test_parts_of_another_image_are_scored_on_the_own_map():
    """With all points alike, the other image's points are the own ones."""
    same = SAMPLES[3].points.nan_to_num(4.0)
    columns = images_of(SharingConceptModel(), samples=[sample._replace(points=same) for sample in SAMPLES])
    for top in TOPS:
        for alpha in ALPHAS:
            other = columns["CLM", "effect", top, alpha, "parts of another image"]
            assert np.isnan(other[0])
            np.testing.assert_allclose(other[1:], columns["CLM", "effect", top, alpha, ""][1:])


@pytest.mark.parametrize("size", [(9, 9), (10, 14)])
def test_the_gaussian_region_agrees_with_point_hits_of_a_gaussian_map(size):
    rows, columns = torch.meshgrid(torch.arange(size[0]), torch.arange(size[1]), indexing="ij")
    # Whole numbers in place of a Gaussian of them: the order and the ties are the same, exactly.
    distance = ((2 * rows - size[0] + 1) * size[1]) ** 2 + ((2 * columns - size[1] + 1) * size[0]) ** 2
    places = torch.stack([columns, rows], -1).view(-1, 1, 2).double()
    expected = point_hits((-distance).double().expand(len(places), *size), places, size, ALPHAS)
    np.testing.assert_allclose(GaussianRegion(ALPHAS).hits(places, size), expected)
    assert np.isnan(GaussianRegion((1.0,)).hits(torch.tensor([[[torch.nan, 1.0]]]), size)).all()


def test_part_specificity_agrees_with_the_formulas():
    model = SharingConceptModel(dtype=torch.float64)
    images, _, _, points = next(iter(DataLoader(SAMPLES, N)))
    maps, predicted = model.concept_maps(images).detach(), model(images).argmax(1)
    parts = PARTS.numpy()
    weights = np.bincount(parts[parts >= 0], minlength=points.shape[1])
    theta = model.head[0].weight.detach()
    columns = images_of(model)
    for name, importance in (("weight", theta[predicted]), ("value", model.concept_predictor(images).detach())):
        first = np.where(parts >= 0, importance.numpy(), -np.inf).argmax(1)
        shown = maps[range(N), first]
        for alpha in ALPHAS:
            hits = [reference_clm.point_hits(shown, points[:, part], SIZE, (alpha,))[:, 0] for part in range(3)]
            _, differences = reference_specificity.part_specificity(np.stack(hits, 1), parts[first], weights)
            np.testing.assert_allclose(columns["part specificity", name, 1, alpha, ""], differences, atol=1e-6)
    # CLM less the baseline is the difference, where both are of the first concept.
    for alpha in ALPHAS:
        at_part, at_other_parts = (
            columns["CLM", "effect", 1, alpha, name] for name in ("", "other parts of the image")
        )
        difference = columns["part specificity", "effect", 1, alpha, ""]
        other = ~np.isnan(at_other_parts)
        np.testing.assert_allclose((at_part - at_other_parts)[other], difference[other], atol=1e-6)


def test_the_norm_of_the_features_is_a_baseline_of_models_that_give_their_maps():
    torch.manual_seed(0)
    backbone = nn.Conv2d(3, 4, 3, stride=2)
    bank = ConceptBank(torch.randn(len(PARTS), 4))
    model = PostHocCBM(backbone, bank, nn.Linear(len(PARTS), len(CLASS_CONCEPTS))).double()
    images, _, _, points = next(iter(DataLoader(SAMPLES, N)))
    columns = images_of(model)
    norms = backbone(images).detach().norm(dim=1)
    values = model.concept_predictor(images)
    theta = model.head.weight[model(images).argmax(1)]
    first = (theta * values).detach().masked_fill(PARTS < 0, -torch.inf).argmax(1)
    places = points[range(N), PARTS[first]]
    expected = reference_clm.point_hits(norms, places, SIZE, (ALPHAS[0],))[:, 0]
    ours = columns["CLM", "contribution", 1, ALPHAS[0], "feature norm"]
    np.testing.assert_allclose(ours, np.where(np.isnan(ours), np.nan, expected), atol=1e-6)
    assert ("part specificity", "contribution", 1, ALPHAS[0], "centred Gaussian") in columns
    # Of a model that does not give its feature maps it is undefined.
    unknown = images_of(TinyConceptModel(dtype=torch.float64))["CLM", "effect", 1, ALPHAS[0], "feature norm"]
    assert np.isnan(unknown).all()


def test_part_specificity_of_maps_is_that_of_the_table():
    model = SharingConceptModel()
    samples = make_samples(torch.float32)
    images, _, _, points = next(iter(DataLoader(samples, N)))
    expected = images_of(model, samples=samples)["part specificity", "contribution", 1, 3, ""]
    importance = model.head[0].weight[model(images).argmax(1)] * model.concept_predictor(images)
    first = importance.detach().masked_fill(PARTS < 0, -torch.inf).argmax(1)
    maps = model.concept_maps(images).detach()[range(N), first]
    metric = CLM(alpha=3, points=points.numpy(), part_of_concept=PARTS, specificity=True, disable_warnings=True)
    scores = metric(model.concept_predictor, images.numpy(), first.numpy(), a_batch=maps[:, None].numpy())
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert np.nanmin(expected) < 0 < np.nanmax(expected)
    # One map for all images and concepts scores above or below 0, by the part that is named.
    assert np.isnan(metric.records[-1].chance)


NAN = SAMPLES[1]._replace(image=SAMPLES[1].image * torch.nan)
BAD = [
    ({"samples": [SAMPLES[0], NAN]}, r"image 1 \(from 0\) holds NaN"),
    ({"samples": [(SAMPLES[0].image,)]}, "the classes of the images are missing"),
    ({"truth": {"class_names": ["a"]}}, "`class_names` to hold 4 names but got 1"),
    ({"top_l": (6,)}, r"`top_l` to lie in \[1, 5\] but got 6"),
    ({"truth": {"part_of_concept": PARTS[:4]}}, r"`part_of_concept` to have shape \(L,\) = \(5,\)"),
    ({"samples": [SAMPLES[0], *[SAMPLES[1]._replace(label=N_CLASSES)] * 5]}, "indices 0 to 3, .* but got 4 at 1"),
    ({"samples": [*[SAMPLES[0]] * 5, SAMPLES[1]._replace(label=-1)]}, "`labels` to hold class indices .* got -1 at 5"),
    ({"truth": {"class_concepts": CLASS_CONCEPTS}}, "either argument `class_concepts` or `truth` with it"),
    (
        {"model": {"a": SharingConceptModel()}, "value_threshold": {"a": 0.1, "b": 0.3}},
        "to name models, 'a', but got 'b'",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        run(**({"model": SharingConceptModel()} | arguments))


def test_truth_may_hold_the_table_of_the_classes():
    expected, given = (
        run(SharingConceptModel()),
        run(SharingConceptModel(), class_concepts=None, truth={"class_concepts": CLASS_CONCEPTS.numpy()}),
    )
    pd.testing.assert_frame_equal(given, expected)
    assert "CGIM" in set(given["metric"])


def test_controls_have_the_classes_of_the_model():
    features, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    model = PostHocCBM(nn.Identity(), ConceptBank(torch.randn(2, 4)), nn.Linear(2, 3)).eval()
    batch = features, labels, torch.ones(60, 2)
    fewer = list(random_banks(features[labels < 2], labels[labels < 2], 2, n_banks=2))
    with pytest.raises(ValueError, match=r"`controls` to hold models with the K = 3 outputs .* but got one with 2"):
        score_concepts(model, [batch], controls=fewer)
    with pytest.raises(ValueError, match=r"`controls` to hold models with the K = 3 outputs"):
        score_concepts(
            {"a": model, "b": model}, [batch], controls=[PostHocCBM(nn.Identity(), model.bank, nn.Linear(2, 4))]
        )
    assert len(score_concepts(model, [batch], controls=random_banks(features, labels, 2, n_banks=2)))


def test_places_of_many_concepts_are_exact():
    """They do not fit 16 bits."""
    n_concepts, n = 2**15 + 2, 4
    model = BottleneckCBM(nn.Identity(), nn.Identity(), nn.Linear(n_concepts, 2)).eval()
    model.head.weight.data = torch.tensor([[1.0], [0.0]]).expand(2, n_concepts).clone()
    values, labels = torch.zeros(n, n_concepts), torch.zeros(n, n_concepts)
    values[:, -1], labels[:, -1], labels[0, 0] = 1, 1, 1
    labels[3, -1] = 0
    table = score_concepts(model, [(values, torch.tensor([0, 1, 0, 1]), labels)], [CEM(gain=True)], baselines=False)
    # 1, 1, 1 and 0, less the shares of the others that show the last concept.
    assert table["value"].tolist() == pytest.approx([(3 * (1 - 2 / 3) + (0 - 3 / 3)) / 4])


def test_random_banks_have_no_embeddings_beside_other_models():
    banks = random_banks(torch.rand(20, 4), torch.arange(20) % N_CLASSES, N_CONCEPTS, n_banks=1)
    with pytest.raises(TypeError, match="`controls` to hold concept models, or random banks beside one PostHocCBM"):
        run(TinyConceptModel(dtype=torch.float64), controls=banks)


def test_the_usual_numbers_of_concepts_are_those_that_fit():
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.eye(4)), nn.Linear(4, 5)).eval()
    classes = torch.arange(6) % 5
    batch = torch.rand(6, 3, 8, 8), classes, torch.eye(4)[torch.arange(6) % 4]
    cbm.mean_values = torch.zeros(4)
    table = score_concepts(cbm, [batch], class_concepts=torch.rand(5, 4))
    assert {*table[table.metric == "CEM"]["l"]} == {1, 3}
    for metrics in ([UsualMetrics(top_l=(1, 5))], [CEM(top_l=5)]):
        with pytest.raises(ValueError, match=r"`top_l` to lie in \[1, 4\] but got 5"):
            score_concepts(cbm, [batch], metrics)


def test_clm_is_left_out_for_a_model_without_maps_and_the_reason_is_said() -> None:
    birds = PaintedBirds(12, "test", image_size=32, n_classes=3, n_concepts=8)
    features = seeded(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    linear, head = seeded(nn.Linear(4, 8)), seeded(nn.Linear(8, 3))
    loader = DataLoader(birds, 6)
    with_maps = score_concepts(BottleneckCBM(features, linear, head).eval(), loader)
    model = BottleneckCBM(features, nn.Sequential(linear), head).eval()
    with pytest.warns(UserWarning, match=r"CLM: left out, since the model has no concept maps\. .*") as warned:
        table = score_concepts(model, loader)
    assert len(warned) == 1
    left_out = {*with_maps["metric"]} - {*table["metric"]}
    assert left_out == {"CLM", "part specificity"}
    rows = with_maps[~with_maps["metric"].isin(left_out)].reset_index(drop=True)
    pd.testing.assert_frame_equal(table, rows)
    # A metric that is asked for is not left out.
    with pytest.raises(ValueError, match="no weights to make maps with"):
        score_concepts(model, loader, [CLM()])
