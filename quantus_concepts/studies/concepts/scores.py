"""The scores of one seed of the concept study: all numbers of its models, and of each image."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from captum_concepts.backbones.embedding import Embeddings, embed
from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import ConceptLayer, linear_part
from captum_concepts.models.heads import fit_logistic
from captum_concepts.models.interventions import Levels
from captum_concepts.support.running import device_of, progress
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.functional import baseline_range, completeness, concept_swap, intervention_counts
from quantus_concepts.metrics import (
    ConceptPredictions,
    InterventionAccuracy,
    UsualMetrics,
    score_predictions,
    score_ranges,
)
from quantus_concepts.metrics.concepts.cgim import global_importance
from quantus_concepts.metrics.concepts.completeness import Completeness
from quantus_concepts.metrics.concepts.leakage import ConceptSetCeiling, ConceptTaskLeakage
from quantus_concepts.metrics.concepts.names import CGIM_CORRELATION, DIRECTIONS, ITEM, SCORE
from quantus_concepts.metrics.concepts.oracle_head import LABELS as ORACLE_SCORES
from quantus_concepts.metrics.concepts.oracle_head import OracleHead
from quantus_concepts.metrics.concepts.sparse_heads import SparseHeadAccuracy
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.model import IMPORTANCES
from quantus_concepts.metrics.host.scores import Row
from quantus_concepts.metrics.streaming.api import predict_with_controls
from quantus_concepts.metrics.streaming.table import (
    direction_rows,
    kinds_of_rows,
    mean_row,
    score_table,
    without_cgim_range,
)
from quantus_concepts.painted.images import sample_loader
from quantus_concepts.painted.subject import (
    BACKBONE,
    POST_HOC,
    RANDOM,
    bank_model,
    folded_batches,
    kept_images,
    small_backbone,
    untrained_networks,
)
from quantus_concepts.results.verdicts import ACCURACY
from quantus_concepts.studies._models.normalised import better_normalised
from quantus_concepts.studies.concepts.comparisons import PLAIN, compared_rows
from quantus_concepts.studies.concepts.models import SeedModels, fit_bank, shuffled_rows, thresholds
from quantus_concepts.studies.concepts.terms import SETTINGS, UNTRAINED, setting_name

#: Batches of a range, which are lost if a worker dies.
BATCHES = 2
TOPS = (1, 3, 5)
#: Images on which the maps of one random bank are scored, at least.
RANDOM_MAPS = 200
#: Accuracy of the heads of other seeds, and the arguments of `concept_swap`.
SWAP = "accuracy, heads of other seeds"
SWAPPED = ("values", "classes", "weights", "biases", "train_mean", "train_deviation")


class SeedScores:
    """The scores of one seed."""

    def __init__(self, run: SeedModels) -> None:
        self.run = run

    def table(self) -> pd.DataFrame:
        """Return the scores of all models, and the accuracies of other settings of the bank."""
        scores = self.run.cached("scores", self._score)
        if not self.run.settings.sweeps:
            return scores
        return pd.concat([scores, self.run.cached("sweep", self._sweep)], ignore_index=True)

    def observed(self) -> pd.DataFrame:
        """Return one frame of what comparisons, intervals over seeds and ranges of concepts are made of.

        Rows are scores of images, of classes, and of the backbone's own answers; last the CGIM correlation of each
        concept (``item``) in each random bank (``draw``).
        """
        tensors, data = self.tensors, self.run.data
        parts = [compared_rows(self._scored(per_image=True))]
        if "plain" in tensors:
            own = parts[0][(parts[0]["metric"] == ACCURACY) & (parts[0]["model"] == next(iter(self.models)))]
            right = tensors["plain"].numpy() == own["label"].to_numpy()
            parts.append(own.assign(model=PLAIN, predicted=tensors["plain"].numpy(), value=right.astype(float)))
        # Labels by class are CGIM's truth and fitted the directions: random banks are no baseline for it.
        if not data.by_class and data.class_concepts is not None:
            parts += [
                _drawn(rows, data.class_concepts.numpy(), draw, data.concept_names)
                for draw, rows in enumerate(self.controls)
            ]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """What models predict for the test images, and what the plain network answers."""
        return self.run.cached("state", self._state)

    @cached_property
    def _rows(self) -> dict[str, ConceptPredictions]:
        return unpack_rows(self.tensors)

    @property
    def models(self) -> dict[str, ConceptPredictions]:
        """What the models predict, by name."""
        return {name: rows for name, rows in self._rows.items() if not name.startswith(_CONTROL)}

    @property
    def controls(self) -> list[ConceptPredictions]:
        """What the random banks predict."""
        return [rows for name, rows in self._rows.items() if name.startswith(_CONTROL)]

    def _scored(self, *, per_image: bool = False) -> pd.DataFrame:
        """Return the table of all metrics."""
        return score_predictions(
            self.models,
            self._metrics(),
            value_threshold={
                name: threshold
                for name, threshold in thresholds(self.run.settings).items()
                if name in self.models or name == RANDOM
            },
            controls={RANDOM: self.controls},
            per_image=per_image,
        )

    def _state(self) -> dict[str, Tensor]:
        """Return what all models predict for the test images, which are read once, and what the plain network answers.

        A network without an answer for these classes has none.
        """
        run, data, settings, fitted = self.run, self.run.data, self.run.settings, self.run.models
        predict = partial(
            predict_with_controls,
            fitted.models,
            metrics=self._usual,
            class_concepts=data.class_concepts,
            truth=data.truth,
            controls={RANDOM: fitted.controls},
            # Which images they are counts for little compared with which bank it is, and maps take most of the time.
            control_stride=max(1, len(data.test) // RANDOM_MAPS),
            seed=run.seed,
        )
        loader = run.loader()
        images = loader if run.network is None else _ClassifiedImages(loader, run.network.module, data.n_classes)
        if settings.engine == "ray":
            rows = predict_in_ranges(predict, run)
            run.test_features = embed(fitted.backbone, images, display_progressbar=settings.progress).features
        else:
            with _recorded(fitted.post_hoc.concept_layer) as embeddings:
                rows = _named(*predict(images, display_progressbar=settings.progress))
            run.test_features = torch.cat(embeddings)
        plain = self._plain_answers(images)
        return pack_rows(rows) | self._levels() | ({} if plain is None else {"plain": torch.as_tensor(plain)})

    def swap_parts(self) -> dict[str, Tensor]:
        """Return, for `functional.concept_swap`, the test values and heads of the post-hoc model and of a random bank.

        The first axis is the model.
        """
        return self.run.cached("swap", self._swap_parts)

    def _swap_parts(self) -> dict[str, Tensor]:
        fitted = self.run.models
        models = [fitted.post_hoc, *fitted.controls[:1]]
        with torch.no_grad():
            train = [model.concept_layer(fitted.train_set.features) for model in models]
            values = [model.concept_layer(self.run.test_features) for model in models]
        heads = [head for model in models if (head := linear_part(model.head)) is not None]
        parts = {
            "values": values,
            "classes": [self.run.data.test.labels] * len(models),
            "weights": [head.weight.detach() for head in heads],
            "biases": [head.bias.detach() for head in heads],
            "train_mean": [part.mean(0) for part in train],
            "train_deviation": [part.std(0) for part in train],
        }
        return {name: torch.stack(tensors).cpu() for name, tensors in parts.items()}

    @property
    def _usual(self) -> UsualMetrics:
        return UsualMetrics(top_l=[top for top in TOPS if top <= len(self.run.data.concept_names)])

    def _levels(self) -> dict[str, Tensor]:
        """Return the values of absent and present concepts (2, L) of models and random banks, for interventions."""
        if not self.run.settings.interventions:
            return {}
        fitted = self.run.models
        # Values of the other models lie between 0 and 1.
        models = {name: model for name, model in fitted.models.items() if isinstance(model, PostHocCBM)}
        models |= {f"{_CONTROL}{number}": control for number, control in enumerate(fitted.controls)}
        return {f"{_LEVELS}{name}": torch.stack(model.value_levels(fitted.train_set)) for name, model in models.items()}

    def _metrics(self) -> list[UsualMetrics | ConceptMetric]:
        table, tensors = self.run.data.class_concepts, self.tensors
        metrics: list[UsualMetrics | ConceptMetric] = [self._usual]
        # Raw values have no threshold, and so no oracle head.
        honest: list[ConceptMetric] = [
            ConceptTaskLeakage(seed=self.run.seed),
            ConceptSetCeiling(),
            SparseHeadAccuracy(),
        ]
        honest += [] if table is None else [OracleHead(table, score) for score in ORACLE_SCORES]
        metrics += [metric.vary(optional=True) for metric in honest]
        if self.run.settings.interventions:
            known = [name for name in self._rows if _LEVELS + name in tensors]
            of_controls = [Levels(*tensors[_LEVELS + name]) for name in known if name.startswith(_CONTROL)]
            levels: dict[str, Levels | list[Levels]] = {RANDOM: of_controls}
            levels |= {name: Levels(*tensors[_LEVELS + name]) for name in known if not name.startswith(_CONTROL)}
            counts = intervention_counts(len(self.run.data.concept_names))
            metrics.append(InterventionAccuracy(counts, levels=levels, seed=self.run.seed))
        return metrics

    def _score(self) -> pd.DataFrame:
        """Return the scores of all models on the test images."""
        data, tensors, fitted = self.run.data, self.tensors, self.run.models
        scores = self._scored()
        scores = scores[scores["metric"] != DIRECTIONS]
        if data.by_class:
            scores = without_cgim_range(scores)
        if not fitted.post_hoc.linear_pool and (scores["metric"] == "CLM").any():
            self.run.folder.note(
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
                self.models, self.controls, tensors["plain"]
            )
        plain += self._untrained_accuracy()
        # A table without rows would make the columns of all tables ones of objects.
        return pd.concat([score_table(plain), scores], ignore_index=True) if plain else scores

    def _shuffled(self) -> list[Row]:
        """Return the range of the CGIM correlation of banks that are fitted as the model's, to shuffled images."""
        run, data, fitted = self.run, self.run.data, self.run.models

        def fit(train: Embeddings, number: int) -> PostHocCBM:
            bank = fit_bank(run.settings, train, data.concept_names, number)
            return bank_model(nn.Identity(), bank, train, data.n_classes, run.settings.values)

        rows = shuffled_rows(
            fitted.train_set,
            (run.test_features, data.test.labels),
            data.class_concepts,
            fit,
            n_banks=len(fitted.controls),
            seed=run.seed,
        )
        return [row | {"model": POST_HOC} for row in rows]

    def _plain_answers(self, images: Any) -> np.ndarray | None:
        """Return what the network's own classifier answers, where it has one for these classes."""
        if self.run.models.classifier is not None:
            return head_classes(self.run.models.classifier, self.run.test_features)
        if images.other_output:
            source = "" if self.run.network is None else self.run.network.source
            self.run.folder.note(
                f"{source}, own accuracy: not applicable. Its {images.other_output} are not the "
                f"{self.run.data.n_classes} classes of the data."
            )
            return None
        if self.run.seed == self.run.settings.seed:
            self.run.folder.note(
                *better_normalised(images.network, self.run.data.test, self.run.data.mean, self.run.data.std)
            )
        return np.concatenate(images.predicted)

    def _untrained_accuracy(self) -> list[dict[str, Any]]:
        """Return the accuracy of a linear head on what the small network sees before it is trained."""
        if self.run.network is not None:
            return []
        train = kept_images(self.run.data.train)
        network = untrained_networks(train, self.run.seed, self.run.settings.place)[BACKBONE]
        batches = (
            folded_batches(data, self.run.settings.batch_size) for data in (train, kept_images(self.run.data.test))
        )
        train_set, test_set = (embed(small_backbone(network), loader) for loader in batches)
        head = fit_logistic(train_set.features, train_set.labels, self.run.data.n_classes)
        return self._accuracy(head_classes(head, test_set.features), UNTRAINED)

    def _accuracy(self, predicted: np.ndarray, model: str, **fields: Any) -> list[dict[str, Any]]:
        return [
            mean_row(self.run.data.test.labels.numpy() == predicted, None, model=model, metric="accuracy", **fields)
        ]

    def _sweep(self) -> pd.DataFrame:
        """Return the class accuracy for other settings of the bank: the cells of the paper's Table 3."""
        rows, data, train_set, values = [], self.run.data, self.run.models.train_set, self.run.settings.values
        for strength, count in progress(SETTINGS, "settings", show=self.run.settings.progress):
            changed = replace(self.run.settings, C=strength, n_pos=count, n_neg=count)
            layer = ConceptLayer(fit_bank(changed, train_set, data.concept_names, self.run.seed), values)
            head = fit_logistic(layer(train_set.features), train_set.labels, data.n_classes)
            predicted = head_classes(head, layer(self.run.test_features))
            item = setting_name(strength, count)
            rows += self._accuracy(predicted, POST_HOC, item_kind="setting", item=item)
        return score_table(rows)


