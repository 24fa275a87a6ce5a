"""`explain`: which concepts does a network see in a photograph, where, and what do they add to its prediction?"""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.explain.command import run
from quantus_concepts.studies.explain.settings import Explain

COMMANDS = {Explain.words: command_of(Explain, run)}
