"""Concepts and their importances as a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping

from captum_concepts.checks import check_whole

SLOT = "{}"


def concept_sentence(
    values: Mapping[str, float],
    *,
    n_top: int = 15,
    ascending: bool = False,
    template: str = "",
    trailing_comma: bool = True,
) -> str:
    """Name the most important concepts, in order.

    Kazmierczak et al. (PASTA), Eq. 2: the `n_top` concepts of the largest magnitude. As in their released code,
    equal magnitudes come in reverse alphabetical order, and a comma and a blank follow the last name too.

    Parameters
    ----------
    values : mapping of str to float
        Importance of each concept; its sign is ignored.
    n_top : int
        How many are named, at most.
    ascending : bool
        Whether small magnitudes mean important, as for counterfactual explanations; the order is then reversed,
        that of equal magnitudes too.
    template : str
        A sentence with {} where the names go; without one, the names alone.
    trailing_comma : bool
        Whether ", " follows the last name.

    Returns
    -------
    str
        For instance "striped wing, red crown, ".

    Raises
    ------
    ValueError
        If there is no concept, a value is not finite, or the template has no {}.
    """
    check_whole("n_top", n_top, 1)
    check_template(template)
    if not values:
        raise ValueError("Expected argument `values` to have at least one concept but it is empty.")
    broken = [name for name, value in values.items() if not math.isfinite(value)]
    if broken:
        raise ValueError(
            f"Expected argument `values` to be finite but {len(broken)} are NaN or infinite, the first of "
            f"{broken[0]!r}. Leave this explanation out."
        )
    ordered = sorted(((abs(float(value)), str(name)) for name, value in values.items()), reverse=not ascending)
    names = ", ".join(name for _, name in ordered[:n_top]) + (", " if trailing_comma else "")
    return template.replace(SLOT, names) if template else names


def check_template(template: str) -> None:
    """Raise unless a template is empty or says where the names go.

    Parameters
    ----------
    template : str
        The argument `template`.

    Raises
    ------
    ValueError
        If it has no {}.
    """
    if template and SLOT not in template:
        raise ValueError(
            f"Expected argument `template` to have {SLOT} where the names of the concepts go but got {template!r}."
        )
