"""Images of a data set in batches of a training: from memory, or composed when they are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from captum_concepts._support.checks import check_choice, check_shape
from captum_concepts._support.progress import progress

Target = Literal["object", "scene"]
TARGETS: tuple[Target, ...] = ("object", "scene")
#: Images that are looked at to tell one data set from another.
N_COMPARED = 16
#: Images read at once when a data set is put into memory.
CHUNK = 256


class ComposedImages(Protocol):
    """What is used of `quantus_concepts.datasets.ObjectsOnScenes`."""

    @property
    def object_labels(self) -> Tensor:
        """Return the classes (N,) of the objects, -1 for none."""

    @property
    def scene_labels(self) -> Tensor:
        """Return the classes (N,) of the scenes."""

    def __len__(self) -> int:
        """Return N."""

    def images(self, indices: Any, /) -> Tensor:
        """Return the images (n, 3, H, W) of uint8 at a list of indices."""


class StreamedSamples:
    """Images that are read batch by batch, so that memory does not grow with their number."""

    def __init__(self, data: ComposedImages, targets: Tensor) -> None:
        self.data = data
        self.targets = targets

    def __len__(self) -> int:
        return len(self.targets)

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (B, 3, H, W) of uint8 and targets (B,) for each tensor of indices (B,)."""
        return ((self.data.images(batch.tolist()), self.targets[batch]) for batch in rows)


def target_labels(data: ComposedImages, target: str, n_classes: int) -> Tensor:
    """Return the labels a model is trained on."""
    check_choice("target", target, TARGETS)
    labels = torch.as_tensor(data.object_labels if target == "object" else data.scene_labels).long()
    check_shape(f"{target}_labels", labels, ("N",), (len(data),))
    wrong = ((labels < 0) | (labels >= n_classes)).nonzero().flatten()
    if len(wrong):
        first = int(wrong[0])
        hint = " Without an object in every image, train on the scenes." if labels[first] < 0 else ""
        raise ValueError(
            f"Expected the {target} labels to lie in [0, {n_classes - 1}] but got {int(labels[first])} at {first}; "
            f"{len(wrong)} of {len(labels)} do not.{hint}"
        )
    return labels


def image_shape(data: ComposedImages) -> tuple[int, ...]:
    """Return the shape (C, H, W) of the first image."""
    if len(data) == 0:
        raise ValueError("Expected a data set with at least one image but it is empty.")
    first = data.images([0])
    check_shape("images", first, ("N", "C", "H", "W"), (1, None, None, None))
    if first.dtype != torch.uint8:
        raise ValueError(f"Expected the images of the data set to be of uint8 but got {first.dtype}.")
    return tuple(first.shape[1:])


def kept_images(data: ComposedImages, *, description: str = "images", display_progressbar: bool = False) -> Tensor:
    """Read all images into memory."""
    images = torch.empty(len(data), *image_shape(data), dtype=torch.uint8)
    with progress(description=description, total=len(data), unit="image", show=display_progressbar) as bar:
        for start in range(0, len(data), CHUNK):
            rows = list(range(start, min(start + CHUNK, len(data))))
            images[start : start + CHUNK] = data.images(rows)
            bar.update(len(rows))
    return images


def data_digest(data: ComposedImages, labels: Tensor) -> dict[str, Any]:
    """Return what tells one data set from another: its size, all labels and some images."""
    rows = torch.linspace(0, len(data) - 1, min(N_COMPARED, len(data)), dtype=torch.float64).round().long().tolist()
    return {
        "n": len(data),
        "shape": list(image_shape(data)),
        "labels": tensor_hash(labels),
        "images": tensor_hash(data.images(rows)),
    }


def tensor_hash(*tensors: Tensor) -> str:
    """Return the SHA-256 of the bits of tensors, with their types and shapes."""
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{plain.dtype} {tuple(plain.shape)};".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
