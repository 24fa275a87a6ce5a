"""Checks of arguments, running models, and files and images: what every other package needs, and no concept."""
