"""Birds with attributes and parts: painted, of a folder, and CUB-200-2011."""
