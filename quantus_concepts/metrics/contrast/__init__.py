"""Metrics with a known truth about regions."""
