"""Scores of concepts that nobody has labelled: the table, the rule for it, and its picture."""

from quantus_concepts.metrics.discovered.rule import verdicts as verdicts
