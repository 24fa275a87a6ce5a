"""A concept model on the Hugging Face hub, with its card."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from captum_concepts._support.files import printable
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.files import BackboneFacts, ModelContents

if TYPE_CHECKING:
    import pandas as pd

#: Of the model, in a repository.
FILE = "concept_model.safetensors"
CARD = "README.md"


def upload(
    repo_id: str, save: Callable[[Path], None], card: str, *, private: bool | None, token: str | bool | None
) -> str:
    """Make a repository of a model and its card, in one commit; return the address of the commit."""
    _check_name(repo_id)
    from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A model that cannot be written raises before a repository is made.
        save(folder / FILE)
        (folder / CARD).write_text(card, encoding="utf-8")
        api = HfApi(token=token, library_name="quantus-concepts")
        try:
            api.create_repo(repo_id, private=private, exist_ok=True)
            commit = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload a concept model")
        except Exception as error:  # of the network, of the hub, or of its offline mode
            error.add_note(
                "Without a connection write the model with `save_pretrained(folder)`, and upload the folder later: "
                f"`hf upload {repo_id} folder`."
            )
            raise
    return str(commit.commit_url)


def download(repo_id: str, file: str, revision: str | None, token: str | bool | None) -> Path:
    """Return the path of a model in a folder, or of the copy of one from the hub."""
    if Path(repo_id).is_dir():
        return Path(repo_id) / file
    _check_name(repo_id)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import EntryNotFoundError  # type: ignore[attr-defined]

    try:
        return Path(hf_hub_download(repo_id, file, revision=revision, token=token, library_name="quantus-concepts"))
    except EntryNotFoundError as error:
        if isinstance(error, FileNotFoundError):  # the hub could not be asked
            raise
        raise ValueError(
            f"Expected argument `repo_id` to name a repository with a concept model but {repo_id} has no {file}."
        ) from error


def _check_name(repo_id: str) -> None:
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo_id)
    except ValueError as error:
        raise ValueError(f"Expected argument `repo_id` to name a repository, 'user/name', but: {error}") from error


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


def model_card(
    repo_id: str,
    model: ModelContents,
    metrics: pd.DataFrame | None = None,
    description: str = "",
    license: str | None = None,
) -> str:
    """Return a model card in Markdown, with metadata in YAML before it."""
    from huggingface_hub import ModelCardData

    bank, backbone = model.bank, model.backbone
    base = (backbone.source or "").split(":", 2)
    metadata = ModelCardData(
        library_name="quantus-concepts",
        pipeline_tag="image-classification",
        tags=["concept-bottleneck-model", "interpretability", "captum", "quantus"],
        license=license,
        base_model=base[2] if base[0] == "transformers" else f"timm/{base[1]}" if base[0] == "timm" else None,
    )
    sections = [
        f"# {_text(repo_id.rpartition('/')[2])}",
        description,
        f"A post-hoc concept bottleneck model: {len(bank)} concepts, read from the embedding of a frozen backbone, "
        f"from which {_classes(model.head)} are predicted.",
        _RESIDUAL if model.residual is not None else "",
        _use(repo_id, model),
        "## Backbone\n\n" + _backbone(backbone),
        f"## Concepts\n\nValues are `{model.values}`: {_VALUES[model.values]}. Accuracies are balanced: chance is .5, "
        "also where few images have the concept; those held back were not fitted on. "
        + _settings(bank)
        + "\n\n"
        + _table(["concept", "held back", "fitted on"], _concepts(bank)),
    ]
    if metrics is not None:
        shown = metrics.head(_ROWS)
        more = f"\n\n{len(metrics) - _ROWS} more rows are not shown." if len(metrics) > _ROWS else ""
        table = _table([str(name) for name in shown.columns], shown.itertuples(index=False, name=None))
        sections.append(f"## Scores\n\n{table}{more}")
    return f"---\n{metadata.to_yaml()}\n---\n\n" + "\n\n".join(filter(None, sections)) + "\n"


def _use(repo_id: str, model: ModelContents) -> str:
    backbone = model.backbone
    lines = [f"from captum_concepts import {model.kind}", ""]
    lines.append(f"cbm = {model.kind}.from_hub({repo_id!r}{'' if backbone.source else ', features=backbone'})")
    if backbone.normalisation is not None:
        lines.insert(1, "from torchvision.transforms.v2.functional import normalize")
        lines.append("images = normalize(images, *cbm.normalisation)  # (N, C, H, W) in [0, 1]")
    lines += ["values = cbm.concept_predictor(images)  # (N, L)", "logits = cbm(images)  # (N, K)"]
    if model.residual is not None:
        lines.append("bottleneck, residual = cbm.contributions(images)  # (N, K) each, of which logits are the sum")
    return "## Use\n\n```python\n" + "\n".join(lines) + "\n```"


def _classes(head: nn.Module) -> str:
    widths = [layer.out_features for layer in head.modules() if isinstance(layer, nn.Linear)]
    return f"{widths[-1]} classes" if widths else "classes"


def _backbone(backbone: BackboneFacts) -> str:
    lines = [
        f"- {_code(backbone.source) if backbone.source else 'Not named: give it when the model is loaded.'}",
        f"- Embeddings of {backbone.channels} dimensions, pooled by {_code(backbone.pool)}"
        + (f", of layer {_code(backbone.layer)}." if backbone.layer else "."),
        f"- SHA-256 of its weights: `{backbone.weights}`",
    ]
    if backbone.normalisation is not None:
        mean, std = ([round(float(number), 4) for number in each] for each in backbone.normalisation)
        lines.append(f"- Images in [0, 1], normalised with mean {mean} and deviation {std}.")
    return "\n".join(lines)


def _settings(bank: ConceptBank) -> str:
    if not bank.settings:
        return ""
    return (
        "Fitted with "
        + ", ".join(f"{_text(name)} = {_text(_cell(value))}" for name, value in bank.settings.items())
        + "."
    )


def _concepts(bank: ConceptBank) -> list[tuple[Any, ...]]:
    return list(zip(bank.names, bank.test_accuracy.tolist(), bank.train_accuracy.tolist(), strict=True))


def _table(columns: list[str], rows: Any) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(_text(each) for each in line) + " |" for line in lines)


def _cell(value: Any) -> str:
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
