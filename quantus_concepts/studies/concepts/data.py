"""From `--data` and its companions to training and test images, as the backbone wants them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor

from captum_concepts.bank.directions import list_first
from captum_concepts.bank.learnable import find_learnable
from captum_concepts.fingerprints import fingerprint_of
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.datasets.base import ConceptDataset, ConceptSample
from quantus_concepts.painted.images import KeptImages, painted_birds
from quantus_concepts.studies._kit.painted import Painted
from quantus_concepts.studies._models.named_networks import Network
from quantus_concepts.studies._models.networks import SMALL_NETWORK
from quantus_concepts.studies.concepts.settings import Concepts, named_columns

if TYPE_CHECKING:
    from torchvision.transforms import v2

#: Pixels of painted birds, and of photographs, for a network that does not say its size.
PAINTED_SIZE, PHOTOGRAPH_SIZE = 64, 224


@dataclass
class BenchmarkData:
    """Training and test images."""

    train: ConceptDataset
    test: ConceptDataset
    #: What the images are, for readers.
    title: str
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    has_oracle: bool = False
    #: Names of the concepts that too few training images show or lack.
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: (N, 1, H, W) of bool: where the object is in each test image, on which all concepts are.
    regions: Tensor | None = None

    @property
    def class_names(self) -> list[str]:
        """K names."""
        return self.test.class_names

    @property
    def concept_names(self) -> list[str]:
        """L names."""
        return self.test.concept_names

    @property
    def class_concepts(self) -> Tensor:
        """(K, L), the truth of CGIM, from images that fitted no directions, or from people's table of the classes."""
        return self.test.class_concepts

    @property
    def training_concepts(self) -> Tensor:
        """(K, L), what class recital names: the training images' truth."""
        return self.train.class_concepts

    @property
    def truth(self) -> dict[str, object]:
        """What `score_concepts` takes as truth that is not about images, CGIM's aside."""
        names = ("training_concepts", "part_of_concept", "concept_names", "class_names")
        return {name: getattr(self, name) for name in names}

    @property
    def part_of_concept(self) -> Tensor:
        """(L,), the part each concept is about, -1 for none."""
        return self.test.part_of_concept

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def by_class(self) -> bool:
        """Whether all training images of a class have the same concept labels, and some class has several images."""
        labels, concepts = self.train.labels, self.train.concept_labels
        rows = [concepts[labels == k] for k in labels.unique()]
        return any(len(of_class) > 1 for of_class in rows) and all(bool((part == part[0]).all()) for part in rows)

    @property
    def fingerprint(self) -> str:
        """Return what tells data apart: all labels, and the images that are in memory."""
        several = (self.train, self.test)
        images = [data.images for data in several if isinstance(data, KeptImages)]
        return fingerprint_of([[data.labels, data.concept_labels] for data in several], images)


def load_concept_data(settings: Concepts, network: Network | None) -> Iterator[BenchmarkData]:
    """Load or draw the images of each seed; without a network they are kept in memory."""
    # Painted birds are other individuals of the same classes for each seed, so that intervals over seeds cover the
    # data too; photographs are the same for all.
    if network is None and settings.birds is not None:
        size = settings.image_size or PAINTED_SIZE
        drawn_birds = settings.birds.birds(size, settings.seed)
        for number in range(len(settings.all_seeds)):
            train, test = painted_birds(
                *((drawn_birds | {"split": split}, *drawn) for split, drawn in _drawn_birds(settings.birds, number)),
                display_progressbar=settings.progress,
            )
            yield learnable_concepts(settings, _of_birds(train, test, size))
        return
    # The labels tell which concepts cannot be learned, before an image is read.
    data = learnable_concepts(settings, same_images(settings, network or SMALL_NETWORK))
    if network is None:
        # Every image is needed in every epoch, and in 8 bits a few thousand small ones take little room.
        data = dataclasses.replace(data, train=KeptImages(data.train), test=KeptImages(data.test))
    yield from [data] * len(settings.all_seeds)


def same_images(settings: Concepts, network: Network, seed_number: int = 0) -> BenchmarkData:
    """Return the images of a seed as a network takes them, with all concepts."""
    if settings.birds is not None:
        return _painted(settings.birds, settings, network, seed_number)
    data = _cub(settings, network) if settings.data == "cub" else _files(settings, network)
    return data if settings.images_per_class is None else fewer_images(data, settings.images_per_class, settings.seed)


def fewer_images(data: BenchmarkData, per_class: int, seed: int) -> BenchmarkData:
    """Draw at most so many training and so many test images of each class; class concepts stay those of all."""
    rng = np.random.default_rng(seed)
    train, test = (_SomeImages(part, _draw_rows(part.labels, per_class, rng)) for part in (data.train, data.test))
    regions = None if data.regions is None else data.regions[test.rows]
    note = (
        f"At most {per_class} training and {per_class} test images of each class are used (--images-per-class), drawn "
        f"with seed {seed}: {len(train)} of {len(data.train)} and {len(test)} of {len(data.test)}."
    )
    return dataclasses.replace(data, train=train, test=test, regions=regions, notes=[*data.notes, note])


def _draw_rows(labels: Tensor, per_class: int, rng: np.random.Generator) -> list[int]:
    order = rng.permutation(len(labels))
    of_class = [order[labels.numpy()[order] == label][:per_class] for label in labels.unique().tolist()]
    return sorted(np.concatenate(of_class).tolist())


