"""The package of data sets: one of them is imported without the others."""

import subprocess
import sys

import pytest

from quantus_concepts import datasets

CODE = """
import sys
from quantus_concepts.datasets import SceneFolder
assert SceneFolder.__name__ == "SceneFolder"
for other in ("birds.cub200", "birds.concept_folder", "scenes.coco_objects", "scenes.bam_writer", "ratings.released"):
    assert f"quantus_concepts.datasets.{other}" not in sys.modules, other
"""


def test_one_data_set_does_not_load_the_others():
    subprocess.run([sys.executable, "-c", CODE], check=True)


def test_every_name_is_found_and_no_other():
    names = {name: getattr(datasets, name) for name in datasets.__all__}
    assert set(names) <= set(dir(datasets))
    assert all(value.__name__ == name for name, value in names.items())
    assert not hasattr(datasets, "COCO")
    with pytest.raises(ImportError, match="COCO"):
        from quantus_concepts.datasets import COCO  # noqa: F401
