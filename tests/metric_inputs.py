"""A small concept model with images and their ground truth, and every metric bound to it."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import TensorDataset

from pooling_encoder import PoolingEncoder
from quantus_concepts.metrics import CEM, CGIM, CLM, IDR, IIR, MCS, Faithfulness, PASTAScore, SubstitutionScore
from quantus_concepts.pasta.scorer import Scorer
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel

N, SIZE = 6, 12
RNG = np.random.default_rng(0)
MODEL, OTHER = SharingConceptModel(), SharingConceptModel(seed=1)
IMAGES = RNG.random((N, 3, SIZE, SIZE), dtype=np.float32)
CLASSES = np.arange(N) % N_CLASSES
LABELS = RNG.integers(0, 2, (N, N_CONCEPTS))
TRUTH = RNG.random((N_CLASSES, N_CONCEPTS))
POINTS = RNG.uniform(0, SIZE, (N, 3, 2))
PARTS = np.array([0, 1, -1, 2, 0])
MASKS = np.zeros((N, 1, SIZE, SIZE))
MASKS[:, :, 2:7, 3:9] = 1
CHANGED = np.where(MASKS == 1, 0.5 * IMAGES, IMAGES)
SCORER = Scorer(PoolingEncoder.dim, ("Q1",), ("cat", "dog", "car"), hidden=(4, 4))
METRICS = {
    "CGIM": CGIM(TRUTH),
    "CEM": CEM(LABELS),
    "CLM": CLM(points=POINTS, part_of_concept=PARTS),
    "MCS": MCS(OTHER, CLASSES),
    "IDR": IDR(CHANGED),
    "IIR": IIR(CHANGED),
    "Faithfulness": Faithfulness(),
    "SubstitutionScore": SubstitutionScore(CLASSES),
    "PASTAScore": PASTAScore(SCORER, PoolingEncoder(), class_names=["cat", "dog", "car", "cat"]),
}
LOADER = [(torch.from_numpy(IMAGES), torch.from_numpy(CLASSES), torch.from_numpy(LABELS), torch.from_numpy(POINTS))]
LOADER_OF_UNIT_IMAGES = [(LOADER[0][0].sigmoid(), *LOADER[0][1:])]
SAMPLES = TensorDataset(*LOADER[0])
