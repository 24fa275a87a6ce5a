"""Some substitutions, before and after, and what models say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from captum_concepts.texts import readable_name
from quantus_concepts.metrics.host.model import ConceptModel, concept_outputs
from quantus_concepts.studies._kit.galleries import GalleryRow
from quantus_concepts.studies._kit.plots import INK, PALETTE
from quantus_concepts.studies.substitution import kinds
from quantus_concepts.studies.substitution.kept_pairs import KeptPairs

N_ROWS = 6
#: Names of models, one of each kind, and their heads: more columns cannot be read.
GALLERY_COLUMNS = {
    kinds.row_name(kinds.POST_HOC, kinds.CLASS_HARD): "post-hoc",
    kinds.row_name(kinds.INDEPENDENT, kinds.CLASS_HARD): "independent",
    kinds.row_name(kinds.SEPARATE, kinds.CLASS_HARD): "net per\nconcept",
    kinds.row_name(kinds.EMBEDDING, kinds.CLASS_HARD): "embedding",
    kinds.RECITER: "recites\nits class",
}
#: What a model names: only the option put in, the one taken out, anything else.
PUT_IN, TAKEN_OUT, OTHER = "put in", "taken out", "other"
COLOURS = {PUT_IN: PALETTE[2], TAKEN_OUT: PALETTE[0], OTHER: "#8A8A8A"}


@dataclass(frozen=True)
class Gallery:
    """Images (n, 2, 3, H, W) of uint8, before and after, and a row for the answer of each model on each."""

    images: Tensor
    #: ``substitution, model, options, answer``.
    answers: pd.DataFrame


def choose_shown_pairs(pairs: KeptPairs, seed: int) -> list[int]:
    """Return some substitutions, of as many attributes as there are."""
    order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
    groups = [pairs.concept_names[int(pairs.added[index])].partition("::")[0] for index in order]
    first = [index for place, index in enumerate(order) if groups[place] not in groups[:place]]
    return (first + [index for index in order if index not in first])[:N_ROWS]


def read_answers(models: Mapping[str, ConceptModel], pairs: KeptPairs, rows: Sequence[int]) -> pd.DataFrame:
    """Return the options of the touched group that models see in the images after the substitution."""
    after = torch.stack([pairs[index].image for index in rows])
    limits, names, answers = kinds.thresholds(models), pairs.concept_names, []
    for model in [name for name in GALLERY_COLUMNS if name in models]:
        present = concept_outputs(models[model], after).values.cpu() >= limits[model]
        for place, index in enumerate(rows):
            added, removed = int(pairs.added[index]), int(pairs.removed[index])
            group, _, new = names[added].partition("::")
            parts = [number for number in range(len(names)) if names[number].partition("::")[0] == group]
            parts = [number for number in parts if present[place, number]]
            answer = PUT_IN if parts == [added] else TAKEN_OUT if removed in parts else OTHER
            options = "\n".join(names[number].partition("::")[2] for number in parts) or "none"
            text = f"{readable_name(group)}:\n{names[removed].partition('::')[2]}\n→ {new}"
            answers.append((place, text, model, options, answer))
    return pd.DataFrame(answers, columns=["place", "substitution", "model", "options", "answer"])


def answer_rows(gallery: Gallery) -> tuple[list[str], list[GalleryRow]]:
    """Return the columns and rows of a gallery: the images, and the answers of each model on the image after."""
    names = list(dict.fromkeys(gallery.answers["model"]))
    rows = []
    for place, images in enumerate(gallery.images):
        answers = gallery.answers[gallery.answers["place"] == place].set_index("model").loc[names]
        cells = [*(image.permute(1, 2, 0).numpy() for image in images), *answers["options"]]
        colours = [INK, INK, *answers["answer"].map(COLOURS)]
        rows.append(GalleryRow(answers["substitution"].iloc[0], cells, colours=colours))
    return ["before", "after", *(GALLERY_COLUMNS[name] for name in names)], rows
