"""What a PASTA-score is used for: mixtures, steering, robustness, correlations."""
