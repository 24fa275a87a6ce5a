"""Checks, running, files, images and the log: what every other package needs, and nothing about concepts."""
