"""The kinds of models and labels that the study compares, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

POST_HOC = "post-hoc CBM"
INDEPENDENT = "CBM, independent"
JOINT = "CBM, joint"
SEPARATE = "CBM, one network per concept"
EMBEDDING = "concept embedding model"
SAVED = "post-hoc CBM, saved"
ORACLE = "oracle"
MEMORISER = "class-memoriser"
RECITER = "class-memoriser, own class"
RANDOM = "random directions"
TRAINED = (POST_HOC, INDEPENDENT, JOINT, SEPARATE, EMBEDDING, SAVED)
CONTROLS = (ORACLE, MEMORISER, RECITER, RANDOM)
#: In the order of every table, with the names where there is little room.
SHORT = {POST_HOC: "post-hoc", INDEPENDENT: "independent", JOINT: "joint", SEPARATE: "net per concept"}
SHORT |= {EMBEDDING: "embedding", SAVED: "saved", ORACLE: "oracle", MEMORISER: "memoriser"}
SHORT |= {RECITER: "recites its class", RANDOM: "random"}

CLASS_HARD, CLASS_SOFT = "per class, hard", "per class, soft"
IMAGE_HARD, IMAGE_SOFT = "per image, hard", "per image, soft"
LABELS = (CLASS_HARD, CLASS_SOFT, IMAGE_HARD, IMAGE_SOFT)
Rows = Mapping[str, Sequence[str]]
#: Which models are trained on which labels: the paper's rows, and those of concept embedding models.
ROWS: Rows = {
    POST_HOC: (CLASS_HARD, IMAGE_HARD),
    INDEPENDENT: LABELS,
    JOINT: LABELS,
    SEPARATE: (CLASS_HARD,),
    EMBEDDING: (CLASS_HARD, IMAGE_HARD),
}
#: The models of the curve over the correlation, trained with labels as in the paper.
CURVE: Rows = {POST_HOC: (CLASS_HARD,), INDEPENDENT: (CLASS_HARD,)}
#: Separates a model from its labels in a name of both.
OF = " | "


def row_name(model: str, labels: str = "") -> str:
    """Name a model with its labels."""
    return f"{model}{OF}{labels}" if labels else model


def thresholds(models: Iterable[str]) -> dict[str, float]:
    """Return the threshold of each model: 0 for margins, 0.5 for shares."""
    return {name: 0.0 if name.startswith((POST_HOC, RANDOM)) else 0.5 for name in (*models, RANDOM)}
