"""`benchmark pasta` and the commands around ratings of explanations."""
