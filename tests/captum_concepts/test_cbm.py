import copy
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import embed
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.heads import fit_elastic_net, fit_logistic
from reference.concept_bank import concept_map
from untouched import untouched

D, L, K = 4, 5, 3


def seeded(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return module


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


# Values and maps


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


def test_maps_agree_with_reference():
    cbm = post_hoc()
    with torch.no_grad():
        features = cbm.features(images())
        maps = cbm.concept_maps(images())
    for i in range(6):
        for j in range(L):
            expected = concept_map(features[i].numpy(), cbm.bank.cavs[j].numpy())
            np.testing.assert_allclose(maps[i, j], expected, atol=1e-6)


def test_maps_decompose_raw_values_under_mean_pooling():
    cbm = post_hoc("raw")
    with torch.no_grad():
        features = cbm.features(images())
        maps, values = cbm.maps_from_features(features), cbm.values_from_features(features)
    assert cbm.linear_pool
    np.testing.assert_allclose(D * maps.mean(dim=(2, 3)), values, atol=1e-5)


def test_maps_are_captums_grad_cam_of_the_concept_predictor():
    cbm = post_hoc()
    x = images()
    cam = LayerGradCam(cbm.concept_predictor, cbm.features).attribute(x, target=2, relu_attributions=False)
    h, w = cam.shape[2:]
    scale = D / (h * w * cbm.bank.norms[2])
    np.testing.assert_allclose(cam.detach(), cbm.concept_maps(x, [2]).detach() * scale, atol=1e-6)


@pytest.mark.parametrize("make", MODELS)
def test_only_the_concepts_asked_for_are_given(make):
    cbm = make()
    x = images()
    every = cbm.concept_maps(x)
    assert every.shape == (6, L, 6, 6)
    shared = torch.tensor([3, 0])
    own = torch.tensor([[0, 4], [1, 1], [2, 3], [4, 0], [3, 3], [0, 1]])
    np.testing.assert_allclose(cbm.concept_maps(x, shared).detach(), every[:, shared].detach(), atol=1e-6)
    expected = torch.stack([every[i, own[i]] for i in range(6)])
    np.testing.assert_allclose(cbm.concept_maps(x, own).detach(), expected.detach(), atol=1e-6)
    assert cbm.concept_maps(x, [2]).shape == (6, 1, 6, 6)


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    ("concepts", "error", "message"),
    [
        (torch.tensor([0, L]), ValueError, f"`concepts` to lie in 0..{L - 1}, .*but got {L}"),
        (torch.tensor([-1]), ValueError, "but got -1"),
        (torch.tensor([[0], [1]]), ValueError, r"\(N, k\) = \(6, \*\) but got \(2, 1\)"),
        (torch.tensor(0), ValueError, r"shape \(k,\) or \(N, k\)"),
        (torch.tensor([0.0]), TypeError, "concept indices"),
        (torch.tensor([True]), TypeError, "concept indices"),
    ],
)
def test_bad_concept_indices_are_told_before_the_backbone_runs(make, concepts, error, message):
    cbm = make()
    features = cbm.features(images())
    with pytest.raises(error, match=message):
        cbm.maps_from_features(features, concepts)
    cbm.features.register_forward_hook(lambda *_: pytest.fail("the backbone ran"))
    with pytest.raises(error, match=message):
        cbm.concept_maps(images(), concepts)


def test_maps_are_not_rounded_to_half_precision():
    cbm = PostHocCBM(nn.Identity(), random_bank(), nn.Linear(L, K))
    features = torch.rand(2, D, 3, 3)
    exact = cbm.maps_from_features(features)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(cbm.maps_from_features(features), exact)
    half = features.half()
    assert torch.equal(cbm.maps_from_features(half), cbm.maps_from_features(half.float()))


@pytest.mark.parametrize("make", MODELS)
def test_values_are_not_rounded_under_autocast(make):
    cbm = make()
    features = torch.rand(8, D, 3, 3).bfloat16()
    with torch.no_grad():
        exact = cbm.concept_layer(cbm.pooling(features).float())
        with torch.autocast("cpu", torch.bfloat16):
            values = cbm.values_from_features(features)
            logits = cbm(images())
    assert values.dtype == torch.float32
    assert torch.equal(values, exact)
    assert logits.isfinite().all()


