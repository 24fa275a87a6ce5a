"""`benchmark metrics`: which score would have noticed that a concept model is wrong?"""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.metrics.command import run
from quantus_concepts.studies.metrics.settings import Metrics

COMMANDS = {Metrics.words: command_of(Metrics, run)}
