"""How tables and figures of the PASTA-score call what rates, what it is measured by, and where votes come from."""

from __future__ import annotations

SCORER = "PASTA-score"
SHUFFLED = "shuffled votes"
HUMAN = "one annotator"
SIMULATED_HUMAN = "one simulated rater"
CEILING = "ceiling"
#: The other scoring functions, as the paper's Table 17 calls them, by their kind.
REGRESSORS = {"svm": "SVM", "ridge": "ridge", "lasso": "lasso"}
#: Order of the rows; the regressors come after the scorer.
MODELS = (SCORER, "ridge", "lasso", "SVM", SHUFFLED, HUMAN, SIMULATED_HUMAN, CEILING)

MEASURES = {"MSE": "MSE ↓", "QWK": "QWK ↑", "SCC": "SCC ↑", "SCC rounded": "SCC ↑, rounded"}
#: Those of the paper.
SHOWN = ("MSE", "QWK", "SCC")

KINDS = {"map": "maps", "drawing": "drawings", "concepts": "concepts"}
#: What ratings with the pictures that people saw have in place of maps.
DRAWING = "drawing"

#: Mark of every table and figure whose raters are.
SIMULATED = "simulated raters"
SIMULATED_TEXT = (
    "The raters are simulated: a stated function of how well an explanation matches a known truth, with noise and a "
    "bias for each rater. No person was asked, and no number here says how people would judge."
)
SOURCE = "Kazmierczak et al., Benchmarking XAI Explanations with Human-Aligned Evaluations"
TABLE_1_SOURCE = "Kazmierczak et al., Table 1: 5 splits of the PASTA data set, 21,110 rated explanations"
