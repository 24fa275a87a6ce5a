"""The scores of one seed of the concept study: all numbers of its models, and of each image."""

from __future__ import annotations

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
from quantus_concepts.metrics import ConceptState, InterventionAccuracy, UsualMetrics, concept_state, score_ranges
from quantus_concepts.metrics.concepts.completeness import Completeness
from quantus_concepts.metrics.concepts.leakage import ConceptSetCeiling, ConceptTaskLeakage
from quantus_concepts.metrics.concepts.names import CGIM_CORRELATION, ITEM, SCORE
from quantus_concepts.metrics.concepts.oracle_head import LABELS as ORACLE_SCORES
from quantus_concepts.metrics.concepts.oracle_head import OracleHead
from quantus_concepts.metrics.concepts.sparse_heads import SparseHeadAccuracy
from quantus_concepts.metrics.host.observing import Observer
from quantus_concepts.metrics.host.rows import Row
from quantus_concepts.metrics.streaming.engine import ModelState
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
from quantus_concepts.studies._models.normalised import better_normalised
from quantus_concepts.studies.concepts.comparisons import PLAIN, compared_rows, is_shown_set
from quantus_concepts.studies.concepts.models import SeedModels, shuffled_rows
from quantus_concepts.studies.concepts.terms import SETTINGS, UNTRAINED, setting_name
from quantus_concepts.verdicts import ACCURACY

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
        if not self.run.settings.sweep:
            return scores
        return pd.concat([scores, self.run.cached("sweep", self._sweep)], ignore_index=True)

    def observed(self) -> pd.DataFrame:
        """Return one frame of what comparisons, intervals over seeds and ranges of concepts are made of.

        Rows are scores of images, of classes, and of the backbone's own answers; last the CGIM correlation of each
        concept (``item``) in each random bank (``draw``).
        """
        state, tensors = self.state, self.tensors
        parts = [compared_rows(state.images())]
        if "plain" in tensors:
            own = parts[0][(parts[0]["metric"] == ACCURACY) & (parts[0]["model"] == state.names[0])]
            right = tensors["plain"].numpy() == own["label"].to_numpy()
            parts.append(own.assign(model=PLAIN, predicted=tensors["plain"].numpy(), value=right.astype(float)))
        # Labels by class are CGIM's truth and fitted the directions: random banks are no baseline for it.
        if not self.run.data.by_class:
            parts += [_drawn(control, draw, self.run.data.concept_names) for draw, control in enumerate(state.controls)]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """What metrics have observed of the test images, and what the plain network answers."""
        return self.run.cached("state", self._state)

    @cached_property
    def state(self) -> ConceptState:
        """The state of all models on the test images."""
        return ConceptState.from_tensors(self.tensors)

    def _state(self) -> dict[str, Tensor]:
        """Return the state of all models on the test images, which are read once, and what the plain network answers.

        A network without an answer for these classes has none.
        """
        run, data, settings, fitted = self.run, self.run.data, self.run.settings, self.run.models
        score = partial(
            concept_state,
            fitted.models,
            metrics=self._metrics(),
            class_concepts=data.class_concepts,
            truth=data.truth,
            value_threshold=settings.thresholds,
            controls={RANDOM: fitted.controls},
            # Which images they are counts for little compared with which bank it is, and maps take most of the time.
            control_stride=max(1, len(data.test) // RANDOM_MAPS),
            seed=run.seed,
        )
        loader = run.loader()
        images = loader if run.network is None else _ClassifiedImages(loader, run.network.module, data.n_classes)
        if settings.engine == "ray":
            state = score_in_ranges(score, run)
            run.test_features = embed(fitted.backbone, images, display_progressbar=settings.progress).features
        else:
            with _recorded(fitted.post_hoc.concept_layer) as embeddings:
                state = score(images, display_progressbar=settings.progress)
            run.test_features = torch.cat(embeddings)
        plain = self._plain_answers(images)
        return state.tensors() | ({} if plain is None else {"plain": torch.as_tensor(plain)})

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

    def _metrics(self) -> list[UsualMetrics | Observer]:
        fitted, n_concepts, table = self.run.models, len(self.run.data.concept_names), self.run.data.class_concepts
        metrics: list[UsualMetrics | Observer] = [UsualMetrics(top_l=[top for top in TOPS if top <= n_concepts])]
        # Raw values have no threshold, and so no oracle head.
        honest: list[Observer] = [ConceptTaskLeakage(seed=self.run.seed), ConceptSetCeiling(), SparseHeadAccuracy()]
        honest += [] if table is None else [OracleHead(table, score) for score in ORACLE_SCORES]
        metrics += [metric.vary(optional=True) for metric in honest]
        if self.run.settings.interventions:
            models = {name: model for name, model in fitted.models.items() if isinstance(model, PostHocCBM)}
            # Values of the other models lie between 0 and 1.
            levels: dict[str, Levels | list[Levels]] = {
                name: model.value_levels(fitted.train_set) for name, model in models.items()
            }
            levels[RANDOM] = [control.value_levels(fitted.train_set) for control in fitted.controls]
            counts = intervention_counts(n_concepts)
            metrics.append(InterventionAccuracy(counts, levels=levels, seed=self.run.seed))
        return metrics

    def _score(self) -> pd.DataFrame:
        """Return the scores of all models on the test images."""
        data, state, tensors, fitted = self.run.data, self.state, self.tensors, self.run.models
        scores = state.table()
        if data.by_class:
            scores = without_cgim_range(scores)
        if not fitted.post_hoc.linear_pool and (scores["metric"] == "CLM").any():
            self.run.folder.note(
                "About the maps: this backbone does not pool by the plain mean. Its maps are local evidence, not a "
                "decomposition of the concept's value."
            )
        directions = direction_rows(POST_HOC, fitted.post_hoc)
        if data.class_concepts is not None and not data.by_class:
            directions += self._shuffled()
        scores = with_undefined(pd.concat([scores, score_table(directions)], ignore_index=True), data.left_out)
        plain: list[Row] = []
        if "plain" in tensors:
            plain = self._accuracy(tensors["plain"].numpy(), PLAIN) + completeness_rows(state, tensors["plain"])
        plain += self._untrained_accuracy()
        # A table without rows would make the columns of all tables ones of objects.
        return pd.concat([score_table(plain), scores], ignore_index=True) if plain else scores

    def _shuffled(self) -> list[Row]:
        """Return the range of the CGIM correlation of banks that are fitted as the model's, to shuffled images."""
        run, data, fitted = self.run, self.run.data, self.run.models

        def fit(train: Embeddings, number: int) -> PostHocCBM:
            bank = run.settings.fit_bank(train, data.concept_names, number)
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
        if self.run.first:
            self.run.folder.note(
                *better_normalised(images.network, self.run.data.test, self.run.data.mean, self.run.data.std)
            )
        return np.concatenate(images.predicted)

    def _untrained_accuracy(self) -> list[dict[str, Any]]:
        """Return the accuracy of a linear head on what the small network sees before it is trained."""
        if self.run.network is not None:
            return []
        train = kept_images(self.run.data.train)
        network = untrained_networks(train, self.run.seed, self.run.settings.device)[BACKBONE]
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
            layer = ConceptLayer(changed.fit_bank(train_set, data.concept_names, self.run.seed), values)
            head = fit_logistic(layer(train_set.features), train_set.labels, data.n_classes)
            predicted = head_classes(head, layer(self.run.test_features))
            item = setting_name(strength, count)
            rows += self._accuracy(predicted, POST_HOC, item_kind="setting", item=item)
        return score_table(rows)


def completeness_rows(state: ConceptState, plain: Tensor) -> list[Row]:
    """Return the completeness of each model for the plain network's answers, and the range of the random banks."""
    facts = [column.facts for column in state.columns]
    values = [completeness(own.predicted, plain, own.labels) for own in facts]
    count = {"metric": Completeness.name, "n": len(plain), "chance": 0.0}
    rows = [count | {"model": name, "value": value} for name, value in zip(state.names, values, strict=False)]
    if banks := values[len(state.names) :]:
        low, high = baseline_range(np.array(banks))
        rows.append(count | {"model": state.control, "value": float(np.mean(banks)), "low": low, "high": high})
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


def score_in_ranges(score: Callable[..., ConceptState], run: SeedModels) -> ConceptState:
    """Return what `score` does with the test images, to the bit; ranges are of whole batches."""
    size, data, fitted = run.settings.batch_size, run.data, run.models

    def score_range(start: int, stop: int) -> dict[str, Tensor]:
        return score(sample_loader(Subset(data.test, range(start, stop)), size), start=start).tensors()

    states = score_ranges(
        lambda: score_range,
        len(data.test),
        store=run.folder,
        key=f"ranges-{fingerprint_of(run.seed, data.fingerprint, [*fitted.models.values(), *fitted.controls])[:16]}",
        size=BATCHES * size,
        engine=run.settings.engine,
        display_progressbar=run.settings.progress,
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
def head_classes(head: nn.Module, inputs: Tensor) -> np.ndarray:
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


def _drawn(control: ModelState, draw: int, names: Sequence[str]) -> pd.DataFrame:
    """Return the CGIM correlation of each concept in one random bank, by explanation; by value over all images."""
    found = [
        pd.DataFrame({"explanation": fields["explanation"], "item": list(names), "value": result.scores})
        for _, fields, result in control.results()
        if fields["metric"] == CGIM_CORRELATION and fields["item_kind"] == "concept" and is_shown_set(fields)
    ]
    # Of no image, as the rows of classes: the columns stay whole numbers.
    nowhere = dict.fromkeys(("image", "label", "predicted"), -1)
    return pd.concat(found).assign(model=RANDOM, metric=CGIM_CORRELATION, baseline="", draw=draw, **nowhere)
