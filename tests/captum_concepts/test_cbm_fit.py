"""Post-hoc concept bottleneck models fitted in one pass over the images."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from captum_concepts import ConceptBank, PostHocCBM, embed, fit_elastic_net, fit_logistic
from tiny_models import seeded
from untouched import untouched

D = 4


def labelled_images(n=90, seed=3):
    """Noise whose red is brighter if concept 0 holds and whose blue if concept 1 does; class = their sum."""
    generator = torch.Generator().manual_seed(seed)
    concepts = (torch.rand(n, 2, generator=generator) < 0.5).long()
    x = torch.rand(n, 3, 6, 6, generator=generator)
    x[:, 0] += concepts[:, 0, None, None]
    x[:, 2] += concepts[:, 1, None, None]
    return x, concepts.sum(dim=1), concepts


def loader_of(*tensors, **kwargs):
    return DataLoader(TensorDataset(*tensors), batch_size=32, **kwargs)


FEW = {"n_pos": 15, "n_neg": 15}


class Counted(nn.Module):
    """Passes images through a convolution and counts them."""

    def __init__(self):
        super().__init__()
        self.conv = seeded(nn.Conv2d(3, D, 1), 4)
        self.drop = nn.Dropout(0.9)
        self.seen = []
        self.modes = set()

    def forward(self, x):
        self.seen.append(len(x))
        self.modes |= {self.training, self.drop.training, torch.is_grad_enabled()}
        return self.drop(self.conv(x))


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_fit_learns_concepts_and_classes_in_one_pass(method):
    features = Counted()
    features.conv.eval()
    x, y, concepts = labelled_images()
    loader = loader_of(x, y, concepts, torch.zeros(90, 1))
    with untouched(features):
        cbm = PostHocCBM.fit(features, loader, names=["red", "blue"], method=method, **FEW)
        separate = PostHocCBM.fit(features, loader_of(x, y), concept_labels=concepts.numpy(), method=method, **FEW)
    assert torch.equal(cbm.bank.cavs, separate.bank.cavs)
    assert torch.equal(cbm.head.weight, separate.head.weight)
    assert features.seen == [32, 32, 26] * 2
    assert features.modes == {False}
    assert cbm.bank.names == ["red", "blue"]

    cbm.eval()
    x, y, concepts = labelled_images(seed=9)
    with torch.no_grad():
        assert ((cbm.concept_predictor(x) > 0) == concepts).float().mean() > 0.95
        assert (cbm(x).argmax(dim=1) == y).float().mean() > 0.9


def test_fit_is_the_steps_it_is_made_of():
    x, y, concepts = labelled_images()
    features = Counted()
    loader = loader_of(x, y, concepts)
    embeddings = embed(features, loader)
    bank = ConceptBank.fit(embeddings.features, embeddings.concept_labels, seed=6, C=0.1, **FEW)
    u = (embeddings.features @ bank.cavs.T + bank.intercepts) / bank.norms
    head = fit_logistic(u, embeddings.labels)
    cbm = PostHocCBM.fit(features, loader, seed=6, C=0.1, **FEW)
    np.testing.assert_allclose(cbm.bank.cavs, bank.cavs, atol=1e-6)
    np.testing.assert_allclose(cbm.head.weight.detach(), head.weight.detach(), rtol=1e-3)


@pytest.mark.parametrize("values", ["raw", "margin"])
def test_fit_with_elastic_net(values):
    x, _, concepts = labelled_images()
    # A class for each corner of a square: a line separates each from the rest, as one-against-all heads need.
    y = concepts @ torch.tensor([1, 2])
    loader = loader_of(x, y, concepts)
    cbm = PostHocCBM.fit(Counted(), loader, head="elastic_net", values=values, seed=2, **FEW).eval()
    assert cbm.values == values
    expected = fit_elastic_net(cbm.concept_predictor(x).detach(), y, seed=2)
    np.testing.assert_allclose(cbm.head.weight.detach(), expected.weight.detach(), rtol=1e-3)
    assert (cbm(x).argmax(dim=1) == y).float().mean() > 0.9


def test_fit_with_a_head_of_the_user():
    x, y, concepts = labelled_images()
    arguments = []
    head = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))

    def train(values, labels):
        arguments.append((values, labels))
        return head

    cbm = PostHocCBM.fit(Counted(), loader_of(x, y, concepts), head=train, **FEW).eval()
    assert cbm.head is head
    np.testing.assert_allclose(arguments[0][0], cbm.concept_predictor(x).detach(), atol=1e-5)
    assert torch.equal(arguments[0][1], y)


X, Y, V = labelled_images(40)


@pytest.mark.parametrize(
    ("loader", "kwargs", "message"),
    [
        (loader_of(X), {}, r"start with \(images, labels, concept_labels\), .* but got images\. "),
        ([(X, Y[:3], V)], {}, r"`labels` to have shape \(N,\) = \(40,\)"),
        ([(X, Y, V + 1)], {}, "only 0 and 1 but got 2"),
        ([(X * float("nan"), Y, V)], {}, "`loader` to be finite"),
        (loader_of(X, Y, shuffle=True), {"concept_labels": V}, "but it has a sampler"),
        (loader_of(X, Y), {"concept_labels": V[:30]}, r"\(40, \*\) but got \(30, 2\)"),
        (loader_of(X, Y, V), {"bank": ConceptBank(np.eye(17))}, "with d = 17, the width of the concepts"),
        ([], {}, "`loader` to give at least one batch"),
        (loader_of(X, Y, V), {"bank": ConceptBank(np.eye(3)), "names": ["a"]}, "`bank`.* alone but got `names`"),
        (loader_of(X, Y, V), {"class_names": ["a"]}, "`n_classes` to be at least"),
        (loader_of(X, Y, V), {"class_names": ["a"], "n_classes": 3}, "`class_names` to hold K = 3 names but got 1"),
    ],
)
def test_bad_input_of_fit(loader, kwargs, message):
    with pytest.raises(ValueError, match=message):
        PostHocCBM.fit(Counted(), loader, **kwargs, **({} if "bank" in kwargs else {"n_pos": 5, "n_neg": 5}))


def test_settings_of_a_fit_are_those_of_the_bank():
    embeddings = embed(Counted(), loader_of(X, Y, V))
    settings = {"method": "mean", "n_pos": 9, "n_neg": 8, "hold_back": 0.4, "C": 0.5}
    bank = ConceptBank.fit(embeddings.features, V, seed=2, **settings)
    cbm = PostHocCBM.fit(Counted(), loader_of(X, Y, V), seed=2, **settings)
    assert cbm.bank.settings == bank.settings
    np.testing.assert_allclose(cbm.bank.cavs, bank.cavs, atol=1e-6)
    with pytest.raises(TypeError, match=r"PostHocCBM.fit has no argument `n_poss`. Did you mean `n_pos`\?"):
        PostHocCBM.fit(Counted(), [], n_poss=5)
    with pytest.raises(ValueError, match="`C` to lie in"):
        PostHocCBM.fit(Counted(), [], C=0)
    with pytest.raises(ValueError, match=r"`bank`.* alone but got `n_pos`"):
        PostHocCBM.fit(Counted(), [], bank=ConceptBank(np.eye(3)), n_pos=5)


def test_fit_takes_a_backbone_of_half_precision():
    x, y, concepts = labelled_images()
    cbm = PostHocCBM.fit(Counted().bfloat16(), loader_of(x.bfloat16(), y, concepts), **FEW).eval()
    u = cbm.concept_predictor(x.bfloat16())
    assert u.dtype == torch.float32
    assert ((u > 0) == concepts).float().mean() > 0.9
