"""The options, and the whole command on tiny data: what it writes, says and repeats."""

from __future__ import annotations

import io
import re
import shlex
import signal
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from captum_concepts.attributions.methods import CONTROL_METHODS, PAPER_METHODS
from fixtures_attribution import FOLDERS, TINY, write_folders
from golden.runs import NO_FIGURES
from kills import contents, raising
from quantus_concepts.metrics import Limits
from quantus_concepts.studies._kit import charts as figures
from quantus_concepts.studies._kit import page as pages
from quantus_concepts.studies._kit import run as floor
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies.app import main
from quantus_concepts.studies.attribution import evaluation, global_method, report, study
from quantus_concepts.studies.attribution.evaluation import requested_methods
from quantus_concepts.studies.attribution.options import AttributionOptions

COMMAND = ["benchmark", "attribution"]
INTERRUPT = raising(KeyboardInterrupt())
METRICS = {"MCS", "MCS baseline", "IDR", "IIR", "perturbation", "relative MCS", "correlation", "robustness"}
FEW = ["--methods", "grad-cam,vanilla gradient", "--no-tcav"]
PAINTED = shlex.split(
    "--n-train 3 --n-test 1 --epochs 1 --n-images 12 --n-patches 4 --patch-steps 5 --n-samples 2 --n-steps 3 "
    "--no-tcav --no-progress --device cpu --image-size 32"
)


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


