"""Concept models: post-hoc and traditional bottlenecks, residuals, files."""
