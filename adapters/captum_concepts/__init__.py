"""Captum attributions for models that name concepts, and any Captum attribution as a Quantus explanation.

`CoAM` shows where a concept acts, `PostHocCBM` turns a trained network into a concept bottleneck model,
`explain_func` makes any attribution the callable Quantus wants, `build_method` builds the methods that papers compare,
`SteeredRISE` weighs its masks by a score too, and `tcav_score` asks what a concept is to a class. This package does
not need `quantus_concepts`.
"""

from captum_concepts.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
