"""TRANSITION: names that the encoders and scorers import from here until all are merged."""

from captum_concepts.backbones.weights import load_weights, read_state, read_weights

__all__ = ["load_weights", "read_state", "read_weights"]
