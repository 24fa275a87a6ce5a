"""Concept models scored on images in which one attribute is replaced: what they see, and what they recite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts.checks import check_finite, check_flag, check_number
from captum_concepts.embedding import check_loader
from captum_concepts.progress import progress
from captum_concepts.running import evaluation_mode
from quantus_concepts.metrics.concept_batches import ConceptBatches
from quantus_concepts.metrics.concept_scoring import named_controls, named_models, names_of
from quantus_concepts.metrics.inference import backbone_features
from quantus_concepts.metrics.protocols import ConceptModel, shares_features
from quantus_concepts.metrics.score_rows import control_table, score_table
from quantus_concepts.metrics.substitution_rows import (
    LABEL,
    PREDICTED,
    AboutImages,
    bound_pairs,
    bound_substitutions,
    checked_seen,
    summed,
)
from quantus_concepts.metrics.substitution_scorer import SeenScorer, SubstitutionScorer
from quantus_concepts.metrics.truth import checked_class_concepts

CHANCE = 0.5


def score_substitutions(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[Any],
    *,
    added: Any = None,
    removed: Any = None,
    labels: Any = None,
    pairs: Any = None,
    class_concepts: Any = None,
    threshold: float | Mapping[str, float] = 0.5,
    seen: Iterable[Any] | None = None,
    controls: Sequence[ConceptModel] | Mapping[str, Sequence[ConceptModel]] = (),
    concept_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    per_image: bool = False,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score concept models on images of which one attribute is replaced, in one pass, as one tidy table.

    Bader et al. (2025), "SUB: Benchmarking CBM Generalization via Synthetic Attribute Substitutions", Section 5.5 and
    Table 1. S+ and S- are what `SubstitutionScore` gives on the same images. The backbone runs once for each image,
    also where several models share it; what is kept of an image is its scores.

    What is not given is read off the samples and off ``loader.dataset``
    (`quantus_concepts.datasets.PaintedSubstitutions` and `quantus_concepts.datasets.SUB` have it).

    Parameters
    ----------
    model : ConceptModel or dict
        A concept model (`captum_concepts.PostHocCBM`, or any with its members), or several by name. They run on their
        own devices and in eval mode, and are left as they were.
    loader : iterable
        Batches, as `score_concepts` takes them; the images without their substitution come as ``batch.before`` or
        under "before", where there are any. It is gone through once, and no batch is kept.
    added : array_like, optional
        (N,) of int, aligned with the images of the loader: the concept put in, -1 where it is none of the model's.
    removed : array_like, optional
        (N,) of int: the concept taken out, -1 where there is none.
    labels : array_like, optional
        (N,) of int: the class of each bird.
    pairs : array_like, optional
        (N,) of int: which images share a recipe and are no independent samples; class and concept put in if None.
    class_concepts : array_like, optional
        (K, L) in [0, 1]: how far each concept belongs to each class, for the recital: from 1/2 on it is the class's.
    threshold : float or dict
        Value from which on a concept counts as present, of all models or by name: 0.5 of probabilities, 0 of margins.
    seen : iterable, optional
        Batches of images without substitution, of the kind models are trained on, with concept labels: a loader over
        the test set, for the paper's T_A and T.
    controls : sequence or dict
        Concept models that know nothing, or such by one name. Of each number their mean is told, and as ``low`` and
        ``high`` where 95 % of them lie.
    concept_names : sequence of str, optional
        L names, "group::option"; the numbers of the concepts where none are known.
    class_names : sequence of str, optional
        K names, likewise.
    per_image : bool
        Whether to return the scores of the images, of the models alone, in place of their means.
    display_progressbar : bool
        Whether a bar shows the batches, where the output is a terminal or a notebook.

    Returns
    -------
    DataFrame
        The columns of `score_concepts`, a row for each number, models in their order and controls after them.
        ``metric``: "S+" and "S-"; "recital", the share of images of which all of the class's concepts are predicted;
        with images before, "added moves", "removed moves" and "others move", in units of the values, "selectivity"
        (`quantus_concepts.functional.movement`) and "class kept", the share of images of which the prediction stays;
        with `seen`, "T_A" and "T", the concept accuracy for the concepts that are put in anywhere, and for all.
        ``item_kind`` ("attribute", the one put in, its "group", or "class") and ``item``, empty in the row of all;
        ``value`` with its 95 % interval ``low`` to ``high``, clustered by pair (T_A and T by class); ``n`` defined
        scores and ``undefined`` ones; ``chance``, 1/2 of S+, S-, T_A and T.

        With `per_image` a row for each image and score: ``model``, ``image`` (from 0), ``pair``, ``class``, ``added``,
        ``removed``, ``predicted``, each by name, ``metric`` and ``value``.

    Raises
    ------
    TypeError
        If a model is no concept model, or a mapping or array of another type than asked for.
    ValueError
        If it is not known what was put in, no concept is the model's, an argument is out of its range, shapes do not go
        together, or an image or a value is not finite.
    """
    loader = check_loader(loader)
    dataset = getattr(loader, "dataset", None)
    check_flag("per_image", per_image)

    def known(name: str, given: Any) -> Any:
        return getattr(dataset, name, None) if given is None else given

    models, drawn = named_models(model), named_controls(controls)
    truth = known("class_concepts", class_concepts)
    truth = None if truth is None else checked_class_concepts(truth)
    bound = bound_substitutions(known("added", added), known("removed", removed), labels)
    recipes = bound_pairs(known("pairs", pairs))
    seen = checked_seen(seen)
    scorers = [SubstitutionScorer(each, _threshold(threshold, name), truth) for name, each in [*models, *drawn]]
    _run(scorers, _batches(loader, bound, truth), display_progressbar)
    of_classes, of_concepts = (
        names_of(name, known(name, given), count)
        for name, given, count in zip(
            ("class_names", "concept_names"), (class_names, concept_names), scorers[0].shape, strict=True
        )
    )
    about = AboutImages(scorers[0].columns(), recipes, of_classes, of_concepts)
    if per_image:
        tables = []
        for (name, _), scorer in zip(models, scorers, strict=False):
            predicted = np.array(of_classes)[scorer.columns()[PREDICTED].astype(np.int64)]
            tables.append(about.images(scorer.scores(), name, predicted))
        return pd.concat(tables, ignore_index=True)
    accuracies: list[SeenScorer] = []
    if seen is not None:
        accuracies = [SeenScorer(each.model, each.threshold, about.put_in) for each in scorers]
        _run(accuracies, _batches(seen, {}, truth), display_progressbar)
    half = dict.fromkeys(("S+", "S-"), np.full(len(about.labels), CHANCE))
    tables, controlled = [], []
    for place, (name, _) in enumerate([*models, *drawn]):
        # What lies between controls is told by the controls.
        alone = place < len(models)
        rows = about.rows(scorers[place].scores(), half, alone)
        if accuracies:
            accuracy = accuracies[place].columns()
            clusters = accuracy.pop(LABEL)
            chances = np.full(len(clusters), CHANCE)
            rows += [summed(metric, column, clusters, chances, alone) for metric, column in accuracy.items()]
        rows = [row | {"model": name} for row in rows]
        if alone:
            tables.append(score_table(rows))
        else:
            controlled.append(rows)
    if controlled:
        tables.append(control_table(controlled))
    return pd.concat(tables, ignore_index=True)


