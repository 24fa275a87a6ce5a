"""Names of the models, labels and numbers, as results.csv and the report have them."""

from __future__ import annotations

from quantus_concepts.metrics.streaming.vision_language import WITH_NONE, WITHOUT_NONE

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
#: Of vision-language models, in place of labels: whether "none" is among the options.
ASKED = (WITH_NONE, WITHOUT_NONE)

#: In the order of every table.
TRAINED = (POST_HOC, INDEPENDENT, JOINT, SEPARATE, EMBEDDING, SAVED)
CONTROLS = (ORACLE, MEMORISER, RECITER, RANDOM)
MODELS = (*TRAINED, *CONTROLS)

CLASS_HARD, CLASS_SOFT = "per class, hard", "per class, soft"
IMAGE_HARD, IMAGE_SOFT = "per image, hard", "per image, soft"
LABELS = (CLASS_HARD, CLASS_SOFT, IMAGE_HARD, IMAGE_SOFT)
#: Which models are trained on which labels: the paper's rows, and of one more kind those that its labels allow.
ROWS = {
    POST_HOC: (CLASS_HARD, IMAGE_HARD),
    INDEPENDENT: LABELS,
    JOINT: LABELS,
    SEPARATE: (CLASS_HARD,),
    EMBEDDING: (CLASS_HARD, IMAGE_HARD),
}
#: Of the curve over the correlation: a post-hoc and a traditional model, as the paper's data have labels.
CURVE = {POST_HOC: (CLASS_HARD,), INDEPENDENT: (CLASS_HARD,)}

#: Between the name of a model and that of its labels, where both are one name.
OF = " | "


def row_name(model: str, labels: str = "") -> str:
    """Name a model with its labels."""
    return f"{model}{OF}{labels}" if labels else model
