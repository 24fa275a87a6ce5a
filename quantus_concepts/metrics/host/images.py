"""The base class of the metrics that run a model on images again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from quantus_concepts.metrics.host.base import ConceptMetric
from quantus_concepts.metrics.host.call import WholeProgress


class ImageMetric(ConceptMetric):
    """Base of the metrics that ask a model about images.

    A call has one bar of its own, in place of Quantus's, which takes images for batches.
    """

    whole: WholeProgress | None = None

    @property
    def display_progressbar(self) -> bool:
        """Whether Quantus shows its own bar."""
        return False

    def _begin(self, whole: WholeProgress) -> None:
        """Show how far a call is; of a call that raised, the bar is taken away by the next."""
        self._end()
        self.whole = whole

    def _advance(self, count: int) -> None:
        if self.whole is not None:
            self.whole.update(count)

    def _end(self) -> None:
        if self.whole is not None:
            self.whole.close()
        self.whole = None

    def _collect_scores(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores of a call, which is over."""
        self._end()
        return super()._collect_scores(scores)

    def _usable_maps(self, a_batch: np.ndarray, size: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return attributions (n, C, H, W) of images of a size, and which of them can be used; the others are NaN."""
        a_batch = a_batch[:, None] if a_batch.ndim == 3 else a_batch
        channels = a_batch.shape[1] if a_batch.ndim == 4 else 1
        return self.usable(a_batch, (channels, *size), "a map (C, H, W) of the images' size")

    def _logits(self, model: nn.Module, rows: np.ndarray, make: Callable[[], Tensor], array: Any = None) -> Tensor:
        """Return a model's outputs for rows of `x_batch` or of another array, shared inside `shared_passes`."""
        # Outputs depend on further arguments of the model, which may be anything.
        return make() if self.call.model_predict_kwargs else self.recall("logits", model, rows, make, array)
