"""Load released concept models: `load_released` and `released_weights`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.pooling import resolve_stages
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import check_class_names, make_linear
from captum_concepts.models.residual import ResidualCBM
from captum_concepts.released.formats import find_format
from captum_concepts.released.parts import (
    Activation,
    Layer,
    Options,
    Reading,
    Release,
    distinguish,
    sequence_of,
)
from captum_concepts.support.checks import check_choice, check_path
from captum_concepts.support.files import list_some
from captum_concepts.support.running import device_of, warn_user

_ARGUMENTS = ("nec", "head", "activation")


def load_released(
    path: str | os.PathLike[str],
    features: nn.Module | Backbone | None = None,
    *,
    nec: int | None = None,
    head: str | os.PathLike[str] | None = None,
    activation: Activation | str = "file",
    names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    strict: bool = True,
) -> BottleneckCBM | PostHocCBM | ResidualCBM | ConceptBank:
    """Load a concept model or bank that the authors' code of a method has trained and written.

    The format is recognised by its files, and nothing in them is executed:

    =========================== ===================================== ===============================
    project                     `path`                                returns
    =========================== ===================================== ===============================
    Label-free CBM, VLG-CBM     folder of the model                   `BottleneckCBM`
    post-hoc CBM (PCBM, PCBM-h) ``.ckpt`` of the model                `PostHocCBM`, `ResidualCBM`
    bank of post-hoc CBM        ``.pkl``                              `ConceptBank`
    DN-CBM (sparse autoencoder) folder with autoencoder, head, names  `BottleneckCBM`
    CBM (Koh et al.)            ``best_model_1.pth``                  `BottleneckCBM`
    CBM of CEM's repository     ``.pt``                               `BottleneckCBM`
    SpLiCE                      folder with means, vocab, embeddings  `ConceptBank`
    =========================== ===================================== ===============================

    Values and logits are those of the released code. A model of two classes with one logit z gets the logits -z/2 and
    z/2, which have the same classes and probabilities. Names of concepts that repeat get their number, with a warning.

    Parameters
    ----------
    path : path
        A folder or a file, as in the table.
    features : nn.Module or Backbone, optional
        The backbone that the model was trained on, as in `BottleneckCBM`; only a bank needs none.
    nec : int, optional
        Number of effective concepts for each class (Label-free CBM, VLG-CBM): loads the head of ``W_g@NEC=....pt``.
    head : path, optional
        File of the head where it is another: of an independent or sequential CBM, one of several of a DN-CBM.
    activation : callable, None or "file"
        From logits to concept values, None for none, where the file does not say it. "file": it does.
    names : sequence of str, optional
        L names of the concepts, in place of those of the release.
    class_names : sequence of str, optional
        K names of the classes.
    strict : bool
        Whether a backbone with another normalisation, or other weights than those that the release brings, is an error
        (or else a warning).

    Returns
    -------
    BottleneckCBM, PostHocCBM, ResidualCBM or ConceptBank
        On the device of the backbone and in its mode (train or eval); `normalisation` is set where the release is known
        to have one.

    Raises
    ------
    FileNotFoundError
        If there is nothing at `path`.
    ValueError
        If the format is not known, a file is missing, damaged or of other shapes, an argument is missing or has no
        effect on the format, the backbone is another one, or a concept model cannot represent the release.

    Examples
    --------
    >>> from captum_concepts import load_released
    >>> model = load_released("saved_models/cub_cbm", backbone, nec=5)  # doctest: +SKIP
    """
    source = check_path("path", path)
    if isinstance(activation, str):
        check_choice("activation", activation, ("file",))
    head_path = None if head is None else check_path("head", head)
    reading = Reading(_existing(source), Options(nec, head_path, activation, names, class_names))
    kind = find_format(reading)
    given = {"nec": nec, "head": head, "activation": None if activation == "file" else str(activation)}
    unused = [name for name in _ARGUMENTS if given[name] is not None and name not in kind.takes]
    release = kind.read(reading)
    if unused:
        raise ValueError(f"Expected no argument `{'`, `'.join(unused)}`, which has no effect on {kind.name}.")
    parts = [*release.layers, *release.head, *([release.residual] if release.residual else [])]
    if not all(tensor.float().isfinite().all() for layer in parts for tensor in layer):
        raise reading.error("is damaged: its layers hold NaN or infinity, or do after they are divided by deviations")
    own_names = _concept_names(reading, release)
    for warning in release.warnings:
        warn_user(f"{source} {warning}.")
    if not release.head:
        return _bank(release, own_names)
    if features is None:
        width = release.layers[0][0].shape[1]
        raise ValueError(
            f"Expected argument `features`, the backbone that {source} was trained on, which gives {width} numbers for "
            f"each image: {kind.name} keeps concepts and head."
        )
    _check_backbone(source, release, features, kind.backbone(reading), strict)
    return _model(release, features, own_names, class_names)


def released_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the weights of the backbone that comes with a release: CBM, CEM and its CBM, and fine-tuned VLG-CBM.

    Load them into the network before its features are cut, as ``network.load_state_dict(released_weights(path))``.
    Layers that read concepts or classes are left out, so that those of the network have to be identities, or
    ``strict=False``.

    Parameters
    ----------
    path : path
        As in `load_released`.

    Returns
    -------
    dict of Tensor
        The state dict.

    Raises
    ------
    FileNotFoundError
        If there is nothing at `path`.
    ValueError
        If the format is not known, a file is damaged, or the release holds no backbone.
    """
    source = check_path("path", path)
    reading = Reading(_existing(source), Options())
    if not (weights := find_format(reading).backbone(reading)):
        raise ValueError(f"{source} holds no backbone: it was trained on the features of one that stayed as it was.")
    return weights


