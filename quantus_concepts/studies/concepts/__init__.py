"""`benchmark concepts`: are the concepts a model names real, present, and in the right place?"""

COMMANDS = {"benchmark concepts": ("options:ConceptOptions", "study:STUDY")}
