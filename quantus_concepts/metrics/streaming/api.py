"""`score_concepts`, also by ranges, and `score_substitutions`: all concept metrics of a data set in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from captum_concepts._support.constraints import (
    FINITE,
    ByName,
    Choice,
    Constraint,
    Flag,
    Instance,
    Items,
    Loader,
    Number,
    Seed,
    Whole,
    check_arguments,
    data_frame,
)
from captum_concepts._support.shown import describe
from captum_concepts.backbones.embedding import FIELDS
from captum_concepts.models.interventions import Levels
from quantus_concepts.metrics.concepts.cem import to_presence
from quantus_concepts.metrics.host.checks import (
    CLASS_CONCEPTS,
    CLASSES,
    PARTS,
    POINTS,
    SUBSTITUTES,
    Plain,
    check_parts,
    model_names,
    truth_lookup,
)
from quantus_concepts.metrics.host.model import (
    IMPORTANCES,
    RANDOM_BANKS,
    ConceptModel,
    random_models,
)
from quantus_concepts.metrics.streaming.batches import ADDED_REQUIRED, EarlierPoints, with_concepts_of
from quantus_concepts.metrics.streaming.columns import interventions_after
from quantus_concepts.metrics.streaming.rows import (
    SUBSTITUTED,
    about_images,
    bound_substitutions,
    concept_images,
    concept_table,
    substitution_images,
    substitution_table,
)
from quantus_concepts.metrics.streaming.stream import ConceptStream, concept_stream, substitution_stream

#: On how many images each random bank of a model is scored for CLM.
RANDOM_MAPS = 200
_NAMES = ("class_names", "concept_names")
NAMED = Items(Instance(object, "a name"), "names")
#: Constraints of the arguments that are the same for all images.
SETTINGS: dict[str, Constraint] = {
    "class_concepts": CLASS_CONCEPTS,
    "part_of_concept": PARTS,
    "explanations": Items(Choice(IMPORTANCES), "names", least=1),
    "top_l": Items(Whole(1), "whole numbers", least=1),
    "alphas": Items(Number(0, 12, open_low=True), "sizes of the region", least=1),
    "value_threshold": ByName(FINITE, gaps=True),
    "controls": Plain(to=lambda n, v: v),
    "control_stride": Whole(1),
    "interventions": Items(Whole(0), "whole numbers"),
    "concept_names": NAMED,
    "class_names": NAMED,
}


@check_arguments(
    model=Plain(to=lambda n, v: v),
    loader=Loader(),
    concept_labels=Plain(to=to_presence),
    labels=CLASSES,
    points=POINTS,
    added=SUBSTITUTES,
    removed=SUBSTITUTES,
    baselines=Flag(),
    per_image=Flag(),
    seed=Seed(),
    n_threads=Whole(1),
    display_progressbar=Flag(),
    **SETTINGS,
)
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
    concept and per class. The backbone runs once for each image, also if several models share it. Only the scores of
    the images are kept, and for the baselines their part points.

    A metric is scored where its ground truth is known: CGIM needs `class_concepts`, CEM the concept labels, CLM points
    and `part_of_concept`. Missing values are read from the samples and from ``loader.dataset``
    (`quantus_concepts.datasets.ConceptDataset` has all of it). If the models' bank leaves concepts out
    (`PostHocCBM.fit`), what the data set says of the others is taken, by their names.

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
        Importance that ranks the concepts: "weight" (theta), "value" (u), "contribution" (theta times u).
    top_l : sequence of int
        How many concepts count. CLM leaves out those that not enough concepts have a part for.
    alphas : sequence of float
        Sizes of CLM's region in twelfths of the image.
    value_threshold : float or dict, optional
        Value above which a concept counts as predicted present, of all models or by name: adds "concept accuracy"
        and, where `added` is known, "S+", "S-" and "recital", for which the value itself is present, too
        (`score_substitutions` has these by attribute, group and class).
    baselines : bool
        Whether CLM is measured with baselines too, in the column ``baseline``: the same maps at the other visible parts
        of the same image and at the parts of another image, the norm of the backbone's features (undefined without
        ``feature_maps`` of the model), and a Gaussian at the centre of every image.
    controls : sequence or dict
        Baseline models (`quantus_concepts.functional.random_banks`), or a dict of them by one name. Each number is
        their mean, with ``low`` and ``high`` the range of 95 % of them. By default the random banks that
        a single model was fitted with (``PostHocCBM.fit(random_banks=39)``), as "random banks", with a `control_stride`
        for which each is scored for CLM on 200 images of the loader's data set.
    control_stride : int
        The CLM of a control is computed on every `control_stride`-th image, other ones for each control: making maps
        takes most of the time.
    interventions : sequence of int
        After how many answers of people the class is predicted again from the head, without a pass of the backbone:
        adds "accuracy after interventions" of the models (`intervention_curve` has groups of concepts, too). Needs
        concept labels.
    levels : Levels or dict, optional
        Values of an absent and a present concept if values are not bounded, of all models or by name:
        `captum_concepts.PostHocCBM.value_levels`. Elsewhere 0 and 1. Under the name of `controls` a list, one for each:
        these are then intervened on too, with right answers in random order.
    concept_names : sequence of str, optional
        L names; those of the loader's data set or of the model by default, and numbers where none are known.
    class_names : sequence of str, optional
        K names, likewise.
    per_image : bool
        Whether to return the scores of the images, of the models alone, in place of their means.
    seed : int
        Random seed of the other-image baseline.
    n_threads : int
        How many models and controls that share their features are scored at the same time, where all are on the CPU.
        Each computes with as many threads as PyTorch is set to: more than one helps with ``torch.set_num_threads(1)``,
        and then more than PyTorch's own threads do. The numbers are the same to the bit.
    display_progressbar : bool
        Whether a bar shows the batches, where the output is a terminal or a notebook.

    Returns
    -------
    DataFrame
        A row for each number, models in their order and controls after them. ``model``; ``metric`` ("accuracy",
        "concept accuracy", "negative first", the share of images whose first concept by contribution speaks by being
        absent, "S+", "S-", "recital", "accuracy after interventions", "CEM", "CLM", "part specificity",
        CLM less CLM at the other parts for the smallest l (`functional.part_specificity`), or "CGIM"); ``explanation``
        (of interventions their order), ``baseline``, ``set`` ("all" or "correct" images), ``l`` (of interventions
        how many) and ``alpha``; ``item_kind`` ("concept" or "class", of CGIM) and ``item``, empty in the
        row of their mean; ``value`` with its 95 % interval ``low`` to ``high``, over the predicted classes as clusters
        (for S+, S- and recital pairs of class and concept put in; for interventions the true classes; CGIM has none:
        compare it with the range of random banks); ``n`` defined scores and ``undefined`` ones; ``chance``, the labels'
        density for CEM, alpha / 12 for CLM (more where a part has several places, see `CLM`), 1/2 for S+ and S-.

        With `per_image` a row for each image and score: ``model``, ``image`` (from 0), ``label``, ``predicted``,
        ``metric`` ("density" is the share of concepts that the image shows), ``explanation``, ``l``, ``alpha``,
        ``baseline``, ``value``. CGIM has no score of an image.

    Raises
    ------
    TypeError
        If a model is not a concept model, or a mapping or array has the wrong type.
    ValueError
        If an argument is out of its range, shapes do not go together, or an image, a value or a map is not finite.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import score_concepts
    >>> cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.eye(4)), nn.Linear(4, 2))
    >>> images, labels = torch.rand(6, 3, 16, 16), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> concept_labels = torch.eye(4)[[0, 1, 0, 1, 2, 3]]
    >>> table = score_concepts(cbm, [(images, labels, concept_labels)], top_l=[1])
    >>> sorted(table["metric"].unique())
    ['CEM', 'accuracy', 'negative first']
    """
    if concept_labels is None:
        loader = with_concepts_of([*model.values()] if isinstance(model, Mapping) else [model], loader)
    truth_of = truth_lookup(loader)
    own_controls = [] if controls or per_image or isinstance(model, Mapping) else random_models(model)
    if own_controls:
        # Scores vary more between banks than between images, and maps take most of the time.
        dataset: Any = getattr(loader, "dataset", ())
        n_images = len(dataset) if hasattr(dataset, "__len__") else 0
        controls, control_stride = {RANDOM_BANKS: own_controls}, max(control_stride, n_images // RANDOM_MAPS)
    stream = concept_stream(
        model,
        class_concepts=truth_of("class_concepts", class_concepts, CLASS_CONCEPTS),
        part_of_concept=truth_of("part_of_concept", part_of_concept, PARTS),
        explanations=explanations,
        top_l=top_l,
        alphas=alphas,
        value_threshold=value_threshold,
        controls=controls,
        control_stride=control_stride,
        interventions=interventions_after(interventions, seed),
        levels=levels,
    )
    if value_threshold is None and not (added is None and removed is None):
        raise ValueError("Expected argument `value_threshold` with `added` and `removed` but it is None.")
    bound: dict[str, Any] = {"labels": labels, "concept_labels": concept_labels, "points": points}
    if points is not None:
        check_parts(stream.variants.parts, points)
    if value_threshold is not None:
        bound |= {"added": truth_of("added", added, SUBSTITUTES), "removed": truth_of("removed", removed, SUBSTITUTES)}
    elsewhere = EarlierPoints(seed) if baselines else None
    stream.run(loader, bound, elsewhere, n_threads=n_threads, display_progressbar=display_progressbar)
    if per_image:
        return concept_images(stream)
    classes, concepts = truth_of("class_names", class_names), truth_of("concept_names", concept_names)
    own_classes, own_concepts = model_names(model)
    return concept_table(
        stream, own_classes if classes is None else classes, own_concepts if concepts is None else concepts
    )


@check_arguments(
    model=Plain(to=lambda n, v: v),
    loader=Loader(),
    **SUBSTITUTED,
    class_concepts=CLASS_CONCEPTS,
    threshold=ByName(FINITE),
    controls=Plain(to=lambda n, v: v),
    concept_names=NAMED,
)
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

    Missing values are read from the samples and from ``loader.dataset``
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
        Baseline models, or a dict of them by one name. Each number is their mean, with ``low`` and ``high`` the range
        of 95 % of them.
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
        If a model is not a concept model, or a mapping or array has the wrong type.
    ValueError
        If it is not known what was put in, no concept is the model's, an argument is out of its range, shapes do not go
        together, or an image or a value is not finite.
    """
    truth_of = truth_lookup(loader)
    class_table = truth_of("class_concepts", class_concepts, CLASS_CONCEPTS)
    stream = substitution_stream(model, class_concepts=class_table, threshold=threshold, controls=controls)
    bound = bound_substitutions(truth_of, added, removed, labels)
    stream.run(loader, bound, required=ADDED_REQUIRED, display_progressbar=display_progressbar)
    names = truth_of("class_names", class_names), truth_of("concept_names", concept_names)
    about = about_images(stream, truth_of("pairs", pairs, CLASSES), *names)
    if per_image:
        return substitution_images(stream, about)
    return substitution_table(stream, about, seen, display_progressbar)


class ConceptRanges:
    """`score_concepts` by ranges of a data set: the rows of a range, and the table of the rows of all ranges.

    For `score_shards`: CGIM and all intervals need all images together, so a row holds, besides the scores
    of an image by one model, the importance of its concepts (12 bytes a concept), and `table` adds them up in the order
    of one pass. The numbers are those of `score_concepts` to the bit.

    Parameters
    ----------
    model : ConceptModel or dict
        As in `score_concepts`.
    data : Dataset
        Samples by number, as the loader of `score_concepts` reads them: tuples of image, class, concept labels and part
        points, or dicts. Truth about all images (``class_concepts``, ``part_of_concept``, ``added``, ...) is read from
        its attributes. With points and `baselines`, samples of other ranges are read for their points.
    batch_size : int
        Images of a batch; ranges begin where a batch does.
    num_workers : int
        Processes that read the images of a range, 0 for none.
    baselines : bool
        As in `score_concepts`.
    seed : int
        As in `score_concepts`.
    **settings : Any
        Further arguments of `score_concepts`: `class_concepts`, `part_of_concept`, `explanations`, `top_l`, `alphas`,
        `value_threshold`, `controls`, `control_stride`, `interventions`, `levels`, `class_names`, `concept_names`.

    Raises
    ------
    TypeError
        If a model is no concept model, `data` has no length, or an argument is unknown or of the wrong kind.
    ValueError
        If an argument is out of its range, or `data` is empty.
    """

    @check_arguments(
        model=Plain(to=lambda n, v: v), batch_size=Whole(1), num_workers=Whole(), baselines=Flag(), seed=Seed()
    )
    def __init__(
        self,
        model: ConceptModel | Mapping[str, ConceptModel],
        data: Any,
        *,
        batch_size: int = 64,
        num_workers: int = 0,
        baselines: bool = True,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
            raise TypeError(
                f"Expected argument `data` to be a data set with samples by number but got {type(data).__name__}."
            )
        if not len(data):
            raise ValueError("Expected argument `data` to hold at least one image but it is empty.")
        further = [*SETTINGS, "levels"]
        if unknown := sorted(settings.keys() - set(further)):
            raise TypeError(f"Expected further arguments among {further} but got `{unknown[0]}`.")
        self.model, self.data = model, data
        self.batch_size, self.num_workers = batch_size, num_workers
        self.baselines, self.seed = baselines, seed
        truth_of_data = {name: getattr(data, name, None) for name in ("class_concepts", "part_of_concept", *_NAMES)}
        arguments: dict[str, Any] = {
            name: SETTINGS[name].check(name, value, {}) if name in SETTINGS else value
            for name, value in (truth_of_data | settings).items()
            if value is not None
        }
        self._names = {name: arguments.pop(name, None) for name in _NAMES}
        self._arguments = arguments | {"interventions": interventions_after(arguments.get("interventions", ()), seed)}
        # Validate the settings now.
        self._stream()

    def __repr__(self) -> str:
        return describe(self, f"{len(self.data)} images", model=self.model, batch_size=self.batch_size)

    @check_arguments(lambda self: {"N": len(self.data)}, start=Whole(), stop=Whole(1, "N", "images"))
    def rows(self, start: int, stop: int) -> pd.DataFrame:
        """Score some images.

        Parameters
        ----------
        start : int
            Number of the first image, a multiple of the batch size.
        stop : int
            Number of the image after the last.

        Returns
        -------
        DataFrame
            A row for each model or control and image, for `table`; not to be read otherwise.

        Raises
        ------
        ValueError
            If there is no such range, or `score_concepts` would refuse the images.
        """
        if start % self.batch_size:
            raise ValueError(
                f"Expected argument `start` to be a multiple of the batch size, {self.batch_size}, so that batches are "
                f"those of a single pass, but got {start}. Pass the same `batch_size` to `score_shards`."
            )
        if stop <= start:
            raise ValueError(f"Expected argument `stop` to lie above `start`, {start}, but got {stop}.")
        images = range(start, stop)
        loader: DataLoader[Any] = DataLoader(
            Subset(self.data, images), self.batch_size, num_workers=self.num_workers, generator=torch.Generator()
        )
        elsewhere = EarlierPoints(self.seed, start, self._points_of) if self.baselines else None
        stream = self._stream(start=start, record=True)
        stream.run(loader, {name: concepts[start:stop] for name, concepts in self._substitutes().items()}, elsewhere)
        return stream.rows()

    @check_arguments(rows=Instance(data_frame, "a pandas.DataFrame"), per_image=Flag())
    def table(self, rows: pd.DataFrame, *, per_image: bool = False) -> pd.DataFrame:
        """Put the rows of all images together.

        Parameters
        ----------
        rows : DataFrame
            Joined results of `rows` for all ranges: the result of `score_shards`.
        per_image : bool
            As in `score_concepts`.

        Returns
        -------
        DataFrame
            As `score_concepts` returns it.

        Raises
        ------
        TypeError
            If `rows` is no DataFrame.
        ValueError
            If `rows` is not of all images, or of other models.
        """
        stream = self._stream()
        counts = rows["model"].value_counts() if {"model", "columns", "shape"} <= {*rows} else pd.Series(dtype=int)
        expected = dict.fromkeys(range(len(stream.columns)), len(self.data))
        if counts.to_dict() != expected:
            raise ValueError(
                f"Expected argument `rows` to hold what `rows` gave for all {len(self.data)} images and "
                f"{len(stream.columns)} models and controls, {sum(expected.values())} rows, but got {len(rows)}."
            )
        stream.load(rows, self.batch_size)
        return concept_images(stream) if per_image else concept_table(stream, **self._names)

    def _stream(self, **settings: Any) -> ConceptStream:
        return concept_stream(self.model, **self._arguments, **settings)

    def _substitutes(self) -> dict[str, np.ndarray]:
        if self._arguments.get("value_threshold") is None:
            return {}
        names = [name for name in ("added", "removed") if getattr(self.data, name, None) is not None]
        return {name: SUBSTITUTES.check(name, getattr(self.data, name), {}) for name in names}

    def _points_of(self, images: Sequence[int]) -> Tensor:
        samples = (self.data[image] for image in images)
        place = FIELDS.index("points")
        points = (sample["points"] if isinstance(sample, Mapping) else sample[place] for sample in samples)
        return torch.stack([*map(torch.as_tensor, points)])
