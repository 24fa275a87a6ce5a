"""`benchmark concepts`: are the concepts a model names real, present, and in the right place?"""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.concepts.command import run
from quantus_concepts.studies.concepts.settings import Concepts

COMMANDS = {Concepts.words: command_of(Concepts, run)}
