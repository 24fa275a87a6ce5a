"""Intervals, paired differences, seeds, votes and their agreement."""
