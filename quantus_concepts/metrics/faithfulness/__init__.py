"""Faithfulness: the effect of removing important pixels."""
