"""Locality as a Quantus metric and as a column: models that look at the part, elsewhere, everywhere or nowhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from captum_concepts import ConceptBank, PostHocCBM
from quantus_concepts import Locality, painted_subject, score_concepts
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.functional import hide_part, locality

N = 40
DRAWN = torch.Generator().manual_seed(0)
IMAGES = torch.rand(N, 1, 12, 24, generator=DRAWN)
#: Three parts, and no concept about the last of them.
POINTS = torch.tensor([[4.0, 6.0], [12.0, 6.0], [20.0, 6.0]]).repeat(N, 1, 1)
IMAGES[:, :, 4:9, 2:7] += 2 * torch.rand(N, 1, 1, 1, generator=DRAWN)
IMAGES[:, :, 4:9, 10:15] += 2 * torch.rand(N, 1, 1, 1, generator=DRAWN)
CLASSES = torch.zeros(N, dtype=torch.int64)


class Thirds(nn.Module):
    """The means of the left, the middle and the right third of an image, as three channels."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), (1, 3)).permute(0, 3, 1, 2)


def model_of(*cavs: list[float]) -> PostHocCBM:
    return PostHocCBM(Thirds(), ConceptBank(torch.tensor(cavs)), nn.Linear(len(cavs), 2), values="raw").eval()


OWN, OTHER, ALL = ([1.0, 0, 0], [0, 1.0, 0]), ([0, 1.0, 0], [1.0, 0, 0]), ([1.0, 1, 1], [1.0, 1, 1])


def scores_of(model: PostHocCBM, **truth: object) -> np.ndarray:
    metric = Locality([0, 1], **{"points": POINTS} | truth)
    return np.array(metric(model, IMAGES.numpy(), CLASSES.numpy()))


def test_models_that_look_at_the_part_elsewhere_and_everywhere():
    own, other = scores_of(model_of(*OWN)), scores_of(model_of(*OTHER))
    assert own.min() > 0
    np.testing.assert_allclose(own, -other, rtol=1e-4)
    everywhere = scores_of(model_of(*ALL))
    # One number for both concepts: what the one has more the other has less.
    np.testing.assert_allclose(everywhere, 0, atol=1e-5)


def test_the_score_has_the_numbers_of_the_formula():
    model = model_of(*OWN)
    values = model.concept_predictor(IMAGES).detach()
    hidden = torch.stack([model.concept_predictor(hide_part(IMAGES, POINTS[:, p : p + 1])) for p in range(3)], 1)
    expected = (locality(values, hidden.detach(), [0, 1]) / values.std(0)).mean(1)
    np.testing.assert_allclose(scores_of(model), expected, rtol=1e-4)
    # The images without each part, in place of discs.
    without = torch.stack([hide_part(IMAGES, POINTS[:, p : p + 1]) for p in range(3)], 1)
    np.testing.assert_allclose(scores_of(model, without=without), expected, rtol=1e-4)
    np.testing.assert_allclose(scores_of(model, without=IMAGES[:, None].expand(-1, 3, -1, -1, -1)), 0)


def test_undefined_is_counted_by_reason():
    points = POINTS.clone()
    points[0], points[1, 1:] = torch.nan, torch.nan
    metric = Locality([0, 1], points)
    with pytest.warns(UserWarning, match="no concept's part is visible together with another"):
        scores = metric(model_of(*OWN), IMAGES.numpy(), CLASSES.numpy())
    # The other part that the second image has left is about no concept.
    assert np.isnan(scores).nonzero()[0].tolist() == [0, 1]
    constant = model_of(*OWN)
    constant.concept_layer.cavs.zero_()
    with pytest.warns(UserWarning, match="do not vary"):
        assert np.isnan(Locality([0, 1], POINTS)(constant, IMAGES.numpy(), CLASSES.numpy())).all()
    with pytest.raises(ValueError, match="asks a concept model"):
        metric(nn.Flatten(), IMAGES.numpy(), CLASSES.numpy())
    with pytest.raises(ValueError, match="`points`"):
        Locality([0, 1])(model_of(*OWN), IMAGES.numpy(), CLASSES.numpy())


