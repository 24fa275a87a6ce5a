from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.functional import cgim, point_hits
from quantus_concepts.studies.concepts.baselines import EarlierPoints, GaussianRegion
from quantus_concepts.studies.concepts.collect import ConceptScores, collect
from quantus_concepts.studies.concepts.results import GAUSSIAN, OTHER_IMAGE
from quantus_concepts.studies.loading import collate, sample_loader
from reference.evaluation import evaluate
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N, SIZE = 11, (12, 15)
PARTS = torch.tensor([2, 0, -1, 1, 0])
TOPS, ALPHAS = (1, 2, 4), (1.0, 3.0, 12.0)


def make_samples(seed: int = 0) -> list[ConceptSample]:
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    samples = []
    for _ in range(N):
        points = rand(3, 2, 2) * torch.tensor([SIZE[1], SIZE[0]]) - 0.5
        points[rand(3, 2) < 0.4] = torch.nan
        label = int(rand(1) * N_CLASSES)
        samples.append(ConceptSample(rand(3, *SIZE), label, (rand(N_CONCEPTS) < 0.4).double(), points))
    return samples


SAMPLES = make_samples()
CLASS_CONCEPTS = torch.rand(N_CLASSES, N_CONCEPTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def run(model: nn.Module, samples: list[ConceptSample] = SAMPLES, batch_size: int = 4, **changed) -> ConceptScores:
    settings = {"tops": TOPS, "alphas": ALPHAS, "value_threshold": 0.1} | changed
    return collect(model, sample_loader(samples, batch_size), PARTS, CLASS_CONCEPTS, **settings)


@pytest.mark.parametrize("kind", [SharingConceptModel, TinyConceptModel])
def test_every_variant_agrees_with_the_formulas(kind):
    model = kind(dtype=torch.float64)
    batch = collate(SAMPLES)
    values = model.concept_predictor(batch.image).detach().numpy()
    linear = model.head[0]
    expected = evaluate(
        values=values,
        theta=linear.weight.detach().numpy(),
        bias=linear.bias.detach().numpy(),
        maps=model.concept_maps(batch.image).detach().numpy(),
        labels=batch.label.numpy(),
        present=batch.concepts.numpy(),
        points=batch.points.numpy(),
        parts=PARTS.numpy(),
        size=SIZE,
        tops=TOPS,
        alphas=ALPHAS,
    )

    scores = run(model)

    np.testing.assert_array_equal(scores.predicted, expected[("predicted",)])
    np.testing.assert_array_equal(scores.labels, [sample.label for sample in SAMPLES])
    for (name, top), column in scores.cem.items():
        np.testing.assert_allclose(column, expected["cem", name, top], atol=1e-6)
    assert set(scores.clm) == {
        (name, top, alpha) for name in scores.class_importance for top in TOPS for alpha in ALPHAS
    }
    for key, column in scores.clm.items():
        np.testing.assert_allclose(column, expected["clm", *key], atol=1e-6)
    assert scores.correct.any()
    for name, means in scores.class_importance.items():
        np.testing.assert_allclose(means, expected["means", name], atol=1e-9)
        truth = torch.as_tensor(means)
        np.testing.assert_allclose(scores.cgim_concept[name], cgim(truth, CLASS_CONCEPTS), atol=1e-9)
        np.testing.assert_allclose(scores.cgim_class[name], cgim(truth, CLASS_CONCEPTS, "class"), atol=1e-9)
    present = batch.concepts.numpy()
    np.testing.assert_allclose(scores.density, present.mean(1), atol=1e-6)
    np.testing.assert_allclose(scores.concept_accuracy, ((values > 0.1) == (present == 1)).mean(1), atol=1e-6)


def test_concepts_that_speak_for_the_class_by_being_absent():
    model = TinyConceptModel(dtype=torch.float64)
    values = model.concept_predictor(collate(SAMPLES).image).detach().numpy()
    scores = run(model)
    weight = model.head[0].weight.detach().numpy()[scores.predicted]
    first = (weight * values).argmax(1)
    expected = values[np.arange(N), first] < 0
    np.testing.assert_array_equal(scores.negative_first, expected)
    assert 0 < expected.sum() < N
    assert np.isnan(run(model, importances=("value",)).negative_first).all()


def flattened(scores: ConceptScores) -> np.ndarray:
    tables = (scores.cem, scores.clm, scores.clm_baselines)
    return np.stack([column for table in tables for column in table.values()])


@pytest.mark.parametrize("batch_size", [1, 3, N])
def test_scores_do_not_depend_on_the_batch_size(batch_size):
    model = SharingConceptModel(dtype=torch.float64)
    whole, cut = run(model, batch_size=5), run(model, batch_size=batch_size)
    np.testing.assert_allclose(flattened(cut), flattened(whole), atol=1e-6)
    for name, means in whole.class_importance.items():
        np.testing.assert_allclose(cut.class_importance[name], means, atol=1e-12)


def test_the_backbone_runs_once_a_batch_and_the_model_is_left_as_it_was():
    model = SharingConceptModel()
    model.train()
    model.features[1].eval()
    before = [module.training for module in model.modules()]
    statistics = model.features[1].running_mean.clone()
    random_state = torch.random.get_rng_state()
    run(model, batch_size=4)
    assert model.runs == 3
    assert [module.training for module in model.modules()] == before
    assert torch.equal(model.features[1].running_mean, statistics)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), random_state)


def test_without_parts_there_is_existence_but_no_location():
    scores = collect(
        SharingConceptModel(), sample_loader(SAMPLES, 4), torch.full((N_CONCEPTS,), -1), CLASS_CONCEPTS, tops=(1, 5)
    )
    assert scores.clm == {}
    assert scores.clm_baselines == {}
    assert len(scores.cem) == 6


