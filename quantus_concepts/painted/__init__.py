"""Painted birds, small networks trained on them, and concept models of these: a subject to try metrics on."""
