"""The head of a concept model, from concept values to classes: fitting and pruning."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from captum_concepts.models.chain import ConceptChain, linear_part, make_linear
from captum_concepts.models.interventions import chosen_concepts
from captum_concepts.support import checks
from captum_concepts.support.files import list_some
from captum_concepts.support.running import import_sklearn, warn_user

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

C = TypeVar("C", bound=ConceptChain)

# Of a standardised value in a class, below which a covariance has no inverse.
_LEAST_VARIANCE = 1e-10

# A logit that no other comes near, and that half precision still holds.
_NEVER = -1e4


def fit_logistic(
    values: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    n_classes: int | None = None,
    *,
    C: float = 1.0,
    max_iter: int = 1000,
    standardise: bool = True,
) -> nn.Linear:
    """Fit multinomial logistic regression from concept values to classes.

    scikit-learn's `LogisticRegression` (lbfgs, L2) in float64 on the CPU. Where values are standardised, which the
    penalty is then the same for all of, the standardisation is folded into the weights: the head takes values as
    they are.

    Parameters
    ----------
    values : Tensor or array
        (N, L), concept values or any other inputs of a head.
    labels : Tensor or array
        (N,) of classes from 0; also as whole floating-point numbers, as (N, 1) or one-hot (N, K).
    n_classes : int, optional
        K; one more than the largest label by default. Classes without a sample are never predicted; a
        warning names them.
    C : float
        Inverse of the regularisation strength.
    max_iter : int
        Steps of the solver at most; a head that has not converged by then is returned as it is, with a warning.
    standardise : bool
        Whether values are brought to mean 0 and deviation 1 for the fit.

    Returns
    -------
    nn.Linear
        (N, L) to logits (N, K), on the device and in the floating-point type of `values`. Of two classes either gets
        half of the one logit that is fitted.

    Raises
    ------
    TypeError
        If labels are bools.
    ValueError
        If values and labels differ in number, a value is not finite, labels are no classes, a setting is out of range,
        or there are fewer than two classes.

    Examples
    --------
    >>> import torch
    >>> from captum_concepts import fit_logistic
    >>> values = torch.tensor([[-2.0, 0.0], [-1.0, 1.0], [1.0, 0.0], [2.0, 1.0]])
    >>> head = fit_logistic(values, [0, 0, 1, 1])
    >>> head(values).argmax(1).tolist()
    [0, 0, 1, 1]
    """
    checks.check_range("C", C, 0, math.inf, open_low=True)
    checks.check_whole("max_iter", max_iter, 1)
    model = import_sklearn("linear_model").LogisticRegression(C=C, max_iter=max_iter)
    head = _fit(model, values, labels, n_classes, standardise)
    if max(model.n_iter_) >= max_iter:
        warn_unconverged("fit_logistic", max_iter, "lower `C`")
    return head


def fit_elastic_net(
    values: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    n_classes: int | None = None,
    *,
    alpha: float = 1e-4,
    l1_ratio: float = 0.99,
    seed: int = 0,
    max_iter: int = 10_000,
    standardise: bool = True,
) -> nn.Linear:
    """Fit one-against-all logistic regression with an elastic net, which most concepts have no part in.

    scikit-learn's ``SGDClassifier(loss="log_loss", penalty="elasticnet")``, as the release of post-hoc CBM (Yuksekgonul
    et al. 2023) fits its heads; most weights come out as 0. Standardisation is folded into the weights.

    Parameters
    ----------
    values : Tensor or array
        As in `fit_logistic`.
    labels : Tensor or array
        As in `fit_logistic`.
    n_classes : int, optional
        As in `fit_logistic`.
    alpha : float
        Strength of the penalty, above 0.
    l1_ratio : float
        Share of the L1 norm in the penalty, in [0, 1]; the rest is L2.
    seed : int
        Random seed of the order of the samples.
    max_iter : int
        Passes over the samples at most, as in `fit_logistic`.
    standardise : bool
        As in `fit_logistic`.

    Returns
    -------
    nn.Linear
        As of `fit_logistic`.

    Raises
    ------
    TypeError
        As in `fit_logistic`.
    ValueError
        As in `fit_logistic`.

    Examples
    --------
    >>> import torch
    >>> from captum_concepts import fit_elastic_net
    >>> values = torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    >>> labels = (values[:, 0] > 0).long()  # one concept decides
    >>> head = fit_elastic_net(values, labels, alpha=0.01)
    >>> bool(head.weight[1, 0].abs() == head.weight[1].abs().max())
    True
    """
    checks.check_range("alpha", alpha, 0, math.inf, open_low=True, open_high=True)
    checks.check_range("l1_ratio", l1_ratio, 0, 1)
    checks.check_whole("max_iter", max_iter, 1)
    model = import_sklearn("linear_model").SGDClassifier(
        loss="log_loss", penalty="elasticnet", alpha=alpha, l1_ratio=l1_ratio, max_iter=max_iter, random_state=seed
    )
    head = _fit(model, values, labels, n_classes, standardise)
    if model.n_iter_ >= max_iter:
        warn_unconverged("fit_elastic_net", max_iter, "raise `alpha`")
    return head


class QuadraticHead(nn.Module):
    """A head that gives the log posteriors of classes whose concept values are each normally distributed.

    It computes in float64, since squares of values that are close to each other are far from them.

    Parameters
    ----------
    means : Tensor
        (K, L), of each class.
    scalings : Tensor
        (K, L, L): by which the difference from the mean of a class becomes one of independent values of variance 1.
    offsets : Tensor
        (K,), log prior less half the log determinant of the covariance, but for a number that all classes share.
    """

    means: Tensor
    scalings: Tensor
    offsets: Tensor

    def __init__(self, means: Tensor, scalings: Tensor, offsets: Tensor) -> None:
        super().__init__()
        for name, tensor in (("means", means), ("scalings", scalings), ("offsets", offsets)):
            self.register_buffer(name, tensor)

    def forward(self, values: Tensor) -> Tensor:
        """Return log posteriors (N, K) of concept values (N, L), in the type of the values."""
        scaled = [(values.to(mean) - mean) @ scaling for mean, scaling in zip(self.means, self.scalings, strict=True)]
        distances = torch.stack([rows.square().sum(1) for rows in scaled], 1)
        return (self.offsets - distances / 2).log_softmax(1).to(values)

    def expansion(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log posteriors (N, K), and how they change with each value alone, slopes (N, K, L) and curvatures.

        After a change t of value j that of class k is ``score + slope * t - curvature * t ** 2 / 2``, but for a number
        that all classes share; curvatures are (K, L).
        """
        values = values.to(self.means)
        slopes = [
            -(values - mean) @ scaling @ scaling.T for mean, scaling in zip(self.means, self.scalings, strict=True)
        ]
        return self(values), torch.stack(slopes, 1), self.scalings.square().sum(2)

    def extra_repr(self) -> str:
        """Return the numbers of concepts and classes, for the repr."""
        return f"{self.means.shape[1]} concepts, {self.means.shape[0]} classes"


