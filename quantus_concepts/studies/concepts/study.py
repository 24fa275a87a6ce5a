"""The study of concept models: from its images to one tidy frame, a row a number; its models, scores and gallery."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import Embeddings, embed
from captum_concepts.backbones.layers import find_layer
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import ConceptLayer
from captum_concepts.models.heads import fit_logistic
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.support.running import device_of, progress, to_model
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.explorer.explore import page_content, page_html
from quantus_concepts.functional import intervention_counts, rank_concepts
from quantus_concepts.metrics import ConceptState, InterventionAccuracy, UsualMetrics, concept_state, score_ranges
from quantus_concepts.metrics.concepts.names import CGIM_CORRELATION, ITEM, SCORE
from quantus_concepts.metrics.host.model import ConceptModel, concept_importances, concept_outputs
from quantus_concepts.metrics.streaming.engine import ModelState
from quantus_concepts.metrics.streaming.table import (
    direction_rows,
    kinds_of_rows,
    mean_row,
    score_table,
    without_cgim_range,
)
from quantus_concepts.painted.images import batch_labels, collate, sample_loader
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
from quantus_concepts.studies._kit.options import Normalisation
from quantus_concepts.studies._models.named_networks import Network, cut_network, load_network
from quantus_concepts.studies._models.normalised import better_normalised
from quantus_concepts.studies.concepts.comparisons import PLAIN, compared_rows
from quantus_concepts.studies.concepts.data import (
    BenchmarkData,
)
from quantus_concepts.studies.concepts.figures import draw_gallery
from quantus_concepts.studies.concepts.terms import SETTINGS, UNTRAINED, setting_name, values_name
from quantus_concepts.verdicts import ACCURACY

#: Batches of a range, which are lost if a worker dies.
BATCHES = 2
#: Training images that are embedded, and cached, at a time, at least.
EMBEDDED = 256
TOPS = (1, 3, 5)
#: Images on which the maps of one random bank are scored, at least.
RANDOM_MAPS = 200
#: Images of the gallery: classified correctly and wrongly, and concepts of each; images of the explorer.
N_RIGHT, N_WRONG, N_SHOWN, N_EXPLORED = 5, 2, 4, 100
#: The page on which concepts are corrected.
EXPLORER = "explore.html"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the models of a seed are made and scored."""

    method: Literal["svm", "mean"]
    C: float
    n_pos: int
    n_neg: int
    min_images: int
    values: str
    random_banks: int
    interventions: bool
    sweep: bool
    explore: bool
    epochs: int
    bfloat16: bool
    layer: str | None
    device: torch.device
    batch_size: int
    readers: int
    engine: str
    progress: bool

    @property
    def other_values(self) -> str:
        """The values of the second post-hoc model: raw beside margin, margin beside raw."""
        return "raw" if self.values == "margin" else "margin"

    @property
    def thresholds(self) -> dict[str, float | None]:
        """Value from which on a model predicts a concept; not known for raw values, which lack the intercept."""
        known = {"margin": 0.0, "raw": None}
        return {
            POST_HOC: known[self.values],
            RANDOM: known[self.values],
            values_name(self.other_values): known[self.other_values],
            TRADITIONAL: 0.5,
            ORACLE: 0.5,
        }

    def fit_bank(self, train: Embeddings, names: Sequence[str], seed: int) -> ConceptBank:
        """Fit a concept bank to embeddings."""
        return ConceptBank.fit(
            train.features,
            train.concept_labels,
            names,
            self.method,
            self.n_pos,
            self.n_neg,
            self.C,
            seed,
            min_images=self.min_images,
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


class OneSeed:
    """The scores and pictures of one seed; models are made only where something is not in the cache."""

    def __init__(
        self,
        folder: RunFolder,
        settings: Settings,
        network: Network | None,
        data: BenchmarkData,
        seed: int,
        *,
        first: bool,
    ) -> None:
        self.folder, self.settings, self.network, self.data = folder, settings, network, data
        self.seed, self.first = seed, first
        # The folder's settings are all options that matter, with hashes of the files that they name.
        where = [str(settings.device), settings.bfloat16]
        source = "small" if network is None else network.source
        self.key = {"settings": folder.settings, "where": where, "seed": seed, "data": data.fingerprint}
        self.key |= {"network": source, "normalisation": [data.mean, data.std]}
        if network is not None:
            # A file of code may read other weights than before, and is itself the same.
            self.key |= {"weights": fingerprint_of(network.module)}

    def scores(self) -> pd.DataFrame:
        """Return the scores of all models, and the accuracies of other settings of the bank."""
        scores = self._cached("scores", self._score)
        if not self.settings.sweep:
            return scores
        return pd.concat([scores, self._cached("sweep", self._sweep)], ignore_index=True)

    def images(self) -> pd.DataFrame:
        """Return the scores of images, and of classes, that are compared; the backbone's own answers among them."""
        tensors = self._cached("state", self._run)
        table = compared_rows(ConceptState.from_tensors(tensors).images())
        if "plain" in tensors:
            own = table[(table["metric"] == ACCURACY) & (table["model"] == table.loc[0, "model"])]
            right = tensors["plain"].numpy() == own["label"].to_numpy()
            plain = own.assign(model=PLAIN, predicted=tensors["plain"].numpy(), value=right.astype(float))
            table = pd.concat([table, plain], ignore_index=True)
        return table

    def draws(self) -> pd.DataFrame:
        """Return the correlation of importance and truth of each concept in each random bank."""
        state = ConceptState.from_tensors(self._cached("state", self._run))
        names = self.data.concept_names
        # Labels by class are CGIM's truth and fitted the directions: random banks are no baseline for it.
        controls = [] if self.data.by_class else state.controls
        return pd.DataFrame(
            [
                (explanation, name, draw, value)
                for draw, control in enumerate(controls)
                for explanation, values in _correlations(control).items()
                for name, value in zip(names, values, strict=True)
            ],
            columns=["explanation", "item", "draw", "value"],
        )

    def gallery(self) -> Figure:
        """Draw some images with the concepts of the largest contributions to the predicted class."""
        shown = self._cached("gallery", self._shown)
        return draw_gallery(shown, self.data.class_names, self.data.concept_names)

    def explorer(self) -> str:
        """Return the page that shows test images of all classes and on which their concepts can be corrected."""
        # A browser would execute a page from the cache: only what it is made from is kept.
        content = bytes(self._cached("explorer", self._explorer)["content"].tolist())
        return page_html("Concepts of the test images", json.loads(content))

    def _cached(self, name: str, make: Any) -> Any:
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
            backbone, layer = cut_network(self.network, settings.layer, data.test[0].image[None].to(settings.device))
            normalised = normalisation_text(data)
            self.folder.note(f"Where {self.network.source} is cut: {layer}. Normalisation: {normalised}.")
            train_set = self._embed_parts(backbone)
        banks = data.concept_names, data.n_classes, settings.values
        controls = fit_random_models(backbone, train_set, *banks, settings.random_banks, seed)
        bank = settings.fit_bank(train_set, data.concept_names, seed)
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
            models[ORACLE] = oracle_model(data.train, data.test, data.n_classes).to(settings.device)
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
        parts = [self._cached(f"embeddings {start}", partial(embedded, start)) for start in starts]
        features, labels, concepts = (torch.cat([part[name] for part in parts]) for name in Embeddings._fields)
        device = self.settings.device
        return Embeddings(features.to(device), labels.to(device), concepts.to(device))

    @cached_property
    def test_features(self) -> Tensor:
        """The test images as the backbone embeds them; recorded where they are scored."""
        return embed(self.models.backbone, self._loader(), display_progressbar=self.settings.progress).features

    def _loader(self) -> DataLoader[ConceptSample]:
        return sample_loader(self.data.test, self.settings.batch_size, self.settings.readers)

    def _networks(self) -> dict[str, Any]:
        """Return a network trained on the classes and one trained on the concepts."""
        train = kept_images(self.data.train)
        networks = untrained_networks(train, self.seed, self.settings.device)

        def trained() -> dict[str, Tensor]:
            how: dict[str, Any] = {"epochs": self.settings.epochs, "bfloat16": self.settings.bfloat16}
            train_networks(networks, train, seed=self.seed, display_progressbar=self.settings.progress, **how)
            return nn.ModuleDict(networks).state_dict()

        state = self.folder.cached(f"networks {self.seed}", self.key, trained)
        for name, network in networks.items():
            own = [key for key in state if key.startswith(f"{name}.")]
            load_trained(network, {key.removeprefix(f"{name}."): state[key] for key in own})
        return networks

    def _run(self) -> dict[str, Tensor]:
        """Return the state of all models on the test images, which are read once, and what the plain network answers.

        A network without an answer for these classes has none.
        """
        data, settings, fitted = self.data, self.settings, self.models
        n_concepts = len(data.concept_names)
        metrics: list[Any] = [UsualMetrics(top_l=[top for top in TOPS if top <= n_concepts])]
        if settings.interventions:
            # Values of the other models lie between 0 and 1.
            levels: dict[str, Any] = {
                **{
                    name: model.value_levels(fitted.train_set)
                    for name, model in fitted.models.items()
                    if isinstance(model, PostHocCBM)
                },
                RANDOM: [control.value_levels(fitted.train_set) for control in fitted.controls],
            }
            counts = intervention_counts(n_concepts)
            metrics.append(InterventionAccuracy(counts, levels=levels, seed=self.seed))
        arguments: dict[str, Any] = {
            "metrics": metrics,
            "class_concepts": data.class_concepts,
            "truth": data.truth,
            "value_threshold": settings.thresholds,
            "controls": {RANDOM: fitted.controls},
            # Which images they are counts for little compared with which bank it is, and maps take most of the time.
            "control_stride": max(1, len(data.test) // RANDOM_MAPS),
        }
        loader = self._loader()
        images = loader if self.network is None else _ClassifiedImages(loader, self.network.module, data.n_classes)
        if settings.engine == "ray":
            state = score_in_ranges(fitted.models, data, self.seed, arguments, folder=self.folder, settings=settings)
            self.test_features = embed(fitted.backbone, images, display_progressbar=settings.progress).features
        else:
            shown: dict[str, Any] = {"display_progressbar": settings.progress}
            with _recorded(fitted.post_hoc.concept_layer) as embeddings:
                state = concept_state(fitted.models, images, **arguments, seed=self.seed, **shown)
            self.test_features = torch.cat(embeddings)
        plain = self._plain_answers(images)
        return state.tensors() | ({} if plain is None else {"plain": torch.as_tensor(plain)})

    def _score(self) -> pd.DataFrame:
        """Return the scores of all models on the test images."""
        data = self.data
        tensors = self._cached("state", self._run)
        scores, fitted = ConceptState.from_tensors(tensors).table(), self.models
        if data.by_class:
            scores = without_cgim_range(scores)
        if not fitted.post_hoc.linear_pool and (scores["metric"] == "CLM").any():
            self.folder.note(
                "About the maps: this backbone does not pool by the plain mean. Its maps are local evidence, not a "
                "decomposition of the concept's value."
            )
        directions = direction_rows(POST_HOC, fitted.post_hoc)
        scores = with_undefined(pd.concat([scores, score_table(directions)], ignore_index=True), data.left_out)
        plain = self._accuracy(tensors["plain"].numpy(), PLAIN) if "plain" in tensors else []
        plain += self._untrained_accuracy()
        # A table without rows would make the columns of all tables ones of objects.
        return pd.concat([score_table(plain), scores], ignore_index=True) if plain else scores

    def _plain_answers(self, images: Any) -> np.ndarray | None:
        """Return what the network's own classifier answers, where it has one for these classes."""
        if self.models.classifier is not None:
            return _predicted(self.models.classifier, self.test_features)
        if images.other_output:
            source = "" if self.network is None else self.network.source
            self.folder.note(
                f"{source}, own accuracy: not applicable. Its {images.other_output} are not the "
                f"{self.data.n_classes} classes of the data."
            )
            return None
        if self.first:
            self.folder.note(*better_normalised(images.network, self.data.test, self.data.mean, self.data.std))
        return np.concatenate(images.predicted)

    def _untrained_accuracy(self) -> list[dict[str, Any]]:
        """Return the accuracy of a linear head on what the small network sees before it is trained."""
        if self.network is not None:
            return []
        train = kept_images(self.data.train)
        network = untrained_networks(train, self.seed, self.settings.device)[BACKBONE]
        batches = (folded_batches(data, self.settings.batch_size) for data in (train, kept_images(self.data.test)))
        train_set, test_set = (embed(small_backbone(network), loader) for loader in batches)
        head = fit_logistic(train_set.features, train_set.labels, self.data.n_classes)
        return self._accuracy(_predicted(head, test_set.features), UNTRAINED)

    def _accuracy(self, predicted: np.ndarray, model: str, **fields: Any) -> list[dict[str, Any]]:
        return [mean_row(self.data.test.labels.numpy() == predicted, None, model=model, metric="accuracy", **fields)]

    def _sweep(self) -> pd.DataFrame:
        """Return the class accuracy for other settings of the bank: the cells of the paper's Table 3."""
        rows, data, train_set, values = [], self.data, self.models.train_set, self.settings.values
        for strength, count in progress(SETTINGS, "settings", show=self.settings.progress):
            changed = replace(self.settings, C=strength, n_pos=count, n_neg=count)
            layer = ConceptLayer(changed.fit_bank(train_set, data.concept_names, self.seed), values)
            head = fit_logistic(layer(train_set.features), train_set.labels, data.n_classes)
            predicted = _predicted(head, layer(self.test_features))
            item = setting_name(strength, count)
            rows += self._accuracy(predicted, POST_HOC, item_kind="setting", item=item)
        return score_table(rows)

    def _shown(self) -> dict[str, Tensor]:
        """Return some images, correctly classified ones first, and the maps of the concepts that contribute most."""
        data, model = self.data, self.models.post_hoc
        labels = data.test.labels.numpy()
        right = labels == _predicted(model.head, model.concept_layer(self.test_features))
        rows = _different_classes(labels, np.flatnonzero(right), N_RIGHT, self.seed)
        rows += _different_classes(labels, np.flatnonzero(~right), N_WRONG + N_RIGHT - len(rows), self.seed)
        batch = collate([data.test[index] for index in rows])
        outputs = concept_outputs(model, batch.image)
        guessed = outputs.logits.argmax(1)
        weight = concept_importances(model, outputs.values, guessed, ("weight",))["weight"]
        contributions = weight * outputs.values
        ranked = rank_concepts(contributions, min(N_SHOWN, len(data.concept_names)))
        with torch.no_grad():
            features = model.features(to_model(model, batch.image))
            maps = model.maps_from_features(features, ranked)
            # The class's evidence is the weighted sum of the concepts', in the scale the values have.
            scale = model.bank.norms if model.values == "margin" else torch.ones_like(model.bank.norms)
            class_maps = torch.einsum("nl,nlhw->nhw", weight / scale, model.maps_from_features(features))
        return {
            "images": self._pictures(batch.image),
            "maps": maps,
            "class_maps": class_maps,
            "concepts": ranked,
            "present": batch.concepts.gather(1, ranked.cpu()) > 0.5,
            "absent": outputs.values.gather(1, ranked) < 0,
            "contributions": contributions.gather(1, ranked),
            "labels": batch_labels(batch),
            "predicted": guessed,
        }

    def _explorer(self) -> dict[str, Tensor]:
        data, fitted = self.data, self.models
        rows = np.linspace(0, len(data.test) - 1, min(N_EXPLORED, len(data.test))).astype(int)
        batch = collate([data.test[int(row)] for row in rows])
        model = fitted.post_hoc.with_head(fitted.post_hoc.head)
        heads: list[Any] = [control.head for control in fitted.controls]
        model.random_banks = tuple(
            RandomBank(control.bank.cavs, control.bank.intercepts, head)
            for control, head in zip(fitted.controls, heads, strict=True)
        )
        content = page_content(
            model,
            batch.image,
            labels=batch_labels(batch),
            concept_labels=batch.concepts > 0.5,
            points=batch.points if batch.points.numel() else None,
            part_of_concept=data.part_of_concept,
            class_names=data.class_names,
            pictures=self._pictures(batch.image),
        )
        return {"content": torch.tensor(list(json.dumps(content).encode()), dtype=torch.uint8)}

    def _pictures(self, images: Tensor) -> Tensor:
        """Return images without the normalisation, which may leave a float image a hair outside [0, 1]."""
        if self.data.mean is None or self.data.std is None:
            return images
        mean, std = (torch.tensor(numbers).view(1, -1, 1, 1) for numbers in (self.data.mean, self.data.std))
        return (images * std + mean).clamp(0, 1)


def normalisation_text(data: BenchmarkData) -> str:
    """Say how images are normalised."""
    numbers = [", ".join(f"{number:g}" for number in part) for part in (data.mean or (), data.std or ())]
    return f"mean {numbers[0]}, deviation {numbers[1]}" if data.mean else "none"


def load_backbone(
    spec: str, weights: str | None, layer: str | None, device: torch.device, normalised: Normalisation
) -> Network:
    """Load the network that is evaluated; raise where it lacks the layer."""
    network = load_network(spec, weights, **normalised)
    if layer is not None:
        find_layer(network.module, layer)
    network.module.to(device)
    return network


def score_in_ranges(
    models: Mapping[str, ConceptModel],
    data: BenchmarkData,
    seed: int,
    arguments: Mapping[str, Any],
    *,
    folder: RunFolder,
    settings: Settings,
) -> ConceptState:
    """Return what `concept_state` does with these arguments, to the bit; ranges are of whole batches."""
    size = settings.batch_size

    def score(start: int, stop: int) -> dict[str, Tensor]:
        loader = sample_loader(Subset(data.test, range(start, stop)), size)
        return concept_state(models, loader, start=start, seed=seed, **arguments).tensors()

    controls = itertools.chain(*arguments["controls"].values())
    states = score_ranges(
        lambda: score,
        len(data.test),
        store=folder,
        key=f"ranges-{fingerprint_of(seed, data.fingerprint, [*models.values(), *controls])[:16]}",
        size=BATCHES * size,
        engine=settings.engine,
        display_progressbar=settings.progress,
    )
    first, *others = map(ConceptState.from_tensors, states)
    for other in others:
        first.merge(other)
    return first


@contextmanager
def _recorded(module: nn.Module) -> Iterator[list[Tensor]]:
    """Record what a module is given, batch by batch."""
    batches: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _, inputs: batches.append(inputs[0].detach().clone()))
    try:
        yield batches
    finally:
        hook.remove()


class _ClassifiedImages:
    """The batches of a loader, which a network's own classifier sees too, if it has the classes of the data."""

    def __init__(self, loader: DataLoader[ConceptSample], network: nn.Module, n_classes: int) -> None:
        self.loader, self.dataset, self.network, self.n_classes = loader, loader.dataset, network, n_classes
        self.predicted: list[np.ndarray] = []
        #: The network's output, where it is not one number for each class.
        self.other_output = ""

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[ConceptSample]:
        for batch in self.loader:
            if not self.other_output:
                self._classify(batch.image)
            yield batch

    @torch.no_grad()
    def _classify(self, images: Tensor) -> None:
        logits = self.network(images.to(device_of(self.network)))
        if isinstance(logits, Tensor) and logits.shape == (len(images), self.n_classes):
            self.predicted.append(logits.argmax(1).cpu().numpy())
        else:
            self.other_output = f"{logits.shape[-1]} outputs" if isinstance(logits, Tensor) else "output"


@torch.no_grad()
def _predicted(head: nn.Module, inputs: Tensor) -> np.ndarray:
    """Return the classes (N,) that a head predicts for its inputs (N, L)."""
    return head(inputs).argmax(1).cpu().numpy()


def with_undefined(scores: pd.DataFrame, left_out: Sequence[str]) -> pd.DataFrame:
    """Return scores with an undefined one for each concept left out, where there is one for each concept."""
    by_concept = scores[(scores["item_kind"] == "concept") & (kinds_of_rows(scores) == SCORE)]
    if not left_out or by_concept.empty:
        return scores
    what = by_concept["what"].replace(SCORE, ITEM)
    undefined = by_concept.assign(what=what, value=np.nan, low=np.nan, high=np.nan, chance=np.nan, n=0, undefined=1)
    means = scores.index.isin(by_concept.index)
    scores = scores.assign(undefined=scores["undefined"] + len(left_out) * means)
    return pd.concat([scores, *(undefined.assign(item=name) for name in left_out)])


def _different_classes(labels: np.ndarray, images: np.ndarray, count: int, seed: int) -> list[int]:
    order = np.random.default_rng(seed).permutation(images)
    by_class: dict[int, list[int]] = {}
    for index in order.tolist():
        by_class.setdefault(int(labels[index]), []).append(index)
    # First one image of each class, then the second ones, and so on.
    turns = itertools.zip_longest(*by_class.values())
    return [index for turn in turns for index in turn if index is not None][:count]


def _correlations(state: ModelState) -> dict[str, np.ndarray]:
    """Return the CGIM correlation of each concept, by explanation."""
    results = [(fields, result.scores) for _, fields, result in state.results() if fields["metric"] == CGIM_CORRELATION]
    return {fields["explanation"]: scores for fields, scores in results if fields["item_kind"] == "concept"}