def completeness_rows(
    models: Mapping[str, ConceptPredictions], controls: Sequence[ConceptPredictions], plain: Tensor
) -> list[Row]:
    """Return the completeness of each model for the plain network's answers, and the range of the random banks."""

    def value_of(rows: ConceptPredictions) -> float:
        return completeness(rows.classes, plain, rows.labels)

    count = {"metric": Completeness.name, "n": len(plain), "chance": 0.0}
    rows = [count | {"model": name, "value": value_of(own)} for name, own in models.items()]
    if banks := [*map(value_of, controls)]:
        low, high = baseline_range(np.array(banks))
        rows.append(count | {"model": RANDOM, "value": float(np.mean(banks)), "low": low, "high": high})
    return rows


def swap_rows(parts: Mapping[int, dict[str, Tensor]]) -> pd.DataFrame:
    """Return for each seed how well the heads of the other seeds read its concepts: of the model, of a random bank."""
    rows = []
    for place, model in enumerate((POST_HOC, RANDOM)):
        if len(parts) < 2 or any(place >= len(own["values"]) for own in parts.values()):
            continue
        swap = concept_swap(*([own[name][place] for own in parts.values()] for name in SWAPPED))
        n = len(parts)
        others = (swap.accuracy.sum(0) - swap.accuracy.diagonal()) / (n - 1)
        for seed, own, value in zip(parts, parts.values(), others.tolist(), strict=True):
            chance = 1 / own["weights"].shape[1]
            fields = {"model": model, "metric": SWAP, "n": own["values"].shape[1], "chance": chance, "seed": seed}
            rows.append(fields | {"value": value})
    return score_table(rows).assign(seed=[row["seed"] for row in rows]) if rows else pd.DataFrame()


