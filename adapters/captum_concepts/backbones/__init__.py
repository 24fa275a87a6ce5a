"""Backbones of known families, cut where their maps end and their pooling begins."""

from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.families_open_clip import from_open_clip
from captum_concepts.backbones.families_timm import from_timm
from captum_concepts.backbones.families_torchvision import from_torchvision
from captum_concepts.backbones.families_transformers import from_transformers

__all__ = ["Backbone", "from_open_clip", "from_timm", "from_torchvision", "from_transformers"]
