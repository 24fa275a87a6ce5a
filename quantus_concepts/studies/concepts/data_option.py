"""From `--data` and its companions to training and test images, as the backbone wants them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from captum_concepts._support.fingerprints import fingerprint_of
from captum_concepts._support.progress import part
from captum_concepts.bank.directions import list_first
from captum_concepts.bank.learnable import find_learnable
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.studies._models.loading import KeptImages, painted_birds
from quantus_concepts.studies._models.networks import SMALL_NETWORK, Network
from quantus_concepts.studies._models.options import PAINTED
from quantus_concepts.studies.concepts.options import CUB, FOLDER, ConceptOptions

if TYPE_CHECKING:
    from torchvision.transforms import v2

#: Pixels of painted birds for a network that does not say its size.
PAINTED_SIZE = 96
#: Shares of the time of a seed.
DRAWING, TRAINING, SCORING = 1, 3, 2
#: Pixels of photographs for a network that does not say its size.
PHOTOGRAPH_SIZE = 224


@dataclass
class BenchmarkData:
    """Training and test images."""

    train: ConceptDataset
    test: ConceptDataset
    class_concepts: Tensor
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    has_oracle: bool = False
    #: Names of the concepts that too few training images show or lack.
    left_out: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def class_names(self) -> list[str]:
        """K names."""
        return self.test.class_names

    @property
    def concept_names(self) -> list[str]:
        """L names."""
        return self.test.concept_names

    @property
    def part_of_concept(self) -> Tensor:
        """(L,), the part each concept is about, -1 for none."""
        return self.test.part_of_concept

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def fingerprint(self) -> str:
        """Return what tells data apart: all labels, and the images that are in memory."""
        several = (self.train, self.test)
        images = [data.images for data in several if isinstance(data, KeptImages)]
        return fingerprint_of([[data.labels, data.concept_labels] for data in several], images)


def load_data(options: ConceptOptions, network: Network | None) -> Iterator[BenchmarkData]:
    """Load or draw the images of each seed."""
    # Painted birds are other individuals of the same classes for each seed, so that intervals over seeds cover the
    # data too; photographs are the same for all.
    if network is None and options.data == PAINTED:
        size = options.image_size or PAINTED_SIZE
        birds = options.birds(size, options.seed)
        for number in range(options.n_seeds):
            with part(f"seed {options.seed + number}: painting birds", DRAWING):
                # A seed begins with a turn of all classes.
                train, test = painted_birds(
                    *(
                        (birds | {"split": split}, number * -(-count // options.n_classes) * options.n_classes, count)
                        for split, count in (("train", options.n_train), ("test", options.n_test))
                    ),
                    display_progressbar=options.progress,
                )
            data = _learnable(options, _of_birds(train, test, size))
            _describe(data)
            yield data
        return
    loaders = {CUB: _cub, FOLDER: _folder}
    # The labels tell which concepts cannot be learned, before an image is read.
    data = _learnable(options, loaders.get(options.data, _painted)(options, network or SMALL_NETWORK))
    if network is None:
        # Every image is needed in every epoch, and in 8 bits a few thousand small ones take little room.
        data = dataclasses.replace(data, train=KeptImages(data.train), test=KeptImages(data.test))
    _describe(data)
    yield from [data] * options.n_seeds


def _learnable(options: ConceptOptions, data: BenchmarkData) -> BenchmarkData:
    """Return the data with the concepts that can be learned from the training images, and a note on the others."""
    labels, names = data.train.concept_labels, data.concept_names
    learnable = find_learnable(labels, names, None, options.min_images)
    if not learnable.left_out:
        return data
    note = (
        f"{len(learnable.left_out)} of {len(names)} concepts are left out, since they have fewer than "
        f"{options.min_images} training images with or without them (--min-images): "
        f"{list_first(learnable.left_out)}. Tables of concepts show them as undefined."
    )
    return dataclasses.replace(
        data,
        train=data.train.select(learnable.positions),
        test=data.test.select(learnable.positions),
        class_concepts=data.class_concepts[:, learnable.positions],
        left_out=learnable.left_out,
        notes=[*data.notes, note],
    )


def _of_birds(train: ConceptDataset, test: ConceptDataset, size: int) -> BenchmarkData:
    data = BenchmarkData(train, test, train.class_concepts, has_oracle=True)
    data.settings["data"] = "painted birds"
    data.settings["images"] = f"{size} px"
    return data


def _painted(options: ConceptOptions, network: Network) -> BenchmarkData:
    size = options.image_size or network.image_size or PAINTED_SIZE
    train, test = (
        PaintedBirds(**options.birds(size, options.seed), split=split, n_images=count, transform=_normalise(network))
        for count, split in ((options.n_train, "train"), (options.n_test, "test"))
    )
    data = _of_birds(train, test, size)
    # The oracle knows an image by its 8-bit content, which normalisation hides.
    return dataclasses.replace(data, mean=network.mean, std=network.std, has_oracle=network.mean is None)


def _cub(options: ConceptOptions, network: Network) -> BenchmarkData:
    from quantus_concepts.datasets import CUB200
    from quantus_concepts.datasets.transforms import default_transform

    size = options.image_size or network.image_size or PHOTOGRAPH_SIZE
    transform = default_transform(size, network.mode, network.mean, network.std)
    train, test = (
        CUB200(
            options.root or "",
            split,
            concept_labels=options.labels,
            transform=transform,
            concepts=options.concept_patterns,
        )
        for split in ("train", "test")
    )
    data = BenchmarkData(train, test, train.class_concepts, network.mean, network.std)
    data.settings["data"] = "CUB-200-2011"
    data.settings["images"] = f"{size} px, {network.mode.replace('_', ' ')}"
    if options.image_size is None and network.image_size is None:
        data.notes.append(
            f"Images are {size} px: {network.source} does not say for which size it is made. Give --image-size, or "
            "define IMAGE_SIZE in its file."
        )
    return data


def _folder(options: ConceptOptions, network: Network) -> BenchmarkData:
    from quantus_concepts.datasets import ConceptFolder

    size = options.image_size or network.image_size
    train, test = (
        ConceptFolder(
            options.root or "",
            options.concepts or "",
            options.parts,
            split=split,
            image_size=size,
            part_of_concept=options.part_of_concept,
            seed=options.seed,
        )
        for split in ("train", "test")
    )
    for dataset in (train, test):
        # Set afterwards: a folder without a transform checks that its images have one size.
        dataset.transform = _normalise(network)
    data = BenchmarkData(train, test, train.class_concepts, network.mean, network.std)
    data.settings["data"] = f"images in {options.root.name if options.root else ''}"
    data.settings["images"] = "in their own size" if size is None else f"{size} px, resized"
    return data


def _normalise(network: Network) -> v2.Normalize | None:
    # Painted birds need none, and loading it takes a second.
    from torchvision.transforms import v2

    return None if network.mean is None or network.std is None else v2.Normalize([*network.mean], [*network.std])


def _describe(data: BenchmarkData) -> None:
    data.settings |= {
        "training images": str(len(data.train)),
        "test images": str(len(data.test)),
        "classes": str(data.n_classes),
        "concepts": str(len(data.concept_names)),
    }
    if data.left_out:
        data.settings["concepts left out"] = str(len(data.left_out))
    n_placed = int((data.part_of_concept >= 0).sum())
    data.settings["concepts with a part"] = str(n_placed)
    if data.mean is not None and data.std is not None:
        data.settings["normalisation"] = f"mean {_listed(data.mean)}, deviation {_listed(data.std)}"
    if labels_by_class(data.train):
        data.notes.append("Concept labels are given by class: what is scored is whether a concept is one of its class.")
    if n_placed == 0:
        data.notes.append("No parts are annotated, so there is no CLM (give --parts for a folder of images).")


def labels_by_class(data: ConceptDataset) -> bool:
    """Tell whether all images of a class have the same concept labels, and some class has several images."""
    by_class = {int(k): data.concept_labels[data.labels == k] for k in data.labels.unique()}
    several = any(len(rows) > 1 for rows in by_class.values())
    return several and all(bool((rows == rows[0]).all()) for rows in by_class.values())


def _listed(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
