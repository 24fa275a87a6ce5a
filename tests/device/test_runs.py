"""Everything on another device: on the simulated one the CPU's numbers to the bit, and few crossings for each batch."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from both_devices import Arrays, assert_equal, assert_near, on_cpu, simulated
from device_inputs import BATCH, FEW, MANY
from device_runs import RUNS

#: Of what sees a batch more than once: how many models there are, versions of its images, and steps of a descent.
VIEWS = {
    "MCS": 2,
    "IDR": 2,
    "IIR": 2,
    "IIR with patches": 6,
    "Faithfulness": 2,
    "Faithfulness by ROAD": 2,
    "score_concepts": 2,
    "score_substitutions": 2,
    "score_contrasts": 5,
    "score_relative": 4,
    "check_premise": 3,
    "metric_values": 10,
    "optimise_patch": 3,
}

#: Whose own loop asks for numbers: Captum's, and conjugate gradients, every sixteen steps, whether they are there.
ASKING = ("KernelShap", "Faithfulness by ROAD", "metric_values")

#: Captum draws their noise on the device, whose numbers at random are its own.
DRAWN = ("GradientShap", "NoiseTunnel", "SmoothGrad", "IG + SmoothGrad")


@functools.cache
def there(name: str, n: int) -> tuple[Arrays, Counter[tuple[str, str]]]:
    return simulated(lambda device: RUNS[name](device, n))


@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_of_the_cpu_to_the_bit(name: str) -> None:
    found, crossed = there(name, MANY)
    assert any(kind == "to_device" for kind, _ in crossed)
    assert_equal(found, on_cpu(lambda device: RUNS[name](device, MANY)))


@pytest.mark.parametrize("name", RUNS)
def test_a_gpu_gives_the_same_but_for_rounding(name: str) -> None:
    assert_near(lambda device: RUNS[name](device, MANY), drawn=name in DRAWN)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in ASKING])
def test_few_crossings_for_each_batch(name: str) -> None:
    # What one batch more takes; what is done once is in both.
    more = there(name, MANY)[1].copy()
    more.subtract(there(name, FEW)[1])
    batches = (MANY - FEW) // BATCH
    for kind, most in (("to_host", 2 * VIEWS.get(name, 1)), ("item", 0), ("nonzero", 0)):
        where = {place: count / batches for (each, place), count in more.items() if each == kind and count}
        assert sum(where.values()) <= most, f"{kind}: {where}"
