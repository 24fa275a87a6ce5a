"""`benchmark pasta` and the commands around ratings of explanations: collect, train on, score, compare."""

from quantus_concepts.studies.pasta.command import (
    benchmark_pasta,
    pasta_ablate,
    pasta_metrics,
    pasta_score,
    pasta_sheet,
    pasta_sizes,
    pasta_train,
)

COMMANDS = {
    "benchmark pasta": benchmark_pasta,
    "pasta sheet": pasta_sheet,
    "pasta train": pasta_train,
    "pasta score": pasta_score,
    "pasta metrics": pasta_metrics,
    "pasta ablate": pasta_ablate,
    "pasta sizes": pasta_sizes,
}
