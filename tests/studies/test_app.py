"""`benchmark concepts` as a command, and the process that it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torchvision.models import resnet18

from captum_concepts._support.whole_folder import WORK
from fixtures_commands import write_own_images
from fixtures_cub import write_cub
from golden.runs import smaller
from kills import raising
from quantus_concepts.studies._kit import page as pages
from quantus_concepts.studies._kit import run as floor
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts import study
from quantus_concepts.studies.concepts.findings import MODELS

COMMAND = ["benchmark", "concepts"]
METRICS = {"CEM", "CLM", "CGIM", "accuracy", "concept accuracy", "negative first", "CAV accuracy"}
METRICS |= {"accuracy after interventions", "part specificity"}


def words(text: str) -> list[str]:
    return text.split()


TINY = words(
    "--n-train 60 --n-test 18 --n-classes 3 --n-concepts 8 --image-size 32 --epochs 1 --n-pos 10 --n-neg 10 "
    "--batch-size 16 --no-progress --device cpu"
)
#: Where its numbers do not matter.
TINIEST = [*TINY, *words("--seeds 1 --no-sweep")]


@pytest.fixture(autouse=True)
def _inside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    # Drawing takes most of the time of a tiny run: one of each kind of data is drawn.
    with smaller(figures="figures" in request.fixturenames):
        yield


@pytest.fixture
def figures() -> None:
    """The figures are drawn."""


@pytest.fixture
def own_images(tmp_path: Path) -> Path:
    return write_own_images(tmp_path)


FOLDER = words(
    "--data folder --root fruit --concepts concepts.csv --min-images 1 --backbone network.py:model --no-progress "
    "--device cpu"
)


def run(*arguments: str) -> int:
    return main([*COMMAND, *arguments])


@pytest.mark.usefixtures("figures")
def test_painted_birds_from_drawing_to_report(tmp_path, capsys, monkeypatch):
    happened = []
    for place, name, call in ((study, "score_seed", study.score_seed), (floor.Run, "show", floor.Run.show)):

        def noted(*arguments, done=call, name=name, **named):
            happened.append(name)
            return done(*arguments, **named)

        monkeypatch.setattr(place, name, noted)
    assert run(*TINY, "--seeds", "2", "--progress") == 0
    # The first table is there before the second seed is worked on; a log holds neither bars nor control codes.
    assert happened == ["score_seed", "show", "score_seed"]
    captured = capsys.readouterr()
    printed = " ".join(captured.out.split())
    assert printed.index("After 1 of 2 seeds") < printed.index("Are the concepts real")
    assert "One seed: intervals are within it." in printed
    assert "\\n" not in captured.out
    assert captured.err.splitlines()[:2] == ["Seed 0 (1 of 2)", "Seed 1 (2 of 2)"]
    assert not set("\r\x1b") & set(captured.out + captured.err)
    folder = Path(captured.out.splitlines()[-1])
    assert folder.parent == Path("reports")
    table = pd.read_csv(folder / "results.csv", dtype={"explanation": str, "item_kind": str}, keep_default_na=False)
    assert set(table.model) >= {*MODELS, "plain backbone", "parts of another image", "centred Gaussian"}
    assert set(table.metric) == METRICS
    assert set(table.seed.astype(int)) == {0, 1}
    oracle = table[(table.model == "oracle") & (table.metric == "CEM") & (table.explanation == "value")]
    # At least one concept is present in each image, and the oracle ranks it first.
    assert oracle[oracle.l.astype(int) == 1].value.astype(float).tolist() == [1.0] * 4
    # Other individuals of the same classes, for each seed.
    classes = table[(table.item_kind == "class") & (table.item != "") & (table.model == "oracle")]
    first, second = (set(group.item) for _, group in classes.groupby("seed"))
    assert len(first) == 3
    assert first == second
    chances = table[(table.model == "oracle") & (table.metric == "CEM")].groupby("seed").chance.first()
    assert chances.nunique() == 2
    settings = table[table.item_kind == "setting"]
    assert len(settings) == 2 * 10
    assert "C=0.001, n=50" in set(settings.item)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(f"Table {number}" in page for number in (1, 2, 3))
    assert {path.stem for path in (folder / "figures").glob("*.png")} >= {
        "cem",
        "clm",
        "cgim_histograms",
        "concepts",
        "classes",
        "gallery",
    }


@pytest.mark.usefixtures("figures")
def test_images_of_the_users_own_with_a_network_of_their_own(own_images, capsys):
    assert run(*FOLDER, "--parts", "parts.csv", "--out", "result") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "result"
    table = pd.read_csv(own_images / "result/results.csv", keep_default_na=False)
    plain = table[table.model == "plain backbone"]
    # 8 test images, and an untrained network with two outputs.
    assert plain.n.astype(int).tolist() == [8]
    post_hoc = table[table.model == "post-hoc CBM"]
    accuracy = post_hoc[(post_hoc.metric == "accuracy") & (post_hoc.item_kind == "")]
    # Red and green are told apart by any eight filters.
    assert accuracy.value.astype(float).tolist() == [1.0]
    assert set(post_hoc[post_hoc.metric == "CLM"].l) == {"1"}
    assert set(post_hoc[post_hoc.metric == "CEM"].l) == {"1", "3"}
    page = (own_images / "result/report.html").read_text(encoding="utf-8")
    assert "mean 0.5, 0.5, 0.5, deviation 0.25, 0.25, 0.25" in page
    assert "oracle" not in set(table.model)


def test_weights_layer_and_normalisation_of_the_users_choice(own_images, capsys):
    filters = torch.rand(8, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    network = {"0.weight": filters, "0.bias": torch.ones(8)}
    save_file(network | {"4.weight": torch.zeros(2, 8), "4.bias": torch.tensor([0.0, 1.0])}, "weights.safetensors")
    arguments = ("--weights", "weights.safetensors", "--layer", "0", "--mean", "0,0,0", "--std", "1,1,1")
    assert run(*FOLDER, *arguments, "--out", "result", "--no-sweep") == 0
    table = pd.read_csv(own_images / "result/results.csv")
    # These weights take every image for a pear, which is half of them.
    assert table[table.model == "plain backbone"].value.tolist() == [0.5]
    page = (own_images / "result/report.html").read_text(encoding="utf-8")
    assert "mean 0, 0, 0, deviation 1, 1, 1" in page
    assert "layer 0, averaged over space" in page
    # Without parts there is no location.
    assert "CLM" not in set(table.metric)
    assert "there is no CLM" in page
    assert "there is no CLM" in capsys.readouterr().err


def test_the_official_cub_layout(tmp_path, capsys):
    root = write_cub(tmp_path)
    arguments = words(
        "--backbone resnet18 --weights none --image-size 64 --min-images 1 --no-sweep --no-progress --device cpu"
    )
    assert run("--data", "cub", "--root", str(root), *arguments, "--out", "result") == 0
    table = pd.read_csv(tmp_path / "result/results.csv", keep_default_na=False)
    concepts = table[(table.model == "post-hoc CBM") & (table.item_kind == "concept") & (table.item != "")]
    assert concepts.metric.value_counts().to_dict() == {"CGIM": 3 * 112, "CAV accuracy": 112}
    classes = table[(table.model == "post-hoc CBM") & (table.item_kind == "class") & (table.item != "")]
    assert len(classes) == 3 * 3
    existence = table[(table.model == "post-hoc CBM") & (table.metric == "CEM") & (table.set == "all")]
    assert set(existence.n.astype(int)) == {6}
    assert {"CLM", "CEM", "CGIM"} <= set(table.metric)
    page = (tmp_path / "result/report.html").read_text(encoding="utf-8")
    # The paper's Table 1, u, l = 1, and its accuracy, beside ours.
    assert "84.3" in page
    assert "59.1" in page


def test_resnet18_cub_crops_as_the_release_does(tmp_path):
    pytest.importorskip("pytorchcv")
    root = write_cub(tmp_path)
    arguments = words("--weights none --method mean --min-images 1 --no-sweep --no-progress --device cpu --out result")
    assert run("--data", "cub", "--root", str(root), *arguments) == 0
    page = (tmp_path / "result/report.html").read_text(encoding="utf-8")
    assert "224 px, centre crop" in page
    assert "mean 0.5, 0.5, 0.5, deviation 2, 2, 2" in page
    assert "features.stage4" in page


def test_a_torchvision_checkpoint_is_read_from_a_file(own_images):
    with torch.random.fork_rng():
        torch.save({"state_dict": resnet18(num_classes=1000).state_dict()}, "checkpoint.pth")
    data = words(
        "--data folder --root fruit --concepts concepts.csv --image-size 32 --min-images 1 --no-progress --no-sweep"
    )
    assert run(*data, "--backbone", "resnet18", "--weights", "checkpoint.pth", "--out", "result") == 0
    page = (own_images / "result/report.html").read_text(encoding="utf-8")
    assert "own accuracy: not applicable. Its 1000 outputs are not the 2 classes" in page


def test_an_interrupted_run_leaves_nothing_half_written_goes_on_and_is_replaced_only_when_asked(
    tmp_path, capsys, monkeypatch
):
    tiny = [*TINIEST, "--out", "result"]
    with monkeypatch.context() as trained:
        # Each run goes on from where the one before was interrupted.
        for module, moment in ((study, "load_data"), (study, "draw_gallery"), (pages, "render")):
            if moment == "render":
                trained.setattr(study, "train_networks", raising(AssertionError("trained again")))
            with monkeypatch.context() as patched:
                patched.setattr(module, moment, raising(KeyboardInterrupt()))
                assert run(*tiny) == 130
            captured = capsys.readouterr()
            assert "Interrupted" in captured.err
            # Nothing is printed before the folder is complete.
            assert captured.out == ""
            # What was trained is kept; nothing is half a file.
            remaining = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert not [path for path in remaining if "partial" in path.name]
            assert (not remaining) == (moment == "load_data")
        assert run(*tiny) == 0
    assert (tmp_path / "result" / "report.html").is_file()
    first = (tmp_path / "result" / "results.csv").read_bytes()
    capsys.readouterr()
    assert run(*tiny) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "result" / "results.csv").read_bytes() == first
    assert run(*tiny, "--overwrite", "--seed", "1") == 0
    assert (tmp_path / "result" / "results.csv").read_bytes() != first


def test_the_folder_is_complete_before_anything_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(floor, "print_page", raising(OSError(28, "No space left on device")))
    assert run(*TINIEST, "--out", "result") == 2
    assert "No space left" in capsys.readouterr().err
    assert {path.name for path in Path("result").iterdir()} >= {"report.html", "results.csv"}
    assert not Path("result", WORK).exists()
