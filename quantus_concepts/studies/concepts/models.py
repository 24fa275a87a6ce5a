"""The models of the concept study: how its own are fitted, and those that a user names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

import torch
from huggingface_hub.constants import CONFIG_NAME
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.embedding import Embeddings
from captum_concepts.backbones.layers import find_layer
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.directions import list_first
from captum_concepts.bank.files import RELEASED_SUFFIXES
from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.random_banks import stack_banks
from captum_concepts.models.store import StoredCBM
from captum_concepts.released.load import load_released
from captum_concepts.support.checks import match_names
from captum_concepts.support.running import to_model
from quantus_concepts.functional import baseline_range
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics import CGIM, predict_concepts
from quantus_concepts.metrics.concepts.cgim import global_importance
from quantus_concepts.metrics.concepts.names import CGIM_CORRELATION, SHUFFLED_IMAGES
from quantus_concepts.metrics.host.model import ConceptModel, check_concept_models
from quantus_concepts.metrics.host.scores import Row, nanmean
from quantus_concepts.painted.subject import (
    ORACLE,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
)
from quantus_concepts.studies._kit.options import SMALL
from quantus_concepts.studies._models.named_networks import Network, cut_network, load_network
from quantus_concepts.studies.concepts.data import BenchmarkData, learnable_concepts, same_images
from quantus_concepts.studies.concepts.settings import Concepts
from quantus_concepts.studies.concepts.terms import values_name


def thresholds(settings: Concepts) -> dict[str, float | None]:
    """Return the value from which on a model predicts a concept; not known for raw values, which lack the intercept."""
    known = {"margin": 0.0, "raw": None}
    return {
        POST_HOC: known[settings.values],
        RANDOM: known[settings.values],
        values_name(settings.other_values): known[settings.other_values],
        TRADITIONAL: 0.5,
        ORACLE: 0.5,
    }


def fit_bank(settings: Concepts, train: Embeddings, names: Sequence[str], seed: int) -> ConceptBank:
    """Fit a concept bank to embeddings."""
    return ConceptBank.fit(
        train.features,
        train.concept_labels,
        names,
        settings.method,
        settings.n_pos,
        settings.n_neg,
        settings.C,
        seed,
        min_images=settings.min_images,
    )


@dataclass(frozen=True)
class Models:
    """The models of one seed, and what they were fitted to."""

    models: dict[str, ConceptModel]
    controls: list[PostHocCBM]
    post_hoc: PostHocCBM
    backbone: Backbone
    train_set: Embeddings
    #: The classifier of the small network, where it is trained here.
    classifier: nn.Module | None


def shuffled_rows(
    train: Embeddings,
    test: tuple[Tensor, Tensor],
    class_concepts: Numbers,
    fit: Callable[[Embeddings, int], PostHocCBM],
    *,
    n_banks: int,
    seed: int,
) -> list[Row]:
    """Return the range of the CGIM correlation of models that are fitted as the model is, to images that say nothing.

    The embeddings of the training images change places, and their labels stay: heads and directions then know which
    concepts go with which class, as any fitted model does, and nothing about an image. `test` are embeddings (N, d) and
    classes (N,); `fit` makes a model without a backbone of training embeddings, with a number as seed.
    """
    generator = torch.Generator().manual_seed(seed)
    models = {}
    for number in range(n_banks):
        order = torch.randperm(len(train.features), generator=generator).to(train.features.device)
        models[str(number)] = fit(train._replace(features=train.features[order]), number)
    metric = CGIM(class_concepts, centred=True, importance="effect")
    predicted = predict_concepts(models, [test], metric, baselines=False, random_banks=False)
    rows = []
    for explanation, only_correct in (("effect", True), ("value", False)):
        settings = {"centred": True, "only_correct": only_correct}
        values = [
            nanmean(global_importance(own, metric.class_concepts, [explanation], "concept", **settings).of_call)
            for own in predicted.values()
        ]
        low, high = baseline_range(values)
        row = {"metric": CGIM_CORRELATION, "explanation": explanation, "item_kind": "concept"}
        row |= {"set": "correct" if only_correct else "all", "baseline": SHUFFLED_IMAGES}
        rows.append(row | {"value": nanmean(values), "low": low, "high": high, "n": len(values)})
    return rows


def normalisation_text(data: BenchmarkData) -> str:
    """Say how images are normalised."""
    numbers = [", ".join(f"{number:g}" for number in part) for part in (data.mean or (), data.std or ())]
    return f"mean {numbers[0]}, deviation {numbers[1]}" if data.mean else "none"


@dataclass(frozen=True)
class OwnModel:
    """A concept model of the user's, and the network that says how its images are normalised."""

    name: str
    model: ConceptModel
    network: Network

    @property
    def fingerprint(self) -> str:
        """Return what tells the weights apart, those of the random banks too: a file of code may read others."""
        banks = getattr(self.model, "random_banks", ())
        return fingerprint_of(self.model, stack_banks(banks) if banks else None)


