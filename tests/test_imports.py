"""Importing the packages loads nothing that is not needed, and every name is there all the same."""

from __future__ import annotations

import ast
import compileall
import importlib
import inspect
import pickle
import shutil
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
    "pytorch_grad_cam",
    "ttach",
}
#: What Quantus and Captum load, and formulas and data sets have no use for.
HOSTS = {"quantus", "captum", "matplotlib", "pandas", "IPython", "cv2"}
#: What a fresh interpreter does, one after the other, and which libraries it must not have loaded by then.
STEPS = {
    # Not even torch and the host: they come with the first name that is used.
    **{f"import {package}": None for package in PACKAGES},
    # Fitted elsewhere, and read from a file: what only fitting needs is not loaded.
    "from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM, ResidualCBM": HEAVY | HOSTS | {"scipy"},
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
        assert loaded[step] <= {*PACKAGES, "lazy_loader"}
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
    # What type checkers and editors see is exported by the stub, under the same name.
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text("utf-8"))
    aliases = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.name in ("*", alias.asname) for alias in aliases)


@pytest.mark.parametrize("form", ["zip", "compiled only"])
def test_names_are_found_in_a_zip_and_without_sources(form: str, tmp_path: Path) -> None:
    place = tmp_path / "packages"
    for package in PACKAGES:
        folder = Path(str(importlib.import_module(package).__file__)).parent
        shutil.copytree(folder, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    if form == "zip":
        place = Path(shutil.make_archive(str(tmp_path / "packages"), "zip", place))
    else:
        compileall.compile_dir(place, quiet=2, legacy=True)
        for source in place.rglob("*.py"):
            source.unlink()
    code = (
        f"import sys; sys.path.insert(0, {str(place)!r}); import captum_concepts, quantus_concepts as q; "
        "print(q.__file__, len(dir(captum_concepts)) > 40, {'CEM', 'compare'} <= {*dir(q)}, "
        "'BAMFolder' in dir(q.datasets))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    file, *found = done.stdout.split()
    assert file.startswith(str(place))
    assert found == ["True"] * 3
