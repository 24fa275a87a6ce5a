"""Concept models in files and on the Hugging Face hub."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

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
from captum_concepts._support.files import shorten, write_atomically
from captum_concepts._support.running import device_of, first_floating, warn_user
from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.named import build_backbone, check_source
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.models.chain import ConceptChain, is_training
from captum_concepts.models.files import BackboneFacts, ModelContents, read_model, write_model
from captum_concepts.models.hub import CARD, FILE, download, model_card, upload

if TYPE_CHECKING:
    import pandas as pd


class StoredCBM(ConceptChain):
    """Base of `PostHocCBM` and `ResidualCBM`: how they are written and read."""

    #: Of the backbone, where it is known.
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
    def _restore(cls, found: ModelContents, features: Any, pool: Pool, maps: Maps | None) -> Self:
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
            warning says what differs: for one that was turned into half precision, or trained on.

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
        found = read_model(Path(path), cls._kind)
        if features is None:
            if found.backbone.source is None:
                raise ValueError(
                    f"Expected argument `features`, the backbone that the concepts were fitted on: {path} does not "
                    f"name it. Its embedding has {found.backbone.channels} dimensions."
                )
            features = build_backbone(found.backbone.source)
            module, _ = resolve_stages(features, pool, maps)
        if isinstance(features, Backbone) and features.channels != found.backbone.channels:
            raise ValueError(
                f"Expected argument `features` to give embeddings (N, {found.backbone.channels}), the width of the "
                f"concepts in {path}, but got a Backbone of {features.channels}."
            )
        given, head = first_floating(module), first_floating(found.head)
        # Values have the type of the features, if that is not too coarse; see `PostHocCBM`.
        if given is not None and head is not None and given.dtype.itemsize > 2 and given.dtype != head.dtype:
            raise ValueError(
                f"Expected argument `features` to compute in {head.dtype}, as the head in {path}, but got "
                f"{given.dtype}."
            )
        for stage in found.stages.values():
            stage.to(device_of(module)).train(is_training(module))
        model = cls._restore(found, features, pool, maps)
        _check_same(found.backbone, model._contents().backbone, path, strict)
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
        return upload(repo_id, lambda path: self.save(path, backbone=backbone), card, private=private, token=token)

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
        return model_card(repo_id, self._contents(backbone), metrics, description, license)

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
        return cls.load(download(repo_id, FILE, revision, token), features, pool, maps, strict=strict)


def _check_same(expected: BackboneFacts, got: BackboneFacts, path: Any, strict: bool) -> None:
    differences = expected.differences(got)
    if not differences:
        return
    message = (
        f"The backbone is not the one that the concepts in {path} were fitted on: {'; '.join(differences)}. "
        f"{f'It was {shorten(expected.source)}. ' if expected.source else ''}Give that one as `features`"
    )
    if strict:
        raise ValueError(f"{message}, or pass `strict=False` if it is meant to differ.")
    warn_user(f"{message} for the values that were fitted.")
