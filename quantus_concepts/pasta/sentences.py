"""Concepts and their importances as a sentence."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from captum_concepts._support.checks import check_kind, check_whole

SLOT = "{}"
SENTENCES = ("ours", "release")
#: Where the release's search for the value of a counterfactual begins; only what is larger replaces it.
_START_OF_COUNTERFACTUALS = 10000.0


def concept_sentence(
    values: Mapping[str, float],
    *,
    n_top: int = 15,
    ascending: bool = False,
    template: str = "",
    trailing_comma: bool = True,
) -> str:
    """Name the most important concepts, in order."""
    # Kazmierczak et al. (PASTA), Eq. 2: the `n_top` concepts of the largest magnitude. As in their released code,
    # equal magnitudes come in reverse alphabetical order, and a comma and a blank follow the last name too.
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


def released_sentence(
    written: Mapping[str, float], concepts: Sequence[str], *, counterfactual: bool = False, n_top: int = 15
) -> str:
    """Write the sentence exactly as the release of Kazmierczak et al. (PASTA) does, for the scorers trained on it."""
    # It goes through the data set's list of concepts. The value of a concept is that of the last entry whose key
    # contains its name ("wheel" takes "chain_wheel"), 0 without one; then by descending magnitude, ties in reverse
    # alphabetical order. For counterfactuals the search begins at 10000, only a larger magnitude replaces it, and
    # the order is ascending: in effect the sentence is the list in alphabetical order.
    check_whole("n_top", n_top, 1)
    if not concepts:
        raise ValueError("Expected argument `concepts` to name at least one concept but it is empty.")
    undefined = [key for key, value in written.items() if math.isnan(value)]
    if undefined:
        raise ValueError(f"Expected argument `written` to hold numbers but {undefined[0]!r} is NaN.")
    values = [_START_OF_COUNTERFACTUALS if counterfactual else 0.0] * len(concepts)
    for place, concept in enumerate(concepts):
        for key, value in written.items():
            if counterfactual and not abs(value) > values[place]:
                continue
            if concept in (key.split("(")[0] if counterfactual else key):
                values[place] = value
    magnitudes = [abs(value) for value in values]
    ordered = sorted(zip(magnitudes, concepts, strict=True), reverse=not counterfactual)
    return "".join(f"{concept}, " for _, concept in ordered[:n_top])


def check_template(template: str) -> None:
    """Raise unless a template is empty or says where the names go."""
    check_kind("template", template, str, "a sentence")
    if template and SLOT not in template:
        raise ValueError(
            f"Expected argument `template` to have {SLOT} where the names of the concepts go but got {template!r}."
        )


def checked_names(names: Sequence[str]) -> list[str]:
    """Return the names of concepts, or raise where two are one."""
    check_kind("names", names, Collection, "names of concepts")
    listed = [names] if isinstance(names, str) else [str(name) for name in names]
    double = sorted({name for name in listed if listed.count(name) > 1})
    if double:
        raise ValueError(f"Expected argument `names` to be different but {double[0]!r} comes more than once.")
    return listed
