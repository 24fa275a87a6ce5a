"""The file of a concept model: one safetensors file, with the layers of its head by name."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, contiguous_format, nn

from captum_concepts._support.checks import check_materialised
from captum_concepts._support.files import check_target, parse_json, quote, reason_of, write_atomically
from captum_concepts._support.fingerprints import tensors_hash
from captum_concepts.backbones.backbone import check_normalisation
from captum_concepts.backbones.layers import LayerFeatures
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.files import P_VALUES, TENSORS, check_kind_of_file, read_tensors, settings_json
from captum_concepts.models.chain import VALUES, check_class_names
from captum_concepts.models.random_banks import RandomBank, stack_banks, unstack_banks

# What each layer is made anew from; but for `bias`, attributes of the same names.
_SETTINGS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features", "bias"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "BatchNorm1d": ("num_features", "eps", "momentum", "affine", "track_running_stats"),
    "Dropout": ("p",),
    "GELU": ("approximate",),
    "Identity": (),
    "ReLU": (),
    "Sigmoid": (),
    "Tanh": (),
}
_RANGES = {"eps": (1e-300, 1.0), "momentum": (0.0, 1.0), "p": (0.0, 1.0)}
_FLAGS = ("bias", "elementwise_affine", "affine", "track_running_stats")
#: Of a head; ours have one to three.
_MAX_LAYERS = 100


def describe_head(head: nn.Module, name: str = "head") -> list[dict[str, Any]] | dict[str, Any]:
    """Return a layer, or the layers of a Sequential, as names and settings; raise for any other head."""
    if type(head) is nn.Sequential:
        return [_describe_layer(layer, name) for layer in head]
    return _describe_layer(head, name)


def build_head(description: Any, tensors: dict[str, Tensor], width: int, name: str = "head") -> nn.Module:
    """Build the head that `describe_head` has described, with its tensors; a ValueError if they do not fit.

    It must take rows of `width` numbers, and hold finite ones.
    """
    try:
        if isinstance(description, list) and len(description) > _MAX_LAYERS:
            raise ValueError(f"it has {len(description):,} layers, more than {_MAX_LAYERS}")
        _check_tensors(tensors)
        # The meta device draws nothing and takes no memory, also for the huge sizes of a damaged file.
        with torch.device("meta"):
            many = isinstance(description, list)
            layers = [_build_layer(layer) for layer in (description if many else [description])]
            head = nn.Sequential(*layers) if many else layers[0]
        head.load_state_dict({key: tensor.to("meta") for key, tensor in tensors.items()}, assign=True)
        # Widths, types and settings that do not fit each other are found here, without computing anything.
        kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()} or {torch.float32}
        with torch.no_grad():
            head.eval()(torch.empty(2, width, dtype=kinds.pop(), device="meta"))
        head.train().load_state_dict(tensors, assign=True)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"its {name} cannot be built ({reason_of(error)})") from error
    return head


def _describe_layer(layer: nn.Module, name: str) -> dict[str, Any]:
    # The type itself: a subclass, or a parametrised layer, may compute something else.
    kind = type(layer).__name__
    if type(layer) is not getattr(nn, kind, None) or kind not in _SETTINGS or "forward" in vars(layer):
        owner = "cbm" if name == "head" else "cbm.bottleneck"
        raise ValueError(
            f"Expected argument `{name}` of the model, to be written to a file, to be one or an nn.Sequential of "
            f"{', '.join(f'nn.{allowed}' for allowed in _SETTINGS)} but got {kind}. Save the bank with "
            f"`{owner}.bank.save(path)` and the {name}'s own state dict, and build "
            "`PostHocCBM(features, bank, head, values)` of both"
            + ("." if name == "head" else ", and `ResidualCBM(cbm, residual)` of that.")
        )
    settings = {setting: getattr(layer, setting) for setting in _SETTINGS[kind]}
    if "bias" in settings:
        settings["bias"] = layer.bias is not None
    return {"layer": kind, "settings": settings}


def _check_tensors(tensors: dict[str, Tensor]) -> None:
    """Raise unless tensors are finite numbers of one type, but for whole numbers of batches."""
    types: dict[torch.dtype, str] = {}
    for name, tensor in tensors.items():
        kind = name.rpartition(".")[2]
        if tensor.is_floating_point() == (kind == "num_batches_tracked") or tensor.is_complex():
            raise ValueError(f"{name} holds {tensor.dtype}")
        if not tensor.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinity")
        if kind == "running_var" and (tensor < 0).any():
            raise ValueError(f"{name} is negative")
        if tensor.is_floating_point():
            types.setdefault(tensor.dtype, name)
    if len(types) > 1:
        raise ValueError("; ".join(f"{name} holds {kind}" for kind, name in types.items()) + ", expected one type")


def _build_layer(description: dict[str, Any]) -> nn.Module:
    name, settings = description["layer"], description["settings"]
    if settings.keys() != {*_SETTINGS[name]}:
        raise ValueError(f"{name} has the settings {sorted(settings)}")
    for key, (low, high) in _RANGES.items():
        value = settings.get(key, low)
        if not (key == "momentum" and value is None) and not (type(value) in (int, float) and low <= value <= high):
            raise ValueError(f"{key} of {name} is {quote(value)}")
    for key in _FLAGS:
        if type(settings.get(key, True)) is not bool:
            raise ValueError(f"{key} of {name} is {quote(settings[key])}")
    return getattr(nn, name)(**settings)


_VERSION = 1
_PACKAGE = "captum_concepts."
_KINDS = ("PostHocCBM", "ResidualCBM")
_STAGES = ("head", "residual")
#: How the names of tensors of random banks begin.
_RANDOM = "random."


@dataclass(frozen=True)
class BackboneFacts:
    """Facts in a file about the backbone of its concepts, which is not in it."""

    #: "library:model:weights", if known.
    source: str | None
    #: Of the numbers of all its parameters and buffers, in order; not of their names.
    weights: str
    channels: int
    layer: str | None
    pool: str
    maps: str | None
    normalisation: Any = None

    def differences(self, other: BackboneFacts) -> list[str]:
        """Return in what another backbone differs."""
        named = {"weights": "weights (by SHA-256)", "layer": "layer", "pool": "pool", "maps": "maps"}
        return [
            f"{title}: {_short(getattr(other, name))} instead of {_short(getattr(self, name))}"
            for name, title in named.items()
            if getattr(self, name) != getattr(other, name)
        ]


_FACTS: dict[str, Any] = {"weights": str, "channels": int, "pool": str} | dict.fromkeys(
    ("source", "layer", "maps"), str | None
)


@dataclass(frozen=True)
class ModelContents:
    """What the file of a model holds."""

    bank: ConceptBank
    head: nn.Module
    values: str
    backbone: BackboneFacts
    residual: nn.Module | None = None
    class_names: list[str] | None = None
    random_banks: tuple[RandomBank, ...] = ()

    @property
    def kind(self) -> str:
        """Name of the class of the model."""
        return _KINDS[self.residual is not None]

    @property
    def stages(self) -> dict[str, nn.Module]:
        """The modules that are written, by name."""
        return {name: stage for name in _STAGES if (stage := getattr(self, name)) is not None}


def backbone_facts(features: nn.Module, pooling: Any, channels: int, source: Any, normalisation: Any) -> BackboneFacts:
    """Describe a backbone and its pooling."""
    named: list[tuple[str, Tensor]] = []
    for module in (features, pooling):
        check_materialised("features", module)
        tensors = [value for value in module.state_dict().values() if isinstance(value, Tensor)]
        tensors = [value.int_repr() if value.is_quantized else value for value in tensors]
        # Without names: the same network may lie in a wrapper, or be cut by hand.
        named += [(str(i), tensor) for i, tensor in enumerate(tensors)]
    layer = features.layer if isinstance(features, LayerFeatures) else None
    maps = None if pooling.maps is None else _function_name(pooling.maps)
    return BackboneFacts(
        source, tensors_hash("", named), channels, layer, _function_name(pooling.pool), maps, normalisation
    )


def write_model(path: Path, model: ModelContents) -> None:
    """Write a file that appears under its name only when it is complete."""
    target = check_target(path, "a concept model")
    described = {
        "names": model.bank.names,
        "settings": model.bank.settings,
        "values": model.values,
        **{name: describe_head(stage, name) for name, stage in model.stages.items()},
        "backbone": asdict(model.backbone),
    }
    if model.class_names is not None:
        described["class_names"] = model.class_names
    text = settings_json(described)
    tensors = {name: getattr(model.bank, name) for name in TENSORS}
    if not model.bank.p_values.isnan().all():
        tensors[P_VALUES] = model.bank.p_values
    for stage, module in model.stages.items():
        tensors |= {f"{stage}.{name}": tensor for name, tensor in module.state_dict().items()}
    if model.random_banks:
        tensors |= {f"{_RANDOM}{name}": tensor for name, tensor in stack_banks(model.random_banks).items()}
    # Each its own memory, which safetensors asks for.
    tensors = {name: tensor.detach().cpu().clone(memory_format=contiguous_format) for name, tensor in tensors.items()}
    header = {"kind": _PACKAGE + model.kind, "version": str(_VERSION), "model": text}
    header["sha256"] = _checksum(text, tensors)
    with write_atomically(target) as temporary:
        save_file(tensors, temporary, header)


def read_model(source: Path, kind: str) -> ModelContents:
    """Read a file that `write_model` has written of a model of a class; nothing in it is executed."""
    writer = f"{kind}.save"
    tensors, header = read_tensors(source, "cpu", "concept model", writer)
    actual = header.get("kind", "").removeprefix(_PACKAGE)
    check_kind_of_file(source, actual in _KINDS, tensors, "concept model", writer)
    if actual != kind:
        raise ValueError(
            f"{source} holds a {actual} and not a {kind}. Read it with `{actual}.load`, or `{actual}.from_hub`."
        )
    version, text = header.get("version", ""), header.get("model", "")
    if version != str(_VERSION):
        raise ValueError(
            f"{source} is a concept model of version {quote(version)} but this is read: {_VERSION}. Update "
            "quantus-concepts, or write the file with the version you have."
        )
    if header.get("sha256") != _checksum(text, tensors):
        raise ValueError(f"{source} is a damaged concept model: its content is not what was written. Copy it again.")
    try:
        return _contents(parse_json(text), tensors, kind)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{source} is a damaged concept model: {reason_of(error)}.") from error


def _contents(description: dict[str, Any], tensors: dict[str, Tensor], kind: str) -> ModelContents:
    bank_tensors = {name: tensors[name] for name in TENSORS} | {P_VALUES: tensors.get(P_VALUES)}
    bank = ConceptBank(**bank_tensors, names=description["names"], settings=description["settings"])
    values = description["values"]
    if values not in VALUES:
        raise ValueError(f"its values are {quote(values)}, expected one of {list(VALUES)}")
    stages = {
        stage: build_head(
            description[stage],
            _below(f"{stage}.", tensors),
            bank.cavs.shape[0 if stage == "head" else 1],
            stage,
        )
        for stage in _STAGES[: 1 + _KINDS.index(kind)]
    }
    facts = BackboneFacts(**{field.name: description["backbone"][field.name] for field in fields(BackboneFacts)})
    if wrong := [name for name, kind in _FACTS.items() if not isinstance(getattr(facts, name), kind)]:
        raise ValueError(f"{wrong[0]} of its backbone is {quote(getattr(facts, wrong[0]))}")
    if facts.channels != bank.cavs.shape[1]:
        raise ValueError(f"its backbone gives {quote(facts.channels)} channels, its concepts have {bank.cavs.shape[1]}")
    if facts.normalisation is not None:
        check_normalisation(facts.normalisation)
    names = description.get("class_names")
    if names is not None:
        names = check_class_names(names, stages["head"])
    stacked = _below(_RANDOM, tensors)
    _check_tensors(stacked)
    banks = unstack_banks(stacked, *bank.cavs.shape) if stacked else ()
    return ModelContents(bank, values=values, backbone=facts, class_names=names, random_banks=banks, **stages)


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    return tensors_hash(text, sorted(tensors.items()))


def _function_name(function: Any) -> str:
    """Return what a pool or maps is called, wherever it is defined."""
    if isinstance(function, str):
        return function
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name.rpartition("<locals>.")[2]


def _short(value: Any) -> str:
    text = quote(value)
    return f"{text[:13]}...'" if len(text) > 60 else text
