"""Tied Diffusion Guidance for the pipelines of diffusers: a bird with one attribute that its class does not have."""

from captum_concepts.lazy import attach_stub, check_extra

check_extra("diffusers", "diffusion", "Tied Diffusion Guidance")

__getattr__, __dir__, __all__ = attach_stub(__name__)
