"""Several backbones and concept models of the user's in one run: each has the numbers that it has alone."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn
from torchvision.transforms.v2 import Normalize

import released_files
from captum_concepts import ConceptBank, PostHocCBM, load_released
from captum_concepts.backbones.backbone import IMAGENET
from captum_concepts.support.running import run_file
from fixtures_commands import check_command, write_own_images
from golden.runs import smaller
from quantus_concepts import score_concepts
from quantus_concepts.datasets import ConceptFolder, PaintedBirds
from quantus_concepts.metrics import UsualMetrics
from quantus_concepts.painted.images import sample_loader
from quantus_concepts.studies._models.named_networks import cut_network, load_network
from quantus_concepts.studies.app import main

MODELS = """
import torch
from torch import nn
from captum_concepts import BottleneckCBM

MEAN, STD = (0.2, 0.3, 0.4), (0.5, 0.6, 0.7)


def joint(n_concepts=3, n_classes=2, seed=4):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
        return BottleneckCBM(features, nn.Linear(8, n_concepts), nn.Linear(n_concepts, n_classes)).eval()


def birds():
    return joint(8, 3)


def wide():
    return joint(4)


def always(number, n_concepts):
    model = joint(n_concepts)
    model.head.bias.data = 100.0 * torch.eye(2)[number]
    return model


def apple():
    return always(0, 3)


def pear():
    return always(1, 4)


def network():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)
        return nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), *last).eval()
