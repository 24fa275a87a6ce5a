"""Networks of the studies: built by name, trained, loaded."""
