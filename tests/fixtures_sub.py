"""A small SUB in the true format of the release."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pa = pytest.importorskip("pyarrow", reason="the extra sub is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra sub is not installed")

#: As the release writes names, of the classes of `fixtures_cub`: the third is of no image, the fourth none of the 112.
ATTRIBUTES = ["has_crown_color--black", "has_bill_shape--dagger"]
ATTRIBUTES += ["has_breast_pattern--spotted", "has_tail_pattern--spotted"]
BIRDS = ["Black_footed_Albatross", "Sooty_Albatross", "Laysan_Albatross"]
#: Attribute and bird of each image, of two files with row groups of two.
LABELS = [(0, 0), (0, 0), (1, 1), (3, 0), (1, 1), (0, 1), (3, 1)]


def schema(**changed: Any) -> Any:
    """Return the schema of the release, with the metadata that the package `datasets` writes."""
    names = {"attr_label": ATTRIBUTES, "bird_label": BIRDS} | changed
    features = {"image": {"_type": "Image"}} | {
        column: {"names": label_names, "_type": "ClassLabel"} for column, label_names in names.items()
    }
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    plain = pa.schema([("image", image), ("attr_label", pa.int64()), ("bird_label", pa.int64())])
    return plain.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def picture(number: int) -> bytes:
    """Return a PNG of 320 x 310 pixels whose grey is the number, brighter in the upper left corner."""
    pixels = np.full((310, 320, 3), number, np.uint8)
    pixels[:5, :10] = 200
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write_release(root: Path, labels: Any = LABELS, **changed: Any) -> Path:
    """Write the images in two files and return the folder."""
    (root / "data").mkdir(parents=True, exist_ok=True)
    rows = [
        {"image": {"bytes": picture(number), "path": None}, "attr_label": attribute, "bird_label": bird}
        for number, (attribute, bird) in enumerate(labels)
    ]
    for file, some in enumerate((rows[:4], rows[4:])):
        table = pa.Table.from_pylist(some, schema=schema(**changed))
        pq.write_table(table, root / "data" / f"test-{file:05d}-of-00002.parquet", row_group_size=2)
    return root
