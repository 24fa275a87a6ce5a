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


def _count_classes(y: np.ndarray, n_classes: int | None) -> int:
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
    if len(absent):
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
