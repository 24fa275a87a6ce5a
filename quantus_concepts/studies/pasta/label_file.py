"""What labels of explanations are taken from, a file of them among these."""

from __future__ import annotations

import csv
from pathlib import Path

from quantus_concepts.datasets.ratings.files import list_some

FROM_FILE_NAME, FROM_IMAGE_NAME, NO_LABELS = "file-name", "image-name", "none"


def read_labels(path: Path) -> dict[str, dict[str, str]]:
    """Return the row of each image in a CSV file; raise where rows are short, long, or of one image."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            rows = [(reader.line_num, row) for row in reader]
            columns = list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"Expected argument `--labels-from` to be {FROM_FILE_NAME}, {FROM_IMAGE_NAME}, {NO_LABELS} or a CSV file "
            f"with the columns image and label, but {path} cannot be read ({error})."
        ) from error
    if not {"image", "label"} <= set(columns):
        raise ValueError(f"Expected {path} to have the columns image and label but got {columns}.")
    found: dict[str, dict[str, str]] = {}
    lines: dict[str, int] = {}
    faults = []
    for line, row in rows:
        image = row["image"]
        if None in row or None in row.values() or not image:
            got = sum(value is not None for key, value in row.items() if key is not None) + len(row.get(None) or ())
            what = "names no image" if not image else f"has {got} of {len(columns)} columns"
            faults.append(f"line {line} {what}")
        elif image in lines:
            faults.append(f"line {line} names {image} again, after line {lines[image]}")
        else:
            found[image], lines[image] = row, line
    if faults:
        raise ValueError(f"Expected {path} to have one complete row for each image but {list_some(faults)}.")
    return found
