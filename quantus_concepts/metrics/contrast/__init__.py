"""Metrics with a known truth about regions: MCS, IDR and IIR."""
