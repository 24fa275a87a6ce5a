"""`explain`: which concepts does a network see in a photograph, where, and what do they add to its prediction?"""

from quantus_concepts.studies.explain.command import explain

COMMANDS = {"explain": explain}
