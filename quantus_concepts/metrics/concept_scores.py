"""Concept models scored on images, every variant of CGIM, CEM and CLM in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from captum_concepts.checks import check_seed, check_whole
from captum_concepts.embedding import check_loader
from captum_concepts.interventions import Levels
from quantus_concepts.metrics.concept_scoring import ConceptScoring
from quantus_concepts.metrics.inference import IMPORTANCES
from quantus_concepts.metrics.intervening import in_every_order
from quantus_concepts.metrics.location_baselines import EarlierPoints
from quantus_concepts.metrics.protocols import ConceptModel
from quantus_concepts.metrics.truth import checked_points, checked_presence, checked_substitutes, class_labels, known_to


def score_concepts(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[Any],
    *,
    class_concepts: Any = None,
    concept_labels: Any = None,
    labels: Any = None,
    points: Any = None,
    added: Any = None,
    removed: Any = None,
    part_of_concept: Any = None,
    explanations: Sequence[str] = IMPORTANCES,
    top_l: Sequence[int] = (1, 3, 5),
    alphas: Sequence[float] = (1.0, 3.0, 6.0),
    value_threshold: float | Mapping[str, float | None] | None = None,
    baselines: bool = True,
    controls: Sequence[ConceptModel] | Mapping[str, Sequence[ConceptModel]] = (),
    control_stride: int = 1,
    interventions: Sequence[int] = (),
    levels: Levels | Mapping[str, Any] | None = None,
    concept_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    per_image: bool = False,
    seed: int = 0,
    n_threads: int = 1,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score concept models on images: every variant of CGIM, CEM and CLM in one pass, as one tidy table.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equations 3 to 11. Each number is what
    the metric class gives for it on the same images, explained for the class the model predicts: `CEM` with this
    ``importance`` and ``top_l``, and ``only_correct`` for the set "correct"; `CLM` with this ``alpha``; `CGIM` per
    concept and per class. The backbone runs once for each image, also where several models share it. What is kept of
    the images is their scores, and for the baselines their part points.

    A metric is scored where its ground truth is known: CGIM needs `class_concepts`, CEM the concept labels, CLM points
    and `part_of_concept`. What is not given is read off the samples and off ``loader.dataset``
    (`quantus_concepts.datasets.ConceptDataset` has all of it).

    Parameters
    ----------
    model : ConceptModel or dict
        A concept model (`captum_concepts.PostHocCBM`, or any with its members), or several by name. They run on their
        own devices and in eval mode, and are left as they were.
    loader : iterable
        Batches, each a tuple of images (B, C, H, W), or rows (B, F) of a table, classes (B,), concept labels (B, L)
        and part points (B, P, Q, 2) or (B, P, 2), of which the last ones may be missing, or a dict of them under
        "images", "labels", "concept_labels" and "points": a `torch.utils.data.DataLoader` over a data set of this
        package or over images and classes, a generator, a list. It is gone through once, and no batch is kept. Images
        are as the models take them; those of uint8 are divided by 255, and no more.
    class_concepts : array_like, optional
        (K, L) in [0, 1]: how far each concept belongs to each class, for CGIM.
    concept_labels : array_like, optional
        (N, L) of 0 and 1, aligned with the images of the loader, in place of those of its batches; as `labels` (N,) and
        `points` (N, P, 2) or (N, P, Q, 2), which are (x, y) in pixels of the images with NaN where not visible.
    labels : array_like, optional
        True classes, see `concept_labels`.
    points : array_like, optional
        Places of the parts, see `concept_labels`.
    added : array_like, optional
        (N,) of int: the concept put into each image (`SubstitutionScore`), -1 for none; see `concept_labels`.
    removed : array_like, optional
        (N,) of int: the concept taken out, likewise.
    part_of_concept : array_like, optional
        (L,) of int: the part each concept is about, -1 for none.
    explanations : sequence of str
        What ranks the concepts: "weight" (theta), "value" (u), "contribution" (theta times u).
    top_l : sequence of int
        How many concepts count. CLM leaves out those that not enough concepts have a part for.
    alphas : sequence of float
        Sizes of CLM's region in twelfths of the image.
    value_threshold : float or dict, optional
        Value above which a concept counts as predicted present, of all models or by name: adds "concept accuracy"
        and, where `added` is known, "S+", "S-" and "recital", for which the value itself is present, too
        (`score_substitutions` has these by attribute, group and class).
    baselines : bool
        Whether CLM is measured with two baselines too, in the column ``baseline``: the same maps at the parts of
        another image, and a Gaussian at the centre of every image.
    controls : sequence or dict
        Concept models that know nothing (`quantus_concepts.functional.random_banks`), or such by one name. Of each
        number their mean is told, and as ``low`` and ``high`` where 95 % of them lie.
    control_stride : int
        Of how many images one is scored for the CLM of a control, other ones for each: making maps takes most of the
        time.
    interventions : sequence of int
        After how many answers of people the class is predicted again from the head, without a pass of the backbone:
        adds "accuracy after interventions" of the models (`intervention_curve` has groups of concepts, too). Needs
        concept labels.
    levels : Levels or dict, optional
        What stands for an absent and a present concept where values are not bounded, of all models or by name:
        `captum_concepts.PostHocCBM.value_levels`. Elsewhere 0 and 1. Under the name of `controls` a list, one for each:
        these are then intervened on too, with right answers in random order.
    concept_names : sequence of str, optional
        L names; the numbers of the concepts where none are known.
    class_names : sequence of str, optional
        K names, likewise.
    per_image : bool
        Whether to return the scores of the images, of the models alone, in place of their means.
    seed : int
        Of which other image the baseline takes the parts.
    n_threads : int
        How many models and controls that share their features are scored at the same time, where all are on the CPU.
        Each computes with as many threads as PyTorch is set to: more than one pays beside ``torch.set_num_threads(1)``,
        and then more than PyTorch's own threads do. The numbers are the same to the bit.
    display_progressbar : bool
        Whether a bar shows the batches, where the output is a terminal or a notebook.

    Returns
    -------
    DataFrame
        A row for each number, models in their order and controls after them. ``model``; ``metric`` ("accuracy",
        "concept accuracy", "negative first", the share of images whose first concept by contribution speaks by being
        absent, "S+", "S-", "recital", "accuracy after interventions", "CEM", "CLM" or "CGIM"); ``explanation`` (of
        interventions their order), ``baseline``, ``set`` ("all" or "correct" images), ``l`` (of interventions how many)
        and ``alpha``; ``item_kind`` ("concept" or "class", of CGIM) and ``item``, empty in the
        row of their mean; ``value`` with its 95 % interval ``low`` to ``high``, over the predicted classes as clusters
        (over the items for CGIM; for S+, S- and recital over pairs of class and concept put in; true classes for
        interventions); ``n`` defined scores
        and ``undefined`` ones; ``chance``, the labels' density for CEM, alpha / 12 for CLM (more where a part has
        several places, see `CLM`), 1/2 for S+ and S-.

        With `per_image` a row for each image and score: ``model``, ``image`` (from 0), ``label``, ``predicted``,
        ``metric`` ("density" is the share of concepts that the image shows), ``explanation``, ``l``, ``alpha``,
        ``baseline``, ``value``. CGIM has no score of an image.

    Raises
    ------
    TypeError
        If a model is no concept model, or a mapping or array of another type than asked for.
    ValueError
        If an argument is out of its range, shapes do not go together, or an image, a value or a map is not finite.
    """
    known = known_to(loader)
    check_seed(seed)
    loader = check_loader(loader)
    check_whole("n_threads", n_threads, 1)
    scoring = ConceptScoring(
        model,
        class_concepts=known("class_concepts", class_concepts),
        part_of_concept=known("part_of_concept", part_of_concept),
        explanations=explanations,
        top_l=top_l,
        alphas=alphas,
        value_threshold=value_threshold,
        controls=controls,
        control_stride=control_stride,
        interventions=in_every_order(interventions, seed),
        levels=levels,
    )
    if value_threshold is None and not (added is None and removed is None):
        raise ValueError("Expected argument `value_threshold` beside `added` and `removed` but it is None.")
    substituted = {
        name: None if value is None or value_threshold is None else checked_substitutes(name, value)
        for name, value in (("added", known("added", added)), ("removed", known("removed", removed)))
    }
    bound = {
        "labels": None if labels is None else class_labels("labels", labels),
        "concept_labels": None if concept_labels is None else checked_presence(concept_labels),
        "points": None if points is None else checked_points(points, scoring.variants.parts),
        **substituted,
    }
    elsewhere = EarlierPoints(seed) if baselines else None
    scoring.run(loader, bound, elsewhere, n_threads=n_threads, display_progressbar=display_progressbar)
    if per_image:
        return scoring.images()
    return scoring.table(known("class_names", class_names), known("concept_names", concept_names))
