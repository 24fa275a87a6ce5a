"""`benchmark substitution`: does a model see the concept, or recite its class?"""

from quantus_concepts.studies.substitution.command import benchmark_substitution

COMMANDS = {"benchmark substitution": benchmark_substitution}
