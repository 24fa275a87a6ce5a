"""PCBM-h: a concept bottleneck plus a residual on the embedding for what the concepts miss."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.embedding import LoaderBatch
from captum_concepts.backbones.pooling import Concepts, Maps, Pool
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import linear_part, make_linear
from captum_concepts.models.files import LEVELS, ModelContents
from captum_concepts.models.heads import warn_unconverged
from captum_concepts.models.store import SHARED, StoredCBM
from captum_concepts.support import running
from captum_concepts.support.checks import check_axes, check_finite, check_range, check_whole, to_numpy
from captum_concepts.texts import in_one_line


@in_one_line
class Contributions(NamedTuple):
    """The two parts of the logits of a `ResidualCBM`, which are their sum.

    Attributes
    ----------
    bottleneck : Tensor
        (N, K), contribution of the concepts.
    residual : Tensor
        (N, K), contribution of the embedding that bypasses the concepts.
    """

    bottleneck: Tensor
    residual: Tensor


class ResidualCBM(StoredCBM):
    """A concept model whose logits are those of its bottleneck plus a residual of the embedding (PCBM-h).

    ``g(u) + r(f)`` of Yuksekgonul et al. (2023), "Post-hoc Concept Bottleneck Models"; `fit_residual` makes one.

    The concept metrics read concept values and `head`, as of every concept model: CGIM, CEM and CLM, `score_concepts`
    and its accuracy are those of the bottleneck without the residual, and do not describe what it adds. Report
    `contributions` too: a model whose residual decides is not explained by its concepts.

    `save`, `load`, `push_to_hub` and `from_pretrained` are as of `PostHocCBM`.

    Parameters
    ----------
    bottleneck : PostHocCBM or BottleneckCBM
        Shares its parts with this model.
    residual : nn.Module
        Embeddings (N, d) to what is added to the logits, (N, K).

    Raises
    ------
    ValueError
        If `bottleneck` has a residual already, or a linear `residual` is of another width or of other classes.
    """

    bottleneck: StoredCBM
    _kind = "ResidualCBM"

    def __init__(self, bottleneck: StoredCBM, residual: nn.Module) -> None:
        _check_without_residual("bottleneck", bottleneck)
        _check_widths(residual, bottleneck)
        super().__init__(
            bottleneck.features, bottleneck.pooling, bottleneck.concept_layer, bottleneck.head, bottleneck._channels
        )
        self.residual = residual
        # Not registered: its parts are, and twice they would duplicate the keys of the state dict.
        self.__dict__["bottleneck"] = bottleneck
        for name in (*SHARED, *LEVELS, "random_banks"):
            setattr(self, name, getattr(bottleneck, name, getattr(self, name)))

    @property
    def linear_pool(self) -> bool:
        """Whether maps are a decomposition of the values, as of the bottleneck."""
        return self.bottleneck.linear_pool

    @property
    def without_maps(self) -> str:
        """Why the model has no concept maps, as of the bottleneck."""
        return self.bottleneck.without_maps

    @property
    def bounded(self) -> bool:
        """Whether a label is a value, as of the bottleneck."""
        return self.bottleneck.bounded

    @property
    def zero(self) -> str:
        """What a value of 0 means, as of the bottleneck."""
        return self.bottleneck.zero

    def maps_from_features(self, features: Tensor, concepts: Concepts = None) -> Tensor:
        """Return the concept maps of features, those of the bottleneck."""
        return self.bottleneck.maps_from_features(features, concepts)

    random_models = PostHocCBM.random_models

    def map_weights(self) -> Tensor:
        """Return the concept vectors (L, d) that weight the maps."""
        return self.bottleneck.map_weights()

    def n_concepts(self) -> int | None:
        """Return L where it is known."""
        return self.bottleneck.n_concepts()

    def with_head(self, head: nn.Module) -> Self:
        """Return a model with another head and the same residual."""
        return type(self)(self.bottleneck.with_head(head), self.residual)

    def contributions(self, inputs: Tensor | ArrayLike) -> Contributions:
        """Return what the concepts and what the residual contribute to the logits of each image and class.

        Parameters
        ----------
        inputs : Tensor or array
            Images (N, C, H, W), brought to the model's device and type. It runs in eval mode and without gradient.

        Returns
        -------
        Contributions
            `bottleneck` and `residual`, (N, K) each.

        Raises
        ------
        ValueError
            If `inputs` are of fewer than two dimensions.
        """
        inputs = self.own_inputs(inputs)
        with running.evaluation_mode(self), torch.no_grad():
            embedding = self.embed_features(self.features(inputs))
            return Contributions(
                running.tensor_output(self.head(self.concept_layer(embedding))), self._add_logits(embedding)
            )

    def _contents(self) -> ModelContents:
        inner = self.bottleneck._contents()
        facts = replace(inner.backbone, source=self.source)
        return replace(inner, **self._known(), backbone=facts, residual=self.residual)

    @classmethod
    def _restore(cls, contents: ModelContents, features: nn.Module | Backbone, pool: Pool, maps: Maps | None) -> Self:
        bottleneck: type[StoredCBM] = BottleneckCBM if contents.bank is None else PostHocCBM
        return cls(bottleneck._restore(contents, features, pool, maps), cast("nn.Module", contents.residual))

    def _decide(self, values: Tensor, embedding: Tensor) -> Tensor:
        return running.tensor_output(self.head(values)) + self._add_logits(embedding)

    def _add_logits(self, embedding: Tensor) -> Tensor:
        reference = running.first_floating(self.residual)
        with running.without_autocast(embedding.device):
            return running.tensor_output(
                self.residual(embedding if reference is None else embedding.to(reference.dtype))
            )


def fit_residual(
    cbm: StoredCBM,
    loader: Iterable[LoaderBatch],
    *,
    C: float = 1.0,
    max_iter: int = 1000,
    standardise: bool = True,
    display_progressbar: bool = False,
) -> ResidualCBM:
    """Fit a linear residual on the embedding of a concept model, which stays as it is (PCBM-h).

    Sequential training of Yuksekgonul et al. (2023): ``min_r E[CE(g(u) + r(f), y)]`` with concepts and head g frozen,
    so that concepts explain what they can and the residual only the rest. Cross-entropy with the bottleneck's logits
    as an offset and an L2 penalty is convex: it is minimised by L-BFGS from 0 and without a draw, where the authors'
    release takes 20 epochs of Adam.

    Parameters
    ----------
    cbm : PostHocCBM or BottleneckCBM
        Left as it was; the model returned shares its parts.
    loader : iterable
        Batches ``(images, labels, ...)``, or their result of `embed`, which saves the pass.
    C : float
        Inverse strength of the penalty, as in `fit_logistic`: a small one leaves more to the concepts.
    max_iter : int
        Steps of L-BFGS at most; a residual that has not converged by then is returned as it is, with a warning.
    standardise : bool
        Whether the penalty is on weights of standardised embeddings, as in `fit_logistic`.
    display_progressbar : bool
        Whether to show progress over the batches.

    Returns
    -------
    ResidualCBM
        With an ``nn.Linear`` (d, K) as residual, on the device of the model.

    Raises
    ------
    ValueError
        If `cbm` has a residual already, a setting is out of range, or labels are missing or of other classes.
    """
    check_range("C", C, 0, math.inf, open_low=True, open_high=True)
    check_whole("max_iter", max_iter, 1)
    _check_without_residual("cbm", cbm)
    embedding, labels, _ = cbm.embedded(loader, 2, display_progressbar)
    if labels is None:
        raise ValueError("Expected argument `loader` to give class labels with the images but it gives none.")
    check_axes(embeddings=(embedding, "N d"), labels=(labels, "N"))
    check_finite("loader", embedding)
    with running.evaluation_mode(cbm), torch.no_grad():
        offset = running.tensor_output(cbm.head(cbm.concept_layer(embedding)))
    if labels.max() >= offset.shape[1]:
        raise ValueError(
            f"Expected argument `loader` to give labels below K = {offset.shape[1]}, the classes of the model, but got "
            f"{int(labels.max())}."
        )
    # The solver does not stall in float64.
    precision = running.widest_float(embedding.device)
    weight, bias = _solve(embedding.to(precision), labels, offset.to(precision), C, max_iter, standardise)
    residual = make_linear(weight, bias, torch.promote_types(offset.dtype, torch.float32))
    return ResidualCBM(cbm, residual.train(cbm.training))


def _solve(
    x: Tensor, labels: Tensor, offset: Tensor, C: float, max_iter: int, standardise: bool
) -> tuple[Tensor, Tensor]:
    """Return weights (K, d) and bias (K,) of the residual of least cross-entropy."""
    from scipy.optimize import minimize

    shift, spread = torch.zeros_like(x[0]), torch.ones_like(x[0])
    if standardise:
        shift, spread = x.mean(0), x.std(0, correction=0)
        spread = spread.where(spread > 0, 1)
    z = (x - shift) / spread
    truth = functional.one_hot(labels, offset.shape[1]).to(x)
    shape = offset.shape[1], z.shape[1] + 1
    # scikit-learn's C is that of the sum over the samples; the bias, in the last column, has no penalty.
    penalty = torch.ones(shape[1]).to(x) / (C * len(z))
    penalty[-1] = 0

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        rows = torch.from_numpy(flat).view(shape).to(x)
        logits = offset + functional.linear(z, rows[:, :-1], rows[:, -1])
        wrong = (logits.softmax(1) - truth) / len(z)
        slope = torch.cat([wrong.T @ z, wrong.sum(0)[:, None]], 1) + penalty * rows
        mean_loss = functional.cross_entropy(logits, labels) + (penalty * rows.square()).sum() / 2
        return mean_loss.item(), to_numpy(slope).astype(float).ravel()

    # Not torch.optim, whose first optimiser loads the compiler, which takes seconds.
    ends = {"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": 1e-6, "ftol": 1e-12}
    solved = minimize(loss, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options=ends)
    if solved.status == 1:
        warn_unconverged("fit_residual", max_iter, "lower `C`")
    rows = torch.from_numpy(solved.x).view(shape).to(x)
    weight = rows[:, :-1] / spread
    return weight, rows[:, -1] - weight @ shift


def _check_without_residual(name: str, cbm: StoredCBM) -> None:
    if isinstance(cbm, ResidualCBM):
        raise ValueError(f"Expected argument `{name}` to have no residual yet but it has. Pass its `bottleneck`.")


def _check_widths(residual: nn.Module, cbm: StoredCBM) -> None:
    """Raise where a linear residual does not fit; one of a single class would be added to all."""
    linear, head = linear_part(residual), linear_part(cbm.head)
    if linear is None:
        return
    widths = (linear.in_features, linear.out_features)
    expected = (cbm._channels or widths[0], widths[1] if head is None else head.out_features)
    if widths != expected:
        raise ValueError(f"Expected argument `residual` to take and give (d, K) = {expected} numbers but got {widths}.")