#: Beginning of the names of the rows of random banks, and of the tensors of levels; the name of the models' order.
_CONTROL, _LEVELS, _ORDER = "control ", "levels of ", "models"


def _named(
    models: Mapping[str, ConceptPredictions], controls: Sequence[ConceptPredictions]
) -> dict[str, ConceptPredictions]:
    """Return the rows of models and of random banks by name."""
    return {**models, **{f"{_CONTROL}{number}": rows for number, rows in enumerate(controls)}}


def pack_rows(rows: Mapping[str, ConceptPredictions]) -> dict[str, Tensor]:
    """Return rows of several models as tensors by name."""
    tensors = {f"{name}|{key}": tensor for name, own in rows.items() for key, tensor in own.tensors().items()}
    # Files sort by name.
    return tensors | {_ORDER: torch.tensor(list(json.dumps([*rows]).encode()), dtype=torch.uint8)}


def unpack_rows(tensors: Mapping[str, Tensor]) -> dict[str, ConceptPredictions]:
    """Return the rows of `pack_rows`."""
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in json.loads(bytes(tensors[_ORDER].tolist()))}
    for key, tensor in tensors.items():
        name, separator, own = key.partition("|")
        if separator:
            parts[name][own] = tensor
    return {name: ConceptPredictions.from_tensors(own) for name, own in parts.items()}


