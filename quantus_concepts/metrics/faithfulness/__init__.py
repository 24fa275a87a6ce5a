"""Faithfulness: what happens when important pixels or concepts are removed."""
