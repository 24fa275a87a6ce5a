"""TCAV: how sensitive a class is to a concept."""