def test_a_column_beside_random_banks_that_share_the_passes():
    model = model_of(*OWN)
    model.features.calls = 0
    model.features.register_forward_hook(lambda module, *_: setattr(module, "calls", module.calls + 1))
    loader = DataLoader(TensorDataset(IMAGES, CLASSES), 16)
    cavs = torch.randn(5, 2, 3, generator=DRAWN)
    banks = [PostHocCBM(model.features, ConceptBank(own), nn.Linear(2, 2), values="raw").eval() for own in cavs]
    truth = {"points": POINTS, "part_of_concept": [0, 1]}
    metrics = [Locality([0, 1])]
    table = score_concepts(model, loader, metrics, truth=truth, controls=banks).query("metric == 'locality'")
    own = table[table["model"] == "model"]
    # Three batches, and each of two parts hidden.
    assert model.features.calls == 9
    np.testing.assert_allclose(own["value"], scores_of(model).mean(), rtol=1e-4)
    assert set(table["model"]) == {"model", "control"}
    # Truth of the metric's own is shared by all models, too.
    without = torch.stack([hide_part(IMAGES, POINTS[:, p : p + 1]) for p in range(3)], 1)
    for given in ({"points": POINTS}, {"points": POINTS, "without": without}):
        model.features.calls = 0
        bound = score_concepts(model, loader, [Locality([0, 1], **given)], controls=banks).query("metric == 'locality'")
        assert model.features.calls == 9
        np.testing.assert_allclose(bound["value"], table["value"], rtol=1e-4)
    # Two metrics with different truth: each hides the parts once, whatever the number of banks.
    model.features.calls = 0
    both = {"discs": Locality([0, 1], POINTS), "without": Locality([0, 1], POINTS, without)}
    found = score_concepts(model, loader, both, controls=banks).set_index("metric").loc
    assert model.features.calls == 15
    for name in both:
        np.testing.assert_allclose(found[name]["value"], table["value"], rtol=1e-4)
    every = score_concepts(model, loader, "all", truth=truth)
    assert "locality" in set(every["metric"])
    assert "locality" not in set(score_concepts(model, loader, truth=truth)["metric"])


@pytest.mark.filterwarnings("ignore:.*fewer images than n_pos")
def test_a_model_that_knows_only_its_own_images_is_not_asked_about_others():
    subject = painted_subject(60, 20, image_size=32, epochs=1, random_directions=3)
    controls = subject.baselines
    table = score_concepts(subject.models, subject.loader(), "all", controls=controls)
    rows = table[table["metric"] == "locality"].set_index("model")
    assert rows.loc["oracle", "undefined"] == 20
    assert rows.loc["oracle", "reason"] == "the model cannot be asked about changed images (20 of 20 samples)"
    assert rows.drop("oracle")["value"].notna().all()
    assert {*rows.index} == {*subject.models, *controls}


def test_painted_birds_without_a_part():
    birds = PaintedBirds(n_images=8, image_size=64, n_classes=4, n_concepts=30)
    for part, name in enumerate(birds.part_names):
        for index in range(2):
            image = birds.images([index])[0]
            changed, seen = (birds.without_part(index, name) != image).any(0), birds.part_masks(index)[part]
            assert seen.any() == birds.points[index, part].isfinite().all()
            # The part itself, its outline, and little else.
            assert not seen.any() or changed[seen].float().mean() > 0.5
            assert changed[~seen].float().mean() < 0.05
    kept = PaintedBirds(n_images=8, image_size=64, n_classes=4, n_concepts=30, keep=True)
    assert torch.equal(kept.without_part(0, 0), birds.without_part(0, "back"))
    with pytest.raises(ValueError, match="`part`"):
        birds.without_part(0, "hat")
