from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision.models import resnet18

from captum_concepts._support.whole_folder import WORK
from fixtures_cub import write_cub
from golden.runs import smaller
from quantus_concepts.studies._kit import page as pages
from quantus_concepts.studies._kit import run as floor
from quantus_concepts.studies.app import main, tolerant_stream
from quantus_concepts.studies.concepts import study
from quantus_concepts.studies.concepts.names import MODELS

COMMAND = ["benchmark", "concepts"]
METRICS = {"CEM", "CLM", "CGIM", "accuracy", "concept accuracy", "negative first", "CAV accuracy"}
METRICS |= {"accuracy after interventions", "part specificity"}


def words(text: str) -> list[str]:
    return text.split()


TINY = words(
    "--n-train 60 --n-test 18 --n-classes 3 --n-concepts 8 --image-size 32 --epochs 1 --n-pos 10 --n-neg 10 "
    "--batch-size 16 --no-progress --device cpu"
)
NETWORK = """
import torch
from torch import nn

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
        )


def number():
    return 3


def broken():
    raise RuntimeError("no such checkpoint")
"""


#: Where its numbers do not matter.
TINIEST = [*TINY, *words("--seeds 1 --no-sweep")]


@pytest.fixture(autouse=True)
def _inside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    # Drawing takes most of the time of a tiny run: one of each kind of data is drawn.
    with smaller(figures="drawn" in request.fixturenames):
        yield


@pytest.fixture
def drawn() -> None:
    """The figures are drawn."""


@pytest.fixture
def own_images(tmp_path: Path) -> Path:
    """Red and green images of two classes, with a point on a white square in each."""
    rng = np.random.default_rng(0)
    points = ["image,part,x,y"]
    for split, count in (("train", 8), ("test", 4)):
        for name, channel in (("apple", 0), ("pear", 1)):
            folder = tmp_path / "fruit" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 60, (24, 24, 3), dtype=np.uint8)
                pixels[..., channel] += 150
                x, y = rng.integers(3, 21, 2)
                pixels[y - 2 : y + 3, x - 2 : x + 3] = 255
                Image.fromarray(pixels).save(folder / f"{number}.png")
                points.append(f"{split}/{name}/{number}.png,stalk,{x},{y}")
    (tmp_path / "parts.csv").write_text("\n".join(points) + "\n")
    (tmp_path / "concepts.csv").write_text("class,red,green,stalk::short\napple,1,0,1\npear,0,1,0\n")
    (tmp_path / "network.py").write_text(NETWORK)
    return tmp_path


FOLDER = words(
    "--data folder --root fruit --concepts concepts.csv --min-images 1 --backbone network.py:model --no-progress "
    "--device cpu"
)


def run(*arguments: str) -> int:
    return main([*COMMAND, *arguments])


@pytest.mark.usefixtures("drawn")
def test_painted_birds_from_drawing_to_report(tmp_path, capsys, monkeypatch):
    happened = []
    for place, name, call in ((study, "score_seed", study.score_seed), (floor.Run, "show", floor.Run.show)):

        def noted(*given, done=call, name=name, **named):
            happened.append(name)
            return done(*given, **named)

        monkeypatch.setattr(place, name, noted)
    assert run(*TINY, "--seeds", "2", "--progress") == 0
    # The first table is there before the second seed is worked on; a log holds neither bars nor control codes.
    assert happened == ["score_seed", "show", "score_seed"]
    captured = capsys.readouterr()
    told = " ".join(captured.out.split())
    assert told.index("After 1 of 2 seeds") < told.index("Are the concepts real")
    assert "One seed: intervals are within it." in told
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


@pytest.mark.usefixtures("drawn")
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


def refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("Error: ")
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--data cub --root fruit --weights none", "fruit"),
        ("--method svn", "Did you mean 'svm'"),
        ("--labels imge", "Did you mean 'image'"),
        ("--layer layer4", "--backbone"),
        ("--out concepts.csv", "is a file"),
        ("--out fruit", "already holds files"),
        ("--out fruit --overwrite", "did not write"),
    ],
)
def test_bad_options_are_told_in_one_line(arguments, message, own_images, capsys):
    refused([*TINY, *arguments.split()], message, capsys)
    assert not Path("reports").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--backbone nowhere.py:model", "none at nowhere.py"),
        ("--backbone network.py", "path.py:factory"),
        ("--backbone network.py:modle", "has no function 'modle'. It has: model"),
        ("--backbone network.py:number", "to return an nn.Module but got int"),
        ("--backbone network.py:broken", r"broken\(\) in network.py failed: .*no such checkpoint"),
        ("--backbone syntax.py:model", "syntax.py cannot be run: SyntaxError"),
        ("--backbone resnet81", "Nearest: .*resnet18"),
        ("--layer 11", r"`--layer` to name a layer of Sequential but got '11'"),
        ("--layer 4", "to give maps"),
        ("--weights nowhere.pth", "there is none at nowhere.pth"),
        ("--weights concepts.csv", "holds no weights that can be read safely"),
        ("--weights other.safetensors", "do not fit Sequential: missing: 0.weight"),
        ("--weights cut.safetensors", "holds no weights"),
        ("--weights code.pth", "weights_only=True"),
        ("--mean 0.5,0.5 --std 1,1", "each of 3 channels but got 2"),
        ("--backbone plain.py:model", "not known.*MEAN and STD.*--mean.*--unnormalised"),
        ("--mean 0,0,0 --std 1,1,1 --unnormalised", "either `--mean` and `--std` or `--unnormal"),
    ],
)
def test_bad_backbones_are_told_in_one_line(arguments, message, own_images, capsys):
    Path("syntax.py").write_text("def model(:\n")
    Path("plain.py").write_text(NETWORK.replace("MEAN, STD =", "_, _ ="))
    save_file({"3.weight": torch.zeros(1)}, "other.safetensors")
    Path("cut.safetensors").write_bytes(Path("other.safetensors").read_bytes()[:20])
    torch.save({"weight": Path}, "code.pth")
    refused([*FOLDER, *arguments.split()], message, capsys)
    assert not Path("reports").exists()


