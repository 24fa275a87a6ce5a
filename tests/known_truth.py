"""Objects on scenes small enough to see through: models that use one or the other, explainers that know or do not."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from quantus_concepts import IDR, IIR, MCS

SIZE = 12
OBJECT, SCENE, SEEN = range(3)


class Reader(nn.Module):
    """Class 1 where the mean of a channel is above 0.5; `uses` says of which pixels.

    The first two channels show the classes of object and scene, the third is 1 where an object is seen.
    """

    def __init__(self, uses: str) -> None:
        super().__init__()
        self.uses = uses
        self.scale = nn.Parameter(torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        has_object = x[:, SEEN] > 0.5
        weights = {
            "object": has_object,
            "scene": ~has_object,
            "everything": torch.ones_like(has_object),
        }[self.uses]
        channel = x[:, OBJECT if self.uses == "object" else SCENE]
        mean = (channel * weights).sum((1, 2)) / weights.sum((1, 2)).clamp(min=1)
        return self.scale * torch.stack([1 - mean, mean], 1)


class World:
    """The same scenes with and without an object, with labels and masks."""

    def __init__(self, n: int = 8, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.object_labels, self.scene_labels = rng.integers(0, 2, (2, n))
        self.masks = np.zeros((n, 1, SIZE, SIZE), dtype=bool)
        for mask in self.masks:
            row, column = rng.integers(0, 7, 2)
            mask[0, row : row + 4, column : column + 5] = True
        noise = rng.uniform(-0.2, 0.2, (n, 2, SIZE, SIZE))
        self.scenes = np.zeros((n, 3, SIZE, SIZE), dtype=np.float32)
        self.scenes[:, SCENE] = noise[:, 1] + np.where(self.scene_labels, 0.75, 0.25)[:, None, None]
        self.images = self.scenes.copy()
        inside = self.masks[:, 0]
        self.images[:, OBJECT][inside] = (noise[:, 0] + np.where(self.object_labels, 0.75, 0.25)[:, None, None])[inside]
        self.images[:, SEEN][inside] = 1
        # Whoever reads scenes everywhere does not see this patch, which people do.
        self.patched = self.images.copy()
        self.object_model, self.scene_model, self.blind = Reader("object"), Reader("scene"), Reader("everything")


def object_mask(inputs: Any) -> np.ndarray:
    """Where an object is seen, (n, 1, H, W)."""
    return np.asarray(inputs)[:, SEEN:][:, :1] > 0.5


def knows(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    """Highlight what the model uses."""
    if model.uses == "everything":
        return np.ones((len(inputs), 1, SIZE, SIZE))
    return np.where(object_mask(inputs) == (model.uses == "object"), 1.0, 0.0)


def always(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    """Highlight the object."""
    return np.where(object_mask(inputs), 1.0, 0.2)


def never(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    """Highlight everything else."""
    return np.where(object_mask(inputs), 0.0, 0.2)


def constant(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    return np.full((len(inputs), 1, SIZE, SIZE), 0.3)


def looked_up(images: np.ndarray, maps: np.ndarray) -> Any:
    """Return an explainer that gives each of the images its map."""

    def explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
        return maps[[np.flatnonzero((images == x).all((1, 2, 3)))[0] for x in inputs]]

    return explain


def zero(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    return np.zeros((len(inputs), 1, SIZE, SIZE))


def random(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    """Noise, the same for the same model and image."""
    model_bytes = (
        b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters()) + model.uses.encode()
    )
    maps = []
    for image in np.asarray(inputs, dtype=np.float32):
        digest = hashlib.sha256(model_bytes + image.tobytes()).digest()
        maps.append(np.random.default_rng(np.frombuffer(digest, dtype=np.uint32)).normal(size=(1, SIZE, SIZE)))
    return np.array(maps)


def gradient(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    """Gradient with respect to each channel."""
    x = torch.as_tensor(np.ascontiguousarray(inputs)).requires_grad_()
    with torch.enable_grad():
        chosen = model(x).gather(1, torch.as_tensor(np.asarray(targets))[:, None]).sum()
        (gradients,) = torch.autograd.grad(chosen, x)
    return gradients.numpy()


def metric_and_call(
    name: str, world: World, explain: Any = knows, call: dict[str, Any] | None = None, **settings: Any
) -> tuple[MCS | IDR | IIR, dict[str, Any]]:
    """Return a metric about a world, and the arguments of its call; of what `knows` it wants 1 for every image."""
    metric, bound, model, images, classes = {
        "MCS": (
            MCS,
            {"contrast_model": world.scene_model, "contrast_labels": world.scene_labels},
            *(world.object_model, world.images, world.object_labels),
        ),
        "IDR": (IDR, {"counterpart": world.scenes}, world.scene_model, world.images, world.scene_labels),
        "IIR": (IIR, {"patched": world.patched}, world.blind, world.scenes, world.scene_labels),
    }[name]
    arguments = {"model": model, "x_batch": images, "y_batch": classes, "explain_func": explain}
    # Normalised, a map of ones would be a constant map, that is zero.
    return metric(**{**bound, "masks": world.masks, "normalise": False, **settings}), {**arguments, **(call or {})}


def score(name: str, world: World, *arguments: Any, **settings: Any) -> list[float]:
    """Return the scores of a metric; arguments as of `metric_and_call`."""
    metric, call = metric_and_call(name, world, *arguments, **settings)
    return metric(**call)