def _batches(loader: Iterable[Any], bound: dict[str, np.ndarray | None], truth: np.ndarray | None) -> ConceptBatches:
    n_classes, n_concepts = (None, None) if truth is None else truth.shape
    return ConceptBatches(loader, bound, n_classes=n_classes, n_concepts=n_concepts, last_part=-1, elsewhere=None)


def _threshold(threshold: Any, name: str) -> float:
    found = threshold.get(name, 0.5) if isinstance(threshold, Mapping) else threshold
    check_finite("threshold", check_number("threshold", found))
    return float(found)


def _run(scorers: Sequence[SubstitutionScorer | SeenScorer], batches: ConceptBatches, show: bool) -> None:
    """Score every batch; models of one backbone share its features."""
    models = [scorer.model for scorer in scorers]
    with ExitStack() as stack, torch.no_grad():
        for model in models:
            stack.enter_context(evaluation_mode(model, model.features, model.concept_predictor, model.head))
        for batch in progress(batches, "evaluating", unit="batch", show=show):
            after, before = _features(models, batch.images), _features(models, batch.before)
            for scorer, *features in zip(scorers, after, before, strict=True):
                scorer.add(batch, *features)


def _features(models: Sequence[ConceptModel], images: Tensor | None) -> Iterator[Tensor | None]:
    """Yield what the backbone of each model gives, made once a backbone; None where a model takes no features."""
    shared: dict[int, tuple[nn.Module, Tensor]] = {}
    for model in models:
        if images is None or not shares_features(model):
            yield None
            continue
        # The module is held, or another one could get its id.
        module = model.features
        if id(module) not in shared:
            shared[id(module)] = module, backbone_features(model, images)
        yield shared[id(module)][1]
