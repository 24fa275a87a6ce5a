"""Rows about the classes: predictions from the concepts alone, surrogate fidelity, and deletion."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from captum_concepts.models.chain import linear_part
from captum_concepts.support.checks import check_axes, check_finite, check_logits
from captum_concepts.support.running import evaluation_mode, tensor_output, to_model
from quantus_concepts.functional.arguments import Numbers, check_within, to_class_tensor
from quantus_concepts.functional.concepts.interventions import intervention_counts
from quantus_concepts.functional.discovered.concept_deletion import absent_values, deleted_parts
from quantus_concepts.functional.discovered.explained_variance import orthonormal_basis, unit_rows
from quantus_concepts.functional.discovered.surrogate_fidelity import SurrogateFidelity, surrogate_fidelity
from quantus_concepts.functional.statistics.intervals import interval
from quantus_concepts.metrics.discovered.rows import (
    AFTER_DELETION,
    BEST,
    COMPONENTS,
    EVERYTHING,
    KEPT,
    RANDOM_ACTIVATIONS,
    RANDOM_ORDER,
    SAME_VARIANCE,
    SHARE,
    SURROGATE_EMD,
    SURROGATE_MAE,
    UNBOUNDED,
    Data,
    SameVariance,
    make_row,
    principal_components,
    ratio_interval,
)

Rows = list[dict[str, object]]
#: Random banks by name.
Banks = dict[str, list[Tensor]]
NO_HEAD = "no `head` was given"
NOT_LINEAR = "the head is not one linear layer"
NO_DROP = "removing everything does not lower the logit of the class"


def class_rows(data: Data, cavs: Tensor, banks: Banks, head: nn.Module | None, labels: Numbers | None) -> Rows:
    """Return all rows about the classes."""
    if head is None:
        metrics = (KEPT, SURROGATE_MAE, SURROGATE_EMD, EVERYTHING, AFTER_DELETION, SHARE)
        return [make_row(metric, [math.nan] * len(data.embeddings), reason=NO_HEAD) for metric in metrics]
    classifier = Classifier(head, data.embeddings, labels)
    return [
        *_kept_rows(data, cavs, banks, classifier),
        *_surrogate_rows(cavs, banks, classifier),
        *_deletion_rows(data, cavs, banks, classifier),
    ]


class Classifier:
    """Embeddings to predictions and logits, also with parts along a basis removed."""

    def __init__(self, head: nn.Module, embeddings: Tensor, labels: Numbers | None) -> None:
        self.head, self.linear, self.embeddings = head, linear_part(head), embeddings
        self.centred = embeddings - embeddings.mean(0)
        try:
            self.start = self.logits(embeddings)
        except (ValueError, TypeError, RuntimeError) as error:
            raise ValueError(
                f"Expected argument `head` to map embeddings (N, d) = {tuple(embeddings.shape)} to logits (N, K), as "
                f"the part of the network behind `backbone` does, but it raised {type(error).__name__}: {error}"
            ) from error
        check_axes(embeddings=(embeddings, "N d"), logits=(check_logits(self.start), "N K"))
        check_finite("head", self.start)
        self.labels = self.start.argmax(1) if labels is None else to_class_tensor("labels", labels).cpu()
        check_axes(embeddings=(embeddings, "N d"), labels=(self.labels, "N"))
        check_within("labels", self.labels, 0, self.start.shape[1] - 1)
        self.clusters = self.labels if len(self.labels.unique()) > 1 else None

    def logits(self, embeddings: Tensor) -> Tensor:
        """Return the head's logits (N, K) on the CPU."""
        with evaluation_mode(self.head), torch.no_grad():
            return tensor_output(self.head(to_model(self.head, embeddings))).float().cpu()

    def without(self, parts: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether the class is kept and how far its centred logit falls, (S, N), without parts (S, N, r)."""
        if self.linear is not None:
            weights = self.linear.weight.detach().to(basis) @ basis
            changed = [self.start - part @ weights.T for part in parts]
        else:
            changed = [self.logits(self.embeddings - part @ basis.T) for part in parts]
        kept = torch.stack([logits.argmax(1) == self.labels for logits in changed])
        before = self._own(self.start)
        return kept.double(), torch.stack([before - self._own(logits) for logits in changed]).double()

    def _own(self, logits: Tensor) -> Tensor:
        return logits.gather(1, self.labels[:, None])[:, 0] - logits.mean(1)

    def interval(self, scores: Tensor, bounds: tuple[float, float]) -> tuple[float, float]:
        """Return the interval of the mean over images (of classes, where there are several)."""
        return interval(scores, bounds, self.clusters)


def _kept_rows(data: Data, cavs: Tensor, banks: Banks, classifier: Classifier) -> Rows:
    def kept(directions: Tensor) -> Tensor:
        basis = orthonormal_basis(directions)
        rest = classifier.centred - (classifier.centred @ basis) @ basis.T
        return classifier.without(rest[None], torch.eye(cavs.shape[1]))[0][0]

    own, best = kept(cavs), kept(principal_components(data.activations, len(cavs)))
    return [
        make_row(KEPT, own, ends=classifier.interval(own, (0.0, 1.0))),
        *(make_row(KEPT, [kept(draw).mean().item() for draw in draws], name) for name, draws in banks.items()),
        make_row(KEPT, best, COMPONENTS, classifier.interval(best, (0.0, 1.0))),
    ]


def _surrogate_rows(cavs: Tensor, banks: Banks, classifier: Classifier) -> Rows:
    linear, errors = classifier.linear, (SURROGATE_MAE, SURROGATE_EMD)
    if linear is None:
        return [make_row(metric, [math.nan] * len(classifier.start), reason=NOT_LINEAR) for metric in errors]
    weights = linear.weight.detach().cpu().float()
    bias = None if linear.bias is None else linear.bias.detach().cpu().float()

    def fidelity(directions: Tensor) -> SurrogateFidelity:
        # An embedding is its concepts' weighted sum as well as can be, and a concept's importance is the gradient.
        units = unit_rows(directions)
        values = classifier.embeddings @ torch.linalg.pinv(units)
        return surrogate_fidelity(classifier.start, values, weights @ units.T, bias)

    own, draws = fidelity(cavs), {name: [fidelity(draw) for draw in drawn] for name, drawn in banks.items()}
    rows = []
    for place, (metric, bounds) in enumerate(zip(errors, ((0.0, math.inf), (0.0, 1.0)), strict=True)):
        scores = own[place].double()
        rows.append(make_row(metric, scores, ends=classifier.interval(scores, bounds)))
        for name, of_banks in draws.items():
            rows.append(make_row(metric, [bank[place].mean().item() for bank in of_banks], name))
    return rows


def _deletion_rows(data: Data, cavs: Tensor, banks: Banks, classifier: Classifier) -> Rows:
    everything = classifier.without(classifier.centred[None], torch.eye(cavs.shape[1]))[1][0]
    total, counts = everything.mean(), intervention_counts(len(cavs))
    if not total > 0:
        total = torch.tensor(math.nan)
    deletion = _Deletion(classifier, counts, total)
    alike, order = SameVariance(classifier.centred, cavs), by_value(classifier.centred, cavs)
    own = deletion(cavs, order)
    baselines: dict[str, list[tuple[Tensor, Tensor]]] = {SAME_VARIANCE: [], RANDOM_ACTIVATIONS: [], RANDOM_ORDER: []}
    best: dict[str, list[float]] = {SAME_VARIANCE: [], RANDOM_ACTIVATIONS: []}
    single = counts.index(1)
    for i, activations in enumerate(banks[RANDOM_ACTIVATIONS]):
        for name, bank in ((SAME_VARIANCE, alike.draw(data.generator(4, i))), (RANDOM_ACTIVATIONS, activations)):
            of_bank = by_value(classifier.centred, bank)
            baselines[name].append(deletion(bank, of_bank))
            best[name].append(_best_concept(baselines[name][-1][1][single], of_bank[:, 0]))
        shuffled = torch.rand(order.shape, generator=data.generator(5, i)).argsort(1)
        baselines[RANDOM_ORDER].append(deletion(cavs, shuffled))
    first = make_row(EVERYTHING, everything, ends=classifier.interval(everything, UNBOUNDED))
    curves, shares = [], []
    for s, l in enumerate(counts):  # noqa: E741
        kept, share = own[0][s], own[1][s]
        ends = ratio_interval(share * total, everything, classifier.clusters)
        curves.append(make_row(AFTER_DELETION, kept, l=l, ends=classifier.interval(kept, (0.0, 1.0))))
        shares.append(make_row(SHARE, share, l=l, ends=ends, reason=NO_DROP))
        for name, outcomes in baselines.items():
            curves.append(make_row(AFTER_DELETION, [kept[s].mean().item() for kept, _ in outcomes], name, l=l))
            shares.append(make_row(SHARE, [share[s].mean().item() for _, share in outcomes], name, l=l, reason=NO_DROP))
    for j, item in enumerate(data.names):
        share = own[1][single][order[:, 0] == j]
        reason = NO_DROP if len(share) else "it is the strongest concept of no image"
        shares.append(make_row(SHARE, share, l=1, item=item, ends=interval(share, UNBOUNDED), reason=reason))
    shares += [make_row(SHARE, draws, name, l=1, item=BEST, reason=NO_DROP) for name, draws in best.items()]
    return [first, *curves, *shares]


class _Deletion:
    """Deletion of the first concepts of an order, as shares of the mean drop that removing everything makes."""

    def __init__(self, classifier: Classifier, counts: tuple[int, ...], total: Tensor) -> None:
        self.classifier, self.counts, self.total = classifier, counts, total

    def __call__(self, directions: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether the class is kept (S, N), and the share of the logit drop (S, N)."""
        basis, units = orthonormal_basis(directions), unit_rows(directions)
        coordinates, inside = self.classifier.centred @ basis, units @ basis
        parts = deleted_parts(coordinates, inside, order, self.counts, absent_values(coordinates @ inside.T))
        kept, drops = self.classifier.without(parts, basis)
        return kept, drops / self.total


def by_value(centred: Tensor, directions: Tensor) -> Tensor:
    """Return the concepts of each image, the highest value first, (N, L)."""
    return (centred @ unit_rows(directions).T).argsort(dim=1, descending=True, stable=True)


def _best_concept(shares: Tensor, strongest: Tensor) -> float:
    """Return the highest lower end of the interval of a concept's share, over the images in which it is strongest."""
    lows = [interval(shares[strongest == j], UNBOUNDED)[0] for j in strongest.unique()]
    return max((low for low in lows if not math.isnan(low)), default=math.nan)
