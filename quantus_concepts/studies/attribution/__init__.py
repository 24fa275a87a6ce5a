"""`benchmark attribution`: does an attribution method give importance to what provably does not matter?"""

from quantus_concepts.studies.attribution.command import benchmark_attribution

COMMANDS = {"benchmark attribution": benchmark_attribution}
