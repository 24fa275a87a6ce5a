"""The model card of a concept model: Markdown, with metadata in YAML before it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCardData
from torch import nn

from captum_concepts._support.files import printable
from captum_concepts.models.files import BackboneFacts, ModelContents

if TYPE_CHECKING:
    import pandas as pd

#: Rows of a table of scores that are shown.
_ROWS = 100
_VALUES = {
    "margin": "signed distances of the embedding from each concept's boundary, in units of the embedding",
    "raw": "products of the embedding and each concept's vector",
}
_RESIDUAL = (
    "A residual on the embedding adds to the logits what the concepts do not say (PCBM-h). Concept metrics are those "
    "of the bottleneck without it, and interventions leave it as it is."
)


def write_card(
    repo_id: str,
    model: ModelContents,
    metrics: pd.DataFrame | None = None,
    description: str = "",
    license: str | None = None,
) -> str:
    """Return the card: what the model is, how to load it, its backbone, its concepts and scores."""
    bank, backbone = model.bank, model.backbone
    base = (backbone.source or "").split(":", 2)
    metadata = ModelCardData(
        library_name="quantus-concepts",
        pipeline_tag="image-classification",
        tags=["concept-bottleneck-model", "interpretability", "captum", "quantus"],
        license=license,
        base_model=base[2] if base[0] == "transformers" else f"timm/{base[1]}" if base[0] == "timm" else None,
    )
    widths = [layer.out_features for layer in model.head.modules() if isinstance(layer, nn.Linear)]
    classes = f"{widths[-1]} classes" if widths else "classes"
    fitted = ", ".join(f"{_text(name)} = {_text(_cell(value))}" for name, value in bank.settings.items())
    accuracies = zip(bank.names, bank.test_accuracy.tolist(), bank.train_accuracy.tolist(), strict=True)
    sections = [
        f"# {_text(repo_id.rpartition('/')[2])}",
        description,
        f"A post-hoc concept bottleneck model: {len(bank)} concepts, read from the embedding of a frozen backbone, "
        f"from which {classes} are predicted.",
        _RESIDUAL if model.residual is not None else "",
        f"## Use\n\n```python\n{_usage(repo_id, model)}\n```",
        f"## Backbone\n\n{_backbone(backbone)}",
        f"## Concepts\n\nValues are `{model.values}`: {_VALUES[model.values]}. Accuracies are balanced: chance is .5, "
        "also where few images have the concept; those held back were not fitted on."
        + (f" Fitted with {fitted}." if fitted else ""),
        _table(["concept", "held back", "fitted on"], accuracies),
    ]
    if metrics is not None:
        rows = metrics.head(_ROWS).itertuples(index=False, name=None)
        sections.append(f"## Scores\n\n{_table([str(name) for name in metrics.columns], rows)}")
        if len(metrics) > _ROWS:
            sections.append(f"{len(metrics) - _ROWS} more rows are not shown.")
    return f"---\n{metadata.to_yaml()}\n---\n\n" + "\n\n".join(filter(None, sections)) + "\n"


def _usage(repo_id: str, model: ModelContents) -> str:
    backbone = "download=True" if model.backbone.source else "features=backbone"
    lines = [f"from captum_concepts import {model.kind}", ""]
    lines.append(f"cbm = {model.kind}.from_pretrained({repo_id!r}, {backbone})")
    if model.backbone.normalisation is not None:
        lines.insert(1, "from torchvision.transforms.v2.functional import normalize")
        lines.append("images = normalize(images, *cbm.normalisation)  # (N, C, H, W) in [0, 1]")
    lines += ["values = cbm.concept_predictor(images)  # (N, L)", "logits = cbm(images)  # (N, K)"]
    if model.residual is not None:
        lines.append("bottleneck, residual = cbm.contributions(images)  # (N, K) each, of which logits are the sum")
    return "\n".join(lines)


def _backbone(backbone: BackboneFacts) -> str:
    lines = [
        f"- {_code(backbone.source) if backbone.source else 'Not named: give it when the model is loaded.'}",
        f"- Embeddings of {backbone.channels} dimensions, pooled by {_code(backbone.pool)}"
        + (f", of layer {_code(backbone.layer)}." if backbone.layer else "."),
        f"- SHA-256 of its weights: `{backbone.weights}`",
    ]
    if backbone.normalisation is not None:
        mean, std = ([round(float(number), 4) for number in numbers] for numbers in backbone.normalisation)
        lines.append(f"- Images in [0, 1], normalised with mean {mean} and deviation {std}.")
    return "\n".join(lines)


def _table(columns: list[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(_text(cell) for cell in line) + " |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return str(value)


def _text(text: object) -> str:
    """Return a text that breaks no table and brings no markup of its own."""
    plain = printable(text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`|*_\[\]!#~$])", r"\\\1", plain)


def _code(text: object) -> str:
    """Return a text as code, in which only the sign that ends it is replaced."""
    return "`" + printable(text).replace("`", "'") + "`"
