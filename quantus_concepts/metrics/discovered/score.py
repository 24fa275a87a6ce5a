"""`score_discovered`: how good concepts are that nobody has labelled, as one table."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts import Backbone, ConceptBank
from captum_concepts.backbones.embedding import check_order
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank.activations import METHODS, activations, factorise
from captum_concepts.models.random_banks import N_BANKS
from captum_concepts.support.checks import check_axes, check_finite, check_module, check_whole
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.discovered.monosemanticity import to_units
from quantus_concepts.metrics.discovered.classes import class_rows
from quantus_concepts.metrics.discovered.rows import (
    DISCOVERED_COLUMNS,
    RANDOM_ACTIVATIONS,
    RANDOM_DIRECTIONS,
    Data,
    draw_rows,
)
from quantus_concepts.metrics.discovered.rule import add_verdicts
from quantus_concepts.metrics.discovered.stability import Discovery, explained_rows, likeness_rows, stability_rows


def score_discovered(
    backbone: nn.Module | Backbone,
    bank: ConceptBank,
    images: Tensor | np.ndarray | Iterable[Tensor],
    head: nn.Module | None = None,
    *,
    labels: Numbers | None = None,
    discover: Discovery | None = None,
    embeddings: Numbers | None = None,
    pool: Pool = "mean",
    maps: Maps | None = None,
    n_splits: int = 5,
    n_banks: int = N_BANKS,
    batch_size: int = 64,
    seed: int = 0,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score concepts that were discovered, or named by texts, without any label: one table with baselines.

    Six questions. *Stability*: does the same discovery on other images, or with another seed, find the same directions
    (`functional.bank_stability`)? *Reconstruction*: how much of the activations' variance do the concepts explain
    (`functional.explained_variance`)? *Predictions kept*: does the network predict the same class if it gets nothing
    but the concepts? *Surrogate fidelity*: do the concepts, times their importance for each class, give the logits
    again (`functional.surrogate_fidelity`)? *Deletion*: how far does the logit of the class fall if the strongest
    concepts of each image are removed (`functional.delete_concepts`)? *Monosemanticity*, with `embeddings`: do the
    images that activate a concept look alike to another network (`functional.monosemanticity`)? The function
    `quantus_concepts.metrics.discovered.verdicts` says which concepts of a table to keep.

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
    embeddings : array_like, optional
        (N, e): the images in *another* network than the backbone, which would otherwise judge itself:
        ``captum_concepts.embed(other, images).features``. Without it there are no rows of monosemanticity.
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
        A row for each number. ``metric``: "stability over halves" and "stability over seeds" (mean cosine), "explained
        variance", "predictions kept" (share of the images), "surrogate error of the logits" (mean absolute error over
        all classes) and "of the probabilities" (half the sum of absolute differences), "logit drop without everything"
        (of the class, relative to the mean of all logits, at the mean embedding), and, after ``l`` concepts are removed
        from each image, the highest value first, "predictions kept after deletion" and "share of the logit drop" (the
        mean drop as a share of the one without everything), and "monosemanticity". ``baseline``: empty for the bank;
        "random directions", "random activations" (directions of places drawn from the images), "random directions of
        the same variance" (as that of each concept's values), "random order" (the same concepts) or, as what is
        possible, "principal components". ``item``: a concept's name, or empty; the share of a concept is over the
        images in which it is the strongest. The item "best concept" is the highest score of a concept in each random
        bank. ``value`` with ``low`` and ``high``: of the bank the 95 % interval over images (over classes, if there are
        several), of stability the lowest and highest split; of a baseline the mean and the range of 95 % of the draws.
        ``n`` and ``undefined`` count images, concepts, or draws. ``chance``: of explained variance L / d, of
        monosemanticity the mean cosine of all pairs of images. ``reason``: why a value is NaN.
        ``verdict``: whether the interval of the bank is "above" or "below" the ranges of all its random banks, of a
        concept whether it is above those of their best concepts, or "not shown". Monosemanticity has no interval: its
        number is compared.

    Raises
    ------
    ValueError
        If widths or lengths do not fit, an activation is not finite, or a label is no class of the head.

    Notes
    -----
    The variance is that of the places of the maps if the embedding is their mean, and of embeddings otherwise.
    Stability, reconstruction and deletion are those of CRAFT (Fel et al. 2023) and Overcomplete, surrogate fidelity
    that of arXiv 2504.10833, where a concept's values are its weights in the best reconstruction of the embedding and
    its importance is the derivative of the logit: it needs a head that is one linear layer.

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
    given = {"labels": labels, "embeddings": embeddings}
    check_order(images, [name for name, value in given.items() if value is not None], "images")
    others = None if embeddings is None else to_units("embeddings", embeddings).cpu()
    features, pooling = resolve_stages(backbone, pool, maps, "backbone")
    places, own, owners = activations(features, pooling, images, batch_size)
    check_finite("images", places)
    check_finite("images", own)
    cavs = bank.cavs.detach().to(own)
    check_axes(images=(own, "N d"), places=(places, "n d"), cavs=(cavs, "L d"), embeddings=(others, "N e"))
    # A discovery needs as many places as it gives concepts.
    least, method = 1, bank.settings.get("method")
    if discover is None and method in METHODS:
        least = len(cavs)
        discover = lambda rows, number: factorise(rows, len(cavs), number, method)  # noqa: E731
    data = Data(places, owners, own, bank.names, seed, of_places=pooling.linear)
    banks = {
        RANDOM_DIRECTIONS: [torch.randn(cavs.shape, generator=data.generator(0, i)) for i in range(n_banks)],
        RANDOM_ACTIVATIONS: [draw_rows(data.activations, len(cavs), data.generator(1, i)) for i in range(n_banks)],
    }
    rows = [*stability_rows(data, cavs, discover, least, banks, n_splits, display_progressbar)]
    rows += explained_rows(data, cavs, banks)
    rows += likeness_rows(data, cavs, banks, others)
    rows += class_rows(data, cavs, banks, head, labels)
    return add_verdicts(pd.DataFrame(rows, columns=DISCOVERED_COLUMNS).astype({"n": int, "undefined": int}))
