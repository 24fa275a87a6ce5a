"""All concept metrics of a loader of batches, in one pass."""
