"""One seed of the study: its models, every number of them, and its pictures."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import Embeddings, embed
from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import ConceptLayer, linear_part
from captum_concepts.models.heads import fit_elastic_net, fit_logistic
from captum_concepts.models.interventions import Levels
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.support.running import progress, to_model
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.explorer.explore import page_content, page_html
from quantus_concepts.functional import intervention_counts, rank_concepts
from quantus_concepts.metrics import (
    ConceptPredictions,
    ConceptRegions,
    InterventionAccuracy,
    UsualMetrics,
    score_predictions,
    score_ranges,
)
from quantus_concepts.metrics.concepts.leakage import ConceptSetCeiling, ConceptTaskLeakage
from quantus_concepts.metrics.concepts.names import ACCURACY, DIRECTIONS
from quantus_concepts.metrics.concepts.oracle_head import LABELS as ORACLE_SCORES
from quantus_concepts.metrics.concepts.oracle_head import OracleHead
from quantus_concepts.metrics.concepts.sparse_heads import SparseHeadAccuracy
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.model import ConceptModel
from quantus_concepts.metrics.host.predictions import predict_batch
from quantus_concepts.metrics.host.scores import Row
from quantus_concepts.metrics.streaming.api import predict_with_controls
from quantus_concepts.metrics.streaming.table import (
    direction_rows,
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
    HeadFit,
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
from quantus_concepts.studies._models.normalised import better_normalised
from quantus_concepts.studies.concepts.comparisons import PLAIN, compared_rows
from quantus_concepts.studies.concepts.data import BenchmarkData
from quantus_concepts.studies.concepts.figures import concept_gallery
from quantus_concepts.studies.concepts.models import Models, fit_bank, normalisation_text, shuffled_rows, thresholds
from quantus_concepts.studies.concepts.scores import (
    BATCHES,
    CONTROL,
    LEVELS,
    RANDOM_MAPS,
    TOPS,
    ClassifiedImages,
    completeness_rows,
    drawn_correlations,
    head_classes,
    named_rows,
    pack_rows,
    recorded,
    unpack_rows,
    with_undefined,
)
from quantus_concepts.studies.concepts.settings import Concepts
from quantus_concepts.studies.concepts.terms import SETTINGS, UNTRAINED, setting_name, values_name

#: Training images that are embedded, and cached, at a time, at least.
EMBEDDED = 256
#: Images of the gallery: classified correctly and wrongly, and concepts of each; images of the explorer.
N_RIGHT, N_WRONG, N_SHOWN, N_EXPLORED = 5, 2, 4, 100


class Seed:
    """One seed of one backbone: its models, their scores and pictures, made only where they are not in the cache."""

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
        controls = fit_random_models(backbone, train_set, *banks, settings.random_banks, seed, fit_head=self._fit_head)
        bank = fit_bank(settings, train_set, data.concept_names, seed)
        if bank.weak:
            self.folder.note(
                f"Seed {seed}: the directions of {len(bank.weak)} of {len(bank)} concepts are hardly distinguishable "
                "from chance on images held back, and say little."
            )
        models[POST_HOC] = post_hoc = bank_model(
            backbone, bank, train_set, data.n_classes, settings.values, self._fit_head
        )
        # On the same features: no further pass of the backbone.
        others = bank, train_set, data.n_classes, settings.other_values, self._fit_head
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

    # The scores

    def table(self) -> pd.DataFrame:
        """Return the scores of all models, and the accuracies of other settings of the bank."""
        scores = self.cached("scores", self._score)
        if not self.settings.sweeps:
            return scores
        return pd.concat([scores, self.cached("sweep", self._sweep)], ignore_index=True)

    def observed(self) -> pd.DataFrame:
        """Return one frame of what comparisons, intervals over seeds and ranges of concepts are made of.

        Rows are scores of images, of classes, and of the backbone's own answers; last the CGIM correlation of each
        concept (``item``) in each random bank (``draw``).
        """
        tensors, data = self.tensors, self.data
        parts = [compared_rows(self._scored([self._usual], per_image=True))]
        if "plain" in tensors:
            own = parts[0][(parts[0]["metric"] == ACCURACY) & (parts[0]["model"] == next(iter(self.predictions)))]
            right = tensors["plain"].numpy() == own["label"].to_numpy()
            parts.append(own.assign(model=PLAIN, predicted=tensors["plain"].numpy(), value=right.astype(float)))
        # Labels by class are CGIM's truth and fitted the directions: random banks are no baseline for it.
        if not data.by_class and data.class_concepts is not None:
            parts += [
                drawn_correlations(rows, data.class_concepts.numpy(), draw, data.concept_names)
                for draw, rows in enumerate(self.random_predictions)
            ]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """What models predict for the test images, and what the plain network answers."""
        return self.cached("state", self._state)

    @cached_property
    def _rows(self) -> dict[str, ConceptPredictions]:
        return unpack_rows(self.tensors)

    @property
    def predictions(self) -> dict[str, ConceptPredictions]:
        """What the models predict, by name."""
        return {name: rows for name, rows in self._rows.items() if not name.startswith(CONTROL)}

    @property
    def random_predictions(self) -> list[ConceptPredictions]:
        """What the random banks predict."""
        return [rows for name, rows in self._rows.items() if name.startswith(CONTROL)]

    def _scored(self, metrics: Sequence[UsualMetrics | ConceptMetric], *, per_image: bool = False) -> pd.DataFrame:
        """Return the table of some metrics."""
        return score_predictions(
            self.predictions,
            metrics,
            value_threshold={
                name: threshold
                for name, threshold in thresholds(self.settings).items()
                if name in self.predictions or name == RANDOM
            },
            controls={RANDOM: self.random_predictions},
            per_image=per_image,
        )

    def _state(self) -> dict[str, Tensor]:
        """Return what all models predict for the test images, which are read once, and what the plain network answers.

        A network without an answer for these classes has none.
        """
        data, settings, fitted = self.data, self.settings, self.models
        predict = partial(
            predict_with_controls,
            fitted.models,
            metrics=[self._usual, *self._in_regions],
            class_concepts=data.class_concepts,
            truth=data.truth,
            controls={RANDOM: fitted.controls},
            # Which images they are counts for little compared with which bank it is, and maps take most of the time.
            control_stride=max(1, len(data.test) // RANDOM_MAPS),
            seed=self.seed,
        )
        loader = self.loader()
        images = loader if self.network is None else ClassifiedImages(loader, self.network.module, data.n_classes)
        if settings.engine == "ray":
            rows = self._predict_in_ranges(predict)
            self.test_features = embed(fitted.backbone, images, display_progressbar=settings.progress).features
        else:
            with recorded(fitted.post_hoc.concept_layer) as embeddings:
                rows = named_rows(*predict(images, display_progressbar=settings.progress))
            self.test_features = torch.cat(embeddings)
        plain = self._plain_answers(images)
        return pack_rows(rows) | self._levels() | ({} if plain is None else {"plain": torch.as_tensor(plain)})

    def swap_parts(self) -> dict[str, Tensor]:
        """Return, for `functional.concept_swap`, the test values and heads of the post-hoc model and of a random bank.

        The first axis is the model.
        """
        return self.cached("swap", self._swap_parts)

    def _swap_parts(self) -> dict[str, Tensor]:
        fitted = self.models
        models = [fitted.post_hoc, *fitted.controls[:1]]
        with torch.no_grad():
            train = [model.concept_layer(fitted.train_set.features) for model in models]
            values = [model.concept_layer(self.test_features) for model in models]
        heads = [head for model in models if (head := linear_part(model.head)) is not None]
        parts = {
            "values": values,
            "classes": [self.data.test.labels] * len(models),
            "weights": [head.weight.detach() for head in heads],
            "biases": [head.bias.detach() for head in heads],
            "train_mean": [part.mean(0) for part in train],
            "train_deviation": [part.std(0) for part in train],
        }
        return {name: torch.stack(tensors).cpu() for name, tensors in parts.items()}

    @property
    def _usual(self) -> UsualMetrics:
        tops = [top for top in TOPS if top <= len(self.data.concept_names)]
        return UsualMetrics(top_l=tops, by_magnitude=self.settings.as_printed)

    @property
    def _in_regions(self) -> list[ConceptRegions]:
        """The scores of maps against the object, where the data mark it."""
        regions, parts = self.data.regions, self.data.part_of_concept
        return [] if regions is None else [ConceptRegions(score, regions, parts) for score in ("iou", "energy", "hit")]

    @property
    def _fit_head(self) -> HeadFit:
        """What fits the heads of the model and of its random banks; as printed, that of the authors' release."""
        return partial(fit_elastic_net, seed=self.seed) if self.settings.as_printed else fit_logistic

    def _levels(self) -> dict[str, Tensor]:
        """Return the values of absent and present concepts (2, L) of models and random banks, for interventions."""
        if not self.settings.interventions:
            return {}
        fitted = self.models
        # Values of the other models lie between 0 and 1.
        models = {name: model for name, model in fitted.models.items() if isinstance(model, PostHocCBM)}
        models |= {f"{CONTROL}{number}": control for number, control in enumerate(fitted.controls)}
        return {f"{LEVELS}{name}": torch.stack(model.value_levels(fitted.train_set)) for name, model in models.items()}

    def _metrics(self) -> list[UsualMetrics | ConceptMetric]:
        table, tensors = self.data.class_concepts, self.tensors
        metrics: list[UsualMetrics | ConceptMetric] = [self._usual, *self._in_regions]
        # Raw values have no threshold, and so no oracle head.
        honest: list[ConceptMetric] = [
            ConceptTaskLeakage(seed=self.seed),
            ConceptSetCeiling(),
            SparseHeadAccuracy(),
        ]
        honest += [] if table is None else [OracleHead(table, score) for score in ORACLE_SCORES]
        metrics += [metric.vary(optional=True) for metric in honest]
        if self.settings.interventions:
            known = [name for name in self._rows if LEVELS + name in tensors]
            of_controls = [Levels(*tensors[LEVELS + name]) for name in known if name.startswith(CONTROL)]
            levels: dict[str, Levels | list[Levels]] = {RANDOM: of_controls}
            levels |= {name: Levels(*tensors[LEVELS + name]) for name in known if not name.startswith(CONTROL)}
            counts = intervention_counts(len(self.data.concept_names))
            metrics.append(InterventionAccuracy(counts, levels=levels, seed=self.seed))
        return metrics

    def _score(self) -> pd.DataFrame:
        """Return the scores of all models on the test images."""
        data, tensors, fitted = self.data, self.tensors, self.models
        scores = self._scored(self._metrics())
        scores = scores[scores["metric"] != DIRECTIONS]
        if data.by_class:
            scores = without_cgim_range(scores)
        if not fitted.post_hoc.linear_pool and (scores["metric"] == "CLM").any():
            self.folder.note(
                "About the maps: this backbone does not pool by the plain mean. Its maps are local evidence, not a "
                "decomposition of the concept's value."
            )
        bank = fitted.post_hoc.bank
        directions = direction_rows(POST_HOC, bank.test_accuracy.double(), bank.names)
        if data.class_concepts is not None and not data.by_class:
            directions += self._shuffled()
        scores = with_undefined(pd.concat([scores, score_table(directions)], ignore_index=True), data.left_out)
        plain: list[Row] = []
        if "plain" in tensors:
            plain = self._accuracy(tensors["plain"].numpy(), PLAIN) + completeness_rows(
                self.predictions, self.random_predictions, tensors["plain"]
            )
        plain += self._untrained_accuracy()
        # A table without rows would make the columns of all tables ones of objects.
        return pd.concat([score_table(plain), scores], ignore_index=True) if plain else scores

    def _shuffled(self) -> list[Row]:
        """Return the range of the CGIM correlation of banks that are fitted as the model's, to shuffled images."""
        data, fitted = self.data, self.models

        def fit(train: Embeddings, number: int) -> PostHocCBM:
            bank = fit_bank(self.settings, train, data.concept_names, number)
            return bank_model(nn.Identity(), bank, train, data.n_classes, self.settings.values, self._fit_head)

        rows = shuffled_rows(
            fitted.train_set,
            (self.test_features, data.test.labels),
            data.class_concepts,
            fit,
            n_banks=len(fitted.controls),
            seed=self.seed,
        )
        return [row | {"model": POST_HOC} for row in rows]

    def _plain_answers(self, images: Any) -> np.ndarray | None:
        """Return what the network's own classifier answers, where it has one for these classes."""
        if self.models.classifier is not None:
            return head_classes(self.models.classifier, self.test_features)
        if images.other_output:
            source = "" if self.network is None else self.network.source
            self.folder.note(
                f"{source}, own accuracy: not applicable. Its {images.other_output} are not the "
                f"{self.data.n_classes} classes of the data."
            )
            return None
        if self.seed == self.settings.seed:
            self.folder.note(*better_normalised(images.network, self.data.test, self.data.mean, self.data.std))
        return np.concatenate(images.predicted)

    def _untrained_accuracy(self) -> list[dict[str, Any]]:
        """Return the accuracy of a linear head on what the small network sees before it is trained."""
        if self.network is not None:
            return []
        train = kept_images(self.data.train)
        network = untrained_networks(train, self.seed, self.settings.place)[BACKBONE]
        batches = (folded_batches(data, self.settings.batch_size) for data in (train, kept_images(self.data.test)))
        train_set, test_set = (embed(small_backbone(network), loader) for loader in batches)
        head = fit_logistic(train_set.features, train_set.labels, self.data.n_classes)
        return self._accuracy(head_classes(head, test_set.features), UNTRAINED)

    def _accuracy(self, predicted: np.ndarray, model: str, **fields: Any) -> list[dict[str, Any]]:
        return [mean_row(self.data.test.labels.numpy() == predicted, None, model=model, metric="accuracy", **fields)]

    def _sweep(self) -> pd.DataFrame:
        """Return the class accuracy for other settings of the bank: the cells of the paper's Table 3."""
        rows, data, train_set, values = [], self.data, self.models.train_set, self.settings.values
        for strength, count in progress(SETTINGS, "settings", show=self.settings.progress):
            changed = replace(self.settings, C=strength, n_pos=count, n_neg=count)
            layer = ConceptLayer(fit_bank(changed, train_set, data.concept_names, self.seed), values)
            head = self._fit_head(layer(train_set.features), train_set.labels, data.n_classes)
            predicted = head_classes(head, layer(self.test_features))
            item = setting_name(strength, count)
            rows += self._accuracy(predicted, POST_HOC, item_kind="setting", item=item)
        return score_table(rows)

    def _predict_in_ranges(
        self, predict: Callable[..., tuple[Mapping[str, ConceptPredictions], Sequence[ConceptPredictions]]]
    ) -> dict[str, ConceptPredictions]:
        """Return what `predict` does with the test images, to the bit; ranges are of whole batches."""
        size, data, fitted = self.settings.batch_size, self.data, self.models
        own = fingerprint_of(self.seed, data.fingerprint, [*fitted.models.values(), *fitted.controls])

        def predict_range(start: int, stop: int) -> dict[str, Tensor]:
            return pack_rows(
                named_rows(*predict(sample_loader(Subset(data.test, range(start, stop)), size), start=start))
            )

        states = score_ranges(
            lambda: predict_range,
            len(data.test),
            store=self.folder,
            key=f"ranges-{own[:16]}",
            size=BATCHES * size,
            engine=self.settings.engine,
            display_progressbar=self.settings.progress,
        )
        parts = [*map(unpack_rows, states)]
        return {name: ConceptPredictions.merge([part[name] for part in parts]) for name in parts[0]}

    # The pictures

    def gallery(self) -> Figure:
        """Draw some images with the concepts of the largest effects on the predicted class."""
        shown = self.cached("gallery", self._shown)
        return concept_gallery(shown, self.data.class_names, self.data.concept_names)

    def explorer(self) -> str:
        """Return the page that shows test images of all classes and on which their concepts can be corrected."""
        # A browser would execute a page from the cache: only what it is made from is kept.
        content = bytes(self.cached("explorer", self._explorer)["content"].tolist())
        return page_html("Concepts of the test images", json.loads(content))

    def _shown(self) -> dict[str, Tensor]:
        """Return some images, correctly classified ones first, and the maps of the concepts of the largest effects."""
        data, model = self.data, self.models.post_hoc
        labels = data.test.labels.numpy()
        right = labels == head_classes(model.head, model.concept_layer(self.test_features))
        rows = _different_classes(labels, np.flatnonzero(right), N_RIGHT, self.seed)
        rows += _different_classes(labels, np.flatnonzero(~right), N_WRONG + N_RIGHT - len(rows), self.seed)
        batch = collate([data.test[index] for index in rows])
        outputs = predict_batch(model, batch.image, None, {})
        weight, effects = outputs.importance("weight"), outputs.importance("effect")
        ranked = rank_concepts(effects, min(N_SHOWN, len(data.concept_names)))
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
            "absent": cast(Tensor, outputs.values).gather(1, ranked) < 0,
            "effects": effects.gather(1, ranked),
            "labels": batch_labels(batch),
            "predicted": outputs.classes,
        }

    def _explorer(self) -> dict[str, Tensor]:
        data, fitted = self.data, self.models
        rows = np.linspace(0, len(data.test) - 1, min(N_EXPLORED, len(data.test))).astype(int)
        batch = collate([data.test[int(row)] for row in rows])
        model = fitted.post_hoc.with_head(fitted.post_hoc.head)
        heads: list[Any] = [control.head for control in fitted.controls]
        model.random_banks = tuple(
            RandomBank(control.bank.cavs, control.bank.intercepts, head, control.absent_values)
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


def _different_classes(labels: np.ndarray, images: np.ndarray, count: int, seed: int) -> list[int]:
    """Draw some images, of different classes while there are any."""
    order = np.random.default_rng(seed).permutation(images)
    by_class: dict[int, list[int]] = {}
    for index in order.tolist():
        by_class.setdefault(int(labels[index]), []).append(index)
    # First one image of each class, then the second ones, and so on.
    turns = itertools.zip_longest(*by_class.values())
    return [index for turn in turns for index in turn if index is not None][:count]
