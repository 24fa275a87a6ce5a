"""Importing the packages loads nothing that is not needed, and every name is there all the same."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("captum_concepts", "quantus_concepts")
HEAVY = {"sklearn", "torchvision", "timm", "open_clip", "transformers", "pytorchcv", "typer"}


def loaded(statement: str) -> set[str]:
    """Return the top names of what a fresh interpreter has imported after a statement, Python's own left out."""
    code = f"import sys\nbefore = {{*sys.modules}}\n{statement}\nprint(*({{*sys.modules}} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_loads_no_library(package: str) -> None:
    # Not even torch and the host: they come with the first name that is asked for.
    assert loaded(f"import {package}") <= {*PACKAGES}


@pytest.mark.parametrize(
    "statement",
    [
        "from captum_concepts import CoAM, LayerFeatures, SteeredRISE, build_method, explain_func",
        "from quantus_concepts import CEM, CGIM, CLM, IDR, MCS, evaluate, summarise",
    ],
)
def test_a_name_loads_no_other_library_than_its_host_does(statement: str) -> None:
    # Quantus brings scikit-learn, Captum does not.
    assert not loaded(statement) & (HEAVY - ({"sklearn"} if "quantus" in statement else set()))


@pytest.mark.parametrize(
    "package", [*PACKAGES, *(f"quantus_concepts.{part}" for part in ("datasets", "diffusion", "metrics", "pasta"))]
)
def test_every_name_is_found_wherever_it_is_looked_for(package: str) -> None:
    if package.endswith("diffusion"):
        pytest.importorskip("diffusers")
    module = importlib.import_module(package)
    names = {*module.__all__} - {"__version__"}
    assert len({*module.__all__}) == len(module.__all__)
    assert names <= set(dir(module))
    for name in names:
        value = getattr(module, name)
        assert getattr(importlib.import_module(package), name) is value
        if inspect.isclass(value) or inspect.isfunction(value):
            assert pickle.loads(pickle.dumps(value)) is value
            assert inspect.getsource(value)
    # What type checkers and editors see.
    (typed,) = (node for node in ast.parse(Path(str(module.__file__)).read_text()).body if isinstance(node, ast.If))
    seen = [alias.name for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(seen) == sorted(names)


def test_modules_are_attributes() -> None:
    assert loaded("import quantus_concepts\nassert quantus_concepts.functional.positive_percentile") > {*PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wrong_name_is_told(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = importlib.import_module(package).nothing
