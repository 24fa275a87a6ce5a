"""The file of a post-hoc concept bottleneck model: all of it in one safetensors file, but for its backbone."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, contiguous_format, nn

from captum_concepts.backbones.backbone import check_normalisation
from captum_concepts.bank import ConceptBank
from captum_concepts.bank_file import TENSORS, check_kind_of_file, digest_tensors, read_tensors
from captum_concepts.checks import check_materialised, check_path
from captum_concepts.head_layers import build_head
from captum_concepts.layers import LayerFeatures
from captum_concepts.reading import parse_json, quoted, reason_of
from captum_concepts.writing import check_target, written

_KIND = "captum_concepts.PostHocCBM"
_VERSION = 1
_WRITER = "PostHocCBM.save"
_HEAD = "head."


@dataclass(frozen=True)
class BackboneFacts:
    """What a file says of the backbone that its concepts were fitted on, which is not in it."""

    #: "library:model:weights", where it is known.
    source: str | None
    #: Of the numbers of all its parameters and buffers, in order; not of their names.
    weights: str
    channels: int
    layer: str | None
    pool: str
    maps: str | None
    normalisation: Any = None

    def differences(self, other: BackboneFacts) -> list[str]:
        """Say in what another backbone differs."""
        named = {"weights": "weights (by SHA-256)", "layer": "layer", "pool": "pool", "maps": "maps"}
        return [
            f"{title}: {_short(getattr(other, name))} instead of {_short(getattr(self, name))}"
            for name, title in named.items()
            if getattr(self, name) != getattr(other, name)
        ]


@dataclass(frozen=True)
class ModelContents:
    """What the file of a model holds."""

    bank: ConceptBank
    head: nn.Module
    values: str
    backbone: BackboneFacts


def backbone_facts(features: nn.Module, pooling: Any, channels: int, source: Any, normalisation: Any) -> BackboneFacts:
    """Describe a backbone and its pooling."""
    digest = hashlib.sha256()
    for module in (features, pooling):
        check_materialised("features", module)
        tensors = [value for value in module.state_dict().values() if isinstance(value, Tensor)]
        tensors = [value.int_repr() if value.is_quantized else value for value in tensors]
        # Without names: the same network may lie in a wrapper, or be cut by hand.
        digest_tensors(digest, {str(i): tensor for i, tensor in enumerate(tensors)})
    layer = features.layer if isinstance(features, LayerFeatures) else None
    maps = None if pooling.maps is None else _called(pooling.maps)
    return BackboneFacts(source, digest.hexdigest(), channels, layer, _called(pooling.pool), maps, normalisation)


def write_model(
    path: str | os.PathLike[str],
    bank: ConceptBank,
    head: nn.Module,
    layers: Any,
    values: str,
    backbone: BackboneFacts,
) -> None:
    """Write a file that appears under its name only when it is complete."""
    target = check_target(check_path("path", path), "a concept model")
    described = {
        "names": bank.names,
        "settings": bank.settings,
        "values": values,
        "head": layers,
        "backbone": asdict(backbone),
    }
    try:
        text = json.dumps(described)
    except TypeError as error:
        raise TypeError(f"Expected argument `settings` of the bank to hold what JSON can but: {error}.") from error
    tensors = {name: getattr(bank, name) for name in TENSORS}
    tensors |= {f"{_HEAD}{name}": tensor for name, tensor in head.state_dict().items()}
    # Each its own memory, which safetensors asks for.
    tensors = {name: tensor.detach().clone(memory_format=contiguous_format) for name, tensor in tensors.items()}
    header = {"kind": _KIND, "version": str(_VERSION), "model": text, "sha256": _checksum(text, tensors)}
    with written(target) as temporary:
        save_file(tensors, temporary, header)


def read_model(path: str | os.PathLike[str]) -> ModelContents:
    """Read a file that `write_model` has written; nothing in it is executed."""
    source = check_path("path", path)
    tensors, header = read_tensors(source, "cpu", "concept model", _WRITER)
    check_kind_of_file(source, header.get("kind") == _KIND, tensors, "concept model", _WRITER)
    version, text = header.get("version", ""), header.get("model", "")
    if version != str(_VERSION):
        raise ValueError(
            f"{source} is a concept model of version {quoted(version)} but this is read: {_VERSION}. Update "
            "quantus-concepts, or write the file with the version you have."
        )
    if header.get("sha256") != _checksum(text, tensors):
        raise ValueError(f"{source} is a damaged concept model: its content is not what was written. Copy it again.")
    try:
        return _contents(parse_json(text), tensors)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{source} is a damaged concept model: {reason_of(error)}.") from error


def _contents(found: dict[str, Any], tensors: dict[str, Tensor]) -> ModelContents:
    bank = ConceptBank(**{name: tensors[name] for name in TENSORS}, names=found["names"], settings=found["settings"])
    head = {name.removeprefix(_HEAD): each for name, each in tensors.items() if name.startswith(_HEAD)}
    facts = BackboneFacts(**{field.name: found["backbone"][field.name] for field in fields(BackboneFacts)})
    if facts.normalisation is not None:
        check_normalisation(facts.normalisation)
    return ModelContents(bank, build_head(found["head"], head), found["values"], facts)


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    digest_tensors(digest, dict(sorted(tensors.items())))
    return digest.hexdigest()


def _called(function: Any) -> str:
    """Return what a pool or maps is called, wherever it is defined."""
    if isinstance(function, str):
        return function
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name.rpartition("<locals>.")[2]


def _short(value: Any) -> str:
    text = quoted(value)
    return f"{text[:13]}...'" if len(text) > 60 else text
