"""`explain`: the numbers are the model's, with a network of one's own, a file, and birds where nothing is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms.v2.functional import center_crop, resize

from captum_concepts import ConceptBank, PostHocCBM, ResidualCBM
from captum_concepts.pictures.views import concept_views
from quantus_concepts.studies._models.networks import cut_network, load_network
from quantus_concepts.studies.app import main

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
        drawn = generator.integers(0, 60, (30, 40, 3)) + level + generator.integers(0, spread, 3)
        Image.fromarray(drawn.astype(np.uint8)).save(folder / f"{number}.png")


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
    given = [word for name in images for word in ("--image", name)]
    assert main(["explain", *given, *more, "--device", "cpu", "--no-progress", "--out", "out", "--overwrite"]) == 0
    return pd.read_csv("out/results.csv")


@pytest.mark.filterwarnings("ignore:.*(balanced accuracy|fewer images)")
def test_a_network_and_a_folder_of_concepts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = explained(
        "--concepts", "concepts", "--backbone", "network.py:network", images=("photos/0.png", "photos/1.png")
    )
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "out"
    assert "| image" in printed[0]
    assert "random contributions" in printed[0]
    assert sorted(path.name for path in Path("out").glob("*.*") if not path.name.startswith(".")) == [
        "01 0.png",
        "02 1.png",
        "explain.html",
        "results.csv",
    ]
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
    # Ranked by the size of what they add.
    for _, rows in table.groupby("image"):
        sizes = rows["contribution"].abs().to_numpy()
        assert (sizes[:-1] >= sizes[1:]).all()


@pytest.mark.filterwarnings("ignore:.*(balanced accuracy|fewer images)")
def test_without_a_linear_classifier_the_classes_are_the_concepts(place: Path) -> None:
    table = explained("--concepts", "concepts", "--backbone", "network.py:nonlinear")
    assert set(table["class"]) <= {"bright", "dark"}
    own = table[table["concept"] == table["class"]].iloc[0]
    assert own["contribution"] == pytest.approx(own["value"])


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
    assert table[["p_value", "random_value_low"]].isna().all(axis=None)


def test_birds_are_painted_where_nothing_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "--n-train", "40", "--no-progress", "--device", "cpu", "--out", "out"]) == 0
    table = pd.read_csv("out/results.csv")
    assert table["image"].nunique() == len(list(Path("out").glob("*.png"))) == 6
    assert "CEM of the first 3" in Path("out/explain.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--image photos/0.png", "--concepts"),
        ("--concepts concepts", "--image"),
        ("--image photos/0.png --concepts concepts", "--backbone"),
        ("--image photos/0.png --concepts concepts --cbm network.py --backbone resnet18", "--concepts and --cbm"),
        ("--image photos/0.png --text striped --backbone resnet18", "open_clip"),
        ("--image nowhere.png --concepts concepts --backbone resnet18", "--image"),
        ("--backbone resnet18", "--image"),
    ],
)
def test_what_does_not_go_together(words: str, named: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words.split()]) == 2
    assert named in capsys.readouterr().err
    assert not Path("reports").exists()


def test_a_classifier_is_split_without_changing_its_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        features, classifier = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), nn.Linear(8, 4).eval()
    images = torch.rand(5, 3, 9, 9, generator=generator)
    bank = ConceptBank(torch.randn(3, 8, generator=generator), torch.randn(3, generator=generator))
    model = ResidualCBM.of_classifier(features, bank, classifier)
    with torch.no_grad():
        embedding = features(images).mean((2, 3))
        assert torch.allclose(model(images), classifier(embedding), atol=1e-5)
        # What is left to the residual is orthogonal to the concepts.
        assert torch.allclose(model.residual.weight @ bank.cavs.T, torch.zeros(4, 3), atol=1e-5)
    views = concept_views(model, images)
    assert torch.allclose(views.logits, classifier(embedding), atol=1e-5)
    with pytest.raises(ValueError, match=r"\(N, 8\)"):
        ResidualCBM.of_classifier(features, bank, nn.Linear(7, 4))
    with pytest.raises(TypeError, match=r"nn\.Linear"):
        ResidualCBM.of_classifier(features, bank, nn.ReLU())
