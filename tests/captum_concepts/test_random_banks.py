"""Random banks kept beside a model: drawn as by themselves, written, read, and used as the baseline."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM, ResidualCBM, embed
from captum_concepts.pictures.views import concept_views
from quantus_concepts import score_concepts
from quantus_concepts.functional import random_banks
from quantus_concepts.metrics import UsualMetrics
from simulated_device import simulated_device
from tiny_models import seeded
from untouched import untouched

N, L, K = 40, 3, 2
DRAWN = torch.Generator().manual_seed(1)
IMAGES = torch.rand(N, 3, 8, 8, generator=DRAWN)
LABELS = torch.arange(N) % K
CONCEPTS = torch.randint(0, 2, (N, L), generator=DRAWN)
BATCHES = list(zip(IMAGES.split(9), LABELS.split(9), CONCEPTS.split(9), strict=True))


def network() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval())


def fit_model(values: str = "margin", **settings: object) -> PostHocCBM:
    bank = ConceptBank.random(L, 4, ["a", "b", "c"], seed=2, mean=torch.ones(4))
    return PostHocCBM.fit(network(), BATCHES, bank=bank, values=values, random_banks=5, seed=3, **settings)


@pytest.mark.parametrize("values", ["margin", "raw"])
def test_they_are_those_of_the_function(values: str) -> None:
    model = fit_model(values)
    features, labels, _ = embed(network(), BATCHES)
    expected = random_banks(features, labels, L, K, n_banks=5, values=values, seed=3)
    with untouched(model):
        models = model.random_models()
    assert len(models) == 5
    for random_model, bank in zip(models, expected, strict=True):
        assert random_model.features is model.features
        # Up to the rounding of a division by the vectors' length, which is 1.
        assert torch.allclose(random_model.concept_predictor(IMAGES), bank.concept_values(features, values), atol=1e-6)
        assert torch.allclose(random_model(IMAGES), bank.head(bank.concept_values(features, values)), atol=1e-5)
    with simulated_device() as simulation:
        moved = copy.deepcopy(model).to(simulation.device)
        logits = [random_model(IMAGES.to(simulation.device)).cpu() for random_model in moved.random_models()]
    assert all(map(torch.equal, logits, [random_model(IMAGES) for random_model in models]))
    # The model itself is the one without them.
    bare = PostHocCBM.fit(network(), BATCHES, bank=model.bank, values=values, seed=3)
    assert torch.equal(model(IMAGES), bare(IMAGES))
    assert bare.random_models() == []
    assert model.state_dict().keys() == bare.state_dict().keys()


def test_files_keep_random_banks(tmp_path: Path) -> None:
    model = fit_model()
    residual = ResidualCBM(model, nn.Linear(4, K))
    for kind, saved in ((PostHocCBM, model), (ResidualCBM, residual)):
        saved.save(tmp_path / "model.safetensors")
        loaded = kind.load(tmp_path / "model.safetensors", network())
        for actual, expected in zip(loaded.random_models(), saved.random_models(), strict=True):
            assert torch.equal(actual(IMAGES), expected(IMAGES))
    PostHocCBM(network(), model.bank, model.head).save(tmp_path / "bare.safetensors")
    with safe_open(tmp_path / "bare.safetensors", "pt") as file:
        assert not [name for name in file.keys() if "random" in name]  # noqa: SIM118
    assert PostHocCBM.load(tmp_path / "bare.safetensors", network()).random_banks == ()


def fit_bottleneck(n_banks: int = 5, **settings: object) -> BottleneckCBM:
    names = ["a", "b", "c"]
    return BottleneckCBM(network(), seeded(nn.Linear(4, L)), seeded(nn.Linear(L, K)), names).fit_random_banks(
        BATCHES, n_banks=n_banks, seed=3, **settings
    )


@pytest.mark.parametrize("values", ["margin", "raw"])
def test_they_are_fitted_for_a_model_that_was_read(values: str) -> None:
    model = fit_model(values)
    bare = PostHocCBM(network(), model.bank, model.head, values)
    runs: list[int] = []
    bare.features.register_forward_hook(lambda *_: runs.append(1))
    with untouched(bare):
        assert bare.fit_random_banks(BATCHES, n_banks=5, seed=3) is bare
    assert len(runs) == len(BATCHES)
    for actual, expected in zip(bare.random_banks, model.random_banks, strict=True):
        assert torch.equal(actual.cavs, expected.cavs)
        assert torch.equal(actual.intercepts, expected.intercepts)
        assert torch.allclose(actual.head.weight, expected.head.weight, atol=1e-6)
    # Of embeddings no pass is needed, and a new call replaces what is there.
    bare.fit_random_banks(embed(network(), BATCHES), n_banks=2)
    assert len(runs) == len(BATCHES)
    assert len(bare.random_banks) == len(bare.random_models()) == 2
    with pytest.raises(ValueError, match="to give class labels"):
        bare.fit_random_banks(embed(network(), BATCHES)._replace(labels=None))
    with pytest.raises(ValueError, match="`n_banks` to be at least 1"):
        bare.fit_random_banks(BATCHES, n_banks=0)


def test_a_bottleneck_has_them_too(tmp_path: Path) -> None:
    model = fit_bottleneck()
    features, labels, _ = embed(network(), BATCHES)
    expected = list(random_banks(features, labels, L, K, n_banks=5, seed=3))
    model.class_names, model.normalisation = ["x", "y"], ((0.5,) * 3, (0.25,) * 3)
    residual = ResidualCBM(model, nn.Linear(4, K)).eval()
    with untouched(model):
        models = model.random_models()
    for random_model, bank in zip(models, expected, strict=True):
        assert random_model.features is model.features
        assert (random_model.class_names, random_model.normalisation) == (["x", "y"], model.normalisation)
        assert random_model.concept_layer.names == ["a", "b", "c"]
        assert torch.allclose(random_model.concept_predictor(IMAGES), bank.concept_values(features), atol=1e-6)
        assert torch.allclose(random_model.concept_maps(IMAGES).mean((2, 3)) * 4, features @ bank.cavs.T, atol=1e-5)
    # As the model's, they are of its type, also where it was changed.
    for random_model, wide in zip(models, copy.deepcopy(model).double().random_models(), strict=True):
        assert torch.allclose(wide(IMAGES.double()), random_model(IMAGES).double(), atol=1e-5)
        assert not wide.head.training
    for kind, saved in ((BottleneckCBM, model), (ResidualCBM, residual)):
        saved.save(tmp_path / "model.safetensors")
        loaded = kind.load(tmp_path / "model.safetensors", network())
        assert len(loaded.random_banks) == 5
        for actual, same in zip(loaded.random_models(), models, strict=True):
            assert torch.equal(actual(IMAGES), same(IMAGES))
    again = residual.fit_random_banks(BATCHES, n_banks=2)
    assert len(again.random_models()) == 2
    table = score_concepts(model, BATCHES, class_concepts=torch.eye(K, L), metrics=UsualMetrics(top_l=[1]))
    assert set(table["model"]) == {"model", "random banks"}


def test_score_concepts_has_the_baseline_by_itself() -> None:
    model = fit_model()
    runs: list[int] = []
    model.features.register_forward_hook(lambda *_: runs.append(1))
    class_concepts = torch.rand(K, L, generator=torch.Generator().manual_seed(3))
    settings = {"class_concepts": class_concepts, "metrics": UsualMetrics(top_l=[1])}
    table = score_concepts(model, BATCHES, **settings)
    assert len(runs) == len(BATCHES)
    expected = score_concepts(model, BATCHES, **settings, controls={"random banks": model.random_models()})
    assert set(table["model"]) == {"model", "random banks"}
    assert table.equals(expected)


def test_ranges_of_a_view_by_hand() -> None:
    model = fit_model()
    views = concept_views(model, IMAGES[:4], batch_size=3)
    with torch.no_grad():
        values = torch.cat([random_model.concept_predictor(IMAGES[:4]) for random_model in model.random_models()], 1)
        heads = [random_model.head.weight for random_model in model.random_models()]
        chosen = [(theta - theta.mean(0))[views.predicted] for theta in heads]
        # The bank was given: the level is the mean, which is 0 of random margins.
        levels = torch.cat([random_model.mean_values for random_model in model.random_models()])
    ends = Tensor([0.025, 0.975])
    assert torch.allclose(views.random_values, values.quantile(ends, 1).T)
    parts = (values - levels) * torch.cat(chosen, 1)
    assert torch.allclose(views.random_parts, parts.quantile(ends, 1).T, atol=1e-6)
    bare = concept_views(PostHocCBM(network(), model.bank, model.head), IMAGES[:4])
    assert bare.random_values is None