def predict_in_ranges(
    predict: Callable[..., tuple[Mapping[str, ConceptPredictions], Sequence[ConceptPredictions]]], run: SeedModels
) -> dict[str, ConceptPredictions]:
    """Return what `predict` does with the test images, to the bit; ranges are of whole batches."""
    size, data, fitted = run.settings.batch_size, run.data, run.models

    def predict_range(start: int, stop: int) -> dict[str, Tensor]:
        return pack_rows(_named(*predict(sample_loader(Subset(data.test, range(start, stop)), size), start=start)))

    states = score_ranges(
        lambda: predict_range,
        len(data.test),
        store=run.folder,
        key=f"ranges-{fingerprint_of(run.seed, data.fingerprint, [*fitted.models.values(), *fitted.controls])[:16]}",
        size=BATCHES * size,
        engine=run.settings.engine,
        display_progressbar=run.settings.progress,
    )
    parts = [*map(unpack_rows, states)]
    return {name: ConceptPredictions.merge([part[name] for part in parts]) for name in parts[0]}


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
def head_classes(head: nn.Module, inputs: Tensor) -> np.ndarray:
    """Return the classes (N,) that a head predicts for its inputs (N, L)."""
    return head(inputs).argmax(1).cpu().numpy()


def with_undefined(scores: pd.DataFrame, left_out: Sequence[str]) -> pd.DataFrame:
    """Return scores with an undefined one for each concept left out, where there is one for each concept."""
    kinds = kinds_of_rows(scores)
    by_concept = scores[(scores["item_kind"] == "concept") & (kinds == SCORE)]
    if not left_out or by_concept.empty:
        return scores
    what = by_concept["what"].replace(SCORE, ITEM)
    undefined = by_concept.assign(what=what, value=np.nan, low=np.nan, high=np.nan, chance=np.nan, n=0, undefined=1)
    means = scores.index.isin(by_concept.index)
    scores = scores.assign(undefined=scores["undefined"] + len(left_out) * means)
    # Some means are of concepts that have no rows of their own.
    undefined = undefined[undefined["metric"].isin(scores.loc[kinds == ITEM, "metric"])]
    return pd.concat([scores, *(undefined.assign(item=name) for name in left_out)])


def _drawn(rows: ConceptPredictions, class_concepts: np.ndarray, draw: int, names: Sequence[str]) -> pd.DataFrame:
    """Return the CGIM correlation of each concept in one random bank, by explanation; by value over all images."""
    found = []
    for kind in (kind for kind in IMPORTANCES if kind != "effect" or rows.convention(kind)):
        settings = {"centred": True, "only_correct": kind != "value"}
        scores = global_importance(rows, class_concepts, [kind], "concept", **settings)
        found.append(pd.DataFrame({"explanation": kind, "item": list(names), "value": scores.of_call}))
    # Of no image, as the rows of classes: the columns stay whole numbers.
    nowhere = dict.fromkeys(("image", "label", "predicted"), -1)
    return pd.concat(found).assign(model=RANDOM, metric=CGIM_CORRELATION, baseline="", draw=draw, **nowhere)
