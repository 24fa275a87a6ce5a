"""CGIM's truth: from images that fitted nothing it has a range of random banks, and else none."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import PostHocCBM
from quantus_concepts import UsualMetrics, headline, score_concepts

N_CLASSES, N_CONCEPTS = 8, 12
Images = tuple[Tensor, Tensor, Tensor]


@pytest.fixture(scope="module")
def images() -> tuple[Images, Images]:
    """Embeddings of classes whose concept labels are noise, for training and for tests."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(N_CLASSES, 24, generator=generator)

    def draw() -> Images:
        classes = torch.arange(240) % N_CLASSES
        noise = 1.5 * torch.randn(240, 24, generator=generator)
        return means[classes] + noise, classes, (torch.rand(240, N_CONCEPTS, generator=generator) < 0.4).long()

    return draw(), draw()


def shares(of_images: Images) -> Tensor:
    return torch.stack([of_images[2][of_images[1] == k].float().mean(0) for k in range(N_CLASSES)])


@pytest.fixture(scope="module")
def model(images: tuple[Images, Images]) -> PostHocCBM:
    settings = {"names": [f"c{j}" for j in range(N_CONCEPTS)], "n_pos": 50, "n_neg": 50, "min_images": 2}
    with warnings.catch_warnings():
        # Directions of noise are weak.
        warnings.simplefilter("ignore")
        return PostHocCBM.fit(nn.Identity(), [images[0]], **settings, random_banks=39)


def test_truth_that_fitted_the_directions_is_warned_of_and_has_no_range(model, images):
    train, test = images
    torch.testing.assert_close(model.training_concepts.float(), shares(train))
    metrics = UsualMetrics(top_l=[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = score_concepts(model, [test], metrics, class_concepts=shares(test))
    with pytest.warns(UserWarning, match="the shares of the images that the model's directions were fitted to"):
        seen = score_concepts(model, [test], metrics, class_concepts=shares(train))
    for scores, has_range in ((table, True), (seen, False)):
        banks = scores[(scores["what"] == "random range") & (scores["metric"] == "CGIM correlation")]
        assert banks["low"].notna().any() == has_range
        verdict = headline(scores).set_index(["metric", "explanation"])["verdict"]
        assert (verdict["CGIM correlation", "effect"] == "–") == (not has_range)
        # The model's directions know nothing.
        assert verdict["CEM gain", "effect"] in ("within", "no verdict")
    # The numbers themselves stay.
    same = (table["metric"] != "CGIM") & (table["metric"] != "CGIM correlation") & (table["baseline"] == "")
    np.testing.assert_array_equal(table.loc[same, "value"], seen.loc[same, "value"])


def test_class_recital_names_the_concepts_of_the_training_images(model, images):
    train, test = images
    truth = {"training_concepts": shares(train)}
    table = score_concepts(model, [test], UsualMetrics(top_l=[1]), class_concepts=shares(test), truth=truth)
    recital = table[(table["baseline"] == "class recital") & (table["set"] == "all") & (table["what"] == "baseline")]
    named = shares(train).argmax(1)[test[1]]
    assert recital["value"].item() == pytest.approx(test[2].gather(1, named[:, None]).float().mean().item())
