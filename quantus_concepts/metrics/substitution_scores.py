"""Concept models scored on images in which one attribute is replaced: what they see, and what they recite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from captum_concepts.checks import check_flag
from captum_concepts.embedding import check_loader
from quantus_concepts.metrics.protocols import ConceptModel
from quantus_concepts.metrics.substitution_rows import bound_pairs, bound_substitutions, checked_seen
from quantus_concepts.metrics.substitution_scoring import SubstitutionScoring
from quantus_concepts.metrics.truth import known_to


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
        with images before, "added moves", "removed moves" and "others move", in units of the values, "rises", the
        share of images in which the value of the concept put in goes up, whatever the threshold, "selectivity"
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
    known = known_to(loader)
    check_flag("per_image", per_image)
    scoring = SubstitutionScoring(
        model, class_concepts=known("class_concepts", class_concepts), threshold=threshold, controls=controls
    )
    bound = bound_substitutions(known("added", added), known("removed", removed), labels)
    recipes = bound_pairs(known("pairs", pairs))
    seen = checked_seen(seen)
    scoring.run(loader, bound, display_progressbar)
    about = scoring.about(recipes, known("class_names", class_names), known("concept_names", concept_names))
    return scoring.images(about) if per_image else scoring.table(about, seen, display_progressbar)