@pytest.mark.parametrize("values", ["raw", "margin"])
def test_concepts_of_a_backbone_of_half_precision_have_the_type_of_the_head(values):
    x = images().bfloat16()
    cbm = PostHocCBM(backbone().eval().bfloat16(), random_bank(), nn.Linear(L, K), values)
    assert cbm.concept_predictor(x).dtype == cbm(x).dtype == torch.float32
    embedding = cbm.embed_features(cbm.features(x))
    exact = PostHocCBM(nn.Identity(), random_bank(), nn.Linear(L, K), values).concept_layer(embedding.float())
    assert torch.equal(cbm.concept_predictor(x), exact)
    whole = PostHocCBM(backbone().eval().bfloat16(), random_bank(), nn.Linear(L, K).bfloat16(), values)
    # Rounded once, at the end.
    assert torch.equal(whole.concept_predictor(x), whole.concept_layer(embedding))
    assert whole(x).dtype == torch.bfloat16
    rounded = random_bank().to(dtype=torch.bfloat16).to(dtype=torch.float32)
    once = PostHocCBM(nn.Identity(), rounded, nn.Linear(L, K), values).concept_layer(embedding.float())
    assert torch.equal(whole.concept_predictor(x), once.bfloat16())


# The chain


@pytest.mark.parametrize("make", MODELS)
def test_models_share_their_features_as_the_protocol_asks(make):
    # Imported here: all else is about one package only.
    from quantus_concepts.metrics.host.model import shares_features

    cbm = make()
    assert shares_features(cbm)
    features = cbm.features(images())
    np.testing.assert_array_equal(cbm.values_from_features(features).detach(), cbm.concept_predictor(images()).detach())
    assert cbm.embed_features(features).shape == (6, D)


@pytest.mark.parametrize("make", MODELS)
def test_one_image_at_a_time_gives_the_same(make):
    cbm = make()
    for function in (cbm, cbm.concept_predictor, cbm.concept_maps):
        each = torch.cat([function(image[None]) for image in images()])
        np.testing.assert_allclose(function(images()).detach(), each.detach(), atol=1e-6)


@pytest.mark.parametrize("make", MODELS)
def test_float64_goes_through_and_agrees(make):
    single, double = make(), make().double()
    assert double(images().double()).dtype == torch.float64
    assert double.concept_maps(images().double()).dtype == torch.float64
    np.testing.assert_allclose(double(images().double()).detach(), single(images()).detach(), atol=1e-5)


@pytest.mark.parametrize("make", MODELS)
def test_state_dict_through_safetensors(make, tmp_path):
    cbm = make()
    # Everything of the other model differs: weights, bank, names, choice of values.
    if isinstance(cbm, PostHocCBM):
        other_values = "raw" if cbm.values == "margin" else "margin"
        other = PostHocCBM(
            seeded(backbone(), 7),
            random_bank(seed=8).rename({"name 0": "else"}),
            seeded(nn.Linear(L, K), 9),
            other_values,
        ).eval()
    else:
        other = seeded(make(), 7)
    assert not torch.allclose(other(images()), cbm(images()))
    state = cbm.state_dict()
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
    save_file(state, tmp_path / "cbm.safetensors")
    other.load_state_dict(load_file(tmp_path / "cbm.safetensors"))
    assert torch.equal(other(images()), cbm(images()))
    if isinstance(cbm, PostHocCBM):
        assert other.values == cbm.values
        assert other.bank.names == cbm.bank.names
        assert other.bank.settings == {"method": "svm"}


def test_damaged_state_is_refused():
    cbm = post_hoc()
    state = cbm.state_dict() | {"concept_layer._extra_state": torch.zeros(3, dtype=torch.uint8)}
    with pytest.raises(ValueError, match="state of the concept layer is damaged"):
        cbm.load_state_dict(state)


@pytest.mark.parametrize("make", MODELS)
def test_copies_are_whole_and_of_their_own(make):
    cbm = make()
    before = cbm(images())
    twin = copy.deepcopy(cbm)
    buffer = io.BytesIO()
    torch.save(cbm, buffer)
    buffer.seek(0)
    stored = torch.load(buffer, weights_only=False)
    seeded(cbm, 5)
    for each in (twin, stored):
        assert torch.equal(each(images()), before)


