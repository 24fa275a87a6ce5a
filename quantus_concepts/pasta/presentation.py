"""The picture, or the sentence of concepts, by which an encoder sees an explanation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from captum_concepts.support.checks import check_choice, check_range, check_whole
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.pasta.encoders.overlay import (
    NORMALISATIONS,
    colour_table,
    masked_levels,
    overlay_levels,
    resize,
    resized_levels,
    to_levels,
    unit_maps,
)

SLOT = "{}"
SENTENCES = ("ours", "release")
#: Start of the release's search for the value of a counterfactual, which only larger values replace.
_START_OF_COUNTERFACTUALS = 10000.0


def concept_sentence(
    values: Mapping[str, float],
    *,
    n_top: int = 15,
    ascending: bool = False,
    template: str = "",
    trailing_comma: bool = True,
) -> str:
    """Name the most important concepts, in order."""
    # Kazmierczak et al. (PASTA), Eq. 2: the `n_top` concepts of the largest magnitude. As in their released code,
    # equal magnitudes come in reverse alphabetical order, and a comma and a blank follow the last name too.
    if not values:
        raise ValueError("Expected argument `values` to have at least one concept but it is empty.")
    broken = [name for name, value in values.items() if not math.isfinite(value)]
    if broken:
        raise ValueError(
            f"Expected argument `values` to be finite but {len(broken)} are NaN or infinite, the first of "
            f"{broken[0]!r}. Leave this explanation out."
        )
    ordered = sorted(((abs(float(value)), str(name)) for name, value in values.items()), reverse=not ascending)
    names = ", ".join(name for _, name in ordered[:n_top]) + (", " if trailing_comma else "")
    return template.replace(SLOT, names) if template else names


def released_sentence(
    written: Mapping[str, float], concepts: Sequence[str], *, counterfactual: bool = False, n_top: int = 15
) -> str:
    """Write the sentence exactly as the release of Kazmierczak et al. (PASTA) does, for the scorers trained on it."""
    # It goes through the data set's list of concepts. The value of a concept is that of the last entry whose key
    # contains its name ("wheel" takes "chain_wheel"), 0 without one; then by descending magnitude, ties in reverse
    # alphabetical order. For counterfactuals the search begins at 10000, only a larger magnitude replaces it, and
    # the order is ascending: in effect the sentence is the list in alphabetical order.
    if not concepts:
        raise ValueError("Expected argument `concepts` to name at least one concept but it is empty.")
    undefined = [key for key, value in written.items() if math.isnan(value)]
    if undefined:
        raise ValueError(f"Expected argument `written` to hold numbers but {undefined[0]!r} is NaN.")
    values = [_START_OF_COUNTERFACTUALS if counterfactual else 0.0] * len(concepts)
    for place, concept in enumerate(concepts):
        for key, value in written.items():
            if counterfactual and not abs(value) > values[place]:
                continue
            if concept in (key.split("(")[0] if counterfactual else key):
                values[place] = value
    magnitudes = [abs(value) for value in values]
    ordered = sorted(zip(magnitudes, concepts, strict=True), reverse=not counterfactual)
    return "".join(f"{concept}, " for _, concept in ordered[:n_top])


SALIENCIES = ("overlay", "masked")
CONCEPTS = ("sentence", "weighted")
#: Side of a picture in pixels; encoders take 224 to 1024. Files of scorers hold it, and a batch has sixteen.
MAX_SIZE = 2048


@dataclass
class Presentation:
    """How explanations are shown: the arguments of `Embedder` on which embeddings depend."""

    saliency: str = "overlay"
    weight: float = 0.5
    colours: str = "bwr"
    size: int = 224
    normalise: str = "min-max"
    n_top: int = 15
    ascending: bool = False
    template: str = ""
    concepts: str = "sentence"
    trailing_comma: bool = True
    sentence: str = "ours"

    def __post_init__(self) -> None:
        check_choice("saliency", self.saliency, SALIENCIES)
        check_range("weight", self.weight, 0, 1)
        check_choice("normalise", self.normalise, NORMALISATIONS)
        check_choice("concepts", self.concepts, CONCEPTS)
        check_choice("sentence", self.sentence, SENTENCES)
        # Plain numbers and bools: NumPy's are no JSON.
        self.weight = float(self.weight)
        self.size = check_whole("size", self.size, 1, MAX_SIZE)
        self.n_top = check_whole("n_top", self.n_top, 1)
        self.ascending, self.trailing_comma = bool(self.ascending), bool(self.trailing_comma)
        colour_table(self.colours)
        if self.template and SLOT not in self.template:
            raise ValueError(
                f"Expected argument `template` to have {SLOT} where the names of the concepts go but got "
                f"{self.template!r}."
            )
        changed = self.template or self.concepts != "sentence" or self.ascending or not self.trailing_comma
        if self.sentence == "release" and changed:
            raise ValueError(
                "Expected arguments `template`, `concepts`, `ascending` and `trailing_comma` as they are by default "
                'with sentence="release", which is fixed. Leave them out.'
            )

    def of_picture(self, normalise: str) -> dict[str, Any]:
        """Return the settings on which the picture of a map depends."""
        overlay = {"weight": self.weight, "colours": self.colours} if self.saliency == "overlay" else {}
        return {"saliency": self.saliency, "size": self.size, "normalise": normalise, **overlay}

    def levels(self, images: Tensor, maps: Tensor, normalise: str) -> Tensor:
        """Return pictures (n, 3, size, size) of uint8: maps (n, h, w), normalised, on images."""
        size = (self.size, self.size)
        if tuple(images.shape[-2:]) != size:
            images = resized_levels(to_levels(images), size).float() / 255
        maps = resize(unit_maps(maps, normalise)[:, None], size)[:, 0]
        if self.saliency == "masked":
            return masked_levels(images, maps)
        return overlay_levels(images, maps, weight=self.weight, colours=self.colours)

    def text(self, explanation: ConceptExplanation) -> str:
        """Return the names of the most important concepts, as the sentence that is encoded."""
        if self.sentence == "release":
            return released_sentence(
                explanation.values if explanation.written is None else explanation.written,
                explanation.vocabulary or tuple(explanation.values),
                counterfactual=explanation.ascending,
                n_top=self.n_top,
            )
        return concept_sentence(
            explanation.values,
            n_top=self.n_top,
            ascending=explanation.ascending or self.ascending,
            template=self.template,
            trailing_comma=self.trailing_comma,
        )