class Loaded(NamedTuple):
    """The networks of a run, None for the small one, and the user's models."""

    networks: list[Network | None]
    own: list[OwnModel]


def load_models(settings: Concepts) -> Loaded:
    """Load what `--backbone` and `--model` name."""
    networks = [None if spec == SMALL else _load_backbone(spec, settings) for spec in settings.specs]
    given = [network for network in networks if network is not None]
    own = [load_model(spec, settings, given) for spec in dict.fromkeys(settings.model or [])]
    names = [of.source for of in given] + [of.name for of in own]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"Expected models of different names but two are {doubled[0]}. Rename a file or a function.")
    return Loaded(networks, own)


def _load_backbone(spec: str, settings: Concepts) -> Network:
    """Load a network that is evaluated; raise where it lacks the layer."""
    network = load_network(spec, settings.weights, **settings.normalised)
    if settings.layer is not None:
        find_layer(network.module, settings.layer)
    network.module.to(settings.place)
    return network


def load_model(spec: str, settings: Concepts, backbones: Sequence[Network]) -> OwnModel:
    """Return the model that `--model` names: path.py:factory, or a file or folder that goes with a backbone."""
    if ".py:" in spec or spec.endswith(".py"):
        network = load_network(spec, option="--model")
        check_concept_models("--model", cast(ConceptModel, network.module))
        own = OwnModel(network.source, cast(ConceptModel, network.module.to(settings.place)), network)
    else:
        own = _of_file(Path(spec), settings, backbones)
    data_for(settings, own, 0)
    return own


def _of_file(path: Path, settings: Concepts, backbones: Sequence[Network]) -> OwnModel:
    reasons = []
    for network in backbones:
        image = same_images(settings, network, 0).test[0].image
        backbone, _ = cut_network(network, settings.layer, to_model(network.module, image[None]))
        try:
            model = _read(path, backbone).to(settings.place).eval()
        except (ValueError, OSError) as error:
            reasons.append(str(error).replace(" as `features`", " as --backbone"))
            continue
        mean, std = model.normalisation or (network.mean, network.std)
        return OwnModel(path.name, model, replace(network, mean=mean, std=std))
    reason = reasons[0] if reasons else "Name the backbone that it was fitted on with --backbone."
    raise ValueError(f"Argument `--model` names what cannot be used, {path}. {reason}")


def _read(path: Path, backbone: Backbone) -> StoredCBM:
    """Return the model of a file of ours, or of the code of another project."""
    released = not (path / CONFIG_NAME).is_file() if path.is_dir() else path.suffix in RELEASED_SUFFIXES
    if not released:
        return PostHocCBM.load(path, backbone)
    model = load_released(path, backbone)
    if isinstance(model, ConceptBank):
        raise ValueError(f"{path} holds a concept bank and no model. `PostHocCBM.fit(bank=...)` fits a head for it.")
    return model


@torch.no_grad()
def data_for(settings: Concepts, own: OwnModel, seed_number: int) -> BenchmarkData:
    """Return the images as the model takes them, with its concepts: all, or those that can be learned."""
    everything = same_images(settings, own.network, seed_number)
    if not isinstance(own.model, nn.Module):
        raise TypeError(f"Expected `--model` {own.name} to be an nn.Module but got {type(own.model).__name__}.")
    image = to_model(own.model, everything.test[0].image[None])
    counts = own.model.concept_predictor(image).shape[1], own.model.head(own.model.concept_predictor(image)).shape[1]
    learnable = learnable_concepts(settings, everything)
    for data in (everything, learnable):
        if counts == (len(data.concept_names), data.n_classes):
            names = getattr(getattr(own.model, "concept_layer", None), "names", None)
            match_names(f"--model {own.name}", names, data.concept_names, "concepts")
            return data
    some = f" (or the {len(learnable.concept_names)} that can be learned)" if learnable.left_out else ""
    raise ValueError(
        f"Expected `--model` {own.name} to have the {len(everything.concept_names)} concepts{some} and the "
        f"{everything.n_classes} classes of the data, in their order, but it has {counts[0]} and {counts[1]}. "
        f"The concepts are {list_first(everything.concept_names)}."
    )
