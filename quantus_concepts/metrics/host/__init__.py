"""Code shared by all metrics: Quantus's calls, checks, the model, plots."""
