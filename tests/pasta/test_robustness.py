"""Light and strong perturbations: who is paired with what, and that nothing of the user's changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from captum.attr import Saliency
from torch import Tensor, nn

from captum_concepts import explain_func
from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS, Perturbation
from quantus_concepts.pasta.applications.robustness import robustness_pairs

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


class Brightness(nn.Module):
    """Class 0 below a mean of 0.25, class 1 below 0.5625, class 2 above; input is normalised."""

    def __init__(self, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("std", torch.tensor(std)[:, None, None])
        self.dropout = nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        level = self.dropout(images * self.std + self.mean).mean((1, 2, 3))
        return -torch.stack([level - 0.125, level - 0.375, level - 0.75], 1).abs()


def normalised(pixels: Tensor) -> Tensor:
    return (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def even(levels: list[float], size: int = 8) -> Tensor:
    return torch.tensor(levels)[:, None, None, None].expand(-1, 3, size, size).clone()


def explain(model: nn.Module, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return inputs + 100.0 * targets[:, None, None, None]


def run(pixels: Tensor, labels: object, question: str, **kwargs: object):
    settings = {"mean": MEAN, "std": STD, **kwargs}
    return robustness_pairs(Brightness(), normalised(pixels), labels, explain, question=question, **settings)


DARKER = Perturbation("darker", lambda x, m, d: x * (1 - m), "brightness times 1 - magnitude", 0.1, 0.6)
NEGATIVE = Perturbation("negative", lambda x, m, d: 1 - x, "inverts", 0.5, 0.5)


def test_light_and_strong_by_hand():
    # Predicted 0, 1, 1, 2, 2; the third is given as misclassified. Darker by a tenth: 0, 0, -, 2, 1.
    pixels = even([0.2, 0.26, 0.45, 0.9, 0.58])
    labels = [0, 1, 0, 2, 2]
    light = run(pixels, labels, "Q5", perturbations=[DARKER])
    assert light.indices.tolist() == [0, 3]
    assert light.predictions.tolist() == light.perturbed_predictions.tolist() == [0, 2]
    assert light.magnitudes.tolist() == [0.1] * 2
    assert (light.n_wrong, light.n_unmatched, len(light)) == (1, 2, 2)
    torch.testing.assert_close(light.perturbed, 0.9 * pixels[[0, 3]])
    # Four tenths of the brightness: 0.08, 0.104, -, 0.36, 0.232.
    strong = run(pixels, labels, "Q6", perturbations=[DARKER])
    assert strong.indices.tolist() == [1, 3, 4]
    assert strong.perturbed_predictions.tolist() == [0, 1, 0]
    assert strong.magnitudes.tolist() == [0.6] * 3
    assert (strong.n_wrong, strong.n_unmatched) == (1, 1)
    # Explained is the input as the model takes it, for the class that is predicted there.
    before, after = (torch.tensor(classes)[:, None, None, None] for classes in ([1, 2, 2], [0, 1, 0]))
    expected = normalised(pixels[[1, 3, 4]]) + 100 * before
    np.testing.assert_allclose(strong.explanations, expected, atol=1e-4)
    expected = normalised(0.4 * pixels[[1, 3, 4]]) + 100 * after
    np.testing.assert_allclose(strong.perturbed_explanations, expected, atol=1e-4)


def test_others_are_tried_where_the_first_does_not_do():
    # Darker changes neither; the negative changes the first alone: 0.2 becomes 0.8, 0.05 becomes 0.95.
    pixels = even([0.2, 0.05, 0.9, 0.24])
    pairs = run(pixels, None, "Q6", perturbations=[DARKER, NEGATIVE])
    assert pairs.indices.tolist() == [0, 1, 2, 3]
    assert [pairs.names[i] for i in (0, 1, 3)] == ["negative"] * 3
    assert pairs.n_wrong == 0
    light = run(pixels, None, "Q5", perturbations=[DARKER, NEGATIVE])
    assert set(light.names) == {"darker"}
    # The order is drawn for each image, so that both come first about as often.
    both = run(even([0.9] * 60), None, "Q6", perturbations=[DARKER, NEGATIVE])
    assert 15 < both.names.count("darker") < 45


@pytest.fixture(scope="module")
def photographs() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    levels = torch.linspace(0.1, 0.9, 24)[:, None, None, None]
    return (levels + 0.1 * torch.randn(24, 3, 12, 12, generator=generator)).clamp(0, 1)


@pytest.mark.parametrize("question", ["Q5", "Q6"])
def test_every_pair_is_what_the_question_asks_for(photographs, question):
    model = Brightness().eval()
    truth = model(normalised(photographs)).argmax(1)
    truth[::5] = (truth[::5] + 1) % 3
    pairs = run(photographs, truth, question)
    assert pairs.n_wrong == 5
    assert len(pairs) == 24 - pairs.n_wrong - pairs.n_unmatched > 10
    assert (pairs.indices % 5 != 0).all()
    before, after = (model(normalised(images)).argmax(1) for images in (pairs.images, pairs.perturbed))
    assert ((before == after) == (question == "Q5")).all()
    for i, name in enumerate(pairs.names):
        perturbation = PERTURBATIONS[name]
        draws = perturbation.draws(24)[pairs.indices[i]][None]
        expected = perturbation(pairs.images[i][None], 1.0 if question == "Q5" else 5.0, draws=draws)[0]
        torch.testing.assert_close(pairs.perturbed[i], expected, atol=1e-5, rtol=0)


def test_depends_on_the_seed_and_not_on_the_batch(photographs):
    pairs, small = (run(photographs, None, "Q6", seed=2, batch_size=size) for size in (64, 5))
    assert small.names == pairs.names
    assert small.indices.tolist() == pairs.indices.tolist()
    torch.testing.assert_close(small.perturbed, pairs.perturbed)
    assert run(photographs, None, "Q6", seed=3).names != pairs.names


def test_the_model_and_the_generators_are_left_as_they_are(photographs):
    model, state = Brightness().train(), torch.get_rng_state()
    explained = explain_func(Saliency, abs=False)
    pairs = robustness_pairs(model, normalised(photographs), None, explained, question="Q5", mean=MEAN, std=STD)
    assert model.training
    assert model.dropout.training
    assert torch.equal(state, torch.get_rng_state())
    assert pairs.explanations.shape == tuple(pairs.images.shape)


def test_without_any_pair_there_is_a_warning():
    with pytest.warns(UserWarning, match="No image has a perturbation that suits Q6: 1 of 2 are misclassified"):
        pairs = run(even([0.2, 0.05]), [0, 1], "Q6", perturbations=[DARKER])
    assert len(pairs) == 0
    assert (pairs.n_wrong, pairs.n_unmatched) == (1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": even([9.0, 9.0])}, r"`images` to hold images in \[0, 1\]"),
        ({"perturbations": []}, "`perturbations` to hold at least one"),
        ({"perturbations": [DARKER, DARKER]}, "`perturbations` to hold at least one, each once"),
        ({"magnitude": 0}, "`magnitude` to lie in"),
        ({"explain_func": lambda **_: np.zeros(1)}, "`explain_func` to return an explanation for each"),
        ({"model": nn.Identity()}, r"`model` to return shape \(N, K\)"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"model": Brightness((0.0,) * 3, (1.0,) * 3), "images": even([0.125, 0.75]), "labels": None}
    with pytest.raises(ValueError, match=message):
        robustness_pairs(**arguments | {"explain_func": explain, "question": "Q5"} | change)
