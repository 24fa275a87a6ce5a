"""A bank of concepts: one direction in feature space for each, with its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from captum.concept import CAV, Concept
from torch import Tensor, nn

from captum_concepts._support.checks import check_finite, check_names, check_shape, check_whole
from captum_concepts._support.constraints import TEXT, Choice, Function, Instance, Items, Seed, Whole, check_arguments
from captum_concepts._support.files import quote
from captum_concepts._support.running import device_of, evaluation_mode
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank.directions import activations, as_embeddings, autoencode, factorise, list_first
from captum_concepts.bank.files import P_VALUES, TENSORS
from captum_concepts.bank.fitting import FittedBank
from captum_concepts.bank.value import BankValue

#: Of `from_activations`: CRAFT's factorisation, and a sparse autoencoder.
ACTIVATION_METHODS = ("nmf", "sae_top_k")


class ConceptBank(FittedBank):
    """Concept activation vectors (CAVs), one for each concept.

    A bank is a plain value: all methods that change something return a new one.

    Parameters
    ----------
    cavs : Tensor or array
        (L, d), the vectors c_j; copied. Integers become float32, floating-point types stay.
    intercepts : Tensor or array, optional
        (L,), the offsets b_j; zeros by default.
    names : sequence of str, optional
        L different names; "concept 0", "concept 1", ... by default.
    train_accuracy : Tensor or array, optional
        (L,), balanced accuracy (mean of the shares of samples with and without the concept that are on the right
        side of its boundary) among those it was fitted on; NaN where unknown.
    test_accuracy : Tensor or array, optional
        The same among samples held back.
    p_values : Tensor or array, optional
        (L,), those of `from_folders`; NaN where unknown.
    settings : mapping, optional
        How the bank was made; kept with it in files.

    Attributes
    ----------
    cavs : Tensor
        (L, d).
    intercepts : Tensor
        (L,).
    names : list of str
        L names.
    train_accuracy : Tensor
        (L,), NaN where unknown.
    test_accuracy : Tensor
        (L,), NaN where unknown.
    p_values : Tensor
        (L,), how likely random images were to be separated from others as well as the concept is; NaN where unknown.
        `PostHocCBM` does not keep them.
    settings : dict
        What JSON can hold.
    weak : list of str
        Names of concepts whose `test_accuracy` is below .6, chance being .5: their directions say little.

    Raises
    ------
    TypeError
        If an array is masked or complex.
    ValueError
        If a shape differs, an entry of `cavs` or `intercepts` is not finite, or a name occurs twice.

    Examples
    --------
    >>> from captum_concepts import ConceptBank
    >>> bank = ConceptBank([[1.0, 0.0], [0.0, 2.0]], names=["red wing", "long tail"])
    >>> bank.select(["long tail"]).cavs
    tensor([[0., 2.]])
    """

    @classmethod
    @check_arguments(
        tokenizer=Function(),
        prompts=Items(TEXT, "texts", least=1),
        batch_size=Whole(1),
        templates=Items(TEXT, "texts", least=1),
    )
    def from_text(
        cls,
        model: Any,
        tokenizer: Callable[..., Any],
        prompts: Sequence[str],
        names: Sequence[str] | None = None,
        batch_size: int = 256,
        *,
        templates: Sequence[str] | None = None,
    ) -> Self:
        """Take the text embeddings of a CLIP-like model as directions.

        Parameters
        ----------
        model : nn.Module
            With ``encode_text(tokens)`` giving (n, d), as the models of open_clip, or ``get_text_features``, as
            CLIP and SigLIP of transformers. It runs in eval mode and without gradient, and is left as it was.
        tokenizer : callable
            List of texts to tokens (n, length), as ``open_clip.get_tokenizer`` gives it; for a model of transformers
            its tokenizer or processor (texts are cut, and for SigLIP filled up, to the length of the model), or what
            gives tokens or a mapping of arguments.
        prompts : sequence of str
            L texts.
        names : sequence of str, optional
            L names; the prompts by default.
        batch_size : int
            Batch size of texts.
        templates : sequence of str, optional
            Texts with ``{}``, "a photo of a {}." for instance. Each prompt is put into each; their embeddings are
            brought to length 1, averaged, and brought to length 1 again, as in CLIP's zero-shot classification.

        Returns
        -------
        ConceptBank
            Rows of length 1, no intercepts, on the device of the model (half precision becomes float32).

        Raises
        ------
        ValueError
            If there are no prompts, names and prompts differ in number, or a template has no ``{}``.
        TypeError
            If `model` has neither method, or `prompts` or `templates` is one string.
        """
        names = check_names(prompts if names is None else names, len(prompts))
        rows = _embed_texts(model, tokenizer, prompts, templates, batch_size)
        settings: dict[str, Any] = {"method": "text"}
        if templates is not None:
            settings["templates"] = list(templates)
        return cls(rows, names=names, settings=settings)

    @classmethod
    @check_arguments(layer=TEXT)
    def from_captum(
        cls, cavs: Any, names: Sequence[str] | None = None, *, concept: int | str = 0, layer: str | None = None
    ) -> Self:
        """Take the concept activation vectors that Captum has trained.

        Captum keeps one row of weights for each concept of an experiment, in the order of
        ``stats["classes"]`` (concept ids) and pointing towards that concept, also where there are only two.
        The row of the chosen concept is taken. Captum keeps no intercept: it is 0 here, so that margins are
        those of a boundary through the origin.

        Parameters
        ----------
        cavs : CAV, sequence of CAV, or mapping
            `captum.concept` objects, or a TCAV's ``cavs`` (experiment to layer to CAV).
        names : sequence of str, optional
            L names; those of the chosen concepts by default.
        concept : int or str
            Which concept of each experiment: its position in ``cav.concepts`` (the first by default) or its
            name.
        layer : str, optional
            Which layer, where the mapping holds several.

        Returns
        -------
        ConceptBank
            One concept for each experiment. Accuracies are unknown (NaN): with two concepts,
            ``stats["accs"]`` of Captum 0.9.0 is only the share of the one with the lower id.

        Raises
        ------
        ValueError
            If a CAV is not trained, lacks the concept, or the CAVs are of different layers or widths.
        TypeError
            If an object is not a CAV.
        """
        found_layer, own_names, rows = _read_cavs(cavs, concept, layer)
        settings = {"method": "captum", "layer": found_layer}
        return cls(rows, names=own_names if names is None else names, settings=settings)

    @classmethod
    @check_arguments(n_concepts=Whole(1), method=Choice(ACTIVATION_METHODS), batch_size=Whole(1), seed=Seed())
    def from_activations(
        cls,
        backbone: Any,
        images: Any,
        n_concepts: int,
        method: str = "nmf",
        *,
        pool: Pool = "mean",
        maps: Maps | None = None,
        batch_size: int = 64,
        seed: int = 0,
    ) -> Self:
        """Find concepts without labels: directions that the activations of images are made of.

        "nmf": the non-negative matrix factorisation of CRAFT (Fel et al. 2023), over all places of the maps, by
        scikit-learn. "sae_top_k": the decoder of a sparse autoencoder in which four concepts may be active in a place.
        They have no names: `show_top_images` shows what each detects. Boundaries go through the mean embedding, so
        that about half of the images are on either side. `CLM`, `MCS` and `Faithfulness` need no labels.

        Parameters
        ----------
        backbone : nn.Module or Backbone
            As `features` of `PostHocCBM`; it runs in eval mode and without gradient, and is left as it was.
        images : Tensor, array or iterable
            (N, C, H, W), as the backbone takes them, or a loader as of `embed`.
        n_concepts : int
            L.
        method : str
            "nmf", for activations of at least 0, or "sae_top_k".
        pool : "mean" or callable
            As in `PostHocCBM`.
        maps : callable, optional
            As in `PostHocCBM`.
        batch_size : int
            Batch size.
        seed : int
            Random seed of the factorisation.

        Returns
        -------
        ConceptBank
            "concept 1", "concept 2", ...: rows of length 1, on the CPU.

        Raises
        ------
        TypeError
            If `backbone` is no module, or `images` no images.
        ValueError
            If a choice is unknown, there are no images, activations are negative with "nmf", or there are fewer places
            or dimensions than concepts.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> from captum_concepts import ConceptBank, show_top_images
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        >>> images = torch.rand(6, 3, 16, 16)
        >>> bank = ConceptBank.from_activations(model, images, 3)
        >>> bank.names
        ['concept 1', 'concept 2', 'concept 3']
        >>> figure, axes = show_top_images(model, images, "concept 3", layer="1", bank=bank)
        """
        features, pooling = resolve_stages(backbone, pool, maps, "backbone")
        places, embeddings = activations(features, pooling, images, batch_size)
        check_finite("images", places)
        directions = (factorise if method == "nmf" else autoencode)(places, n_concepts, seed)
        cavs = nn.functional.normalize(directions, dim=1)
        names = [f"concept {number}" for number in range(1, n_concepts + 1)]
        settings = {"method": method, "seed": int(seed), "places": len(places)}
        return cls(cavs, -cavs @ embeddings.mean(0), names, settings=settings)

    @check_arguments(layer=TEXT)
    def to_captum(self, layer: str) -> list[Any]:
        """Return the concepts as Captum's objects, the reverse of `from_captum`.

        Parameters
        ----------
        layer : str
            Name of the layer that the concepts are of, which Captum keeps with them.

        Returns
        -------
        list of captum.concept.CAV
            One for each concept, on the CPU: an experiment of the concept, whose row is the direction, and of "not" it,
            whose row is the opposite. Captum keeps no intercepts, and of accuracies nothing is written.

        Raises
        ------
        TypeError
            If `layer` is no text.

        Examples
        --------
        >>> from captum_concepts import ConceptBank
        >>> bank = ConceptBank([[1.0, 0.0]], names=["striped"])
        >>> bank.to_captum("layer4")[0].concepts[0].name
        'striped'
        """
        cavs = []
        for j, (name, row) in enumerate(zip(self.names, self.cavs.detach().cpu(), strict=True)):
            concepts = [Concept(2 * j, name, None), Concept(2 * j + 1, f"not {name}", None)]
            stats = {"weights": torch.stack([row, -row]), "classes": [concept.id for concept in concepts], "accs": None}
            cavs.append(CAV(concepts, layer, stats))
        return cavs

    @classmethod
    @check_arguments(n_concepts=Whole(1), n_features=Whole(1), seed=Seed())
    def random(
        cls,
        n_concepts: int,
        n_features: int,
        names: Sequence[str] | None = None,
        seed: int = 0,
        *,
        mean: Tensor | None = None,
    ) -> Self:
        """Draw random directions: the baseline that a bank of concepts has to beat.

        One draw is one observation of chance; compare with many seeds.

        Parameters
        ----------
        n_concepts : int
            L.
        n_features : int
            d, the width of the embeddings.
        names : sequence of str, optional
            L names, those of the concepts whose place the directions take; numbered by default.
        seed : int
            Random seed of the draw; the global generators are not used.
        mean : Tensor, optional
            (d,), the mean embedding: each boundary goes through it, so that about half of all images are on
            either side. Device and type are those of the bank. By default boundaries go through the origin.

        Returns
        -------
        ConceptBank
            L directions, evenly spread over the sphere, of length 1.

        Raises
        ------
        TypeError
            If a number is not whole.
        ValueError
            If a number is too small, or `names` or `mean` do not fit.
        """
        centre = torch.zeros(n_features) if mean is None else as_embeddings(mean, "mean")
        check_shape("mean", centre, ("d",), (n_features,))
        check_finite("mean", centre)
        directions = np.random.default_rng(seed).standard_normal((n_concepts, n_features))
        cavs = nn.functional.normalize(torch.as_tensor(directions).to(centre), dim=1)
        return cls(cavs, -cavs @ centre, names, settings={"method": "random", "seed": int(seed)})

    @classmethod
    @check_arguments(banks=Items(Instance(BankValue, "a ConceptBank"), "banks", least=1))
    def join(cls, banks: Iterable[BankValue], names: Sequence[str] | None = None) -> Self:
        """Put the concepts of several banks into one.

        Parameters
        ----------
        banks : sequence of ConceptBank
            Banks of one width, fitted on the embeddings of one backbone.
        names : sequence of str, optional
            Names of all concepts in the order of the banks; by default they keep theirs.

        Returns
        -------
        ConceptBank
            On the device of the first, with the accuracies and p-values of all. Settings that are the same in all
            stay as they are; else "method" is "joined" and "banks" has those of each.

        Raises
        ------
        TypeError
            If one is no bank.
        ValueError
            If there are none, they differ in width, or a name occurs twice.

        Examples
        --------
        >>> from captum_concepts import ConceptBank
        >>> colours = ConceptBank([[1.0, 0.0]], names=["red"])
        >>> shapes = ConceptBank([[0.0, 2.0]], names=["long"])
        >>> ConceptBank.join([colours, shapes]).names
        ['red', 'long']
        """
        parts = [*banks]
        widths = [part.cavs.shape[1] for part in parts]
        if len(set(widths)) > 1:
            raise ValueError(
                f"Expected argument `banks` to hold banks of one width, that of the embeddings of one backbone, but "
                f"got {widths}."
            )
        all_names = [name for part in parts for name in part.names]
        twice = sorted(name for name, count in Counter(all_names).items() if count > 1)
        if names is None and twice:
            raise ValueError(
                f"Expected argument `banks` to have concepts of different names but "
                f"{list_first([*map(repr, twice)])} occur more than once. Rename them first "
                "(`bank.rename({'old': 'new'})`), or pass `names`."
            )
        tensors = {
            name: torch.cat([getattr(part, name).to(parts[0].device) for part in parts])
            for name in (*TENSORS, P_VALUES)
        }
        settings = [part.settings for part in parts]
        same = all(part.settings == settings[0] for part in parts)
        joined = settings[0] if same else {"method": "joined", "banks": settings}
        return cls(**tensors, names=all_names if names is None else names, settings=joined)


def _read_cavs(cavs: Any, concept: int | str, layer: str | None) -> tuple[str, list[str], Tensor]:
    """Return the layer of CAVs, and names (L) and rows (L, d) of one direction of each."""
    cav_list = _flatten(cavs)
    for cav in cav_list:
        if not isinstance(cav, CAV):
            raise TypeError(
                f"Expected argument `cavs` to hold captum.concept.CAV objects but got {type(cav).__name__}. "
                f"Where it is None, Captum has not trained that experiment: call `TCAV.compute_cavs` first."
            )
    layers = sorted({cav.layer for cav in cav_list})
    if layer is not None:
        if layer not in layers:
            raise ValueError(f"Expected argument `layer` to be one of {layers}, those of `cavs`, but got {layer!r}.")
        cav_list = [cav for cav in cav_list if cav.layer == layer]
    if not cav_list:
        of_layer = "" if layer is None else f" of layer {layer!r}"
        raise ValueError(
            f"Expected argument `cavs` to hold at least one CAV{of_layer} but it holds none; its layers are {layers}."
        )
    if layer is None and len(layers) > 1:
        raise ValueError(f"Expected argument `layer` to choose one of {layers}: directions of several do not mix.")
    names, directions = zip(*(_direction(cav, concept) for cav in cav_list), strict=True)
    widths = sorted({len(direction) for direction in directions})
    if len(widths) > 1:
        raise ValueError(f"Expected argument `cavs` to hold directions of one width d but got {widths}.")
    return cav_list[0].layer, list(names), torch.stack(directions)


def _flatten(cavs: Any) -> list[Any]:
    if isinstance(cavs, CAV):
        return [cavs]
    if isinstance(cavs, Mapping):
        return [cav for value in cavs.values() for cav in _flatten(value)]
    return list(cavs) if isinstance(cavs, list | tuple) else [cavs]


def _direction(cav: CAV, concept: int | str) -> tuple[str, Tensor]:
    names = [member.name for member in cav.concepts]
    if isinstance(concept, str):
        if concept not in names:
            raise ValueError(f"Expected argument `concept` to name one of {names} but got {concept!r}.")
        position = names.index(concept)
    else:
        position = check_whole("concept", concept, 0)
        if position >= len(names):
            raise ValueError(f"Expected argument `concept` to lie in 0..{len(names) - 1} but got {concept}.")
    stats = cav.stats or {}
    if stats.get("weights") is None or stats.get("classes") is None:
        raise ValueError(
            f"Expected argument `cavs` to hold trained CAVs but that of {names} at layer {cav.layer!r} has "
            f"no weights. Call `TCAV.compute_cavs` first."
        )
    # Rows follow the classes of the classifier, not the order of the concepts (TCAV reorders them likewise).
    classes = [int(label) for label in stats["classes"]]
    chosen = cav.concepts[position]
    if chosen.id not in classes:
        raise ValueError(
            f"Expected argument `cavs` to have a row for {chosen.name!r} (id {chosen.id}) but its classes "
            f"are {classes}."
        )
    weights = torch.as_tensor(stats["weights"])[classes.index(chosen.id)]
    return chosen.name, weights.detach().flatten()


def _embed_texts(
    model: Any, tokenizer: Callable[..., Any], texts: Sequence[str], templates: Any, batch_size: int
) -> Tensor:
    """Return embeddings (L, d) of length 1, of a text alone or as the mean over templates."""
    encode = _encoder(model)
    forms = list(texts)
    if templates is not None:
        bare = [template for template in templates if "{}" not in template]
        if bare:
            raise ValueError(
                f"Expected argument `templates` to hold texts with {{}} where the prompt goes but got {quote(bare[0])}."
            )
        # No `str.format`, to which other brackets mean something.
        forms = [template.replace("{}", text) for text in texts for template in templates]
    with evaluation_mode(model), torch.no_grad():
        rows = [
            encode(tokenizer, forms[start : start + batch_size], device_of(model))
            for start in range(0, len(forms), batch_size)
        ]
    unit = nn.functional.normalize(as_embeddings(torch.cat(rows)), dim=1)
    if templates is None:
        return unit
    return nn.functional.normalize(unit.unflatten(0, (len(texts), -1)).mean(1), dim=1)


def _encoder(model: Any) -> Callable[[Callable[..., Any], list[str], torch.device], Tensor]:
    """Return what tokenises and encodes texts with a model."""
    methods = {name: getattr(model, name, None) for name in ("encode_text", "get_text_features")}
    name = next((name for name, method in methods.items() if callable(method)), None)
    if isinstance(model, type) or name is None:
        raise TypeError(
            f"Expected argument `model` to have a method `encode_text`, as models of open_clip have, or "
            f"`get_text_features`, as CLIP and SigLIP of transformers, but got {type(model).__name__}."
        )

    def encode(tokenizer: Callable[..., Any], texts: list[str], device: torch.device) -> Tensor:
        if name == "encode_text":
            rows = model.encode_text(_to_device(device, tokenizer(texts)))
        else:
            tokens = _tokens(tokenizer, texts, model)
            inputs = tokens if isinstance(tokens, Mapping) else {"input_ids": tokens}
            rows = model.get_text_features(**{name: _to_device(device, tensor) for name, tensor in inputs.items()})
            # A tensor up to version 4 of transformers.
            rows = getattr(rows, "pooler_output", rows)
        if not isinstance(rows, Tensor) or rows.ndim != 2 or len(rows) != len(texts):
            kind = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise ValueError(f"Expected argument `model` to encode texts as (n, d) = ({len(texts)}, *) but got {kind}.")
        return rows

    return encode


def _tokens(tokenizer: Callable[..., Any], texts: list[str], model: Any) -> Any:
    """Return what a tokenizer or processor of transformers, or any callable, gives for texts."""
    if not hasattr(tokenizer, "model_input_names"):
        return tokenizer(texts)
    config = getattr(model, "config", None)
    settings = getattr(config, "text_config", config)
    # SigLIP was trained on texts of its full length and reads its last token, one of those that fill up.
    full = "siglip" in getattr(config, "model_type", "")
    return tokenizer(
        text=texts,
        padding="max_length" if full else True,
        truncation=True,
        max_length=getattr(settings, "max_position_embeddings", None),
        return_tensors="pt",
    )


def _to_device(device: torch.device, tokens: Any) -> Any:
    if not callable(getattr(tokens, "to", None)):
        raise TypeError(f"Expected argument `tokenizer` to return a tensor but got {type(tokens).__name__}.")
    return tokens.to(device)
