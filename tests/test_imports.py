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
HEAVY = {
    "sklearn",
    "torchvision",
    "timm",
    "open_clip",
    "transformers",
    "pytorchcv",
    "typer",
    "ray",
    "diffusers",
    "datasets",
}
#: What Quantus and Captum load, and formulas and data sets have no use for.
HOSTS = {"quantus", "captum", "matplotlib", "pandas", "IPython", "cv2"}
#: What a fresh interpreter does, one after the other, and which libraries it must not have loaded by then.
STEPS = {
    # Not even torch and the host: they come with the first name that is used.
    **{f"import {package}": None for package in PACKAGES},
    "assert quantus_concepts.functional.positive_percentile": HEAVY | HOSTS,
    "from quantus_concepts.datasets import PaintedBirds": HEAVY | HOSTS,
    "from captum_concepts import CoAM, LayerFeatures, SteeredRISE, build_method, explain_func": HEAVY,
    # Quantus brings scikit-learn, Captum does not.
    "from quantus_concepts import CEM, CGIM, CLM, IDR, MCS, evaluate, summarise": HEAVY - {"sklearn"},
    "from quantus_concepts.testing import MetricCase, parametrize_with_metrics": {"pytest"},
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """What one interpreter has loaded after each step, by its top names, Python's own left out."""
    code = ["import sys", "before = {*sys.modules}"]
    for step in STEPS:
        code += [step, "print(*({*sys.modules} - before))"]
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, check=True)
    lines = [{name.partition(".")[0] for name in line.split()} for line in done.stdout.splitlines()]
    return {step: names - sys.stdlib_module_names for step, names in zip(STEPS, lines, strict=True)}


@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_loaded_that_is_not_needed(step: str, loaded: dict[str, set[str]]) -> None:
    forbidden = STEPS[step]
    if forbidden is None:
        assert loaded[step] <= {*PACKAGES}
    else:
        assert loaded[step] > {*PACKAGES}
        assert not loaded[step] & forbidden


@pytest.mark.parametrize(
    "package",
    [*PACKAGES, *(f"quantus_concepts.{part}" for part in ("datasets", "diffusion", "metrics", "pasta", "testing"))],
)
def test_every_name_is_found_in_dir_and_in_the_stubs(package: str) -> None:
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
    # What type checkers and editors see.
    (typed,) = (node for node in ast.parse(Path(str(module.__file__)).read_text()).body if isinstance(node, ast.If))
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    imported = [alias.name for node in imports for alias in node.names if alias.name != "*"]
    starred = [str(node.module) for node in imports if node.names[0].name == "*"]
    imported += [name for other in starred for name in importlib.import_module(other).__all__]
    assert sorted(imported) == sorted(names)
