"""Images of birds in which one attribute is replaced by another of its group."""
