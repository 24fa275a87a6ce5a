"""Concept models in files and on the Hugging Face hub."""

from __future__ import annotations

import math
import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torch import nn

from captum_concepts._support.constraints import (
    POOL,
    TEXT,
    Flag,
    Function,
    Instance,
    Location,
    check_arguments,
    data_frame,
)
from captum_concepts._support.files import printable, shorten, write_atomically
from captum_concepts._support.running import device_of, first_floating, warn_user
from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.named import build_backbone, check_source
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.chain import ConceptChain, is_training
from captum_concepts.models.files import BackboneFacts, ModelContents, read_model, write_model

if TYPE_CHECKING:
    import pandas as pd

#: Of the model, in a repository.
FILE = "concept_model.safetensors"
CARD = "README.md"

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


class StoredCBM(ConceptChain):
    """Base of `PostHocCBM` and `ResidualCBM`: how they are written and read."""

    #: Facts about the backbone, if known.
    source: str | None = None
    normalisation: Any = None
    image_size: int | None = None
    #: Name of the class in files.
    _kind: str

    @abstractmethod
    def _contents(self, source: str | None = None) -> ModelContents:
        """Return what a file holds of the model."""

    @classmethod
    @abstractmethod
    def _restore(cls, contents: ModelContents, features: Any, pool: Pool, maps: Maps | None) -> Self:
        """Return the model of a file, with what the file tells of its backbone."""

    @check_arguments(path=Location(), backbone=TEXT)
    def save(self, path: str | os.PathLike[str], *, backbone: str | None = None) -> None:
        """Write the model, but for its backbone, as one safetensors file.

        The file holds the bank, the head, the choice of values, a residual where there is one, and what is known of the
        backbone: its name, a digest of its weights, layer, pool, maps and normalisation. It appears under its name only
        when it is complete; one already there is replaced.

        Parameters
        ----------
        path : path
            Of the file.
        backbone : str, optional
            From what `load` can build the backbone, with its weights: "library:model:weights", with the library
            torchvision, timm, open_clip or transformers. By default what the Backbone tells itself: those of timm and
            transformers do.

        Raises
        ------
        TypeError
            If an argument is of the wrong kind, or the settings of the bank hold what JSON cannot.
        ValueError
            If the head or the residual is not made of plain layers, the bottleneck beside a residual is no PostHocCBM,
            or `backbone` names none.
        FileNotFoundError
            If the folder of the file does not exist.
        IsADirectoryError
            If it is a folder.
        """
        if backbone is not None:
            check_source("backbone", backbone)
        write_model(Path(path), self._contents(backbone))

    @classmethod
    @check_arguments(path=Location(), pool=POOL, maps=Function(), strict=Flag())
    def load(
        cls,
        path: str | os.PathLike[str],
        features: Any = None,
        pool: Pool = "mean",
        maps: Maps | None = None,
        *,
        strict: bool = True,
    ) -> Self:
        """Read a model that `save` has written; nothing in the file is executed.

        Parameters
        ----------
        path : path
            Of the file.
        features : nn.Module or Backbone, optional
            As in the class: the backbone that the concepts were fitted on. By default it is built as the file names
            it, with weights that its library downloads unless it has them.
        pool : "mean" or callable
            As in the class.
        maps : callable, optional
            As in the class.
        strict : bool
            Whether a backbone whose weights, layer, pool or maps are not those of the file is an error. Otherwise a
            warning names the differences: for one that was converted to half precision, or trained further.

        Returns
        -------
        PostHocCBM or ResidualCBM
            As it was saved, on the device of the backbone; the head in the backbone's mode (train or eval).

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        TypeError
            As in the class.
        ValueError
            If the file is no safetensors file, is cut short, damaged, of a newer version or holds something else, a
            model of the other class for instance; if it names no backbone and none is given; or if the backbone
            differs.
        """
        if features is not None:
            module, _ = resolve_stages(features, pool, maps)
        contents = read_model(Path(path), cls._kind)
        if features is None:
            if contents.backbone.source is None:
                raise ValueError(
                    f"Expected argument `features`, the backbone that the concepts were fitted on: {path} does not "
                    f"name it. Its embedding has {contents.backbone.channels} dimensions."
                )
            features = build_backbone(contents.backbone.source)
            module, _ = resolve_stages(features, pool, maps)
        if isinstance(features, Backbone) and features.channels != contents.backbone.channels:
            raise ValueError(
                f"Expected argument `features` to give embeddings (N, {contents.backbone.channels}), the width of the "
                f"concepts in {path}, but got a Backbone of {features.channels}."
            )
        backbone, head = first_floating(module), first_floating(contents.head)
        # Values have the type of the features, if that is not too coarse; see `PostHocCBM`.
        if backbone is not None and head is not None and backbone.dtype.itemsize > 2 and backbone.dtype != head.dtype:
            raise ValueError(
                f"Expected argument `features` to compute in {head.dtype}, as the head in {path}, but got "
                f"{backbone.dtype}."
            )
        for stage in contents.stages.values():
            stage.to(device_of(module)).train(is_training(module))
        model = cls._restore(contents, features, pool, maps)
        _check_same(contents.backbone, model._contents().backbone, path, strict)
        return model

    @check_arguments(
        repo_id=TEXT,
        backbone=TEXT,
        metrics=Instance(data_frame, "a pandas.DataFrame"),
        description=TEXT,
        license=TEXT,
        private=Flag(),
    )
    def push_to_hub(
        self,
        repo_id: str,
        *,
        backbone: str | None = None,
        metrics: pd.DataFrame | None = None,
        description: str = "",
        license: str | None = None,
        private: bool | None = None,
        token: str | bool | None = None,
    ) -> str:
        """Upload the model, but for its backbone, to the Hugging Face hub, with a model card.

        The card lists the concepts with their balanced accuracies, how the bank was fitted, the backbone, and how to
        load the model.

        Parameters
        ----------
        repo_id : str
            "user/name"; made if it is not there.
        backbone : str, optional
            As in `save`.
        metrics : DataFrame, optional
            A tidy table of scores for the card, such as `quantus_concepts.summarise` and `score_concepts` return.
        description : str
            A text in Markdown that the card begins with.
        license : str, optional
            Identifier of the hub, such as "mit".
        private : bool, optional
            Whether a repository that is made is private; by default what the account says.
        token : str or bool, optional
            As in `huggingface_hub`: by default the one that is stored on this machine.

        Returns
        -------
        str
            Address of the commit.

        Raises
        ------
        TypeError
            If an argument is of the wrong kind.
        ValueError
            As in `save`, or if `repo_id` is no name of a repository; before anything is sent. Errors of the hub itself
            (no access, no network) are those of `huggingface_hub`.
        """
        card = self.model_card(metrics, repo_id=repo_id, backbone=backbone, description=description, license=license)
        return _upload(repo_id, lambda path: self.save(path, backbone=backbone), card, private=private, token=token)

    @check_arguments(
        metrics=Instance(data_frame, "a pandas.DataFrame"),
        repo_id=TEXT,
        backbone=TEXT,
        description=TEXT,
        license=TEXT,
    )
    def model_card(
        self,
        metrics: pd.DataFrame | None = None,
        *,
        repo_id: str = "user/concept-model",
        backbone: str | None = None,
        description: str = "",
        license: str | None = None,
    ) -> str:
        """Return the model card that `push_to_hub` uploads.

        Parameters
        ----------
        metrics : DataFrame, optional
            As in `push_to_hub`, like all that follow.
        repo_id : str
            "user/name", from which the card says how to load the model.
        backbone : str, optional
            Its source.
        description : str
            A text in Markdown.
        license : str, optional
            Identifier of the hub.

        Returns
        -------
        str
            Markdown, with metadata in YAML before it.

        Raises
        ------
        TypeError
            If an argument is of the wrong kind.
        ValueError
            As in `save`.
        """
        if backbone is not None:
            check_source("backbone", backbone)
        return _write_card(repo_id, self._contents(backbone), metrics, description, license)

    @check_arguments(folder=Location(), backbone=TEXT, metrics=Instance(data_frame, "a pandas.DataFrame"))
    def save_pretrained(
        self, folder: str | os.PathLike[str], *, backbone: str | None = None, metrics: pd.DataFrame | None = None
    ) -> None:
        """Write the model and its card into a folder, as they would be on the hub; `from_hub` reads it.

        Parameters
        ----------
        folder : path
            Made if it is not there; files of a model in it are replaced.
        backbone : str, optional
            As in `save`.
        metrics : DataFrame, optional
            As in `push_to_hub`.

        Raises
        ------
        TypeError
            If an argument is of the wrong kind.
        ValueError
            As in `save`.
        """
        target = Path(folder)
        card = self.model_card(metrics, repo_id=target.resolve().name, backbone=backbone)
        target.mkdir(parents=True, exist_ok=True)
        self.save(target / FILE, backbone=backbone)
        with write_atomically(target / CARD) as temporary:
            temporary.write_text(card, encoding="utf-8")

    @classmethod
    @check_arguments(repo_id=TEXT, pool=POOL, maps=Function(), revision=TEXT, strict=Flag())
    def from_hub(
        cls,
        repo_id: str,
        features: Any = None,
        pool: Pool = "mean",
        maps: Maps | None = None,
        *,
        revision: str | None = None,
        strict: bool = True,
        token: str | bool | None = None,
    ) -> Self:
        """Download a model that `push_to_hub` has uploaded, and load it.

        Parameters
        ----------
        repo_id : str
            "user/name" on the hub, or a folder with such a model.
        features : nn.Module or Backbone, optional
            As in `load`.
        pool : "mean" or callable
            As in `load`.
        maps : callable, optional
            As in `load`.
        revision : str, optional
            Branch, tag or commit; a commit is always the same model.
        strict : bool
            As in `load`.
        token : str or bool, optional
            As in `huggingface_hub`.

        Returns
        -------
        PostHocCBM or ResidualCBM
            As in `load`.

        Raises
        ------
        TypeError
            As in `load`.
        ValueError
            As in `load`, or if `repo_id` is no name of a repository, or of one without a concept model.
        """
        if features is not None:
            resolve_stages(features, pool, maps)
        return cls.load(_download(repo_id, FILE, revision, token), features, pool, maps, strict=strict)


