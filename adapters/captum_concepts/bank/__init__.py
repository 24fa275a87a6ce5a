"""Banks of concepts: one direction in feature space for each."""
