"""The examples in the docstrings of what users import run as they are pasted, and give what they say."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import data_files
import explanation_folders
import fixtures_attribution
import fixtures_cub
import fixtures_pasta

PACKAGES = [
    "captum_concepts",
    "quantus_concepts",
    *(f"quantus_concepts.{name}" for name in ("datasets", "diffusion", "functional", "metrics", "pasta", "testing")),
]
#: Names whose examples need a package that may be missing.
NEEDS = {"LibraryCAM": "pytorch_grad_cam", "SUB": "pyarrow", "write_sub": "pyarrow"}
#: Warnings of an example: a licence that the files name, and tiny data.
EXPECTED = "The images of .* are licensed|.* concepts have"


def public_objects(package: str) -> dict[str, Any]:
    if package.endswith("diffusion"):
        pytest.importorskip("diffusers")
    module = importlib.import_module(package)
    objects = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in objects.items() if inspect.isclass(value) or inspect.isfunction(value)}


def examples(value: Any, name: str) -> list[doctest.DocTest]:
    # Without any global names: an example imports what it uses.
    return doctest.DocTestFinder(exclude_empty=True).find(value, name, module=False, globs={})


@pytest.fixture(scope="module", autouse=True)
def _files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in a folder that has what the examples read."""
    root = tmp_path_factory.mktemp("examples")
    fixtures_attribution.write_folders(root)
    fixtures_cub.write_cub(root)
    fixtures_pasta.write_pasta_release(root / "PASTA")
    explanation_folders.write_folders(root)
    if importlib.util.find_spec("pyarrow"):
        import fixtures_sub

        fixtures_sub.write_release(root / "SUB", [(0, 0), (1, 1), (2, 2), (3, 0)])
    rng = np.random.default_rng(0)
    for name in ("striped", "dotted", *(f"random_{number}" for number in range(5))):
        (root / "concepts" / name).mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "concepts" / name / f"{number}.png")
    data_files.write_coco(root / "instances_train2017.json", root / "train2017")
    with contextlib.chdir(root):
        yield


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_give_what_they_say(package: str) -> None:
    output = io.StringIO()
    runner = doctest.DocTestRunner()
    for name, value in public_objects(package).items():
        if name in NEEDS and not importlib.util.find_spec(NEEDS[name]):
            continue
        for test in examples(value, name):
            # An example that warns would teach to ignore warnings.
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                warnings.filterwarnings("ignore", EXPECTED)
                runner.run(test, out=output.write)
    assert not runner.failures, output.getvalue()
