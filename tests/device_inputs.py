"""Images, truth and models for runs on two devices."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from captum_concepts import ConceptBank, PostHocCBM
from quantus_concepts.pasta.scorer import Scorer
from tiny_encoders import PoolingEncoder
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

BATCH, SIZE = 4, 12
#: Images of a run, and of the longer one: what one batch more takes is the difference, divided by the batches more.
FEW, MANY = BATCH, 2 * BATCH

_rng = np.random.default_rng(7)
IMAGES = _rng.normal(size=(MANY, 3, SIZE, SIZE)).astype(np.float32)
PICTURES = _rng.random((MANY, 3, SIZE, SIZE)).astype(np.float32)
LARGE = _rng.random((MANY, 3, 32, 32)).astype(np.float32)
MAPS = _rng.random((MANY, SIZE, SIZE)).astype(np.float32)
CONCEPT_LABELS = np.arange(MANY)[:, None] // (1 + np.arange(N_CONCEPTS) % 2) % 2
CLASS_CONCEPTS = _rng.uniform(size=(N_CLASSES, N_CONCEPTS))
CLASSES = np.arange(MANY) % N_CLASSES
POINTS = _rng.uniform(0, SIZE, (MANY, 3, 2))
POINTS[0] = np.nan
PARTS = np.array([0, 1, -1, 2, 0])
REGION = np.zeros((MANY, 1, SIZE, SIZE), dtype=int)
REGION[:, :, 3:9, 3:9] = 1
QUARTERS = np.add.outer(np.arange(SIZE) * 2 // SIZE * 2, np.arange(SIZE) * 2 // SIZE)[None, None]
CHANGED = np.where(REGION == 1, 0.8 * IMAGES, IMAGES).astype(np.float32)
LABELS = ["cat", "dog"]


def concept_model(device: torch.device, seed: int = 0) -> SharingConceptModel:
    return SharingConceptModel(seed).to(device)


def cbm(device: torch.device) -> PostHocCBM:
    model = TinyConceptModel()
    bank = ConceptBank(model.concept_predictor.cavs)
    cbm = PostHocCBM(model.features, bank, model.head).eval()
    cbm.absent_values = torch.zeros(len(bank))
    return cbm.to(device)


def predicted(seed: int, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return TinyConceptModel(seed)(torch.from_numpy(images)).argmax(1).numpy()


def scorer(device: torch.device, dim: int = PoolingEncoder.dim) -> Scorer:
    return Scorer(dim, ("Q1", "Q5"), LABELS, (8,), seed=1).to(device)


def small_network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        parts = (nn.Conv2d(3, 6, 3, stride=3), nn.ReLU(), nn.Conv2d(6, 6, 1), nn.ReLU())
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, N_CLASSES)).eval()
