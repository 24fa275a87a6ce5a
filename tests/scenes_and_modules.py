"""Scenes that report what the process that reads them has loaded; a module that a spawned worker can import."""

import sys

from quantus_concepts.datasets import SceneFolder


class ScenesAndModules(SceneFolder):
    """A scene, and the names of the modules of data sets that the process has loaded."""

    def __getitem__(self, index):
        return super().__getitem__(index), [name for name in sys.modules if name.startswith("quantus_concepts.data")]
