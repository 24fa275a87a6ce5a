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

from captum_concepts import Backbone, BottleneckCBM, ConceptBank, LayerFeatures, PostHocCBM, ResidualCBM, from_timm
from captum_concepts.backbones.named import build_backbone, check_source
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
    "leaky": head(nn.LeakyReLU(0.3)),
}


def own_pool(features: torch.Tensor) -> torch.Tensor:
    return features.amax((2, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize(
    ("kind", "values"),
    [("linear", "margin"), ("float64", "raw"), ("without bias", "raw"), ("layers", "margin"), ("leaky", "raw")],
)
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
    # What a file of it says differs is what that of its bottleneck says.
    with pytest.raises(ValueError, match=r"weights.*strict=False"):
        ResidualCBM.load(path, network(1))


LAYERS: dict[str, tuple[nn.Module, Any]] = {
    "linear": (seeded(nn.Linear(4, 3), 5), torch.sigmoid),
    "layers": (nn.Sequential(seeded(nn.Linear(4, 6), 5), nn.ReLU(), seeded(nn.Linear(6, 3), 6)).eval(), None),
    "module": (seeded(nn.Linear(4, 3), 5), nn.Tanh()),
}


@pytest.mark.parametrize(
    ("case", "form", "with_residual"), [("linear", "file", True), ("layers", "folder", True), ("module", "file", False)]
)
def test_a_bottleneck_model_comes_back_to_the_bit(tmp_path: Path, case: str, form: str, with_residual: bool) -> None:
    layer, activation = LAYERS[case]
    backbone = Backbone(network(), "mean", None, 4, ((0.5,) * 3, (0.25,) * 3), "timm:a.b")
    names, classes = ["red | wing", "long\ntail", "größer"], list("abcde")
    cbm: Any = BottleneckCBM(backbone, layer, HEADS["layers"], names, classes, activation=activation)
    kind: Any = BottleneckCBM
    if with_residual:
        cbm, kind = ResidualCBM(cbm, seeded(nn.Linear(4, 5), 4)), ResidualCBM
    cbm.eval()
    if form == "file":
        cbm.save(tmp_path / "model.safetensors")
        loaded = kind.load(tmp_path / "model.safetensors", network())
    else:
        cbm.save_pretrained(tmp_path / "model")
        assert "größer" in (tmp_path / "model/README.md").read_text(encoding="utf-8")
        loaded = kind.from_pretrained(tmp_path / "model", network())
    assert type(loaded) is kind
    assert torch.equal(loaded(IMAGES), cbm(IMAGES))
    assert torch.equal(loaded.concept_predictor(IMAGES), cbm.concept_predictor(IMAGES))
    assert (loaded.concept_layer.names, loaded.class_names, loaded.bounded) == (names, classes, cbm.bounded)
    assert (loaded.source, loaded.normalisation) == (backbone.source, backbone.normalisation)
    assert not loaded.training
    with pytest.raises(ValueError, match=r"weights.*strict=False"):
        kind.load(tmp_path / ("model.safetensors" if form == "file" else "model"), network(1))


def test_a_bottleneck_model_without_names_comes_back_without_them(path: Path) -> None:
    BottleneckCBM(network(), nn.Linear(4, 3), head()).save(path)
    loaded = BottleneckCBM.load(path, network())
    assert not hasattr(loaded.concept_layer, "names")
    assert loaded.class_names is None


def test_what_no_file_holds_of_a_bottleneck_model_is_refused(path: Path) -> None:
    class Own(nn.Linear):
        """May compute something else."""

    for layer, options, message in (
        (Own(4, 3), {}, "concept_layer.* nn.Linear.* but got Own"),
        (nn.Conv2d(4, 3, 1), {}, "hold an nn.Linear .*Conv2d"),
        (nn.Linear(4, 3), {"activation": torch.tanh}, r"Pass nn.Tanh\(\)"),
        (nn.Linear(4, 3), {"project": print}, "need no `project`"),
    ):
        with pytest.raises(ValueError, match=message):
            BottleneckCBM(network(), layer, head(), **options).save(path)
    assert not path.exists()


def test_the_backbone_is_built_from_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    model = timm.create_model("test_resnet").eval()
    cut = from_timm(model)
    assert cut.source is not None
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


BACKBONES: dict[str, Any] = {
    "plain": network,
    "layer": lambda: LayerFeatures(network(), "2"),
}
OTHERS: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "other weights": ("plain", lambda: network(1), {}, "weights"),
    "another layer": ("layer", lambda: LayerFeatures(network(), "1"), {}, "layer: '1' instead of '2'"),
    "another pool": ("plain", network, {"pool": own_pool}, "pool: 'own_pool' instead of 'mean'"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_backbone_is_refused_or_warned_of(path: Path, case: str) -> None:
    backbone, other, arguments, message = OTHERS[case]
    PostHocCBM(BACKBONES[backbone](), bank(), head()).save(path)
    PostHocCBM.load(path, BACKBONES[backbone]())
    with pytest.raises(ValueError, match=f"{message}.*strict=False"):
        PostHocCBM.load(path, other(), **arguments)
    with pytest.warns(UserWarning, match=message):
        PostHocCBM.load(path, other(), **arguments, strict=False)


def rewrite_file(path: Path, spoil: Callable[[dict[str, Tensor]], object] = dict, **changed: Any) -> None:
    """Write a file whose header differs and whose digest fits, as one of another program would."""
    from captum_concepts.bank.files import checksum

    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    spoil(tensors)
    model = json.loads(header["model"])
    header |= {name: value for name, value in changed.items() if name in header}
    model |= {name: value for name, value in changed.items() if name in model}
    header["model"] = json.dumps(model)
    header["sha256"] = checksum(header["model"], tensors)
    save_file(tensors, path, header)


class Disguised(nn.Linear):
    """Of another type, and so perhaps of another forward pass."""


Disguised.__name__ = "Linear"
NAN = {"spoil": lambda tensors: tensors["head.weight"].fill_(torch.nan)}
SPOILT: dict[str, tuple[Any, str]] = {
    "a newer version": ({"version": "2"}, "version '2' but this is read: 1. Update"),
    "a layer that is none": ({"head": {"layer": "Embedding", "settings": {}}}, "its head cannot be built"),
    "NaN": (NAN, "weight holds NaN or infinity"),
    "unknown values": ({"values": "cosine"}, "damaged concept model: its values are 'cosine'"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_files_with_other_content_are_refused(path: Path, case: str) -> None:
    PostHocCBM(network(), bank(), nn.Linear(3, 5)).save(path)
    changed, message = SPOILT[case]
    rewrite_file(path, **changed)
    with pytest.raises(ValueError, match=message):
        PostHocCBM.load(path, network())


def test_what_cannot_be_written_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match=r"`head` .*, the bank with `cbm.bank.save\(path\)`"):
        PostHocCBM(network(), bank(), Disguised(3, 5)).save(path)
    with pytest.raises(FileNotFoundError, match="There is no concept model"):
        PostHocCBM.load(path, network())
    PostHocCBM(network(), bank(), head()).save(path)
    with pytest.raises(ValueError, match=r"`features`.* Its embedding has 4 dimensions"):
        PostHocCBM.load(path, download=True)
    with pytest.raises(FileNotFoundError, match="it holds no config"):
        PostHocCBM.load(path.parent, network())
    with pytest.raises(ValueError, match="The backbone torchvision:resnet18:nonsense cannot be built"):
        build_backbone("torchvision:resnet18:nonsense")
    with pytest.raises(ValueError, match="`source` to be 'library:model:weights'"):
        check_source("source", "resnet18")


def test_a_model_on_another_device_is_written_as_it_is_here(path: Path) -> None:
    cbm = with_residual(PostHocCBM(network(), bank(), head()))
    with simulated_device() as simulation:
        there = with_residual(PostHocCBM(network().to(simulation.device), bank(), head().to(simulation.device)))
        there.residual.to(simulation.device)
        there.save(path)
        assert ResidualCBM.load(path, there.features).residual.weight.device == simulation.device
    assert torch.equal(ResidualCBM.load(path, network())(IMAGES), cbm(IMAGES))
    with pytest.raises(ValueError, match=r"holds a ResidualCBM and not a PostHocCBM\. Read it with `ResidualCBM.load`"):
        PostHocCBM.load(path, network())


def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(ValueError, match=r"of another kind: it holds \['weight'\]"):
        PostHocCBM.load(path, network())


def test_a_folder_holds_facts_and_tensors(tmp_path: Path) -> None:
    cbm = PostHocCBM(network(), bank(), head())
    cbm.save_pretrained(tmp_path)
    assert sorted(part.name for part in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    for load in (PostHocCBM.load, PostHocCBM.from_pretrained, PostHocCBM.from_hub):
        assert torch.equal(load(tmp_path, network())(IMAGES), cbm(IMAGES))
    facts = json.loads((tmp_path / "config.json").read_text())
    assert facts["model"]["names"] == cbm.bank.names
    (tmp_path / "config.json").write_text(json.dumps(facts | {"model": facts["model"] | {"values": "raw"}}))
    with pytest.raises(ValueError, match="damaged concept model: its content is not what was written"):
        PostHocCBM.load(tmp_path, network())
