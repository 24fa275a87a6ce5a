"""The birds of each seed."""

from __future__ import annotations

import torch

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.studies._models import loading
from quantus_concepts.studies._models.loading import KeptImages
from quantus_concepts.studies.concepts.data_option import load_data
from quantus_concepts.studies.concepts.options import ConceptOptions


def test_each_seed_paints_other_birds_of_the_same_classes(monkeypatch):
    monkeypatch.setattr(loading, "PAINTED_AT_ONCE", 12)
    options = ConceptOptions(n_train=27, n_test=10, n_classes=5, image_size=32, seeds=2, min_images=1)
    _, together = load_data(options, None)
    # Other birds of the same classes, with a truth of their own.
    whole = KeptImages(PaintedBirds(57, image_size=32, n_classes=5), range(30, 57))
    own = PaintedBirds(27, image_size=32, n_classes=5, first=30)
    assert torch.equal(together.train.images, whole.images)
    assert torch.equal(together.train.labels, whole.labels)
    assert torch.equal(together.class_concepts, own.class_concepts)
