"""Files of concept models: tensors in safetensors, facts in JSON, the backbone left out and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from captum_concepts.backbones.backbone import Normalisation, check_image_statistics
from captum_concepts.backbones.layers import LayerFeatures
from captum_concepts.backbones.pooling import Pooling
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.files import pack, read_file
from captum_concepts.fingerprints import tensors_hash
from captum_concepts.models.chain import VALUES, check_class_names
from captum_concepts.models.plain_layers import build_layers, check_finites, describe_layers
from captum_concepts.models.random_banks import RandomBank, stack_banks, unstack_banks
from captum_concepts.support.checks import check_names, check_shape
from captum_concepts.support.files import quote

WHAT = "concept model"
#: Attributes (L,) of a model, from which the effect of a concept is counted.
LEVELS = ("absent_values", "mean_values")


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

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the header, and the tensors on the CPU; raise for a head or residual that files cannot hold."""
        model, tensors = ({"names": self.names}, {}) if self.bank is None else self.bank.parts()
        model |= {} if self.bank is None else {"values": self.values}
        model |= {name: describe_layers(stage, name) for name, stage in self.stages.items()}
        model |= {"backbone": asdict(self.backbone)}
        model |= {} if self.class_names is None else {"class_names": self.class_names}
        parts = {name: stage.state_dict() for name, stage in self.stages.items()}
        parts |= {"random": stack_banks(self.random_banks)} if self.random_banks else {}
        tensors |= {f"{part}.{key}": tensor for part, state in parts.items() for key, tensor in state.items()}
        tensors |= self.levels
        return pack(self.kind, model, tensors)


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


def read_model(source: Path, kind: str) -> ModelContents:
    """Read the file or the folder of a model of a class; nothing in it is executed."""
    return read_file(source, WHAT, kind, partial(_unpack, kind))


def _unpack(kind: str, model: dict[str, Any], tensors: dict[str, Tensor]) -> ModelContents:
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
        bank = ConceptBank.from_parts(model, tensors)
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


def _function_name(function: str | Callable[..., object]) -> str:
    """Return what a pool or maps is called, wherever it is defined."""
    if isinstance(function, str):
        return function
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name.rpartition("<locals>.")[2]
