"""What a batch of a loader holds, by name, whatever form it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

#: Fields of a batch, in the order of a tuple; the last three only by name.
FIELDS = ("images", "labels", "concept_labels", "points", "before", "added", "removed")
USUAL = FIELDS[:4]
#: What other libraries call the first two: processors and data sets of Hugging Face.
_OTHER_NAMES = {"pixel_values": "images", "image": "images", "label": "labels"}


def read_batch(batch: Any, name: str = "loader") -> dict[str, Any]:
    """Return the fields of a batch: images alone, a tuple or list in order, or a mapping by name."""
    if isinstance(batch, Tensor | np.ndarray):
        return {"images": batch}
    if isinstance(batch, Mapping):
        # A field under its own name goes before one under another's.
        renamed = {_OTHER_NAMES.get(str(key), str(key)): value for key, value in batch.items()}
        named = renamed | {str(key): value for key, value in batch.items()}
        found = {field: named[field] for field in FIELDS if named.get(field) is not None}
        if "images" not in found:
            raise ValueError(
                f"Expected argument `{name}` to give dicts with the keys {list(USUAL)} (or 'pixel_values' and "
                f"'label'), of which all but the first may be missing, but got {[str(key) for key in batch]}."
            )
        return found
    if not isinstance(batch, tuple | list):
        raise ValueError(
            f"Expected argument `{name}` to give batches, tensors, tuples or dicts, but got {type(batch).__name__}."
        )
    found = dict(zip(USUAL, batch, strict=False))
    # Of a `SubstitutionSample`; a fifth item of anything else is not ours.
    return found | {field: getattr(batch, field) for field in FIELDS[4:] if getattr(batch, field, None) is not None}
