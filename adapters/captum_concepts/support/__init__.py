"""Checks, running, files and images: what every other package needs, and nothing about concepts."""
