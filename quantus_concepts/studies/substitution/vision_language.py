"""Vision-language models on images in which one attribute is replaced: which option of the group do they see?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from captum_concepts.support.checks import check_shape, different_names, to_numpy, to_presence
from captum_concepts.support.running import progress
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.substitution import group_choice
from quantus_concepts.metrics.concepts.names import MINUS, PLUS
from quantus_concepts.metrics.host.alignment import TruthLookup
from quantus_concepts.metrics.host.checks import to_classes, to_numbers
from quantus_concepts.metrics.host.scores import Row
from quantus_concepts.metrics.streaming.loader import ADDED_REQUIRED, SEEN_REQUIRED, ConceptBatches
from quantus_concepts.metrics.streaming.substitutions import AboutImages, bound_substitutions
from quantus_concepts.metrics.streaming.table import mean_row, score_table
from quantus_concepts.pasta.encoders.encoder import Encoder, Parts
from quantus_concepts.pasta.encoders.object_encoder import as_encoder

#: The values of the column ``set``.
WITH_NONE, WITHOUT_NONE = "with none", "without none"
TEMPLATE, NONE = "a bird with {}", "none"


def score_vision_language(
    encoder: Encoder | Parts | str,
    loader: Iterable[object],
    *,
    added: Numbers | None = None,
    removed: Numbers | None = None,
    labels: Numbers | None = None,
    pairs: Numbers | None = None,
    concept_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    options: Sequence[str] | None = None,
    prompts: str | Sequence[str] = TEMPLATE,
    none: str | None = NONE,
    seen: Iterable[object] | None = None,
    per_image: bool = False,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Ask a vision-language model which option of a group it sees, where one was replaced; as one tidy table.

    Bader et al. (2025), "SUB: Benchmarking CBM Generalization via Synthetic Attribute Substitutions", Section 5.6,
    Table 2 and Appendix F. Among the options of the substituted attribute's group, the one whose text is the most
    similar to the image (cosine) is present, the others are absent. The paper adds the option "none", the prompts of
    the authors' release do not: both variants are reported. The paper does not state the text for "none"; it is an
    argument. Each text and each image is embedded once.

    Missing values are read from the samples and from ``loader.dataset``
    (`quantus_concepts.datasets.PaintedSubstitutions` and `quantus_concepts.datasets.SUB` have it).

    Parameters
    ----------
    encoder : Encoder, str or object
        The name of a preset, an encoder (`quantus_concepts.pasta.OpenClipEncoder`), or any object with `encode_image`,
        `encode_text`, `preprocess` and `tokenizer`. "embedded" is untrained, a baseline: all options are equal to
        it, and it takes the first.
    loader : iterable
        Batches of images (B, 3, H, W) in [0, 1] and classes, as `score_concepts` takes them.
    added : array_like, optional
        (N,) of int, aligned with the images: the concept put in, of `concept_names`; -1 for none.
    removed : array_like, optional
        (N,) of int: the concept taken out, -1 for none.
    labels : array_like, optional
        (N,) of int: the class of each bird.
    pairs : array_like, optional
        (N,) of int: which images share a recipe, as in `score_substitutions`.
    concept_names : sequence of str, optional
        L names, "group::option".
    class_names : sequence of str, optional
        K names; the numbers of the classes where none are known.
    options : sequence of str, optional
        A names, "group::option", of all that may be chosen (312 of CUB-200-2011); `concept_names` where none are known.
    prompts : str or sequence of str
        A template with {}, where "black crown color" is put for "has_crown_color::black", or A texts.
    none : str or None
        The text for none of the options; None to ask only without.
    seen : iterable, optional
        Batches of images without substitution with concept labels (B, L), for the paper's T_A and T.
    per_image : bool
        Whether to return the scores of the images in place of their means.
    display_progressbar : bool
        Whether a bar shows the batches, where the output is a terminal or a notebook.

    Returns
    -------
    DataFrame
        The columns of `score_concepts`. ``set`` is "with none" or "without none"; ``metric`` "S+" and "S-", "original",
        the share of images in which what was taken out is chosen (the paper's hallucination), "none", the share in
        which nothing is, and with `seen` "T_A" and "T"; ``chance`` is the mean of 1 / (options + 1), without none
        1 / options, where presence counts, of 1 minus that where absence does. Items, intervals by pair, and
        `per_image` as in `score_substitutions`; ``predicted`` is then the option chosen.

    Raises
    ------
    TypeError
        If the encoder is not valid, or an argument has the wrong type.
    ValueError
        If it is not known what was put in or what concepts are called, no concept is among the options, a prompt is
        missing, shapes do not go together, images lie outside [0, 1], or an embedding is NaN.
    """
    truth_of = TruthLookup(loader)
    bound = bound_substitutions(truth_of, added, removed, labels)
    recipes = truth_of("pairs", pairs, to_classes)
    concept_names = truth_of("concept_names", concept_names)
    if concept_names is None:
        raise ValueError("Expected argument `concept_names` to tell what the concepts are called but it is None.")
    of_concepts = different_names("concept_names", concept_names)
    options = truth_of("options", options, different_names)
    asker = _Asker(as_encoder(encoder), of_concepts, of_concepts if options is None else options, prompts, none)
    rows_of_images: list[Tensor] = []
    for batch in _batches(loader, bound, len(of_concepts), ADDED_REQUIRED, display_progressbar):
        groups = asker.groups_of(batch.truth["added"])
        chosen = asker.choose(asker.similarity(batch.images), groups)
        chosen_on_host = [options_chosen.cpu() for options_chosen in chosen]
        rows_of_images.append(
            torch.stack([*(batch.truth[name] for name in ("labels", "added", "removed")), *chosen_on_host], 1).float()
        )
    columns = to_numpy(torch.cat(rows_of_images)).astype(np.int64).T
    n_classes = int(columns[0].max()) + 1
    of_classes = list(truth_of("class_names", class_names) or map(str, range(n_classes)))
    if len(of_classes) < n_classes:
        raise ValueError(
            f"Expected argument `class_names` to hold a name for each class, at least {n_classes}, but got "
            f"{len(of_classes)}."
        )
    about = AboutImages(columns[0], columns[1], columns[2], recipes, of_classes, of_concepts)
    accuracies: dict[str, list[Row]] = {}
    if seen is not None and not per_image:
        accuracies = _accuracy(asker, seen, about.put_in, display_progressbar)
    tables = []
    for variant, chosen_options in zip(asker.variants, columns[3:], strict=True):
        scores, chances = asker.scores(about, chosen_options, variant)
        if per_image:
            named = np.array([*asker.options, NONE])[chosen_options]
            tables.append(about.images(scores, asker.encoder.name, named).assign(set=variant))
            continue
        score_rows = about.rows(scores, chances)
        score_rows += accuracies.get(variant, [])
        tables.append(score_table([row | {"model": asker.encoder.name, "set": variant} for row in score_rows]))
    return pd.concat(tables, ignore_index=True)


