"""Tiny sources of cut-outs and scenes: blocks of one colour, so that every image can be computed by hand."""

import numpy as np

from quantus_concepts.datasets.scenes.sources import Cutout, ObjectSource, SceneSource

OBJECTS = ("ant", "cow", "dog")
SCENES = ("attic", "bamboo_forest", "cave", "dune")


class Blocks(ObjectSource):
    """Cut-out i is a block of red value i + 1; `groups` and `shape` can be given."""

    def __init__(self, n_per_class=6, names=OBJECTS, shape=(20, 40), groups=None):
        self.class_names = list(names)
        self.labels = np.repeat(np.arange(len(names)), n_per_class)
        self.groups = np.arange(len(self.labels)) if groups is None else np.asarray(groups)
        self.shape = shape

    def __getitem__(self, index):
        pixels = np.zeros((*self.shape, 3), dtype=np.uint8)
        pixels[..., 0] = index + 1
        return Cutout(pixels, np.ones(self.shape, dtype=bool))


class Plains(SceneSource):
    """Scene i is a plain of blue value i + 1, of the size given."""

    def __init__(self, n_per_class=5, names=SCENES, size=(64, 64)):
        self.class_names = list(names)
        self.labels = np.repeat(np.arange(len(names)), n_per_class)
        self.size = size

    def __getitem__(self, index):
        pixels = np.zeros((*self.size, 3), dtype=np.uint8)
        pixels[..., 2] = index + 1
        return pixels


class Noise(Plains):
    """Scene i is noise, so that no two pixels are alike."""

    def __getitem__(self, index):
        return np.random.default_rng(index).integers(0, 256, (*self.size, 3), dtype=np.uint8)


class Discs(Blocks):
    """Cut-out i is a disc of noise on bright green that must never be seen."""

    def __getitem__(self, index):
        height, width = self.shape
        rows, cols = np.mgrid[:height, :width]
        mask = ((rows + 0.5) / height - 0.5) ** 2 + ((cols + 0.5) / width - 0.5) ** 2 <= 0.25
        pixels = np.random.default_rng(index).integers(60, 90, (height, width, 3), dtype=np.uint8)
        pixels[~mask] = (0, 255, 0)
        return Cutout(pixels, mask)
