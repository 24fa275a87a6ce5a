"""Captum attributions for models that name concepts, and any Captum attribution as a Quantus explanation.

`CoAM` shows where a concept acts, `PostHocCBM` turns a trained network into a concept bottleneck model, and
`explain_func` makes any attribution the callable Quantus wants. This package does not need `quantus_concepts`.
"""

from captum_concepts.backbones import Backbone, from_open_clip, from_timm, from_torchvision
from captum_concepts.bank import ConceptBank
from captum_concepts.bottleneck import BottleneckCBM
from captum_concepts.cbm import PostHocCBM
from captum_concepts.coam import CoAM
from captum_concepts.explain import explain_func
from captum_concepts.layers import LayerFeatures
from captum_concepts.visualise import gallery, overlay, plot_coam

__all__ = [
    "Backbone",
    "BottleneckCBM",
    "CoAM",
    "ConceptBank",
    "LayerFeatures",
    "PostHocCBM",
    "explain_func",
    "from_open_clip",
    "from_timm",
    "from_torchvision",
    "gallery",
    "overlay",
    "plot_coam",
]
