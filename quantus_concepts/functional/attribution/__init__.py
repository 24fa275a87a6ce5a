"""Formulas of attribution maps: contrast, faithfulness, regions, normalisation."""
