"""Explanations in folders: found with their images, explainers and labels, and checked before any work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from captum_concepts.support.checks import check_folder, check_path
from captum_concepts.support.files import image_files, printable, subfolders
from captum_concepts.support.running import progress
from quantus_concepts.datasets.folders import IMAGE_SUFFIXES, bad_line, list_some, table_rows
from quantus_concepts.datasets.ratings.explanations import (
    ConceptExplanation,
    DrawingExplanation,
    Explanation,
)
from quantus_concepts.datasets.ratings.files import (
    CONCEPT_EXPLAINERS,
    CONCEPT_SUFFIX,
    COUNTERFACTUAL_EXPLAINERS,
    DRAWING_SUFFIX,
    MAP_SUFFIX,
    MODALITY_OF_SUFFIX,
    RELEASED_CONCEPTS,
    FileName,
    attribution_path,
    load_explanation,
    modality_of,
    parse_rated_name,
    read_scored_name,
)

#: What labels are taken from, where not from a file.
FROM_FILE_NAME, FROM_IMAGE_NAME, NO_LABELS = "file-name", "image-name", "none"
#: Files named in an error, and where none is left.
SHOWN, SHOWN_OF_ALL = 10, 20


@dataclass(frozen=True)
class ExplanationFile:
    """An explanation on disk, as `find_explanations` lists it.

    Attributes
    ----------
    path, image : Path
        The file of the explanation, and that of its image, None where there is none.
    explainer : str
        Name of the explainer.
    name : FileName
        The parts of the file's name.
    label, true_label : str
        The class explained, and that of the image; "" where it is not known.
    ascending : bool
        Whether small values mean important.
    note : str
        Why it cannot be used, "" where it can.

    Examples
    --------
    >>> from quantus_concepts.datasets import find_explanations
    >>> file = find_explanations("images", "explanations")[0]
    >>> file.explainer, file.label, file.path.suffix, file.note
    ('grad-cam', 'cat', '.npy', '')
    >>> file.read().map.shape
    torch.Size([5, 5])
    """

    path: Path
    image: Path | None
    explainer: str
    name: FileName
    label: str
    true_label: str
    ascending: bool = False
    note: str = ""

    @property
    def modality(self) -> str:
        """The kind of explanation: "map", "drawing" or "concepts"."""
        return modality_of(self.path)

    def read(self) -> Explanation:
        """Return the explanation; raises ValueError where `note` says why it cannot be used, or its file is bad."""
        if self.note:
            raise ValueError(self.note)
        explanation = load_explanation(self.path, self.image, self.name, ascending=self.ascending)
        check_usable(explanation)
        return explanation


def find_explanations(
    images: Path | str,
    explanations: Path | str,
    *,
    labels_from: str = FROM_FILE_NAME,
    ascending: Collection[str] = (),
    with_images: bool = False,
    own_name: str | None = None,
) -> list[ExplanationFile]:
    """List the explanations of a folder, each with its image, its explainer and its label.

    An explanation belongs to the image of the same name, or else to the one image of the same data set and image id:
    the label of an explanation's name is the class explained, that of an image's name the true one. Files of the
    release, ``{dataset}_{image id}_{explainer id}_{label}``, go by the id; for the drawings (charts) of its concept
    explainers their values are read, where they lie under ``activations``.

    Parameters
    ----------
    images : path
        Folder of images called ``{dataset}_{image id}_{label}.png`` or ``.jpg``.
    explanations : path
        Folder of ``.npy`` maps, ``.png`` drawings and ``.json`` concepts called like their images, or with one such
        folder for each explainer.
    labels_from : str
        "file-name" (of the explanation), "image-name", "none", or a CSV file with the columns image, label and, if
        wanted, true_label.
    ascending : collection of str
        Explainers whose small values mean important.
    with_images : bool
        Whether drawings and concepts need an image too, as maps do.
    own_name : str, optional
        Name of the explainer of files that lie in `explanations` itself; by default that of the folder.

    Returns
    -------
    list of ExplanationFile
        Explainer by explainer, in the order of their names. One that cannot be used has a `note`.

    Raises
    ------
    ValueError
        If a folder holds no image or no explanation, if `ascending` names no explainer of them, or the file of labels
        is not complete.
    FileNotFoundError
        If a folder is not there.

    Examples
    --------
    >>> from quantus_concepts.datasets import find_explanations
    >>> files = find_explanations("images", "explanations")
    >>> sorted({file.explainer for file in files})  # explanations/grad-cam, ...
    ['grad-cam', 'lime_2', 'words']
    >>> files[0].image.name, files[0].label
    ('pets_000_cat.png', 'cat')
    >>> explanations = [file.read() for file in files if not file.note]
    """
    images, root = check_folder("images", images), check_folder("explanations", explanations)
    index = _image_index(images)
    folders = [(own_name or root.resolve().name, root), *((path.name, path) for path in subfolders(root))]
    files = [
        _find_image(path, explainer, index, with_images)
        for explainer, folder in folders
        # The images themselves are no drawings.
        for path in image_files(
            folder, tuple(MODALITY_OF_SUFFIX) if folder.resolve() != images.resolve() else (MAP_SUFFIX, CONCEPT_SUFFIX)
        )
    ]
    if not files:
        raise ValueError(
            f"Expected argument `explanations` to be a folder of {MAP_SUFFIX} maps, {DRAWING_SUFFIX} drawings or "
            f"{CONCEPT_SUFFIX} concepts, or of one such folder for each explainer, but {root} holds none."
        )
    explainers = {file.explainer for file in files}
    if unknown := sorted(set(ascending) - explainers):
        raise ValueError(f"Expected argument `ascending` to name explainers of {sorted(explainers)} but got {unknown}.")
    drawing_stems = {file.path.with_suffix("") for file in files if file.modality == "drawing"}
    for place, file in enumerate(files):
        if file.modality == "map" and file.path.with_suffix("") in drawing_stems:
            file = replace(file, note=f"its drawing {file.path.stem}{DRAWING_SUFFIX} is taken")
        files[place] = replace(file, ascending=file.ascending or file.explainer in ascending)
    return with_labels(files, labels_from)


def _image_index(folder: Path) -> dict[str, list[Path]]:
    """Return the images by their whole name, and by data set and id."""
    index: dict[str, list[Path]] = defaultdict(list)
    for path in image_files(folder, IMAGE_SUFFIXES):
        for name in {path.stem, read_scored_name(path)[0].image_id}:
            index[name].append(path)
    if not index:
        raise ValueError(
            f"Expected argument `images` to be a folder of {', '.join(IMAGE_SUFFIXES)} images but {folder} holds none."
        )
    return dict(index)


def _find_image(path: Path, explainer: str, index: Mapping[str, list[Path]], with_images: bool) -> ExplanationFile:
    name, note = read_scored_name(path)
    released = _released_name(path) if name.dataset in RELEASED_CONCEPTS else None
    if released is not None and released.explainer is not None:
        name, explainer = released, released.explainer
        values = Path(attribution_path(path.as_posix(), CONCEPT_SUFFIX))
        if explainer in CONCEPT_EXPLAINERS and values.is_file():
            path = values
    candidates = index.get(path.stem) or index.get(name.image_id, [])
    if not note and len(candidates) != 1 and (with_images or path.suffix.lower() == MAP_SUFFIX):
        several = f"several images: {', '.join(candidate.name for candidate in candidates)}"
        note = several if candidates else f"no image called {path.stem} or {name.image_id}_*"
    image = candidates[0] if len(candidates) == 1 else None
    true_label = read_scored_name(image)[0].label if image is not None else ""
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


def with_labels(files: Sequence[ExplanationFile], labels_from: str) -> list[ExplanationFile]:
    """Return explanations with the given labels."""
    if labels_from == FROM_FILE_NAME:
        return list(files)
    if labels_from == FROM_IMAGE_NAME:
        # An explanation that needs no image may have none; it is called like its image.
        return [replace(file, label=file.true_label) for file in files]
    if labels_from == NO_LABELS:
        return [replace(file, label="") for file in files]
    rows = read_labels(check_path("path", labels_from))
    return [_relabel(file, rows) for file in files]


def read_labels(path: Path) -> dict[str, dict[str, str]]:
    """Return the row of each image in a CSV file; raise where rows are short, long, or of one image."""
    if not path.is_file():
        raise ValueError(
            f"Expected argument `labels_from` to be {FROM_FILE_NAME}, {FROM_IMAGE_NAME}, {NO_LABELS} or a CSV file "
            f"with the columns image and label, but there is no file {path}."
        )
    row_of_image: dict[str, dict[str, str]] = {}
    for line, row in table_rows(path, ("image", "label"), others=True):
        if not row["image"] or row["image"] in row_of_image:
            raise bad_line(path, line, "an image that no other line names", row["image"])
        row_of_image[row["image"]] = row
    return row_of_image


def _relabel(file: ExplanationFile, rows: Mapping[str, Mapping[str, str]]) -> ExplanationFile:
    names = [file.path.stem] if file.image is None else [file.image.name, file.image.stem, file.path.stem]
    row = next((rows[name] for name in names if name in rows), None)
    if row is None:
        return file if file.note else replace(file, note="not in the file of labels")
    return replace(file, label=row["label"], true_label=row.get("true_label") or file.true_label)


def check_usable(explanation: Explanation) -> None:
    """Raise where an explanation shows nothing, or does not fit its image."""
    if isinstance(explanation, ConceptExplanation):
        if any(not name.strip() for name in explanation.values):
            raise ValueError("a concept has no name")
        if len(explanation.values) > 1 and not any(explanation.values.values()):
            raise ValueError("every value is 0, so that no concept is first")
    elif isinstance(explanation, DrawingExplanation):
        if explanation.picture.min() == explanation.picture.max():
            raise ValueError("the drawing is of one colour")
    else:
        values, (rows, columns), (height, width) = explanation.map, explanation.map.shape, explanation.image.shape[1:]
        if bad := int((~torch.isfinite(values)).sum()):
            raise ValueError(f"{bad} of the map's {values.numel()} values are NaN or infinite")
        if values.min() == values.max():
            raise ValueError(f"the map is constant: every value is {values[0, 0].item():g}")
        # A coarse map has the proportions of its image only up to a cell, and that of a resized input is square.
        alike = abs(rows * width - columns * height) <= max(width, height)
        if not alike and rows != columns:
            raise ValueError(
                f"map of {rows} x {columns} for an image of {height} x {width}: neither of its proportions nor square"
            )


def check_explanations(files: Sequence[ExplanationFile], *, display_progressbar: bool = False) -> list[ExplanationFile]:
    """Read every file once, so that all that is wrong is known before any work."""
    checked = []
    for file in progress(files, "reading", unit="explanation", show=display_progressbar):
        try:
            file.read()
        except ValueError as error:
            file = replace(file, note=_reason(file, error))
        checked.append(file)
    return checked


def usable_files(files: Sequence[ExplanationFile]) -> list[ExplanationFile]:
    """Return the explanations that can be used."""
    good = [file for file in files if not file.note]
    if not good:
        raise ValueError(f"None of the {len(files)} explanations can be used: {problems(files, SHOWN_OF_ALL)}.")
    return good


def problems(files: Iterable[ExplanationFile], limit: int | None = None) -> str:
    """List what is wrong with files."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.note:
            by_reason[file.note].append(f"{file.explainer}/{file.path.name}")
    # A folder of another data set gives every file one of few reasons: each is named once.
    share = None if limit is None else max(1, limit // max(1, len(by_reason)))
    reasons = sorted(by_reason.items(), key=lambda item: len(item[1]))
    return "; ".join(f"{list_some(names, share or len(names))} ({printable(reason)})" for reason, names in reasons)


def _reason(file: ExplanationFile, error: ValueError) -> str:
    # The list names the file anyway; its folder would only make the reason hard to read.
    reason = str(error)
    for path in (file.path, file.image):
        reason = reason.replace(f" {path}", "")
    return " ".join(reason.split()).rstrip(".")
