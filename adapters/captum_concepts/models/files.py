"""Files of concept models: tensors in safetensors, facts in JSON, the backbone left out and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub.constants import CONFIG_NAME, SAFETENSORS_SINGLE_FILE
from safetensors.torch import save_file
from torch import Tensor, contiguous_format, nn

from captum_concepts.backbones.backbone import Normalisation, check_image_statistics
from captum_concepts.backbones.layers import LayerFeatures
from captum_concepts.backbones.pooling import Pooling
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.files import P_VALUES, RELEASED, TENSORS, check_kind_of_file, read_tensors, settings_json
from captum_concepts.fingerprints import tensors_hash
from captum_concepts.models.chain import VALUES, check_class_names
from captum_concepts.models.plain_layers import build_layers, check_finites, describe_layers
from captum_concepts.models.random_banks import RandomBank, stack_banks, unstack_banks
from captum_concepts.support.checks import check_names, check_shape
from captum_concepts.support.files import check_target, parse_json, quote, read_json, reason_of, write_atomically

_VERSION = "1"
#: Attributes (L,) of a model, from which the effect of a concept is counted.
LEVELS = ("absent_values", "mean_values")
_PACKAGE = "captum_concepts."
_KINDS = ("PostHocCBM", "ResidualCBM", "BottleneckCBM")


@dataclass(frozen=True)
class BackboneFacts:
    """Facts in a file about the backbone of its concepts, which is not in it."""

    #: "library:model:weights", if known.
    source: str | None
    #: Hash of the numbers of all its parameters and buffers, in order; not of their names.
    weights: str
    channels: int
    layer: str | None
    pool: str
    maps: str | None
    normalisation: Normalisation | None = None

    def differences(self, other: BackboneFacts) -> list[str]:
        """Return in what another backbone differs."""
        named = {"weights": "weights (by SHA-256)", "layer": "layer", "pool": "pool", "maps": "maps"}
        pairs = [(title, getattr(other, name), getattr(self, name)) for name, title in named.items()]
        return [f"{title}: {quote(new):.60} instead of {quote(old):.60}" for title, new, old in pairs if new != old]


@dataclass(frozen=True)
class ModelContents:
    """What the files of a model hold; its concepts are a bank, or else a concept layer with its activation."""

    head: nn.Module
    backbone: BackboneFacts
    bank: ConceptBank | None = None
    values: str = ""
    layer: nn.Module | None = None
    activation: nn.Module | None = None
    names: list[str] | None = None
    residual: nn.Module | None = None
    class_names: list[str] | None = None
    random_banks: tuple[RandomBank, ...] = ()
    #: Those of `LEVELS` that are known.
    levels: dict[str, Tensor] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Name of the class of the model."""
        return "ResidualCBM" if self.residual is not None else "PostHocCBM" if self.bank else "BottleneckCBM"

    @property
    def stages(self) -> dict[str, nn.Module]:
        """The modules that are written, by name."""
        stages = {"concept_layer": self.layer, "activation": self.activation, "head": self.head}
        return {name: stage for name, stage in (stages | {"residual": self.residual}).items() if stage is not None}

    @property
    def concept_names(self) -> list[str] | None:
        """Names of the concepts, if known."""
        return self.names if self.bank is None else self.bank.names

    def pack(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Return the facts, and the tensors on the CPU; raise for a head or residual that files cannot hold."""
        model: dict[str, object] = {"names": self.concept_names}
        model |= {} if self.bank is None else {"settings": self.bank.settings, "values": self.values}
        model |= {name: describe_layers(stage, name) for name, stage in self.stages.items()}
        model |= {"backbone": asdict(self.backbone)}
        model |= {} if self.class_names is None else {"class_names": self.class_names}
        text = settings_json(model)
        tensors = {}
        if self.bank is not None:
            known = () if self.bank.p_values.isnan().all() else (P_VALUES,)
            tensors = {name: getattr(self.bank, name) for name in (*TENSORS, *known)}
        parts = {name: stage.state_dict() for name, stage in self.stages.items()}
        parts |= {"random": stack_banks(self.random_banks)} if self.random_banks else {}
        tensors |= {f"{part}.{key}": tensor for part, state in parts.items() for key, tensor in state.items()}
        tensors |= self.levels
        # Each its own memory, which safetensors asks for.
        tensors = {name: t.detach().cpu().clone(memory_format=contiguous_format) for name, t in tensors.items()}
        facts = {"kind": _PACKAGE + self.kind, "version": _VERSION, "model": json.loads(text)}
        return facts | {"sha256": _checksum(text, tensors)}, tensors


def backbone_facts(
    features: nn.Module, pooling: Pooling, channels: int, source: str | None, normalisation: Normalisation | None
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
        save_file(tensors, temporary, {key: v if isinstance(v, str) else json.dumps(v) for key, v in facts.items()})


def write_folder(folder: Path, contents: ModelContents) -> None:
    """Write tensors and facts as two files, under the names that the hub knows."""
    facts, tensors = contents.pack()
    with write_atomically(folder / SAFETENSORS_SINGLE_FILE) as temporary:
        save_file(tensors, temporary, {"format": "pt"})
    with write_atomically(folder / CONFIG_NAME) as temporary:
        temporary.write_text(json.dumps(facts, indent=2), encoding="utf-8")


def read_model(source: Path, kind: str) -> ModelContents:
    """Read the file or the folder of a model of a class; nothing in it is executed."""
    writer, folder = f"{kind}.save", source.is_dir()
    if folder and not (source / CONFIG_NAME).is_file():
        raise FileNotFoundError(f"There is no concept model in {source}: it holds no {CONFIG_NAME}. {RELEASED}.")
    path = source / SAFETENSORS_SINGLE_FILE if folder else source
    tensors, header = read_tensors(path, "cpu", "concept model", writer)
    facts: Any = read_json(source / CONFIG_NAME, "Concept model") if folder else header
    actual = str(facts.get("kind")).removeprefix(_PACKAGE) if isinstance(facts, dict) else ""
    has_concepts = {*TENSORS} <= tensors.keys() or any(name.startswith("concept_layer.") for name in tensors)
    check_kind_of_file(source, actual in _KINDS and has_concepts, tensors, "concept model", writer)
    if actual != kind:
        raise ValueError(f"{source} holds a {actual} and not a {kind}. Read it with `{actual}.load`.")
    if facts.get("version") != _VERSION:
        raise ValueError(
            f"{source} is a concept model of version {quote(facts.get('version'))} but this is read: {_VERSION}. "
            "Update quantus-concepts, or write the file with the version you have."
        )
    try:
        model = facts["model"] if folder else parse_json(facts["model"])
        if facts["sha256"] != _checksum(json.dumps(model), tensors):
            raise ValueError("its content is not what was written. Copy it again")
        return _unpack(model, tensors, kind)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{source} is a damaged concept model: {reason_of(error)}.") from error


def _unpack(model: dict[str, Any], tensors: dict[str, Tensor], kind: str) -> ModelContents:
    facts = BackboneFacts(**model["backbone"])
    if not isinstance(facts.source, str | None):
        raise ValueError(f"the source of its backbone is {quote(facts.source)}")
    if facts.normalisation is not None:
        check_image_statistics(facts.normalisation)
        mean, std = facts.normalisation
        facts = replace(facts, normalisation=(tuple(mean), tuple(std)))
    width = facts.channels

    def stage(name: str, width: int) -> nn.Module:
        return build_layers(model[name], _below(f"{name}.", tensors), width, name)

    concepts: dict[str, Any] = {}
    if "concept_layer" in model:
        layer = stage("concept_layer", width)
        n_concepts = [part.out_features for part in layer.modules() if isinstance(part, nn.Linear)][-1]
        names = None if model["names"] is None else check_names(model["names"], n_concepts)
        concepts = {"layer": layer, "activation": stage("activation", n_concepts), "names": names}
    else:
        bank_tensors = {name: tensors[name] for name in (*TENSORS, P_VALUES) if name in tensors}
        bank = ConceptBank(**bank_tensors, names=model["names"], settings=model["settings"])
        if model["values"] not in VALUES:
            raise ValueError(f"its values are {quote(model['values'])}, expected one of {list(VALUES)}")
        n_concepts, width = bank.cavs.shape
        concepts = {"bank": bank, "values": model["values"]}
    head = stage("head", n_concepts)
    residual = stage("residual", width) if kind == "ResidualCBM" else None
    names = model.get("class_names")
    stacked = _below("random.", tensors)
    check_finites(stacked)
    banks = unstack_banks(stacked, n_concepts, width) if stacked else ()
    names = None if names is None else check_class_names(names, head)
    levels = {name: tensors[name] for name in LEVELS if name in tensors}
    for name, level in levels.items():
        check_shape(name, level, ("L",), (n_concepts,))
    check_finites(levels)
    return ModelContents(
        head, facts, **concepts, residual=residual, class_names=names, random_banks=banks, levels=levels
    )


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    return tensors_hash(text, sorted(tensors.items()))


def _function_name(function: str | Callable[..., object]) -> str:
    """Return what a pool or maps is called, wherever it is defined."""
    if isinstance(function, str):
        return function
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name.rpartition("<locals>.")[2]
