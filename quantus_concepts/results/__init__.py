"""What was scored, read: summaries, tables, verdicts, comparisons, reliability over seeds."""
