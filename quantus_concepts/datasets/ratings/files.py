"""Names and contents of the files of explanations, as in the release of the PASTA ratings."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.files import non_file_kind, read_json, reason_of
from captum_concepts.support.images import load_image
from quantus_concepts.datasets.folders import list_some
from quantus_concepts.datasets.ratings.explanations import (
    ConceptExplanation,
    DrawingExplanation,
    Explanation,
    MapExplanation,
)

MAP_SUFFIX, CONCEPT_SUFFIX, DRAWING_SUFFIX = ".npy", ".json", ".png"
MODALITY_OF_SUFFIX = {MAP_SUFFIX: "map", DRAWING_SUFFIX: "drawing", CONCEPT_SUFFIX: "concepts"}
#: Ids of the released explainers whose explanations are concepts.
CONCEPT_EXPLAINERS = ("39", "40", "41", "42", "43", "44", "45", "48", "49")
#: Id of CLIP-QDA-sample, for which small values mean important.
COUNTERFACTUAL_EXPLAINERS = ("39",)
_LIME, _SHAP = ("3", "4", "5"), ("6", "7", "8")
_MAX_CHANNELS = 4
#: What is looked for in a name takes a time that grows with the square of its length.
_LONGEST_NAME = 1000
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# LIME writes a concept with the interval its value lies in: "0.10 < arm <= 0.25", "arm > 0.5".
_INTERVAL = re.compile(rf"^(?:{_NUMBER}\s*<=?\s*)?(?P<name>.*?\S)\s*(?:<=?|>=?)\s*{_NUMBER}$")
#: Entry of the release's counterfactual explainer next to its concepts, with the value infinity.
NO_COUNTERFACTUAL = "No counterfactual"
_TARGET = "(Target = "

_PARTS = (
    "engine artifact_wing animal_wing stern tail locomotive arm hair wheel chain_wheel handlebar hand headlight saddle "
    "body bodywork beak head eye foot leg neck torso cap license_plate door mirror window ear muzzle horn nose hoof "
    "mouth eyebrow plant pot coach screen"
)
_MONUMAI = (
    "horseshoe-arch lobed-arch pointed-arch ogee-arch trefoil-arch serliana solomonic-column pinnacle-gothic porthole "
    "broken-pediment rounded-arch flat-arch segmental-pediment triangular-pediment lintelled-doorway"
)
_COCO = (
    "person, backpack, umbrella, handbag, tie, suitcase, bicycle, car, motorcycle, airplane, bus, train, truck, boat, "
    "traffic light, fire hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, "
    "zebra, giraffe, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, "
    "tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, "
    "carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, "
    "remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, "
    "teddy bear, hair drier, toothbrush"
)

#: Kazmierczak et al., PASTA, Table 3, by the name a data set has in file names.
RELEASED_CONCEPTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "catsdogscars": tuple(_PARTS.split()),
        "pascalpart": tuple(_PARTS.split()),
        "monumai": tuple(_MONUMAI.split()),
        "coco": tuple(_COCO.split(", ")),
    }
)

#: How the release's own lists write concepts that its Table 3 writes otherwise; its files have these keys.
_AS_RELEASED = {"eyebrow": "ebrow", "flat-arch": "flat-arch "}
#: The lists that the release goes through for its sentences, by the name of the data set.
RELEASE_LISTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        name: tuple(_AS_RELEASED.get(concept, concept) for concept in concepts)
        for name, concepts in RELEASED_CONCEPTS.items()
    }
)


@dataclass(frozen=True)
class FileName:
    """What the name of a file says."""

    dataset: str
    image: str
    explainer: str | None
    label: str

    @property
    def image_id(self) -> str:
        """The id of the image with its data set, unique over data sets."""
        return f"{self.dataset}_{self.image}"


def parse_rated_name(path: str | Path | PurePosixPath) -> FileName:
    """Read the name of a rated explanation, ``{dataset}_{image id}_{explainer id}_{label}.png``."""
    dataset, image, explainer, label = _split_name(path, "DATASET_IMAGE_EXPLAINER_LABEL")
    return FileName(dataset, image, explainer, label)


def parse_scored_name(path: str | Path | PurePosixPath) -> FileName:
    """Read the name of an explanation to be scored, ``{dataset}_{image id}_{label}.npy``, or of an image."""
    dataset, image, label = _split_name(path, "DATASET_IMAGE_LABEL")
    return FileName(dataset, image, None, label)


def read_scored_name(path: str | Path) -> tuple[FileName, str]:
    """Return what `parse_scored_name` does, and "", or a name without label and what is wrong."""
    try:
        return parse_scored_name(path), ""
    except ValueError as error:
        return FileName("", Path(path).stem, None, ""), str(error)


def modality_of(path: Path) -> str:
    """Return the kind of an explanation by the suffix of its file, in small or capital letters."""
    return MODALITY_OF_SUFFIX.get(path.suffix.lower(), "drawing")


def attribution_path(explication: str, suffix: str) -> str:
    """Return where the attribution of a drawn explanation lies: under ``activations`` instead of ``expl``."""
    *folders, name = explication.split("/")
    moved = ["activations" if folder == "expl" else folder for folder in folders]
    return "/".join([*moved, posixpath.splitext(name)[0] + suffix])


def load_map(path: Path) -> Tensor:
    """Read a map of relevance."""
    # Axes of one pixel are dropped unless only two are left. Of three axes one is that of channels, the last where
    # it has at most four entries, else the first; with two or four channels the last of them is the map (the
    # opacity, as in the release, where B-cos writes RGB and opacity), else their mean.
    try:
        if kind := non_file_kind(path):
            raise ValueError(f"it is {kind}")
        # Mapped, a file shorter than it claims is an error before memory is taken.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("it is an archive and not one array")
        if array.dtype.kind not in "biuf":
            raise ValueError(f"it holds {array.dtype}, expected numbers")
        relevance = _drop_channels(np.array(array, dtype=np.float32))
        if relevance is None or not relevance.size:
            shape = tuple(array.shape)
            raise ValueError(f"its shape is {shape}, expected (h, w), or (h, w, C) of at most {_MAX_CHANNELS} channels")
    except Exception as error:  # a damaged file fails in any way
        raise ValueError(f"Map {path} cannot be read ({reason_of(error)}).") from error
    return torch.from_numpy(np.ascontiguousarray(relevance))


def released_scale(name: FileName, lowest: float) -> str | None:
    """Return how the release's map of an explainer comes to [0, 1], as in `unit_maps`; None where min-max does it."""
    explainer = name.explainer if name.dataset in RELEASED_CONCEPTS else None
    # Its files of LIME hold (mask + 1) * 0.49 already; a mask as LIME itself gives it has values of -1.
    if explainer in _LIME:
        return "lime" if lowest < 0 else "none"
    return "shap" if explainer in _SHAP else None


