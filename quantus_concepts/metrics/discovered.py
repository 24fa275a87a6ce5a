"""`score_discovered`: how good concepts are that nobody has labelled, as one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts import Backbone, ConceptBank
from captum_concepts.backbones.embedding import check_order
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank.activations import activations, factorise
from captum_concepts.models.chain import linear_part
from captum_concepts.models.random_banks import N_BANKS
from captum_concepts.support.checks import check_axes, check_finite, check_module, check_whole
from captum_concepts.support.progress import progress
from captum_concepts.support.running import evaluation_mode, tensor_output, to_model
from quantus_concepts.functional.arguments import Numbers, check_within, to_classes
from quantus_concepts.functional.concepts.bank_stability import bank_stability
from quantus_concepts.functional.concepts.concept_deletion import absent_values, deleted_parts
from quantus_concepts.functional.concepts.explained_variance import explained_variance, orthonormal_basis, unit_rows
from quantus_concepts.functional.concepts.interventions import intervention_counts
from quantus_concepts.functional.statistics.intervals import baseline_range, distribution, interval

#: Values of the column ``metric``.
HALVES, SEEDS = "stability over halves", "stability over seeds"
EXPLAINED, KEPT = "explained variance", "predictions kept"
AFTER_DELETION, DROP = "predictions kept after deletion", "logit drop"
#: Values of the column ``baseline``.
RANDOM_DIRECTIONS, RANDOM_ACTIVATIONS = "random directions", "random activations"
RANDOM_ORDER, COMPONENTS = "random order", "principal components"
_UNBOUNDED = (-math.inf, math.inf)
COLUMNS = ("metric", "baseline", "l", "item", "value", "low", "high", "n", "undefined", "chance", "reason")

#: Places of maps (n, d) and a seed to directions (L, d).
Discovery = Callable[[Tensor, int], Tensor]
#: Parts (S, N, r) along a frame (d, r) to predictions (S, N) and logits (S, N) without them.
Outcome = tuple[Tensor, Tensor]


def score_discovered(
    backbone: nn.Module | Backbone,
    bank: ConceptBank,
    images: Tensor | np.ndarray | Iterable[Tensor],
    head: nn.Module | None = None,
    *,
    labels: Numbers | None = None,
    discover: Discovery | None = None,
    pool: Pool = "mean",
    maps: Maps | None = None,
    n_splits: int = 5,
    n_banks: int = N_BANKS,
    batch_size: int = 64,
    seed: int = 0,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score concepts that were discovered, or named by texts, without any label: one table with baselines.

    Four questions, in terms of CRAFT (Fel et al. 2023) and Overcomplete. *Stability*: does the same discovery on other
    images, or with another seed, find the same directions (`functional.bank_stability`)? *Reconstruction*: how much of
    the activations' variance do the concepts explain (`functional.explained_variance`)? *Predictions kept*: does the
    network predict the same class if it gets nothing but the concepts? *Deletion*: does it change its prediction if the
    strongest concepts of each image are removed (`functional.delete_concepts`)?

    Parameters
    ----------
    backbone : nn.Module or Backbone
        As `features` of `captum_concepts.PostHocCBM`; it runs once over the images, in eval mode and without gradient,
        and is left as it was.
    bank : ConceptBank
        The concepts: those of `ConceptBank.from_activations`, or any other directions of the embedding.
    images : Tensor, array or iterable
        As of `ConceptBank.from_activations`: the same images, or better other ones.
    head : nn.Module, optional
        The rest of the network, from embeddings (N, d) to class logits (N, K): the last linear layer of a classifier.
        Without it predictions and deletion are undefined.
    labels : array_like, optional
        (N,) of int: classes in place of those that the network predicts. With the true ones the "predictions kept" are
        accuracies.
    discover : callable, optional
        From places of the maps (n, d) and a seed to directions (L, d): how the bank was made. Known for a bank of
        `ConceptBank.from_activations`; without it stability is undefined.
    pool : "mean" or callable
        As in `captum_concepts.PostHocCBM`.
    maps : callable, optional
        As in `captum_concepts.PostHocCBM`.
    n_splits : int
        How often the images are halved, and how many other seeds are tried.
    n_banks : int
        Random banks of either kind; the range of 39 encloses 95 % of what further ones give.
    batch_size : int
        Batch size.
    seed : int
        Random seed of the halves and of the random banks.
    display_progressbar : bool
        Whether to show progress over the discoveries, which take most of the time.

    Returns
    -------
    DataFrame
        A row for each number. ``metric``: "stability over halves" and "stability over seeds" (mean cosine),
        "explained variance", "predictions kept" (share of the images), and, after ``l`` concepts are removed from each
        image, the highest value first, "predictions kept after deletion" and "logit drop" (of the class, relative to
        the mean of all logits). ``baseline``: empty for the bank; "random directions", "random activations"
        (directions of places drawn from the images), "random order" (the same concepts) or, as what is possible,
        "principal components". ``item``: a concept's name, or empty; the logit drop of a concept is over the images in
        which it is the strongest. The item "one concept" is a single direction of a random bank. ``value`` with ``low``
        and ``high``: of the bank the 95 % interval over images (over classes, if there are several), of stability the
        lowest and highest split; of a baseline the mean and the range of 95 % of the draws. ``n`` and ``undefined``
        count images, concepts, or draws. ``chance``: of explained variance L / d. ``reason``: why a value is NaN.

    Raises
    ------
    ValueError
        If widths or lengths do not fit, an activation is not finite, or a label is no class of the head.

    Notes
    -----
    The variance is that of the places of the maps if the embedding is their mean, and of embeddings otherwise. For
    deletion, random directions are the bank's own changes, of the same sizes, turned into random directions.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank
    >>> from quantus_concepts import score_discovered
    >>> backbone, head = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), nn.Linear(8, 4)
    >>> images = torch.rand(20, 3, 16, 16)
    >>> bank = ConceptBank.from_activations(backbone, images, 3)
    >>> table = score_discovered(backbone, bank, images, head, n_splits=1)
    >>> table[table["item"] == ""]["metric"].unique().tolist()[:4]
    ['stability over halves', 'stability over seeds', 'explained variance', 'predictions kept']
    """
    for name, number in (("n_splits", n_splits), ("n_banks", n_banks)):
        check_whole(name, number, 1)
    if head is not None:
        check_module("head", head)
    check_order(images, [] if labels is None else ["labels"], "images")
    features, pooling = resolve_stages(backbone, pool, maps, "backbone")
    places, embeddings, owners = activations(features, pooling, images, batch_size)
    check_finite("images", places)
    check_finite("images", embeddings)
    cavs = bank.cavs.detach().to(embeddings)
    check_axes(embeddings=(embeddings, "N d"), places=(places, "n d"), cavs=(cavs, "L d"))
    # A factorisation needs as many places as it gives concepts.
    least = 1
    if discover is None and bank.settings.get("method") == "nmf":
        least = len(cavs)
        discover = lambda rows, number: factorise(rows, len(cavs), number)  # noqa: E731
    data = _Data(places, owners, embeddings, bank.names, seed, of_places=pooling.linear)
    banks = {
        RANDOM_DIRECTIONS: [torch.randn(cavs.shape, generator=data.generator(0, i)) for i in range(n_banks)],
        RANDOM_ACTIVATIONS: [_draw(data.activations, len(cavs), data.generator(1, i)) for i in range(n_banks)],
    }
    rows = [*_stability_rows(data, cavs, discover, least, banks, n_splits, display_progressbar)]
    rows += _explained_rows(data, cavs, banks)
    rows += _class_rows(data, cavs, banks, head, labels)
    return pd.DataFrame(rows, columns=COLUMNS).astype({"n": int, "undefined": int})