def test_location_has_only_the_l_that_enough_concepts_have_a_part_for():
    parts = torch.tensor([0, -1, -1, 1, -1])
    scores = collect(SharingConceptModel(), sample_loader(SAMPLES, 4), parts, CLASS_CONCEPTS, tops=(1, 2, 3))
    assert {top for _, top, _ in scores.clm} == {1, 2}


def test_the_other_image_is_an_earlier_one_and_every_earlier_one_occurs():
    points = torch.arange(200.0).view(200, 1, 1, 1).expand(200, 1, 1, 2)
    whole = EarlierPoints(3).draw(points)[:, 0, 0, 0]
    cut = EarlierPoints(3)
    pieces = torch.cat([cut.draw(piece) for piece in points.split(7)])[:, 0, 0, 0]
    assert whole[0].isnan()
    assert torch.equal(whole[1:], pieces[1:])
    assert (whole[1:] < torch.arange(1, 200)).all()
    # Uniform on [0, 1) the ratio has mean 1/2 and standard error 0.0205 over 199 images: four of them.
    assert abs((whole[1:] / torch.arange(1, 200)).mean() - 0.5) < 0.082 + 0.02


def test_parts_of_another_image_are_scored_on_the_own_map():
    """With one concept and all points alike, the other image's points are the own ones."""
    same = SAMPLES[3].points.nan_to_num(4.0)
    samples = [sample._replace(points=same) for sample in SAMPLES]
    scores = run(SharingConceptModel(), samples)
    for (name, top, alpha), column in scores.clm_baselines.items():
        if name == OTHER_IMAGE:
            own = scores.clm["contribution", top, alpha]
            assert np.isnan(column[0])
            np.testing.assert_allclose(column[1:], own[1:])


@pytest.mark.parametrize("size", [(9, 9), (10, 14)])
def test_the_gaussian_region_agrees_with_point_hits_of_a_gaussian_map(size):
    rows, columns = torch.meshgrid(torch.arange(size[0]), torch.arange(size[1]), indexing="ij")
    # Whole numbers in place of a Gaussian of them: the order and the ties are the same, exactly.
    distance = ((2 * rows - size[0] + 1) * size[1]) ** 2 + ((2 * columns - size[1] + 1) * size[0]) ** 2
    places = torch.stack([columns, rows], -1).view(-1, 1, 2).double()
    expected = point_hits((-distance).double().expand(len(places), *size), places, size, ALPHAS)
    assert torch.allclose(GaussianRegion(ALPHAS).hits(places, size), expected)
    assert GaussianRegion((1.0,)).hits(torch.tensor([[[torch.nan, 1.0]]]), size).isnan().all()


def test_the_gaussian_counts_the_best_of_several_places():
    scores = GaussianRegion((1.0,)).hits(
        torch.tensor([[[0.0, 0.0], [6.0, 6.0]], [[0.0, 0.0], [torch.nan] * 2]]), (13, 13)
    )
    assert scores.tolist() == [[1.0], [0.0]]
    assert GAUSSIAN in {name for name, _, _ in run(SharingConceptModel()).clm_baselines}


def _with_nan_image() -> list[ConceptSample]:
    image = SAMPLES[6].image.clone()
    image[0, 0, 0] = torch.nan
    return [*SAMPLES[:6], SAMPLES[6]._replace(image=image), *SAMPLES[7:]]


class _NanMaps(SharingConceptModel):
    def maps_from_features(self, features: Tensor, concepts: Tensor | None = None) -> Tensor:
        maps = super().maps_from_features(features, concepts).clone()
        maps[1] = torch.nan
        return maps


def _broken_weights() -> nn.Module:
    model = SharingConceptModel()
    with torch.no_grad():
        model.head[0].bias[0] = torch.nan
    return model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": _with_nan_image()}, r"an image of image 6 \(from 0\)|image 6 \(from 0\)"),
        ({"model": _NanMaps()}, r"concept map of image 1 \(from 0\)"),
        ({"model": _broken_weights()}, r"concept value or logit of image 0"),
        ({"tops": (6,)}, r"`tops` to lie in \[1, 5\] but got 6"),
        ({"tops": ()}, "`tops`"),
        ({"alphas": (0.0,)}, r"`alphas` to lie in \(0, 12\]"),
        ({"alphas": (13,)}, r"`alphas` to lie in \(0, 12\]"),
        ({"importances": ("values",)}, "Did you mean 'value'"),
        ({"samples": [SAMPLES[0]._replace(label=N_CLASSES)]}, r"labels in 0\.\.3"),
        ({"samples": [SAMPLES[0]._replace(concepts=torch.zeros(4))]}, r"`concepts` to have shape \(B, L\)"),
        ({"samples": [SAMPLES[0]._replace(concepts=torch.full((5,), 0.5))]}, "only 0 and 1"),
        ({"samples": [SAMPLES[0]._replace(points=torch.zeros(1, 1, 2))]}, "below P = 1"),
        ({"samples": [SAMPLES[0], SAMPLES[1]._replace(image=torch.zeros(3, 4, 4))]}, "one shape"),
        ({"samples": []}, "at least one image"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    settings = {"model": SharingConceptModel()} | arguments
    with pytest.raises(ValueError, match=message):
        run(**settings)


def test_an_empty_loader_is_refused():
    with pytest.raises(ValueError, match="at least one batch"):
        collect(SharingConceptModel(), [], PARTS, CLASS_CONCEPTS, tops=(1,))
