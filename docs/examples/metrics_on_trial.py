"""Draw eight scores and six kinds of damage of a run of `benchmark metrics`.

python docs/examples/metrics_on_trial.py RUN/results.csv metrics_on_trial.png
"""

import sys

import pandas as pd

from quantus_concepts.studies.metrics.report import FEW_DAMAGES, FEW_SCORES
from quantus_concepts.testing import plot_trial

if __name__ == "__main__":
    results = pd.read_csv(sys.argv[1]).fillna({"damage": ""})
    right = results[results["model"] == results["model"].iloc[0]]
    figure, _ = plot_trial(right, FEW_SCORES, FEW_DAMAGES)
    figure.savefig(sys.argv[2], dpi=110, facecolor="white")
