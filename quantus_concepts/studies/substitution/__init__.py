"""`benchmark substitution`: does a model see the concept, or recite its class?"""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.substitution.command import run
from quantus_concepts.studies.substitution.settings import Substitution

COMMANDS = {Substitution.words: command_of(Substitution, run)}
