"""Every command with the smallest arguments that are good, and a folder of what they name."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import explanation_folders
import fixtures_attribution
from kills import in_time
from quantus_concepts.studies.app import EXIT_BAD_INPUT, main
from quantus_concepts.studies.substitute.filtering import DECISION_COLUMNS, MANIFEST
from quantus_concepts.studies.substitute.pairs import PAIR, choose_pairs

NETWORK = """
import sys
import torch
from torch import nn

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
text = "no network"


def model(channels=3, last=nn.Linear(8, 2)):
    with torch.random.fork_rng():
        return nn.Sequential(nn.Conv2d(channels, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def grey():
    return model(channels=1)


def without_classifier():
    return model(last=nn.Identity())


def several():
    return [model()]


def needs(name):
    return model()


def fails():
    raise RuntimeError("no such\\ncheckpoint")


def leaves():
    sys.exit(3)
"""
BIRDS, ATTRIBUTES = ["Blue_Jay", "Cardinal"], ["has_crown_color--black", "has_bill_shape--needle"]
_MADE = "--generated made"
#: Good arguments of every command, for a run that is as small as can be, in a place that is written here.
COMMANDS = {
    "benchmark concepts": "--painted n_train=60,n_test=18,n_classes=3,n_concepts=8 --image-size 32 --epochs 1 "
    "--seeds 1 --no-sweep --no-progress --device cpu",
    "benchmark attribution": f"{fixtures_attribution.QUICK} --no-progress --device cpu",
    "benchmark substitution": "--painted n_train=30,n_test=15,n_classes=3,n_concepts=8 --image-size 32 --epochs 1 "
    "--correlations none --no-progress --device cpu",
    "benchmark pasta": "--n-per-image 12 --image-size 32 --no-uses --n-images 20 --seeds 1 --epochs 1 --no-progress "
    "--device cpu",
    "explain": "--n-train 40 --no-progress --device cpu",
    "compose": "--n-per-pair 2 --image-size 32 --no-progress",
    "substitute generate": "--out out --model empty --birds Blue_Jay --n-per-pair 1 --no-progress --device cpu",
    "substitute filter": f"--model empty {_MADE} --no-progress --device cpu",
}


def write_own_images(root: Path, names: Sequence[str] = ("apple", "pear"), counts: tuple[int, int] = (8, 4)) -> Path:
    """Write red and green images of two classes, a point on a white square in each, their concepts and a network."""
    rng = np.random.default_rng(0)
    points = ["image,part,x,y"]
    for split, count in zip(("train", "test"), counts, strict=True):
        for channel, name in enumerate(names):
            folder = root / "fruit" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 60, (24, 24, 3), dtype=np.uint8)
                pixels[..., channel] += 150
                x, y = rng.integers(3, 21, 2)
                pixels[y - 2 : y + 3, x - 2 : x + 3] = 255
                Image.fromarray(pixels).save(folder / f"{number}.png")
                points.append(f"{split}/{name}/{number}.png,stalk,{x},{y}")
    (root / "parts.csv").write_text("\n".join(points) + "\n")
    (root / "concepts.csv").write_text(f"class,red,green,stalk::short\n{names[0]},1,0,1\n{names[1]},0,1,0\n")
    (root / "network.py").write_text(NETWORK)
    return root


def write_generated(root: Path, n_per_pair: int = 3) -> Path:
    """Write a folder as `substitute generate` does, of plain colours."""
    for place, pair in enumerate(choose_pairs(BIRDS, ATTRIBUTES)):
        folder = root / pair.name
        folder.mkdir(parents=True)
        (folder / PAIR).write_text(json.dumps(dataclasses.asdict(pair)))
        for number in range(n_per_pair):
            Image.new("RGB", (20, 16), (40 * place, 30 * number, 200)).save(folder / f"{number:05d}.png")
    return root


def write_filtered(folder: Path, generated: Path, chosen: set[str]) -> Path:
    """Write a folder as `substitute filter` does, whose manifest keeps these images or pairs."""
    lines = [",".join(DECISION_COLUMNS)]
    for pair in choose_pairs(BIRDS, ATTRIBUTES):
        for file in sorted((generated / pair.name).glob("0*.png")):
            image = f"{pair.name}/{file.name}"
            stays = bool(chosen & {pair.name, image})
            lines.append(f"{pair.name},{pair.bird},{pair.attribute},{image},x,0.5,{stays},1,{stays},kept")
    folder.mkdir()
    (folder / MANIFEST).write_text("\n".join(lines) + "\n")
    return folder


def write_place(root: Path) -> Path:
    """Write a folder with one of everything that an option can name."""
    explanation_folders.write_folders(root)
    write_generated(root / "made")
    write_filtered(root / "filtered", root / "made", {"Blue_Jay--has_bill_shape--needle"})
    write_own_images(root, counts=(2, 2))
    (root / "file.txt").write_text("no data")
    (root / "empty").mkdir()
    return root


def files_below(folder: Path) -> set[tuple[str, int]]:
    """Return what lies below a folder: names and, but for folders, sizes."""
    return {(str(path), 0 if path.is_dir() else path.lstat().st_size) for path in folder.rglob("*")}


def check_command(arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[Any]) -> None:
    """Assert that a command ends with the code of bad input and one line of this pattern, and writes nothing."""
    before = files_below(Path())
    with in_time():
        code = main(arguments)
    captured = capsys.readouterr()
    assert code == EXIT_BAD_INPUT, (arguments, captured)
    lines = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, captured.err
    assert re.search(message, lines[0]), lines[0]
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert files_below(Path()) == before
