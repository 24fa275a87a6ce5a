"""Every exported callable refuses bad arguments, made from its constraints, by name and before its body runs."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import good.captum_concepts
import good.datasets
import good.evaluation
import good.functional
import good.metrics
from bad_arguments import all_bad_values, frames_of, good_values, own_parameters, public_functions, resized

PACKAGES = {
    "captum_concepts": good.captum_concepts,
    "functional": good.functional,
    "datasets": good.datasets,
    "metrics": good.metrics,
    "evaluation": good.evaluation,
}
#: Sizes of axes that have no other in a callable.
SIZES = defaultdict(lambda: 4, {"L": 3, "K": 2, "B": 2, "C": 3, "R": 3, "Q": 1, "A": 3, "l_max": 3})
#: Functions with constraints by package and name.
FUNCTIONS = {
    (room, name): function
    for room, package in PACKAGES.items()
    for name, function in public_functions(package.PACKAGE)
    if hasattr(function, "constraints")
}


def call(room: str, name: str, arguments: Mapping[str, Any]) -> Any:
    package, (cls, _, method) = PACKAGES[room], name.partition(".")
    kind = getattr(package.PACKAGE, cls)
    of_class = isinstance(inspect.getattr_static(kind, method, None), classmethod | staticmethod)
    owner = kind if of_class else package.OBJECTS[cls]() if method else package.PACKAGE
    return getattr(owner, method or cls)(**arguments)


def wrong_calls(room: str, name: str, good: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], set[str]]]:
    """Yield what is wrong, the arguments, and which of them the message may name."""
    function = FUNCTIONS[room, name]
    fixed = function.known(PACKAGES[room].OBJECTS[name.partition(".")[0]]()) if function.known else {}
    sizes = SIZES | fixed
    for key, rule in function.constraints.items():
        parameter = inspect.signature(function).parameters[key]
        required = parameter.default is not None and not rule.optional
        value = good.get(key, parameter.default)
        for what, bad in all_bad_values(rule, value, sizes, required).items():
            yield f"{key}: {what}", {**good, key: bad}, {key}
        if good.get(key) is not None:
            for bad, named in resized(key, function.constraints, good, fixed):
                yield f"{key}: of shape {tuple(bad.shape)}", {**good, key: bad}, named


def test_every_argument_of_a_function_has_a_constraint() -> None:
    for name, function in public_functions(good.functional.PACKAGE):
        if name not in good.functional.UNCHECKED:
            declared = {*getattr(function, "constraints", {}), *good.functional.OWN.get(name, ())}
            assert declared == {parameter.name for parameter in own_parameters(function)}, name


@pytest.mark.parametrize(("room", "name"), FUNCTIONS)
def test_good_arguments_are_known(room: str, name: str) -> None:
    arguments = good_values(FUNCTIONS[room, name], PACKAGES[room].GOOD.get(name, {}), SIZES)
    required = {
        parameter.name for parameter in own_parameters(FUNCTIONS[room, name]) if parameter.default is parameter.empty
    }
    assert required <= arguments.keys(), f"Add good arguments of {name} to tests/good/{room}.py."


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(("room", "name"), FUNCTIONS)
def test_bad_arguments_are_refused(room: str, name: str) -> None:
    function = FUNCTIONS[room, name]
    body = inspect.unwrap(function).__code__
    arguments = good_values(function, PACKAGES[room].GOOD.get(name, {}), SIZES)
    if name not in PACKAGES[room].NOT_RUN:
        call(room, name, arguments)
    wrong = {}
    for what, bad, named in wrong_calls(room, name, arguments):
        try:
            call(room, name, bad)
        except (ValueError, TypeError, OSError) as error:
            # Of a dict the entry is named, too: `methods['a']`.
            if not any(re.search(rf"Expected argument `{key}(\[[^`]*\])?`", str(error)) for key in named):
                wrong[what] = f"the message names another: {error}"
            elif body in frames_of(error):
                wrong[what] = f"refused after the body began: {error}"
        else:
            wrong[what] = "not refused"
    assert not wrong, "\n".join(f"{what}: {problem}" for what, problem in wrong.items())
