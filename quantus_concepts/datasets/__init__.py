"""Images annotated with classes, concepts and parts."""
