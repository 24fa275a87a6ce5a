"""`benchmark attribution`: does an attribution method give importance to what provably does not matter?"""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.attribution.command import run
from quantus_concepts.studies.attribution.settings import Attribution

COMMANDS = {Attribution.words: command_of(Attribution, run)}
