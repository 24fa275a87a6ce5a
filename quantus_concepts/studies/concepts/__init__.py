"""`benchmark concepts`: are the concepts a model names real, present, and in the right place?"""

from quantus_concepts.studies.concepts.command import benchmark_concepts

COMMANDS = {"benchmark concepts": benchmark_concepts}
