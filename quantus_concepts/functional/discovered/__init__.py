"""Formulas for concepts that nobody has labelled."""
