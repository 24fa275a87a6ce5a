"""Names of the concept study's models, baselines and rankings, their orders and colours, and how to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from captum_concepts.texts import readable_name
from quantus_concepts.metrics.concepts.names import (
    CEM_GAIN,
    CGIM_CORRELATION,
    CLASS_RECITAL,
    COMMONEST_CONCEPT,
    CONCEPT_AUC,
    FEATURE_NORM,
    GAUSSIAN,
    MEAN_PLACE,
    OTHER_IMAGE,
    OTHER_PARTS,
    PART_SPECIFICITY,
    SAME_IMPORTANCE,
)
from quantus_concepts.painted.subject import ORACLE, POST_HOC, RANDOM, TRADITIONAL
from quantus_concepts.results.verdicts import RULE
from quantus_concepts.studies._kit.comparisons import READING as DIFFERENCES
from quantus_concepts.studies._kit.results import PAPER
from quantus_concepts.studies.concepts.comparisons import PLAIN

SOURCE = "Aysel et al. (2025), Concept-Based Explainable AI: Metrics and Benchmarks"
CHANCE, UNTRAINED = "chance", "untrained network"
#: Concept models in the order of every table and figure.
MODELS = (POST_HOC, TRADITIONAL, ORACLE, RANDOM)
MODEL_COLUMNS = [POST_HOC, PAPER, RANDOM, TRADITIONAL, ORACLE, CHANCE]
COLOURS = {POST_HOC: "#D55E00", TRADITIONAL: "#0072B2", ORACLE: "#009E73", OTHER_IMAGE: "#CC79A7", GAUSSIAN: "#B8860B"}
COLOURS |= {OTHER_PARTS: "#882255", FEATURE_NORM: "#666666", CHANCE: "#8A8A8A", MEAN_PLACE: "#44AA99"}
#: The baselines of the concept location metric.
BASELINES = (OTHER_PARTS, OTHER_IMAGE, FEATURE_NORM, GAUSSIAN, MEAN_PLACE)
#: The baselines of CEM, and of the cosine CGIM.
CEM_BASELINES, CGIM_BASELINES = (COMMONEST_CONCEPT, CLASS_RECITAL), (SAME_IMPORTANCE,)
#: Rankings of the concepts, with the letters that the paper writes for them.
RANKINGS = {"effect": "effect", "value": "value u", "weight": "weight θ", "contribution": "contribution θ·u"}
SETS = {"all": "all images", "correct": "correctly classified"}
KINDS = {"concept": "per concept", "class": "per class"}
#: C and number of images of the concept bank, of the paper's Table 3.
SETTINGS = [(strength, count) for count in (50, 100) for strength in (0.001, 0.01, 0.1, 1.0, 10.0)]
HELD_OUT = "held-out accuracy"

READING = {
    "CEM": "How often the concepts ranked first are present in the image (or, where labels are given by class, are "
    "concepts of its class). Best is 100 %.",
    "CLM": "How often the strongest α/12 of a concept's map holds the concept's part. Parts and maps both sit on the "
    "object, so any map scores more than chance: compare with the baselines.",
    CEM_GAIN: "CEM less prevalence: whether the concept ranked first is present in this image, less the share of the "
    "other images that show it. A model that names concepts without looking has 0, also one that names the commonest.",
    PART_SPECIFICITY: "CLM less the CLM of the same map at the other visible parts of the same image. "
    + RULE["Part specificity"],
    CONCEPT_AUC: "How often an image with a concept has a higher value of it than one without: chance is 50 %. The "
    "mean hides exchanged names, so the concepts above their own range are counted. Within predicted classes a model "
    "that recites the concepts of its class has 50 %.",
    CGIM_CORRELATION: "Over classes, Pearson's correlation of a concept's importance and its truth: 1 is best, 0 no "
    "relation. The interval leaves out one class at a time. By value it is over all images, by all other rankings over "
    "the correctly classified ones. " + RULE["CGIM correlation"],
    "CGIM": "The same as a cosine, as in the paper. 0 is not its baseline: truth is never negative, so that the same "
    "importance everywhere scores high.",
    "Own range, by luck": "Where 95 % of random banks lie for the same concept. One concept in 40 lies above it by "
    "luck, and one below. ▲ ▼: above or below it after the correction for all concepts (Benjamini and Hochberg).",
    COMMONEST_CONCEPT: "Baseline of CEM: always the commonest concepts.",
    CLASS_RECITAL: "Baseline of CEM: the commonest concepts of the image's true class, from training.",
    SAME_IMPORTANCE: "Baseline of the cosine: every concept as important for every class.",
    UNTRAINED: "A linear head on the features of the small network's initial weights.",
    **DIFFERENCES,
    "Rankings": "Concepts are ranked by their effect, what the class loses, against the mean of all classes, if the "
    "concept is set to its absent level; by the concept value u; and, as in the paper, by the head's weight θ and the "
    "contribution θ·u. The first table has effect and value, whatever came out.",
    POST_HOC: "Concept directions found in a trained backbone, and a linear head on the projections.",
    TRADITIONAL: "A concept layer trained with the concept labels of each image; sigmoid values.",
    ORACLE: "The true attributes as values and a Gaussian at each true part as map: the best one can do.",
    "margin, raw": "Concept values. Raw: u = C f, as the paper of CGIM and CEM writes it. Margin: (c · f + b) / |c|, "
    "as the code of post-hoc CBMs computes it. Both are fitted to the same directions, each with a head of its own.",
    RANDOM: "The post-hoc CBM with random directions in place of concepts, each bank with a head of its own. The "
    "range holds 95 % of the banks; over several seeds it is the mean of the seeds' ranges.",
    PLAIN: "The backbone with its own classifier, without a bottleneck.",
    OTHER_PARTS: "Baseline of CLM: the same maps, scored against the other visible parts of the same image.",
    OTHER_IMAGE: "Baseline of CLM: the same maps, scored against the parts of another image.",
    FEATURE_NORM: "Baseline of CLM: the norm of the backbone's features as map.",
    GAUSSIAN: "Baseline of CLM: one blob at the centre of every image.",
    MEAN_PLACE: "Baseline of CLM: for each part the region around its mean place in the other images.",
    **{name: RULE[name] for name in ("Above, within, below", "No verdict", "–", "Blamed")},
    "95 % interval": "In a single run: over the predicted classes (CEM, CLM) or the images (accuracy), without what "
    "another training would change. Over several seeds: Student's t over the seeds, never narrower than the single "
    "runs' errors imply. Seeds on the same photographs: over both images and seeds, for the first concept in all "
    "images, the smallest region and accuracy; others, without a score of each image at hand, are over seeds only.",
    "paper": f"The published numbers of a post-hoc CBM on all of CUB-200-2011 (11,788 images): {SOURCE}.",
}


def values_name(values: str) -> str:
    """Name the post-hoc model with the other concept values, margin or raw."""
    return f"{POST_HOC}, {values} values"


def setting_name(regularisation: float, samples: int) -> str:
    """Name a setting of the concept bank."""
    return f"C={regularisation:g}, n={samples}"


def ordered(frame: pd.DataFrame, **orders: Sequence[str] | Mapping[float, str] | Mapping[str, str]) -> pd.DataFrame:
    """Return the rows whose columns are in these orders, as ordered categories; a mapping also renames."""
    for name, order in orders.items():
        column = frame[name].map(order) if isinstance(order, Mapping) else frame[name]
        names = list(order.values() if isinstance(order, Mapping) else order)
        frame = frame.assign(**{name: column})[column.isin(names).to_numpy()]
        present = [value for value in names if value in set(frame[name])]
        frame = frame.assign(**{name: pd.Categorical(frame[name], present)})
    return frame


def shown_names(names: Sequence[str]) -> dict[str, str]:
    """Return readable names; as they are where two would be the same."""
    shown = {name: readable_name(name) for name in names}
    return shown if len(set(shown.values())) == len(shown) else {name: name for name in names}
