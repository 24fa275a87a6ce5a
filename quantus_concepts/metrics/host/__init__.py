"""What every metric shares: Quantus's calls, checks, the model, plots."""
