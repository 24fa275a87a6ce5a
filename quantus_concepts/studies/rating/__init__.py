"""The commands around ratings: collect them, train a scorer on them, score explanations."""
