"""SUB: synthetic photographs of birds in which one attribute is replaced by another of its group."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import Dataset

from captum_concepts.support.checks import check_choice, check_index, check_whole
from captum_concepts.support.files import printable, shorten
from captum_concepts.support.running import warn_user
from captum_concepts.texts import in_one_line
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.datasets.substitution.sub_files import (
    LICENCE,
    OFFICIAL,
    SEPARATOR,
    Names,
    Place,
    decode_image,
    find_files,
    read_images,
    read_substitution_labels,
)

#: From this share of a class's images on a concept is the class's.
_MAJORITY = 0.5
#: How the release prepares images for concept bottleneck models: cropped, not resized.
RELEASE_SIZE, RELEASE_MEAN, RELEASE_STD = 299, 0.5, 2.0
PREPARATIONS = ("release",)


@in_one_line
class SUBSample(NamedTuple):
    """One image of SUB.

    Attributes
    ----------
    image : Tensor
        (3, H, W), in [0, 1] unless a transform made something else of it.
    label : int
        The class of the reference bird, from 0.
    """

    image: Tensor
    label: int


class SUB(Dataset[SUBSample]):
    """SUB, the released data: birds of known classes with one attribute replaced, made by a diffusion model.

    Bader et al. (2025), "SUB: Benchmarking CBM Generalization via Synthetic Attribute Substitutions": 38,400 images,
    33 bird classes, 33 attributes, 768 pairs of 50 images each. Licence: cc-by-nc-4.0, not for commercial use. The
    folder ``data`` of Jessica-bader/SUB holds it as Parquet files, read by pyarrow (extra ``sub``); any folder that
    `write_sub` wrote is read as well.

    Only labels are kept. Of images one row group is in memory at a time: go through them in order; a shuffling loader
    reads a row group for each image.

    Parameters
    ----------
    root : str or Path
        The folder of the Parquet files, or the one around ``data``.
    cub : ConceptDataset, optional
        Data set of the concept model: its concepts and classes, and which concepts are which class's. For SUB
        ``CUB200(root, class_concepts="majority")``; the names of the release are mapped to its (``--`` to ``::``,
        "Blue_Jay" to "073.Blue_Jay"). Without it concepts and classes are those that the files name, and nothing is
        known of what was taken out.
    transform : callable or str, optional
        From image (3, H, W) in [0, 1] to what the model takes; "release" for the authors' preparation of concept
        bottleneck models: the middle 299 pixels *without* resizing, minus 0.5, divided by 2.
    per_pair : int, optional
        How many images of each pair to take, the first ones; all if None.

    Attributes
    ----------
    added, removed : Tensor
        (N,) of int64: the concept put in, and the first of the class's own concepts (share from 1/2 on) of the same
        group in the order of `concept_names`; -1 where it is none of the concepts, or there is none.
    attribute, bird : Tensor
        (N,) of int64: the labels of the release, of `attribute_names` and `bird_names`.
    labels : Tensor
        (N,) of int64: the class of the reference bird, of `class_names`.
    pairs : Tensor
        (N,) of int64: which pair of bird and attribute, the images of which are no independent samples.
    attribute_names, bird_names : list of str
        Names of the release, attributes as "group::option".
    concept_names, class_names : list of str
        Names of `cub`; without it those of the release.
    options : list of str
        All attributes that could be named: the 312 of `cub` where it has ``attribute_names``, else `concept_names`.
    class_concepts : Tensor or None
        (K, L), of `cub`.
    licence : str
        Licence in the files, else that of SUB.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no Parquet file in it.
    ValueError
        If pyarrow is missing, a file is damaged, has other columns, no names or labels beyond them, files name
        different labels, a name is unknown to `cub` (the nearest is named), or no attribute is one of its concepts.

    Examples
    --------
    >>> from quantus_concepts.datasets import CUB200, SUB
    >>> cub = CUB200("CUB_200_2011", class_concepts="majority")
    >>> sub = SUB("SUB", cub, transform="release", per_pair=1)
    >>> sub[0].image.shape
    torch.Size([3, 299, 299])
    >>> sub.added.shape == sub.removed.shape == sub.labels.shape
    True
    """

    def __init__(
        self,
        root: str | Path,
        cub: ConceptDataset | None = None,
        transform: Callable[[Tensor], Tensor] | str | None = None,
        per_pair: int | None = None,
    ) -> None:
        if isinstance(transform, str):
            check_choice("transform", transform, PREPARATIONS)
        if per_pair is not None:
            check_whole("per_pair", per_pair, 1)
        self.transform = transform
        self.files = find_files(root)
        self._stored: tuple[tuple[int, int], Any] | None = None
        names, labels, places = self._read_files()
        self.licence = names.licence or LICENCE
        warn_user(f"The images of {printable(root)} are licensed {shorten(self.licence)}.")
        self.attribute_names = [name.replace(SEPARATOR, OFFICIAL) for name in names.attributes]
        self.bird_names = list(names.birds)
        recipes = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
        if per_pair is not None:
            chosen = np.flatnonzero(_number_in(recipes) < per_pair)
            labels, recipes = labels[chosen], recipes[chosen]
            places = places[chosen]
        self._places = places
        self.attribute, self.bird = torch.from_numpy(labels.T.copy())
        self.pairs = torch.from_numpy(recipes)
        self.class_concepts: Tensor | None = None
        self.concept_names, self.class_names = self.attribute_names, self.bird_names
        self.options = self.concept_names
        self.added, self.removed, self.labels = self.attribute, torch.full_like(self.attribute, -1), self.bird
        if cub is not None:
            self._map_to_cub(cub)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> SUBSample:
        """Return one sample; raises IndexError past the end, ValueError for an image that cannot be read."""
        index = check_index(index, len(self), "images")
        place = Place(*self._places[index].tolist())
        path = self.files[place.file]
        if self._stored is None or self._stored[0] != (place.file, place.group):
            # Let go of what was there before the next is read.
            self._stored = None
            self._stored = (place.file, place.group), read_images(path, place.group)
        image = decode_image(self._stored[1], place.row, path)
        if isinstance(self.transform, str):
            image = prepare_as_release(image)
        elif self.transform is not None:
            image = self.transform(image)
        return SUBSample(image, int(self.labels[index]))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the row group in memory behind: workers read their own."""
        return self.__dict__ | {"_stored": None}

    def __repr__(self) -> str:
        return (
            f"SUB({len(self)} images, {int(self.pairs.max()) + 1} pairs of {len(self.bird_names)} birds and "
            f"{len(self.attribute_names)} attributes, licence {self.licence})"
        )

    def _read_files(self) -> tuple[Names, np.ndarray, np.ndarray]:
        """Return the names of all files, labels (N, 2), and where each image is, (N, 3)."""
        first: Names | None = None
        labels, places = [], []
        for number, path in enumerate(self.files):
            names, file_labels, sizes = read_substitution_labels(path)
            first = first or names
            if names != first:
                raise ValueError(f"{path} names other labels than {self.files[0]}. Keep one data set in a folder.")
            labels.append(file_labels)
            groups = np.repeat(np.arange(len(sizes)), sizes)
            places.append(np.stack([np.full(len(groups), number), groups, _number_in(groups)], 1).astype(np.int32))
        all_labels = np.concatenate(labels)
        if first is None or not len(all_labels):
            raise ValueError(f"Expected argument `root` to hold images but {len(self.files)} Parquet files have none.")
        return first, all_labels, np.concatenate(places)

    def _map_to_cub(self, cub: ConceptDataset) -> None:
        """Express labels in the concepts and classes of a model."""
        attribute_names = getattr(cub, "attribute_names", None)
        self.options = list(attribute_names or cub.concept_names)
        substituted = [self.attribute_names[place] for place in torch.unique(self.attribute)]
        if attribute_names is not None:
            _check_names("attributes", substituted, list(attribute_names), list(attribute_names))
        by_name = {_plain_bird_name(name): place for place, name in enumerate(cub.class_names)}
        birds = [self.bird_names[place] for place in torch.unique(self.bird)]
        _check_names("birds", [_plain_bird_name(name) for name in birds], list(by_name), cub.class_names)
        self.concept_names, self.class_names = cub.concept_names, cub.class_names
        concepts = {name: place for place, name in enumerate(self.concept_names)}
        if not any(name in concepts for name in substituted):
            raise ValueError(
                f"Expected argument `cub` to have a concept that SUB substitutes but none of its {len(concepts)} is "
                f"among {shorten(substituted)}."
            )
        self.class_concepts = cub.class_concepts
        of_attribute = torch.tensor([concepts.get(name, -1) for name in self.attribute_names])
        of_bird = torch.tensor([by_name.get(_plain_bird_name(name), -1) for name in self.bird_names])
        self.added, self.labels = of_attribute[self.attribute], of_bird[self.bird]
        class_has = cub.class_concepts >= _MAJORITY
        groups = [name.partition(OFFICIAL)[0] for name in self.concept_names]
        removed = torch.full((len(self.class_names), len(self.attribute_names)), -1)
        for place, name in enumerate(self.attribute_names):
            members = torch.tensor([group == name.partition(OFFICIAL)[0] for group in groups])
            having = class_has & members
            # Of several the first; of equal ones the first is found.
            removed[:, place] = having.float().argmax(1).where(having.any(1), torch.tensor(-1))
        self.removed = removed[self.labels, self.attribute]


def prepare_as_release(image: Tensor) -> Tensor:
    """Prepare an image as the release does it: the middle 299 pixels, padded where there are fewer, (x - 0.5) / 2."""
    from torchvision.transforms.v2 import functional

    return (functional.center_crop(image, [RELEASE_SIZE, RELEASE_SIZE]) - RELEASE_MEAN) / RELEASE_STD


def _plain_bird_name(name: str) -> str:
    """Return a bird's name without the number of its class, as it is written in any of the usual ways."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"^\d+\.", "", name).lower().replace("'", "")).strip("_")


def _number_in(groups: np.ndarray) -> np.ndarray:
    """Return the how manieth of its group each item is, from 0."""
    return pd.Series(groups).groupby(groups).cumcount().to_numpy()


def _check_names(kind: str, names: Sequence[str], candidates: Sequence[str], spellings: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in set(candidates)]:
        near = {name: difflib.get_close_matches(name, candidates, n=1, cutoff=0) for name in unknown}
        text = ", ".join(
            f"{name!r} (nearest: {spellings[candidates.index(close[0])]!r})" for name, close in near.items()
        )
        raise ValueError(f"Expected argument `cub` to know the {kind} of SUB but it does not know {shorten(text)}.")
