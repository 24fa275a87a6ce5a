"""Finding the explanations of a folder, each with its image, its explainer and its label."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from captum_concepts._support.checks import check_path
from quantus_concepts.datasets.ratings.files import (
    CONCEPT_EXPLAINERS,
    CONCEPT_SUFFIX,
    COUNTERFACTUAL_EXPLAINERS,
    DRAWING_SUFFIX,
    MAP_SUFFIX,
    FileName,
    attribution_path,
    parse_rated_name,
    parse_scored_name,
)
from quantus_concepts.datasets.ratings.vocabularies import RELEASED_CONCEPTS
from quantus_concepts.studies.rating.files import MODALITIES, ExplanationFile, with_labels
from quantus_concepts.studies.rating.options import FROM_FILE_NAME

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")


def find_explanations(
    images: Path | str,
    explanations: Path | str,
    *,
    labels_from: str = FROM_FILE_NAME,
    ascending: Collection[str] = (),
    with_images: bool = False,
    own_name: str | None = None,
) -> list[ExplanationFile]:
    """List the explanations of a folder, each with its image."""
    # An explanation belongs to the image of the same name, or else to the one image of the same data set and image
    # id: the label of an explanation's name is the class explained, that of an image's name the true one. Files of
    # the release, ``{dataset}_{image id}_{explainer id}_{label}``, go by the id; for the drawings (charts) of its
    # concept explainers their values are read, where they lie under ``activations``.
    images, root = _folder("--images", images), _folder("--explanations", explanations)
    index = _image_index(images)
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = [
        _located(path, explainer, index, with_images)
        for explainer, folder in [(own_name or root.resolve().name, root), *((each.name, each) for each in folders)]
        # The images themselves are no drawings.
        for path in _files(
            folder, tuple(MODALITIES) if folder.resolve() != images.resolve() else (MAP_SUFFIX, CONCEPT_SUFFIX)
        )
    ]
    if not found:
        raise ValueError(
            f"Expected argument `--explanations` to be a folder of {MAP_SUFFIX} maps, {DRAWING_SUFFIX} drawings or "
            f"{CONCEPT_SUFFIX} concepts, or of one such folder for each explainer, but {root} holds none."
        )
    known = {file.explainer for file in found}
    if unknown := sorted(set(ascending) - known):
        raise ValueError(f"Expected argument `--ascending` to name explainers of {sorted(known)} but got {unknown}.")
    drawn = {file.path.with_suffix("") for file in found if file.modality == "drawing"}
    for place, file in enumerate(found):
        if file.modality == "map" and file.path.with_suffix("") in drawn:
            file = replace(file, note=f"its drawing {file.path.stem}{DRAWING_SUFFIX} is taken")
        found[place] = replace(file, ascending=file.ascending or file.explainer in ascending)
    return with_labels(found, labels_from)


def _folder(option: str, path: Path | str) -> Path:
    folder = check_path("path", path)
    if not folder.is_dir():
        raise ValueError(f"Expected argument `{option}` to be a folder but {folder} is not one.")
    return folder


def _files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and path.is_file() and not path.name.startswith(".")
    )


def _image_index(folder: Path) -> dict[str, list[Path]]:
    """Return the images by their whole name, and by data set and id."""
    index: dict[str, list[Path]] = defaultdict(list)
    for path in _files(folder, IMAGE_SUFFIXES):
        for name in {path.stem, _scored_name(path).image_id}:
            index[name].append(path)
    if not index:
        raise ValueError(
            f"Expected argument `--images` to be a folder of images ({', '.join(IMAGE_SUFFIXES)}) but {folder} holds "
            "none."
        )
    return dict(index)


def _scored_name(path: Path) -> FileName:
    try:
        return parse_scored_name(path)
    except ValueError:
        return FileName("", path.stem, None, "")


def _located(path: Path, explainer: str, index: Mapping[str, list[Path]], with_images: bool) -> ExplanationFile:
    try:
        name, note = parse_scored_name(path), ""
    except ValueError as error:
        name, note = _scored_name(path), str(error)
    released = _released_name(path) if name.dataset in RELEASED_CONCEPTS else None
    if released is not None and released.explainer is not None:
        name, explainer = released, released.explainer
        values = Path(attribution_path(path.as_posix(), CONCEPT_SUFFIX))
        if explainer in CONCEPT_EXPLAINERS and values.is_file():
            path = values
    candidates = index.get(path.stem) or index.get(name.image_id, [])
    if not note and (with_images or path.suffix.lower() == MAP_SUFFIX):
        note = _image_problem(path, name, candidates)
    image = candidates[0] if len(candidates) == 1 else None
    true_label = _scored_name(image).label if image is not None else ""
    return ExplanationFile(
        path,
        image,
        explainer,
        name,
        name.label,
        true_label or name.label,
        ascending=name.explainer in COUNTERFACTUAL_EXPLAINERS,
        note=note,
    )


def _released_name(path: Path) -> FileName | None:
    try:
        name = parse_rated_name(path)
    except ValueError:
        return None
    return name if name.label and (name.explainer or "").isdigit() else None


def _image_problem(path: Path, name: FileName, candidates: Sequence[Path]) -> str:
    if not candidates:
        return f"no image called {path.stem} or {name.image_id}_*"
    if len(candidates) > 1:
        return f"several images: {', '.join(candidate.name for candidate in candidates)}"
    return ""