class _Asker:
    """An encoder and the options it may choose from, embedded once."""

    def __init__(
        self,
        encoder: Encoder,
        concept_names: Sequence[str],
        options: Sequence[str],
        prompts: str | Sequence[str],
        none: str | None,
    ) -> None:
        self.encoder, self.options = encoder, list(options)
        places = {name: place for place, name in enumerate(self.options)}
        #: (L + 1,): the option that each concept is; of none, none.
        self.option_of = np.array([*(places.get(name, -1) for name in concept_names), -1])
        if not (self.option_of >= 0).any():
            raise ValueError("Expected argument `options` to hold concepts of `concept_names` but none is among them.")
        names = [name.partition("::")[0] for name in self.options]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.groups = torch.tensor([numbers[name] for name in names])
        self.sizes = torch.bincount(self.groups).numpy()
        self.variants = [WITHOUT_NONE] if none is None else [WITH_NONE, WITHOUT_NONE]
        texts = _texts(self.options, prompts) + ([] if none is None else [none])
        self._texts = normalize(encoder.encode_texts(texts).float(), dim=1)

    def groups_of(self, concepts: Tensor) -> Tensor:
        """Return each concept's group; a sentinel for concepts that are not options."""
        places = torch.as_tensor(self.option_of)[concepts.long()]
        return self.groups[places.clamp(min=0)].where(places >= 0, torch.tensor(-1))

    def similarity(self, images: Tensor) -> Tensor:
        """Return the cosine (B, A), or (B, A + 1) with none, of images and texts."""
        embedded = self.encoder.encode_images(images).float()
        check_shape("encode_images of the encoder", embedded, ("B", "dim"), (len(images), self._texts.shape[1]))
        embedded = normalize(embedded, dim=1)
        return embedded @ self._texts.to(embedded.device).T

    def choose(self, similarity: Tensor, groups: Tensor) -> list[Tensor]:
        """Return the option (B,) chosen of one group each, -1 for none, with none and without."""
        similar = similarity[:, : len(self.options)]
        nones = [similarity[:, -1], None] if WITH_NONE in self.variants else [None]
        return [group_choice(similar, self.groups, groups, none) for none in nones]

    def chance(self, options: np.ndarray, variant: str) -> np.ndarray:
        """Return how probable an option is by chance; NaN of none."""
        sizes = self.sizes[self.groups.numpy()[options]] + (variant == WITH_NONE)
        return np.where(options >= 0, 1 / sizes, np.nan)

    def scores(
        self, about: AboutImages, chosen: np.ndarray, variant: str
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return scores (N,) of all images, and what chance gives for each."""
        added, removed = self.option_of[about.added], self.option_of[about.removed]
        has_added = added >= 0
        gone = has_added & (removed >= 0) & (removed != added)
        chance = self.chance(added, variant)
        scores = {
            PLUS: np.where(has_added, chosen == added, np.nan),
            MINUS: np.where(gone, chosen != removed, np.nan),
            "original": np.where(gone, chosen == removed, np.nan),
        }
        if variant == WITH_NONE:
            scores["none"] = np.where(has_added, chosen == -1, np.nan)
        return scores, {name: 1 - chance if name == MINUS else chance for name in scores}


def _accuracy(asker: _Asker, loader: Iterable[object], put_in: np.ndarray, show: bool) -> dict[str, list[Row]]:
    """Return the rows of T_A and T: a concept is present where it is the one chosen of its group."""
    concepts_with_option = np.flatnonzero(asker.option_of[:-1] >= 0)
    options, some = asker.option_of[concepts_with_option], np.isin(concepts_with_option, put_in)
    groups, group_of = np.unique(asker.groups.numpy()[options], return_inverse=True)
    rows_by_variant: dict[str, list[Tensor]] = {variant: [] for variant in asker.variants}
    for batch in _batches(loader, {}, len(asker.option_of) - 1, SEEN_REQUIRED, show):
        similarity, present = (
            asker.similarity(batch.images),
            to_numpy(batch.truth["concept_labels"])[:, concepts_with_option] > 0.5,
        )
        chosen_by_group = [asker.choose(similarity, torch.full((len(present),), int(group))) for group in groups]
        for variant, *chosen in zip(asker.variants, *chosen_by_group, strict=True):
            right = (torch.stack(chosen, 1).cpu().numpy()[:, group_of] == options) == present
            chance = asker.chance(options, variant)
            chance = np.where(present, chance, 1 - chance)
            parts = [part[:, columns].mean(1) for part in (right, chance) for columns in (some, some | True)]
            rows_by_variant[variant].append(torch.from_numpy(np.stack([to_numpy(batch.truth["labels"]), *parts], 1)))
    rows = {}
    for variant, parts_of in rows_by_variant.items():
        clusters, *columns = torch.cat(parts_of).numpy().T
        rows[variant] = [
            mean_row(scores, clusters, chances=chances, metric=metric)
            for metric, scores, chances in zip(("T_A", "T"), columns[:2], columns[2:], strict=True)
        ]
    return rows


def _batches(
    loader: Iterable[object],
    bound: dict[str, np.ndarray | None],
    n_concepts: int,
    required: Mapping[str, str],
    show: bool,
) -> Iterable[Any]:
    checks: dict[str, Any] = {"concept_labels": to_presence, "added": to_numbers, "removed": to_numbers}
    batches = ConceptBatches(loader, TruthLookup(loader), bound, checks, n_concepts=n_concepts, required=required)
    return progress(batches, "evaluating", show=show, unit="batch")


def _texts(options: Sequence[str], prompts: str | Sequence[str]) -> list[str]:
    """Return the text of each option."""
    if isinstance(prompts, str):
        if prompts.count("{}") != 1:
            raise ValueError(f"Expected argument `prompts` to hold {{}} once, or to be texts, but got {prompts!r}.")
        return [prompts.format(attribute_words(name)) for name in options]
    texts = list(prompts)
    if len(texts) != len(options) or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"Expected argument `prompts` to hold {len(options)} texts, one an option, but got {len(texts)}."
        )
    return texts


def attribute_words(name: str) -> str:
    """Return an attribute as words: "black crown color" of "has_crown_color::black"."""
    group, _, option = name.partition("::")
    return " ".join(f"{option} {group.removeprefix('has_')}".replace("_", " ").split())
