"""Captum attributions for models that name concepts, and any Captum attribution as a Quantus explanation.

`CoAM` shows where a concept acts, `PostHocCBM` turns a trained network into a concept bottleneck model,
`explain_func` makes any attribution the callable Quantus wants, `build_method` builds the methods that papers compare,
`SteeredRISE` weighs its masks by a score too, and `tcav_score` asks what a concept is to a class. This package does
not need `quantus_concepts`.
"""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

if TYPE_CHECKING:
    from captum_concepts.attributions.coam import CoAM
    from captum_concepts.attributions.controls import RandomAttribution, SobelEdges
    from captum_concepts.attributions.explain import explain_func
    from captum_concepts.attributions.methods import (
        CONTROL_METHODS,
        PAPER_METHODS,
        SMOOTHED_METHODS,
        build_method,
        build_methods,
    )
    from captum_concepts.attributions.steered_rise import SteeredRISE
    from captum_concepts.backbones import Backbone, from_open_clip, from_timm, from_torchvision, from_transformers
    from captum_concepts.backbones.embedding import Embeddings, embed
    from captum_concepts.backbones.layers import LayerFeatures
    from captum_concepts.bank.bank import ConceptBank
    from captum_concepts.models.bottleneck import BottleneckCBM
    from captum_concepts.models.cbm import PostHocCBM
    from captum_concepts.models.heads import fit_elastic_net, fit_logistic, prune
    from captum_concepts.models.interventions import Levels
    from captum_concepts.models.residual import Contributions, ResidualCBM, fit_residual
    from captum_concepts.pictures.gallery import gallery, overlay, plot_coam
    from captum_concepts.pictures.show import plot_contributions, show_concepts, show_top_images
    from captum_concepts.released.load import load_released, released_weights
    from captum_concepts.tcav.folders import TCAVScores, tcav_folders
    from captum_concepts.tcav.score import TCAVContrast, TCAVScore, tcav_contrast, tcav_score
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = [
    "CONTROL_METHODS",
    "PAPER_METHODS",
    "SMOOTHED_METHODS",
    "Backbone",
    "BottleneckCBM",
    "CoAM",
    "ConceptBank",
    "Contributions",
    "Embeddings",
    "LayerFeatures",
    "Levels",
    "PostHocCBM",
    "RandomAttribution",
    "ResidualCBM",
    "SobelEdges",
    "SteeredRISE",
    "TCAVContrast",
    "TCAVScore",
    "TCAVScores",
    "build_method",
    "build_methods",
    "embed",
    "explain_func",
    "fit_elastic_net",
    "fit_logistic",
    "fit_residual",
    "from_open_clip",
    "from_timm",
    "from_torchvision",
    "from_transformers",
    "gallery",
    "load_released",
    "overlay",
    "plot_coam",
    "plot_contributions",
    "prune",
    "released_weights",
    "show_concepts",
    "show_top_images",
    "tcav_contrast",
    "tcav_folders",
    "tcav_score",
]