"""
FOLDER = "--data folder --root fruit --concepts concepts.csv --parts parts.csv --min-images 1 --no-sweep"
QUIET = "--no-progress --device cpu"
TWO = "--backbone first.py:network --backbone models.py:network"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_images(tmp_path)
    Path("models.py").write_text(MODELS)
    Path("first.py").write_text(MODELS.replace("0.2, 0.3, 0.4", "0.5, 0.5, 0.5").replace("seed(1)", "seed(7)"))


def results(arguments: str, out: str) -> pd.DataFrame:
    with smaller(figures=False):
        assert main(["benchmark", "concepts", *shlex.split(f"{arguments} {QUIET} --out {out}")]) == 0
    return pd.read_csv(f"{out}/results.csv", keep_default_na=False, na_values="")


def rows_of(frame: pd.DataFrame, model: str) -> pd.DataFrame:
    rows = frame[frame["model"] == model].drop(columns=["model", "seed"], errors="ignore")
    return rows.reset_index(drop=True)


def images(mean: tuple[float, ...], std: tuple[float, ...]) -> ConceptFolder:
    data = ConceptFolder("fruit", "concepts.csv", "parts.csv", split="test")
    data.transform = Normalize(mean, std)
    return data


def test_each_has_the_numbers_that_it_has_alone_and_pairs_are_compared_image_by_image():
    saved = save_model()
    together = results(f"{FOLDER} {TWO} --model models.py:joint --model cbm.safetensors", "out")
    alone = results(f"{FOLDER} --backbone models.py:network", "alone")
    # Corrections and settings are tried with the first backbone alone.
    shared = alone[alone["metric"] != "accuracy after interventions"]
    for name in ("post-hoc CBM", "random directions", "plain backbone"):
        pd.testing.assert_frame_equal(
            rows_of(together, f"{name}, network() of models.py"), rows_of(shared, name), check_dtype=False
        )

    # Images are normalised as the file of the model says.
    data = images((0.2, 0.3, 0.4), (0.5, 0.6, 0.7))
    model = run_file("models.py").joint()
    truth = {"class_concepts": data.class_concepts, "metrics": UsualMetrics(top_l=[1, 3])}
    expected = score_concepts(model, sample_loader(data, 64), **truth)
    # A saved model goes with the backbone it was made with, the second.
    of_saved = score_concepts(saved, sample_loader(data, 64), **truth)
    for name, scores in (("joint() of models.py", expected), ("cbm.safetensors", of_saved)):
        own = rows_of(together, f"concept model, {name}").query("baseline.isna()")["value"].tolist()
        assert own == pytest.approx(scores.loc[scores["baseline"] == "", "value"].tolist(), nan_ok=True)

    models = pd.read_csv("out/tables/models.csv").set_index(["model", "metric"])
    names = ["network() of first.py", "network() of models.py", "joint() of models.py", "cbm.safetensors"]
    assert list(dict.fromkeys(models.index.get_level_values(0))) == names
    for name, rows in zip(names, (together, alone, expected, of_saved), strict=True):
        accuracy = rows[(rows["metric"] == "accuracy") & rows["model"].isin(["post-hoc CBM", "model"])]
        assert models.loc[(name, "accuracy"), "value"].item() == accuracy["value"].iloc[0]
    compared = pd.read_csv("out/tables/models-compared.csv").query("column == 'first less second'")
    assert len(compared[["a", "b"]].drop_duplicates()) == 6
    pair = compared.set_index(["what", "a", "b"])["value"]
    accuracies = models.xs("accuracy", level="metric")["value"]
    for a, b in itertools.combinations(names, 2):
        assert pair["accuracy", a, b] == pytest.approx(accuracies[a] - accuracies[b])
    page = Path("out/report.html").read_text("utf-8")
    assert "Normalisation for joint() of models.py: mean 0.2, 0.3, 0.4, deviation 0.5, 0.6, 0.7" in page


def test_models_that_are_never_right_on_the_same_class_and_that_have_other_concepts():
    concepts = Path("concepts.csv").read_text().splitlines()
    Path("concepts.csv").write_text(
        "".join(f"{line},{last}\n" for line, last in zip(concepts, ("blue", 0, 0), strict=True))
    )
    results(f"{FOLDER} --backbone first.py:network --model models.py:apple --model models.py:pear", "out")
    page = Path("out/report.html").read_text("utf-8")
    own = ["apple() of models.py", "pear() of models.py"]
    compared = pd.read_csv("out/tables/models-compared.csv")
    assert compared["value"].notna().all()
    assert not compared["what"].str.startswith("CGIM").any()
    # Each has accuracies, and undefined correlations with the reason.
    assert set(compared.loc[compared["a"] == own[0], "column"]) == {
        "first",
        "second",
        "first less second",
        "adjusted p",
    }
    assert "& – (3 undefined)" in Path("out/tables/models.tex").read_text("utf-8")
    assert "Undefined: too few classes have a correctly classified image" in page
    written = Path("out/tables/models-compared.tex").read_text("utf-8")
    for numbers in ("– & – & –", "– & –"):
        assert f"CGIM correlation, by value & network() of first.py & apple() of models.py & {numbers} " in written
    # One of the two has a concept that is left out of the bank.
    assert "pear() of models.py has concepts that the study&#39;s models lack: blue." in page
    assert "apple() of models.py has" not in page
    # Both are as often right as the commonest class is there, which is all that is known without random banks.
    models = pd.read_csv("out/tables/models.csv").query("metric == 'accuracy'").set_index("model")
    assert models.loc[own, ["random_low", "random_high"]].to_numpy() == pytest.approx(0.5)
    assert models.loc[own, "verdict"].tolist() == ["within"] * 2
    cells = [
        line.split(" & ") for line in Path("out/tables/models.tex").read_text("utf-8").splitlines() if " & " in line
    ]
    assert [line[1] for line in cells[2:5]] == ["random banks", "chance", "chance"]
    assert "A model without random banks has chance" in page
    # Without random banks no praise is withheld.
    assert f"No verdict on the concepts of {', '.join(own)}" not in page
    assert "Other concepts than those of network() of first.py: pear() of models.py." in page


def save_model() -> PostHocCBM:
    """Save a concept model with the backbone of models.py."""
    backbone, _ = cut_network(load_network("models.py:network"), None, torch.zeros(1, 3, 24, 24))
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = PostHocCBM(backbone, ConceptBank.random(3, 6, ["red", "green", "stalk::short"]), nn.Linear(3, 2)).eval()
    model.save("cbm.safetensors")
    return model


def test_a_folder_of_another_project_is_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(released_files, "D", 6)
        patch.setattr(released_files, "L", 3)
        patch.setattr(released_files, "K", 2)
        released_files.label_free(tmp_path / "other")
        patch.setattr(released_files, "CONCEPTS", ["red", "green", "stalk::short"])
        released_files.label_free(tmp_path / "cub_cbm")
    table = results(f"{FOLDER} --backbone models.py:network --model cub_cbm", "out")
    backbone, _ = cut_network(load_network("models.py:network"), None, torch.zeros(1, 3, 24, 24))
    # Images are normalised as that project does, by ImageNet's mean and deviation.
    data = images(*IMAGENET)
    settings = {"class_concepts": data.class_concepts, "metrics": UsualMetrics(top_l=[1, 3])}
    expected = score_concepts(load_released("cub_cbm", backbone), sample_loader(data, 64), **settings)
    own = rows_of(table, "concept model, cub_cbm").query("baseline.isna()")["value"].tolist()
    assert own == pytest.approx(expected.loc[expected["baseline"] == "", "value"].tolist(), nan_ok=True)
    # Its concepts have to be those of the data, which is known before anything is computed.
    Path("other/concepts.txt").write_text("red\ngreen\na short stalk")
    command = f"{FOLDER} --backbone models.py:network --model other {QUIET}"
    capsys.readouterr()
    check_command(["benchmark", "concepts", *shlex.split(command)], "not there: \\['stalk::short'\\]", capsys)


def test_painted_birds_of_each_seed_are_those_of_the_small_network():
    birds = (
        "--painted n_train=30,n_test=9,n_classes=3,n_concepts=8 --image-size 32 --epochs 1 --min-images 1 --no-sweep "
        "--no-interventions"
    )
    table = results(f"{birds} --seeds 2 --model models.py:birds", "out")
    own = table[(table["model"] == "concept model, birds() of models.py") & (table["metric"] == "CEM")]
    own = own[own["what"] == "score"]
    model = run_file("models.py").birds()
    normalise = Normalize((0.2, 0.3, 0.4), (0.5, 0.6, 0.7))
    for seed, first in ((0, 0), (1, 9)):
        data = PaintedBirds(9, "test", image_size=32, n_classes=3, n_concepts=8, first=first, transform=normalise)
        expected = score_concepts(model, sample_loader(data, 64), baselines=False).query("metric == 'CEM'")
        assert own.loc[own["seed"] == seed, "value"].tolist() == pytest.approx(expected["value"].tolist())
    # Of each number the table says whether it tells these models apart.
    page = Path("out/report.html").read_text()
    assert "separates these models?" in page
    assert "not shown to" in page or "separates these models<" in page or "unknown" in page
    # Seeds are what is independent: no difference of two is clear.
    compared = pd.read_csv("out/tables/models-compared.csv")
    assert set(compared["a"]) == {"the small network"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        f"{FOLDER} {TWO} --weights none": "`--weights` has no effect with several --backbone",
        f"{FOLDER} --backbone first.py:network --model models.py:wide": "`--model` wide.* 3 concepts .* has 4 and 2. "
        "The concepts are red, green, stalk::short",
        f"{FOLDER} --backbone first.py:network --model network.py:model": "`--model` to be a concept model",
        f"{FOLDER} --backbone first.py:network --model models.py:x": "'models.py:x'. It has: joint, birds, wide",
        f"{FOLDER} --backbone first.py:network --model parts.csv": "`--model` names what cannot be used, parts.csv",
        f"{FOLDER} --backbone first.py:network --model fruit": "cannot be used, fruit. fruit holds no released model",
    }.items(),
)
def test_refusals(arguments, message, capsys):
    check_command(["benchmark", "concepts", *shlex.split(f"{arguments} {QUIET}")], message, capsys)
