"""Metrics of concept models."""
