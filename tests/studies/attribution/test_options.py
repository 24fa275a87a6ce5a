from __future__ import annotations

import torch

from quantus_concepts.metrics import Limits
from quantus_concepts.studies.attribution.options import AttributionOptions


def test_defaults_are_fine():
    given = AttributionOptions()
    assert given.method_names is None
    assert given.limits == Limits()
    assert given.torch_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_what_is_asked_for():
    given = AttributionOptions(
        methods=" grad-cam , a/b.py:mine", max_drop=0.1, min_remain=0.8, max_above_chance=0.2, device="cpu"
    )
    assert given.method_names == ["grad-cam", "a/b.py:mine"]
    assert given.limits == Limits(drop=0.1, remain=0.8, above_chance=0.2)
    assert given.torch_device() == torch.device("cpu")


def test_patches_of_the_small_network_take_other_steps():
    assert AttributionOptions().patch_settings == {"step_size": 5000, "eta1": 0.001}
    assert AttributionOptions(backbone="resnet18").patch_settings == {"step_size": 500, "eta1": 0.01}
    assert AttributionOptions(step_size=3.0, eta1=0.0).patch_settings == {"step_size": 3, "eta1": 0}


def test_a_folder_of_models_need_not_be_there_yet(tmp_path):
    folder = tmp_path / "new" / "models"
    assert AttributionOptions(models=folder).models == folder
    assert not folder.parent.exists()
