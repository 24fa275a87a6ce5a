"""The whole command on tiny data: what it writes, repeats, goes on from, and leaves behind."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch

from captum_concepts.attributions.methods import CONTROL_METHODS, PAPER_METHODS
from fixtures_attribution import FOLDERS, TINY, write_folders
from golden.runs import NO_FIGURES
from kills import contents, raising
from quantus_concepts.studies.app import main
from quantus_concepts.studies.attribution import global_method, study
from quantus_concepts.studies.attribution.command import build_methods, method_names

COMMAND = ["benchmark", "attribution"]
INTERRUPT = raising(KeyboardInterrupt())
FEW = ["--methods", "grad-cam,vanilla gradient", "--no-tcav"]


@dataclass
class Outcome:
    """One run of the command in a folder of its own, and its output."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def table(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "results.csv")

    @property
    def page(self) -> str:
        return (self.folder / "report.html").read_text(encoding="utf-8")

    def value(self, method: str, metric: str) -> float:
        table = self.table
        return table[(table.method == method) & (table.metric == metric)].value.item()


def call(*arguments: str) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*COMMAND, *TINY, *FOLDERS, *arguments])
    lines = out.getvalue().splitlines()
    return Outcome(code, out.getvalue(), err.getvalue(), Path(lines[-1]) if lines else Path())


