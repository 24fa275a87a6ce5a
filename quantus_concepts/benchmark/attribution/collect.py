"""From models and images to the concept attribution of every method, each explanation made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from quantus_concepts.functional import concept_attribution, positive_percentile
from quantus_concepts.metrics.inference import predict_logits

ExplainFunc = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A model and the images it is explained on.

    Attributes
    ----------
    model : nn.Module
        In eval mode; takes images in [0, 1].
    images : callable
        From a list of rows to images (n, 3, H, W), uint8 or float in [0, 1]: nothing is kept of many images.
    labels : Tensor
        (N,) true classes, which are also the ones explained.
    """

    model: nn.Module
    images: Callable[[list[int]], Tensor]
    labels: Tensor

    def batch(self, rows: list[int]) -> Tensor:
        """Return float images (n, 3, H, W) in [0, 1]."""
        images = self.images(rows)
        return images.float() / 255 if images.dtype == torch.uint8 else images.float()

    def correct(self, batch_size: int = 64) -> Tensor:
        """Tell which images the model classifies correctly.

        Parameters
        ----------
        batch_size : int
            Images at once.

        Returns
        -------
        Tensor
            (N,) of bool.
        """
        found = [
            predict_logits(self.model, self.batch(rows)).argmax(1).cpu() == self.labels[rows]
            for rows in batches(len(self.labels), batch_size)
        ]
        return torch.cat(found)


@dataclass
class Attributed:
    """What one method says of the region in the images of each subject.

    Attributes
    ----------
    inside : dict of str to Tensor
        (N,) concept attribution by subject.
    elsewhere : dict of str to Tensor
        (N,) the same for the randomly placed regions, where they were asked for.
    maps : dict of str to np.ndarray
        (m, H, W) normalised maps of the rows that were to be kept.
    failure : str
        Why there are none, "" where there are.
    """

    inside: dict[str, Tensor] = field(default_factory=dict)
    elsewhere: dict[str, Tensor] = field(default_factory=dict)
    maps: dict[str, np.ndarray] = field(default_factory=dict)
    failure: str = ""


def batches(count: int, batch_size: int) -> list[list[int]]:
    """Split rows into consecutive batches.

    Parameters
    ----------
    count : int
        How many rows.
    batch_size : int
        Rows in a batch.

    Returns
    -------
    list of list of int
        In order.
    """
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
    """Explain every subject with every method, and reduce each explanation to a number at once.

    MCS, IDR and IIR of one method share what they have in common: the model trained on scenes is explained once on
    the images with objects. A method that fails, or returns what cannot be used, has NaN throughout and a reason; the
    others go on.

    Parameters
    ----------
    methods : mapping of str to callable
        Quantus explanation functions by name.
    subjects : mapping of str to Subject
        Models and images by name.
    masks : callable
        From rows to regions (n, 1, H, W) of bool, the same for all subjects.
    elsewhere : mapping of str to callable, optional
        Other regions for some subjects, by their name: those of a baseline.
    keep : mapping of str to sequence of int, optional
        Rows whose maps are wanted, by subject.
    batch_size : int
        Images explained at once.
    display_progressbar : bool
        Whether to show progress.

    Returns
    -------
    dict of str to Attributed
        By method.
    """
    found = {}
    total = sum(len(subject.labels) for subject in subjects.values()) * len(methods)
    with tqdm(total=total, desc="explaining", unit="image", disable=not display_progressbar, leave=False) as bar:
        for name, explain in methods.items():
            result = Attributed()
            bar.set_postfix_str(name)
            for subject_name, subject in subjects.items():
                try:
                    _explain(
                        explain, subject_name, subject, masks, elsewhere or {}, keep or {}, batch_size, result, bar
                    )
                except Exception as error:  # a method of the user's own may raise anything
                    result.failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
                    break
            if result.failure:
                bar.update(0)
                result = _failed(subjects, elsewhere or {}, result.failure)
            found[name] = result
    return found


def _explain(
    explain: ExplainFunc,
    name: str,
    subject: Subject,
    masks: Callable[[list[int]], Tensor],
    elsewhere: Mapping[str, Callable[[list[int]], Tensor]],
    keep: Mapping[str, Sequence[int]],
    batch_size: int,
    result: Attributed,
    bar: tqdm,
) -> None:
    inside, other = [], []
    kept: dict[int, np.ndarray] = {}
    for rows in batches(len(subject.labels), batch_size):
        images = subject.batch(rows)
        raw = np.asarray(explain(model=subject.model, inputs=images.numpy(), targets=subject.labels[rows].numpy()))
        maps = _normalised(raw, images)
        inside.append(concept_attribution(maps, masks(rows)))
        if name in elsewhere:
            other.append(concept_attribution(maps, elsewhere[name](rows)))
        kept |= {row: maps[rows.index(row), 0].numpy() for row in keep.get(name, ()) if row in rows}
        bar.update(len(rows))
    result.inside[name] = torch.cat(inside).double()
    if other:
        result.elsewhere[name] = torch.cat(other).double()
    if name in keep:
        result.maps[name] = np.stack([kept[row] for row in keep[name]])


def _normalised(raw: np.ndarray, images: Tensor) -> Tensor:
    raw = raw[:, None] if raw.ndim == 3 else raw
    if raw.ndim != 4 or len(raw) != len(images) or raw.shape[2:] != images.shape[2:]:
        raise ValueError(
            f"Expected the method to return attributions (N, C, H, W) for images {tuple(images.shape)} but got "
            f"{raw.shape}."
        )
    if not np.isfinite(raw).all():
        raise ValueError("the method returned NaN or infinity.")
    return positive_percentile(torch.as_tensor(raw, dtype=torch.float32))


def _failed(
    subjects: Mapping[str, Subject], elsewhere: Mapping[str, Callable[[list[int]], Tensor]], reason: str
) -> Attributed:
    undefined = {name: torch.full((len(subject.labels),), torch.nan).double() for name, subject in subjects.items()}
    return Attributed(undefined, {name: undefined[name] for name in elsewhere}, {}, reason)
