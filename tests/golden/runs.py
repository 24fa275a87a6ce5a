"""One small run of every command and of every metric, with fixed seeds: what is run, and which tables it leaves."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from filelock import FileLock
from PIL import Image
from torch import Tensor

from captum_concepts import tcav_score
from explanation_folders import write_folders as write_explanations
from fixtures_attribution import write_folders as write_sources
from fixtures_commands import COMMANDS
from fixtures_pasta import write_pasta_release
from golden.every_metric import evaluate_every_metric
from quantus_concepts.painted.subject import fit_random_models
from quantus_concepts.pasta.cache import EmbeddingCache
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.results import NUMBERS
from quantus_concepts.studies.app import EXIT_INTERRUPTED, main
from quantus_concepts.studies.attribution.methods import named_methods
from quantus_concepts.studies.pasta.material import RatedBirds
from quantus_concepts.studies.pasta.training import subset_correlations

#: In the runs that draw none.
NO_FIGURES: dict[str, Any] = {
    "matplotlib.figure.Figure.savefig": lambda *_, **__: None,
    "quantus_concepts.studies._kit.report.png": lambda _: b"",
    "quantus_concepts.studies._kit.report.svg": lambda _: b"<svg/>",
}


def few_random_models(*arguments: Any, **named: Any) -> Any:
    """Make four of the random banks."""
    *more, count, seed = arguments
    return fit_random_models(*more, min(count, 4), seed, **named)


def few_steps(*arguments: Any, **named: Any) -> Any:
    """Build methods of two steps and two samples."""
    return named_methods(*arguments, **named | {"n_samples": 2, "n_steps": 2})


#: Numbers that no option makes smaller.
FEWER = {
    "quantus_concepts.studies.concepts.seed.fit_random_models": few_random_models,
    "quantus_concepts.studies.substitution.models.fit_random_models": few_random_models,
    # Dots per inch.
    "quantus_concepts.studies._kit.plots.DPI": 30,
    "quantus_concepts.studies.attribution.global_method.tcav_score": partial(tcav_score, alpha=0.1, method="mean"),
    "quantus_concepts.studies.pasta.training.RatedBirds": partial(RatedBirds, n_train=200),
    "quantus_concepts.studies.pasta.training.named_methods": few_steps,
    "quantus_concepts.studies.pasta.training.subset_correlations": partial(subset_correlations, n_runs=10),
    "quantus_concepts.pasta.applications.correlations.N_DRAWN": 12,
}
RATED = ("0", "3", "6", "9", "12", "15", "39", "40", "41", "46")
QUIET = "--no-progress --device cpu"


@dataclass(frozen=True)
class Run:
    """Calls of the command line in a folder shared by all runs, each into the folder of its ``--out``."""

    commands: Sequence[str]
    #: File kept -> the columns that identify a row of it; with none named all but the numbers that a result has.
    tables: Mapping[str, Sequence[str]]
    #: Runs that come first.
    needs: Sequence[str] = ()
    #: What is written into the folder before, and made of what the commands wrote after.
    prepare: Callable[[], object] | None = None
    finish: Callable[[], object] | None = None
    #: File kept -> where it is found, if elsewhere than in the folder of the run's name.
    source: Mapping[str, str] = field(default_factory=dict)
    #: Whether figures are drawn, for tables about them or for tests of the page.
    figures: bool = False


def _sources() -> None:
    if Path("sources").exists():
        return
    write_sources(Path("sources"))
    rng = np.random.default_rng(0)
    for name, colour in zip("abcde", np.eye(5, 3) * 160 + np.eye(5, 3, -2) * 120 + np.eye(5, 3, -3) * 120, strict=True):
        Path("sources/colours", name).mkdir(parents=True)
        for number in range(8):
            pixels = colour + rng.integers(0, 60, (24, 24, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(f"sources/colours/{name}/{number}.png")


def _pets() -> None:
    if not Path("pets").exists():
        write_explanations(Path("pets"))


def _rated() -> None:
    write_pasta_release(Path("rated"), datasets=("coco", "catsdogscars"), n_images=6, explainers=RATED)


def _every_metric() -> None:
    Path("metrics").mkdir()
    evaluation = evaluate_every_metric()
    evaluation.summary.to_csv("metrics/summary.csv", index=False)
    scores = [
        (method, metric, number, score)
        for method, of in evaluation.results.items()
        for metric, values in of.items()
        for number, score in enumerate(values)
    ]
    pd.DataFrame(scores, columns=["method", "metric", "number", "score"]).to_csv("metrics/scores.csv", index=False)


RUNS = {
    "concepts": Run(
        [
            "benchmark concepts --painted n_train=60,n_test=18,n_classes=3,n_concepts=8 --image-size 32 --epochs 1 "
            f"--n-pos 10 --n-neg 10 --batch-size 16 --seeds 2 --precision float32 --explore {QUIET} --out concepts"
        ],
        {
            "results.csv": (
                "model",
                "what",
                "metric",
                "explanation",
                "baseline",
                "set",
                "l",
                "alpha",
                "item_kind",
                "item",
                "seed",
            )
        },
        figures=True,
    ),
    "attribution": Run(
        [
            "benchmark attribution --data folders --objects sources/cutouts --scenes sources/scenes --n-train 12 "
            "--n-test 4 --test-share 0.25 --image-size 24 --epochs 12 --batch-size 16 --train-batch-size 8 "
            "--n-images 8 --n-patches 4 --patch-steps 20 --n-samples 2 --n-steps 2 --robustness "
            f"{QUIET} --out attribution"
        ],
        {"results.csv": ("method", "metric", "k", "seed", "variant"), "premises.csv": ("model", "metric", "k")},
        prepare=_sources,
    ),
    "attribution-relative": Run(
        [
            "benchmark attribution --data folders --objects sources/cutouts --scenes sources/colours --n-train 4 "
            "--n-test 2 --test-share 0.25 --image-size 16 --epochs 10 --batch-size 16 --train-batch-size 8 --relative "
            "--n-relative 8 --methods grad-cam,Saliency --no-tcav --n-images 4 --n-patches 2 --patch-steps 2 "
            f"{QUIET} --out attribution-relative"
        ],
        {"results.csv": ("method", "metric", "k", "seed", "variant")},
        prepare=_sources,
    ),
    "substitution": Run(
        [
            "benchmark substitution --painted n_train=60,n_test=24,n_classes=5,n_concepts=12 --image-size 32 "
            f"--epochs 1 --batch-size 16 --correlations 0,1 {QUIET} --out substitution"
        ],
        {"results.csv": ("model", "labels", "what", "correlation", "metric", "item_kind", "item", "seed")},
    ),
    "pasta": Run(
        [
            "benchmark pasta --n-images 20 --n-per-image 12 --image-size 32 --seeds 2 --epochs 2 --n-explained 4 "
            f"--n-masks 8 --classifier-epochs 1 {QUIET} --out pasta"
        ],
        {
            "results.csv": ("model", "question", "measure", "modality", "raters", "seed"),
            "metrics.csv": ("table", "model", "metric", "explainer", "question", "measure"),
            "votes.csv": ("explainer", "measure"),
            "faithfulness.csv": ("name",),
            "steering.csv": ("measure", "name"),
            "wins.csv": ("explainer",),
        },
        figures=True,
    ),
    "pasta-train": Run(
        [
            "pasta train --data rated --question Q1,Q5 --encoder embedded --seeds 2 --epochs 4 --learning-rate 0.001 "
            f"{QUIET} --out pasta-train"
        ],
        {
            "results.csv": ("model", "question", "measure", "modality", "raters", "seed"),
            "votes.csv": ("explainer", "measure"),
        },
        prepare=_rated,
        figures=True,
    ),
    "pasta-score": Run(
        [
            "pasta score --images rated/result_dataset/imgs --explanations rated/result_dataset/expl "
            f"--scorer pasta-train/scorer.safetensors --labels-from image-name {QUIET} --out pasta-score",
            "pasta score --images pets/images --explanations pets/explanations "
            f"--scorer pasta-train/scorer.safetensors {QUIET} --out pasta-score-maps",
        ],
        {"scores.csv": ("explainer", "explanation"), "maps.csv": ("explainer", "explanation")},
        needs=("pasta-train",),
        prepare=_pets,
        source={"maps.csv": "pasta-score-maps/scores.csv"},
    ),
    "pasta-sheet": Run(
        [
            "pasta sheet --images pets/images --explanations pets/explanations --picture-size 40 --no-progress "
            "--out pasta-sheet"
        ],
        {"files.csv": ("file",)},
        prepare=_pets,
        finish=lambda: write_digests(Path("pasta-sheet")),
        figures=True,
    ),
    "pasta-ablate": Run(
        [f"pasta ablate --epochs 2 --n-images 12 --seeds 2 {QUIET} --out pasta-ablate"],
        {
            "results.csv": ("ablation", "variant", "model", "question", "modality", "measure"),
            "splits.csv": ("ablation", "variant", "model", "question", "modality", "measure", "seed"),
        },
        figures=True,
    ),
    "compose": Run(
        ["compose --n-per-pair 2 --test-share 0.5 --image-size 32 --lossless --no-progress --out compose"],
        {"files.csv": ("file",)},
        finish=lambda: write_digests(Path("compose")),
    ),
    "metrics": Run(
        [], {"summary.csv": ("method", "metric"), "scores.csv": ("method", "metric", "number")}, finish=_every_metric
    ),
}
#: A study that is not above is run as its options' `quick` says, and its results.csv is compared.
RUNS |= {
    words.rpartition(" ")[2]: Run(
        [f"{words} {small} --out {words.rpartition(' ')[2]}"], {"results.csv": ()}, figures=True
    )
    for words, small in COMMANDS.items()
    # Other commands write no results, or need files.
    if words.startswith("benchmark ")
    if not any(command.startswith(f"{words} ") for run in RUNS.values() for command in run.commands)
}


def keys_of(name: str, file: str, frame: pd.DataFrame) -> list[str]:
    """Return the columns that identify a row of a file of a run."""
    return list(RUNS[name].tables[file]) or [column for column in frame if column not in NUMBERS or column == "seed"]


def tables_of(name: str, folder: Path, done: set[str]) -> dict[str, pd.DataFrame]:
    """Do a run in a folder, and those it needs that are not done, and return its tables, every cell as text."""
    with chdir(folder):
        do(name, done)
    return tables_in(name, folder)


def tables_in(name: str, folder: Path) -> dict[str, pd.DataFrame]:
    """Read the tables of a run that was done in a folder, every cell as text."""
    run = RUNS[name]
    return {file: read_table(folder / run.source.get(file, f"{name}/{file}")) for file in run.tables}


def done_once(name: str, folder: Path) -> Path:
    """Do a run unless any process has done it in this folder, and return where its command wrote.

    Each command is interrupted when it has kept two things, and goes on; the global generators stay as they are.
    """
    for run_name in (*RUNS[name].needs, name):
        marker = folder / f"{run_name}.done"
        with FileLock(folder / f"{run_name}.lock"):
            if marker.exists():
                continue
            states = torch.get_rng_state(), np.random.get_state()[1].tobytes()  # noqa: NPY002
            with chdir(folder), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                do(run_name, set(RUNS[run_name].needs), interrupt=2)
            assert torch.equal(states[0], torch.get_rng_state())
            assert states[1] == np.random.get_state()[1].tobytes()  # noqa: NPY002
            marker.touch()
    return folder / name


def read_table(path: Path) -> pd.DataFrame:
    """Read a table, every cell as the text that stands there."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def do(name: str, done: set[str], interrupt: int = 0) -> None:
    """Do a run in the working directory, after those it needs."""
    if name in done:
        return
    run = RUNS[name]
    for needed in run.needs:
        do(needed, done, interrupt)
    if run.prepare is not None:
        # Several runs, of several processes, need the same.
        with FileLock("prepare.lock"):
            run.prepare()
    for command in run.commands:
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed), smaller(figures=run.figures):
            with interrupted(interrupt):
                code = main(shlex.split(command))
            if code == EXIT_INTERRUPTED:
                code = main(shlex.split(command))
        if code != 0:
            raise RuntimeError(f"{command} ended with {code}:\n{printed.getvalue()}")
    if run.finish is not None:
        run.finish()
    done.add(name)


