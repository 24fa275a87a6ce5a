"""How many operators metrics start on the model's device in addition to the model's, and how often they wait for it.

On a GPU each operator is a launch of some microseconds, however small its tensors. The counts do not depend on time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import Saliency
from torch import nn

import quantus_concepts
from captum_concepts import ConceptBank, PostHocCBM, explain_func
from quantus_concepts import CEM, CGIM, CLM, IDR, IIR, MCS, Faithfulness, PASTAScore, score_concepts
from quantus_concepts.pasta import Embedder, Scorer
from simulated_device import simulated_device
from tiny_encoders import tiny_open_clip

N, SIZE, N_CONCEPTS, N_CLASSES, N_PARTS = 8, 24, 20, 4, 6
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.random((N, 3, SIZE, SIZE)).astype("f4")
CLASSES = RANDOM.integers(0, N_CLASSES, N)
CLASS_CONCEPTS, LABELS = RANDOM.random((N_CLASSES, N_CONCEPTS)), RANDOM.integers(0, 2, (N, N_CONCEPTS))
POINTS, PARTS = RANDOM.uniform(0, SIZE - 1, (N, N_PARTS, 2)), np.arange(N_CONCEPTS) % N_PARTS
MAPS = RANDOM.random((N, 1, SIZE, SIZE)).astype("f4")
MASKS = np.zeros((N, 1, SIZE, SIZE), bool)
MASKS[:, :, 5:12, 5:12] = True
EXPLAIN = explain_func(Saliency)


def concept_model() -> PostHocCBM:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
    bank = ConceptBank(torch.randn(N_CONCEPTS, 8))
    cbm = PostHocCBM(backbone, bank, nn.Linear(N_CONCEPTS, N_CLASSES), values="raw").eval()
    cbm.absent_values = torch.zeros(N_CONCEPTS)
    return cbm


def metrics() -> dict[str, Any]:
    return {
        "CGIM": CGIM(CLASS_CONCEPTS),
        "CEM": CEM(LABELS, top_l=3),
        "CLM": CLM(alpha=3, points=POINTS, part_of_concept=PARTS, top_l=3),
    }


def counts(run: Callable[[Any], Any]) -> tuple[int, int]:
    """Return how many operators a call starts on the device of the model, and how often it waits for it."""
    with simulated_device() as simulation:
        model = concept_model().to(simulation.device)
        # What is made once, constants on the device for instance, is made here.
        run(model)
        simulation.operators.clear()
        simulation.crossed.clear()
        run(model)
        kinds = simulation.kinds()
        return sum(simulation.operators.values()), kinds["to_host"] + kinds["item"] + kinds["nonzero"]


def forward(model: Any) -> Any:
    return model(torch.as_tensor(IMAGES).to(next(model.parameters()).device))


def evaluation(n_methods: int) -> Callable[[Any], Any]:
    methods = {f"map {number}": MAPS for number in range(n_methods)}
    return lambda model: quantus_concepts.evaluate(
        metrics=metrics(), xai_methods=methods, model=model, x_batch=IMAGES, y_batch=CLASSES
    )


@pytest.mark.parametrize("name", ["CGIM", "CEM", "CLM"])
def test_one_metric(name: str) -> None:
    model, _ = counts(forward)
    launches, waits = counts(lambda cbm: metrics()[name](cbm, IMAGES, CLASSES, a_batch=MAPS))
    assert launches <= model + 50
    assert waits <= 1


def test_an_evaluation_of_three_metrics() -> None:
    model, _ = counts(forward)
    launches, waits = counts(evaluation(1))
    launches_of_more, waits_of_more = counts(evaluation(4))
    assert launches <= model + 120
    # The scores depend on no explanation, and are computed once for all methods.
    assert launches_of_more == launches
    assert waits == waits_of_more <= 3


def test_a_batch_of_the_stream() -> None:
    arrays = [torch.as_tensor(array) for array in (IMAGES, CLASSES, LABELS, POINTS)]
    settings: dict[str, Any] = {"truth": {"part_of_concept": PARTS}, "class_concepts": CLASS_CONCEPTS}

    def run(n_batches: int) -> tuple[int, int]:
        return counts(lambda model: score_concepts(model, [tuple(arrays)] * n_batches, **settings))

    model, _ = counts(forward)
    (few, few_waits), (many, many_waits) = run(1), run(3)
    assert (many - few) / 2 <= model + 110
    assert (many_waits - few_waits) / 2 <= 1


@pytest.mark.parametrize(
    "metric",
    [
        lambda model: MCS(model, CLASSES),
        lambda model: IDR(counterpart=IMAGES * 0.8),
        lambda model: IIR(patched=IMAGES * 0.9),
    ],
    ids=["MCS", "IDR", "IIR"],
)
def test_metrics_that_explain_again(metric: Callable[[Any], Any]) -> None:
    model, _ = counts(forward)
    explanation, explanation_waits = counts(lambda cbm: EXPLAIN(cbm, IMAGES, CLASSES))
    launches, waits = counts(lambda cbm: metric(cbm)(cbm, IMAGES, CLASSES, s_batch=MASKS, explain_func=EXPLAIN))
    # Both images, or models, have to be explained and to be classified. Not in one pass of both: it would take twice
    # the memory of the model's own, and models exported for a fixed batch have none.
    assert launches <= 2 * explanation + 2 * model + 10
    # An explanation is an array of the host.
    assert waits <= 2 * explanation_waits + 1


def test_faithfulness() -> None:
    model, _ = counts(forward)
    launches, waits = counts(lambda cbm: Faithfulness(thresholds=(10,))(cbm, IMAGES, CLASSES, a_batch=MAPS))
    # Once as they are, and with 1, 3, 5, 7 and 9 % of their pixels perturbed, the most and the least relevant ones.
    # A batch of perturbed images has up to three images or orders of pixels, with three operators for each.
    passes = 1 + 2 * 5
    assert launches <= passes * model + (passes - 1) * 3 * 3 + 30
    assert waits <= 1


def test_pasta_score() -> None:
    labels, images, maps = ["cat", "dog"], torch.as_tensor(IMAGES), torch.as_tensor(MAPS[:, 0])

    def on(device: torch.device) -> tuple[Embedder, Scorer]:
        encoder = tiny_open_clip(device=device)
        return Embedder(encoder, size=SIZE), Scorer(encoder.dim, ("Q1", "Q2"), labels, (8,)).to(device)

    def needed(cbm: Any) -> None:
        embedder, scorer = on(next(cbm.parameters()).device)
        levels = embedder.presentation.levels(images.to(scorer.device), maps.to(scorer.device), "min-max")
        scorer.score(embedder.encoder.encode_images(levels), CLASSES % 2)

    def scored(cbm: Any) -> None:
        embedder, scorer = on(next(cbm.parameters()).device)
        PASTAScore(scorer, embedder, labels=CLASSES % 2)(cbm, IMAGES, CLASSES, a_batch=MAPS)

    # A picture has to be drawn of each map, encoded, and scored.
    (floor, _), (launches, waits) = counts(needed), counts(scored)
    assert launches <= floor + 5
    assert waits <= 1