def load_concepts(path: Path, *, ascending: bool = False, dataset: str = "") -> ConceptExplanation:
    """Read concepts and how much each of them matters."""
    # A name may come with the interval LIME found its value in, "0.10 < arm <= 0.25", which is taken off unless two
    # names would become one. Files of the release's counterfactual explainer (39), whose keys read "hair (Target =
    # cat) ", are known by that or by their entry "No counterfactual": what follows the name is taken off, of the
    # two directions of a concept the smallest magnitude stays, and infinite values are left out.
    content = read_json(path, "Concept file")
    if not isinstance(content, dict) or not content:
        kind = "an empty one" if isinstance(content, dict) else f"a {type(content).__name__}"
        raise ValueError(f"Expected concept file {path} to be an object of names and numbers but got {kind}.")
    if max(map(len, content)) > _LONGEST_NAME:
        raise ValueError(f"Expected the names in concept file {path} to have at most {_LONGEST_NAME} characters.")
    counterfactual = ascending and any(key == NO_COUNTERFACTUAL or _TARGET in key for key in content)
    bad = [f"{name!r}: {value!r}" for name, value in content.items() if not _is_number(value, counterfactual)]
    if bad:
        counterfactuals = NO_COUNTERFACTUAL in content and not ascending
        advice = " It is of a counterfactual explainer: name that as --ascending (counterfactual_explainers=)."
        raise ValueError(
            f"Expected the values in concept file {path} to be finite numbers but {len(bad)} of {len(content)} are "
            f"not: {list_some(bad)}.{advice if counterfactuals else ''}"
        )
    entries = {name: float(value) for name, value in content.items()}
    values = _counterfactuals(entries) if counterfactual else _strip_intervals(entries)
    return ConceptExplanation(values, ascending, entries, RELEASE_LISTS.get(dataset, ()))


def load_explanation(path: Path, image: Path | None, name: FileName, *, ascending: bool) -> Explanation:
    """Read an explanation by the kind of its file; a map needs its image."""
    modality = modality_of(path)
    if modality == "concepts":
        return load_concepts(path, ascending=ascending, dataset=name.dataset)
    if modality == "drawing":
        return DrawingExplanation(load_image(path))
    if image is None:
        raise ValueError("no image of this name")
    relevance = load_map(path)
    scale = released_scale(name, float(relevance.min()))
    return MapExplanation(load_image(image), relevance, scale)


def _split_name(path: str | Path | PurePosixPath, form: str) -> list[str]:
    """Return the parts of a file's name, the label, which may be missing, as the last."""
    # There are many, and paths as objects are slow to make.
    stem, suffix = posixpath.splitext(posixpath.basename(str(path)))
    n_needed = form.count("_")
    words = stem.split("_", n_needed)
    if len(words) < n_needed or not all(words[:n_needed]):
        raise ValueError(f"Expected the name of a file to be {form}{suffix} but got {stem + suffix!r}.")
    return words if len(words) > n_needed else [*words, ""]


def _drop_channels(array: np.ndarray) -> np.ndarray | None:
    """Return (h, w), or None where the array is no map."""
    while array.ndim > 2 and 1 in array.shape:
        array = array.squeeze(array.shape.index(1))
    if array.ndim == 3:
        if array.shape[-1] > _MAX_CHANNELS:
            array = np.moveaxis(array, 0, -1)
        if array.shape[-1] > _MAX_CHANNELS:
            return None
        array = array.mean(-1) if array.shape[-1] == 3 else array[..., -1]
    return array if array.ndim == 2 else None


def _is_number(value: object, infinite: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # A whole number of hundreds of digits is none of float.
    with suppress(OverflowError):
        return math.isfinite(value) or (infinite and math.isinf(value))
    return False


def _strip_intervals(entries: dict[str, float]) -> dict[str, float]:
    """Return values by name, without intervals."""
    matches = [_INTERVAL.match(key) for key in entries]
    names = [match["name"] if match else key for match, key in zip(matches, entries, strict=True)]
    if len(set(names)) < len(names):
        return entries
    return dict(zip(names, entries.values(), strict=True))


def _counterfactuals(entries: dict[str, float]) -> dict[str, float]:
    """Return for each concept the value of its direction of smallest magnitude."""
    values: dict[str, float] = {}
    for key, value in entries.items():
        name = key.partition("(")[0].strip()
        if key != NO_COUNTERFACTUAL and math.isfinite(value) and abs(value) < abs(values.get(name, math.inf)):
            values[name] = value
    return values or {NO_COUNTERFACTUAL: 0.0}
