"""Subjects explained by ranges, held against one pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from quantus_concepts.metrics import Subject, attribute_regions
from quantus_concepts.studies._kit.command import DeviceOptions
from quantus_concepts.studies._kit.engine import WorkerOptions
from quantus_concepts.studies.attribution.explaining import explained_by_ranges

N = 11


@dataclass(frozen=True, kw_only=True)
class Options(WorkerOptions, DeviceOptions):
    """What scoring by ranges asks of options."""


def gradient(model: Any, inputs: Any, targets: Any, **_: Any) -> np.ndarray:
    """Explain by what depends on the whole batch."""
    images = torch.as_tensor(inputs).requires_grad_()
    model(images).gather(1, torch.as_tensor(targets)[:, None]).tanh().sum().backward()
    return (images.grad * inputs.mean()).numpy()  # type: ignore[operator]


def failing(model: Any, inputs: Any, targets: Any, **_: Any) -> np.ndarray:
    """Explain whole batches only."""
    if len(inputs) < 3:
        raise ArithmeticError("too few")
    return np.abs(inputs)


METHODS = {"gradient": gradient, "failing": failing}


def check_regions(folder: Path, engine: str, workers: int | None) -> None:
    """Hold what ranges give against `attribute_regions`, to the bit."""
    random = torch.Generator().manual_seed(3)
    images = torch.rand(N, 3, 6, 6, generator=random)
    masks, elsewhere = (torch.rand(N, 1, 6, 6, generator=random).round() for _ in range(2))
    models = [nn.Sequential(nn.Flatten(), nn.Linear(108, 4)) for _ in range(2)]
    first, second = (Subject(model, images, torch.arange(N) % 4) for model in models)
    asked: dict[str, Any] = {"elsewhere": {second: elsewhere}, "keep": {first: [7, 2], second: []}}
    options = Options(engine=engine, workers=workers, batch_size=3)
    run: Any = SimpleNamespace(options=options, folder=SimpleNamespace(kept=folder), progress=False)
    found = explained_by_ranges(run, "regions", METHODS, [first, second, first], masks, **asked)
    expected = attribute_regions(METHODS, [first, second], masks, **asked, batch_size=3)
    assert found["failing"].failure == expected["failing"].failure == "ArithmeticError: too few"
    for name, one in expected.items():
        other = found[name]
        assert [*other.inside] == [*one.inside]
        for kind in ("inside", "elsewhere"):
            theirs, ours = getattr(one, kind), getattr(other, kind)
            assert theirs.keys() == ours.keys()
            for subject, values in theirs.items():
                torch.testing.assert_close(ours[subject], values, rtol=0, atol=0, equal_nan=True)
        assert one.maps.keys() == other.maps.keys()
        assert all(np.array_equal(other.maps[subject], maps) for subject, maps in one.maps.items())
    assert expected["gradient"].maps[first].any()
