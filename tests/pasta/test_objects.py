"""What the objects of `quantus_concepts.pasta` say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from one_line import all_say_what_they_are
from quantus_concepts import pasta
from quantus_concepts.pasta import Embedder, Scorer
from tiny_encoders import tiny_open_clip

IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_objects_say_what_they_are() -> None:
    scorer, embedder = Scorer(4, ("Q1", "Q5"), ["cat", "dog"], (3, 2)), Embedder("embedded", size=16)
    wide: Any = np.arange(300.0)
    examples = {
        "ConceptExplanation": pasta.ConceptExplanation({f"concept {j}": 1 / 3 for j in range(99)}),
        "DrawingExplanation": pasta.DrawingExplanation(IMAGES[0]),
        "EmbeddedEncoder": pasta.EmbeddedEncoder(),
        "Embedder": embedder,
        "EmbeddingCache": pasta.EmbeddingCache(Path("folder")),
        "MapExplanation": pasta.MapExplanation(IMAGES[0], IMAGES[0, 0]),
        "Mixture": pasta.best_explainer({"a": [1.0, 2.0], "b": [2.0, 1.0]}),
        "Encoder": pasta.Encoder(Parts()),
        "OpenClipEncoder": tiny_open_clip(),
        "Perturbation": pasta.PERTURBATIONS["brightness"],
        "RatingCorrelation": pasta.RatingCorrelation("m", "Q1", *[1 / 3] * 4, 3, 0),
        "Regressor": pasta.Regressor("ridge", scorer, []),
        "RobustnessPairs": pasta.RobustnessPairs("Q1", *[wide] * 6, ("a",) * 50, wide, wide, 0, 0),
        "Scorer": scorer,
        "Training": pasta.Training(scorer, [{"loss": 1 / 3}] * 50, {"Q1": 3}),
        "TrainingSettings": pasta.TrainingSettings(),
    }
    all_say_what_they_are(pasta, examples)
    assert repr(embedder) == f"Embedder({embedder.name!r}, size=16)"


class Parts:
    """A model of a user's."""

    def encode_image(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)

    encode_text = preprocess = tokenizer = encode_image
