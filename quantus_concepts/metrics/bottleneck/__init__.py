"""Metrics that ask whether the class rests on what the concepts are named after."""
