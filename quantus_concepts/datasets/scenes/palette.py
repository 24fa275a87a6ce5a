"""What painted objects and painted scenes share: their colours, and classes that take turns."""

from __future__ import annotations

import numpy as np

#: Common to all classes of objects and scenes. Each has a channel at least 60 away from the grey, 128, that objects
#: are pasted on.
PALETTE = np.array(
    [
        (196, 40, 44),
        (232, 128, 32),
        (242, 208, 56),
        (150, 202, 52),
        (36, 128, 62),
        (24, 150, 150),
        (96, 184, 236),
        (38, 74, 186),
        (126, 58, 188),
        (240, 136, 184),
        (112, 62, 28),
        (244, 228, 200),
        (34, 36, 52),
        (206, 206, 232),
    ],
    dtype=np.float32,
)
_LUMA = (PALETTE @ np.array([0.299, 0.587, 0.114], dtype=np.float32)).tolist()
_CONTRAST = 60.0
_JITTER = 24.0


def draw_colours(rng: np.random.Generator, n_colours: int) -> np.ndarray:
    """Draw colours that stand out from each other in turn."""
    waiting = rng.permutation(len(PALETTE)).tolist()
    chosen = [waiting.pop(0)]
    while len(chosen) < n_colours:
        last = _LUMA[chosen[-1]]
        position = next(i for i, k in enumerate(waiting) if abs(_LUMA[k] - last) >= _CONTRAST)
        chosen.append(waiting.pop(position))
    jitter = _JITTER * (rng.random((n_colours, 3), dtype=np.float32) - 0.5)
    return np.maximum(np.minimum(PALETTE[chosen] + jitter, 255), 0)


def labels_in_turn(n_per_class: int, n_classes: int) -> np.ndarray:
    """Return labels 0, 1, ..., K - 1, 0, 1, ..."""
    return np.tile(np.arange(n_classes, dtype=np.int64), n_per_class)