def test_a_download_that_fails_is_told_in_one_line(own_images, capsys, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.models.get_model", fail)
    folder = words("--data folder --root fruit --concepts concepts.csv --min-images 1")
    refused(
        folder, r"weights of resnet18 could not be loaded \(OSError: no network\). Pass a file with --weights", capsys
    )


def test_an_interrupted_run_leaves_nothing_half_written_goes_on_and_is_replaced_only_when_asked(
    tmp_path, capsys, monkeypatch
):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def again(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    tiny = [*TINIEST, "--out", "result"]
    with monkeypatch.context() as trained:
        # Each run goes on from where the one before was interrupted.
        for module, moment in ((study, "load_data"), (study, "draw_gallery"), (pages, "render")):
            if moment == "render":
                trained.setattr(study, "train_networks", again)
            with monkeypatch.context() as patched:
                patched.setattr(module, moment, interrupt)
                assert run(*tiny) == 130
            captured = capsys.readouterr()
            assert "Interrupted" in captured.err
            # Nothing is printed before the folder is complete.
            assert captured.out == ""
            # What was trained is kept; nothing is half a file.
            left = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert not [path for path in left if "partial" in path.name]
            assert (not left) == (moment == "load_data")
        assert run(*tiny) == 0
    assert (tmp_path / "result" / "report.html").is_file()
    first = (tmp_path / "result" / "results.csv").read_bytes()
    capsys.readouterr()
    assert run(*tiny) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "result" / "results.csv").read_bytes() == first
    assert run(*tiny, "--overwrite", "--seed", "1") == 0
    assert (tmp_path / "result" / "results.csv").read_bytes() != first


HEAVY = ("torch", "torchvision", "quantus", "sklearn", "matplotlib", "pandas", "timm")


HELP = ("--help", "benchmark concepts --help", "pasta score --help", "--version")


def test_help_loads_nothing_heavy():
    code = f"""
import sys
from quantus_concepts.studies.app import main
for arguments in {HELP}:
    assert main(arguments.split()) == 0
    print("loaded:", arguments, [name for name in {HEAVY} if name in sys.modules])
"""
    told = [line for line in python("-c", code).stdout.splitlines() if line.startswith("loaded:")]
    assert told == [f"loaded: {arguments} []" for arguments in HELP]


MODULE = ("-m", "quantus_concepts.studies.app")


def python(*arguments: str, encoding: str = "utf-8", **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": encoding} | settings
    line = [sys.executable, *arguments]
    return subprocess.run(line, capture_output=True, encoding=encoding, env=environment, check=False)


def test_the_command_runs_as_a_module():
    done = python(*MODULE, *COMMAND, "--sede", "3")
    assert done.returncode == 2
    assert re.match("Error: No such option:? .?--sede", done.stderr)


def test_a_run_on_a_code_page_without_greek_letters():
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = python(*MODULE, *COMMAND, *TINIEST, "--out", "result", encoding="cp1252", **locale)
    assert done.returncode == 0, done.stderr
    assert "contribution w\u00b7u" in " ".join(done.stdout.split())
    assert "θ" in Path("result/report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "−1.5 ≈ θ·u 中?"),
        ("cp1252", "-1.5 ~ w·u ??"),
        ("cp437", "-1.5 ≈ w·u ??"),
        ("latin-1", "-1.5 ~ w·u ??"),
        ("ascii", "-1.5 ~ w*u ??"),
    ],
)
def test_signs_that_an_encoding_lacks_are_replaced(tmp_path, encoding, shown):
    path = tmp_path / "output"
    with path.open("w", encoding=encoding) as file, tolerant_stream(file) as stream:
        stream.write("−1.5 ≈ θ·u 中\udcff")
    assert path.read_bytes().decode(encoding) == shown


def test_what_nobody_reads_is_dropped():
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file, tolerant_stream(file) as stream:
        os.close(reader)
        stream.write("a line\n" * 100_000)


def test_the_folder_is_complete_before_anything_is_printed(monkeypatch, capsys):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(floor, "print_page", fails)
    assert run(*TINIEST, "--out", "result") == 2
    assert "No space left" in capsys.readouterr().err
    assert {path.name for path in Path("result").iterdir()} >= {"report.html", "results.csv"}
    assert not Path("result", WORK).exists()


@pytest.mark.parametrize(
    ("command", "named"),
    {
        "": ("benchmark", "compose", "pasta"),
        "benchmark concepts": ("--data", "--root", "--concepts", "--parts", "--backbone", "--layer", "--device"),
        "benchmark attribution": ("--data", "--objects", "--methods", "--relative", "--no-tcav", "path.py:function"),
        "compose": ("--objects", "--scenes", "--annotations", "--n-per-pair", "--lossless", "--out"),
        "pasta score": ("--images", "--scorer", "--labels-from", "--no-clip", "--overwrite"),
        "pasta sheet": ("--questions", "--light", "--max-megabytes"),
        "pasta join": ("files", "--data"),
    }.items(),
)
def test_help_names_what_there_is(command, named, capsys):
    assert main([*command.split(), "--help"]) == 0
    page = capsys.readouterr().out
    assert [name for name in named if name not in page] == []


def test_no_arguments_are_a_call_for_help_and_the_version_is_told(capsys):
    assert main([]) == 0
    assert "benchmark" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert re.fullmatch(r"quantus-concepts \d+\.\d+.*", capsys.readouterr().out.strip())