class _Data(NamedTuple):
    """What is scored, and the seeds of all draws."""

    places: Tensor
    owners: Tensor
    embeddings: Tensor
    names: list[str]
    seed: int
    #: Whether embeddings are means of places, which are then the activations that concepts explain.
    of_places: bool

    @property
    def activations(self) -> Tensor:
        return self.places if self.of_places else self.embeddings

    def generator(self, *numbers: int) -> torch.Generator:
        state = np.random.SeedSequence([self.seed, *numbers]).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(state) >> 1)


def _draw(rows: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw n rows, without repetition where there are enough."""
    if len(rows) >= n:
        return rows[torch.randperm(len(rows), generator=generator)[:n]]
    return rows[torch.randint(len(rows), (n,), generator=generator)]


def _row(
    metric: str,
    scores: Numbers,
    baseline: str = "",
    ends: tuple[float, float] | None = None,
    *,
    l: int | None = None,  # noqa: E741 (the papers' letter)
    item: str = "",
    chance: float = math.nan,
    reason: str = "",
) -> dict[str, object]:
    """Return a row: the mean of scores, with their range where they are draws of a baseline."""
    values = np.asarray(scores, dtype=np.float64).ravel()
    n = int((~np.isnan(values)).sum())
    mean, low, high = distribution(values)
    if ends is not None:
        low, high = ends
    numbers = (math.nan if l is None else l, item, mean, low, high, n, values.size - n, chance, "" if n else reason)
    return dict(zip(COLUMNS, (metric, baseline, *numbers), strict=True))


def _stability_rows(
    data: _Data,
    cavs: Tensor,
    discover: Discovery | None,
    least: int,
    banks: dict[str, list[Tensor]],
    n_splits: int,
    show: bool,
) -> Iterator[dict[str, object]]:
    n_images, n = len(data.embeddings), len(cavs)
    reason = ""
    if discover is None:
        reason = "how the bank was discovered is not known: pass `discover`"
    elif n_images < 2:
        reason = "there are no two halves of one image"
    if discover is None or reason:
        yield from (_row(metric, [math.nan] * n, reason=reason) for metric in (HALVES, SEEDS))
        return
    halves: list[Tensor] = []
    for split in range(n_splits):
        first = torch.randperm(n_images, generator=data.generator(2, split))[: n_images // 2]
        halves.append(torch.isin(data.owners, first))
    if min(int(side.sum()) for half in halves for side in (half, ~half)) < least:
        reason = "a half of the images has fewer places than there are concepts"
        yield from (_row(metric, [math.nan] * n, reason=reason) for metric in (HALVES, SEEDS))
        return
    found: dict[str, list[Tensor]] = {HALVES: [], SEEDS: []}
    for split in progress(range(n_splits), "Discovering again", show=show):
        one, two = (discover(data.places[rows], data.seed) for rows in (halves[split], ~halves[split]))
        found[HALVES].append(bank_stability(cavs, one, two))
        found[SEEDS].append(bank_stability(cavs, cavs, discover(data.places, data.seed + 1 + split)))
    for metric, splits in found.items():
        of_concepts = torch.stack(splits)
        means = of_concepts.nanmean(0)
        why = "a direction has length 0"
        yield _row(metric, means, ends=baseline_range(of_concepts.nanmean(1)), reason=why)
        draws = {
            name: [_random_stability(data, name, i, halves, metric, cavs) for i in range(len(banks[name]))]
            for name in banks
        }
        for name, cosines in draws.items():
            yield _row(metric, torch.stack(cosines).nanmean(1), name, reason=why)
        if metric == HALVES:
            for item, column in zip(data.names, of_concepts.T, strict=True):
                yield _row(metric, column, ends=baseline_range(column), item=item, reason=why)
            for name, cosines in draws.items():
                yield _row(metric, torch.cat(cosines), name, item="one concept", reason=why)


def _random_stability(data: _Data, kind: str, number: int, halves: list[Tensor], metric: str, cavs: Tensor) -> Tensor:
    """Return the stability of a random bank, its other discoveries being random banks of the same kind."""
    half = halves[number % len(halves)]
    sources: tuple[Tensor, ...] = (data.places, data.places[half], data.places[~half])
    if metric == SEEDS:
        sources = (data.places,) * 2
    generator = data.generator(3, number)
    draws = [
        torch.randn(cavs.shape, generator=generator) if kind == RANDOM_DIRECTIONS else _draw(rows, len(cavs), generator)
        for rows in sources
    ]
    return bank_stability(draws[0], draws[0 if metric == SEEDS else 1], draws[-1])


def _explained_rows(data: _Data, cavs: Tensor, banks: dict[str, list[Tensor]]) -> list[dict[str, object]]:
    why = "the activations do not vary"
    chance = min(1.0, len(orthonormal_basis(cavs).T) / cavs.shape[1])
    value = explained_variance(data.activations, cavs)
    rows = [_row(EXPLAINED, [value.item()], ends=_ratio_interval(data, cavs), chance=chance, reason=why)]
    for name, draws in banks.items():
        rows.append(
            _row(EXPLAINED, [explained_variance(data.activations, draw).item() for draw in draws], name, reason=why)
        )
    best = explained_variance(data.activations, _components(data.activations, len(cavs))).item()
    return [*rows, _row(EXPLAINED, [best], COMPONENTS, (math.nan, math.nan), reason=why)]


def _ratio_interval(data: _Data, cavs: Tensor) -> tuple[float, float]:
    """Return the interval of the explained variance over images, by linearisation of the ratio."""
    centred = data.activations - data.activations.mean(0)
    inside = (centred @ orthonormal_basis(cavs)).square().sum(1).double()
    total = centred.square().sum(1).double()
    sums = torch.zeros(2, len(data.embeddings), dtype=torch.float64)
    for row, values in zip(sums, (inside, total), strict=True):
        row.index_add_(0, data.owners if data.of_places else torch.arange(len(row)), values)
    ratio = sums[0].sum() / sums[1].sum()
    # Linearised scores may leave [0, 1]; their mean does not.
    low, high = interval(ratio + (sums[0] - ratio * sums[1]) / sums[1].mean(), _UNBOUNDED)
    return max(0.0, low), min(1.0, high)


def _components(rows: Tensor, n: int) -> Tensor:
    """Return the first n principal components."""
    centred = rows - rows.mean(0)
    return torch.linalg.eigh(centred.T @ centred).eigenvectors.T.flip(0)[:n]


class _Classifier:
    """Embeddings to predictions and logits, also with parts along a frame removed."""

    def __init__(self, head: nn.Module, embeddings: Tensor, labels: Numbers | None) -> None:
        self.head, self.linear, self.embeddings = head, linear_part(head), embeddings
        logits = self.logits(embeddings)
        check_axes(embeddings=(embeddings, "N d"), logits=(logits, "N K"))
        check_finite("head", logits)
        self.start = logits
        self.labels = logits.argmax(1) if labels is None else to_classes("labels", labels).cpu()
        check_axes(embeddings=(embeddings, "N d"), labels=(self.labels, "N"))
        check_within("labels", self.labels, 0, logits.shape[1] - 1)

    def logits(self, embeddings: Tensor) -> Tensor:
        with evaluation_mode(self.head), torch.no_grad():
            return tensor_output(self.head(to_model(self.head, embeddings))).float().cpu()

    def without(self, parts: Tensor, frame: Tensor) -> Outcome:
        """Return whether the class is still predicted (S, N), and its centred logit (S, N), without these parts."""
        rows = []
        if self.linear is not None:
            weights = self.linear.weight.detach().to(frame) @ frame
            rows = [self.start - part @ weights.T for part in parts]
        else:
            rows = [self.logits(self.embeddings - part @ frame.T) for part in parts]
        kept = torch.stack([logits.argmax(1) == self.labels for logits in rows])
        places = self.labels[:, None]
        return kept.double(), torch.stack([logits.gather(1, places)[:, 0] - logits.mean(1) for logits in rows]).double()

    def interval(self, scores: Tensor, bounds: tuple[float, float]) -> tuple[float, float]:
        """Return the interval of the mean over images (of classes, where there are several)."""
        classes = self.labels if len(self.labels.unique()) > 1 else None
        return interval(scores, bounds, classes)


def _class_rows(
    data: _Data, cavs: Tensor, banks: dict[str, list[Tensor]], head: nn.Module | None, labels: Numbers | None
) -> list[dict[str, object]]:
    if head is None:
        n = len(data.embeddings)
        return [_row(metric, [math.nan] * n, reason="no `head` was given") for metric in (KEPT, AFTER_DELETION, DROP)]
    classifier = _Classifier(head, data.embeddings, labels)
    centred = data.embeddings - data.embeddings.mean(0)
    return _kept_rows(data, centred, cavs, banks, classifier) + _deletion_rows(data, centred, cavs, banks, classifier)


def _kept_rows(
    data: _Data, centred: Tensor, cavs: Tensor, banks: dict[str, list[Tensor]], classifier: _Classifier
) -> list[dict[str, object]]:
    def kept(directions: Tensor) -> Tensor:
        basis = orthonormal_basis(directions)
        rest = centred - (centred @ basis) @ basis.T
        return classifier.without(rest[None], torch.eye(centred.shape[1]))[0][0]

    own, best = kept(cavs), kept(_components(data.activations, len(cavs)))
    return [
        _row(KEPT, own, ends=classifier.interval(own, (0.0, 1.0))),
        *(_row(KEPT, [kept(draw).mean().item() for draw in draws], name) for name, draws in banks.items()),
        _row(KEPT, best, COMPONENTS, classifier.interval(best, (0.0, 1.0))),
    ]


def _deletion_rows(
    data: _Data, centred: Tensor, cavs: Tensor, banks: dict[str, list[Tensor]], classifier: _Classifier
) -> list[dict[str, object]]:
    counts, order, basis = intervention_counts(len(cavs)), _by_value(centred, cavs), orthonormal_basis(cavs)
    parts = _removed(centred, cavs, basis, order, counts)
    baselines: dict[str, list[Outcome]] = {RANDOM_DIRECTIONS: [], RANDOM_ACTIVATIONS: [], RANDOM_ORDER: []}
    first: list[Tensor] = []
    for i, draw in enumerate(banks[RANDOM_ACTIVATIONS]):
        frame = torch.linalg.qr(torch.randn(basis.shape, generator=data.generator(4, i)))[0]
        baselines[RANDOM_DIRECTIONS].append(classifier.without(parts, frame))
        inside = orthonormal_basis(draw)
        by_value = _by_value(centred, draw)
        first.append(by_value[:, 0])
        removed = _removed(centred, draw, inside, by_value, counts)
        baselines[RANDOM_ACTIVATIONS].append(classifier.without(removed, inside))
        shuffled = torch.rand(order.shape, generator=data.generator(5, i)).argsort(1)
        shuffled_parts = _removed(centred, cavs, basis, shuffled, counts)
        baselines[RANDOM_ORDER].append(classifier.without(shuffled_parts, basis))
    own = classifier.without(parts, basis)
    # Nothing is removed at the first count.
    before = own[1][0]
    curves, drops = [], []
    for s, l in enumerate(counts):  # noqa: E741
        kept, drop = own[0][s], before - own[1][s]
        curves.append(_row(AFTER_DELETION, kept, l=l, ends=classifier.interval(kept, (0.0, 1.0))))
        drops.append(_row(DROP, drop, l=l, ends=classifier.interval(drop, _UNBOUNDED)))
        for name, outcomes in baselines.items():
            curves.append(_row(AFTER_DELETION, [kept[s].mean().item() for kept, _ in outcomes], name, l=l))
            drops.append(_row(DROP, [(before - logits[s]).mean().item() for _, logits in outcomes], name, l=l))
    single = counts.index(1)
    drop = before - own[1][single]
    turned = torch.stack([before - logits[single] for _, logits in baselines[RANDOM_DIRECTIONS]])
    singles = [
        (before - logits[single])[strongest == j].mean().item()
        for strongest, (_, logits) in zip(first, baselines[RANDOM_ACTIVATIONS], strict=True)
        for j in strongest.unique()
    ]
    of_one = _row(DROP, singles, RANDOM_ACTIVATIONS, l=1, item="one concept")
    return curves + drops + _concept_rows(data.names, order[:, 0], drop, turned) + [of_one]


def _concept_rows(names: list[str], strongest: Tensor, drop: Tensor, turned: Tensor) -> list[dict[str, object]]:
    """Return the logit drop of each concept over the images in which it is the strongest, (N,) and random (n, N)."""
    rows, why = [], "it is the strongest concept of no image"
    for j, item in enumerate(names):
        own = drop[strongest == j]
        ends = interval(own, _UNBOUNDED)
        rows.append(_row(DROP, own, l=1, item=item, ends=ends, reason=why))
        draws = turned[:, strongest == j].mean(1)
        rows.append(_row(DROP, draws, RANDOM_DIRECTIONS, l=1, item=item, reason=why))
    return rows


def _removed(centred: Tensor, directions: Tensor, basis: Tensor, order: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Return the parts (S, N, r) along a basis that embeddings lose with the first concepts of an order."""
    coordinates, inside = centred @ basis, unit_rows(directions) @ basis
    return deleted_parts(coordinates, inside, order, counts, absent_values(coordinates @ inside.T))


def _by_value(centred: Tensor, directions: Tensor) -> Tensor:
    """Return the concepts of each image, the highest value first, (N, L)."""
    return (centred @ unit_rows(directions).T).argsort(dim=1, descending=True, stable=True)
