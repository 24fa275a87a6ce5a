"""The commands: train, evaluate, draw and report."""
