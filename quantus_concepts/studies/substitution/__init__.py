"""`benchmark substitution`: does a model see the concept, or recite its class?"""

COMMANDS = {"benchmark substitution": ("options:SubstitutionOptions", "study:STUDY")}
