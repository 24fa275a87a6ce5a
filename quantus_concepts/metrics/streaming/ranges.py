"""Concept models scored by ranges of a data set, whose rows together give the table of one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from captum_concepts._support.constraints import Flag, Instance, Seed, Whole, check_arguments, data_frame
from captum_concepts._support.shown import described
from captum_concepts.backbones.batches import FIELDS
from quantus_concepts.metrics.host.checks import SUBSTITUTES
from quantus_concepts.metrics.host.model import ConceptModel, ConceptModels
from quantus_concepts.metrics.streaming.api import SETTINGS
from quantus_concepts.metrics.streaming.baselines import EarlierPoints
from quantus_concepts.metrics.streaming.interventions import in_every_order
from quantus_concepts.metrics.streaming.rows import concept_images, concept_table
from quantus_concepts.metrics.streaming.stream import ConceptStream, concept_stream

NAMES = ("class_names", "concept_names")


class ConceptRanges:
    """`score_concepts` by ranges of a data set: the rows of a range, and the table of the rows of all ranges.

    For `score_shards`: CGIM and all intervals need all images together, so a row holds, besides the scores
    of an image by one model, the importance of its concepts (12 bytes a concept), and `table` adds them up in the order
    of one pass. The numbers are those of `score_concepts` to the bit.

    Parameters
    ----------
    model : ConceptModel or dict
        As in `score_concepts`.
    data : Dataset
        Samples by number, as the loader of `score_concepts` reads them: tuples of image, class, concept labels and part
        points, or dicts. What is known of all images (``class_concepts``, ``part_of_concept``, ``added``, ...) is read
        off it likewise. Where there are points and `baselines`, samples of other ranges are read for theirs.
    batch_size : int
        Images of a batch; ranges begin where a batch does.
    num_workers : int
        Processes that read the images of a range, 0 for none.
    baselines : bool
        As in `score_concepts`.
    seed : int
        As in `score_concepts`.
    **settings : Any
        Further arguments of `score_concepts`: `class_concepts`, `part_of_concept`, `explanations`, `top_l`, `alphas`,
        `value_threshold`, `controls`, `control_stride`, `interventions`, `levels`, `class_names`, `concept_names`.

    Raises
    ------
    TypeError
        If a model is no concept model, `data` has no length, or an argument is unknown or of the wrong kind.
    ValueError
        If an argument is out of its range, or `data` is empty.
    """

    @check_arguments(model=ConceptModels(), batch_size=Whole(1), num_workers=Whole(), baselines=Flag(), seed=Seed())
    def __init__(
        self,
        model: ConceptModel | Mapping[str, ConceptModel],
        data: Any,
        *,
        batch_size: int = 64,
        num_workers: int = 0,
        baselines: bool = True,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
            raise TypeError(
                f"Expected argument `data` to be a data set with samples by number but got {type(data).__name__}."
            )
        if not len(data):
            raise ValueError("Expected argument `data` to hold at least one image but it is empty.")
        further = [*SETTINGS, "levels"]
        if unknown := sorted(settings.keys() - set(further)):
            raise TypeError(f"Expected further arguments among {further} but got `{unknown[0]}`.")
        self.model, self.data = model, data
        self.batch_size, self.num_workers = batch_size, num_workers
        self.baselines, self.seed = baselines, seed
        known = {name: getattr(data, name, None) for name in ("class_concepts", "part_of_concept", *NAMES)}
        given: dict[str, Any] = {
            name: SETTINGS[name].check(name, value, {}) if name in SETTINGS else value
            for name, value in (known | settings).items()
            if value is not None
        }
        self._names = {name: given.pop(name, None) for name in NAMES}
        self._asked = given | {"interventions": in_every_order(given.get("interventions", ()), seed)}
        # Validate the settings now.
        self._stream()

    def __repr__(self) -> str:
        return described(self, f"{len(self.data)} images", model=self.model, batch_size=self.batch_size)

    @check_arguments(lambda self: {"N": len(self.data)}, start=Whole(), stop=Whole(1, "N", "images"))
    def rows(self, start: int, stop: int) -> pd.DataFrame:
        """Score some images.

        Parameters
        ----------
        start : int
            Number of the first image, a multiple of the batch size.
        stop : int
            Number of the image after the last.

        Returns
        -------
        DataFrame
            A row for each model or control and image, for `table`; not to be read otherwise.

        Raises
        ------
        ValueError
            If there is no such range, or `score_concepts` would refuse the images.
        """
        if start % self.batch_size:
            raise ValueError(
                f"Expected argument `start` to be a multiple of the batch size, {self.batch_size}, so that batches are "
                f"those of a single pass, but got {start}. Pass the same `batch_size` to `score_shards`."
            )
        if stop <= start:
            raise ValueError(f"Expected argument `stop` to lie above `start`, {start}, but got {stop}.")
        images = range(start, stop)
        loader: DataLoader[Any] = DataLoader(
            Subset(self.data, images), self.batch_size, num_workers=self.num_workers, generator=torch.Generator()
        )
        elsewhere = EarlierPoints(self.seed, start, self._points_of) if self.baselines else None
        stream = self._stream(start=start, record=True)
        stream.run(loader, {name: each[start:stop] for name, each in self._substituted().items()}, elsewhere)
        return stream.rows()

    @check_arguments(rows=Instance(data_frame, "a pandas.DataFrame"), per_image=Flag())
    def table(self, rows: pd.DataFrame, *, per_image: bool = False) -> pd.DataFrame:
        """Put the rows of all images together.

        Parameters
        ----------
        rows : DataFrame
            Joined results of `rows` for all ranges: the result of `score_shards`.
        per_image : bool
            As in `score_concepts`.

        Returns
        -------
        DataFrame
            As `score_concepts` returns it.

        Raises
        ------
        TypeError
            If `rows` is no DataFrame.
        ValueError
            If `rows` is not of all images, or of other models.
        """
        stream = self._stream()
        counts = rows["model"].value_counts() if {"model", "columns", "shape"} <= {*rows} else pd.Series(dtype=int)
        expected = dict.fromkeys(range(len(stream.columns)), len(self.data))
        if counts.to_dict() != expected:
            raise ValueError(
                f"Expected argument `rows` to hold what `rows` gave for all {len(self.data)} images and "
                f"{len(stream.columns)} models and controls, {sum(expected.values())} rows, but got {len(rows)}."
            )
        stream.load(rows, self.batch_size)
        return concept_images(stream) if per_image else concept_table(stream, **self._names)

    def _stream(self, **settings: Any) -> ConceptStream:
        return concept_stream(self.model, **self._asked, **settings)

    def _substituted(self) -> dict[str, np.ndarray]:
        if self._asked.get("value_threshold") is None:
            return {}
        known = {name: getattr(self.data, name, None) for name in ("added", "removed")}
        return {name: SUBSTITUTES.check(name, each, {}) for name, each in known.items() if each is not None}

    def _points_of(self, images: Sequence[int]) -> Tensor:
        samples = (self.data[image] for image in images)
        place = FIELDS.index("points")
        found = [each["points"] if isinstance(each, Mapping) else each[place] for each in samples]
        return torch.stack([torch.as_tensor(each) for each in found])
