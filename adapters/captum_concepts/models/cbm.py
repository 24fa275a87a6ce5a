"""Post-hoc concept bottleneck model: a trained backbone, a bank of concepts, and a head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, Unpack, cast

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.embedding import LoaderBatch, check_order, embed_batches, whole_data_set
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.directions import FitSettings, Fitting, as_embeddings
from captum_concepts.bank.learnable import MIN_IMAGES, find_learnable, fit_learnable, known_labels
from captum_concepts.models.chain import VALUES, ConceptLayer, check_class_names, check_width, linear_part, make_linear
from captum_concepts.models.files import ModelContents
from captum_concepts.models.heads import HEADS
from captum_concepts.models.interventions import mean_absent_values
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.models.random_banks import random_banks as draw_random_banks
from captum_concepts.models.store import SHARED, StoredCBM
from captum_concepts.support import checks
from captum_concepts.support.running import first_floating, progress


class PostHocCBM(StoredCBM):
    r"""Backbone, concept bank and head as a chain of three models.

    Values are ``u = C f`` ("raw", as Aysel et al. 2025 write it) or ``u_j = (c_j f + b_j) / |c_j|``
    ("margin", as the release of post-hoc CBM computes it: concepts of different length become comparable),
    with f the embedding. A ranking by value depends on the choice; the order of pixels in a map does not:
    maps are Eq. 2, ``F_ij = (1/d) sum_k c_jk E_i(:, :, k)``, either way.

    Maps decompose the values only where the embedding is the plain mean of the feature maps (`linear_pool`):
    then ``d`` times the mean of F_ij is ``c_j f``. Elsewhere (class token, attention pool, norm after the
    pool) they are local evidence for the concept.

    Parameters
    ----------
    features : nn.Module or Backbone
        Images (N, C, H, W) to features. A Backbone brings `pool` and `maps` with it. Its device and type
        are those of the concepts; but if it is of half precision, concepts have the type of the head, and
        values are float32 where that is (a model turned into half precision as a whole rounds them, and ties).
    bank : ConceptBank
        L concepts, of the d dimensions of the embedding.
    head : nn.Module
        Concept values (N, L) to class logits (N, K), of any form.
    values : str
        "margin" or "raw". Kept in the state dict, as are the names of the concepts.
    pool : "mean" or callable
        From features to the embedding (N, d) that the backbone really uses. "mean" is the mean of the maps;
        features that are (N, d) already pass.
    maps : callable, optional
        From features to maps (N, d, h, w). None where features are that already; Swin's, for one, are
        (N, h, w, d).

    Attributes
    ----------
    concept_layer : ConceptLayer
        The second stretch: embeddings to concept values.
    source : str or None
        From what a Backbone was built, as files of the model name it.
    normalisation : tuple or None
        Mean and standard deviation of the images, as in a Backbone.
    image_size : int or None
        Height and width of the images that a Backbone is made for; not in files.
    random_banks : tuple of RandomBank
        Random banks made by `fit(random_banks=)`.
    training_concepts : Tensor or None
        (K, L), the share of the training images of each class that have each concept, if `fit` fitted the bank; not in
        files.

    Raises
    ------
    ValueError
        If `values` is unknown, or a linear head takes another number of concepts.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> bank = ConceptBank([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # 3 concepts
    >>> cbm = PostHocCBM(nn.Conv2d(3, 2, 3), bank, nn.Linear(3, 5))  # 5 classes
    >>> images = torch.rand(4, 3, 8, 8)
    >>> cbm(images).shape, cbm.concept_predictor(images).shape
    (torch.Size([4, 5]), torch.Size([4, 3]))
    """

    concept_layer: ConceptLayer
    _kind = "PostHocCBM"

    def __init__(
        self,
        features: nn.Module | Backbone,
        bank: ConceptBank,
        head: nn.Module,
        values: str = "margin",
        pool: Pool = "mean",
        maps: Maps | None = None,
    ) -> None:
        checks.check_choice("values", values, VALUES)
        module, pooling = resolve_stages(features, pool, maps)
        reference = first_floating(module)
        if reference is not None:
            bank = bank.to(reference.device, _values_type(reference.dtype, head))
        layer = ConceptLayer(bank, values)
        check_width(head, len(bank))
        layer.training = pooling.training = module.training
        super().__init__(module, pooling, layer, head, bank.cavs.shape[1])
        self.know_backbone(features)

    training_concepts: Tensor | None = None

    @property
    def bank(self) -> ConceptBank:
        """The concepts, on the device of the model; a copy."""
        return self.concept_layer.bank

    @property
    def values(self) -> str:
        """How concept values are computed: "margin" or "raw"."""
        return self.concept_layer.values

    @property
    def linear_pool(self) -> bool:
        """Whether maps are a decomposition of the values: the embedding is the plain mean of the maps."""
        return self.pooling.linear

    @property
    def zero(self) -> str:
        """What a value of 0 means."""
        return "zero at the margin" if self.values == "margin" else "zero of the raw value"

    def know_levels(self, bank: RandomBank) -> None:
        """Take over the levels of the values of a random bank, whose directions are those of this model."""
        absent, mean = bank.absent_values, bank.mean_values(self.values)
        self.absent_values = None if absent is None else absent.to(self.concept_layer.cavs)
        self.mean_values = mean.to(self.concept_layer.cavs)

    def random_models(self: StoredCBM) -> list[PostHocCBM]:
        """Return a model for each of `random_banks`, with the features of this one: controls of `score_concepts`.

        Returns
        -------
        list of PostHocCBM
            Models in eval mode except the features, without a residual, of this model's kind of values (or "margin");
            empty without random banks.
        """
        layer, own = self.concept_layer, first_floating(self.concept_layer)
        stages = (getattr(layer, "values", "margin"), self.pooling.pool, self.pooling.maps)
        models = []
        for draw in self.random_banks:
            like, names = draw.cavs if own is None else own, getattr(layer, "names", None)
            bank = ConceptBank(draw.cavs, draw.intercepts, names, settings={"method": "random"})
            head = make_linear(draw.head.weight, draw.head.bias, like.dtype, like.device).eval()
            model = PostHocCBM(self.features, bank.to(like.device, like.dtype), head, *stages)
            model.concept_layer.eval()
            for name in SHARED:
                setattr(model, name, getattr(self, name))
            model.know_levels(draw)
            models.append(model)
        return models

    def map_weights(self) -> Tensor:
        """Return the concept vectors (L, d) that weight the maps."""
        return self.concept_layer.cavs

    def n_concepts(self) -> int:
        """Return L."""
        return len(self.concept_layer.cavs)

    def _contents(self) -> ModelContents:
        bank = self.bank
        return self._contents_with(bank.cavs.shape[1], bank=bank, values=self.values)

    @classmethod
    def _restore(cls, contents: ModelContents, features: nn.Module | Backbone, pool: Pool, maps: Maps | None) -> Self:
        model = cls(features, cast(ConceptBank, contents.bank), contents.head, contents.values, pool, maps)
        model.know_file(contents)
        return model

    @classmethod
    def fit(
        cls,
        features: nn.Module | Backbone,
        loader: Iterable[LoaderBatch],
        *,
        bank: ConceptBank | None = None,
        concept_labels: Tensor | ArrayLike | None = None,
        names: Sequence[str] | None = None,
        values: str = "margin",
        pool: Pool = "mean",
        maps: Maps | None = None,
        head: str | Callable[[Tensor, Tensor], nn.Module] = "logistic",
        n_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        random_banks: int = 0,
        seed: int = 0,
        display_progressbar: bool = False,
        concepts: str | Sequence[str | int] | None = None,
        min_images: int = MIN_IMAGES,
        **fitting: Unpack[FitSettings],
    ) -> Self:
        """Fit the concept bank, unless it is given, then the head, in one pass over the images.

        The backbone runs in eval mode and without gradient, and is left as it was; embeddings (N, d) are
        all that is kept of the images (`embed` returns them, to try many banks).

        Concepts that too few images show or lack are left out (`min_images`). If the labels are known without reading
        an image (`concept_labels`, or a data set with an attribute of this name), this is decided first.

        Parameters
        ----------
        features : nn.Module or Backbone
            As in the class.
        loader : iterable
            Batches ``(images, labels, concept_labels, ...)``, or ``(images, labels)`` together with `bank` or
            `concept_labels`. Labels are classes from 0.
        bank : ConceptBank, optional
            Your own bank, of the width of the embeddings, instead of fitting one: concept labels, `names`, `concepts`
            and the settings of a fit are then left out.
        concept_labels : Tensor, array or DataFrame, optional
            (N, L) of 0 and 1, in the order of a loader that does not shuffle. The columns of a DataFrame are the names
            of the concepts; with `names` they are brought into their order.
        names : sequence of str, optional
            L names of the concepts; by default the data set's ``concept_names``, where it has labels and names.
        values : str
            As in the class.
        pool : "mean" or callable
            As in the class.
        maps : callable, optional
            As in the class.
        head : str or callable
            "logistic" (`fit_logistic`), "elastic_net" (`fit_elastic_net`), or a function from values (N, L)
            and labels (N,) to a module, for other settings or forms.
        n_classes : int, optional
            K for the heads named; by default as many as there are class names, or one more than the largest label.
        class_names : sequence of str, optional
            K names, kept with the model and in its file, and used in tables, plots and pages.
        random_banks : int
            Number of banks of random directions to keep with the model and in its file, each with a logistic head of
            its own, fitted on the same embeddings: the random baseline of the concept metrics, pictures and pages, at
            no pass of the backbone. The range of 39 encloses 95 % of what random directions give.
        seed : int
            Random seed of the draw of samples for the bank, of the elastic net, and of the random directions.
        display_progressbar : bool
            Whether to show progress.
        concepts : str or sequence, optional
            Which concepts to learn, as in `ConceptBank.fit`: names, patterns or indices.
        min_images : int
            Least number of images with a concept, and without it. Concepts with fewer are left out, and one warning
            names them; ``dataset.select(cbm.bank.names)`` has the truth of the others.
        **fitting
            How the directions are fitted, as in `ConceptBank.fit`: `method`, `n_pos`, `n_neg`, `C`, `hold_back`.

        Returns
        -------
        PostHocCBM
            On the device of the backbone.

        Raises
        ------
        TypeError
            If there is no such setting of a fit.
        ValueError
            If a choice is unknown, `bank` has another width or is given with what it replaces, the loader is empty,
            shuffles although `concept_labels` is given, or gives other batches, or as in `ConceptBank.fit`.
        """
        checks.check_choice("values", values, VALUES)
        if isinstance(head, str):
            checks.check_choice("head", head, HEADS)
        checks.check_keywords(f"{cls.__name__}.fit", fitting, [*FitSettings.__annotations__], "See `ConceptBank.fit`.")
        settings = Fitting(seed=seed, **fitting).check()
        checks.check_whole("random_banks", random_banks, 0)
        module, pooling = resolve_stages(features, pool, maps)
        replaced = {"concept_labels": concept_labels, "names": names, "concepts": concepts, **fitting}
        if bank is not None and (surplus := [name for name, value in replaced.items() if value is not None]):
            raise ValueError(
                f"Expected argument `bank`, which is fitted already, alone but got `{'`, `'.join(surplus)}` with it. "
                "Leave one or the other out; `bank.rename` gives other names."
            )
        # Raises if a vector has no margin, before the pass over the images.
        width = None if bank is None else ConceptLayer(bank, values).cavs.shape[1]
        if class_names is not None:
            if n_classes not in (None, len(class_names)):
                raise ValueError(
                    f"Expected argument `class_names` to hold K = {n_classes} names but got {len(class_names)}."
                )
            n_classes = len(class_names)
        data, _ = whole_data_set(getattr(loader, "dataset", None))
        owner = "the names of the loader's data set"
        checks.check_name_order("class_names", class_names, getattr(data, "class_names", None), owner)
        if concept_labels is None:
            checks.check_name_order("names", names, getattr(data, "concept_names", None), owner)
        else:
            concept_labels, names = _named_labels(concept_labels, names)
            _check_aligned(concept_labels, loader)
        left_out = training_concepts = known = None
        if bank is None:
            names, left_out = _choose_concepts(loader, concept_labels, names, concepts, min_images)
        labelled = concept_labels is not None or bank is not None
        embedded = embed_batches(module, pooling, loader, 2 if labelled else 3, display_progressbar, width)
        checks.check_finite("loader", embedded.features)
        rows, labels = as_embeddings(embedded.features), cast("Tensor", embedded.labels)
        if bank is None:
            truth = embedded.concept_labels if concept_labels is None else concept_labels
            checks.check_axes(concept_labels=(truth, f"{len(rows)} L"))
            present = checks.to_numpy(truth).astype(bool)
            learnable = find_learnable(present, names, concepts, min_images)
            if learnable.left_out != left_out:
                learnable.warn()
            bank = ConceptBank(**fit_learnable(rows, present, learnable, settings, display_progressbar))
            members = nn.functional.one_hot(labels.cpu().long()).double()
            shares = members.T @ torch.as_tensor(present[:, learnable.positions]).double()
            training_concepts = shares / members.sum(0)[:, None]
            known = torch.as_tensor(present[:, learnable.positions])
        else:
            bank = bank.to(rows.device, rows.dtype)
        with torch.no_grad():
            u = ConceptLayer(bank, values)(embedded.features)
        fitted = _fit_head(head, u, labels, n_classes, seed)
        if isinstance(head, str):
            fitted.train(module.training)
        model = cls(features, bank, fitted, values, pool, maps)
        model.training_concepts = training_concepts
        if known is None:
            # The concepts of a bank of the user's need not be those of the labels.
            model.mean_values = u.mean(0)
        else:
            model.absent_values = mean_absent_values(u, known)
        model.class_names = None if class_names is None else check_class_names(class_names, fitted)
        if random_banks:
            k = n_classes or getattr(linear_part(fitted), "out_features", None)
            drawn: dict[str, Any] = {"concept_labels": known, "n_banks": random_banks, "values": values, "seed": seed}
            banks = draw_random_banks(rows, labels, len(bank), k, **drawn)
            model.random_banks = tuple(progress(banks, "Random banks", show=display_progressbar, total=random_banks))
        return model


def _choose_concepts(
    loader: Iterable[LoaderBatch],
    concept_labels: Tensor | None,
    names: Sequence[str] | None,
    concepts: str | Sequence[str | int] | None,
    min_images: int,
) -> tuple[Sequence[str] | None, list[str] | None]:
    """Return the names of concepts, and those left out if the labels are known before the pass over the images."""
    labels, data_names = (concept_labels, None) if concept_labels is not None else known_labels(loader)
    names = data_names if names is None else names
    if labels is None:
        return names, None
    learnable = find_learnable(labels, names, concepts, min_images)
    learnable.warn()
    return names, learnable.left_out


def _named_labels(concept_labels: Any, names: Sequence[str] | None) -> tuple[Tensor, Sequence[str] | None]:
    """Return concept labels as a tensor, and the names of its columns, which a table has by itself."""
    if hasattr(concept_labels, "columns"):
        columns = [str(name) for name in concept_labels.columns]
        places = checks.match_names("concept_labels", columns, names, "concepts")
        concept_labels = concept_labels.iloc[:, places or range(len(columns))].to_numpy(copy=True)
        names = None if names is None and checks.only_numbers(columns) else names or columns
    return checks.to_tensor("concept_labels", concept_labels), names


def _values_type(features: torch.dtype, head: nn.Module) -> torch.dtype:
    """Return the type of concept values: that of the features, or of the head where theirs is too coarse to rank by."""
    if features not in (torch.float16, torch.bfloat16):
        return features
    reference = first_floating(head)
    return torch.float32 if reference is None else reference.dtype


def _fit_head(
    head: str | Callable[[Tensor, Tensor], nn.Module],
    values: Tensor,
    labels: Tensor,
    n_classes: int | None,
    seed: int,
) -> nn.Module:
    if not isinstance(head, str):
        module = head(values, labels)
        checks.check_module("head", module)
        return module
    options = {"seed": seed} if head == "elastic_net" else {}
    return HEADS[head](values, labels, n_classes, **options)


def _check_aligned(concept_labels: Tensor, loader: Iterable[LoaderBatch]) -> None:
    sampler: Any = getattr(loader, "sampler", None)
    check_order(loader, ["concept_labels"])
    # Known before the pass over the images, unless the loader leaves some out.
    every_image = hasattr(sampler, "__len__") and not getattr(loader, "drop_last", False)
    checks.check_axes(concept_labels=(concept_labels, f"{len(sampler) if every_image else 'N'} L"))
    checks.to_presence("concept_labels", concept_labels)
