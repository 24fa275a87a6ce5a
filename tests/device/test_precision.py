"""Models of half precision, and autocast, on the simulated device: the CPU's numbers to the bit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient, IntegratedGradients, Saliency
from torch import nn

from both_devices import assert_near, assert_same
from captum_concepts import CoAM, SteeredRISE, build_method, explain_func
from device_inputs import (
    BATCH,
    CHANGED,
    CLASS_CONCEPTS,
    CLASSES,
    CONCEPT_LABELS,
    IMAGES,
    PARTS,
    PICTURES,
    POINTS,
    REGION,
    SIZE,
    cbm,
    scorer,
    small_network,
)
from quantus_concepts import CEM, CGIM, CLM, IDR, IIR, MCS, Faithfulness, PASTAScore
from quantus_concepts.pasta import Embedder
from tiny_encoders import PoolingEncoder

N = BATCH
Precise = Callable[[nn.Module], nn.Module]

PRECISIONS: dict[str, tuple[Precise, torch.dtype | None]] = {
    "float16": (lambda model: model.half(), None),
    "bfloat16": (lambda model: model.bfloat16(), None),
    "autocast to float16": (lambda model: model, torch.float16),
    "autocast to bfloat16": (lambda model: model, torch.bfloat16),
}


def metrics(device: torch.device, precise: Precise) -> dict[str, Any]:
    model = precise(cbm(device))
    embedder = Embedder(PoolingEncoder(), size=SIZE)
    arguments: dict[str, Any] = {"s_batch": REGION[:N], "explain_func": explain_func(InputXGradient, channels="sum")}
    on_images = {
        "CGIM": CGIM(CLASS_CONCEPTS),
        "CEM": CEM(CONCEPT_LABELS[:N], top_l=2),
        "CLM": CLM(alpha=3, points=POINTS[:N], part_of_concept=PARTS, top_l=2),
        "MCS": MCS(precise(small_network().to(device)), CLASSES[:N]),
        "IDR": IDR(CHANGED[:N]),
        "IIR": IIR(CHANGED[:N], tolerance=10),
        "Faithfulness": Faithfulness("gaussian", thresholds=(30,)),
        "PASTA-score": PASTAScore(scorer(device), embedder, labels=CLASSES[:N] % 2, denormalise=torch.sigmoid),
    }
    return {name: metric(model, IMAGES[:N], CLASSES[:N], **arguments) for name, metric in on_images.items()}


def attributions(device: torch.device, precise: Precise) -> dict[str, Any]:
    model, concepts = precise(small_network().to(device)), precise(cbm(device))
    images = torch.from_numpy(PICTURES[:N]).to(next(model.parameters()))
    explained = {
        "Saliency": explain_func(Saliency),
        "IntegratedGradients": explain_func(IntegratedGradients, n_steps=2),
        "SmoothGrad": build_method("SmoothGrad", n_samples=2),
        "Grad-CAM": build_method("Grad-CAM"),
        "random": build_method("random"),
    }
    return {
        **{name: explain(model, IMAGES[:N], CLASSES[:N]) for name, explain in explained.items()},
        "CoAM": CoAM.of(concepts).attribute(images.to(next(concepts.parameters())), [0, 1, 2, 3]),
        "RISE": SteeredRISE(model).attribute(images, 0, lam=0, n_masks=4, cells=4),
        "values": concepts.concept_predictor(images).detach(),
    }


# On a GPU coarser numbers are rounded otherwise, and ranks by them differ.
@pytest.mark.parametrize("held", [assert_same, partial(assert_near, is_random=True)], ids=["simulated", "real"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("run", [metrics, attributions])
def test_numbers_are_those_of_the_cpu(
    run: Callable[..., dict[str, Any]], precision: str, held: Callable[..., None]
) -> None:
    precise, autocast = PRECISIONS[precision]

    def work(device: torch.device) -> Any:
        with nullcontext() if autocast is None else torch.autocast(device.type, dtype=autocast):
            result = run(device, precise)
        if run is metrics:
            assert all(np.isfinite(result[name]).any() for name in result)
        return result

    held(work)
