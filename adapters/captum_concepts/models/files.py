"""Files of concept models: tensors in safetensors, facts in JSON, heads and residuals as plain layers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import CONFIG_NAME, SAFETENSORS_SINGLE_FILE
from safetensors.torch import save_file
from torch import Tensor, contiguous_format, nn

from captum_concepts._support.files import (
    check_target,
    parse_json,
    quote,
    read_json,
    reason_of,
    write_atomically,
)
from captum_concepts._support.fingerprints import tensors_hash
from captum_concepts.backbones.backbone import check_normalisation
from captum_concepts.backbones.layers import LayerFeatures
from captum_concepts.backbones.pooling import Pooling
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.files import P_VALUES, TENSORS, check_kind_of_file, read_tensors, settings_json
from captum_concepts.models.chain import VALUES, check_class_names
from captum_concepts.models.random_banks import RandomBank, stack_banks, unstack_banks

#: The layers that files hold, and what each is made anew from; but for `bias`, attributes of the same names.
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
#: Of a head; ours have one to three.
_MAX_LAYERS = 100
_VERSION = "1"
_PACKAGE = "captum_concepts."
_KINDS = ("PostHocCBM", "ResidualCBM")


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
        pairs = [(title, getattr(other, name), getattr(self, name)) for name, title in named.items()]
        return [f"{title}: {quote(new):.60} instead of {quote(old):.60}" for title, new, old in pairs if new != old]


@dataclass(frozen=True)
class ModelContents:
    """What the files of a model hold."""

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
        return {"head": self.head} | ({} if self.residual is None else {"residual": self.residual})

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the facts, and the tensors on the CPU; raise for a head or residual that files cannot hold."""
        model: dict[str, Any] = {"names": self.bank.names, "settings": self.bank.settings, "values": self.values}
        model |= {name: _describe(stage, name) for name, stage in self.stages.items()}
        model |= {"backbone": asdict(self.backbone)}
        model |= {} if self.class_names is None else {"class_names": self.class_names}
        tensors = {name: getattr(self.bank, name) for name in TENSORS}
        if not self.bank.p_values.isnan().all():
            tensors[P_VALUES] = self.bank.p_values
        for name, stage in self.stages.items():
            tensors |= {f"{name}.{key}": tensor for key, tensor in stage.state_dict().items()}
        if self.random_banks:
            tensors |= {f"random.{name}": tensor for name, tensor in stack_banks(self.random_banks).items()}
        # Each its own memory, which safetensors asks for.
        tensors = {name: t.detach().cpu().clone(memory_format=contiguous_format) for name, t in tensors.items()}
        text = settings_json(model)
        facts = {"kind": _PACKAGE + self.kind, "version": _VERSION, "model": json.loads(text)}
        return facts | {"sha256": _checksum(text, tensors)}, tensors


def backbone_facts(
    features: nn.Module, pooling: Pooling, channels: int, source: str | None, normalisation: Any
) -> BackboneFacts:
    """Describe a backbone and its pooling."""
    named: list[tuple[str, Tensor]] = []
    for module in (features, pooling):
        tensors = [value for value in module.state_dict().values() if isinstance(value, Tensor)]
        # Without names: the same network may lie in a wrapper, or be cut by hand.
        named += [(str(i), tensor) for i, tensor in enumerate(tensors)]
    layer = features.layer if isinstance(features, LayerFeatures) else None
    maps = None if pooling.maps is None else _function_name(pooling.maps)
    pool, weights = _function_name(pooling.pool), tensors_hash("", named)
    return BackboneFacts(source, weights, channels, layer, pool, maps, normalisation)


def write_file(path: Path, contents: ModelContents) -> None:
    """Write one safetensors file, the facts as its metadata; it appears under its name when it is complete."""
    target = check_target(path, "a concept model")
    facts, tensors = contents.pack()
    with write_atomically(target) as temporary:
        save_file(tensors, temporary, facts | {"model": json.dumps(facts["model"])})


def write_folder(folder: Path, contents: ModelContents) -> None:
    """Write tensors and facts as two files, under the names that the hub knows."""
    facts, tensors = contents.pack()
    with write_atomically(folder / SAFETENSORS_SINGLE_FILE) as temporary:
        save_file(tensors, temporary, {"format": "pt"})
    with write_atomically(folder / CONFIG_NAME) as temporary:
        temporary.write_text(json.dumps(facts, indent=2), encoding="utf-8")


def read_model(source: Path, kind: str) -> ModelContents:
    """Read the file or the folder of a model of a class; nothing in it is executed."""
    writer = f"{kind}.save"
    if source.is_dir():
        if not (source / CONFIG_NAME).is_file():
            raise FileNotFoundError(f"There is no concept model in {source}: it holds no {CONFIG_NAME}.")
        facts = read_json(source / CONFIG_NAME, "Concept model")
        tensors, _ = read_tensors(source / SAFETENSORS_SINGLE_FILE, "cpu", "concept model", writer)
    else:
        tensors, facts = read_tensors(source, "cpu", "concept model", writer)
    try:
        actual = str(facts.get("kind")).removeprefix(_PACKAGE)
        check_kind_of_file(source, actual in _KINDS, tensors, "concept model", writer)
    except AttributeError as error:
        raise ValueError(f"{source} is a damaged concept model: {CONFIG_NAME} holds no facts by name.") from error
    if actual != kind:
        raise ValueError(f"{source} holds a {actual} and not a {kind}. Read it with `{actual}.load`.")
    if facts.get("version") != _VERSION:
        raise ValueError(
            f"{source} is a concept model of version {quote(facts.get('version'))} but this is read: {_VERSION}. "
            "Update quantus-concepts, or write the file with the version you have."
        )
    try:
        text = json.dumps(facts["model"]) if source.is_dir() else facts["model"]
        if facts["sha256"] != _checksum(text, tensors):
            raise ValueError("its content is not what was written. Copy it again")
        return _unpack(parse_json(text), tensors, kind)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{source} is a damaged concept model: {reason_of(error)}.") from error


