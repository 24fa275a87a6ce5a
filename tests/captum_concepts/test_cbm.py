"""Values, maps and logits of concept models, by hand and whatever form their parts have."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from captum_concepts.backbones import Backbone
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from tiny_models import seeded

D, L, K = 4, 5, 3


def backbone():
    return seeded(nn.Sequential(nn.Conv2d(3, D, 3), nn.BatchNorm2d(D), nn.Tanh(), nn.Dropout(0.5)))


def random_bank(n_concepts=L, d=D, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return ConceptBank(
        torch.randn(n_concepts, d, generator=generator),
        torch.randn(n_concepts, generator=generator),
        [f"name {j}" for j in range(n_concepts)],
        settings={"method": "svm"},
    )


def images(n=6, size=8):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(2))


def post_hoc(values="margin", **kwargs):
    return PostHocCBM(backbone(), random_bank(), seeded(nn.Linear(L, K)), values, **kwargs).eval()


def bottleneck(**kwargs):
    return BottleneckCBM(backbone(), seeded(nn.Linear(D, L)), seeded(nn.Linear(L, K)), **kwargs).eval()


MODELS = [post_hoc, lambda: post_hoc("raw"), bottleneck]


def test_values_and_maps_by_hand():
    # Maps of two channels on a 1 x 2 grid: means 2 and 4. Concept 0: 3 * 2 + 4 * 4 = 22; |c| = 5, b = 3.
    features = torch.tensor([[[[1.0, 3.0]], [[8.0, 0.0]]]])
    bank = ConceptBank([[3.0, 4.0], [0.0, -1.0]], [3.0, 0.0])
    cases = {"raw": [[22.0, -4.0]], "margin": [[5.0, -4.0]]}
    for values, expected in cases.items():
        cbm = PostHocCBM(nn.Identity(), bank, nn.Linear(2, 2), values)
        np.testing.assert_allclose(cbm.values_from_features(features), expected, atol=1e-6)
        # Left pixel of concept 0: half of 3 * 1 + 4 * 8; right pixel: half of 3 * 3 + 4 * 0.
        np.testing.assert_allclose(cbm.maps_from_features(features), [[[[17.5, 4.5]], [[-4.0, 0.0]]]], atol=1e-6)


def test_maps_decompose_raw_values_and_logits_under_mean_pooling():
    plain = bottleneck(activation=None)
    for cbm, offset in ((post_hoc("raw"), 0), (plain, plain.concept_layer.layer.bias)):
        with torch.no_grad():
            features = cbm.features(images())
            maps, values = cbm.maps_from_features(features), cbm.values_from_features(features) - offset
        assert cbm.linear_pool
        np.testing.assert_allclose(D * maps.mean(dim=(2, 3)), values, atol=1e-5)


@pytest.mark.parametrize("make", MODELS)
def test_only_the_requested_concepts_are_returned(make):
    cbm = make()
    x = images()
    every = cbm.concept_maps(x)
    assert every.shape == (6, L, 6, 6)
    shared = torch.tensor([3, 0])
    per_image = torch.tensor([[0, 4], [1, 1], [2, 3], [4, 0], [3, 3], [0, 1]])
    np.testing.assert_allclose(cbm.concept_maps(x, shared).detach(), every[:, shared].detach(), atol=1e-6)
    expected = torch.stack([every[i, per_image[i]] for i in range(6)])
    np.testing.assert_allclose(cbm.concept_maps(x, per_image).detach(), expected.detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("concepts", "message"),
    [
        (torch.tensor([0, L]), f"`concepts` to lie in 0..{L - 1}, .*but got {L}"),
        (torch.tensor([[0], [1]]), r"\(N, k\) = \(6, \*\) but got \(2, 1\)"),
    ],
)
def test_bad_concept_indices_are_refused_before_the_backbone_runs(concepts, message):
    cbm = post_hoc()
    features = cbm.features(images())
    with pytest.raises(ValueError, match=message):
        cbm.maps_from_features(features, concepts)
    cbm.features.register_forward_hook(lambda *_: pytest.fail("the backbone ran"))
    with pytest.raises(ValueError, match=message):
        cbm.concept_maps(images(), concepts)


@pytest.mark.parametrize("make", MODELS)
def test_values_and_maps_are_not_rounded_under_autocast(make):
    cbm = make()
    features = torch.rand(8, D, 3, 3).bfloat16()
    with torch.no_grad():
        maps = cbm.maps_from_features(features.float())
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(cbm.maps_from_features(features), maps)
        exact = cbm.concept_layer(cbm.pooling(features).float())
        with torch.autocast("cpu", torch.bfloat16):
            values = cbm.values_from_features(features)
            logits = cbm(images())
    assert values.dtype == torch.float32
    assert torch.equal(values, exact)
    assert logits.isfinite().all()


def test_state_dict_through_safetensors(tmp_path):
    cbm = post_hoc()
    # Everything of the other model differs: weights, bank, names, choice of values.
    bank = random_bank(seed=8).rename({"name 0": "else"})
    other = PostHocCBM(seeded(backbone(), 7), bank, seeded(nn.Linear(L, K), 9), "raw").eval()
    save_file(cbm.state_dict(), tmp_path / "cbm.safetensors")
    other.load_state_dict(load_file(tmp_path / "cbm.safetensors"))
    assert torch.equal(other(images()), cbm(images()))
    assert (other.values, other.bank.names, other.bank.settings) == ("margin", cbm.bank.names, {"method": "svm"})


def test_pool_and_maps_of_the_user():
    # A class token before the patches: values from the token, maps from the rest.
    tokens = torch.arange(2 * 5 * 2.0).reshape(2, 5, 2)
    cbm = PostHocCBM(
        nn.Identity(),
        ConceptBank([[1.0, 0.0], [0.0, 1.0]]),
        nn.Linear(2, K),
        "raw",
        pool=lambda f: f[:, 0],
        maps=lambda f: f[:, 1:].transpose(1, 2).reshape(-1, 2, 2, 2),
    )
    assert not cbm.linear_pool
    assert cbm.values_from_features(tokens).tolist() == [[0.0, 1.0], [10.0, 11.0]]
    assert cbm.maps_from_features(tokens)[0].tolist() == [[[1.0, 2.0], [3.0, 4.0]], [[1.5, 2.5], [3.5, 4.5]]]


@pytest.mark.parametrize("what", ["values_from_features", "maps_from_features"])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 2, 2, D), r"d = 4, the width of the concepts.*pass `maps=lambda f: f.permute\(0, 3, 1, 2\)`"),
        ((3, 7, D), r"maps \(N, d, h, w\) but got \(3, 7, 4\)"),
    ],
)
def test_features_that_do_not_fit_the_bank(what, shape, message):
    cbm = PostHocCBM(nn.Identity(), random_bank(), nn.Linear(L, K))
    with pytest.raises(ValueError, match=message):
        getattr(cbm, what)(torch.rand(shape))


def test_bottleneck_values_are_the_activated_logits():
    cbm = bottleneck()
    x = images()
    pooled = cbm.features(x).mean(dim=(2, 3))
    logits = pooled @ cbm.concept_layer.layer.weight.T + cbm.concept_layer.layer.bias
    np.testing.assert_allclose(cbm.concept_predictor(x).detach(), logits.sigmoid().detach(), atol=1e-6)
    plain = bottleneck(activation=None)
    np.testing.assert_allclose(plain.concept_predictor(x).detach(), logits.detach(), atol=1e-6)
    conv = nn.Conv2d(D, L, 1)
    layer = cbm.concept_layer.layer
    conv.load_state_dict({"weight": layer.weight[:, :, None, None], "bias": layer.bias})
    pointwise = BottleneckCBM(backbone(), conv, cbm.head).eval()
    np.testing.assert_allclose(pointwise(x).detach(), cbm(x).detach(), atol=1e-6)
    np.testing.assert_allclose(pointwise.concept_maps(x).detach(), cbm.concept_maps(x).detach(), atol=1e-6)
    assert plain.linear_pool
    assert not cbm.linear_pool
    assert not bottleneck(activation=None, pool=lambda f: f.amax(dim=(2, 3))).linear_pool


def test_concept_layer_of_another_form_needs_a_projection():
    layer = seeded(nn.Sequential(nn.Linear(D, 6), nn.ReLU(), nn.Linear(6, L)))
    cbm = BottleneckCBM(backbone(), layer, nn.Linear(L, K)).eval()
    assert cbm(images()).shape == (6, K)
    with pytest.raises(ValueError, match=r"Sequential has no weights to make maps with\. Pass `project`"):
        cbm.concept_maps(images())

    def project(features, concepts):
        maps = layer(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return maps if concepts is None else maps[:, concepts]

    cbm = BottleneckCBM(backbone(), layer, nn.Linear(L, K), project=project).eval()
    assert torch.equal(cbm.concept_maps(images(), [4, 1]), cbm.concept_maps(images())[:, [4, 1]])
    assert not cbm.linear_pool


def test_widths_of_a_concept_layer_of_several_layers():
    layer = nn.Sequential(nn.Linear(D, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, L)))
    cbm = BottleneckCBM(backbone(), layer, nn.Linear(L, K))
    assert cbm.n_concepts() == L
    assert BottleneckCBM(backbone(), nn.Sequential(layer, nn.Tanh()), nn.Linear(L, K)).n_concepts() is None
    named = BottleneckCBM(backbone(), nn.Sequential(layer, nn.Tanh()), nn.Linear(L, K), list("abcde"))
    assert named.n_concepts() == L
    with pytest.raises(ValueError, match="the values of 5 concepts but it takes 6"):
        BottleneckCBM(backbone(), layer, nn.Linear(L + 1, K))
    with pytest.raises(ValueError, match="one name for each of 5 concepts but got 2"):
        BottleneckCBM(backbone(), layer, nn.Linear(L, K), ["a", "b"])
    with pytest.raises(ValueError, match=r"with d = 6, the width of the concepts"):
        BottleneckCBM(backbone(), nn.Sequential(nn.Linear(6, L)), nn.Linear(L, K))(images())


def test_values_that_are_probabilities_already_are_noticed():
    class Probabilities(nn.Linear):
        def forward(self, embedding):
            return super().forward(embedding).sigmoid()

    layer = seeded(nn.Sequential(Probabilities(D, L)))
    cbm = BottleneckCBM(backbone(), layer, nn.Linear(L, K)).eval()
    cbm(images()[:1])  # too few to say
    with pytest.warns(UserWarning, match=r"Pass `activation=None`"):
        cbm(images())
    cbm(images())  # said once
    BottleneckCBM(backbone(), layer, nn.Linear(L, K), activation=None).eval()(images())
    BottleneckCBM(backbone(), nn.Sequential(nn.Linear(D, L)), nn.Linear(L, K)).eval()(images())
    with pytest.raises(ValueError, match="ends with a Softmax"):
        BottleneckCBM(backbone(), nn.Sequential(nn.Linear(D, L), nn.Softmax(1)), nn.Linear(L, K))


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1)])
def test_a_head_of_probabilities_is_noticed(last):
    head = nn.Sequential(nn.Linear(L, K), last)
    for kind, concepts in ((BottleneckCBM, nn.Linear(D, L)), (PostHocCBM, random_bank())):
        with pytest.warns(UserWarning, match=f"`head` ends with a {type(last).__name__}"):
            kind(backbone(), concepts, head)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PostHocCBM(backbone(), random_bank(), nn.Linear(L + 1, K)), "the values of 5 concepts but it takes 6"),
        (lambda: bottleneck().concept_maps(images()[0]), r"`images` to have shape \(N, C, H, W\)"),
        (
            lambda: BottleneckCBM(backbone(), nn.Sequential(nn.Linear(D, L), nn.Sigmoid()), nn.Linear(L, K)),
            "`concept_layer` to give logits",
        ),
        (lambda: BottleneckCBM(nn.Identity(), nn.Conv2d(D, L, 3), nn.Linear(L, K)), "look at one pixel only"),
        (lambda: post_hoc("cosine"), "`values` to be one of"),
        (lambda: post_hoc(pool=lambda f: f.mean(3))(images()), r"`pool` to give embeddings \(N, d\) = \(\*, 4\)"),
        (
            lambda: PostHocCBM(Backbone(backbone(), "mean", None, D), random_bank(), nn.Linear(L, K), pool=len),
            "`pool` and `maps` to be left out",
        ),
        (lambda: bottleneck(project=lambda f, _: f.mean(3)).concept_maps(images()), "`project` to give maps"),
        (lambda: post_hoc().concept_maps(images(), torch.tensor([0.0])), "`concepts` to hold concept indices"),
        (lambda: BottleneckCBM(nn.Identity(), nn.Conv2d(D, L * D, 1, groups=D), nn.Linear(L, K)), "one pixel only"),
    ],
)
def test_parts_that_do_not_fit_are_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
