"""What labels of explanations are taken from: their names, those of their images, or a file of labels."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from captum_concepts._support.checks import check_path
from captum_concepts._support.files import check_plain_file, reason_of, shortened
from quantus_concepts.datasets.ratings.files import list_some
from quantus_concepts.studies.rating.files import ExplanationFile
from quantus_concepts.studies.rating.options import FROM_FILE_NAME, FROM_IMAGE_NAME, NO_LABELS


def with_labels(files: Sequence[ExplanationFile], labels_from: str) -> list[ExplanationFile]:
    """Return explanations with the labels that an option asks for."""
    if labels_from == FROM_FILE_NAME:
        return list(files)
    if labels_from == FROM_IMAGE_NAME:
        # An explanation that needs no image may have none; it is called like its image.
        return [replace(file, label=file.true_label) for file in files]
    if labels_from == NO_LABELS:
        return [replace(file, label="") for file in files]
    rows = read_labels(check_path("path", labels_from))
    return [_relabelled(file, rows) for file in files]


def read_labels(path: Path) -> dict[str, dict[str, str]]:
    """Return the row of each image in a CSV file; raise where rows are short, long, or of one image."""
    try:
        check_plain_file(path, "File")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            rows = [(reader.line_num, row) for row in reader]
            columns = list(reader.fieldnames or ())
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(
            f"Expected argument `--labels-from` to be {FROM_FILE_NAME}, {FROM_IMAGE_NAME}, {NO_LABELS} or a CSV file "
            f"with the columns image and label, but {path} cannot be read ({reason_of(error)})."
        ) from error
    if not {"image", "label"} <= set(columns):
        raise ValueError(f"Expected {path} to have the columns image and label but got {shortened(columns)}.")
    found: dict[str, dict[str, str]] = {}
    lines: dict[str, int] = {}
    faults = []
    for line, row in rows:
        image = row["image"]
        if None in row or None in row.values() or not image:
            got = sum(value is not None for key, value in row.items() if key is not None) + len(row.get(None) or ())
            what = "names no image" if not image else f"has {got} of {len(columns)} columns"
            faults.append(f"line {line} {what}")
        elif any("\0" in cell for cell in row.values()):
            faults.append(f"line {line} holds a byte of 0, as no text in UTF-8 does")
        elif image in lines:
            faults.append(f"line {line} names {image} again, after line {lines[image]}")
        else:
            found[image], lines[image] = row, line
    if faults:
        raise ValueError(f"Expected {path} to have one complete row for each image but {list_some(faults)}.")
    return found


def _relabelled(file: ExplanationFile, rows: Mapping[str, Mapping[str, str]]) -> ExplanationFile:
    names = [file.path.stem] if file.image is None else [file.image.name, file.image.stem, file.path.stem]
    row = next((rows[name] for name in names if name in rows), None)
    if row is None:
        return file if file.note else replace(file, note="not in the file of labels")
    return replace(file, label=row["label"], true_label=row.get("true_label") or file.true_label)