def fit_qda(values: Tensor | ArrayLike, labels: Tensor | ArrayLike, *, reg_param: float = 0.0) -> QuadraticHead:
    """Fit quadratic discriminant analysis from concept values to classes, the head of CLIP-QDA.

    Concept values are taken to be normally distributed in each class, with a mean and a covariance of its own: those of
    its rows (maximum likelihood, as `QuadraticDiscriminantAnalysis` of recent versions of scikit-learn), in float64 on
    the CPU. Kazmierczak et al. (2024), "CLIP-QDA: An Explainable Concept Bottleneck Model".

    Parameters
    ----------
    values : Tensor or array
        (N, L), concept values: similarities of image and concept names in CLIP-QDA.
    labels : Tensor or array
        As in `fit_logistic`; of each class from 0 more than L rows.
    reg_param : float
        In [0, 1], how far each covariance is moved from its own to that of independent values, each with its variance
        over all rows.

    Returns
    -------
    QuadraticHead
        A module, (N, L) to log posteriors (N, K), on the device of `values`; the method "CLIP-QDA-sample" of
        `build_method` explains it.

    Raises
    ------
    TypeError
        If labels are bools.
    ValueError
        If values and labels differ in number, a value is not finite, labels are no classes, a class has too few rows,
        or a concept follows from others in a class.

    Examples
    --------
    >>> import torch
    >>> from captum_concepts import build_method, fit_qda
    >>> head = fit_qda(torch.tensor([[-1.0], [1.0], [3.0], [5.0]]), [0, 0, 1, 1])
    >>> changes = build_method("CLIP-QDA-sample")(head, torch.tensor([[0.0], [2.5]]))
    >>> changes.round(4).tolist()  # to 2, from where on it is the other class
    [[2.0], [-0.5]]
    """
    checks.check_range("reg_param", reg_param, 0, 1)
    values, classes = checks.to_tensor("values", values), checks.to_class_indices("labels", labels)
    checks.check_axes(values=(values, "N L"), labels=(classes, "N"))
    checks.check_finite("values", values)
    y, x = checks.to_numpy(classes), values.cpu().double().numpy()
    counts = np.bincount(y, minlength=_count_classes(y, None, warn=False))
    if (few := np.flatnonzero(counts <= x.shape[1])).size:
        raise ValueError(
            f"Expected argument `labels` to have more than L = {x.shape[1]} rows of each class, whose covariance is "
            f"fitted, but got {counts[few[0]]} of class {few[0]}. Give more images, or fewer concepts."
        )
    shift, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread == 0] = 1.0
    # Not by scikit-learn, whose versions divide the covariance by N or N - 1.
    scaled = (x - shift) / spread
    means, scalings, offsets = [], [], []
    for k, count in enumerate(counts):
        own = scaled[y == k]
        means.append(own.mean(0))
        _, sizes, turned = np.linalg.svd(own - means[-1], full_matrices=False)
        variances = (1 - reg_param) * sizes**2 / count + reg_param
        if variances.min() < _LEAST_VARIANCE:
            raise ValueError(
                "Expected argument `values` to have no concept that follows from others, or does not change, within a "
                f"class but class {k} has one. Leave such concepts out, or raise `reg_param`."
            )
        scalings.append(turned.T / np.sqrt(variances))
        offsets.append(np.log(count / len(y)) - np.log(variances).sum() / 2)
    arrays = (shift + spread * np.stack(means), np.stack(scalings) / spread[:, None], np.array(offsets))
    return QuadraticHead(*(torch.from_numpy(array).to(values.device) for array in arrays))


