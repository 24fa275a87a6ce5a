"""How would people rate an explanation? The PASTA-score."""
