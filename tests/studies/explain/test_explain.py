"""`explain`: the numbers are the model's, with a network of one's own, a file, and birds where nothing is given."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import open_clip
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torchvision.transforms.v2.functional import center_crop, resize

from captum_concepts import ConceptBank, PostHocCBM, ResidualCBM
from captum_concepts.pictures.views import ClassViews, concept_views
from html_pages import HTMLPage
from kills import contents, raising
from quantus_concepts.studies._models.named_networks import cut_network, load_network
from quantus_concepts.studies.app import main
from quantus_concepts.studies.explain import study
from quantus_concepts.studies.explain.settings import Explain
from quantus_concepts.studies.explain.study import Photographs, clearest_first, split_linear, usual_photographs
from tiny_encoders import CONFIG

NETWORK = """
import torch
from torch import nn

MEAN, STD, IMAGE_SIZE = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25], 24


def network(last=nn.Linear):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        maps = nn.Conv2d(3, 8, 3, stride=2), nn.ReLU()
        return nn.Sequential(*maps, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def nonlinear():
    return nn.Sequential(*network()[:-1], nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 4))
"""


def write_images(folder: Path, count: int, level: int, spread: int = 1) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        generator = np.random.default_rng([level, spread, number])
        pixels = generator.integers(0, 60, (30, 40, 3)) + level + generator.integers(0, spread, 3)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_images(tmp_path / "concepts" / "bright", 8, 190)
    write_images(tmp_path / "concepts" / "dark", 8, 0)
    for number in range(5):
        write_images(tmp_path / "concepts" / f"random_{number}", 8, number, spread=190)
    write_images(tmp_path / "photos", 2, 150)
    (tmp_path / "network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def explained(*more: str, images: tuple[str, ...] = ("photos/0.png",)) -> pd.DataFrame:
    assert main(["explain", *images, *more, "--device", "cpu", "--no-progress", "--out", "out", "--overwrite"]) == 0
    return pd.read_csv("out/results.csv")


FOLDER = ("--concepts", "concepts", "--backbone", "network.py:network", "--image-size", "16")


def test_a_folder_of_photographs(place: Path) -> None:
    (place / "photos" / "notes.txt").write_text("no image")
    Path("photos/0.png").rename("photos/12:30 \\ a.png")
    assert explained(*FOLDER, images=("photos",))["image"].astype(str).unique().tolist() == ["1", "12:30 \\ a"]
    assert sorted(path.name for path in Path("out/figures").iterdir()) == ["01 1.png", "02 12_30 _ a.png"]


def test_untrained_weights_of_a_library(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", lambda *_, **__: pytest.fail("asked for weights"))
    words = ("--concepts", "concepts", "--backbone", "squeezenet1_1", "--weights", "none", "--image-size", "64")
    assert set(explained(*words)["concept"]) == {"bright", "dark"}


def test_images_that_are_all_alike_are_refused_in_a_sentence(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (100_000, 1)).save("long.png")
    assert main(["explain", "long.png", *FOLDER, "--device", "cpu", "--no-progress", "--out", "long"]) == 2
    assert "one side is over 200 times the other" in capsys.readouterr().err
    # Before the concepts are read.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quantus_concepts.studies.explain.study._of_folder", lambda *_: pytest.fail("fitted"))
        assert main(["explain", "photos/0.png", "long.png", *FOLDER, "--device", "cpu", "--out", "long"]) == 2
    assert "one side is over 200 times the other" in capsys.readouterr().err
    for words in ((), FOLDER[:2]):
        assert main(["explain", "photos/0.png", *words, "--device", "cpu", "--out", "none"]) == 2
        assert "explain zebra.jpg --concepts FOLDER --backbone resnet18, for instance" in capsys.readouterr().err
    for path in Path("concepts").rglob("*.png"):
        Image.new("RGB", (24, 20), (9, 9, 9)).save(path)
    assert main(["explain", "photos/0.png", *FOLDER, "--device", "cpu", "--no-progress", "--out", "alike"]) == 2
    assert "no vector of length 0, which is no direction, but those of ['bright', 'dark']" in capsys.readouterr().err


def test_a_network_and_a_folder_of_concepts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = explained(
        "--concepts", "concepts", "--backbone", "network.py:network", images=("photos/0.png", "photos/1.png")
    )
    assert capsys.readouterr().out.splitlines()[-1] == "out"
    assert sorted(contents(Path("out"))) == ["figures/01 0.png", "figures/02 1.png", "report.html", "results.csv"]
    HTMLPage(Path("out/report.html").read_text(encoding="utf-8"))
    assert len(table) == 4
    assert list(table["image"].astype(str)) == ["0", "0", "1", "1"]
    # Logits are those of the network, so probabilities are, too.
    network = load_network("network.py:network").module
    photo = Image.open("photos/0.png")
    pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1)
    square = center_crop(resize(pixels, [24], antialias=True), [24]).float() / 255
    with torch.no_grad():
        share = network((square[None] - 0.5) / 0.25).softmax(1)
    first = table.iloc[0]
    assert first["class"] == f"class {int(share.argmax())}"
    assert first["probability"] == pytest.approx(share.max().item(), abs=1e-5)
    assert table["p_value"].notna().all()
    assert (table["random_value_low"] < table["random_value_high"]).all()
    above, below = table["value"] > table["random_value_high"], table["value"] < table["random_value_low"]
    assert ((table["value_is"] == "above random") == above).all()
    assert ((table["value_is"] == "below random") == below).all()
    assert ((table["value_is"] == "inside random range") == ~(above | below)).all()
    # Ranked by the size of what they add.
    for _, rows in table.groupby("image"):
        sizes = rows["effect"].abs().to_numpy()
        assert (sizes[:-1] >= sizes[1:]).all()


def test_files_of_one_name_are_told_apart(place: Path) -> None:
    words = ("--concepts", "concepts", "--backbone", "network.py:network", "--top", "1")
    Path("concepts/0.png").write_bytes(Path("photos/0.png").read_bytes())
    table = explained(*words, images=("photos/0.png", "concepts/0.png"))
    assert table["image"].unique().tolist() == ["photos/0.png", "concepts/0.png"]
    assert {path.name for path in Path("out/figures").iterdir()} == {"01 0.png.png", "02 0.png.png"}


def test_without_a_linear_classifier_the_classes_are_the_concepts(place: Path) -> None:
    table = explained("--concepts", "concepts", "--backbone", "network.py:nonlinear")
    assert set(table["class"]) <= {"bright", "dark"}
    own = table[table["concept"] == table["class"]]
    # Its own concept alone speaks for a class: half of what its value is above its level, as the mean of two classes.
    levels = own["value"] - 2 * own["effect"]
    assert levels.groupby(own["concept"]).std().fillna(0).max() < 1e-5


def test_weights_that_torchvision_publishes_bring_the_names_of_their_classes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("named.pth").write_bytes(b"weights")
    begin = hashlib.sha256(b"weights").hexdigest()[:8]
    weights = SimpleNamespace(url=f"https://host/resnet18-{begin}.pth", meta={"categories": ["tench", "zebra"]})
    monkeypatch.setattr("torchvision.models.get_model_weights", lambda _: [weights])
    network = SimpleNamespace(family="torchvision", class_names=None)
    assert study._class_names(network, Explain(backbone="resnet18", weights="named.pth")) == ["tench", "zebra"]
    Path("own.pth").write_bytes(b"own weights")
    assert study._class_names(network, Explain(backbone="resnet18", weights="own.pth")) is None
    # Those of other libraries say themselves.
    for names in (None, ["wren", "finch"]):
        assert study._class_names(SimpleNamespace(family="", class_names=names), Explain()) == names


def test_a_file_of_a_model(place: Path) -> None:
    backbone, _ = cut_network(load_network("network.py:network"), None, torch.zeros(1, 3, 24, 24))
    bank = ConceptBank.random(3, 8, ["a", "b", "c"], seed=1)
    with torch.random.fork_rng(devices=[]):
        model = PostHocCBM(backbone, bank, nn.Linear(3, 2)).eval()
    model.class_names = ["wren", "finch"]
    model.save("model.safetensors")
    table = explained("--cbm", "model.safetensors", "--backbone", "network.py:network")
    assert set(table["concept"]) == {"a", "b", "c"}
    assert set(table["class"]) <= {"wren", "finch"}
    # Of a bank that was never tested there is no p-value, and without random banks no baseline.
    assert table[["p_value", "random_value_low", "value_is"]].isna().all(axis=None)


def test_a_file_of_a_model_that_brings_its_backbone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.random.fork_rng(devices=[]):
        features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        model = PostHocCBM(features, ConceptBank.random(3, 8, ["a", "b", "c"], seed=1), nn.Linear(3, 2)).eval()
    calls = []
    monkeypatch.setattr(PostHocCBM, "load", lambda *args, **named: calls.append((args, named)) or model)
    Path("cbm.safetensors").touch()
    table = explained("--cbm", "cbm.safetensors", "--mean", "0.5", "--std", "0.25", "--image-size", "16")
    assert calls == [((Path("cbm.safetensors"),), {"download": False})]
    with torch.no_grad():
        photograph = Photographs(16, (0.5,) * 3, (0.25,) * 3)(Image.open("photos/0.png"))
        share = model(photograph[None]).softmax(1)
    assert table["probability"].iloc[0] == pytest.approx(share.max().item(), abs=1e-5)


def test_painted_birds_where_nothing_is_given_and_a_network_that_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quantus_concepts.studies._kit.plots.DPI", 30)
    words = ["explain", "--n-train", "40", "--random-banks", "2", "--no-progress", "--device", "cpu", "--out"]
    assert main([*words, "whole"]) == 0
    # Forty birds are few.
    assert re.search("^Note: .* fewer images", capsys.readouterr().err, re.MULTILINE)
    assert pd.read_csv("whole/results.csv")["image"].nunique() == len(list(Path("whole/figures").glob("*.png"))) == 6
    assert "CEM of the first 3" in Path("whole/report.html").read_text(encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(study, "concept_views", raising(KeyboardInterrupt()))
        assert main([*words, "out"]) == 130
    monkeypatch.setattr(study, "train", raising(AssertionError("trained again")))
    monkeypatch.setattr(study, "png", lambda _: b"")
    assert main([*words, "out"]) == 0
    assert Path("out/results.csv").read_bytes() == Path("whole/results.csv").read_bytes()


def test_the_first_image_is_answered_right_with_concepts_unlike_random_ones() -> None:
    logits = torch.tensor([[1.0, 0.0], [5.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    values = torch.tensor([[0.0, 2.0], [2.0, 2.0], [0.5, -2.0], [0.0, 0.0]])
    ranges = torch.tensor([[-1.0, 1.0]] * 4)
    empty = torch.zeros(0)
    views = ClassViews(empty, values, empty, [], None, None, [], logits, empty, empty, ranges)
    # Of the right answers 0 and 2 have one such concept each, and 2 is the more probable.
    assert clearest_first(views, torch.tensor([0, 1, 0, 1])) == [2, 0, 1, 3]
    ranges[2] = torch.tensor([-3.0, 3.0])
    assert clearest_first(views, torch.tensor([0, 1, 0, 1])) == [0, 1, 2, 3]
    # Where none is right.
    assert clearest_first(views, torch.tensor([1, 1, 1, 0])) == [1, 0, 2, 3]


def test_a_classifier_is_split_without_changing_its_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        features, classifier = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), nn.Linear(8, 4).eval()
    images = torch.rand(5, 3, 9, 9, generator=generator)
    bank = ConceptBank(torch.randn(3, 8, generator=generator), torch.randn(3, generator=generator))
    head, residual = split_linear(classifier, bank.cavs, bank.intercepts)
    model = ResidualCBM(PostHocCBM(features, bank, head), residual)
    with torch.no_grad():
        embedding = features(images).mean((2, 3))
        assert torch.allclose(model(images), classifier(embedding), atol=1e-5)
        # What is left to the residual is orthogonal to the concepts.
        assert torch.allclose(model.residual.weight @ bank.cavs.T, torch.zeros(4, 3), atol=1e-5)
    views = concept_views(model, images)
    assert torch.allclose(views.logits, classifier(embedding), atol=1e-5)


TEXTS = ("red bird", "blue crown", "photo")


def write_open_clip(folder: Path) -> str:
    """Write a tiny model as open_clip publishes them, and return its name."""
    folder.mkdir()
    config = {"model_cfg": CONFIG, "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3]}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    save_file(open_clip.CLIP(**CONFIG).state_dict(), folder / "open_clip_model.safetensors")
    return f"open_clip:local-dir:{folder.name}"


def write_transformers(folder: Path, kind: str, config: Any, processor: Any) -> str:
    transformers = pytest.importorskip("transformers")
    getattr(transformers, kind)(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return f"transformers:{kind}:{folder.name}"


def square(size: int) -> torch.Tensor:
    """Return the photograph as the models above take it."""
    pixels = torch.from_numpy(np.array(Image.open("photos/0.png"))).permute(2, 0, 1)
    cut = center_crop(resize(pixels, [size], antialias=True), [size]).float() / 255
    return ((cut - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.2, 0.25, 0.3])[:, None, None])[None]


@torch.no_grad()
def by_hand(folder: Path) -> dict[str, float]:
    """Return the product of the image's embedding with that of each text, which has length 1."""
    model: Any = open_clip.create_model(f"local-dir:{folder}").eval()
    texts = nn.functional.normalize(model.encode_text(open_clip.tokenize(list(TEXTS), context_length=32)), dim=1)
    return dict(zip(TEXTS, (model.encode_image(square(32)) @ texts.T)[0].tolist(), strict=True))


