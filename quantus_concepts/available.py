"""The metrics by name."""

from __future__ import annotations

from quantus_concepts.metrics import CEM, CGIM, CLM, IDR, IIR, MCS, Faithfulness, PASTAScore, SubstitutionScore

# The shape of quantus.AVAILABLE_METRICS, under a category Quantus does not have, so that the two merge with `|`.
AVAILABLE_METRICS = {
    "Concepts": {
        "CGIM": CGIM,
        "CEM": CEM,
        "CLM": CLM,
        "MCS": MCS,
        "IDR": IDR,
        "IIR": IIR,
        "Faithfulness": Faithfulness,
        "PASTA-score": PASTAScore,
        "SubstitutionScore": SubstitutionScore,
    }
}
