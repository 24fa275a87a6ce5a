"""Every metric in one `quantus_concepts.evaluate`."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from captum.attr import InputXGradient

from captum_concepts import RandomAttribution, explain_func
from quantus_concepts import CEM, CGIM, CLM, IDR, IIR, MCS, Evaluation, Faithfulness, PASTAScore, Patch, evaluate
from quantus_concepts.pasta.scorer import Scorer
from tiny_encoders import PoolingEncoder
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N, SIZE = 12, 12


def evaluate_every_metric() -> Evaluation:
    """Score three methods on twelve images of noise with a model of a few weights."""
    rng = np.random.default_rng(7)
    model, contrast = SharingConceptModel(), TinyConceptModel(seed=1)
    images = rng.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
    labels = rng.integers(0, 2, (N, N_CONCEPTS))
    class_concepts = rng.uniform(size=(N_CLASSES, N_CONCEPTS))
    points = rng.uniform(0, SIZE, (N, 3, 2))
    points[0] = np.nan
    parts = np.array([0, 1, -1, 2, 0])
    masks = np.zeros((N, 1, SIZE, SIZE))
    masks[:, :, 3:9, 3:9] = 1
    changed = np.where(masks == 1, 0.8 * images, images).astype(np.float32)
    with torch.no_grad():
        predicted, contrasted = (network(torch.as_tensor(images)).argmax(1).numpy() for network in (model, contrast))
    scorer = Scorer(PoolingEncoder.dim, ("Q1", "Q5"), None, (8,), seed=1)
    metrics = {
        **{f"CGIM {kind}": CGIM(class_concepts, importance=kind) for kind in ("contribution", "weight")},
        "CEM": CEM(labels, top_l=2),
        "CLM points": CLM(alpha=3, points=points, part_of_concept=parts, top_l=2),
        "CLM masks": CLM(alpha=3, masks=masks),
        "MCS": MCS(contrast, contrasted),
        "IDR": IDR(changed),
        "IIR": IIR(changed, tolerance=10),
        "IIR with a patch": IIR(patch=Patch(images[0], pixel_range=(-6, 6), steps=2, tolerance=10)),
        "Faithfulness Gaussian": Faithfulness("gaussian", thresholds=(10, 30)),
        "Faithfulness ROAD": Faithfulness("road", thresholds=(10, 20)),
        "PASTA-score": PASTAScore(scorer, PoolingEncoder(), question="Q5", denormalise=torch.sigmoid),
    }
    methods = {
        "gradient": {"method": "Gradient"},
        "input x gradient": explain_func(InputXGradient),
        "random": explain_func(RandomAttribution),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluate(metrics, methods, model, images, predicted, s_batch=masks, control="random")
