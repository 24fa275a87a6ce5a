"""The package of data sets: one of them is imported without the others."""

import subprocess
import sys

CODE = """
import sys
from quantus_concepts.datasets import SceneFolder
assert SceneFolder.__name__ == "SceneFolder"
for other in ("birds.cub200", "birds.concept_folder", "scenes.coco_objects", "scenes.bam_writer", "ratings.released"):
    assert f"quantus_concepts.datasets.{other}" not in sys.modules, other
"""


def test_one_data_set_does_not_load_the_others():
    subprocess.run([sys.executable, "-c", CODE], check=True)