def _check_same(expected: BackboneFacts, actual: BackboneFacts, path: Any, strict: bool) -> None:
    differences = expected.differences(actual)
    if not differences:
        return
    message = (
        f"The backbone is not the one that the concepts in {path} were fitted on: {'; '.join(differences)}. "
        f"{f'It was {shorten(expected.source)}. ' if expected.source else ''}Give that one as `features`"
    )
    if strict:
        raise ValueError(f"{message}, or pass `strict=False` if it is meant to differ.")
    warn_user(f"{message} for the values that were fitted.")


def _upload(
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


def _download(repo_id: str, file: str, revision: str | None, token: str | bool | None) -> Path:
    """Return the path of a model in a folder, or of the copy of one from the hub."""
    if Path(repo_id).is_dir():
        return Path(repo_id) / file
    _check_name(repo_id)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import EntryNotFoundError  # type: ignore[attr-defined]

    try:
        return Path(hf_hub_download(repo_id, file, revision=revision, token=token, library_name="quantus-concepts"))
    except EntryNotFoundError as error:
        if isinstance(error, FileNotFoundError):  # the hub could not be reached
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


def _write_card(
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
        + _table(
            ["concept", "held back", "fitted on"],
            zip(bank.names, bank.test_accuracy.tolist(), bank.train_accuracy.tolist(), strict=True),
        ),
    ]
    if metrics is not None:
        first_rows = metrics.head(_ROWS)
        more = f"\n\n{len(metrics) - _ROWS} more rows are not shown." if len(metrics) > _ROWS else ""
        table = _table([str(name) for name in first_rows.columns], first_rows.itertuples(index=False, name=None))
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
        mean, std = ([round(float(number), 4) for number in numbers] for numbers in backbone.normalisation)
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


def _table(columns: list[str], rows: Any) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(_text(cell) for cell in line) + " |" for line in lines)


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
