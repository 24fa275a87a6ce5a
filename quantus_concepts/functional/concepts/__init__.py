"""Formulas of concept models: presence, importance, location, interventions, substitutions."""