@contextmanager
def interrupted(count: int) -> Iterator[None]:
    """Interrupt what runs when it has kept so many things; 0 for never."""
    put, counter = EmbeddingCache.put, itertools.count(1)

    def putting(self: EmbeddingCache, embeddings: Mapping[str, Tensor]) -> None:
        for key, embedding in embeddings.items():
            put(self, {key: embedding})
            if next(counter) == count:
                raise KeyboardInterrupt

    cached = RunFolder.cached

    def caching(self: RunFolder, name: str, key: Any, make: Callable[[], Any]) -> Any:
        made = []

        def making() -> Any:
            made.append(name)
            return make()

        content = cached(self, name, key, making)
        if made and next(counter) == count:
            raise KeyboardInterrupt
        return content

    with mock.patch.object(EmbeddingCache, "put", putting), mock.patch.object(RunFolder, "cached", caching):
        yield


@contextmanager
def smaller(*, figures: bool) -> Iterator[None]:
    """Leave out what takes most of the time of a small run, and of which its tables have nothing."""
    with ExitStack() as stack:
        for name, value in (FEWER | ({} if figures else NO_FIGURES)).items():
            stack.enter_context(mock.patch(name, value))
        yield


def write_digests(folder: Path) -> None:
    """Write what files hold, without what depends on how they are packed: pixels, arrays, JSON, text."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        own = {"run.json", ".lock", "cache", "settings.json"} & {*path.relative_to(folder).parts}
        if path.is_file() and not own:
            digests[path.relative_to(folder).as_posix()] = hashlib.sha256(_content(path)).hexdigest()[:16]
    frame = pd.DataFrame(sorted(digests.items()), columns=["file", "digest"])
    frame.to_csv(folder / "files.csv", index=False)


def _content(path: Path) -> bytes:
    if path.suffix == ".png":
        pixels = np.asarray(Image.open(path))
        return f"{pixels.shape} {pixels.dtype} ".encode() + pixels.tobytes()
    if path.suffix == ".npy":
        array = np.load(path)
        return f"{array.shape} {array.dtype} ".encode() + array.tobytes()
    if path.suffix == ".html":
        # The page itself may change; what it asks about may not.
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.S)
        content = json.loads(data)
        content = {key: content[key] for key in ("questions", "items", "seed")} | {"n": len(content["pictures"])}
        return json.dumps(content, sort_keys=True).encode()
    if path.suffix == ".json":
        return json.dumps(json.loads(path.read_text("utf-8")), sort_keys=True).encode()
    return path.read_bytes()
