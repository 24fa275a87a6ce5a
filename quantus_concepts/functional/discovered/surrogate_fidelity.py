"""Surrogate fidelity: whether concepts and their importances give the network's logits again."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_finite
from captum_concepts.support.running import at_least_float32
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, to_floats


@in_one_line
class SurrogateFidelity(NamedTuple):
    """Errors of a surrogate.

    Attributes
    ----------
    mae : Tensor
        (N,) the mean over all classes of ``|y - y_hat|``.
    emd : Tensor
        (N,) in [0, 1], half the sum over all classes of ``|softmax(y) - softmax(y_hat)|``.
    """

    mae: Tensor
    emd: Tensor


@torch.no_grad()
def surrogate_fidelity(
    logits: Numbers, values: Numbers, importances: Numbers, bias: Numbers | None = None
) -> SurrogateFidelity:
    """Error of the logits that concept values times importances give, without any training (SURF).

    The surrogate of an explanation by concepts is ``y_hat = importances @ values``, and y are the logits less their
    bias, of all classes. Lower is better; 0 says that the concepts hold all that the classes depend on.

    Parameters
    ----------
    logits : array_like
        (N, K) of the network.
    values : array_like
        (N, L) concept values.
    importances : array_like
        (K, L) of every class, or (N, K, L).
    bias : array_like, optional
        (K,) of the network's last layer; 0 by default.

    Returns
    -------
    SurrogateFidelity
        ``mae`` and ``emd``, (N,) each.

    Raises
    ------
    ValueError
        If a shape is wrong, or a number is not finite.

    Notes
    -----
    "Surrogate fidelity" is the evaluation of arXiv 2504.10833, which shows that deletion curves rank explanations
    wrongly: they take the network to embeddings that no image has.

    Examples
    --------
    >>> from quantus_concepts.functional import surrogate_fidelity
    >>> logits, values = [[3.0, 1.0]], [[1.0, 2.0]]
    >>> errors = surrogate_fidelity(logits, values, importances=[[1.0, 1.0], [0.0, 0.0]])
    >>> errors.mae
    tensor([0.5000], dtype=torch.float64)
    """
    logits = at_least_float32(to_floats("logits", logits))
    numbers = {"values": to_floats("values", values), "importances": to_floats("importances", importances)}
    if bias is not None:
        numbers["bias"] = to_floats("bias", bias)
    numbers = {name: number.to(logits) for name, number in numbers.items()}
    axes = "K L" if numbers["importances"].ndim == 2 else "N K L"
    check_axes(logits=(logits, "N K"), values=(numbers["values"], "N L"), importances=(numbers["importances"], axes))
    if bias is not None:
        check_axes(logits=(logits, "N K"), bias=(numbers["bias"], "K"))
    for name, number in {"logits": logits, **numbers}.items():
        check_finite(name, number)
    explained = logits - numbers.get("bias", 0)
    surrogate = torch.einsum("nl,kl->nk" if axes == "K L" else "nl,nkl->nk", numbers["values"], numbers["importances"])
    emd = (explained.softmax(1) - surrogate.softmax(1)).abs().sum(1) / 2
    return SurrogateFidelity((explained - surrogate).abs().mean(1), emd)