def _existing(source: Path) -> Path:
    if not source.exists():
        raise FileNotFoundError(f"There is no released model at {source}.")
    return source


def _concept_names(reading: Reading, release: Release) -> list[str] | None:
    """Return the names of the concepts: those given, or those of the release, made different."""
    count = len(release.layers[-1][0])
    given = reading.options.names
    names = None if given is None and release.names is None else [*(release.names if given is None else given)]  # type: ignore[misc]
    if names is None:
        if release.named:
            raise reading.error(f"does not name its {count} concepts. Pass `names`, in the order of training")
        return None
    if len(names) != count:
        owner = "argument `names`" if given is not None else str(reading.path)
        raise ValueError(f"Expected {count} names of concepts but {owner} has {len(names)}.")
    if given is not None:
        return names
    if blank := [j for j, name in enumerate(names) if not name.strip()]:
        raise reading.error(f"has concepts without a name, of number {list_some(blank)}. Pass `names`")
    shown = distinguish(names)
    if changed := [new for old, new in zip(names, shown, strict=True) if new != old]:
        release.warnings.append(
            f"has {len(changed)} concepts of the same names, which get their numbers: {list_some(changed, 3)}"
        )
    return shown


def _check_backbone(
    source: Path, release: Release, features: nn.Module | Backbone, own: Mapping[str, Tensor], strict: bool
) -> None:
    """Raise, or warn, where a backbone is not the one of the release, as far as that can be seen."""
    module = features.features if isinstance(features, Backbone) else features
    width = release.layers[0][0].shape[1]
    if isinstance(features, Backbone) and features.channels != width:
        raise ValueError(
            f"Expected argument `features` to give embeddings of {width} numbers, as the concepts in {source} take, "
            f"but it gives {features.channels}. Is it another backbone, or cut at another layer?"
        )
    theirs, ours = features.normalisation if isinstance(features, Backbone) else None, release.normalisation
    problems = []
    if theirs is not None and ours is not None and not np.allclose(theirs, ours, atol=1e-3):
        problems.append(
            f"images were normalised by {ours}, and argument `features` says {theirs}. Pass "
            "`dataclasses.replace(features, normalisation=...)`, and images normalised so"
        )
    known = {_fingerprint(tensor) for tensor in own.values()}
    there = {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
    if own and (others := [name for name, tensor in there.items() if _fingerprint(tensor) not in known]):
        problems.append(
            f"it brings a backbone of its own, and {len(others)} of the {len(there)} tensors of `features` are not of "
            f"it ({list_some(others, 3)}). Load `released_weights(path)` into the network before you cut its features"
        )
    transforms = [m.transform_input for m in module.modules() if isinstance(getattr(m, "transform_input", None), bool)]
    if release.transform_input is not None and transforms and release.transform_input not in transforms:
        problems.append(
            f"its Inception had transform_input={release.transform_input}, and that of `features` has {transforms[0]}. "
            "Build it likewise"
        )
    for problem in problems:
        message = f"The backbone is not the one that {source} was trained on: {problem}"
        if strict:
            raise ValueError(f"{message}; or pass `strict=False` if it is meant to differ.")
        warn_user(f"{message}.")


def _fingerprint(tensor: Tensor) -> tuple[object, ...]:
    numbers = tensor.detach().cpu().float().contiguous()
    return tuple(tensor.shape), hashlib.sha256(numbers.numpy().tobytes()).hexdigest()


def _bank(release: Release, names: Sequence[str] | None) -> ConceptBank:
    ((cavs, intercepts),) = release.layers
    train, test = release.accuracies or (None, None)
    return ConceptBank(
        cavs.float(),
        intercepts.float(),
        names,
        train_accuracy=train,
        test_accuracy=test,
        settings={"method": "released"},
    )


def _model(
    release: Release,
    features: nn.Module | Backbone,
    names: Sequence[str] | None,
    class_names: Sequence[str] | None,
) -> BottleneckCBM | PostHocCBM | ResidualCBM:
    module, _ = resolve_stages(features, "mean", None)

    def build(layers: Sequence[Layer], between: type[nn.Module] = nn.ReLU) -> nn.Module:
        linear = [make_linear(weight, bias, torch.float32, device_of(module)) for weight, bias in layers]
        return sequence_of(linear, between).train(module.training)

    weight, bias = release.head[-1]
    if len(weight) == 1:
        # As two logits whose difference is z, so that the concepts of either class have weights of their own.
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    head = build([*release.head[:-1], (weight, bias)], nn.LeakyReLU)
    class_names = release.class_names if class_names is None else class_names
    model: BottleneckCBM | PostHocCBM
    if release.margins:
        model = PostHocCBM(features, _bank(release, names), head, "margin")
        model.class_names = None if class_names is None else check_class_names(class_names, head)
    else:
        layer = build(release.layers)
        model = BottleneckCBM(features, layer, head, names, class_names, activation=release.activation)
    model.normalisation = model.normalisation or release.normalisation
    return model if release.residual is None else ResidualCBM(model, build([release.residual]))
