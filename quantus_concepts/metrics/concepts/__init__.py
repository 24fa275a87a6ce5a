"""Metrics of concept models: CGIM, CEM, CLM and SubstitutionScore."""
