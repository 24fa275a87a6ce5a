"""`compose`: objects on scenes, written to disk in the layout of BAM."""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.compose.command import run
from quantus_concepts.studies.compose.settings import Compose

COMMANDS = {Compose.words: command_of(Compose, run)}
