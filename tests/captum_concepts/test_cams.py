"""The class activation maps of grad-cam: the library's own numbers, of networks and transformers as they are."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import CAM_METHODS, LibraryCAM, build_method, explain_func, from_timm, from_torchvision
from captum_concepts.attributions.cams import _default_layer, _Logits, _run
from captum_concepts.backbones.pools import to_grid
from refusals import refusals
from untouched import untouched

pytest.importorskip("pytorch_grad_cam", reason="the extra cam is not installed")
import pytorch_grad_cam
from pytorch_grad_cam import AblationLayerVit
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from pytorch_grad_cam.utils.reshape_transforms import vit_reshape_transform

TARGETS = np.array([2, 0, 1])
IMAGES = np.random.default_rng(0).random((3, 3, 32, 32), dtype=np.float32)


class Net(nn.Module):
    """Its last maps go into a ReLU that works in place, on request."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            self.first = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
            self.last = nn.Conv2d(4, 6, 3, stride=2)
            self.head = nn.Linear(6, 3)
        self.relu = nn.ReLU(inplace)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.relu(self.last(self.first(images))).mean((2, 3)))


def transformer(pool: str = "token", registers: int = 0) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = VisionTransformer(
            img_size=32,
            patch_size=8,
            embed_dim=16,
            depth=3,
            num_heads=2,
            num_classes=3,
            global_pool=pool,
            reg_tokens=registers,
            class_token=pool == "token",
        )
        nn.init.normal_(model.head.weight)
    return model.eval()


def of_torchvision() -> nn.Module:
    from torchvision.models import VisionTransformer

    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = VisionTransformer(32, 8, 3, 2, 16, 32, num_classes=3)
        nn.init.normal_(model.heads.head.weight)
    return model.eval()


def by_the_library(name: str, model: nn.Module, layer: nn.Module, images: np.ndarray, reshape=None) -> np.ndarray:
    """What the library says, called as its README does, of one image after the other."""
    kwargs = {"ablation_layer": AblationLayerVit()} if reshape and name == "AblationCAM" else {}
    layers = [] if name == "FullGrad" else [layer]
    cam = getattr(pytorch_grad_cam, CAM_METHODS[name])(model, layers, reshape_transform=reshape, **kwargs)
    with warnings.catch_warnings(action="ignore"):
        result = np.stack(
            [
                cam(torch.tensor(image[None]), [ClassifierOutputTarget(int(target))])
                for image, target in zip(images, TARGETS, strict=True)
            ]
        )
    cam.activations_and_grads.release()
    assert result.std() > 0.01
    return result


@pytest.mark.parametrize("name", CAM_METHODS)
def test_convolutions(name: str) -> None:
    model = Net().eval()
    expected = by_the_library(name, model, model.relu, IMAGES)
    np.testing.assert_allclose(build_method(name)(model, IMAGES, TARGETS), expected, atol=1e-6)
    expected = by_the_library(name, model, model.first, IMAGES)
    np.testing.assert_allclose(build_method(name, layer="first")(model, IMAGES, TARGETS), expected, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CAM_METHODS if name != "FullGrad"])
def test_tokens(name: str) -> None:
    model = transformer()
    reshape = partial(vit_reshape_transform, height=4, width=4)
    # What the library's README advises, found in the model.
    expected = by_the_library(name, model, model.blocks[-1].norm1, IMAGES, reshape)
    result = build_method(name)(model, IMAGES, TARGETS)
    np.testing.assert_allclose(result, expected, atol=1e-6)
    np.testing.assert_array_equal(build_method(name, layer="blocks.2.norm1")(model, IMAGES, TARGETS), result)


