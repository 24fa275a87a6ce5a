"""Explanations that people rated, and simulated raters."""
