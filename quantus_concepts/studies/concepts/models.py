"""The models of one seed of the concept study, and what they were fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import Embeddings, embed
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.support.running import progress
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.functional import baseline_range
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics import CGIM, predict_concepts
from quantus_concepts.metrics.concepts.cgim import global_importance
from quantus_concepts.metrics.concepts.names import CGIM_CORRELATION, SHUFFLED_IMAGES
from quantus_concepts.metrics.host.model import ConceptModel
from quantus_concepts.metrics.host.scores import Row, nanmean
from quantus_concepts.painted.images import sample_loader
from quantus_concepts.painted.subject import (
    BACKBONE,
    ORACLE,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
    bank_model,
    fit_random_models,
    folded_batches,
    kept_images,
    oracle_model,
    small_backbone,
    traditional_model,
    train_networks,
    untrained_networks,
)
from quantus_concepts.painted.training import load_trained, one_thread, quiet_fits
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._models.named_networks import Network, cut_network
from quantus_concepts.studies.concepts.command import Concepts
from quantus_concepts.studies.concepts.data import BenchmarkData
from quantus_concepts.studies.concepts.terms import values_name

#: Training images that are embedded, and cached, at a time, at least.
EMBEDDED = 256


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


class SeedModels:
    """What one seed is about, its cache and its models, which are made only where something is not in the cache."""

    def __init__(
        self,
        folder: RunFolder,
        settings: Concepts,
        network: Network | None,
        data: BenchmarkData,
        seed: int,
    ) -> None:
        self.folder, self.settings, self.network, self.data, self.seed = folder, settings, network, data, seed
        # The folder's settings are all options that matter, with hashes of the files that they name.
        where = [str(settings.place), settings.bfloat16]
        source = "small" if network is None else network.source
        self.key = {"settings": folder.settings, "where": where, "seed": seed, "data": data.fingerprint}
        self.key |= {"network": source, "normalisation": [data.mean, data.std]}
        if network is not None:
            # A file of code may read other weights than before, and is itself the same.
            self.key |= {"weights": fingerprint_of(network.module)}

    def cached(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what is in the cache of this seed, or make it."""

        def computed() -> Any:
            # As training: what is done on each core, and so every number, does not depend on how many there are.
            with one_thread() if self.network is None else nullcontext(), quiet_fits():
                return make()

        return self.folder.cached(f"{name} {self.seed}", self.key, computed)

    @cached_property
    def models(self) -> Models:
        """The concept models and their random baselines, fitted to what small networks, or another one, see."""
        settings, data, seed = self.settings, self.data, self.seed
        models: dict[str, ConceptModel] = {}
        classifier: nn.Module | None = None
        if self.network is None:
            networks = self._networks()
            backbone, classifier = small_backbone(networks[BACKBONE]), networks[BACKBONE].classifier
            train_loader: Iterable[Any] = folded_batches(data.train, settings.batch_size)
            models[TRADITIONAL] = traditional_model(networks[TRADITIONAL], train_loader, data.n_classes)
            train_set = embed(backbone, train_loader, display_progressbar=settings.progress)
        else:
            backbone, layer = cut_network(self.network, settings.layer, data.test[0].image[None].to(settings.place))
            normalised = normalisation_text(data)
            self.folder.note(f"Where {self.network.source} is cut: {layer}. Normalisation: {normalised}.")
            train_set = self._embed_parts(backbone)
        banks = data.concept_names, data.n_classes, settings.values
        controls = fit_random_models(backbone, train_set, *banks, settings.random_banks, seed)
        bank = fit_bank(settings, train_set, data.concept_names, seed)
        if bank.weak:
            self.folder.note(
                f"Seed {seed}: the directions of {len(bank.weak)} of {len(bank)} concepts are hardly distinguishable "
                "from chance on images held back, and say little."
            )
        models[POST_HOC] = post_hoc = bank_model(backbone, bank, train_set, data.n_classes, settings.values)
        # On the same features: no further pass of the backbone.
        others = bank, train_set, data.n_classes, settings.other_values
        models[values_name(settings.other_values)] = bank_model(backbone, *others)
        if data.has_oracle:
            models[ORACLE] = oracle_model(data.train, data.test, data.n_classes).to(settings.place)
        return Models(models, controls, post_hoc, backbone, train_set, classifier)

    def _embed_parts(self, backbone: Backbone) -> Embeddings:
        """Embed the training images, some at a time: an interrupted run goes on behind those that are finished."""
        train, size = self.data.train, self.settings.batch_size
        # Whole batches, so that numbers do not depend on the parts.
        step = size * math.ceil(EMBEDDED / size)

        def embedded(start: int) -> dict[str, Tensor]:
            part = Subset(train, range(start, min(start + step, len(train))))
            return embed(backbone, sample_loader(part, size, self.settings.readers))._asdict()

        starts = progress(range(0, len(train), step), "Embedding images", show=self.settings.progress)
        parts = [self.cached(f"embeddings {start}", partial(embedded, start)) for start in starts]
        features, labels, concepts = (torch.cat([part[name] for part in parts]) for name in Embeddings._fields)
        device = self.settings.place
        return Embeddings(features.to(device), labels.to(device), concepts.to(device))

    @cached_property
    def test_features(self) -> Tensor:
        """The test images as the backbone embeds them; recorded where they are scored."""
        return embed(self.models.backbone, self.loader(), display_progressbar=self.settings.progress).features

    def loader(self) -> DataLoader[ConceptSample]:
        """Return the test images in batches."""
        return sample_loader(self.data.test, self.settings.batch_size, self.settings.readers)

    def _networks(self) -> dict[str, Any]:
        """Return a network trained on the classes and one trained on the concepts."""
        train = kept_images(self.data.train)
        networks = untrained_networks(train, self.seed, self.settings.place)

        def trained() -> dict[str, Tensor]:
            train_networks(
                networks,
                train,
                seed=self.seed,
                epochs=self.settings.epochs,
                bfloat16=self.settings.bfloat16,
                display_progressbar=self.settings.progress,
            )
            return nn.ModuleDict(networks).state_dict()

        state = self.folder.cached(f"networks {self.seed}", self.key, trained)
        for name, network in networks.items():
            own = [key for key in state if key.startswith(f"{name}.")]
            load_trained(network, {key.removeprefix(f"{name}."): state[key] for key in own})
        return networks


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
