"""Explanations scored batch by batch, of which only rows of scores are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from captum_concepts.support.checks import check_shape, to_tensor
from captum_concepts.support.files import shorten
from captum_concepts.support.running import floating_images, progress, warn_user
from quantus_concepts.datasets.ratings.explanations import MODALITIES, ConceptExplanation, Explanation, MapExplanation
from quantus_concepts.functional.attribution.normalisation import finite_rows
from quantus_concepts.pasta.cache import EmbeddingCache
from quantus_concepts.pasta.embedder import Embedder, embedder_for
from quantus_concepts.pasta.encoders.encoder import Denormalisation, Encoder, Parts
from quantus_concepts.pasta.encoders.overlay import usable_maps
from quantus_concepts.pasta.labels import UNLABELLED, label_indices
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import ScorerSource, scorer_from

#: Why an explanation has no score, by number.
REASONS = ("", "the map is constant", "the explanation holds NaN or infinity")
CONSTANT, NOT_FINITE = 1, 2
_EXPECTED = (
    "Expected argument `loader` to give batches (images, maps) or (images, maps, labels) of tensors, lists of Map-, "
    "Drawing- or ConceptExplanation, or (explanations, labels)"
)


class _Batch(NamedTuple):
    """Explanations to embed, with the index of their modality, their reason code, and the labels."""

    content: tuple[Tensor, Tensor] | list[Explanation]
    modality: Tensor
    reason: Tensor
    labels: Any


def score_explanations(
    scorer: Scorer | ScorerSource,
    encoder: Encoder | Parts | Embedder | str | None,
    loader: Iterable[Any],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    denormalise: Callable[[Tensor], Tensor] | None = None,
    cache: EmbeddingCache | str | Path | None = None,
    clip: bool = True,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score a stream of explanations by the PASTA-score: how people would rate each of them.

    Each score is what `PASTAScore` gives for the same batch. Only the rows of the table are kept, so that memory does
    not grow by images; a `torch.utils.data.DataLoader` with workers reads and decodes while others are embedded.

    Parameters
    ----------
    scorer : Scorer or path
        As in `PASTAScore`.
    encoder : Embedder, Encoder, str or object
        As in `PASTAScore`; None for the one that the scorer was trained on.
    loader : iterable
        Batches, gone through once: tuples of images (B, C, H, W), those of uint8 (which a worker hands over in a
        quarter of the bytes) divided by 255, maps (B, h, w) or (B, C, h, w), summed over the channels, and, where the
        scorer knows labels, labels (B,), by name or index. Or lists of explanations of any kind and size, alone or in a
        tuple with their labels: a loader over ``PastaRatings(...).explanations`` with ``collate_fn=list`` gives such.
    mean : sequence of float, optional
        Mean of the normalisation of images of tuples, a number for each channel, to be undone.
    std : sequence of float, optional
        Standard deviation of the normalisation.
    denormalise : callable, optional
        In place of them: from a tensor (B, C, H, W) of model inputs to images in [0, 1].
    cache : EmbeddingCache or path, optional
        Cache of embeddings.
    clip : bool
        Whether scores above 5 become 5.
    display_progressbar : bool
        Whether a bar shows the batches, where the output is a terminal or a notebook.

    Returns
    -------
    DataFrame
        A row for each explanation, in the order of the loader: ``label`` ("" for none), ``modality`` ("map", "drawing"
        or "concepts"), a column for each question the scorer answers, in [1, 5] or above where not clipped, and
        ``reason``, why there is no score; "" where there is.

    Raises
    ------
    TypeError
        If `scorer`, `encoder` or `loader` is of a type that cannot be used.
    ValueError
        If encoder and scorer do not fit together, the loader is empty, images are outside [0, 1], shapes do not fit,
        or the scorer does not know a label.

    Warns
    -----
    UserWarning
        If scores are NaN, and if explanations have no label for a scorer that was trained with labels.
    """
    scorer = scorer_from(scorer)
    embedder = embedder_for(scorer, encoder, cache=cache)
    denormalisation = Denormalisation(mean, std, denormalise)
    rows: list[Tensor] = []
    for raw_batch in progress(loader, "scoring", show=display_progressbar, unit="batch"):
        batch = _check_batch(raw_batch, denormalisation)
        labels = _label_places(scorer, batch)
        votes = torch.full((len(labels), len(scorer.questions)), torch.nan)
        good = batch.reason == 0
        if good.any():
            embedded = _embed(embedder, denormalisation, batch.content, good)
            of_good = None if scorer.labels is None else labels[good]
            votes[good] = scorer.score(embedded.to(scorer.device), of_good, clip=clip).cpu()
        rows.append(torch.cat([torch.stack([labels, batch.modality, batch.reason], 1).float(), votes], 1))
    if not rows:
        raise ValueError("Expected argument `loader` to give at least one explanation but it is empty.")
    table = torch.cat(rows).numpy()
    codes = table[:, :3].astype(np.int64)
    _warn(scorer, codes[:, 0], codes[:, 2])
    return pd.DataFrame(
        {
            # The last one is that of no label.
            "label": np.array([*(scorer.labels or ()), ""], dtype=object)[codes[:, 0]],
            "modality": np.array(MODALITIES, dtype=object)[codes[:, 1]],
            **{name: table[:, 3 + place].astype(np.float64) for place, name in enumerate(scorer.questions)},
            "reason": np.array(REASONS, dtype=object)[codes[:, 2]],
        }
    )


