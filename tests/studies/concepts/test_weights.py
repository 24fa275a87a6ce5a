"""A file of code that makes other weights than before: the same command with the same --out uses no old result."""

from __future__ import annotations

import shlex
from pathlib import Path

import pandas as pd

from fixtures_commands import write_own_images
from golden.runs import smaller
from quantus_concepts.studies.app import main

# The number in a file stands for a checkpoint that a factory reads.
MODELS = """
from pathlib import Path
import torch
from torch import nn
from captum_concepts import BottleneckCBM

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def network(name="network"):
    with torch.random.fork_rng():
        torch.manual_seed(int(Path(name).read_text()))
        filters, layers = nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU()), (nn.Linear(6, 3), nn.Linear(3, 2))
    if name == "joint":
        return BottleneckCBM(filters, *layers).eval()
    return nn.Sequential(*filters, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *layers)


def joint():
    return network("joint")
"""
RUN = (
    "benchmark concepts --data folder --root fruit --concepts concepts.csv --min-images 1 --no-sweep "
    "--no-interventions --no-progress --device cpu --backbone models.py:network --model models.py:joint --out"
)


def results(out: str) -> pd.DataFrame:
    with smaller(figures=False):
        assert main(shlex.split(f"{RUN} {out}")) == 0
    return pd.read_csv(f"{out}/results.csv", keep_default_na=False)


def test_other_weights_are_scored_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_own_images(tmp_path)
    Path("models.py").write_text(MODELS)
    for name in ("network", "joint"):
        Path(name).write_text("0")
    before = results("out")
    own = before["model"].str.endswith("joint() of models.py")
    for changed in ("network", "joint"):
        Path(changed).write_text("1")
        after = results("out")
        is_same = {name: before[rows].equals(after[rows]) for name, rows in (("joint", own), ("network", ~own))}
        assert is_same == {name: name != changed for name in is_same}
        before = after
