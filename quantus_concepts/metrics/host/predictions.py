"""What a concept model predicts for images, beside their truth: a row for each image, and nothing else is ever kept."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.models.chain import linear_part, make_linear
from captum_concepts.models.effects import ABSENT_LEVEL, TRAINING_MEAN, concept_effects, effect_level, named_effects
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.support.checks import to_numpy
from captum_concepts.support.running import at_least_float32, predict_logits, to_host, without_autocast
from captum_concepts.texts import describe
from quantus_concepts.functional.concepts.ranking import rank_concepts
from quantus_concepts.metrics.host.checks import check_classes, check_outputs, checked_classes
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.looks import Looked, bank_suffix
from quantus_concepts.metrics.host.model import (
    IMPORTANCES,
    ConceptModel,
    check_concept_count,
    convention_of,
    head_gradient,
    is_concept_model,
    linear_weights,
    no_level,
    shared_features,
    shared_outputs,
)
from quantus_concepts.metrics.host.prediction_files import pack, read, unpack, write

#: What a value of 0 of a random bank means, as of `PostHocCBM.zero`.
BANK_ZERO = {"margin": "zero at the margin", "raw": "zero of the raw value"}
#: So many first concepts are ranked of each importance, for metrics that ask for fewer.
KEPT_RANKS = 5
#: So many numbers of (n, L) are made at a time.
AT_A_TIME = 2**18


@dataclass(frozen=True)
class Rows:
    """Tensors, arrays and dicts of them with a row for each sample; of what is `SAME`, all parts have the same.

    Each kind has a length, `explained`, whether one of the attributions that were asked for is not zero, and `n_wrong`,
    how many samples are misclassified where `y_batch` stands for their true classes.
    """

    SAME: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the samples of several parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        joined = {}
        for each in fields(cls):
            if each.init:
                values = [getattr(part, each.name) for part in parts]
                joined[each.name] = values[0] if each.name in cls.SAME else _join(values)
        return cls(**joined)

    def kept(self) -> Self:
        """Return the same where it may stay."""
        return self


def _join(values: Sequence[Any]) -> Any:
    first, known = values[0], [value for value in values if value is not None]
    if isinstance(first, bool):
        return any(known)
    if len(known) < len(values):
        return None
    if isinstance(first, int):
        return sum(known)
    if isinstance(first, Mapping):
        return {name: _join([of[name] for of in values]) for name in first if all(name in of for of in values)}
    return np.concatenate(values) if isinstance(first, np.ndarray) else torch.cat([*values])


@dataclass(frozen=True)
class Scored(Rows):
    """Scores (n,) of some samples, with what their record needs.

    `chance` (n,) is what no knowledge scores, NaN where that is unknown. `reason` (n,) says why a score is undefined:
    "" or reasons, a line each (`add_reason`). `clusters` (n,) are the same for samples that depend on each other. A
    subclass may have more fields with a row for each sample.
    """

    scores: np.ndarray
    chance: np.ndarray | None = None
    reason: np.ndarray | None = None
    clusters: np.ndarray | None = None
    #: How many are misclassified by `y_batch` in place of labels; None where labels are known.
    n_wrong: int | None = field(default=None, kw_only=True)
    #: Whether one of the attributions that were asked for is not zero; None if none were.
    explained: bool | None = None

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, kw_only=True, repr=False)
class ConceptPredictions(Rows):
    """What a concept model predicts for images: the rows of which every score of concepts is computed.

    `predict_concepts` makes them, `score_predictions` makes tables of them. Rows of several parts of a data set merge
    into those of all, and are written to files.

    Parameters
    ----------
    classes : Tensor
        (N,) the classes explained: in a table the predicted ones.
    predicted : Tensor, optional
        (N,) predicted classes.
    values : Tensor, optional
        (N, L) concept values.
    given : Tensor, optional
        (N, L) explanations of a method in place of the model's own importances, with why some cannot be used.
    reason : array, optional
        (N,) of str, "" for nothing.
    of_head : dict
        Of a head that is not linear: importances (N, L) for the explained class that need it, by their kind.
    embedding : Tensor, optional
        (N, d) from which random banks have values of their own.
    truth : dict
        Truth by name, a row for each image: "labels" (N,), "concept_labels" (N, L), ...
    looks : dict
        What metrics saw while the model was there, by the name of their look.
    head : nn.Module, optional
        Concept values to class logits.
    banks : sequence of RandomBank
        Random banks that stand beside the model.
    tables : dict
        "class_concepts" and "training_concepts" (K, L), "part_of_concept" (L,), "level" of absent concepts, by name.
    about : dict
        Names of classes and concepts, and facts about the model.
    threshold : float, optional
        From which value on a concept counts as present.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import BottleneckCBM
    >>> from quantus_concepts import CEM, predict_concepts, score_predictions
    >>> model = BottleneckCBM(nn.Identity(), nn.Linear(3, 2), nn.Linear(2, 2))
    >>> images, labels = torch.rand(4, 3), torch.tensor([0, 1, 0, 1])
    >>> rows = predict_concepts(model, [(images, labels, torch.eye(2)[labels])])
    >>> len(rows), score_predictions(rows, [CEM()])["metric"].tolist()
    (4, ['CEM', 'CEM'])
    """

    SAME = ("head", "banks", "about", "tables", "threshold", "models")
    _BY_NAME = ("truth", "of_head", "looks")
    classes: Tensor
    predicted: Tensor | None = None
    values: Tensor | None = None
    given: Tensor | None = None
    reason: np.ndarray | None = None
    of_head: Mapping[str, Tensor] = field(default_factory=dict)
    embedding: Tensor | None = None
    truth: Mapping[str, Tensor] = field(default_factory=dict)
    looks: Mapping[str, Looked] = field(default_factory=dict)
    head: nn.Module | None = None
    banks: Sequence[RandomBank] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    #: Of several models of the same images, whose rows stand one after another: the rows of each.
    models: Sequence[ConceptPredictions] = ()
    #: What was made of the rows, by which function and of what.
    _made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        counts = dict(zip(("classes", "concepts"), self.shape, strict=True))
        return describe(self, f"{len(self)} images", **counts, truth=[*self.truth], banks=len(self.banks))

    def __len__(self) -> int:
        return len(self.classes)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the samples of several parts; of heads that differ, as of a model that learns, importances stay."""
        if len(parts) == 1:
            return parts[0]
        names = dict.fromkeys(name for part in parts for name in part.looks)
        looks = {name: Looked.join([(len(part), part.looks.get(name)) for part in parts]) for name in names}
        parts = [replace(part, looks={}) for part in parts]
        if not all(is_same_head(parts[0].head, part.head) for part in parts):
            parts = [replace(part, of_head=part._of_head(), head=None) for part in parts]
        return replace(super().join(parts), looks=looks)

    def _of_head(self) -> Mapping[str, Tensor]:
        theta = self.theta
        if theta is None:
            return self.of_head
        kinds = {"effect": self.importance, "named": self.naming} if self.tables.get("level") is not None else {}
        return {"weight": theta[self.classes]} | {name: of("effect") for name, of in kinds.items()}

    @classmethod
    def merge(cls, parts: Sequence[ConceptPredictions]) -> ConceptPredictions:
        """Return the rows of several parts of a data set, one after another.

        Parameters
        ----------
        parts : sequence of ConceptPredictions
            Of the same model and arguments, in the order of the images.

        Returns
        -------
        ConceptPredictions
            All rows.

        Raises
        ------
        ValueError
            If there is no part, or they are of other models, names, tables, truth or looks.
        """
        if not (parts := [*parts]):
            raise ValueError("Expected argument `parts` to hold at least one part but it is empty.")
        for part in parts[1:]:
            if not is_same_head(parts[0].head, part.head):
                raise ValueError("Expected argument `parts` to be of one model but their heads differ.")
            for mine, other in zip(_facts(parts[0]), _facts(part), strict=True):
                if mine != other:
                    raise ValueError(
                        "Expected argument `parts` to be of one model and the same arguments but got "
                        f"{mine} and {other}."
                    )
        return cls.join(parts)

    def select(self, rows: Any) -> Self:
        """Return some of the rows.

        Parameters
        ----------
        rows : array_like
            Numbers of images, or (N,) of bool.

        Returns
        -------
        ConceptPredictions
            Those rows, in this order.

        Raises
        ------
        IndexError
            If there is no such row.
        """
        numbers = torch.as_tensor(np.arange(len(self))[np.asarray(rows)])
        return self[numbers]

    def __getitem__(self, rows: Any) -> Self:
        """Return some rows, by a slice or by their numbers."""
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(self)))
        named = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        taken = {
            name: value[rows.numpy() if isinstance(value, np.ndarray) else rows.to(value.device)]
            for name, value in named.items()
            if name not in (*self.SAME, *self._BY_NAME) and value is not None
        }
        for part in ("truth", "of_head"):
            taken[part] = {name: value[rows.to(value.device)] for name, value in named[part].items()}
        return replace(self, **taken, looks={name: of[rows] for name, of in self.looks.items()})

    @property
    def explained(self) -> bool | None:
        """Whether one of the attributions that were asked for is not zero; None if none were."""
        return None if self.given is None else bool((self.given != 0).any())

    @property
    def n_wrong(self) -> int | None:
        """How many samples are misclassified by `y_batch` in place of labels; None where labels are known."""
        known = "labels" in self.truth or self.predicted is None or self.about.get("explains_predictions", True)
        return None if known else int((~self.correct).sum())

    @property
    def theta(self) -> Tensor | None:
        """The weights (K, L) of a linear head."""
        return None if self.head is None else linear_weights(self.head)

    @property
    def labels(self) -> Tensor:
        """The true classes (N,); without them those explained."""
        return self.truth.get("labels", self.classes)

    @property
    def correct(self) -> Tensor:
        """Whether the predicted class is the true one (N,)."""
        predicted = cast(Tensor, self.predicted)
        return predicted == self.labels.to(predicted)

    @property
    def shape(self) -> tuple[int, int]:
        """How many classes and concepts there are."""
        theta, of_rows = self.theta, self.given if self.values is None else self.values
        n_classes = self.about.get("n_classes", 0) if theta is None else len(theta)
        return n_classes, cast(Tensor, of_rows).shape[1]

    def chunks(self, width: int | None = None) -> Iterator[slice]:
        """Yield some rows after others, so that what is made of (n, L) numbers on the way stays small."""
        size = max(1, AT_A_TIME // (width or self.shape[1]))
        return (slice(start, start + size) for start in range(0, len(self), size))

    def importance(self, kind: str, rows: slice = slice(None)) -> Tensor:
        """Return the importance (n, L) of concepts for the explained classes.

        "weight" is theta, "value" is u, "contribution" is their product, and "effect" what the class, less the mean of
        all, loses where the concept is absent. Explanations that were given stand in place of each of them.
        """
        if self.given is not None:
            return self.given[rows]
        values = at_least_float32(cast(Tensor, self.values)[rows])
        if kind == "value":
            return values
        if kind == "effect":
            return self.of_head["effect"][rows] if "effect" in self.of_head else self._effects(rows)
        theta = self.theta
        if theta is None and "weight" not in self.of_head:
            raise ValueError(_not_asked(kind))
        own = self.of_head["weight"][rows] if theta is None else theta[self.classes[rows]]
        return own.to(values) if kind == "weight" else own.to(values) * values

    def naming(self, kind: str, rows: slice = slice(None)) -> Tensor:
        """Return the importance (n, L) by which concepts are named: by effect those below their level come last."""
        importance = self.importance(kind, rows)
        if kind != "effect" or self.given is not None:
            return importance
        if "named" in self.of_head:
            return self.of_head["named"][rows]
        return named_effects(importance, cast(Tensor, self.values)[rows], torch.as_tensor(self.tables["level"]))

    def _effects(self, rows: slice) -> Tensor:
        level = self.tables.get("level")
        if level is None:
            raise ValueError(no_level(self.about["kind"]))
        if self.head is None:
            raise ValueError(_not_asked("effect"))
        values, head = cast(Tensor, self.values)[rows], self.head
        effects = concept_effects(head, values, self.classes[rows], torch.as_tensor(level))
        return effects.to(at_least_float32(values).dtype)

    def convention(self, kind: str) -> str:
        """Return what an importance of a kind is counted from, "" where that is not known."""
        if self.given is not None:
            return ""
        return str(self.about.get("effect" if kind == "effect" else "zero", ""))

    def ranked(self, kind: str, top: int, *, by_magnitude: bool = False) -> tuple[Tensor, Tensor]:
        """Return the first concepts (N, top), and the largest absolute importance (N,), NaN if one is."""
        most = max(top, min(KEPT_RANKS, self.shape[1]))

        def rank() -> tuple[Tensor, Tensor]:
            orders, largest = [], []
            for rows in self.chunks():
                importance = self.naming(kind, rows)
                orders.append(rank_concepts(importance.abs() if by_magnitude else importance, most).clone())
                largest.append(torch.linalg.vector_norm(importance, torch.inf, 1))
            return torch.cat(orders), torch.cat(largest)

        order, norms = self.once(("ranked", kind, most, by_magnitude), rank)
        return order[:, :top], norms

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, made once for these rows; the key names all that it depends on."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def knowing(self, **known: Any) -> Self:
        """Return the same rows with other parts; what was made of them and does not depend on these stays."""
        other, made = replace(self, **known), self._made
        if known.keys() & {"truth", "threshold"}:
            # Ranks depend on what is explained, and not on what is true.
            made = {key: of for key, of in made.items() if key[0] == "ranked"}
        same_level = other.tables.get("level") is self.tables.get("level")
        if same_level and known.keys() <= {"truth", "threshold", "tables", "about", "looks", "banks"}:
            object.__setattr__(other, "_made", made)
        return other

    # Random banks.

    def of_banks(self) -> Iterator[Self]:
        """Yield what concept models of the random banks, over the same embeddings, predict for the same images."""
        for number, bank in enumerate(self.banks):
            looks = {
                name.removesuffix(suffix): of
                for name, of in self.looks.items()
                if name.endswith(suffix := bank_suffix(number))
            }
            yield self.of_bank(bank, looks)

    def stacked_banks(self) -> Iterator[Self]:
        """Yield rows of several random banks, one after another: so many as make few numbers, which one call scores."""
        each = self.of_banks()
        size = max(1, AT_A_TIME // max(1, (len(self) + self.shape[0]) * self.shape[1]))
        while parts := [*itertools.islice(each, size)]:
            # Their heads and levels differ, so that importances stand in their place.
            of_head = [replace(part, of_head=part._of_head(), head=None) for part in parts]
            yield replace(self.join(of_head if size > 1 else parts), models=parts)

    @property
    def of_model(self) -> Tensor:
        """The number of the model (N,) that each row is of: 0 of a single one."""
        return torch.arange(len(self)) // max(1, len(self) // max(1, len(self.models)))

    def of_bank(self, bank: RandomBank, looks: Mapping[str, Looked] | None = None) -> Self:
        """Return what the concept model of a random bank predicts; explained are the classes that it predicts itself.

        Where other classes than the model's predictions are explained, these stay.
        """
        values, logits = self.bank_outputs(cast(Tensor, self.embedding), bank)
        predicted = logits.argmax(1)
        own = self.about.get("explains_predictions", True)
        kind_of_values = self.about["bank_values"]
        about = {**self.about, "values": kind_of_values, "bounded": False, "kind": "PostHocCBM"}
        about |= {"zero": BANK_ZERO[kind_of_values]}
        about |= {"effect": TRAINING_MEAN if bank.absent_values is None else ABSENT_LEVEL}
        level = bank.mean_values(kind_of_values) if bank.absent_values is None else bank.absent_values
        linear = cast(nn.Linear, linear_part(bank.head))
        head = linear
        if linear.weight.dtype != values.dtype or linear.weight.device != values.device:
            head = make_linear(linear.weight, linear.bias, values.dtype, values.device)
        of_rows: dict[str, Any] = {
            "values": values,
            "predicted": predicted,
            "classes": predicted if own else self.classes,
            "embedding": None,
        }
        tables = {**self.tables, "level": level.detach().to(values.dtype)}
        return replace(self, **of_rows, head=head, of_head={}, looks=looks or {}, banks=(), about=about, tables=tables)

    def bank_outputs(self, embedding: Tensor, bank: RandomBank) -> tuple[Tensor, Tensor]:
        """Return concept values (n, L) and logits (n, K) that a random bank gives for embeddings, in one product."""
        kind = cast(Tensor, self.values).dtype
        cavs, intercepts = (part.to(embedding.device, kind) for part in (bank.cavs, bank.intercepts))
        cavs, intercepts = at_least_float32(cavs), at_least_float32(intercepts)
        with without_autocast(embedding.device):
            embedding = at_least_float32(embedding).to(cavs)
            if self.about["bank_values"] == "raw":
                values = functional.linear(embedding, cavs)
            else:
                norms = cavs.norm(dim=1)
                values = functional.linear(embedding, cavs / norms[:, None], intercepts / norms)
            linear = cast(nn.Linear, linear_part(bank.head))
            weight, bias = linear.weight.detach().to(values.device, kind), linear.bias.detach().to(values.device, kind)
            return values.to(kind), functional.linear(values.to(kind), weight, bias)

    # Keeping.

    def kept(self) -> Self:
        """Return the same on the CPU, with a head that no training changes."""
        named = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        groups = {"truth": self.truth, "of_head": self.of_head}
        groups |= {f"look {key}": look.columns for key, look in self.looks.items()}
        groups |= {"head": _linear_parts(self.head)}
        groups |= {"level": {name: of for name, of in self.tables.items() if isinstance(of, Tensor)}}
        every = [*named.values(), *(value for group in groups.values() for value in group.values())]
        moved = iter(to_host(*every))
        named = {name: next(moved) for name in named}
        groups = {key: {name: next(moved) for name in group} for key, group in groups.items()}
        looks = {key: replace(look, columns=groups[f"look {key}"]) for key, look in self.looks.items()}
        own = dict[str, Any](named) | {"truth": groups["truth"], "of_head": groups["of_head"], "looks": looks}
        own |= {"tables": {**self.tables, **groups["level"]}}
        if linear := groups["head"]:
            own["head"] = make_linear(linear["weight"], linear["bias"], linear["weight"].dtype).eval()
        return replace(self, **own)

    def tensors(self) -> dict[str, Tensor]:
        """Return the rows, a linear head and the random banks as tensors by name, which safetensors can keep.

        Returns
        -------
        dict
            What `from_tensors` takes.

        Raises
        ------
        ValueError
            If the rows are of explanations, which no file holds.
        """
        return pack(self.kept())

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return the rows that `tensors` gave.

        Parameters
        ----------
        tensors : dict
            Tensors by name.

        Returns
        -------
        ConceptPredictions
            On the CPU. A head that is not linear is not among them.

        Raises
        ------
        ValueError
            If they do not belong together.
        """
        return unpack(cls, tensors)

    def save(self, path: str | Path) -> None:
        """Write the rows as one safetensors file, which appears under its name when it is complete.

        Parameters
        ----------
        path : path
            Of the file; one already there is replaced.

        Raises
        ------
        FileNotFoundError
            If the folder of the file does not exist.
        ValueError
            If the rows are of explanations, which no file holds.
        """
        write(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` has written; nothing in it is executed.

        Parameters
        ----------
        path : path
            Of the file.

        Returns
        -------
        ConceptPredictions
            On the CPU. A head that is not linear is not in a file: a metric that needs it says so.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is no safetensors file, is cut short, damaged, or holds something else.
        """
        return read(cls, path)


def _not_asked(kind: str) -> str:
    return (
        f"Importance by {kind} asks the head, which is not linear: rows have it only where a metric asks for it while "
        "predicting. Name the metric in `metrics=` of `predict_concepts`."
    )


def _facts(rows: ConceptPredictions) -> list[tuple[str, Any]]:
    """Return what rows of one model have in common, in words and without NaN."""
    numbers = {name: torch.as_tensor(value).double().nan_to_num(-1.0) for name, value in rows.tables.items()}
    tables = [(f"`{name}`", value.tolist()) for name, value in numbers.items()]
    columns = [("truth", sorted(rows.truth)), ("random banks", len(rows.banks)), ("shape", rows.shape)]
    return [*columns, *rows.about.items(), ("tables", sorted(rows.tables)), *sorted(tables)]


def _linear_parts(head: nn.Module | None) -> dict[str, Tensor]:
    """Return weight (K, L) and bias (K,) of a linear head; nothing of another one."""
    linear = None if head is None else linear_part(head)
    if linear is None:
        return {}
    bias: Tensor | None = linear.bias
    return {"weight": linear.weight, "bias": linear.weight.new_zeros(len(linear.weight)) if bias is None else bias}


def frozen_head(head: nn.Module | None) -> nn.Module | None:
    """Return a head that no training changes."""
    return head if head is None or linear_part(head) is not None else copy.deepcopy(head)


def is_same_head(first: nn.Module | None, other: nn.Module | None) -> bool:
    """Return whether two heads are one, or linear with the same numbers."""
    if first is other:
        return True
    parts = [None if head is None else linear_part(head) for head in (first, other)]
    if parts[0] is None or parts[1] is None:
        return False
    (weight, bias), (other_weight, other_bias) = ((part.weight, part.bias) for part in parts if part is not None)
    biases = [torch.zeros(1) if each is None else each for each in (bias, other_bias)]
    same = weight.shape == other_weight.shape and torch.equal(weight, other_weight.to(weight))
    return same and bool((biases[0] == biases[1].to(biases[0])).all())


@torch.no_grad()
def predict_batch(
    model: ConceptModel,
    inputs: Any,
    classes: Any,
    truth: Mapping[str, Tensor],
    *,
    kinds: Collection[str] = IMPORTANCES,
    features: Tensor | None = None,
    embedding: bool = False,
    first: int = 0,
) -> ConceptPredictions:
    """Run a concept model once; explained are its predictions if `classes` is None; `first` numbers the samples."""
    outputs = shared_outputs(model, inputs, features)
    predicted = check_outputs(outputs.logits, len(inputs)).argmax(1)
    if "labels" in truth:
        check_classes("labels", to_numpy(truth["labels"]), outputs.logits.shape[1], first)
    explained = predicted if classes is None else checked_classes(classes, outputs.logits)
    if "concept_labels" in truth:
        labels = np.broadcast_to(0, tuple(truth["concept_labels"].shape))
        check_concept_count("concept_labels", "(N, L)", labels, outputs.values.shape[1])
    if embedding and features is None:
        features = shared_features(model, inputs)
    of_head, level = dict[str, Tensor](), effect_level(model)[0]
    if linear_weights(model.head) is None:
        if {"weight", "contribution"} & {*kinds}:
            of_head["weight"] = head_gradient(model.head, outputs.values, explained)
        if "effect" in kinds and level is not None:
            of_head["effect"] = concept_effects(model.head, outputs.values, explained, level)
    return ConceptPredictions(
        classes=explained,
        predicted=predicted,
        values=outputs.values,
        of_head=of_head,
        embedding=model.embed_features(features) if embedding else None,  # type: ignore[attr-defined]
        head=model.head,
        truth=truth,
        tables={} if level is None else {"level": level.detach()},
        about=facts_of(model, outputs.logits.shape[1]) | {"explains_predictions": classes is None},
    )


def facts_of(model: Any, n_classes: int) -> dict[str, Any]:
    """Return what scores depend on beside the rows."""
    layer = getattr(model, "concept_layer", None)
    return {
        "values": str(getattr(model, "values", "")),
        "bank_values": str(getattr(layer, "values", "margin")),
        "bounded": bool(getattr(model, "bounded", True)),
        "n_classes": n_classes,
        "kind": type(model).__name__,
        "zero": convention_of(model, "value"),
        "effect": convention_of(model, "effect"),
    }


def predict_head(
    model: nn.Module | None,
    inputs: Any,
    classes: Any,
    truth: Mapping[str, Tensor],
    explain: Explanations,
    concepts: tuple[int, str] | None,
    *,
    predicts: bool,
) -> ConceptPredictions:
    """Take concept values as they are and, of so many `concepts`, the importances that a method of Quantus gives."""
    logits = None
    if model is not None and (predicts or concepts is not None):
        logits = check_outputs(predict_logits(model, inputs, **explain.call.model_predict_kwargs), len(inputs)).cpu()
        if "labels" in truth:
            check_classes("labels", to_numpy(truth["labels"]), logits.shape[1])
    explained = torch.as_tensor(classes) if logits is None else checked_classes(classes, logits)
    found = None if concepts is None else explain.of_concepts(*concepts)
    values = torch.as_tensor(inputs)
    if found is None and values.ndim != 2:
        raise ValueError(f"Expected argument `x_batch` to hold concept values (N, L) but got {tuple(values.shape)}.")
    return ConceptPredictions(
        classes=explained,
        predicted=None if logits is None else logits.argmax(1),
        values=values if values.ndim == 2 else None,
        given=None if found is None else torch.as_tensor(found.values),
        reason=None if found is None else found.reason,
        head=model if isinstance(model, nn.Module) else None,
        truth=truth,
        about=facts_of(model, 0 if logits is None else logits.shape[1])
        | {"explains_predictions": False, "is_head": True},
    )


def sees_concepts(model: object, inputs: Any) -> bool:
    """Whether inputs are those of a concept model."""
    return inputs.ndim in (2, 4) and is_concept_model(model)
