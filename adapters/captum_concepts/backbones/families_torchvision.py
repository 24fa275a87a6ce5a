"""Backbones from torchvision."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from captum_concepts.backbones.backbone import IMAGENET, Backbone, as_model, is_family, refusal, width
from captum_concepts.backbones.pools import MeanThen, TokenPool, check_map_size, with_class_token


def from_torchvision(model: nn.Module | str) -> Backbone:
    """Cut a torchvision classifier before its pooling.

    The embedding is what the last linear layer reads; that layer may be replaced or an Identity.

    ====================================================  =======================================  ======
    family                                                maps                                     linear
    ====================================================  =======================================  ======
    ResNet, RegNet, EfficientNet, MobileNetV2, DenseNet   before the average pool                  True
    Inception (v3)                                        before the average pool                  True
    Swin                                                  after the last norm, as (N, d, h, w)     True
    ConvNeXt, MaxVit, MobileNetV3                         the layers after the pool, per position  False
    VisionTransformer                                     patch tokens after the last norm         False
    ====================================================  =======================================  ======

    "linear" is `Backbone.linear_pool`; where it is False the maps are local evidence, not a decomposition of
    the value.

    Parameters
    ----------
    model : nn.Module or str
        The model, or a name known to `torchvision.models.get_model`, built without weights (the global
        random state is left as it was).

    Returns
    -------
    Backbone
        Sharing the submodules of `model`.

    Raises
    ------
    ValueError
        If the name or the family is not known, or the model pools in a way its family does not.

    Examples
    --------
    >>> from torchvision.models import resnet18
    >>> from captum_concepts import from_torchvision
    >>> network = resnet18(weights=None)  # "DEFAULT" for the trained one
    >>> from_torchvision(network).channels
    512
    """
    # Imported here, since loading it is slow and other libraries' models do not need it.
    from torchvision import models

    names = models.list_models
    build = partial(models.get_model, weights=None)
    model = as_model(model, "torchvision", lambda name: name in names(), names, build)
    for name, cut in _CUTS.items():
        if is_family(model, getattr(models, name)):
            return cut(model)
    raise refusal(model, "torchvision", _CUTS)


def _require_mean(model: Any) -> None:
    pool = model.avgpool
    if not (isinstance(pool, nn.AdaptiveAvgPool2d) and pool.output_size in (1, (1, 1))):
        raise refusal(model, "torchvision", _CUTS, f"with `avgpool` = {pool}")


def _before_last(classifier: nn.Module) -> nn.Sequential:
    """Return the layers before the last linear one, without dropout, which does nothing in eval mode."""
    layers = list(classifier)[:-1] if isinstance(classifier, nn.Sequential) else []
    return nn.Sequential(*(layer for layer in layers if not isinstance(layer, nn.Dropout)))


def _mean(features: nn.Module) -> Backbone:
    return Backbone(features, "mean", None, width(features))


def _up_to_mean(*names: str) -> Callable[[Any], Backbone]:
    """Return the cut of a family whose named layers give what its average pool takes."""

    def cut(model: Any) -> Backbone:
        _require_mean(model)
        features = nn.Sequential()
        for name in names:
            features.add_module(name, model.get_submodule(name))
        return _mean(features)

    return cut


def _efficientnet(model: Any) -> Backbone:
    _require_mean(model)
    return _mean(model.features)


def _mobilenet_v2(model: Any) -> Backbone:
    return _mean(model.features)


def _densenet(model: Any) -> Backbone:
    # The model applies this ReLU as a function, between its features and its pool.
    return Backbone(nn.Sequential(model.features, nn.ReLU()), "mean", None, width(model.features))


def _mobilenet_v3(model: Any) -> Backbone:
    _require_mean(model)
    project = _before_last(model.classifier)
    if not len(project):
        return _mean(model.features)
    pool = MeanThen(nn.Identity(), project)
    return Backbone(model.features, pool, pool.maps, width(project))


def _convnext(model: Any) -> Backbone:
    _require_mean(model)
    classifier = model.classifier
    if not (isinstance(classifier, nn.Sequential) and isinstance(classifier[0], nn.LayerNorm)):
        raise refusal(model, "torchvision", _CUTS, "with a classifier that does not begin with its norm")
    pool = MeanThen(classifier[0], nn.Identity())
    return Backbone(model.features, pool, pool.maps, width(classifier[0]))


def _maxvit(model: Any) -> Backbone:
    classifier = model.classifier
    if not (isinstance(classifier, nn.Sequential) and isinstance(classifier[0], nn.AdaptiveAvgPool2d)):
        raise refusal(model, "torchvision", _CUTS, "with a classifier that does not begin with its pool")
    features = nn.Sequential(model.stem, *model.blocks)
    project = _before_last(classifier[2:])
    pool = MeanThen(nn.Identity(), project)
    return Backbone(features, pool, pool.maps, width(project))


def _vit(model: Any) -> Backbone:
    project = _before_last(model.heads)
    side = model.image_size // model.patch_size
    channels = width(project) if len(project) else int(model.hidden_dim)
    pool = TokenPool(nn.Identity(), project, prefix=1, grid=(side, side))
    return Backbone(VitTokens(model), pool, pool.maps, channels)


#: The layers of Inception in the order of its forward pass.
_INCEPTION = (
    *("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "maxpool1", "Conv2d_3b_1x1", "Conv2d_4a_3x3", "maxpool2"),
    *("Mixed_5b", "Mixed_5c", "Mixed_5d", "Mixed_6a", "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"),
    *("Mixed_7a", "Mixed_7b", "Mixed_7c"),
)


def _inception(model: Any) -> Backbone:
    backbone = _up_to_mean(*_INCEPTION)(model)
    layers = {"transform_input": InceptionInput(model.transform_input), **dict(backbone.features.named_children())}
    # The branches of the last layer give its channels together.
    return Backbone(nn.Sequential(OrderedDict(layers)), "mean", None, 2048)


_CUTS = {
    "ResNet": _up_to_mean("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"),
    "RegNet": _up_to_mean("stem", "trunk_output"),
    "EfficientNet": _efficientnet,
    "MobileNetV2": _mobilenet_v2,
    "MobileNetV3": _mobilenet_v3,
    "DenseNet": _densenet,
    "Inception3": _inception,
    # (N, h, w, c) would pass for maps by its rank, so the permutation belongs to the features.
    "SwinTransformer": _up_to_mean("features", "norm", "permute"),
    "ConvNeXt": _convnext,
    "MaxVit": _maxvit,
    "VisionTransformer": _vit,
}


class InceptionInput(nn.Module):
    """Turn images normalised by ImageNet's statistics into images in [-1, 1], as Inception's `transform_input`."""

    def __init__(self, transform_input: bool) -> None:
        super().__init__()
        self.transform_input = transform_input

    def forward(self, images: Tensor) -> Tensor:
        """Return images of (N, 3, H, W)."""
        if not self.transform_input:
            return images
        mean, std = (images.new_tensor(numbers)[:, None, None] for numbers in IMAGENET)
        return (images * std + mean - 0.5) / 0.5


class VitTokens(nn.Module):
    """The tokens (N, 1 + t, c) of a torchvision vision transformer after its last norm, class token first."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name in ("conv_proj", "class_token", "encoder", "image_size"):
            setattr(self, name, getattr(model, name))

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens of images (N, 3, H, W)."""
        model: Any = self
        check_map_size(images, (model.image_size, model.image_size))
        patches = model.conv_proj(images).flatten(2).transpose(1, 2)
        return model.encoder(with_class_token(model.class_token, patches))
