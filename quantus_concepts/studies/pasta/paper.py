"""The figures of the PASTA paper that ours are shown beside."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

PAPER = "paper"
SOURCE = "Kazmierczak et al., Table 1: 5 splits of the PASTA data set, 21,110 rated explanations"

#: Table 1, from question to (mean, deviation): measure, encoder, Q1 to Q6.
TABLE_1: dict[str, dict[str, dict[str, tuple[float, float]]]] = {
    measure: {
        encoder: {f"Q{number}": pair for number, pair in enumerate(pairs, start=1)} for encoder, pairs in rows.items()
    }
    for measure, rows in {
        "MSE": {
            "clip": ((0.990, 0.104), (0.993, 0.096), (2.111, 2.529), (0.811, 0.095), (1.476, 0.183), (0.752, 0.127)),
            "siglip": ((0.989, 0.113), (1.009, 0.125), (0.842, 0.094), (0.840, 0.106), (1.396, 0.177), (0.739, 0.140)),
            "blip": ((3.297, 1.840), (3.287, 1.835), (5.938, 2.542), (4.642, 3.135), (3.005, 1.385), (10.710, 4.943)),
            "eva02": ((1.666, 1.215), (1.747, 1.174), (3.355, 3.099), (2.097, 2.608), (1.767, 0.568), (3.324, 5.091)),
            "human": ((0.415, 0.037), (0.429, 0.049), (0.562, 0.104), (0.478, 0.080), (0.509, 0.102), (0.299, 0.051)),
        },
        "QWK": {
            "clip": ((0.450, 0.066), (0.452, 0.063), (0.199, 0.040), (0.216, 0.052), (0.165, 0.060), (0.159, 0.031)),
            "siglip": ((0.471, 0.055), (0.459, 0.056), (0.237, 0.052), (0.219, 0.035), (0.177, 0.061), (0.165, 0.018)),
            "blip": ((0.328, 0.023), (0.340, 0.020), (0.181, 0.003), (0.173, 0.017), (0.081, 0.081), (0.159, 0.011)),
            "eva02": ((0.462, 0.050), (0.457, 0.054), (0.160, 0.099), (0.230, 0.018), (0.163, 0.029), (0.185, 0.049)),
            "human": ((0.849, 0.013), (0.845, 0.017), (0.731, 0.050), (0.748, 0.041), (0.848, 0.029), (0.796, 0.048)),
        },
        "SCC": {
            "clip": ((0.484, 0.064), (0.484, 0.062), (0.213, 0.040), (0.230, 0.050), (0.197, 0.073), (0.193, 0.030)),
            "siglip": ((0.501, 0.052), (0.490, 0.057), (0.247, 0.048), (0.223, 0.029), (0.213, 0.071), (0.196, 0.020)),
            "blip": ((0.397, 0.036), (0.411, 0.033), (0.207, 0.065), (0.194, 0.014), (0.088, 0.104), (0.218, 0.012)),
            "eva02": ((0.484, 0.046), (0.474, 0.048), (0.150, 0.155), (0.247, 0.015), (0.216, 0.035), (0.220, 0.057)),
            "human": ((0.844, 0.017), (0.839, 0.019), (0.722, 0.045), (0.742, 0.038), (0.850, 0.023), (0.789, 0.039)),
        },
    }.items()
}

#: Mean faithfulness correlation of the explanations the score chooses, and of all explainers.
MIXTURE_FAITHFULNESS = {"chosen": 0.0627, "average": 0.0579}


def paper_table(number: int) -> pd.DataFrame:
    """Return a table of the paper as it is printed: model ("paper"), row, question, measure, value, deviation."""
    frame = pd.read_csv(Path(__file__).with_name("paper_tables.csv"), dtype={"row": str, "question": str})
    chosen = frame[frame["table"] == number].reset_index(drop=True)
    if chosen.empty:
        raise ValueError(f"Expected the number of a table, one of {sorted(set(frame['table']))}, but got {number}.")
    return chosen.assign(model=PAPER, question=chosen["question"].fillna(""))
