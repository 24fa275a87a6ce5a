"""TRANSITION: names that studies import from here until all are merged."""

from quantus_concepts.painted.networks import SmallResNet, fold_images, with_seed
from quantus_concepts.painted.training import (
    LEARNING_RATE,
    WEIGHT_DECAY,
    Augmentation,
    KeptSamples,
    Samples,
    fit,
    load_trained,
    one_thread,
    processor_has_bfloat16,
    quiet_fits,
    run_together,
    train,
    train_together,
)
from quantus_concepts.studies._models.networks import FineResNet

__all__ = [
    "LEARNING_RATE",
    "WEIGHT_DECAY",
    "Augmentation",
    "FineResNet",
    "KeptSamples",
    "Samples",
    "SmallResNet",
    "fit",
    "fold_images",
    "load_trained",
    "one_thread",
    "processor_has_bfloat16",
    "quiet_fits",
    "run_together",
    "train",
    "train_together",
    "with_seed",
]
