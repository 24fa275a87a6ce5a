"""An interrupted embedding of photographs goes on behind the parts that are finished, and parts change no number."""

from __future__ import annotations

import shlex
from pathlib import Path

from fixtures_commands import write_own_images
from golden.runs import smaller
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts import seed

NETWORK = """
import torch
from torch import nn

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
"""
RUN = (
    "benchmark concepts --data folder --root fruit --concepts concepts.csv --backbone seeded.py:model --min-images 1 "
    "--batch-size 2 --no-sweep --no-interventions --no-progress --device cpu --out"
)


def run(out: str) -> int:
    with smaller(figures=False):
        return main(shlex.split(f"{RUN} {out}"))


def test_what_is_embedded_is_not_embedded_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_own_images(tmp_path)
    Path("seeded.py").write_text(NETWORK)
    assert run("whole") == 0

    monkeypatch.setattr(seed, "EMBEDDED", 3)
    sizes = []

    def third_is_killed(backbone, loader, done=seed.embed, **settings):
        sizes.append(len(loader.dataset))
        if len(sizes) == 3:
            raise KeyboardInterrupt
        return done(backbone, loader, **settings)

    monkeypatch.setattr(seed, "embed", third_is_killed)
    assert run("out") == 130
    # Whole batches of two.
    assert sizes == [4, 4, 4]
    assert run("out") == 0
    # Of 16 images the first eight are not embedded again.
    assert sizes == [4, 4, 4, 4, 4]
    assert Path("out/results.csv").read_bytes() == Path("whole/results.csv").read_bytes()
