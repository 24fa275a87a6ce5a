"""The package of data sets: a worker that starts as a new process reads one of them without loading the others."""

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader

from scenes_and_modules import ScenesAndModules

OTHERS = ("birds.cub200", "birds.concept_folder", "scenes.coco_objects", "scenes.bam_writer", "ratings.released")


def test_a_spawned_worker_reads_and_loads_no_other_data_set(tmp_path):
    (tmp_path / "plain").mkdir()
    Image.new("RGB", (6, 4), (250, 120, 3)).save(tmp_path / "plain" / "0.png")
    # As Python starts processes on macOS and Windows, and from 3.14 on, nearly so, on Linux.
    loader = DataLoader(ScenesAndModules(tmp_path), None, num_workers=1, multiprocessing_context="spawn")
    ((pixels, loaded),) = loader
    np.testing.assert_array_equal(pixels, np.broadcast_to(np.uint8([250, 120, 3]), (4, 6, 3)))
    assert "quantus_concepts.datasets.scenes.image_folders" in loaded
    assert not {f"quantus_concepts.datasets.{other}" for other in OTHERS} & set(loaded)
