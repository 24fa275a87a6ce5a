"""What an encoder is shown of an explanation: a picture, or a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from captum_concepts._support.checks import check_choice, check_range, check_shape, check_whole
from captum_concepts._support.running import to_host
from captum_concepts._support.shown import described
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.functional.arguments import finite_rows
from quantus_concepts.functional.overlay import (
    NORMALISATIONS,
    colour_map,
    masked_levels,
    overlay_levels,
    resized,
    unit_maps,
)
from quantus_concepts.functional.upsampling import check_maps
from quantus_concepts.pasta.encoder import check_image_form, check_image_values
from quantus_concepts.pasta.preprocessing import resized_levels, to_levels
from quantus_concepts.pasta.sentences import SENTENCES, check_template, concept_sentence, released_sentence

SALIENCIES = ("overlay", "masked")
CONCEPTS = ("sentence", "weighted")
#: Side of a picture in pixels; encoders take 224 to 1024. Files of scorers hold it, and a batch has sixteen.
MAX_SIZE = 2048


@dataclass
class Presentation:
    """How explanations are shown: the arguments of `Embedder` that settle what is embedded, under its names."""

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
        colour_map(self.colours)
        check_choice("normalise", self.normalise, NORMALISATIONS)
        check_choice("concepts", self.concepts, CONCEPTS)
        check_choice("sentence", self.sentence, SENTENCES)
        check_template(self.template)
        changed = self.template or self.concepts != "sentence" or self.ascending or not self.trailing_comma
        if self.sentence == "release" and changed:
            raise ValueError(
                "Expected arguments `template`, `concepts`, `ascending` and `trailing_comma` as they are by default "
                'beside sentence="release", which is fixed. Leave them out.'
            )
        # As JSON can hold them.
        self.size, self.n_top = check_whole("size", self.size, 1, MAX_SIZE), check_whole("n_top", self.n_top, 1)
        self.weight = float(self.weight)
        self.ascending, self.trailing_comma = bool(self.ascending), bool(self.trailing_comma)

    def line_of(self, embedder: object, *facts: str, **settings: Any) -> str:
        """Return an embedder on one line, with what is shown in another way than by default."""
        changed = {name: value for name, value in vars(self).items() if value != getattr(Presentation, name)}
        return described(embedder, *facts, **changed, **settings)

    def of_picture(self, normalise: str) -> dict[str, Any]:
        """Return what settles the picture of a map that is brought to [0, 1] in some way."""
        shown = {"weight": self.weight, "colours": self.colours} if self.saliency == "overlay" else {}
        return {"saliency": self.saliency, "size": self.size, "normalise": normalise, **shown}

    def levels(self, images: Tensor, maps: Tensor, normalise: str) -> Tensor:
        """Return pictures (n, 3, size, size) of uint8: maps (n, h, w), brought to [0, 1] in some way, on images."""
        size = (self.size, self.size)
        if tuple(images.shape[-2:]) != size:
            images = resized_levels(to_levels(images), size).float() / 255
        maps = resized(unit_maps(maps, normalise)[:, None], size)[:, 0]
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


def check_pairs(images: Tensor, maps: Tensor, *, values: bool = True) -> None:
    """Raise unless maps are (N, h, w), and of images (N, 3, H, W); and finite, and in [0, 1], where values count."""
    check_image_form(images)
    check_maps(maps)
    check_shape("maps", maps, ("N", "h", "w"), (len(images), None, None))
    if not values or not images.numel():
        return
    low, high, finite = to_host(*torch.aminmax(images.detach()), finite_rows(maps))
    check_image_values(low, high)
    if not finite.all():
        raise ValueError(
            f"Expected argument `maps` to be finite but {int((~finite).sum())} of {len(maps)} hold NaN or infinity. "
            "Leave them out; Embedder.usable_maps(maps) tells which."
        )
