"""`benchmark pasta` and the commands around ratings of explanations."""

COMMANDS = {
    "benchmark pasta": ("options:PastaOptions", "study:STUDY"),
    "pasta ablate": ("options:AblateOptions", "ablate:STUDY"),
    "pasta sizes": ("options:SizesOptions", "sizes:STUDY"),
    "pasta metrics": ("options:MetricsOptions", "metrics:STUDY"),
}
