"""`benchmark pasta` and the commands around ratings of explanations: collect, train on, score, compare."""

from quantus_concepts.studies.pasta.command import (
    benchmark_pasta,
    pasta_ablate,
    pasta_metrics,
    pasta_sizes,
    pasta_train,
)
from quantus_concepts.studies.pasta.rate_command import pasta_join, pasta_score, pasta_sheet

COMMANDS = {
    "benchmark pasta": benchmark_pasta,
    "pasta sheet": pasta_sheet,
    "pasta join": pasta_join,
    "pasta train": pasta_train,
    "pasta score": pasta_score,
    "pasta metrics": pasta_metrics,
    "pasta ablate": pasta_ablate,
    "pasta sizes": pasta_sizes,
}
