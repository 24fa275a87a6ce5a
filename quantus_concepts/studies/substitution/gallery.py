"""Pairs of painted birds before and after a substitution, and their pictures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils.data import Dataset

from quantus_concepts.datasets import PaintedSubstitutions, SubstitutionSample
from quantus_concepts.metrics.host.model import ConceptModel, concept_outputs
from quantus_concepts.studies._kit.charts import INK, PALETTE
from quantus_concepts.studies._models.loading import KeptImages
from quantus_concepts.studies._models.oracle import Recognition
from quantus_concepts.studies.substitution.names import (
    CLASS_HARD,
    EMBEDDING,
    INDEPENDENT,
    POST_HOC,
    RECITER,
    SEPARATE,
    row_name,
)


class KeptPairs(Dataset[SubstitutionSample]):
    """Substitutions whose images are painted once and kept as 8-bit numbers."""

    added: Tensor
    removed: Tensor
    pairs: Tensor
    labels: Tensor
    concept_labels: Tensor
    concept_labels_before: Tensor
    class_concepts: Tensor
    class_names: list[str]
    concept_names: list[str]

    def __init__(self, data: PaintedSubstitutions) -> None:
        samples = [data[index] for index in range(len(data))]
        self.after, self.before = (
            (torch.stack(images) * 255).round().to(torch.uint8)
            for images in ([each.image for each in samples], [each.before for each in samples])
        )
        self.points = torch.stack([each.points for each in samples])
        for name in KeptPairs.__annotations__:
            setattr(self, name, getattr(data, name))

    def __len__(self) -> int:
        return len(self.added)

    def __getitem__(self, index: int) -> SubstitutionSample:
        """Return one sample; raises IndexError past the end."""
        after, before = (images[index].float() / 255 for images in (self.after, self.before))
        label = int(self.labels[index])
        return SubstitutionSample(after, label, self.concept_labels[index], self.points[index], before)

    def described(self) -> dict[str, str]:
        """Return what a report lists."""
        found = {"substitutions": str(len(self)), "pairs of class and attribute": str(len(self.pairs.unique()))}
        return found | {"attributes put in": str(len(self.added.unique()))}

    def known(self, seen: KeptImages) -> tuple[Recognition, Tensor, Tensor]:
        """Return what knows every image, after, before, and without a substitution; with their concepts and classes."""
        images = torch.cat([self.after, self.before, seen.images]).float() / 255
        concepts = torch.cat([self.concept_labels, self.concept_labels_before, seen.concept_labels])
        return Recognition(list(images)), concepts, torch.cat([self.labels, self.labels, seen.labels])


N_ROWS = 6
#: Names of models, one of each kind, and their heads: more columns cannot be read.
COLUMNS = {
    row_name(POST_HOC, CLASS_HARD): "post-hoc\nCBM",
    row_name(INDEPENDENT, CLASS_HARD): "CBM,\nindependent",
    row_name(SEPARATE, CLASS_HARD): "CBM, network\nper concept",
    row_name(EMBEDDING, CLASS_HARD): "concept\nembedding",
    RECITER: "memoriser,\nown class",
}
#: Of what a model says: only what was put in, what was taken out, anything else.
GOOD, BAD, OTHER = PALETTE[2], PALETTE[0], "#8A8A8A"


def draw_gallery(
    models: Mapping[str, ConceptModel], pairs: KeptPairs, threshold: Mapping[str, float], seed: int
) -> Figure:
    """Draw some substitutions of different attributes, with what models say of the image after."""
    rows = _different(pairs, seed)
    samples = [pairs[index] for index in rows]
    after = torch.stack([sample.image for sample in samples])
    shown = [name for name in COLUMNS if name in models]
    said = [concept_outputs(models[name], after).values.cpu() >= threshold[name] for name in shown]
    # One pair of axes for all: each of its own would take longer than the models.
    columns = ["before", "after", *(COLUMNS[name] for name in shown)]
    fig = Figure(figsize=(1.6 + 0.9 * len(columns), 0.5 + 0.9 * len(rows)), layout="constrained")
    ax = fig.add_subplot()
    for place, (index, sample) in enumerate(zip(rows, samples, strict=True)):
        added, removed = int(pairs.added[index]), int(pairs.removed[index])
        for column, image in enumerate((sample.before, sample.image)):
            ends = (column + 0.03, column + 0.97, place + 0.97, place + 0.03)
            ax.imshow(image.permute(1, 2, 0).clamp(0, 1), extent=ends)
        for column, present in enumerate(said, start=2):
            text, colour = _told(pairs, present[place], added, removed)
            ax.text(column + 0.5, place + 0.5, text, ha="center", va="center", fontsize=9, color=colour)
    for column, title in enumerate(columns):
        ax.text(column + 0.5, -0.06, title, ha="center", va="bottom", fontsize=8, color=INK)
    ax.set_yticks([place + 0.5 for place in range(len(rows))], [_exchange(pairs, index) for index in rows], fontsize=9)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks([])
    ax.tick_params(length=0, labelcolor=INK)
    # To the right: room for what is written on the left.
    ax.set_aspect("equal", anchor="E")
    for spine in ax.spines.values():
        spine.set_visible(False)
    return fig


def _exchange(pairs: KeptPairs, index: int) -> str:
    old, new = (pairs.concept_names[int(of[index])].partition("::") for of in (pairs.removed, pairs.added))
    return f"{new[0].removeprefix('has_').replace('_', ' ')}:\n{old[2]}\n→ {new[2]}"


def _different(pairs: KeptPairs, seed: int) -> list[int]:
    """Return some substitutions, of as many attributes as there are."""
    order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
    groups = [pairs.concept_names[int(pairs.added[index])].partition("::")[0] for index in order]
    # Of each group the first, which comes last here.
    seen = dict(zip(reversed(groups), reversed(order), strict=True))
    first = sorted(seen.values(), key=order.index)
    return (first + [index for index in order if index not in first])[:N_ROWS]


def _told(pairs: KeptPairs, present: Tensor, added: int, removed: int) -> tuple[str, str]:
    """Return which options of the touched group a model says are there, and the colour of that."""
    group = pairs.concept_names[added].partition("::")[0]
    members = [place for place, name in enumerate(pairs.concept_names) if name.partition("::")[0] == group]
    parts = [place for place in members if present[place]]
    colour = GOOD if parts == [added] else BAD if removed in parts else OTHER
    return "\n".join(pairs.concept_names[place].partition("::")[2] for place in parts) or "none", colour
