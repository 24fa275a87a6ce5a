"""The gallery and the explorer of one seed of the concept study."""

from __future__ import annotations

import itertools
import json
from typing import Any, cast

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from captum_concepts.models.random_banks import RandomBank
from captum_concepts.support.running import to_model
from quantus_concepts.explorer.explore import page_content, page_html
from quantus_concepts.functional import rank_concepts
from quantus_concepts.metrics.host.predictions import predict_batch
from quantus_concepts.painted.images import batch_labels, collate
from quantus_concepts.studies.concepts.figures import concept_gallery
from quantus_concepts.studies.concepts.models import SeedModels
from quantus_concepts.studies.concepts.scores import head_classes

#: Images of the gallery: classified correctly and wrongly, and concepts of each; images of the explorer.
N_RIGHT, N_WRONG, N_SHOWN, N_EXPLORED = 5, 2, 4, 100
#: The page on which concepts are corrected.
EXPLORER = "explore.html"


class SeedPictures:
    """The pictures of one seed."""

    def __init__(self, run: SeedModels) -> None:
        self.run = run

    def gallery(self) -> Figure:
        """Draw some images with the concepts of the largest effects on the predicted class."""
        shown = self.run.cached("gallery", self._shown)
        return concept_gallery(shown, self.run.data.class_names, self.run.data.concept_names)

    def explorer(self) -> str:
        """Return the page that shows test images of all classes and on which their concepts can be corrected."""
        # A browser would execute a page from the cache: only what it is made from is kept.
        content = bytes(self.run.cached("explorer", self._explorer)["content"].tolist())
        return page_html("Concepts of the test images", json.loads(content))

    def _shown(self) -> dict[str, Tensor]:
        """Return some images, correctly classified ones first, and the maps of the concepts of the largest effects."""
        data, model = self.run.data, self.run.models.post_hoc
        labels = data.test.labels.numpy()
        right = labels == head_classes(model.head, model.concept_layer(self.run.test_features))
        rows = _different_classes(labels, np.flatnonzero(right), N_RIGHT, self.run.seed)
        rows += _different_classes(labels, np.flatnonzero(~right), N_WRONG + N_RIGHT - len(rows), self.run.seed)
        batch = collate([data.test[index] for index in rows])
        outputs = predict_batch(model, batch.image, None, {})
        weight, effects = outputs.importance("weight"), outputs.importance("effect")
        ranked = rank_concepts(effects, min(N_SHOWN, len(data.concept_names)))
        with torch.no_grad():
            features = model.features(to_model(model, batch.image))
            maps = model.maps_from_features(features, ranked)
            # The class's evidence is the weighted sum of the concepts', in the scale the values have.
            scale = model.bank.norms if model.values == "margin" else torch.ones_like(model.bank.norms)
            class_maps = torch.einsum("nl,nlhw->nhw", weight / scale, model.maps_from_features(features))
        return {
            "images": self._pictures(batch.image),
            "maps": maps,
            "class_maps": class_maps,
            "concepts": ranked,
            "present": batch.concepts.gather(1, ranked.cpu()) > 0.5,
            "absent": cast(Tensor, outputs.values).gather(1, ranked) < 0,
            "effects": effects.gather(1, ranked),
            "labels": batch_labels(batch),
            "predicted": outputs.classes,
        }

    def _explorer(self) -> dict[str, Tensor]:
        data, fitted = self.run.data, self.run.models
        rows = np.linspace(0, len(data.test) - 1, min(N_EXPLORED, len(data.test))).astype(int)
        batch = collate([data.test[int(row)] for row in rows])
        model = fitted.post_hoc.with_head(fitted.post_hoc.head)
        heads: list[Any] = [control.head for control in fitted.controls]
        model.random_banks = tuple(
            RandomBank(control.bank.cavs, control.bank.intercepts, head, control.absent_values)
            for control, head in zip(fitted.controls, heads, strict=True)
        )
        content = page_content(
            model,
            batch.image,
            labels=batch_labels(batch),
            concept_labels=batch.concepts > 0.5,
            points=batch.points if batch.points.numel() else None,
            part_of_concept=data.part_of_concept,
            class_names=data.class_names,
            pictures=self._pictures(batch.image),
        )
        return {"content": torch.tensor(list(json.dumps(content).encode()), dtype=torch.uint8)}

    def _pictures(self, images: Tensor) -> Tensor:
        """Return images without the normalisation, which may leave a float image a hair outside [0, 1]."""
        if self.run.data.mean is None or self.run.data.std is None:
            return images
        mean, std = (torch.tensor(numbers).view(1, -1, 1, 1) for numbers in (self.run.data.mean, self.run.data.std))
        return (images * std + mean).clamp(0, 1)


def _different_classes(labels: np.ndarray, images: np.ndarray, count: int, seed: int) -> list[int]:
    order = np.random.default_rng(seed).permutation(images)
    by_class: dict[int, list[int]] = {}
    for index in order.tolist():
        by_class.setdefault(int(labels[index]), []).append(index)
    # First one image of each class, then the second ones, and so on.
    turns = itertools.zip_longest(*by_class.values())
    return [index for turn in turns for index in turn if index is not None][:count]
