"""Captum attributions for models that name concepts, and any Captum attribution as a Quantus explanation.

`CoAM` shows where a concept acts, `PostHocCBM` turns a trained network into a concept bottleneck model,
`explain_func` makes any attribution the callable Quantus wants, `build_method` builds the methods that papers compare,
`SteeredRISE` weighs its masks by a score too, and `tcav_score` asks what a concept is to a class. This package does
not need `quantus_concepts`.
"""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

_PLACES = {
    "CONTROL_METHODS": "paper_methods",
    "PAPER_METHODS": "paper_methods",
    "SMOOTHED_METHODS": "paper_methods",
    "Backbone": "backbones",
    "BottleneckCBM": "bottleneck",
    "CoAM": "coam",
    "ConceptBank": "bank",
    "Embeddings": "embedding",
    "LayerFeatures": "layers",
    "PostHocCBM": "cbm",
    "RandomAttribution": "controls",
    "SobelEdges": "controls",
    "SteeredRISE": "steered_rise",
    "TCAVContrast": "tcav",
    "TCAVScore": "tcav",
    "build_method": "paper_methods",
    "build_methods": "paper_methods",
    "embed": "embedding",
    "explain_func": "explain",
    "from_open_clip": "backbones",
    "from_timm": "backbones",
    "from_torchvision": "backbones",
    "gallery": "visualise",
    "method_from_spec": "method_spec",
    "overlay": "visualise",
    "plot_coam": "visualise",
    "tcav_contrast": "tcav",
    "tcav_score": "tcav",
}
__all__ = [*_PLACES]

if TYPE_CHECKING:
    from captum_concepts.backbones import Backbone as Backbone
    from captum_concepts.backbones import from_open_clip as from_open_clip
    from captum_concepts.backbones import from_timm as from_timm
    from captum_concepts.backbones import from_torchvision as from_torchvision
    from captum_concepts.bank import ConceptBank as ConceptBank
    from captum_concepts.bottleneck import BottleneckCBM as BottleneckCBM
    from captum_concepts.cbm import PostHocCBM as PostHocCBM
    from captum_concepts.coam import CoAM as CoAM
    from captum_concepts.controls import RandomAttribution as RandomAttribution
    from captum_concepts.controls import SobelEdges as SobelEdges
    from captum_concepts.embedding import Embeddings as Embeddings
    from captum_concepts.embedding import embed as embed
    from captum_concepts.explain import explain_func as explain_func
    from captum_concepts.layers import LayerFeatures as LayerFeatures
    from captum_concepts.method_spec import method_from_spec as method_from_spec
    from captum_concepts.paper_methods import CONTROL_METHODS as CONTROL_METHODS
    from captum_concepts.paper_methods import PAPER_METHODS as PAPER_METHODS
    from captum_concepts.paper_methods import SMOOTHED_METHODS as SMOOTHED_METHODS
    from captum_concepts.paper_methods import build_method as build_method
    from captum_concepts.paper_methods import build_methods as build_methods
    from captum_concepts.steered_rise import SteeredRISE as SteeredRISE
    from captum_concepts.tcav import TCAVContrast as TCAVContrast
    from captum_concepts.tcav import TCAVScore as TCAVScore
    from captum_concepts.tcav import tcav_contrast as tcav_contrast
    from captum_concepts.tcav import tcav_score as tcav_score
    from captum_concepts.visualise import gallery as gallery
    from captum_concepts.visualise import overlay as overlay
    from captum_concepts.visualise import plot_coam as plot_coam
else:
    __getattr__, __dir__ = lazily(__name__, _PLACES)
