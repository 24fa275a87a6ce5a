"""Models predict the images of a loader in one pass: a backbone that models share runs once for each image."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.models.chain import linear_part
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.support.checks import check_shape
from captum_concepts.support.running import evaluation_mode, progress, to_model, warn_user
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.looks import Look, Looking, see_all
from quantus_concepts.metrics.host.model import ConceptModel, backbone_features, shares_features
from quantus_concepts.metrics.host.predictions import ConceptPredictions, predict_batch
from quantus_concepts.metrics.streaming.loader import ConceptBatches


@dataclass
class Subject:
    """A model that predicts, with random banks beside it, and the rows of it so far; baseline models have a number."""

    name: str
    model: ConceptModel
    banks: Sequence[RandomBank] = ()
    control: int | None = None
    #: Looks that take long see every so many-th image of baseline models, other ones for each.
    stride: int = 1
    offset: int = 0
    bank_offset: int = 0
    parts: list[ConceptPredictions] = field(default_factory=list)

    def rows(self, truth: Mapping[str, Tensor] | None = None) -> ConceptPredictions:
        """Return all rows, on the CPU; with the truth of another model, which is the same."""
        parts = self.parts if truth is None else [part.knowing(truth={}) for part in self.parts]
        joined = ConceptPredictions.join(parts).kept()
        self.parts = []
        return joined if truth is None else joined.knowing(truth=truth)


def predict_subjects(
    subjects: Sequence[Subject],
    batches: ConceptBatches,
    looks: Mapping[str, Look],
    kinds: Collection[str],
    *,
    start: int = 0,
    baselines: bool = False,
    check: Callable[[], None] | None = None,
    display_progressbar: bool = False,
) -> None:
    """Let every model predict every batch; `start` is the number of the first image, `check` comes after one batch."""
    for subject in subjects:
        if looks.keys() - seen_of(subject.model, looks).keys():
            why = getattr(subject.model, "without_maps", "")
            warn_user(f"{col.CLM}: left out, since the model has no concept maps. {why}")
    unseen, number = {"elsewhere", *(name for look in looks.values() for name in look.reads)}, start
    n_classes = 0
    with ExitStack() as stack, torch.no_grad():
        for model in (each.model for each in subjects):
            stack.enter_context(evaluation_mode(model, model.features, model.concept_predictor, model.head))
        for images, before, truth in progress(
            batches, "evaluating", total=batches.n_batches, show=display_progressbar, unit="batch"
        ):
            features: dict[int, tuple[nn.Module, Tensor]] = {}
            shared: dict[Hashable, Any] = {}
            seen = truth if before is None else truth | {"before": before}
            kept = {name: value for name, value in truth.items() if name not in unseen}
            if "concept_labels" in kept:
                kept["concept_labels"] = kept["concept_labels"].to(torch.uint8)
            for subject in subjects:
                model = subject.model
                rows, own = _predict(subject, images, features, kept, kinds, number)
                check_shape("values of the model", rows.values, ("B", "L"), (None, batches.n_concepts))
                _check_classes(rows, batches.n_classes)
                n_classes = n_classes or rows.about["n_classes"]
                of_banks = {linear.out_features for bank in subject.banks if (linear := linear_part(bank.head))}
                for other in {rows.about["n_classes"], *of_banks} - {n_classes}:
                    if subject.control is not None or of_banks:
                        raise ValueError(
                            f"Expected argument `controls` to hold models with the K = {n_classes} outputs of the "
                            f"model but got one with {other}. Were random banks fitted to labels without the last "
                            "classes? Fit them to images of every class."
                        )
                looking = Looking(
                    *(model, rows, own[0], own[1], seen, shared),
                    baselines=baselines and subject.control is None,
                )
                banks = [on_device(bank, rows.classes.device) for bank in subject.banks] if looks else ()
                found = see_all(
                    *(seen_of(subject.model, looks), looking),
                    banks,
                    start=number,
                    first=start,
                    stride=subject.stride if subject.control is not None else 1,
                    offset=subject.offset,
                    bank_stride=subject.stride,
                    bank_offset=subject.bank_offset,
                )
                subject.parts.append(rows.knowing(looks=found) if found else rows)
            if number == start and check is not None:
                check()
            number += len(images)


def seen_of(model: object, looks: Mapping[str, Look]) -> Mapping[str, Look]:
    """Return the looks at a model; one without maps is left out where nobody asked for them."""
    if not getattr(model, "without_maps", ""):
        return looks
    return {name: look for name, look in looks.items() if not (look.strided and look.optional)}


def _predict(
    subject: Subject,
    images: Tensor,
    features: dict[int, tuple[nn.Module, Tensor]],
    truth: Mapping[str, Tensor],
    kinds: Collection[str],
    number: int,
) -> tuple[ConceptPredictions, tuple[Any, Tensor | None]]:
    """Return the rows of a batch, and its images and features as the model takes them."""
    model, own = subject.model, None
    inputs: Any = images
    if shares_features(model):
        # Backbones are kept as well: another one could get the id of a freed one.
        key = id(model.features)
        if key not in features:
            features[key] = model.features, backbone_features(model, images)
        own = features[key][1]
    else:
        # A model without features takes images itself, on its device and in its dtype.
        inputs = to_model(model.concept_predictor, images)
    settings: dict[str, Any] = {"kinds": kinds, "features": own, "embedding": bool(subject.banks), "first": number}
    rows = predict_batch(model, inputs, None, truth, **settings)
    return rows, (inputs, own)


def _check_classes(rows: ConceptPredictions, n_classes: int | None) -> None:
    logits = torch.empty(len(rows), rows.about["n_classes"], device="meta")
    check_shape("logits of the model", logits, ("B", "K"), (None, n_classes))


def on_device(bank: RandomBank, device: torch.device) -> RandomBank:
    """Return a random bank on a device."""
    if bank.cavs.device == device:
        return bank
    absent = None if bank.absent_values is None else bank.absent_values.to(device)
    return RandomBank(bank.cavs.to(device), bank.intercepts.to(device), bank.head, absent)