def warn_unconverged(function: str, max_iter: int, otherwise: str) -> None:
    """Warn of a solver that has taken all its steps."""
    warn_user(
        f"{function} has not converged in `max_iter` = {max_iter} steps: what it fitted is returned as it is. Raise "
        f"`max_iter`, or {otherwise}."
    )


@cache
def _thread_controller() -> ThreadpoolController:
    """Return what sets the threads of BLAS; looking for its libraries takes longer than a small fit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


HEADS: dict[str, Callable[..., nn.Linear]] = {"logistic": fit_logistic, "elastic_net": fit_elastic_net}


def _count_classes(y: np.ndarray, n_classes: int | None, warn: bool = True) -> int:
    """Return the number of classes, or raise; warn of those without a sample."""
    present = np.unique(y)
    if len(present) < 2 or present[0] < 0:
        raise ValueError(
            f"Expected argument `labels` to hold class indices from 0, of at least two classes, but got "
            f"{present[:5].tolist()}."
        )
    least = int(present[-1]) + 1
    if n_classes is not None and n_classes < least:
        raise ValueError(
            f"Expected argument `n_classes` to be at least {least}, one more than the largest label, but got "
            f"{n_classes}."
        )
    k = n_classes or least
    absent = np.setdiff1d(np.arange(k), present)
    if warn and len(absent):
        names = list_some(absent.tolist())
        warn_user(f"{len(absent)} of {k} classes have no sample and will never be predicted: {names}.")
    return k


def _fit(
    model: Any,
    values: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    n_classes: int | None,
    standardise: bool,
) -> nn.Linear:
    values, classes = checks.to_tensor("values", values), checks.to_class_indices("labels", labels)
    checks.check_axes(values=(values, "N L"), labels=(classes, "N"))
    checks.check_finite("values", values)
    y = checks.to_numpy(classes)
    k = _count_classes(y, n_classes)
    # scikit-learn computes on the CPU; in float64 the solvers do not stall on badly scaled values.
    x = values.cpu().double().numpy()
    shift = x.mean(axis=0) if standardise else np.zeros(x.shape[1])
    spread = x.std(axis=0) if standardise else np.ones(x.shape[1])
    spread[spread == 0] = 1.0
    # The products of a step are so small that threads of BLAS cost more in waiting for each other than they save.
    with _thread_controller().limit(limits=1, user_api="blas"), warnings.catch_warnings():
        # In our own words, with the argument's name.
        warnings.simplefilter("ignore", import_sklearn("exceptions").ConvergenceWarning)
        model.fit((x - shift) / spread, y)
    rows, bias = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        rows, bias = np.concatenate([-rows, rows]) / 2, np.concatenate([-bias, bias]) / 2
    weight = np.zeros((k, x.shape[1]))
    offset = np.full(k, _NEVER)
    weight[model.classes_] = rows / spread
    offset[model.classes_] = bias - (rows / spread) @ shift
    kind = values.dtype if values.is_floating_point() else torch.float32
    return make_linear(torch.from_numpy(weight), torch.from_numpy(offset), kind, values.device)


def prune(
    cbm: C,
    concepts: int | str | Sequence[int | str] | Tensor,
    classes: int | Sequence[int] | Tensor | None = None,
    *,
    normalise: bool = False,
) -> C:
    """Take concepts away from classes: their weights in the head become 0.

    Model editing of Yuksekgonul et al. (2023), "Post-hoc Concept Bottleneck Models": a concept that is known to be
    spurious, as the bed on which a dog lies, is pruned from the class that learnt it, with no data and no training.
    A class that loses weight loses against the others; `normalise` gives it back the length that it had.

    Parameters
    ----------
    cbm : PostHocCBM, BottleneckCBM or ResidualCBM
        With a linear head; left as it is. The residual of a ResidualCBM is not edited and may still hold what was
        pruned.
    concepts : int, str or sequence of them
        Indices, or the names of a `PostHocCBM`.
    classes : int or sequence of int, optional
        By default all.
    normalise : bool
        Whether the remaining weights of each class are multiplied so that the sum of their magnitudes (L1) is what it
        was before ("prune and normalise").

    Returns
    -------
    PostHocCBM, BottleneckCBM or ResidualCBM
        Model of the same class with its own head; everything else is shared with `cbm`.

    Raises
    ------
    TypeError
        If `concepts` or `classes` are no indices.
    ValueError
        If a concept or class is not there, the head is not linear, or a class to be normalised has no weight left.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM, prune
    >>> bank = ConceptBank(torch.eye(2), names=["dog", "bed"])
    >>> cbm = PostHocCBM(nn.Conv2d(3, 2, 3), bank, nn.Linear(2, 5))
    >>> prune(cbm, "bed").head.weight[:, 1].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    head = copy.deepcopy(cbm.head)
    linear = linear_part(head)
    if linear is None:
        raise ValueError(
            f"Expected argument `cbm` to have a linear head, whose weights belong to one concept each, but got "
            f"{type(head).__name__}."
        )
    n_classes, n_concepts = linear.weight.shape
    columns = chosen_concepts(concepts, getattr(cbm.concept_layer, "names", ()), 1, n_concepts)
    rows = torch.arange(n_classes)
    if classes is not None:
        listed = [classes] if isinstance(classes, int) else torch.as_tensor(classes).tolist()
        rows = torch.tensor(
            sorted({checks.check_whole("classes", k, 0, n_classes - 1) for k in checks.as_list("classes", listed)})
        )
    with torch.no_grad():
        before = linear.weight[rows].abs().sum(1)
        linear.weight[rows[:, None], columns.flatten()] = 0
        if normalise:
            after = linear.weight[rows].abs().sum(1)
            if ((after == 0) & (before > 0)).any():
                empty = rows[((after == 0) & (before > 0)).cpu()].tolist()
                raise ValueError(
                    f"Expected argument `concepts` to leave each class some weight to normalise but classes "
                    f"{empty[:5]} have none. Prune fewer, or with `normalise=False`."
                )
            linear.weight[rows] *= torch.where(after > 0, before / after, 1)[:, None]
    return cbm.with_head(head)
