"""Every exported callable refuses bad arguments, made from its constraints, by name and before its body runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from bad_arguments import all_bad_values, frames_of, good_value, own_parameters, public_functions, resized
from quantus_concepts import functional
from quantus_concepts.functional import ClassMeans, RandomBank

PACKAGES = {"functional": functional}
#: Sizes of axes that have no other in a callable.
SIZES = {"N": 4, "L": 3, "K": 2, "B": 2, "C": 3, "d": 4, "M": 4, "R": 3, "Q": 1, "A": 3, "l_max": 3} | dict.fromkeys(
    ["H", "W", "h", "w", "M1", "M2"], 4
)
#: Objects of the classes whose methods are checked.
OBJECTS: Mapping[str, Callable[[], Any]] = {
    "ClassMeans": lambda: ClassMeans(2, 3),
    "RandomBank": lambda: RandomBank(torch.ones(3, 4), torch.zeros(3), torch.nn.Linear(3, 2)),
}
CLASSES = torch.arange(4) % 2
#: Arguments whose constraint alone does not make a good value.
GOOD: Mapping[str, Mapping[str, Any]] = {
    "ClassMeans": {"dtype": torch.float64},
    "ClassMeans.merge": {"other": ClassMeans(2, 3)},
    "faithfulness": {"irrelevant": torch.zeros(4, 5), "relevant": torch.zeros(4, 5), "thresholds": [10]},
    "intervention_ranks": {"groups": [0, 1, 1], "boundary": 0.5},
    "interval": {"bounds": (0.0, 1.0), "clusters": [0, 0, 1]},
    "random_masks": {"generator": torch.Generator()},
    "random_banks": {"labels": CLASSES, "n_classes": 2},
    "random_bank_scores": {"labels": CLASSES, "n_banks": 1},
    "relevance_ranks": {"order": torch.arange(16).expand(4, 16)},
}
FUNCTIONS = {name: function for package in PACKAGES.values() for name, function in public_functions(package)}


def good_arguments(name: str) -> dict[str, Any]:
    given, constraints = GOOD.get(name, {}), FUNCTIONS[name].constraints
    return {key: given[key] if key in given else good_value(rule, SIZES) for key, rule in constraints.items()}


def call(name: str, arguments: Mapping[str, Any]) -> None:
    cls, _, method = name.partition(".")
    owner = OBJECTS[cls]() if method else next(each for each in PACKAGES.values() if hasattr(each, cls))
    getattr(owner, method or cls)(**arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_has_a_constraint(name: str) -> None:
    declared = set(getattr(FUNCTIONS[name], "constraints", {}))
    assert declared == {parameter.name for parameter in own_parameters(FUNCTIONS[name])}


def wrong_calls(name: str) -> Iterator[tuple[str, dict[str, Any], set[str]]]:
    """Yield what is wrong, the arguments, and which of them the message may name."""
    function, arguments = FUNCTIONS[name], good_arguments(name)
    fixed = function.known(OBJECTS[name.partition(".")[0]]()) if function.known else {}
    sizes = SIZES | fixed
    optional = {parameter.name for parameter in own_parameters(function) if parameter.default is None}
    for key, rule in function.constraints.items():
        for what, bad in all_bad_values(rule, arguments[key], sizes, key not in optional).items():
            yield f"{key}: {what}", {**arguments, key: bad}, {key}
        for bad, named in resized(key, function.constraints, arguments[key], fixed):
            yield f"{key}: of shape {tuple(bad.shape)}", {**arguments, key: bad}, named


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bad_arguments_are_refused(name: str) -> None:
    body = inspect.unwrap(FUNCTIONS[name]).__code__
    call(name, good_arguments(name))
    wrong = {}
    for what, bad, named in wrong_calls(name):
        try:
            call(name, bad)
        except (ValueError, TypeError, OSError) as error:
            if not any(f"Expected argument `{key}`" in str(error) for key in named):
                wrong[what] = f"the message names another: {error}"
            elif body in frames_of(error):
                wrong[what] = f"refused after the body began: {error}"
        else:
            wrong[what] = "not refused"
    assert not wrong, "\n".join(f"{what}: {problem}" for what, problem in wrong.items())