@pytest.fixture(autouse=True, scope="module")
def root(tmp_path_factory):
    """A folder with cut-outs, scenes and methods, in which the command runs; drawing is coarse."""
    place = write_folders(tmp_path_factory.mktemp("work"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("COLUMNS", "100")
        # Drawing takes most of the time of a tiny run.
        patch.setattr(figures, "DPI", 30)
        patch.setattr(evaluation.shown_rows, "__defaults__", (1,))
        yield place


@pytest.fixture(scope="module")
def undrawn():
    """Figures are named and empty; the run on painted data draws them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in NO_FIGURES.items():
            patch.setattr(name, value)
        yield


def call(root: Path, *arguments: str) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*COMMAND, *arguments])
    lines = out.getvalue().splitlines()
    return Outcome(code, out.getvalue(), err.getvalue(), root / lines[-1] if lines else root)


@pytest.fixture
def command(root, monkeypatch):
    """The command without its figures, which others look at."""
    monkeypatch.setattr(report, "draw", lambda *_: {})
    return lambda *arguments: call(root, *arguments)


@pytest.fixture(scope="module")
def painted(root):
    return call(root, *PAINTED, "--out", "painted")


@pytest.fixture(scope="module")
def folders_run(root, undrawn):
    return call(root, *TINY, *FOLDERS, *FEW, "--out", "own")


def test_painted_data_from_drawing_to_report(painted):
    assert painted.code == 0, painted.err
    assert painted.out.splitlines()[-1] == "painted"
    table = painted.table
    assert list(dict.fromkeys(table.method)) == [*PAPER_METHODS, *CONTROL_METHODS]
    assert set(table.metric) == METRICS - {"relative MCS", "correlation", "robustness"}
    assert set(table.seed) == {0}
    assert set(table[table.metric.isin(["MCS", "IDR"])].eval("n + undefined")) == {12}
    assert set(table[table.metric == "IIR"].eval("n + undefined")) == {4}
    assert set(table[table.metric == "IDR"].reference) == {0.5}
    files = {path.relative_to(painted.folder).as_posix() for path in painted.folder.rglob("*") if path.is_file()}
    assert {
        "report.html",
        "results.csv",
        "figures/sheet_mcs.png",
        "figures/sheet_idr.png",
        "figures/sheet_iir.png",
    } <= files
    models = sorted(name for name in files if name.endswith(".safetensors"))
    assert [Path(name).name.split("-")[0] for name in models] == ["f_0", "f_o", "f_s"]
    assert not [name for name in files if "checkpoint" in name]
    assert [name for name in files if Path(name).name.startswith(".")] == [".quantus-concepts.json"]


def test_an_unverified_ground_truth_is_marked_everywhere(painted):
    # One pass over three images of each pair teaches nothing.
    assert "ground truth not verified" in painted.out
    assert "Ground truth: not verified (f_o, f_s)" in painted.out
    assert "Not verified: f_o" in painted.out
    page = re.sub("<[^>]+>", "", painted.page)
    assert "Ground truth not verified (fo, fs)" in page
    assert "it has not learned what it should look at" in page


def test_the_terminal_and_the_report_say_what_was_done(painted):
    for method in PAPER_METHODS:
        assert method in painted.out
    page = painted.page
    assert "painted objects on painted scenes" in page
    assert "12 for MCS and IDR, 4 for IIR" in page
    assert "of 4 converged in 5 steps" in page
    assert "n samples" in page
    assert "Traceback" not in painted.err


def test_cut_outs_and_scenes_of_the_users_own(folders_run):
    assert folders_run.code == 0
    assert folders_run.out.splitlines()[-1] == "own"
    table = folders_run.table
    assert list(dict.fromkeys(table.method)) == ["Grad-CAM", "vanilla gradient", *CONTROL_METHODS]
    assert "cut-outs of cutouts on scenes" in folders_run.page
    assert all(name in folders_run.page for name in ("leaf", "stone", "beach", "forest"))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(folders_run, command):
    def numbers(out: str, seed: str) -> bytes:
        assert command(*TINY, *FOLDERS, *FEW, "--out", out, "--seed", seed).code == 0
        return Path(out, "results.csv").read_bytes()

    first = (folders_run.folder / "results.csv").read_bytes()
    assert numbers("again", "0") == first
    assert numbers("other", "1") != first


def test_trained_models_are_not_trained_again_and_a_run_is_replaced_only_when_asked(folders_run, command, monkeypatch):
    before = (folders_run.folder / "results.csv").read_bytes()
    models = contents(folders_run.folder / "models")

    monkeypatch.setattr(torch.optim.AdamW, "step", raising(AssertionError("trained again")))
    arguments = (*TINY, *FOLDERS, *FEW)
    assert command(*arguments, "--models", "own/models", "--out", "second").code == 0
    assert Path("second/results.csv").read_bytes() == before
    assert not Path("second/models").exists()
    refused = command(*arguments, "--out", "own")
    assert refused.code == 2
    assert "--overwrite" in refused.err
    Path("own/report.html").write_text("old")
    # The models of --out are found too.
    assert command(*arguments, "--out", "own", "--overwrite").code == 0
    assert folders_run.page != "old"
    assert Path("own/results.csv").read_bytes() == before
    assert contents(folders_run.folder / "models") == models


def test_methods_of_the_users_own_beside_those_that_fail(folders_run, command):
    methods = (
        "Grad-CAM,GRAD-CAM,methods.py:inverted,methods.py:explains,methods.py:fails,methods.py:gives_nan,Deconvolution"
    )
    arguments = (*TINY, *FOLDERS, "--no-tcav", "--models", "own/models", "--out", "mine")
    outcome = command(*arguments, "--methods", methods)
    assert outcome.code == 0
    table = outcome.table
    mine = [f"methods.py:{name}" for name in ("inverted", "explains", "fails", "gives_nan")]
    assert list(dict.fromkeys(table.method)) == ["Grad-CAM", *mine, "Deconvolution", *CONTROL_METHODS]
    for name in ("methods.py:fails", "methods.py:gives_nan"):
        assert table[table.method == name].value.isna().all()
        assert (table[table.method == name].n == 0).all()
    assert "Note: methods.py:fails failed and has no scores: RuntimeError: no explanation" in outcome.err
    assert re.search(
        r"Note: methods.py:gives_nan gave NaN or infinity in (\d+) of \1 maps", " ".join(outcome.err.split())
    )
    assert outcome.value("Grad-CAM", "IDR") == folders_run.value("Grad-CAM", "IDR")
    # Without abs=False the gradient loses its sign, which is another method.
    assert table[(table.method == "methods.py:inverted") & (table.metric == "IDR")].n.item() > 0


def test_composed_images_are_read_again(command, capsys):
    compose = "compose --objects cutouts --scenes scenes --n-per-pair 8 --image-size 16 --test-share 0.25 --no-progress"
    assert main([*shlex.split(compose), "--out", "bam", "--lossless"]) == 0
    assert capsys.readouterr().out == "bam\n"
    tiny = [*TINY, *FEW, "--data", "bam", "--root", "bam"]
    outcome = command(*tiny, "--out", "of_bam")
    assert outcome.code == 0
    assert "composed images of bam" in outcome.page
    assert set(outcome.table[outcome.table.metric == "IDR"].eval("n + undefined")) == {8}
    assert list(dict.fromkeys(outcome.table.method)) == ["Grad-CAM", "vanilla gradient", *CONTROL_METHODS]


@pytest.fixture(scope="module")
def everything(root, undrawn):
    arguments = shlex.split("--relative --robustness --models trained --out all")
    with pytest.MonkeyPatch.context() as patch:
        # Two draws of directions for each of twelve models and three layers, in place of twenty.
        patch.setattr(global_method, "tcav_score", partial(global_method.tcav_score, n_random=2))
        return call(root, *TINY, *FOLDERS, "--methods", "vanilla gradient", *arguments)


def test_the_relative_contrast_and_tcav(everything):
    assert everything.code == 0
    table = everything.table
    assert set(table.metric) == METRICS
    curve = table[(table.metric == "relative MCS") & (table.method == "vanilla gradient")]
    assert curve.k.tolist() == [k / 10 for k in range(1, 10)]
    assert "TCAV" in set(table.method)
    assert len(table[(table.method == "TCAV") & (table.metric == "relative MCS")]) == 9
    assert len(list(Path("trained").glob("f_s*.safetensors"))) == 11
    assert Path("all/figures/sheet_relative.png").exists()
    assert "TCAV of f_s^0.1" in everything.page
    premises = pd.read_csv("all/premises.csv")
    assert set(premises[premises.k.notna()].metric) == {"accuracy with", "accuracy without", "accuracy drop"}


def test_a_tcav_that_fails_loses_nothing_else(folders_run, command, monkeypatch):
    monkeypatch.setattr(study, "score_tcav", raising(RuntimeError("no layer")))
    outcome = command(*TINY, *FOLDERS, "--methods", "grad-cam", "--models", "own/models", "--out", "no_tcav")
    assert outcome.code == 0
    assert "TCAV failed and has no scores: RuntimeError: no layer" in outcome.err
    assert outcome.value("Grad-CAM", "IDR") == folders_run.value("Grad-CAM", "IDR")


def test_a_network_of_the_users_own_with_a_layer_by_its_own_name(command):
    Path("network.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef model():\n    with torch.random.fork_rng():\n"
        "        torch.manual_seed(0)\n        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), "
        "nn.Conv2d(4, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 9))\n"
    )
    arguments = (
        *TINY,
        *FOLDERS,
        *shlex.split("--n-images 4 --n-patches 2 --patch-steps 1 --no-tcav --methods grad-cam"),
        "--backbone",
        "network.py:model",
        "--unnormalised",
        "--epochs",
        "1",
    )
    last = command(*arguments, "--models", "nets", "--out", "net_last")
    first = command(*arguments, "--models", "nets", "--out", "net_first", "--layer", "0")
    assert (last.code, first.code) == (0, 0)
    assert len(list(Path("nets").glob("*.safetensors"))) == 3
    mask = first.table.method == "Grad-CAM"
    assert not first.table[mask].equals(last.table[mask])
    again = command(*arguments, "--models", "nets", "--out", "net_again", "--layer", "network.0")
    assert again.table.equals(first.table)


def ctrl_c() -> None:
    """Interrupt the main thread as a terminal does, and give it the time to notice; models train in another."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(0.3)


@pytest.fixture
def interruptible():
    """Hear Ctrl-C even where the tests were started in the background, which inherits that it is ignored."""
    if not hasattr(signal, "pthread_kill"):
        pytest.skip("needs a signal to a thread")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupting_a_training_leaves_whole_files_and_the_next_run_goes_on(folders_run, command, monkeypatch):
    done = []
    step = torch.optim.AdamW.step

    def counted(self, *args, **kwargs):
        done.append(1)
        # Of three models with two steps each, in the middle of the second one.
        if len(done) == 3:
            ctrl_c()
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    arguments = (*TINY, *FOLDERS, *FEW, "--models", "interrupted")
    stopped = command(*arguments, "--out", "stopped")
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err.splitlines() == [
        "What was trained is kept: go on with the same --models interrupted.",
        "Interrupted; nothing half-written was left.",
    ]
    assert not Path("stopped").exists()
    remaining = [path.name for path in Path("interrupted").iterdir()]
    # One model is finished, the second one half, and the third one not begun.
    assert sorted(path.partition(".")[2] for path in remaining) == 2 * ["checkpoint.safetensors"] + ["safetensors"]
    resumed = command(*arguments, "--out", "resumed")
    assert resumed.code == 0
    assert len(done) == 6
    assert Path("resumed/results.csv").read_bytes() == (folders_run.folder / "results.csv").read_bytes()
    assert not list(Path("interrupted").glob("*.checkpoint.safetensors"))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_run_goes_on_with_the_same_out(folders_run, command, monkeypatch):
    arguments = (*TINY, *FOLDERS, *FEW, "--out", "same")
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "optimise_patch", INTERRUPT)
        stopped = command(*arguments)
    assert stopped.code == 130
    assert "go on with the same options and --out same" in stopped.err
    assert len(list(Path("same/.quantus-concepts/kept").glob("*.safetensors"))) == 3

    again = raising(AssertionError("made again"))
    monkeypatch.setattr(torch.optim.AdamW, "step", again)
    with monkeypatch.context() as patch:
        patch.setattr(study, "tidy", INTERRUPT)
        assert command(*arguments).code == 130
    monkeypatch.setattr(evaluation, "optimise_patch", again)
    monkeypatch.setattr(evaluation, "attribute_regions", again)
    assert command(*arguments).code == 0
    assert sorted(path.stem[:4] for path in Path("same/models").iterdir()) == ["f_0-", "f_o-", "f_s-"]
    assert Path("same/results.csv").read_bytes() == (folders_run.folder / "results.csv").read_bytes()
    # It is finished now.
    assert command(*arguments).code == 2


MOMENTS = {
    "load_data": study,
    "optimise_patch": evaluation,
    "attribute_regions": evaluation,
    "render": pages,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_interrupting_at_any_moment_leaves_no_half_written_file(moment, folders_run, command, monkeypatch):
    monkeypatch.setattr(MOMENTS[moment], moment, INTERRUPT)
    stopped = command(*TINY, *FOLDERS, *FEW, "--models", "own/models", "--out", f"stopped_{moment}")
    assert stopped.code == 130
    # Nothing is printed before the folder is complete.
    assert not stopped.out
    # From the patches on there is something to go on from.
    out = Path(f"stopped_{moment}")
    remaining = [".quantus-concepts"] if moment in ("attribute_regions", "render") else []
    assert [path.name for path in out.glob("*")] == remaining


def test_what_was_asked_for_reaches_the_methods():
    options = AttributionOptions(
        methods="smoothgrad,Sobel Edges", n_samples=3, batch_size=7, layer="features", seed=5, device="cpu"
    )
    methods = requested_methods(options)
    assert list(methods) == ["SmoothGrad", "Sobel edges", "random"]
    assert methods["SmoothGrad"].batch_size == 7
    assert methods["SmoothGrad"].seed == 5
    assert list(requested_methods(AttributionOptions(device="cpu"))) == [*PAPER_METHODS, *CONTROL_METHODS]


def test_images_explained_at_once_do_not_change_what_is_trained(root, tmp_path):
    def trained(batch_size: int, train_batch_size: int) -> set[str]:
        options = AttributionOptions(
            models=tmp_path,
            n_train=1,
            n_test=1,
            image_size=32,
            epochs=1,
            batch_size=batch_size,
            train_batch_size=train_batch_size,
            device="cpu",
            progress=False,
        )
        study.trained_models(floor.Run(options, OutputFolder()), study.load_data(options))
        return {path.name for path in tmp_path.glob("*.safetensors")}

    first = trained(64, 50)
    assert len(first) == 3
    # the same models are found again
    assert trained(7, 50) == first
    assert len(trained(64, 25)) == 6


def test_options_by_default_and_as_given():
    options = AttributionOptions()
    assert options.method_names is None
    assert options.limits == Limits()
    assert options.torch_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    options = AttributionOptions(
        methods=" grad-cam , a/b.py:mine", max_drop=0.1, min_remain=0.8, max_above_chance=0.2, device="cpu"
    )
    assert options.method_names == ["grad-cam", "a/b.py:mine"]
    assert options.limits == Limits(drop=0.1, remain=0.8, above_chance=0.2)
    assert options.torch_device() == torch.device("cpu")


def test_patches_of_the_small_network_take_other_steps():
    assert AttributionOptions().patch_settings == {"step_size": 5000, "eta1": 0.001}
    assert AttributionOptions(backbone="resnet18").patch_settings == {"step_size": 500, "eta1": 0.01}
    assert AttributionOptions(step_size=3.0, eta1=0.0).patch_settings == {"step_size": 3, "eta1": 0}


def test_a_folder_of_models_need_not_be_there_yet(tmp_path):
    folder = tmp_path / "new" / "models"
    assert AttributionOptions(models=folder).models == folder
    assert not folder.parent.exists()
