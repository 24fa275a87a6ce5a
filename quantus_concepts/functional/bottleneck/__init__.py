"""Formulas that ask whether a concept model is honest: leakage, sparse heads, completeness."""