def test_bank_follows_the_backbone_to_its_type():
    cbm = PostHocCBM(backbone().double(), random_bank(), nn.Linear(L, K))
    assert cbm.bank.dtype == torch.float64
    assert cbm.bank.names == random_bank().names
    assert cbm.concept_predictor(images().double()).dtype == torch.float64


def test_predictor_is_in_the_mode_of_its_parts():
    cbm = post_hoc()
    assert not cbm.concept_predictor.training
    cbm.train()
    assert cbm.concept_predictor.training
    assert not PostHocCBM(backbone().eval(), random_bank(), nn.Linear(L, K).eval()).training
    assert PostHocCBM(backbone().eval(), random_bank(), nn.Sequential(nn.Dropout())).training


def test_mlp_head():
    head = seeded(nn.Sequential(nn.Linear(L, 7), nn.ReLU(), nn.Linear(7, K)))
    cbm = PostHocCBM(backbone(), random_bank(), head).eval()
    assert torch.equal(cbm(images()), head(cbm.concept_predictor(images())))


# Pooling


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


def test_channels_last_with_maps_is_the_same_as_channels_first():
    maps = torch.rand(3, D, 2, 2)
    first = PostHocCBM(nn.Identity(), random_bank(), nn.Linear(L, K))
    last = PostHocCBM(nn.Identity(), random_bank(), nn.Linear(L, K), maps=lambda f: f.permute(0, 3, 1, 2))
    assert last.linear_pool
    swapped = maps.permute(0, 2, 3, 1)
    np.testing.assert_allclose(last.values_from_features(swapped), first.values_from_features(maps), atol=1e-6)
    np.testing.assert_allclose(last.maps_from_features(swapped), first.maps_from_features(maps), atol=1e-6)


@pytest.mark.parametrize("what", ["values_from_features", "maps_from_features"])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 2, 2, D), r"d = 4, the width of the concepts.*pass `maps=lambda f: f.permute\(0, 3, 1, 2\)`"),
        ((3, D + 1, 2, 2), r"d = 4, the width of the concepts, but got \(3, 5, 2, 2\)\.$"),
        ((3, 7, D), r"maps \(N, d, h, w\) but got \(3, 7, 4\)"),
    ],
)
def test_features_that_do_not_fit_the_bank(what, shape, message):
    cbm = PostHocCBM(nn.Identity(), random_bank(), nn.Linear(L, K))
    with pytest.raises(ValueError, match=message):
        getattr(cbm, what)(torch.rand(shape))


def test_pooled_features_have_values_but_no_maps():
    cbm = PostHocCBM(nn.Identity(), random_bank(), nn.Linear(L, K), "raw")
    features = torch.rand(3, D)
    np.testing.assert_allclose(cbm.values_from_features(features), features @ cbm.bank.cavs.T, atol=1e-6)
    with pytest.raises(ValueError, match="Pass `maps`"):
        cbm.maps_from_features(features)
    with pytest.raises(ValueError, match=r"d = 4.*but got \(3, 5\)"):
        cbm.values_from_features(torch.rand(3, 5))


def test_pool_of_wrong_shape_is_told():
    cbm = PostHocCBM(nn.Identity(), random_bank(), nn.Linear(L, K), pool=lambda f: f.amax(dim=3))
    with pytest.raises(ValueError, match=r"`pool` to give embeddings \(N, d\) = \(\*, 4\)"):
        cbm.values_from_features(torch.rand(3, D, 2, 2))


def test_backbone_brings_pool_and_maps():
    parts = SimpleNamespace(
        features=backbone(), pool=lambda f: f.amax(dim=(2, 3)), maps=lambda f: 2 * f, linear_pool=False
    )
    cbm = PostHocCBM(parts, random_bank(), nn.Linear(L, K)).eval()
    features = cbm.features(images())
    assert cbm.features is parts.features
    assert not cbm.linear_pool
    assert torch.equal(cbm.embed_features(features), features.amax(dim=(2, 3)))
    np.testing.assert_allclose(
        cbm.maps_from_features(features).detach(), 2 * post_hoc().maps_from_features(features).detach(), atol=1e-6
    )
    with pytest.raises(ValueError, match="`pool` and `maps` to be left out"):
        PostHocCBM(parts, random_bank(), nn.Linear(L, K), maps=nn.Identity())