@pytest.mark.parametrize(
    ("model", "cut", "layer"),
    [
        (transformer(), from_timm, "blocks.2.norm1"),
        (transformer(registers=4), from_timm, "blocks.2.norm1"),
        (transformer("avg"), from_timm, "blocks.2.norm2"),
        (of_torchvision(), from_torchvision, "encoder.layers.encoder_layer_2.ln_1"),
    ],
    ids=["timm", "registers", "mean", "torchvision"],
)
def test_the_layer_and_the_grid_are_found(model: nn.Module, cut, layer: str) -> None:
    image = torch.tensor(IMAGES[:1])
    assert _default_layer(_Logits(model), image) == layer
    _, seen = _run(_Logits(model), image, {layer: model.get_submodule(layer)})
    # As the backbone cuts its maps.
    backbone = cut(model)
    tokens, to_maps = backbone.features(image), seen[layer].to_maps
    assert to_maps is not None
    assert torch.equal(to_maps(tokens), to_grid(tokens[:, backbone.pool.prefix :], backbone.pool.grid))


class Merged(nn.Module):
    """Tokens of which four become one, as in Swin, or whose last convolution lays another grid, as in PVT."""

    def __init__(self, grid: int) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            self.patches = nn.Conv2d(3, 4, 4, 4)
            self.other = nn.Conv2d(4, 4, 8 // grid, 8 // grid)
            self.early, self.late, self.head = nn.LayerNorm(4), nn.LayerNorm(4), nn.Linear(4, 3)
        self.grid = grid

    def forward(self, images: Tensor) -> Tensor:
        maps = self.patches(images)
        tokens = self.early(maps.flatten(2).transpose(1, 2))
        if self.grid != 8:
            tokens = tokens + self.other(maps).flatten(2).mean(2)[:, None]
        else:
            tokens = tokens.transpose(1, 2).unflatten(2, (4, 2, 4, 2)).mean((3, 5)).flatten(2).transpose(1, 2)
        return self.head(self.late(tokens).mean(1))


def test_merged_patches_and_another_grid() -> None:
    model = Merged(8).eval()
    reshape = partial(vit_reshape_transform, height=4, width=4)
    expected = by_the_library(
        "HiResCAM", model, model.late, IMAGES, lambda tokens: reshape(torch.cat([tokens[:, :1], tokens], 1))
    )
    explain = build_method("HiResCAM", layer="late")
    np.testing.assert_allclose(explain(model, IMAGES, TARGETS), expected, atol=1e-6)
    with pytest.raises(ValueError, match="`layer` to name a layer that gives maps"):
        explain(Merged(4), IMAGES, TARGETS)


def test_oblong_images_and_channels_last() -> None:
    from timm.models.swin_transformer import SwinTransformer

    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        swin = SwinTransformer(
            img_size=(32, 64), patch_size=4, embed_dim=12, depths=(1, 1), num_heads=(1, 1), window_size=4, num_classes=3
        ).eval()
    images = np.random.default_rng(1).random((3, 3, 32, 64), dtype=np.float32)
    expected = by_the_library("HiResCAM", swin, swin.norm, images, lambda output: output.permute(0, 3, 1, 2))
    np.testing.assert_allclose(build_method("HiResCAM")(swin, images, TARGETS), expected, atol=1e-6)
    expected = by_the_library("AblationCAM", swin, swin.norm, images, lambda output: output.permute(0, 3, 1, 2))
    np.testing.assert_allclose(build_method("AblationCAM")(swin, images, TARGETS), expected, atol=1e-6)


def test_any_cam_of_the_library() -> None:
    model = Net().eval()
    layer_cam = pytorch_grad_cam.LayerCAM(model, [model.last])
    expected = layer_cam(torch.tensor(IMAGES), [ClassifierOutputTarget(int(target)) for target in TARGETS])[:, None]
    layer_cam.activations_and_grads.release()
    for cam in ("LayerCAM", pytorch_grad_cam.LayerCAM):
        result = explain_func(LibraryCAM, layer="last", cam=cam)(model, IMAGES, TARGETS)
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_a_relu_in_place_after_the_layer_does_not_change_its_maps() -> None:
    # It reads activations alone; with the gradient, what the ReLU cuts off is 0.
    explain = build_method("EigenCAM", layer="last")
    expected = explain(Net().eval(), IMAGES, TARGETS)
    np.testing.assert_array_equal(explain(Net(inplace=True).eval(), IMAGES, TARGETS), expected)


@pytest.mark.parametrize("name", CAM_METHODS)
def test_nothing_of_the_model_is_changed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = Net().train()
    model.first[3].eval()
    expected = build_method(name)(model, IMAGES, TARGETS)
    # Weights that are frozen, and gradients of the user's own.
    for parameter in model.first.parameters():
        parameter.requires_grad_(False)
    gradient = model.head.weight.grad = torch.ones_like(model.head.weight)
    modules = [*model.named_modules()]
    with untouched(model, IMAGES, TARGETS):
        np.testing.assert_array_equal(build_method(name)(model, IMAGES, TARGETS), expected)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    np.testing.assert_array_equal(build_method(name)(model, IMAGES, TARGETS), expected)
    assert model.head.weight.grad is gradient
    assert bool((gradient == 1).all())
    assert [*model.named_modules()] == modules
    assert capsys.readouterr() == ("", "")


class Breaks(Net):
    """Runs only batches of one, as those of AblationCAM are not."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > 1:
            raise RuntimeError("too many")
        return super().forward(images)


def test_a_model_that_fails_gets_its_layers_back() -> None:
    model = Breaks()
    with untouched(model), pytest.raises(RuntimeError, match="too many") as caught:
        LibraryCAM(model, "last", cam="AblationCAM").attribute(torch.tensor(IMAGES), target=0)
    # Held, so are the library's objects.
    assert caught.tb is not None
    assert isinstance(model.last, nn.Conv2d)


@pytest.mark.parametrize("name", CAM_METHODS)
def test_half_precision(name: str) -> None:
    model = Net().eval()
    expected = build_method(name)(model, IMAGES, TARGETS)
    result = build_method(name)(model.half(), IMAGES, TARGETS)
    assert result.dtype == np.float32
    assert np.corrcoef(result.ravel(), expected.ravel())[0, 1] > 0.99


def test_one_output_needs_no_target() -> None:
    model = nn.Sequential(Net(), nn.Linear(3, 1), nn.Flatten(0)).eval()
    x = torch.tensor(IMAGES)
    maps = LibraryCAM(model, cam="HiResCAM").attribute(x)
    assert bool((maps == LibraryCAM(model, cam="HiResCAM").attribute((x,), target=0)[0]).all())


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captum_concepts.lazy.find_spec", lambda name: None)
    explain = build_method("HiResCAM")
    message = r"The class activation map HiResCAM needs the package pytorch_grad_cam: .* '\.\[cam\]' in a checkout"
    with pytest.raises(ImportError, match=message):
        explain(Net(), IMAGES, TARGETS)


X = torch.tensor(IMAGES)
test_refused = refusals(
    (lambda: LibraryCAM(nn.ReLU(), cam="HiResCAM"), "`forward_func` to be an nn.Module with parameters"),
    (lambda: LibraryCAM(lambda images: images, cam="HiResCAM"), "`forward_func` to be an nn.Module"),
    (lambda: LibraryCAM(Net(), cam="hirescam"), "`cam` to be one of"),
    (lambda: LibraryCAM(Net(), "layer4", cam="HiResCAM"), "`layer` to name a layer"),
    (lambda: LibraryCAM(Net(), cam="HiResCAM").attribute(X), "`target` to name one of the 3 outputs"),
    (lambda: LibraryCAM(Net(), cam="EigenCAM").attribute(X, target=3), "`target` to hold indices of outputs"),
    (lambda: LibraryCAM(Net(), cam="HiResCAM").attribute((X, X), target=0), "`inputs` to be one tensor"),
    (lambda: LibraryCAM(Net(), "head", cam="HiResCAM").attribute(X, target=0), r"`layer` .* but 'head' gives shape"),
    (lambda: LibraryCAM(Net(), "first.0", cam="HiResCAM").attribute(X[0], target=0), "`inputs` to have shape"),
    (
        lambda: LibraryCAM(nn.Sequential(nn.Flatten(), nn.Linear(3072, 2)), cam="HiResCAM").attribute(X, target=0),
        "`layer` to name a layer",
    ),
    error=(TypeError, ValueError),
)