@pytest.fixture(autouse=True, scope="module")
def root(tmp_path_factory):
    """A folder with cut-outs, scenes and methods, in which the command runs and draws nothing."""
    place = write_folders(tmp_path_factory.mktemp("work"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(study, "N_SHOWN", 1)
        for name in ("png", "svg"):
            patch.setattr(
                f"quantus_concepts.studies._kit.report.{name}",
                NO_FIGURES[f"quantus_concepts.studies._kit.report.{name}"],
            )
        yield place


@pytest.fixture(scope="module")
def first(root):
    return call(*FEW, "--out", "own")


def models_of(folder: str) -> set[str]:
    return {path.name for path in Path(folder, "cache").glob("f_*.safetensors")}


def test_what_a_run_writes(first):
    assert first.code == 0, first.err
    assert first.out.splitlines()[-1] == "own"
    table = first.table
    assert list(dict.fromkeys(table.method)) == ["Grad-CAM", "vanilla gradient", *CONTROL_METHODS]
    assert set(table.metric) == {"MCS", "MCS baseline", "IDR", "IIR", "perturbation"}
    assert set(table[table.metric.isin(["MCS", "IDR"])].eval("n + undefined")) == {12}
    assert set(table[table.metric == "IIR"].eval("n + undefined")) == {4}
    assert set(table[table.metric == "IDR"].reference) == {0.5}
    assert "not verified" in first.out
    assert "12 for MCS and IDR, 4 for IIR" in first.page
    assert {name.partition("-")[0] for name in models_of("own")} == {"f_o", "f_s", "f_0"}
    assert set(pd.read_csv("own/premises.csv").model) == {"f_o", "f_s"}


def test_two_equal_runs_have_equal_models_and_another_seed_others(first):
    again, other = (call(*FEW, "--out", f"seed{seed}", "--seed", str(seed)) for seed in (0, 1))
    before, after = contents(Path("own/cache")), contents(Path("seed0/cache"))
    assert before == after
    assert (again.folder / "results.csv").read_bytes() == (first.folder / "results.csv").read_bytes()
    assert not models_of("seed1") & models_of("own")
    assert not other.table.equals(first.table)


def test_overwrite_leaves_no_model_of_an_earlier_run(first):
    for seed in ("2", "3"):
        assert call(*FEW, "--out", "replaced", "--seed", seed, "--overwrite").code == 0
    assert len(models_of("replaced")) == 3
    refused = call(*FEW, "--out", "replaced", "--seed", "2")
    assert refused.code == 2
    assert "--overwrite" in refused.err


def test_models_of_an_earlier_run_are_not_trained_again(first, monkeypatch):
    monkeypatch.setattr(torch.optim.AdamW, "step", raising(AssertionError("trained again")))
    second = call(*FEW, "--models", "own/cache", "--out", "second")
    assert second.code == 0
    assert (second.folder / "results.csv").read_bytes() == (first.folder / "results.csv").read_bytes()
    assert not models_of("second")


def test_a_run_that_was_interrupted_goes_on_with_what_is_finished(first, monkeypatch):
    done, fails_at = [], [3]
    step = torch.optim.AdamW.step

    def counted(self, *arguments, **given):
        done.append(1)
        # Of three models with two steps each, in the second one.
        if len(done) in fails_at:
            raise KeyboardInterrupt
        return step(self, *arguments, **given)

    arguments = (*FEW, "--out", "same")
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", counted)
        assert call(*arguments).code == 130
        assert len(models_of("same")) == 1
        done.clear()
        fails_at.clear()
        patch.setattr(study, "optimise_patch", INTERRUPT)
        assert call(*arguments).code == 130
        # The model that was interrupted begins anew, the first one is there.
        assert len(done) == 4
    again = raising(AssertionError("made again"))
    monkeypatch.setattr(torch.optim.AdamW, "step", again)
    with monkeypatch.context() as patch:
        patch.setattr(study, "tidy", INTERRUPT)
        assert call(*arguments).code == 130
    assert not Path("same/report.html").exists()
    for name in ("optimise_patch", "score_contrasts"):
        monkeypatch.setattr(study, name, again)
    assert call(*arguments).code == 0
    assert Path("same/results.csv").read_bytes() == (first.folder / "results.csv").read_bytes()


def test_methods_of_the_users_own_beside_those_that_fail(first):
    methods = (
        "Grad-CAM,GRAD-CAM,methods.py:inverted,methods.py:explains,methods.py:fails,methods.py:gives_nan,Deconvolution"
    )
    outcome = call("--no-tcav", "--models", "own/cache", "--out", "mine", "--methods", methods)
    assert outcome.code == 0
    table = outcome.table
    mine = [f"methods.py:{name}" for name in ("inverted", "explains", "fails", "gives_nan")]
    assert list(dict.fromkeys(table.method)) == ["Grad-CAM", *mine, "Deconvolution", *CONTROL_METHODS]
    for name in ("methods.py:fails", "methods.py:gives_nan"):
        assert table[table.method == name].value.isna().all()
        assert (table[table.method == name].n == 0).all()
    assert re.search("methods.py:fails has no score in .*RuntimeError: no explanation", outcome.page)
    assert re.search("methods.py:gives_nan has no score in .*NaN or infinity", outcome.page)
    assert outcome.value("Grad-CAM", "IDR") == first.value("Grad-CAM", "IDR")
    assert table[(table.method == "methods.py:inverted") & (table.metric == "IDR")].n.item() > 0


def test_another_file_of_methods_is_another_run(first):
    arguments = ("--no-tcav", "--models", "own/cache", "--out", "changed", "--methods", "changing.py:explains")
    Path("changing.py").write_text(Path("methods.py").read_text())
    assert call(*arguments).code == 0
    Path("changing.py").write_text(Path("methods.py").read_text() + "\nmore = 1\n")
    refused = call(*arguments)
    assert refused.code == 2
    assert re.search("holds another run .*changing.py:explains", refused.err)


def test_composed_images_are_read_again(capsys):
    compose = "compose --objects cutouts --scenes scenes --n-per-pair 8 --image-size 16 --test-share 0.25 --no-progress"
    assert main([*shlex.split(compose), "--out", "bam", "--lossless"]) == 0
    capsys.readouterr()
    assert main([*COMMAND, *TINY, *FEW, "--data", "bam", "--root", "bam", "--out", "of_bam"]) == 0
    table = pd.read_csv("of_bam/results.csv")
    assert set(table[table.metric == "IDR"].eval("n + undefined")) == {8}


def test_the_relative_contrast_sizes_and_tcav(monkeypatch):
    # Two draws of directions for each of twelve models and three layers, in place of twenty.
    score = global_method.tcav_score
    monkeypatch.setattr(global_method, "tcav_score", lambda *args, **kwargs: score(*args, n_random=2, **kwargs))
    outcome = call("--methods", "vanilla gradient", "--relative", "--robustness", "--out", "all")
    assert outcome.code == 0, outcome.err
    table = outcome.table
    curve = table[(table.metric == "relative MCS") & (table.method == "vanilla gradient")]
    assert curve.k.tolist() == [k / 10 for k in range(1, 10)]
    assert len(table[(table.method == "TCAV") & (table.metric == "relative MCS")]) == 9
    assert set(table[table.metric == "robustness"].variant) == {"smaller", "larger", "centre", "corner"}
    assert len(models_of("all")) == 13
    assert "f_s^0.1" in outcome.page
    premises = pd.read_csv("all/premises.csv")
    assert set(premises[premises.k.notna()].metric) == {"accuracy with", "accuracy without", "accuracy drop"}


def test_a_tcav_that_fails_loses_nothing_else(first, monkeypatch):
    monkeypatch.setattr(study, "score_tcav", raising(RuntimeError("no layer")))
    outcome = call("--methods", "grad-cam", "--models", "own/cache", "--out", "no_tcav")
    assert outcome.code == 0
    assert "TCAV failed and has no scores: RuntimeError: no layer" in outcome.page
    assert outcome.value("Grad-CAM", "IDR") == first.value("Grad-CAM", "IDR")


def test_a_network_of_the_users_own_with_a_layer_by_its_own_name():
    Path("network.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef model():\n    with torch.random.fork_rng():\n"
        "        torch.manual_seed(0)\n        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), "
        "nn.Conv2d(4, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 9))\n"
    )
    few = "--n-images 4 --n-patches 2 --patch-steps 1 --no-tcav --methods grad-cam --epochs 1"
    arguments = [*shlex.split(few), "--backbone", "network.py:model", "--unnormalised"]
    last = call(*arguments, "--out", "net_last")
    shallow = call(*arguments, "--models", "net_last/cache", "--out", "net_first", "--layer", "0")
    assert (last.code, shallow.code) == (0, 0)
    assert (len(models_of("net_last")), len(models_of("net_first"))) == (3, 0)
    mask = shallow.table.method == "Grad-CAM"
    assert not shallow.table[mask].equals(last.table[mask])
    again = call(*arguments, "--models", "net_last/cache", "--out", "net_again", "--layer", "network.0")
    assert again.table.equals(shallow.table)


def test_what_was_asked_for_reaches_the_methods():
    names = method_names("smoothgrad,Sobel Edges")
    methods = build_methods(names, n_samples=3, batch_size=7, layer="features", seed=5, device="cpu")
    assert list(methods) == ["SmoothGrad", "Sobel edges", "random"]
    assert methods["SmoothGrad"].batch_size == 7
    assert methods["SmoothGrad"].seed == 5
    assert method_names(None) == [*PAPER_METHODS, *CONTROL_METHODS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "--root scenes": "`--root` has no effect with `--data folders`",
        "--min-photographs 2": "`--min-photographs` has no effect",
        "--data coco-miniplaces": "Expected `--annotations` with `--data coco-miniplaces`",
        "--layer features": "`--layer` has no effect on the small network",
        "--image-size 20": "multiple of 8",
        "--methods grad-cam,,random": "`--methods` to be names with commas",
        "--methods grad-kam": "`--methods` names what cannot be used.*Grad-CAM",
        "--threshold 0": "`--threshold` to be above 0",
        "--common-object dog": r"`--common-object` to be one of \['leaf', 'stone'\]",
        "--models nowhere": "--models.*nowhere",
    }.items(),
)
def test_what_has_no_effect_or_would_be_wrong_is_refused(arguments, message):
    outcome = call(*shlex.split(arguments), "--out", "refused")
    assert (outcome.code, outcome.out) == (2, "")
    assert re.search(message, " ".join(outcome.err.split()))
    assert not Path("refused").exists()
