"""The best case: a concept model that knows the truth of every image, found again by its content."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captum_concepts._support.checks import check_shape
from captum_concepts._support.fingerprints import fingerprint_of
from quantus_concepts.datasets.base import ConceptDataset


class OracleModel(nn.Module):
    """A concept model whose values are the true attributes and whose maps peak at the true parts."""

    # It takes images as every concept model does, and finds out which one it is given by a digest of its 8-bit
    # content, so that it is evaluated by the same program. Maps are Gaussians at the part's centre (of several
    # places the highest counts), zero where the part is not visible or a concept has none.

    concept_labels: Tensor
    points: Tensor
    part_of_concept: Tensor

    def __init__(self, dataset: ConceptDataset, head: nn.Module, stride: int = 4) -> None:
        super().__init__()
        samples = [dataset[index] for index in range(len(dataset))]
        self.features = Recognition([sample.image for sample in samples])
        self.head = head
        self.stride = stride
        self.size = (int(samples[0].image.shape[-2]), int(samples[0].image.shape[-1]))
        self.register_buffer("concept_labels", torch.stack([sample.concepts for sample in samples]).float())
        self.register_buffer("points", torch.stack([sample.points for sample in samples]).float())
        self.register_buffer("part_of_concept", dataset.part_of_concept)

    @property
    def concept_predictor(self) -> nn.Module:
        """Images (N, 3, H, W) to the true attributes (N, L)."""
        return _Values(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return class logits (N, K) of images (N, 3, H, W)."""
        return self.head(self.values_from_features(self.features(images)))

    def values_from_features(self, features: Tensor) -> Tensor:
        """Return the attributes (N, L) of images given by number (N, 1)."""
        return self.concept_labels[features[:, 0]]

    def maps_from_features(self, features: Tensor, concepts: Tensor | None = None) -> Tensor:
        """Return the maps (N, k, h, w) of images given by number (N, 1)."""
        index = features[:, 0]
        n_concepts = len(self.part_of_concept)
        if concepts is None:
            concepts = torch.arange(n_concepts, device=index.device)
        wanted = concepts.expand(len(index), -1) if concepts.ndim == 1 else concepts
        parts = self.part_of_concept[wanted]
        places = self.points[index[:, None], parts.clamp(min=0)]
        places = places.masked_fill((parts < 0)[..., None, None], torch.nan)
        height, width = (-(-side // self.stride) for side in self.size)
        y = (torch.arange(height, device=index.device) + 0.5) * (self.size[0] / height) - 0.5
        x = (torch.arange(width, device=index.device) + 0.5) * (self.size[1] / width) - 0.5
        across = (places[..., 0, None, None] - x) ** 2
        down = (places[..., 1, None, None] - y[:, None]) ** 2
        # A map's places are a stride apart: one and a half strides wide, the peak stays where the part is.
        return torch.exp(-(across + down) / (2 * (1.5 * self.stride) ** 2)).nan_to_num(0).amax(2)

    def concept_maps(self, images: Tensor, concepts: Tensor | None = None) -> Tensor:
        """Return the maps (N, k, h, w) of images (N, 3, H, W)."""
        return self.maps_from_features(self.features(images), concepts)


class Recognition(nn.Module):
    """Images to their numbers in a list of known ones."""

    _place: Tensor

    def __init__(self, images: list[Tensor]) -> None:
        super().__init__()
        self._number = {_content(image): number for number, image in enumerate(images)}
        # Tells where the module is: what looks numbers up is there too, wherever images are.
        self.register_buffer("_place", torch.empty(0), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the number of each image."""
        check_shape("images", images, ("N", "C", "H", "W"), (None, None, None, None))
        numbers = []
        for position, image in enumerate(images):
            number = self._number.get(_content(image))
            if number is None:
                raise ValueError(
                    f"The oracle does not know image {position} of this batch: it knows only the images it was "
                    "made for, unchanged."
                )
            numbers.append(number)
        return torch.tensor(numbers, device=self._place.device)[:, None]


class _Values(nn.Module):
    def __init__(self, oracle: OracleModel) -> None:
        super().__init__()
        self.oracle = oracle

    def forward(self, images: Tensor) -> Tensor:
        return self.oracle.values_from_features(self.oracle.features(images))


def _content(image: Tensor) -> str:
    return fingerprint_of((image.detach().float() * 255).round().to(torch.uint8))