def test_texts_are_concepts_of_a_model_in_a_folder(place: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = write_open_clip(place / "model")
    words = [word for text in TEXTS for word in ("--text", text)]
    table = explained(*words, "--backbone", backbone, "--random-banks", "2")
    values = dict(zip(table["concept"], table["value"], strict=True))
    expected = by_hand(place / "model")
    assert values == pytest.approx(expected, abs=1e-4)
    best = max(expected, key=expected.get)  # type: ignore[arg-type]
    assert set(table["class"]) == {best}
    # The other texts add nothing to it, and come by what they say themselves.
    assert table["concept"].tolist() == sorted(expected, key=expected.get, reverse=True)  # type: ignore[arg-type]


def test_a_classifier_of_transformers_keeps_its_classes(place: Path) -> None:
    transformers = pytest.importorskip("transformers")
    layers = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    names = {0: "wren", 1: "finch", 2: "owl"}
    config = transformers.ViTConfig(**layers, image_size=24, patch_size=8, id2label=names)
    sizes = {"height": 24, "width": 24}
    processor = transformers.ViTImageProcessor(size=sizes, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.25, 0.3])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = write_transformers(place / "model", "ViTForImageClassification", config, processor)
    table = explained("--concepts", "concepts", "--backbone", backbone, "--random-banks", "2")
    with torch.no_grad():
        model = transformers.ViTForImageClassification.from_pretrained(place / "model").eval()
        shares = model(square(24)).logits.softmax(1)
    assert set(table["class"]) == {names[int(shares.argmax())]}
    assert table["probability"].iloc[0] == pytest.approx(shares.max().item(), abs=1e-5)


def test_a_file_of_which_the_normalisation_is_not_known(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone, _ = cut_network(load_network("network.py:network"), None, torch.zeros(1, 3, 24, 24))
    with torch.random.fork_rng(devices=[]):
        model = PostHocCBM(backbone, ConceptBank.random(3, 8, seed=1), nn.Linear(3, 2)).eval()
    model.save("model.safetensors")
    with pytest.raises(ValueError, match="--unnormalised"):
        usual_photographs(Explain(), model)
    raw = Explain(unnormalised=True)
    assert usual_photographs(raw, model) == Photographs(224)
