"""The commands `substitute ...`: images of birds with one attribute replaced, made and filtered."""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.substitute.command import generate, keep_surest
from quantus_concepts.studies.substitute.settings import Filter, Generate

COMMANDS = {Generate.words: command_of(Generate, generate), Filter.words: command_of(Filter, keep_surest)}
