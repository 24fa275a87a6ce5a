"""The model card of a concept model: the template `card.md`, with metadata in YAML before it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import ModelCard, ModelCardData
from torch import nn

from captum_concepts.models.files import ModelContents
from captum_concepts.support.files import printable

if TYPE_CHECKING:
    import pandas as pd

#: Rows of a table of scores that are shown.
_ROWS = 100


def make_card(
    repo_id: str,
    model: ModelContents,
    metrics: pd.DataFrame | None = None,
    description: str = "",
    license: str | None = None,
) -> ModelCard:
    """Return the card: what the model is, how to load it, its backbone, its concepts and scores."""
    bank, names = model.bank, model.concept_names
    base = (model.backbone.source or "").split(":", 2)
    metadata = ModelCardData(
        library_name="quantus-concepts",
        pipeline_tag="image-classification",
        tags=["concept-bottleneck-model", "interpretability", "captum", "quantus"],
        license=license,
        base_model=base[2] if base[0] == "transformers" else f"timm/{base[1]}" if base[0] == "timm" else None,
    )
    widths = [layer.out_features for layer in model.head.modules() if isinstance(layer, nn.Linear)]
    accuracies = [] if bank is None else zip(bank.names, bank.test_accuracy, bank.train_accuracy, strict=True)
    return ModelCard.from_template(
        metadata,
        template_path=str(Path(__file__).with_name("card.md")),
        title=repo_id.rpartition("/")[2],
        repo_id=repr(repo_id),
        description=description,
        model=model,
        backbone=model.backbone,
        bank=bank,
        names=names,
        concepts="concepts" if names is None else f"{len(names)} concepts",
        classes=f"{widths[-1]} classes" if widths else "classes",
        accuracies=[(name, *map(float, numbers)) for name, *numbers in accuracies],
        metrics=metrics,
        rows=_ROWS,
        text=_text,
        code=_code,
        cell=_cell,
        numbers=_numbers,
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else _text(f"{value:.4g}")
    return _text(value)


def _numbers(values: Sequence[float]) -> list[float]:
    return [round(float(value), 4) for value in values]


def _text(text: object) -> str:
    """Return a text that breaks no table and brings no markup of its own."""
    plain = printable(text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`|*_\[\]!#~$])", r"\\\1", plain)


def _code(text: object) -> str:
    """Return a text as code, in which only the sign that ends it is replaced."""
    return "`" + printable(text).replace("`", "'") + "`"
