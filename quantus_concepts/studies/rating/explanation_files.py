"""Explanations on disk: `.npy` maps, `.png` drawings and `.json` concepts beside the images they are of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from captum_concepts.progress import progress
from quantus_concepts.datasets.images import load_image
from quantus_concepts.datasets.ratings.explanations import DrawingExplanation, Explanation, MapExplanation
from quantus_concepts.datasets.ratings.files import (
    CONCEPT_EXPLAINERS,
    CONCEPT_SUFFIX,
    COUNTERFACTUAL_EXPLAINERS,
    DRAWING_SUFFIX,
    MAP_SUFFIX,
    FileName,
    attribution_path,
    list_some,
    parse_rated_name,
    parse_scored_name,
    released_scale,
)
from quantus_concepts.datasets.ratings.vocabularies import RELEASED_CONCEPTS
from quantus_concepts.studies.pasta.label_file import FROM_FILE_NAME, FROM_IMAGE_NAME, NO_LABELS, read_labels
from quantus_concepts.studies.pasta.usable_files import check_proportions, read_concepts, read_drawing, read_map

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
SUFFIXES = (MAP_SUFFIX, DRAWING_SUFFIX, CONCEPT_SUFFIX)
_KINDS = {MAP_SUFFIX: "map", DRAWING_SUFFIX: "drawing", CONCEPT_SUFFIX: "concepts"}
SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class ExplanationFile:
    """An explanation on disk."""

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
        return _KINDS[self.path.suffix.lower()]

    def read(self) -> Explanation:
        """Read the explanation."""
        if self.note:
            raise ValueError(self.note)
        if self.modality == "concepts":
            return read_concepts(self.path, self.ascending, self.name.dataset)
        if self.modality == "drawing":
            return DrawingExplanation(read_drawing(self.path))
        if self.image is None:
            raise ValueError("no image of this name")
        image = load_image(self.image)
        values = read_map(self.path)
        check_proportions(values, tuple(image.shape[1:]))
        return MapExplanation(image, values, released_scale(self.name.explainer or "", float(values.min())))


class FileExplanations(Sequence[Explanation]):
    """Explanations that are read when asked for."""

    def __init__(self, files: Sequence[ExplanationFile]) -> None:
        self.files = list(files)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i):  # type: ignore[no-untyped-def]
        if isinstance(i, slice):
            return FileExplanations(self.files[i])
        return self.files[i].read()


def find_explanations(
    images: Path | str,
    explanations: Path | str,
    *,
    labels_from: str = FROM_FILE_NAME,
    ascending: Iterable[str] = (),
    with_images: bool = False,
    own_name: str | None = None,
) -> list[ExplanationFile]:
    """List the explanations of a folder, each with its image."""
    # An explanation belongs to the image of the same name, or else to the one image of the same data set and image
    # id: the label of an explanation's name is the class explained, that of an image's name the true one. Files of
    # the release, ``{dataset}_{image id}_{explainer id}_{label}``, go by the id; for the drawings (charts) of its
    # concept explainers their values are read, where they lie under ``activations``.
    images, explanations = _folder("--images", images), _folder("--explanations", explanations)
    index = _image_index(images)
    found = [
        _locate(path, explainer, index, with_images)
        for explainer, folder in _explainer_folders(explanations, own_name)
        # The images themselves are no drawings.
        for path in _files(folder, SUFFIXES if folder.resolve() != images.resolve() else (MAP_SUFFIX, CONCEPT_SUFFIX))
    ]
    drawn = {file.path.with_suffix("") for file in found if file.modality == "drawing"}
    found = [
        replace(file, note=f"its drawing {file.path.stem}{DRAWING_SUFFIX} is taken")
        if file.modality == "map" and file.path.with_suffix("") in drawn
        else file
        for file in found
    ]
    if not found:
        raise ValueError(
            f"Expected argument `--explanations` to be a folder of {MAP_SUFFIX} maps, {DRAWING_SUFFIX} drawings or "
            f"{CONCEPT_SUFFIX} concepts, or of one such folder for each explainer, but {explanations} holds none."
        )
    known, slow = {file.explainer for file in found}, set(ascending)
    if slow - known:
        raise ValueError(
            f"Expected argument `--ascending` to name explainers of {sorted(known)} but got {sorted(slow - known)}."
        )
    found = [replace(file, ascending=file.ascending or file.explainer in slow) for file in found]
    return _with_labels(found, labels_from)


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


def usable(files: Sequence[ExplanationFile]) -> list[ExplanationFile]:
    """Return the explanations that can be used."""
    good = [file for file in files if not file.note]
    if not good:
        raise ValueError(f"None of the {len(files)} explanations can be used: {problems(files, SHOWN_PROBLEMS)}.")
    return good


def problems(files: Iterable[ExplanationFile], limit: int | None = None) -> str:
    """List what is wrong with files."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.note:
            by_reason[file.note].append(f"{file.explainer}/{file.path.name}")
    # A folder of another data set gives every file one of few reasons: each is told once.
    left, told = limit, []
    for number, (reason, names) in enumerate(sorted(by_reason.items(), key=lambda item: len(item[1]))):
        share = len(names) if left is None else max(1, left // (len(by_reason) - number))
        told.append(f"{list_some(names, share)} ({reason})")
        left = None if left is None else max(0, left - min(share, len(names)))
    return "; ".join(told)


def _reason(file: ExplanationFile, error: ValueError) -> str:
    # The list names the file anyway; its folder would only make the reason hard to read.
    reason = str(error)
    for path in (file.path, file.image):
        reason = reason.replace(f" {path}", "")
    return " ".join(reason.split()).rstrip(".")


def _folder(option: str, path: Path | str) -> Path:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ValueError(f"Expected argument `{option}` to be a folder but {folder} is not one.")
    return folder


def _files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and path.is_file() and not path.name.startswith(".")
    )


def _explainer_folders(root: Path, own_name: str | None) -> list[tuple[str, Path]]:
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [(own_name or root.resolve().name, root), *((folder.name, folder) for folder in folders)]


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


def _locate(path: Path, explainer: str, index: Mapping[str, list[Path]], with_images: bool) -> ExplanationFile:
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


def _with_labels(files: list[ExplanationFile], labels_from: str) -> list[ExplanationFile]:
    if labels_from == FROM_FILE_NAME:
        return files
    if labels_from == FROM_IMAGE_NAME:
        return [_of_image(file) for file in files]
    if labels_from == NO_LABELS:
        return [replace(file, label="") for file in files]
    rows = read_labels(Path(labels_from).expanduser())
    return [_relabelled(file, rows) for file in files]


def _of_image(file: ExplanationFile) -> ExplanationFile:
    # An explanation that needs no image may have none; it is called like its image.
    return replace(file, label=file.true_label)


def _relabelled(file: ExplanationFile, rows: Mapping[str, Mapping[str, str]]) -> ExplanationFile:
    names = [file.path.stem] if file.image is None else [file.image.name, file.image.stem, file.path.stem]
    row = next((rows[name] for name in names if name in rows), None)
    if row is None:
        return file if file.note else replace(file, note="not in the file of labels")
    return replace(file, label=row["label"], true_label=row.get("true_label") or file.true_label)