class _SomeImages(ConceptDataset):
    """Some of the images of a data set."""

    def __init__(self, dataset: ConceptDataset, rows: Sequence[int]) -> None:
        self.dataset, self.rows = dataset, rows
        self.class_names, self.concept_names = dataset.class_names, dataset.concept_names
        self.part_names, self.part_of_concept = dataset.part_names, dataset.part_of_concept
        self.class_concepts = dataset.class_concepts
        self.labels, self.concept_labels = dataset.labels[rows], dataset.concept_labels[rows]

    def __getitem__(self, index: int) -> ConceptSample:
        """Return one sample of the data set."""
        return self.dataset[self.rows[index]]


def learnable_concepts(settings: Concepts, data: BenchmarkData) -> BenchmarkData:
    """Return the data with the concepts that can be learned from the training images, and notes on the others."""
    labels, names = data.train.concept_labels, data.concept_names
    learnable = find_learnable(labels, names, None, settings.min_images)
    if learnable.left_out:
        data.notes.append(
            f"{len(learnable.left_out)} of {len(names)} concepts are left out, since they have fewer than "
            f"{settings.min_images} training images with or without them (--min-images): "
            f"{list_first(learnable.left_out)}. Tables of concepts show them as undefined."
        )
        data = dataclasses.replace(
            data,
            train=data.train.select(learnable.positions),
            test=data.test.select(learnable.positions),
            left_out=learnable.left_out,
        )
    if data.by_class:
        data.notes.append(
            "Concept labels are given by class: what is scored is whether a concept is one of its class. They fitted "
            "the directions and are CGIM's truth, so agreement is built in: CGIM has no random range and no verdict."
        )
    if data.regions is not None:
        data.notes.append("The object of each image is marked (mask), so maps are scored against it; there is no CLM.")
    elif not (data.part_of_concept >= 0).any():
        data.notes.append("No parts are annotated, so there is no CLM (give --parts for a folder of images).")
    return data


def _of_birds(train: ConceptDataset, test: ConceptDataset, size: int) -> BenchmarkData:
    return BenchmarkData(train, test, f"painted birds, {size} px", has_oracle=True)


def _drawn_birds(painted: Painted, seed_number: int) -> list[tuple[str, tuple[int, int]]]:
    """Return for each split the first bird of a seed, which begins with a turn of all classes, and the count."""
    k = painted.n_classes
    counts = (("train", painted.n_train), ("test", painted.n_test))
    return [(split, (seed_number * -(-count // k) * k, count)) for split, count in counts]


def _painted(painted: Painted, settings: Concepts, network: Network, seed_number: int) -> BenchmarkData:
    size = settings.image_size or network.image_size or PAINTED_SIZE
    drawn = painted.birds(size, settings.seed) | {"transform": _normalise(network)}
    train, test = (
        PaintedBirds(**drawn, split=split, n_images=count, first=first)
        for split, (first, count) in _drawn_birds(painted, seed_number)
    )
    data = _of_birds(train, test, size)
    # The oracle knows an image by its 8-bit content, which normalisation hides.
    return dataclasses.replace(data, mean=network.mean, std=network.std, has_oracle=network.mean is None)


def _cub(settings: Concepts, network: Network) -> BenchmarkData:
    from quantus_concepts.datasets import CUB200
    from quantus_concepts.datasets.transforms import default_transform

    size = settings.image_size or network.image_size or PHOTOGRAPH_SIZE
    transform = default_transform(size, network.mode, network.mean, network.std)
    patterns = None if settings.concepts is None else [name.strip() for name in settings.concepts.split(",")]
    train, test = (
        CUB200(settings.root or "", split, concept_labels=settings.labels, transform=transform, concepts=patterns)
        for split in ("train", "test")
    )
    title = f"CUB-200-2011, {size} px, {network.mode.replace('_', ' ')}"
    data = BenchmarkData(train, test, title, network.mean, network.std)
    if settings.image_size is None and network.image_size is None:
        data.notes.append(
            f"Images are {size} px: {network.source} does not say for which size it is made. Give --image-size, or "
            "define IMAGE_SIZE in its file."
        )
    return data


def _files(settings: Concepts, network: Network) -> BenchmarkData:
    from quantus_concepts.datasets import ConceptCSV, ConceptFolder

    size, root, concepts = settings.image_size or network.image_size, settings.root or "", settings.concepts or ""
    read: Callable[..., ConceptFolder | ConceptCSV]
    if settings.data == "table":
        read = partial(ConceptCSV, concepts, root, **cast(Any, named_columns(settings.columns)))
    else:
        read = partial(ConceptFolder, root, concepts, settings.parts, part_of_concept=settings.part_of_concept)
    train, test = (read(split=split, image_size=size, seed=settings.seed) for split in ("train", "test"))
    for dataset in (train, test):
        # Set afterwards: a folder without a transform checks that its images have one size.
        dataset.transform = _normalise(network)
    title = (
        f"images in {settings.root.name if settings.root else ''}, {'their own size' if size is None else f'{size} px'}"
    )
    regions = getattr(test, "regions", None)
    return BenchmarkData(train, test, title, network.mean, network.std, regions=regions)


def _normalise(network: Network) -> v2.Normalize | None:
    # Painted birds need none, and loading it takes a second.
    from torchvision.transforms import v2

    return None if network.mean is None or network.std is None else v2.Normalize([*network.mean], [*network.std])
