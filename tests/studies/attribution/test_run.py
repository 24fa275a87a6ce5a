"""The whole command on tiny data: what it writes, goes on from, and refuses. Its numbers are recorded elsewhere."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from captum_concepts.attributions.methods import CONTROL_METHODS, PAPER_METHODS
from fixtures_attribution import FOLDERS, TINY, write_folders
from fixtures_commands import check_command
from golden.runs import RUNS, smaller
from kills import raising
from quantus_concepts.studies.app import main
from quantus_concepts.studies.attribution import study

COMMAND = ["benchmark", "attribution"]
#: The command of the recorded run, but for its folder.
RECORDED = shlex.split(RUNS["attribution"].commands[0])[:-2]
AGAIN = raising(AssertionError("made again"))


@pytest.fixture
def recorded(golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the recorded run, where its images are."""
    folder = golden("attribution")
    monkeypatch.chdir(folder.parent)
    return folder


def run(arguments: list[str]) -> int:
    with smaller(figures=False):
        return main(arguments)


def read(folder: Path) -> tuple[pd.DataFrame, str]:
    return pd.read_csv(folder / "results.csv"), (folder / "report.html").read_text(encoding="utf-8")


def models_of(folder: Path) -> set[str]:
    return {path.name for path in (folder / "cache").glob("f_*.safetensors")}


def test_what_a_run_writes(recorded: Path) -> None:
    table, page = read(recorded)
    assert list(dict.fromkeys(table.method)) == [*PAPER_METHODS, *CONTROL_METHODS, "TCAV"]
    assert set(table.metric) == {"MCS", "MCS baseline", "IDR", "IIR", "perturbation", "robustness"}
    images = table[table.method != "TCAV"]
    assert set(images[images.metric.isin(["MCS", "IDR"])].eval("n + undefined")) == {8}
    assert set(table[table.metric == "IIR"].eval("n + undefined")) == {4}
    assert set(table[table.metric == "IDR"].reference) == {0.5}
    assert set(table[table.metric == "robustness"].variant) == {"smaller", "larger", "centre", "corner"}
    assert "8 for MCS and IDR, 4 for IIR" in page
    layers = pd.read_csv(recorded / "tcav_layers.csv")
    assert set(layers.model) == {"f_o", "f_s"}
    assert 'href="./tcav_layers.csv"' in page
    assert {name.partition("-")[0] for name in models_of(recorded)} == {"f_o", "f_s", "f_0"}


def test_the_relative_contrast(golden: Callable[[str], Path]) -> None:
    folder = golden("attribution-relative")
    table, _ = read(folder)
    curve = table[(table.metric == "relative MCS") & (table.method == "Grad-CAM")]
    assert curve.k.tolist() == [k / 10 for k in range(1, 10)]
    assert len(models_of(folder)) == 13
    premises = pd.read_csv(folder / "premises.csv")
    assert set(premises[premises.k.notna()].metric) == {"accuracy with", "accuracy without", "accuracy drop"}