def _unpack(model: dict[str, Any], tensors: dict[str, Tensor], kind: str) -> ModelContents:
    bank_tensors = {name: tensors[name] for name in (*TENSORS, P_VALUES) if name in tensors}
    bank = ConceptBank(**bank_tensors, names=model["names"], settings=model["settings"])
    if model["values"] not in VALUES:
        raise ValueError(f"its values are {quote(model['values'])}, expected one of {list(VALUES)}")
    facts = BackboneFacts(**model["backbone"])
    if facts.channels != bank.cavs.shape[1]:
        raise ValueError(f"its backbone gives {quote(facts.channels)} channels, its concepts have {bank.cavs.shape[1]}")
    if not isinstance(facts.source, str | None):
        raise ValueError(f"the source of its backbone is {quote(facts.source)}")
    if facts.normalisation is not None:
        check_normalisation(facts.normalisation)
    head = _build(model["head"], _below("head.", tensors), bank.cavs.shape[0], "head")
    residual = None
    if kind == "ResidualCBM":
        residual = _build(model["residual"], _below("residual.", tensors), bank.cavs.shape[1], "residual")
    names = model.get("class_names")
    names = None if names is None else check_class_names(names, head)
    stacked = _below("random.", tensors)
    _check_tensors(stacked)
    banks = unstack_banks(stacked, *bank.cavs.shape) if stacked else ()
    return ModelContents(bank, head, model["values"], facts, residual, names, banks)


def _describe(module: nn.Module, name: str) -> list[dict[str, Any]] | dict[str, Any]:
    """Return a layer, or the layers of a Sequential, as names and settings; raise for any other module."""
    if type(module) is nn.Sequential:
        return [_describe_layer(layer, name) for layer in module]
    return _describe_layer(module, name)


def _describe_layer(layer: nn.Module, name: str) -> dict[str, Any]:
    # The type itself: a subclass, or a parametrised layer, may compute something else.
    kind = type(layer).__name__
    if type(layer) is not getattr(nn, kind, None) or kind not in _SETTINGS or "forward" in vars(layer):
        raise ValueError(
            f"Expected argument `{name}` of the model, to be written to a file, to be one or an nn.Sequential of "
            f"{', '.join(f'nn.{allowed}' for allowed in _SETTINGS)} but got {kind}. Save the bank with "
            f"`cbm.bank.save(path)` and the {name}'s own state dict, and build the model anew of both."
        )
    settings = {setting: getattr(layer, setting) for setting in _SETTINGS[kind]}
    if "bias" in settings:
        settings["bias"] = layer.bias is not None
    return {"layer": kind, "settings": settings}


def _build(description: Any, tensors: dict[str, Tensor], width: int, name: str) -> nn.Module:
    """Build the module that `_describe` has described, with its tensors; a ValueError if they do not fit.

    It must take rows of `width` numbers, and hold finite ones.
    """
    try:
        several = isinstance(description, list)
        described = description if several else [description]
        if len(described) > _MAX_LAYERS:
            raise ValueError(f"it has {len(described):,} layers, more than {_MAX_LAYERS}")
        _check_tensors(tensors)
        # The meta device draws nothing and takes no memory, also for the huge sizes of a damaged file.
        with torch.device("meta"):
            layers = [_build_layer(layer["layer"], layer["settings"]) for layer in described]
        module = nn.Sequential(*layers) if several else layers[0]
        module.load_state_dict({key: tensor.to("meta") for key, tensor in tensors.items()}, assign=True)
        # Widths, types and settings that do not fit each other are found here, without computing anything.
        kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()} or {torch.float32}
        if len(kinds) > 1:
            raise ValueError(f"it holds {sorted(map(str, kinds))}, expected one type")
        with torch.no_grad():
            module.eval()(torch.empty(2, width, dtype=kinds.pop(), device="meta"))
        module.train().load_state_dict(tensors, assign=True)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"its {name} cannot be built ({reason_of(error)})") from error
    return module


def _build_layer(kind: str, settings: dict[str, Any]) -> nn.Module:
    if settings.keys() != {*_SETTINGS[kind]}:
        raise ValueError(f"{kind} has the settings {sorted(settings)}")
    # A variance is divided by its root plus this.
    if not 0 < settings.get("eps", 1e-5) < 1:
        raise ValueError(f"eps of {kind} is {settings['eps']}")
    layer: nn.Module = getattr(nn, kind)(**settings)
    return layer


def _check_tensors(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinity")


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
