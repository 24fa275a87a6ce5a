"""Names of scores, of the rows of their tables, and of baselines."""

from __future__ import annotations

import math

#: Values of the column ``metric``: scores of images.
DENSITY, ACCURACY, CONCEPT_ACCURACY, NEGATIVE_FIRST = "density", "accuracy", "concept accuracy", "negative first"
#: The concept accuracy on images without substitution, for the concepts that are put in anywhere and for all.
ACCURACY_ADDED, ACCURACY_ALL = "T_A", "T"
PLUS, MINUS, RECITAL = "S+", "S-", "recital"
#: Changes from the image before the substitution to the image after it; the first three are in units of the values.
MOVES = ("added moves", "removed moves", "others move", "rises", "selectivity", "class kept")

#: Values of the column ``what``: the mean of a model, of a baseline beside it (column ``baseline``), or of random
#: banks, whose ends are a range and no interval; one concept or class (column ``item``).
SCORE, BASELINE, RANDOM_RANGE, ITEM = "score", "baseline", "random range", "item"

#: Values of the column ``metric``.
DIRECTIONS = "CAV accuracy"
CGIM, CEM, CLM = "CGIM", "CEM", "CLM"
#: Whether values know their concepts, over all images and among those of one predicted class.
CONCEPT_AUC, AUC_WITHIN = "concept AUC", "concept AUC within predicted classes"
#: Whether images that activate a concept look alike to another network.
MONOSEMANTICITY = "monosemanticity"
#: CGIM by Pearson's correlation, and CEM less prevalence.
CGIM_CORRELATION, CEM_GAIN = "CGIM correlation", "CEM gain"
#: Rows of the tables of images that are about classes, by which CGIM is compared: importance (K, L), and the truth.
CLASS_IMPORTANCE, CLASS_CONCEPTS = "class importance", "class concepts"
#: CLM at the concept's part less CLM of the same map at the other visible parts of the same image.
PART_SPECIFICITY = "part specificity"
#: Maps against the regions of their parts, and how often maps name anything.
REGION_IOU, ENERGY_INSIDE, POINTING_GAME, COVERAGE = "region IoU", "energy inside", "pointing game", "coverage"
#: Accuracy of the class after interventions; ``explanation`` is then their order and ``l`` their number.
INTERVENED = "accuracy after interventions"

#: Values of the column ``baseline``: of CLM and part specificity, and of interventions with every answer turned
#: into its opposite.
OTHER_IMAGE, GAUSSIAN, WRONG_LABELS = "parts of another image", "centred Gaussian", "wrong labels"
OTHER_PARTS, FEATURE_NORM = "other parts of the image", "feature norm"
MEAN_PLACE = "mean place of the part"
#: Of regions: what the part takes in the other images.
MEAN_REGION = "mean region of the part"
#: Baselines of CGIM, the second one a range of banks, and of CEM.
SAME_IMPORTANCE, SHUFFLED_IMAGES = "the same importance everywhere", "fitted to shuffled images"
COMMONEST_CONCEPT, CLASS_RECITAL = "commonest concept", "class recital"

#: Chance of an answer yes or no.
CHANCE = 0.5
#: Smallest and largest value of the metrics that do not lie in [0, 1]; movements are in units of the concept values.
BOUNDS = {
    **dict.fromkeys((CGIM, CGIM_CORRELATION, CEM_GAIN, PART_SPECIFICITY, MONOSEMANTICITY), (-1.0, 1.0)),
    **dict.fromkeys(MOVES[:3], (-math.inf, math.inf)),
}
