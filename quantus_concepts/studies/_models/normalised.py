"""Whether a network takes images as they are normalised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.support.running import evaluation_mode, tensor_output, to_model
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.painted.images import batch_labels, collate
from quantus_concepts.studies._models.named_networks import IMAGENET

USUAL = {
    "no normalisation": ((0.0,) * 3, (1.0,) * 3),
    "ImageNet's mean and deviation": IMAGENET,
    "CIFAR-10's mean and deviation": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
#: Images that are classified, and the rise of the accuracy that is worth a note.
N_IMAGES, N_BATCHES = 256, 4
GAIN = 0.1


@torch.no_grad()
def better_normalised(
    module: nn.Module,
    data: ConceptDataset,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> list[str]:
    """Return a note where the accuracy of the network's own classifier is much higher normalised otherwise."""
    current = (tuple(mean), tuple(std)) if mean is not None and std is not None else USUAL["no normalisation"]
    tried = {"as given": current, **USUAL}
    places = np.linspace(0, len(data) - 1, min(N_IMAGES, len(data))).round()
    right, n_images = dict.fromkeys(tried, 0), 0
    with evaluation_mode(module):
        # Spread over the classes, which follow one another in most folders.
        for rows in np.array_split(places, min(N_BATCHES, len(places))):
            batch = collate([data[int(row)] for row in rows])
            images, label = to_model(module, batch.image), batch_labels(batch)
            pixels = images * _shaped(current[1], images) + _shaped(current[0], images)
            for name, (shift, scale) in tried.items():
                logits = tensor_output(module((pixels - _shaped(shift, images)) / _shaped(scale, images)))
                if logits.shape != (len(images), len(data.class_names)):
                    return []
                right[name] += int((logits.argmax(1).cpu() == label).sum())
            n_images += len(images)
    best = max(right, key=lambda name: right[name])
    if not n_images or right[best] - right["as given"] < GAIN * n_images:
        return []
    return [
        f"The network's own classifier is right on {right['as given'] / n_images:.0%} of {n_images} test images as "
        f"they are given to it, and on {right[best] / n_images:.0%} with {best}: the normalisation given may be wrong "
        "(--mean, --std, --unnormalised)."
    ]


def _shaped(numbers: Sequence[float], images: Tensor) -> Tensor:
    return torch.tensor(numbers, dtype=images.dtype, device=images.device).view(-1, 1, 1)
