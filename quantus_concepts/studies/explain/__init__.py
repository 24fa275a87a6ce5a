"""`explain`: which concepts does a network see in a photograph, where, and what do they add to its prediction?"""

COMMANDS = {"explain": ("options:ExplainOptions", "study:explain")}
