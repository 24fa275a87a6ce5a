"""The paper's ablations (Tables 15 to 20), and of the loss, as declarations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quantus_concepts.studies.pasta.names import DRAWING, SCORER


@dataclass(frozen=True)
class Variant:
    """One choice; all it does not name is as by default."""

    name: str
    embedding: tuple[tuple[str, Any], ...] = ()
    votes: str = "mode"
    labelled: bool = True
    training: tuple[tuple[str, Any], ...] = ()
    regressor: str = ""
    drawn: bool = True


@dataclass(frozen=True)
class Ablation:
    """Choices held against each other: the first one is the default, which the others differ from."""

    title: str
    about: str
    variants: tuple[Variant, ...]
    table: int | None = None
    #: The kind of explanation that the choice concerns; "" for all.
    modality: str = ""


def _each(argument: str, *values: Any, drawn: bool = True) -> tuple[Variant, ...]:
    return tuple(Variant(str(value), ((argument, value),), drawn=drawn) for value in values)


#: By the name that `--tables` takes; numbers are the paper's.
ABLATIONS = {
    "votes": Ablation(
        "How votes are joined",
        "Each is tested against votes joined its own way, as in the paper: the target changes as well as the training.",
        (Variant("mode"), Variant("mean", votes="mean"), Variant("median", votes="median")),
        15,
    ),
    "labels": Ablation(
        "Whether the scorer is told the class",
        "The class, one-hot, before the embedding, or the embedding alone.",
        (Variant("embedding and label"), Variant("embedding alone", labelled=False)),
        16,
    ),
    "scorers": Ablation(
        "Scoring functions",
        "The network and three regressors on the same inputs.",
        (
            Variant(SCORER),
            Variant("SVM", regressor="svm"),
            Variant("ridge", regressor="ridge"),
            Variant("lasso", regressor="lasso"),
        ),
        17,
    ),
    "saliency": Ablation(
        "How maps are shown",
        "Laid over the image (Eq. 1), or the image times the map (Eq. 14); and, where ratings come with the drawings "
        "that people saw, these. The embedded encoder is scaled to pictures laid over, so that the others fall outside "
        "of what it tells apart.",
        (*_each("saliency", "overlay", "masked", drawn=False), Variant(DRAWING)),
        18,
        "map",
    ),
    "n-top": Ablation(
        "How many concepts are named",
        "Of the text of an explanation by concepts; one with fewer concepts names all it has.",
        _each("n_top", 15, 5, 10, 20),
        19,
        "concepts",
    ),
    "concepts": Ablation(
        "How concepts are embedded",
        "The names of the first concepts as one text, with or without a template; or the mean of all embeddings, "
        "each name's times its value (Eq. 15).",
        (
            Variant("sentence"),
            Variant("weighted", (("concepts", "weighted"),)),
            Variant("sentence with template", (("template", "Concepts in explanation: {}"),)),
        ),
        20,
        "concepts",
    ),
    "losses": Ablation(
        "The loss",
        "The paper's sum of three losses, the release's weights and losses, and the paper's without one of the three.",
        (
            Variant("paper"),
            Variant("release", training=(("loss", "release"),)),
            Variant("without cosine", training=(("weights", (0.0, 0.001, 0.01)),)),
            Variant("without squared", training=(("weights", (1.0, 0.0, 0.01)),)),
            Variant("without ranking", training=(("weights", (1.0, 0.001, 0.0)),)),
        ),
    ),
}
