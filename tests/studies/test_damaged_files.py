"""Whatever lies where a command expects a file: told in one line that names it, in time, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from damaged import DAMAGES as ALL
from damaged import in_room
from explanation_folders import write_folders
from fixtures_attribution import write_folders as write_sources
from fixtures_commands import check_command
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import save_scorer

RECORD = {"img": "images/a_1_cat.png", "explication": "expl/a_1_lime_cat.png", "Annotation": [{"Q1": 3}]}
SHOWN = "--images images --explanations explanations --no-progress --out result"
CONCEPTS = "benchmark concepts --data folder --root pictures --min-images 1 --no-progress --device cpu --out result"
ATTRIBUTION = "benchmark attribution --data folders --objects cutouts --scenes scenes --no-progress --out result"
#: The command that reads a file.
COMMANDS = {
    "ratings.json": "pasta join ratings.json --data . --out result",
    "scorer.safetensors": f"pasta score --scorer scorer.safetensors {SHOWN}",
    "PASTA_Q1.pth": f"pasta score --scorer PASTA_Q1.pth {SHOWN}",
    "labels.csv": f"pasta sheet {SHOWN} --labels-from labels.csv",
    "concepts.csv": f"{CONCEPTS} --backbone small --concepts concepts.csv",
    "weights.pth": f"{CONCEPTS} --concepts good.csv --backbone network.py:network --unnormalised --weights weights.pth",
    "cutouts/leaf/0.png": ATTRIBUTION,
}
#: What a pipe or a device would make wait for ever, random bytes, and what ends early.
DAMAGES = {name: ALL[name] for name in ("pipe", "device", "random", "cut off")}
#: Of this the head is read before any computing, and all of it when it is its turn.
LATE = {("cutouts/leaf/0.png", "cut off")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Libraries that a command loads when it runs take longer than a refusal on a busy machine.
    for name in ("attribution.study", "concepts.study", "pasta.score", "pasta.sheet", "pasta.training"):
        import_module(f"quantus_concepts.studies.{name}")
    root = tmp_path_factory.mktemp("damaged")
    write_folders(root, explainers=("lime",))
    write_sources(root, n=2)
    (root / "ratings.json").write_text(json.dumps([RECORD]))
    save_scorer(Scorer(4), root / "scorer.safetensors")
    torch.save({"net.0.weight": torch.ones(2, 2)}, root / "PASTA_Q1.pth")
    (root / "labels.csv").write_text("image,label\npets_000_cat,cat\n")
    for name in ("concepts.csv", "good.csv"):
        (root / name).write_text("class,fur,wings\nbird,0,1\ncat,1,0\n")
    for name in ("bird", "cat"):
        (root / "pictures" / name).mkdir(parents=True)
        for number in range(4):
            pixels = np.random.default_rng(number).integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "pictures" / name / f"{number}.png")
    torch.save(torch.nn.Linear(2, 2).state_dict(), root / "weights.pth")
    (root / "network.py").write_text("from torch import nn\ndef network():\n    return nn.Conv2d(3, 4, 3)\n")
    return root


@pytest.fixture
def damaged(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: str) -> Iterator[None]:
    """A file in the working directory is replaced by something else."""
    monkeypatch.chdir(folder)
    path = folder / name
    good = path.rename(folder / f"{path.name}.good")
    DAMAGES[damage](path, good.read_bytes())
    yield
    path.unlink()
    good.rename(path)


@pytest.mark.usefixtures("damaged")
@pytest.mark.parametrize(("name", "damage"), [pair for pair in product(COMMANDS, DAMAGES) if pair not in LATE])
def test_a_command_names_the_damaged_file(name: str, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with in_room(1 << 30):
        check_command(COMMANDS[name].split(), Path(name).name, capsys)
