"""From models and images to the concept attribution of every method, each explanation made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.checks import to_numpy
from captum_concepts.progress import progress
from captum_concepts.running import evaluation_mode, predict_logits
from quantus_concepts.functional import concept_attribution, positive_percentile

ExplainFunc = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A model and the images it is explained on."""

    model: nn.Module
    images: Callable[[list[int]], Tensor]
    labels: Tensor

    def batch(self, rows: list[int]) -> Tensor:
        """Return float images (n, 3, H, W) in [0, 1]."""
        images = self.images(rows)
        return images.float() / 255 if images.dtype == torch.uint8 else images.float()

    def correct(self, batch_size: int = 64) -> Tensor:
        """Tell which images the model classifies correctly."""
        found = [
            predict_logits(self.model, self.batch(rows)).argmax(1).cpu() == self.labels[rows]
            for rows in batches(len(self.labels), batch_size)
        ]
        return torch.cat(found)


@dataclass
class Attributed:
    """What one method says of the region in the images of each subject."""

    inside: dict[str, Tensor] = field(default_factory=dict)
    elsewhere: dict[str, Tensor] = field(default_factory=dict)
    maps: dict[str, np.ndarray] = field(default_factory=dict)
    failure: str = ""


def batches(count: int, batch_size: int) -> list[list[int]]:
    """Split rows into consecutive batches."""
    return [list(range(start, min(start + batch_size, count))) for start in range(0, count, batch_size)]


def collect(
    methods: Mapping[str, ExplainFunc],
    subjects: Mapping[str, Subject],
    masks: Callable[[list[int]], Tensor],
    *,
    elsewhere: Mapping[str, Callable[[list[int]], Tensor]] | None = None,
    keep: Mapping[str, Sequence[int]] | None = None,
    batch_size: int = 64,
    display_progressbar: bool = False,
) -> dict[str, Attributed]:
    """Explain every subject with every method, and reduce each explanation to a number at once."""
    # MCS, IDR and IIR of one method share what they have in common: the model trained on scenes is explained once
    # on the images with objects. A method that fails, or returns what cannot be used, has NaN throughout and a
    # reason; the others go on.
    found = {name: Attributed() for name in methods}
    total = sum(len(subject.labels) for subject in subjects.values()) * len(methods)
    with progress(description="explaining", total=total, unit="image", show=display_progressbar) as bar:
        for subject_name, subject in subjects.items():
            moved = (elsewhere or {}).get(subject_name)
            kept = list((keep or {}).get(subject_name, ()))
            parts: dict[str, list[_Part]] = {name: [] for name in methods}
            met: list[int] = []
            # Methods within batches, so that an image is composed once for all of them.
            for rows in batches(len(subject.labels), batch_size):
                images, regions = subject.batch(rows), masks(rows)
                others = None if moved is None else moved(rows)
                wanted = [place for place, row in enumerate(rows) if row in kept]
                met += [rows[place] for place in wanted]
                for name, explain in methods.items():
                    bar.set_postfix_str(name)
                    bar.update(len(rows))
                    if found[name].failure:
                        continue
                    try:
                        maps = _explain(explain, subject, images, rows)
                    except Exception as error:  # a method of the user's own may raise anything
                        found[name].failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
                        continue
                    parts[name].append(_reduce(maps, regions, others, wanted))
            for name, result in found.items():
                if not result.failure:
                    _add(result, subject_name, parts[name], [met.index(row) for row in kept])
    return {
        name: _failed(subjects, elsewhere or {}, result.failure) if result.failure else result
        for name, result in found.items()
    }


class _Part(NamedTuple):
    """What is left of the explanations of one batch."""

    inside: Tensor
    elsewhere: Tensor | None
    maps: Tensor


def _explain(explain: ExplainFunc, subject: Subject, images: Tensor, rows: list[int]) -> Tensor:
    # Copies, since a method may write into what it is given; and it may leave the model in another mode.
    with evaluation_mode(subject.model):
        raw = explain(model=subject.model, inputs=images.numpy().copy(), targets=subject.labels[rows].numpy())
    return _normalised(to_numpy(raw), images)


def _reduce(maps: Tensor, regions: Tensor, others: Tensor | None, wanted: list[int]) -> _Part:
    return _Part(
        inside=concept_attribution(maps, regions).double(),
        elsewhere=None if others is None else concept_attribution(maps, others).double(),
        maps=maps[wanted, 0],
    )


def _add(result: Attributed, subject: str, parts: Sequence[_Part], places: list[int]) -> None:
    result.inside[subject] = torch.cat([part.inside for part in parts])
    others = [part.elsewhere for part in parts if part.elsewhere is not None]
    if others:
        result.elsewhere[subject] = torch.cat(others)
    if places:
        result.maps[subject] = torch.cat([part.maps for part in parts])[places].numpy()


def _normalised(raw: np.ndarray, images: Tensor) -> Tensor:
    raw = raw[:, None] if raw.ndim == 3 else raw
    if raw.ndim != 4 or len(raw) != len(images) or raw.shape[2:] != images.shape[2:]:
        raise ValueError(
            f"Expected the method to return attributions (N, C, H, W) for images {tuple(images.shape)} but got "
            f"{raw.shape}."
        )
    # A copy: torch knows no negative strides, and warns of arrays that cannot be written.
    maps = np.array(raw, dtype=np.float64 if raw.dtype == np.float64 else np.float32)
    if not np.isfinite(maps).all():
        broken = int((~np.isfinite(maps).reshape(len(maps), -1).all(1)).sum())
        raise ValueError(f"Expected finite attributions but got NaN or infinity for {broken} of {len(maps)} images.")
    return positive_percentile(torch.from_numpy(maps))


def _failed(
    subjects: Mapping[str, Subject], elsewhere: Mapping[str, Callable[[list[int]], Tensor]], reason: str
) -> Attributed:
    undefined = {name: torch.full((len(subject.labels),), torch.nan).double() for name, subject in subjects.items()}
    return Attributed(undefined, {name: undefined[name] for name in elsewhere}, {}, reason)
