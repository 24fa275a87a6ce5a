"""Concept models in files and on the Hugging Face hub."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from huggingface_hub.constants import CONFIG_NAME, SAFETENSORS_SINGLE_FILE
from torch import nn

from captum_concepts.backbones.backbone import Backbone, Normalisation
from captum_concepts.backbones.embedding import LoaderBatch
from captum_concepts.backbones.named import build_backbone, check_source
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank.directions import as_embeddings
from captum_concepts.bank.files import write_file, write_folder
from captum_concepts.models.card import make_card
from captum_concepts.models.chain import ConceptChain
from captum_concepts.models.files import LEVELS, WHAT, BackboneFacts, ModelContents, backbone_facts, read_model
from captum_concepts.models.random_banks import N_BANKS, random_banks
from captum_concepts.support import running
from captum_concepts.support.checks import check_path, check_whole
from captum_concepts.support.files import quote, shorten

if TYPE_CHECKING:
    import pandas as pd

    from captum_concepts.models.random_banks import RandomBank


#: What models of the same backbone and classes know in common.
SHARED = ("class_names", "source", "normalisation", "image_size")


class StoredCBM(ConceptChain, ModelHubMixin):
    """Base of `PostHocCBM`, `BottleneckCBM` and `ResidualCBM`: how they are written and read."""

    #: Facts about the backbone, if known.
    source: str | None = None
    normalisation: Normalisation | None = None
    image_size: int | None = None
    random_banks: tuple[RandomBank, ...] = ()
    #: Name of the class in files.
    _kind: str
    # Not None, so that the mixin does not collect the arguments of the constructor.
    _hub_mixin_config: dict[str, object] = {}  # noqa: RUF012

    def know_backbone(self, features: nn.Module | Backbone) -> None:
        """Take over what is known of a Backbone."""
        if isinstance(features, Backbone):
            self.source, self.normalisation = features.source, features.normalisation
            self.image_size = features.image_size

    def know_file(self, contents: ModelContents) -> None:
        """Take over what a file tells of the backbone, the classes, random banks and the levels of the values."""
        self.class_names, self.random_banks = contents.class_names, contents.random_banks
        for name, level in contents.levels.items():
            setattr(self, name, level.to(running.device_of(self)))
        self.source = contents.backbone.source
        self.normalisation = self.normalisation or contents.backbone.normalisation

    def _contents_with(self, width: int, **concepts: Any) -> ModelContents:
        """Return what files hold of the model, given the width of the embedding and what is said of the concepts."""
        facts = backbone_facts(self.features, self.pooling, width, self.source, self.normalisation)
        return ModelContents(self.head, facts, **concepts, **self._known())

    def _known(self) -> dict[str, Any]:
        """Return what files hold of every kind of model besides its stages and its backbone."""
        levels = {name: level for name in LEVELS if (level := getattr(self, name)) is not None}
        return {"class_names": self.class_names, "random_banks": self.random_banks, "levels": levels}

    @abstractmethod
    def _contents(self) -> ModelContents:
        """Return what files hold of the model."""

    @abstractmethod
    def random_models(self) -> Sequence[StoredCBM]:
        """Return a model for each of `random_banks`, with the features of this one: controls of `score_concepts`."""

    def fit_random_banks(
        self,
        loader: Iterable[LoaderBatch],
        *,
        n_banks: int = N_BANKS,
        seed: int = 0,
        display_progressbar: bool = False,
    ) -> Self:
        """Fit banks of random directions, the random baseline of concept metrics, for a model that is fitted already.

        As `PostHocCBM.fit(random_banks=)` does: as many directions as the model has concepts, each bank with a logistic
        head of its own. They are kept in `random_banks`, in place of others, and in files. A model that does not know
        the values of absent concepts gets its `mean_values` too, from which effects are counted then.

        Parameters
        ----------
        loader : iterable
            Batches ``(images, labels, concept_labels)`` of training images, or the result of `embed`, which saves the
            pass. Concept labels are needed where the model counts effects from absent values.
        n_banks : int
            Number of banks. The range of 39 encloses 95 % of what random directions give.
        seed : int
            Random seed of the directions.
        display_progressbar : bool
            Whether to show progress.

        Returns
        -------
        StoredCBM
            This model.

        Raises
        ------
        ValueError
            If the loader is empty or gives no labels, an embedding is not finite, or `n_banks` is below 1.
        """
        check_whole("n_banks", n_banks, 1)
        embedding, labels, concept_labels = self.embedded(loader, 2, display_progressbar)
        if labels is None:
            raise ValueError("Expected argument `loader` to give class labels with the images but it gives none.")
        rows = as_embeddings(embedding)
        with running.evaluation_mode(self), torch.no_grad():
            values = self.concept_layer(embedding)
            shape = values.shape[1], running.tensor_output(self.head(values[:1])).shape[1]
        counts_from_absence = self.absent_values is not None or self.bounded
        if not counts_from_absence:
            self.mean_values = values.mean(0)
        # Banks count effects from the level that the model counts from.
        known = counts_from_absence and concept_labels is not None and concept_labels.shape[1] == shape[1]
        settings: dict[str, Any] = {"n_banks": n_banks, "values": getattr(self, "values", "margin"), "seed": seed}
        banks = random_banks(rows, labels, *shape, concept_labels=concept_labels if known else None, **settings)
        self.random_banks = tuple(running.progress(banks, "Random banks", show=display_progressbar, total=n_banks))
        return self

    @classmethod
    @abstractmethod
    def _restore(cls, contents: ModelContents, features: nn.Module | Backbone, pool: Pool, maps: Maps | None) -> Self:
        """Return the model of a file, with what the file tells of its backbone."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, but for its backbone, as one safetensors file.

        The file holds the concepts (the bank and the choice of values, or the concept layer and its activation), the
        head, the names, a residual where there is one, and what is known of the backbone: its name (`source`), a digest
        of its weights, layer, pool, maps and normalisation. It appears under its name only when it is complete; one
        already there is replaced.

        Parameters
        ----------
        path : path
            Of the file.

        Raises
        ------
        TypeError
            If the settings of the bank hold what JSON cannot.
        ValueError
            If the concept layer, the head or the residual is not made of plain layers, or `source` is no
            "library:model:weights".
        FileNotFoundError
            If the folder of the file does not exist.
        IsADirectoryError
            If it is a folder.
        """
        write_file(check_path("path", path), WHAT, *self._checked_contents().pack())

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        features: nn.Module | Backbone | None = None,
        pool: Pool = "mean",
        maps: Maps | None = None,
        *,
        strict: bool = True,
        download: bool = False,
    ) -> Self:
        """Read a model that `save` or `save_pretrained` has written; nothing in it is executed.

        Parameters
        ----------
        path : path
            Of the file, or of the folder.
        features : nn.Module or Backbone, optional
            As in the class: the backbone that the concepts were fitted on.
        pool : "mean" or callable
            As in the class.
        maps : callable, optional
            As in the class.
        strict : bool
            Whether a backbone whose weights, layer, pool or maps are not those of the file is an error. Otherwise a
            warning names the differences: for one that was converted to half precision, or trained further.
        download : bool
            Whether to build the backbone that the file names where no `features` are given. Its library downloads
            weights that it does not have, from where the file says.

        Returns
        -------
        PostHocCBM, BottleneckCBM or ResidualCBM
            As it was saved, on the device of the backbone; the head in the backbone's mode (train or eval).

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is no safetensors file, is cut short, damaged, of a newer version or holds something else, a
            model of the other class for instance; if no backbone is given, and `download` is False or the file names
            none; or if the backbone differs.
        """
        contents = read_model(check_path("path", path), cls._kind)
        facts = contents.backbone
        if features is None:
            features = _named_backbone(facts, path, download)
        module, _ = resolve_stages(features, pool, maps)
        for stage in contents.stages.values():
            stage.to(running.device_of(module)).train(module.training)
        model = cls._restore(contents, features, pool, maps)
        _check_same(facts, model._contents().backbone, path, strict)
        return model

    def save_pretrained(
        self, save_directory: str | Path, *, metrics: pd.DataFrame | None = None, **hub: Any
    ) -> str | None:
        """Write the model, but for its backbone, and its card into a folder, as they are on the hub.

        Parameters
        ----------
        save_directory : path
            Made if it is not there; the files of a model in it are replaced, but a card (README.md) stays.
        metrics : DataFrame, optional
            A tidy table of scores for the card, such as `quantus_concepts.summarise` and `score_concepts` return.
        **hub
            As in ``huggingface_hub.ModelHubMixin``.

        Returns
        -------
        str or None
            Address of the commit with ``push_to_hub=True``.

        Raises
        ------
        ValueError
            As in `save`, before anything is written.
        """
        self._checked_contents().pack()
        hub.setdefault("model_card_kwargs", {"repo_id": Path(save_directory).resolve().name, "metrics": metrics})
        address: str | None = super().save_pretrained(save_directory, **hub)
        return address

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        features: nn.Module | Backbone | None = None,
        pool: Pool = "mean",
        maps: Maps | None = None,
        *,
        strict: bool = True,
        download: bool = False,
        **hub: Any,
    ) -> Self:
        """Load a model from a folder, or download one from the Hugging Face hub. Also called `from_hub`.

        Parameters
        ----------
        pretrained_model_name_or_path : str or path
            A folder, or "user/name" on the hub.
        features : nn.Module or Backbone, optional
            As in `load`, like the next four.
        pool : "mean" or callable
            Its pooling.
        maps : callable, optional
            Its maps.
        strict : bool
            Whether a backbone that differs is an error.
        download : bool
            Whether to build the backbone that the file names; the model itself is downloaded in any case.
        **hub
            As in ``huggingface_hub.snapshot_download``: `revision` (a commit is always the same model), `token`,
            `cache_dir`, `local_files_only`.

        Returns
        -------
        PostHocCBM, BottleneckCBM or ResidualCBM
            As in `load`.

        Raises
        ------
        FileNotFoundError
            If the folder or the repository holds no concept model.
        ValueError
            As in `load`.
        """
        folder = pretrained_model_name_or_path
        if not Path(folder).is_dir():
            folder = snapshot_download(str(folder), allow_patterns=[CONFIG_NAME, SAFETENSORS_SINGLE_FILE], **hub)
        return cls.load(folder, features, pool, maps, strict=strict, download=download)

    from_hub = from_pretrained

    def push_to_hub(
        self,
        repo_id: str,
        *,
        metrics: pd.DataFrame | None = None,
        description: str = "",
        license: str | None = None,
        **hub: Any,
    ) -> str:
        """Upload the model, but for its backbone, to the Hugging Face hub, with a model card.

        The card lists the concepts with their balanced accuracies, how the bank was fitted, the backbone, and how to
        load the model.

        Parameters
        ----------
        repo_id : str
            "user/name"; made if it is not there.
        metrics : DataFrame, optional
            As in `save_pretrained`.
        description : str
            A text in Markdown that the card begins with.
        license : str, optional
            Identifier of the hub, such as "mit".
        **hub
            As in ``huggingface_hub.ModelHubMixin``: `private`, `token`, `commit_message`, `branch`.

        Returns
        -------
        str
            Address of the commit.

        Raises
        ------
        ValueError
            As in `save`; before anything is sent. What the hub refuses raises an error of `huggingface_hub`.
        """
        self._checked_contents().pack()
        card = {"repo_id": repo_id, "metrics": metrics, "description": description, "license": license}
        hub.setdefault("model_card_kwargs", card)
        return str(super().push_to_hub(repo_id, **hub))

    def generate_model_card(
        self,
        metrics: pd.DataFrame | None = None,
        *,
        repo_id: str = "user/concept-model",
        description: str = "",
        license: str | None = None,
    ) -> ModelCard:
        """Return the model card, as `push_to_hub` uploads it; its arguments are those of `push_to_hub`."""
        return make_card(repo_id, self._contents(), metrics, description, license)

    def _save_pretrained(self, save_directory: Path) -> None:
        write_folder(save_directory, *self._contents().pack())

    def _checked_contents(self) -> ModelContents:
        if self.source is not None:
            check_source("source", self.source)
        return self._contents()


def _named_backbone(facts: BackboneFacts, path: object, download: bool) -> Backbone:
    """Build the backbone that a file names, if the user allows it."""
    expected = "Expected argument `features`, the backbone that the concepts were fitted on"
    if facts.source is None:
        raise ValueError(f"{expected}: {path} does not name it. Its embedding has {facts.channels} dimensions.")
    if not download:
        raise ValueError(
            f"{expected}: {path} names {quote(facts.source)}. Pass `download=True` to build it by this name, with "
            "weights that its library downloads unless it has them."
        )
    return build_backbone(facts.source)


def _check_same(expected: BackboneFacts, actual: BackboneFacts, path: object, strict: bool) -> None:
    differences = expected.differences(actual)
    if not differences:
        return
    message = (
        f"The backbone is not the one that the concepts in {path} were fitted on: {'; '.join(differences)}. "
        f"{f'It was {shorten(expected.source)}. ' if expected.source else ''}Give that one as `features`"
    )
    if strict:
        raise ValueError(f"{message}, or pass `strict=False` if it is meant to differ.")
    running.warn_user(f"{message} for the values that were fitted.")