def _check_batch(batch: Any, denormalisation: Denormalisation) -> _Batch:
    """Return a batch after every check of its values, on the host."""
    if not isinstance(batch, tuple | list) or not len(batch):
        raise ValueError(f"{_EXPECTED}, but got {type(batch).__name__}{' of nothing' if batch == [] else ''}.")
    if isinstance(batch[0], Explanation):
        return _batch_of_explanations(batch, None)
    if isinstance(batch[0], tuple | list) and len(batch) == 2:
        return _batch_of_explanations(*batch)
    if len(batch) not in (2, 3):
        raise ValueError(f"{_EXPECTED}, but got {len(batch)} items.")
    images, maps = (to_tensor("loader", part) for part in batch[:2])
    images = floating_images(images)
    check_shape("images", images, ("B", "C", "H", "W"), (None,) * 4)
    maps = maps.sum(1) if maps.ndim == 4 else maps
    maps = maps if maps.is_floating_point() else maps.float()
    check_shape("maps", maps, ("B", "h", "w"), (len(images), None, None))
    if len(images):
        denormalisation.check(images, "loader")
    reason = torch.where(finite_rows(maps), CONSTANT, NOT_FINITE).masked_fill(usable_maps(maps), 0)
    modality = torch.full((len(maps),), MODALITIES.index("map"))
    return _Batch((images, maps), modality, reason.cpu(), batch[2] if len(batch) == 3 else None)


def _batch_of_explanations(explanations: Sequence[Any], labels: Any) -> _Batch:
    for explanation in explanations:
        if not isinstance(explanation, Explanation):
            raise ValueError(f"{_EXPECTED}, but got {type(explanation).__name__}.")
    modality = torch.tensor([MODALITIES.index(explanation.modality) for explanation in explanations])
    return _Batch(list(explanations), modality, torch.tensor([*map(_reason, explanations)]), labels)


def _reason(explanation: Explanation) -> int:
    """Return the reason code why an explanation cannot be embedded (0: usable)."""
    if isinstance(explanation, ConceptExplanation):
        return 0 if np.isfinite(list(explanation.values.values())).all() else NOT_FINITE
    if not isinstance(explanation, MapExplanation) or usable_maps(explanation.map[None]).all():
        return 0
    return CONSTANT if finite_rows(explanation.map[None]).all() else NOT_FINITE


def _label_places(scorer: Scorer, batch: _Batch) -> Tensor:
    """Return (B,) indices among the scorer's labels, -1 for none."""
    if batch.labels is None:
        return torch.full((len(batch.reason),), UNLABELLED)
    if scorer.labels is None:
        raise ValueError(
            "Expected argument `loader` to give no labels, for the scorer was trained without. Leave them out."
        )
    return label_indices(scorer.labels, batch.labels, len(batch.reason)).cpu()


def _embed(embedder: Embedder, denormalisation: Denormalisation, content: Any, good: Tensor) -> Tensor:
    if isinstance(content, list):
        return embedder.embed([part for part, usable in zip(content, good.tolist(), strict=True) if usable])
    # On the encoder's device, where pictures are made quicker.
    where = getattr(embedder.encoder, "device", None) or content[0].device
    images, maps = (part if good.all() else part[good.to(part.device)] for part in content)
    return embedder.embed_maps(denormalisation(images.to(where), checked=True), maps.to(where), checked=True)


def _warn(scorer: Scorer, labels: np.ndarray, reasons: np.ndarray) -> None:
    without = 0 if scorer.labels is None else int((labels == UNLABELLED).sum())
    if scorer.labels is not None and without:
        warn_user(
            f"The scorer was trained with labels, and {without} of {len(labels)} explanations have none; let `loader` "
            f"give them. It knows {shorten(', '.join(scorer.labels))}."
        )
    if reasons.any():
        codes = np.unique(reasons[reasons > 0])
        counted = "; ".join(f"{REASONS[code]} ({(reasons == code).sum()})" for code in codes)
        warn_user(f"{np.count_nonzero(reasons)} of {len(reasons)} explanations have no score: {counted}.")
