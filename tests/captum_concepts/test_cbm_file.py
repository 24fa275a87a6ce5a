"""Concept models in files: what comes back is what was saved, and what does not fit is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from captum_concepts import Backbone, ConceptBank, LayerFeatures, PostHocCBM, ResidualCBM, from_timm
from captum_concepts.backbones import named
from captum_concepts.backbones.pools import MeanThen
from simulated_device import simulated_device
from tiny_models import seeded

IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def network(seed: int = 0) -> nn.Sequential:
    return seeded(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(), seed)


def bank() -> ConceptBank:
    return ConceptBank.random(3, 4, ["red | wing", "long\ntail", "größer"], seed=2, mean=torch.ones(4))


def head(*more: nn.Module) -> nn.Module:
    linear = seeded(nn.Linear(3, 5), 3)
    return nn.Sequential(linear, *more).eval() if more else linear.eval()


HEADS = {
    "linear": head(),
    "float64": head().double(),
    "without bias": nn.Linear(3, 5, bias=False).eval(),
    "layers": head(nn.BatchNorm1d(5), nn.GELU("tanh"), nn.Dropout(0.3), nn.LayerNorm(5, bias=False), nn.Tanh()),
}


def own_pool(features: torch.Tensor) -> torch.Tensor:
    return features.amax((2, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("values", ["margin", "raw"])
def test_a_model_comes_back_to_the_bit(path: Path, kind: str, values: str) -> None:
    features = network().to(torch.float64 if kind == "float64" else torch.float32)
    images = IMAGES.to(features[0].weight.dtype)
    tested = bank()
    tested.p_values = torch.tensor([0.01, torch.nan, 0.5])
    cbm = PostHocCBM(features, tested, HEADS[kind], values)
    cbm.class_names = list("abcde")
    before = torch.get_rng_state()
    cbm.save(path)
    loaded = PostHocCBM.load(path, features)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(loaded(images), cbm(images))
    assert torch.equal(loaded.concept_predictor(images), cbm.concept_predictor(images))
    assert torch.equal(loaded.bank.p_values.nan_to_num(2), torch.tensor([0.01, 2, 0.5]).to(images))
    assert loaded.bank.names == cbm.bank.names
    assert loaded.bank.settings == cbm.bank.settings
    assert loaded.values == values
    assert loaded.class_names == cbm.class_names
    assert str(loaded.head) == str(cbm.head)
    assert not loaded.training
    assert [part.name for part in path.parent.iterdir()] == [path.name]


def with_residual(cbm: PostHocCBM, *more: nn.Module) -> ResidualCBM:
    """A residual beside a bottleneck, of another type where there are more layers."""
    linear = seeded(nn.Linear(4, 5), 4)
    return ResidualCBM(cbm, nn.Sequential(linear, *more).double().eval() if more else linear)


@pytest.mark.parametrize("more", [(), (nn.BatchNorm1d(5), nn.Identity())])
def test_a_residual_comes_back_to_the_bit(path: Path, more: tuple[nn.Module, ...]) -> None:
    backbone = Backbone(network(), "mean", None, 4, ((0.5,) * 3, (0.25,) * 3), "timm:a.b")
    cbm = with_residual(PostHocCBM(backbone, bank(), HEADS["layers"], "raw"), *more).eval()
    cbm.save(path)
    loaded = ResidualCBM.load(path, network())
    assert type(loaded) is ResidualCBM
    assert torch.equal(loaded(IMAGES), cbm(IMAGES))
    for actual, expected in zip(loaded.contributions(IMAGES), cbm.contributions(IMAGES), strict=True):
        assert torch.equal(actual, expected)
    assert loaded.residual.state_dict().keys() == cbm.residual.state_dict().keys()
    assert not loaded.training
    for model in (loaded, loaded.bottleneck):
        assert (model.source, model.normalisation) == (backbone.source, backbone.normalisation)
    loaded.source = "keras:resnet50"
    with pytest.raises(ValueError, match="`source` to be one of"):
        loaded.save(path)
    # What a file of it says differs is what that of its bottleneck says.
    with pytest.raises(ValueError, match=r"weights.*strict=False"):
        ResidualCBM.load(path, network(1))


def test_a_model_on_another_device_is_written_as_it_is_here(path: Path) -> None:
    cbm = with_residual(PostHocCBM(network(), bank(), head()))
    with simulated_device() as simulation:
        there = with_residual(PostHocCBM(network().to(simulation.device), bank(), head().to(simulation.device)))
        there.residual.to(simulation.device)
        there.save(path)
        assert ResidualCBM.load(path, there.features).residual.weight.device == simulation.device
        there.bottleneck.bank.save(path.with_name("bank"))
    assert torch.equal(ResidualCBM.load(path, network())(IMAGES), cbm(IMAGES))
    assert torch.equal(ConceptBank.load(path.with_name("bank")).cavs, cbm.bottleneck.bank.cavs)


def test_the_other_class_is_named(path: Path) -> None:
    cbm = PostHocCBM(network(), bank(), head())
    with_residual(cbm).save(path)
    with pytest.raises(ValueError, match=r"holds a ResidualCBM and not a PostHocCBM\. Read it with `ResidualCBM.load`"):
        PostHocCBM.load(path, network())
    cbm.save(path)
    with pytest.raises(ValueError, match=r"holds a PostHocCBM and not a ResidualCBM\. Read it with `PostHocCBM.load`"):
        ResidualCBM.load(path, network())
    bank().save(path)
    with pytest.raises(ValueError, match=r"of another kind: it holds .* Pass a file written by `ResidualCBM\.save`"):
        ResidualCBM.load(path, network())


def test_the_mode_is_that_of_the_backbone(path: Path) -> None:
    features = network()
    PostHocCBM(features, bank(), head()).save(path)
    features.train()
    assert PostHocCBM.load(path, features).head.training
    assert features.training


def test_the_backbone_is_built_from_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    model = timm.create_model("test_resnet").eval()
    cut = from_timm(model)
    assert cut.source is not None
    assert cut.source.startswith("timm:test_resnet")
    assert cut.normalisation is not None
    cbm = PostHocCBM(cut, ConceptBank.random(3, cut.channels), head())
    cbm.save(path)
    requests: list[Any] = []

    def create(name: str, pretrained: bool) -> nn.Module:
        requests.append((name, pretrained))
        return model

    monkeypatch.setattr(timm, "create_model", create)
    with pytest.raises(ValueError, match=r"names 'timm:test_resnet.*`download=True`"):
        PostHocCBM.load(path)
    assert not requests
    loaded = PostHocCBM.load(path, download=True)
    assert requests == [(cut.source.removeprefix("timm:"), True)]
    images = torch.ones(1, 3, 32, 32)
    assert torch.equal(loaded(images), cbm(images))
    PostHocCBM(network(), bank(), head()).save(path)
    with pytest.raises(ValueError, match=r"Expected argument `features`.* Its embedding has 4 dimensions"):
        PostHocCBM.load(path, download=True)


@pytest.mark.parametrize("source", ["torchvision:resnet18:nonsense", "timm:no_such_model"])
def test_a_name_that_builds_nothing_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=f"The backbone {source} cannot be built .* as `features`"):
        named.build_backbone(source)


def pooled_backbone(features: nn.Module) -> Backbone:
    pool = MeanThen(nn.Identity(), nn.LayerNorm(4).eval())
    return Backbone(features, pool, pool.maps, 4)


BACKBONES: dict[str, Any] = {
    "plain": network,
    "layer": lambda: LayerFeatures(network(), "2"),
    "pool": lambda: pooled_backbone(network()),
}
OTHERS: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "other weights": ("plain", lambda: network(1), {}, "weights"),
    "statistics of a norm": ("plain", lambda: nn.Sequential(network()[0], nn.BatchNorm2d(4)), {}, "weights"),
    "another layer": ("layer", lambda: LayerFeatures(network(), "1"), {}, "layer: '1' instead of '2'"),
    "another pool": ("plain", network, {"pool": own_pool}, "pool: 'own_pool' instead of 'mean'"),
    "maps": ("plain", network, {"maps": lambda features: features}, "maps: '<lambda>' instead of None"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_backbone_is_refused_or_warned_of(path: Path, case: str) -> None:
    backbone, other, arguments, message = OTHERS[case]
    if case == "statistics of a norm":
        with torch.no_grad():
            changed = network()
            changed[1].running_mean.add_(1)
        other = lambda: changed  # noqa: E731
    PostHocCBM(BACKBONES[backbone](), bank(), head()).save(path)
    with pytest.raises(ValueError, match=f"{message}.*strict=False"):
        PostHocCBM.load(path, other(), **arguments)
    with pytest.warns(UserWarning, match=message):
        PostHocCBM.load(path, other(), **arguments, strict=False)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_same_backbone_in_a_wrapper_is_the_same(path: Path, backbone: str) -> None:
    PostHocCBM(BACKBONES[backbone](), bank(), head()).save(path)
    PostHocCBM.load(path, BACKBONES[backbone]())
    if backbone == "plain":
        PostHocCBM.load(path, nn.DataParallel(network()))
        PostHocCBM.load(path, nn.Sequential(network(), nn.Identity()))


class OwnHead(nn.Linear):
    """Of another type, and so perhaps of another forward pass."""


OwnHead.__name__ = "Linear"


@pytest.mark.parametrize("wrong_head", [OwnHead(3, 5), nn.Sequential(nn.Linear(3, 5), nn.Bilinear(2, 2, 2))])
def test_a_head_that_cannot_be_written_is_refused(path: Path, wrong_head: nn.Module) -> None:
    cbm = PostHocCBM(network(), bank(), wrong_head)
    with pytest.raises(ValueError, match=r"`head` .* Save the bank with `cbm.bank.save\(path\)`"):
        cbm.save(path)
    assert not path.exists()


def rewrite_file(path: Path, spoil: Callable[[dict[str, Tensor]], object] = dict, **changed: Any) -> None:
    """Write a file whose header differs and whose digest fits, as one of another program would."""
    from captum_concepts.models import files as cbm_file

    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    spoil(tensors)
    model = json.loads(header["model"])
    header |= {name: value for name, value in changed.items() if name in header}
    model |= {name: value for name, value in changed.items() if name in model}
    header["model"] = json.dumps(model)
    header["sha256"] = cbm_file._checksum(header["model"], tensors)
    save_file(tensors, path, header)


SPOILT: dict[str, tuple[Any, str]] = {
    "a newer version": ({"version": "2"}, "version '2' but this is read: 1. Update"),
    "another kind": ({"kind": "captum_concepts.ConceptBank"}, "of another kind"),
    "one name too few": ({"names": ["a", "b"]}, "damaged concept model: .*one name for each of 3"),
    "a layer that is none": ({"head": {"layer": "Embedding", "settings": {}}}, "its head cannot be built"),
    "a head of other sizes": (
        {"head": {"layer": "Linear", "settings": {"in_features": 10**9, "out_features": 10**9, "bias": True}}},
        "its head cannot be built",
    ),
    "deep brackets": ({"head": "["}, "its head cannot be built"),
    "unknown values": ({"values": "cosine"}, "damaged concept model: its values are 'cosine', expected one of"),
    "NaN": ({"spoil": lambda tensors: tensors["head.weight"].fill_(torch.nan)}, "weight holds NaN or infinity"),
    "whole numbers": (
        {"spoil": lambda tensors: tensors.update({"head.weight": torch.ones(5, 3, dtype=torch.int32)})},
        "its head cannot be built",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_files_with_other_content_are_refused(path: Path, case: str) -> None:
    PostHocCBM(network(), bank(), nn.Linear(3, 5)).save(path)
    changed, message = SPOILT[case]
    rewrite_file(path, **changed)
    with pytest.raises(ValueError, match=message):
        PostHocCBM.load(path, network())


@pytest.mark.parametrize("case", ["cut short", "a bit turned", "weights"])
def test_damaged_files_are_refused(path: Path, case: str) -> None:
    PostHocCBM(network(), bank(), head()).save(path)
    content = bytearray(path.read_bytes())
    message = "not a complete safetensors file"
    if case == "cut short":
        path.write_bytes(content[:-5])
    elif case == "a bit turned":
        content[-5] ^= 1
        path.write_bytes(content)
        message = "damaged concept model: its content is not what was written"
    else:
        save_file({"weight": torch.ones(2)}, path)
        message = r"of another kind: it holds \['weight'\]"
    with pytest.raises(ValueError, match=message):
        PostHocCBM.load(path, network())


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("no/model.safetensors", FileNotFoundError, "folder .* does not exist"),
        ("", IsADirectoryError, "it is a folder"),
        ("model.safetensors", TypeError, "`settings` of the bank to hold what JSON can"),
    ],
)
def test_places_and_settings_that_cannot_be_written(
    tmp_path: Path, place: str, error: type[Exception], message: str
) -> None:
    settings = {"note": object()} if place == "model.safetensors" else {}
    cbm = PostHocCBM(network(), ConceptBank(torch.eye(3, 4), settings=settings), head())
    with pytest.raises(error, match=message):
        cbm.save(tmp_path / place)
    with pytest.raises(FileNotFoundError, match="There is no concept model"):
        PostHocCBM.load(tmp_path / place, network())


def test_a_file_that_is_there_stays_if_writing_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cbm = PostHocCBM(network(), bank(), head())
    cbm.save(path)
    before = path.read_bytes()

    def fail(*arguments: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("captum_concepts.models.files.save_file", fail)
    with pytest.raises(OSError, match="No space left"):
        cbm.save(path)
    assert path.read_bytes() == before
    assert [part.name for part in path.parent.iterdir()] == [path.name]


def test_a_folder_holds_facts_and_tensors(tmp_path: Path) -> None:
    cbm = PostHocCBM(network(), bank(), head())
    cbm.save_pretrained(tmp_path)
    assert sorted(part.name for part in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    for load in (PostHocCBM.load, PostHocCBM.from_pretrained, PostHocCBM.from_hub):
        assert torch.equal(load(tmp_path, network())(IMAGES), cbm(IMAGES))
    facts = json.loads((tmp_path / "config.json").read_text())
    assert facts["model"]["names"] == cbm.bank.names
    with pytest.raises(ValueError, match=r"weights.*strict=False"):
        PostHocCBM.from_pretrained(tmp_path, network(1))
    # What is written over it and cannot be written leaves it as it was.
    with pytest.raises(ValueError, match="`head`"):
        PostHocCBM(network(), bank(), OwnHead(3, 5)).save_pretrained(tmp_path)
    assert torch.equal(PostHocCBM.load(tmp_path, network())(IMAGES), cbm(IMAGES))


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (None, FileNotFoundError, r"no concept model in .*holds no config.json"),
        ("[" * 100_000, ValueError, "config.json is no JSON"),
        ("[]", ValueError, "of another kind"),
        ("changed", ValueError, "damaged concept model: its content is not what was written"),
    ],
)
def test_folders_of_something_else_are_refused(
    tmp_path: Path, config: str | None, error: type[Exception], message: str
) -> None:
    PostHocCBM(network(), bank(), head()).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    facts = json.loads(path.read_text())
    if config is None:
        path.unlink()
    elif config == "changed":
        path.write_text(json.dumps(facts | {"model": facts["model"] | {"values": "raw"}}))
    else:
        path.write_text(config)
    with pytest.raises(error, match=message):
        PostHocCBM.load(tmp_path, network())