def test_a_finished_run_makes_nothing_again(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = shutil.copytree(recorded, tmp_path / "out")
    monkeypatch.setattr(torch.optim.AdamW, "step", AGAIN)
    for name in ("optimise_patch", "score_contrasts"):
        monkeypatch.setattr(study, name, AGAIN)
    assert run([*RECORDED, "--out", str(out)]) == 0
    assert (out / "results.csv").read_bytes() == (recorded / "results.csv").read_bytes()


def test_methods_of_the_users_own_beside_what_fails_with_models_of_an_earlier_run(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.optim.AdamW, "step", AGAIN)
    monkeypatch.setattr(study, "score_tcav", raising(RuntimeError("no layer")))
    file = tmp_path / "methods.py"
    file.write_text(Path("sources/methods.py").read_text())
    mine = [f"{file}:{name}" for name in ("inverted", "explains", "fails", "gives_nan")]
    methods = ",".join(["Grad-CAM", "GRAD-CAM", *mine, "Deconvolution"])
    arguments = [*RECORDED, "--models", str(recorded / "cache"), "--methods", methods, "--out", str(tmp_path / "out")]
    arguments.remove("--robustness")
    assert run(arguments) == 0
    assert not models_of(tmp_path / "out")
    table, page = read(tmp_path / "out")
    assert list(dict.fromkeys(table.method)) == ["Grad-CAM", *mine, "Deconvolution", *CONTROL_METHODS]
    for name in mine[2:]:
        assert table[table.method == name].value.isna().all()
        assert (table[table.method == name].n == 0).all()
    assert re.search("methods.py:fails has no score in .*RuntimeError: no explanation", page)
    assert re.search("methods.py:gives_nan has no score in .*NaN or infinity", page)
    assert "TCAV failed and has no scores: RuntimeError: no layer" in page
    assert table[(table.method == mine[0]) & (table.metric == "IDR")].n.item() > 0
    own, before = (
        frame[(frame.method == "Grad-CAM") & (frame.metric == "IDR")] for frame in (table, read(recorded)[0])
    )
    assert own.value.item() == before.value.item()
    # Another file is another run.
    file.write_text(file.read_text() + "\nmore = 1\n")
    assert run(arguments) == 2
    assert "holds another run" in capsys.readouterr().err


def test_as_printed_maps_have_no_scale_of_their_own(recorded: Path, tmp_path: Path) -> None:
    file = tmp_path / "methods.py"
    file.write_text(
        "from captum_concepts import build_method\n\n\ndef gradient(model, inputs, targets, **more):\n"
        "    return build_method('vanilla gradient')(model, inputs, targets)\n\n\n"
        "def thousandfold(model, inputs, targets, **more):\n    return 1000 * gradient(model, inputs, targets)\n"
    )
    methods = f"{file}:gradient,{file}:thousandfold"
    arguments = [*RECORDED, "--models", str(recorded / "cache"), "--methods", methods, "--no-tcav"]
    values = {}
    for how in ([], ["--as-printed"]):
        out = tmp_path / ("printed" if how else "ours")
        assert run([*arguments, *how, "--out", str(out)]) == 0
        table, page = read(out)
        assert ("As printed in the papers" in page) == bool(how)
        for metric in ("MCS", "robustness", "IDR"):
            of = [
                table[(table.method == f"{file}:{name}") & (table.metric == metric)]
                for name in ("gradient", "thousandfold")
            ]
            values[bool(how), metric] = [part.value.to_numpy() for part in of]
    for metric in ("MCS", "robustness"):
        one, thousand = values[False, metric]
        np.testing.assert_allclose(thousand, one, rtol=1e-4)
        one, thousand = values[True, metric]
        np.testing.assert_allclose(thousand, 1000 * one, rtol=1e-4)
        assert np.abs(thousand).max() > 0
    np.testing.assert_array_equal(*values[True, "IDR"])


def test_a_network_of_the_users_own_with_a_layer_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_folders(tmp_path))
    Path("network.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef model():\n    with torch.random.fork_rng():\n"
        "        torch.manual_seed(0)\n        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), "
        "nn.Conv2d(4, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 9))\n"
    )
    few = "--n-images 4 --n-patches 2 --patch-steps 1 --no-tcav --methods grad-cam --epochs 1"
    arguments = [*COMMAND, *TINY, *FOLDERS, *shlex.split(few), "--backbone", "network.py:model", "--unnormalised"]
    assert run([*arguments, "--out", "last"]) == 0
    assert run([*arguments, "--models", "last/cache", "--layer", "0", "--out", "first"]) == 0
    last, first = (read(Path(name))[0].query("method == 'Grad-CAM'") for name in ("last", "first"))
    assert not first.equals(last)


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "--root scenes": "`--root` has no effect with `--data folders`",
        "--data coco-miniplaces": "Expected `--annotations` with `--data coco-miniplaces`",
        "--layer features": "`--layer` has no effect on the small network",
        "--methods grad-cam,,random": "`--methods` to be names with commas",
        "--methods grad-kam": "`--methods` names what cannot be used.*Grad-CAM",
        "--threshold 0": "`--threshold` to be above 0",
        "--common-object dog": r"`--common-object` to be one of \['leaf', 'stone'\]",
    }.items(),
)
def test_refusals(
    arguments: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(write_folders(tmp_path))
    check_command([*COMMAND, *TINY, *FOLDERS, *shlex.split(arguments), "--out", "refused"], message, capsys)


def test_images_that_were_composed_before_have_no_relative_contrast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_folders(tmp_path))
    check_command([*COMMAND, *TINY, *shlex.split("--data bam --root scenes --relative")], "`--relative` has no", capsys)
