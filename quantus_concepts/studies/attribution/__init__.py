"""`benchmark attribution`: does an attribution method give importance to what provably does not matter?"""

COMMANDS = {"benchmark attribution": ("options:AttributionOptions", "study:STUDY")}
