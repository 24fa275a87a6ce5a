"""Colours, markers and labels of the concept report's figures."""

from __future__ import annotations

from quantus_concepts.studies.concepts.results import GAUSSIAN, ORACLE, OTHER_IMAGE, POST_HOC, RANDOM, TRADITIONAL

#: Okabe and Ito's colours, which colour-blind readers tell apart; the marker says the same again.
COLOURS = {
    POST_HOC: "#D55E00",
    TRADITIONAL: "#0072B2",
    ORACLE: "#009E73",
    RANDOM: "#8A8A8A",
    OTHER_IMAGE: "#CC79A7",
    GAUSSIAN: "#B8860B",
}
#: Of the band of the random control.
CONTROL = "#C9C9C9"
MARKERS = {POST_HOC: "o", TRADITIONAL: "s", ORACLE: "^", RANDOM: "D", OTHER_IMAGE: "x", GAUSSIAN: "+"}
EXPLANATION_LABELS = {
    "weight": "weight θ",
    "value": "concept value u",
    "contribution": "contribution θ·u",
}


def colour_of(model: str) -> str:
    """Return the colour of a model."""
    return COLOURS.get(model, "#56B4E9")