class TokenNet(nn.Module):
    """A backbone whose last norm is used by the pool, not by its own forward."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, D, 3)
        self.norm = nn.BatchNorm2d(D)

    def forward(self, x):
        return self.conv(x)


def test_pool_that_is_part_of_the_backbone_is_stored_once(tmp_path):
    net = TokenNet()
    pool = nn.Sequential(net.norm, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    cbm = PostHocCBM(net, random_bank(), nn.Linear(L, K), pool=pool, maps=net.norm).eval()
    save_file(cbm.state_dict(), tmp_path / "cbm.safetensors")
    assert cbm.double()(images().double()).dtype == torch.float64
    twin = copy.deepcopy(cbm)
    assert twin.pooling.maps is twin.features.norm


def test_pool_with_parameters_of_its_own_moves_and_is_stored():
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(D, D))
    cbm = PostHocCBM(backbone(), random_bank(), nn.Linear(L, K), pool=pool).double()
    assert pool[2].weight.dtype == torch.float64
    assert "pooling.pool.2.weight" in cbm.state_dict()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"features": torch.rand}, TypeError, "`features` to be an nn.Module or a Backbone"),
        ({"bank": torch.ones(2, D)}, TypeError, r"`ConceptBank\(array\)`"),
        (
            {"bank": ConceptBank([[0.0, 0.0], [1.0, 0.0]], names=["wing", "tail"])},
            ValueError,
            r"length 0.*\['wing'\] \(1 in all\)",
        ),
    ],
)
def test_bad_input_of_post_hoc_cbm(changes, error, message):
    arguments = {"features": nn.Identity(), "bank": random_bank(), "head": nn.Linear(L, K)} | changes
    with pytest.raises(error, match=message):
        PostHocCBM(**arguments)


def test_cav_of_length_0_has_a_raw_value():
    cbm = PostHocCBM(nn.Identity(), ConceptBank([[0.0], [1.0]]), nn.Linear(2, 2), "raw")
    assert cbm.values_from_features(torch.tensor([[3.0]])).tolist() == [[0.0, 3.0]]


# Traditional bottleneck


def test_bottleneck_values_are_the_activated_logits():
    cbm = bottleneck()
    x = images()
    pooled = cbm.features(x).mean(dim=(2, 3))
    logits = pooled @ cbm.concept_layer.layer.weight.T + cbm.concept_layer.layer.bias
    np.testing.assert_allclose(cbm.concept_predictor(x).detach(), logits.sigmoid().detach(), atol=1e-6)
    plain = bottleneck(activation=None)
    np.testing.assert_allclose(plain.concept_predictor(x).detach(), logits.detach(), atol=1e-6)
    assert plain.linear_pool
    assert not cbm.linear_pool
    assert not bottleneck(activation=None, pool=lambda f: f.amax(dim=(2, 3))).linear_pool


def test_bottleneck_maps_decompose_the_logit():
    cbm = bottleneck(activation=None)
    features = cbm.features(images())
    logits = cbm.values_from_features(features) - cbm.concept_layer.layer.bias
    maps = cbm.maps_from_features(features)
    np.testing.assert_allclose(D * maps.mean(dim=(2, 3)).detach(), logits.detach(), atol=1e-5)


def test_pointwise_convolution_is_a_linear_layer():
    linear, conv = seeded(nn.Linear(D, L)), nn.Conv2d(D, L, 1)
    conv.load_state_dict({"weight": linear.weight[:, :, None, None], "bias": linear.bias})
    head = seeded(nn.Linear(L, K))
    first, second = (BottleneckCBM(backbone(), layer, head).eval() for layer in (linear, conv))
    np.testing.assert_allclose(first(images()).detach(), second(images()).detach(), atol=1e-6)
    np.testing.assert_allclose(first.concept_maps(images()).detach(), second.concept_maps(images()).detach(), atol=1e-6)


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
    bad = BottleneckCBM(backbone(), layer, nn.Linear(L, K), project=lambda f, c: f.mean(dim=3)).eval()
    with pytest.raises(ValueError, match="`project` to give maps"):
        bad.concept_maps(images())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"concept_layer": torch.sigmoid}, TypeError, "`concept_layer` to be a torch.nn.Module"),
        ({"concept_layer": nn.Conv2d(D, L, 3)}, ValueError, "look at one pixel only"),
        ({"concept_layer": nn.Conv2d(D, L, 1, stride=2)}, ValueError, "look at one pixel only"),
        ({"concept_layer": nn.Conv2d(D, L * D, 1, groups=D)}, ValueError, "look at one pixel only"),
        ({"activation": "sigmoid"}, TypeError, "`activation` to be callable"),
        ({"project": 1}, TypeError, "`project` to be callable"),
        ({"head": None}, TypeError, "`head` to be a torch.nn.Module"),
    ],
)
def test_bad_input_of_bottleneck(changes, error, message):
    arguments = {"features": nn.Identity(), "concept_layer": nn.Linear(D, L), "head": nn.Linear(L, K)} | changes
    with pytest.raises(error, match=message):
        BottleneckCBM(**arguments)


# Fitting


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


@pytest.mark.parametrize("head", ["logistic", "elastic_net"])
@pytest.mark.parametrize("method", ["svm", "mean"])
def test_fit_leaves_the_global_generators_alone(method, head):
    features, loader = Counted(), loader_of(*labelled_images())
    with untouched(features):
        PostHocCBM.fit(features, loader, method=method, head=head, **FEW)


def test_fit_takes_a_backbone_of_half_precision():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = seeded(nn.Conv2d(3, D, 1), 4).bfloat16()

        def forward(self, x):
            return self.conv(x)

    x, y, concepts = labelled_images()
    cbm = PostHocCBM.fit(Half(), loader_of(x, y, concepts), **FEW).eval()
    u = cbm.concept_predictor(x.bfloat16())
    assert u.dtype == torch.float32
    assert ((u > 0) == concepts).float().mean() > 0.9


def test_warnings_of_fit_are_told_where_it_is_called():
    x, y, concepts = labelled_images()
    twice = torch.cat([concepts, concepts[:, :1]], 1)
    with pytest.warns(UserWarning, match=r"'concept 0' = 'concept 2'") as record:
        PostHocCBM.fit(Counted(), loader_of(x, y, twice), **FEW)
    assert [each.filename for each in record] == [__file__]


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_torchscript_and_quantised_features_are_backbones_like_any():
    x, y, concepts = labelled_images()
    plain = Counted().conv.eval()
    expected = PostHocCBM.fit(plain, loader_of(x, y, concepts), **FEW).concept_predictor(x)
    for features in (torch.jit.script(plain), torch.jit.freeze(torch.jit.script(plain))):
        cbm = PostHocCBM.fit(features, loader_of(x, y, concepts), **FEW)
        torch.testing.assert_close(cbm.concept_predictor(x), expected, rtol=1e-4, atol=1e-5)

    class Quantised(nn.Module):
        def forward(self, x):
            return torch.quantize_per_tensor(plain(x), 1 / 16, 128, torch.quint8)

    cbm = PostHocCBM(Quantised(), random_bank(), nn.Linear(L, K))
    exact = PostHocCBM(plain, random_bank(), nn.Linear(L, K))
    # Each channel is off by half a step of 1/16 at most, and none is beyond 8.
    bound = random_bank().cavs.abs().sum(1).max().item() / 32 + 1e-5
    assert (cbm.concept_maps(x) - exact.concept_maps(x)).abs().max() <= bound / D
    assert cbm(x).shape == (len(x), K)


def test_fit_says_that_a_model_has_no_weights():
    with pytest.raises(ValueError, match="`features` to have weights but it is on the meta device"):
        PostHocCBM.fit(nn.Conv2d(3, D, 1, device="meta"), loader_of(*labelled_images()), **FEW)


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_fit_learns_concepts_and_classes_in_one_pass(method):
    features = Counted()
    features.conv.eval()
    x, y, concepts = labelled_images()
    loader = loader_of(x, y, concepts, torch.zeros(90, 1))
    with untouched(features):
        cbm = PostHocCBM.fit(features, loader, names=["red", "blue"], method=method, **FEW)
    assert features.seen == [32, 32, 26]
    assert features.modes == {False}
    assert cbm.bank.names == ["red", "blue"]

    cbm.eval()
    x, y, concepts = labelled_images(seed=9)
    with torch.no_grad():
        assert ((cbm.concept_predictor(x) > 0) == concepts).float().mean() > 0.95
        assert (cbm(x).argmax(dim=1) == y).float().mean() > 0.9


def test_fit_takes_concept_labels_beside_the_loader():
    x, y, concepts = labelled_images()
    inside = PostHocCBM.fit(Counted(), loader_of(x, y, concepts), **FEW)
    beside = PostHocCBM.fit(Counted(), loader_of(x, y), concept_labels=concepts.numpy(), **FEW)
    assert torch.equal(inside.bank.cavs, beside.bank.cavs)
    assert torch.equal(inside.head.weight, beside.head.weight)


@pytest.mark.parametrize("values", ["margin", "raw"])
def test_fit_with_a_bank_of_the_user(values):
    x, y, concepts = labelled_images()
    features = Counted()
    bank = ConceptBank.fit(embed(features, [(x,)]).features, concepts, ["red", "blue"], **FEW)
    fitted = PostHocCBM.fit(features, loader_of(x, y, concepts), values=values, **FEW)
    # Of another type than the embeddings, as banks of arrays are; the loader knows nothing of concepts.
    given = PostHocCBM.fit(features, loader_of(x, y), bank=bank.to(dtype=torch.float64), values=values)
    assert given.bank.names == ["red", "blue"]
    assert given.bank.dtype == torch.float32
    torch.testing.assert_close(given.bank.cavs, bank.cavs)
    torch.testing.assert_close(given.head.weight, fitted.head.weight, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"concept_labels": np.ones((90, 2)), "names": ["a", "b"]}, "alone but got `concept_labels`, `names` with"),
        ({"method": "mean", "n_neg": 10, "C": 0.1}, "alone but got `method`, `n_neg`, `C` with it"),
        ({"bank": ConceptBank(np.zeros((1, 3)))}, "no CAV of length 0"),
    ],
)
def test_bank_of_the_user_stands_alone(changes, message):
    features = Counted()
    with pytest.raises(ValueError, match=f"`bank`.* {message}"):
        PostHocCBM.fit(features, loader_of(*labelled_images()), **{"bank": ConceptBank(np.eye(3))} | changes)
    assert features.seen == []


def test_bank_of_another_width_is_told_at_once():
    features = Counted()
    wide = ConceptBank(np.eye(17))
    with pytest.raises(ValueError, match=r"`features` to give .* with d = 17, the width of the concepts"):
        PostHocCBM.fit(features, loader_of(*labelled_images()), bank=wide)
    assert len(features.seen) == 1
    with pytest.raises(ValueError, match=r"`bank` to have the width of the embeddings, \(L, d\) = \(\*, 4\), .*17"):
        PostHocCBM.fit(Backbone(features, "mean", None, 4), loader_of(*labelled_images()), bank=wide)
    assert len(features.seen) == 1


def test_fit_is_the_steps_it_is_made_of():
    x, y, concepts = labelled_images()
    features = Counted()
    loader = loader_of(x, y, concepts)
    kept = embed(features, loader)
    bank = ConceptBank.fit(kept.features, kept.concept_labels, seed=6, C=0.1, **FEW)
    u = (kept.features @ bank.cavs.T + bank.intercepts) / bank.norms
    head = fit_logistic(u, kept.labels)
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
    given = []
    head = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))

    def train(values, labels):
        given.append((values, labels))
        return head

    cbm = PostHocCBM.fit(Counted(), loader_of(x, y, concepts), head=train, **FEW).eval()
    assert cbm.head is head
    np.testing.assert_allclose(given[0][0], cbm.concept_predictor(x).detach(), atol=1e-5)
    assert torch.equal(given[0][1], y)


def test_fit_with_a_backbone_and_in_float64():
    x, y, concepts = labelled_images()
    parts = SimpleNamespace(
        features=Counted().double(), pool=lambda f: f.amax(dim=(2, 3)), maps=None, linear_pool=False
    )
    cbm = PostHocCBM.fit(parts, loader_of(x, y, concepts), **FEW)
    assert cbm.bank.dtype == cbm.head.weight.dtype == torch.float64
    assert not cbm.linear_pool


def test_fit_with_the_users_pool():
    x, y, concepts = labelled_images()
    pool = seeded(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(D, 7), nn.Dropout(0.9)))
    cbm = PostHocCBM.fit(Counted(), loader_of(x, y, concepts), pool=pool, **FEW)
    assert cbm.bank.cavs.shape == (2, 7)
    assert pool[3].training


def test_embed_returns_the_order_of_the_loader_and_what_it_gives():
    x, y, concepts = labelled_images(40)
    features = Counted()
    kept = embed(features, loader_of(x, y))
    expected = features.conv(x).mean(dim=(2, 3))
    np.testing.assert_allclose(kept.features, expected.detach(), atol=1e-6)
    assert torch.equal(kept.labels, y)
    assert kept.concept_labels is None
    assert torch.equal(embed(features, [x]).features, embed(features, [(x,)]).features)
    assert torch.equal(embed(features, loader_of(x, y, concepts)).concept_labels, concepts)


def test_flags_come_back_after_an_exception():
    features = Counted()
    features.conv.eval()
    with untouched(features), pytest.raises(RuntimeError):
        embed(features, [torch.zeros(2, 5, 6, 6)])


X, Y, V = labelled_images(40)


@pytest.mark.parametrize(
    ("loader", "kwargs", "error", "message"),
    [
        ([], {}, ValueError, "`loader` to give at least one batch"),
        (loader_of(X), {}, ValueError, r"start with \(images, labels, concept_labels\), .* but got images\. "),
        (loader_of(X, Y), {}, ValueError, r"but got images, labels\. "),
        (loader_of(X), {"concept_labels": V}, ValueError, r"start with \(images, labels\), .* but got images\. "),
        ([{"picture": X}], {}, ValueError, r"but got \['picture'\]"),
        ([(X, Y.tolist(), V)], {}, ValueError, "labels as a tensor but got list"),
        ([(X, Y[:3], V)], {}, ValueError, r"`labels` to have shape \(N,\) = \(40,\)"),
        ([(X, Y.float(), V)], {}, ValueError, "class indices"),
        ([(X, Y - 1, V)], {}, ValueError, "smallest value -1"),
        ([(X, Y, V[:, 0])], {}, ValueError, r"`concept_labels` to have shape \(N, L\)"),
        ([(X, Y, V + 1)], {}, ValueError, "only 0 and 1 but got 2"),
        ([(X * float("nan"), Y, V)], {}, ValueError, "`loader` to be finite"),
        (loader_of(X, Y), {"concept_labels": V[:30]}, ValueError, r"\(40, \*\) but got \(30, 2\)"),
        (loader_of(X, Y), {"concept_labels": 2 * V}, ValueError, "only 0 and 1 but got 2"),
        (loader_of(X, Y, shuffle=True), {"concept_labels": V}, ValueError, "not to shuffle"),
        (loader_of(X, Y, V), {"names": ["a"]}, ValueError, "2 concepts but got 1"),
        (loader_of(X, Y, V), {"n_classes": 2}, ValueError, "`n_classes` to be at least 3"),
        ([(X, 0 * Y, V)], {}, ValueError, "at least two classes"),
    ],
)
def test_bad_input_of_fit(loader, kwargs, error, message):
    with pytest.raises(error, match=message):
        PostHocCBM.fit(Counted(), loader, **{"n_pos": 5, "n_neg": 5, **kwargs})


@pytest.mark.parametrize("kwargs", [{"values": "row"}, {"method": "x"}, {"head": "x"}, {"concept_labels": V[:30]}])
def test_bad_arguments_of_fit_are_told_before_the_backbone_runs(kwargs):
    features = Counted()
    with pytest.raises(ValueError):
        PostHocCBM.fit(features, loader_of(X, Y), **kwargs)
    assert features.seen == []


def test_channels_last_features_are_told_when_fitting():
    swin = nn.Sequential(nn.Conv2d(3, 16, 1))
    swin.register_forward_hook(lambda module, inputs, output: output.permute(0, 2, 3, 1))
    with pytest.raises(ValueError, match=r"got \(32, 6, 6, 16\).*pass `maps="):
        PostHocCBM.fit(swin, loader_of(X, Y, V), **FEW)


@pytest.mark.parametrize("make", MODELS)
def test_everything_moves_with_the_model(make):
    # The meta device is there on every machine, and refuses to mix with another.
    cbm = make().to("meta")
    x = images().to("meta")
    tensors = [*cbm.parameters(), *cbm.buffers(), cbm(x), cbm.concept_predictor(x), cbm.concept_maps(x)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
