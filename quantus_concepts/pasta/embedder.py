"""From explanations to embeddings: what is shown of them, encoded, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from captum_concepts.checks import check_choice, check_range, check_shape, check_whole, to_numpy
from captum_concepts.progress import progress
from quantus_concepts.datasets.ratings.explanations import (
    MODALITIES,
    ConceptExplanation,
    DrawingExplanation,
    Explanation,
    MapExplanation,
)
from quantus_concepts.functional.arguments import finite_rows
from quantus_concepts.functional.overlay import (
    NORMALISATIONS,
    colour_map,
    masked_levels,
    overlay_levels,
    resized,
    unit_maps,
    usable_maps,
)
from quantus_concepts.functional.upsampling import check_maps
from quantus_concepts.pasta.cache import EmbeddingCache
from quantus_concepts.pasta.encoder import Encoder, as_encoder, check_images
from quantus_concepts.pasta.encoding import Encoding
from quantus_concepts.pasta.preprocessing import resized_levels, to_levels
from quantus_concepts.pasta.sentences import SENTENCES, check_template, concept_sentence, released_sentence

SALIENCIES = ("overlay", "masked")
CONCEPTS = ("sentence", "weighted")
Item = TypeVar("Item")


class Embedder:
    """Turns explanations into embeddings, maps as pictures and concepts as text.

    Kazmierczak et al. (PASTA), Eqs. 1 and 2, in the details as their released code: a map is laid over its image and
    the picture encoded, a drawing is encoded as it is; the names of the most important concepts, in order, are encoded
    as a text. Embeddings are not normalised. Images are resized to `size` first, bicubic in 8 bits as Pillow does it,
    without keeping the ratio of their sides, so that all of an image counts; then maps, bilinearly, after they have
    been scaled to [0, 1].

    Parameters
    ----------
    encoder : Encoder, str or object
        As in `as_encoder`.
    saliency : str
        "overlay" (Eq. 1), or "masked", the image times the map (Eq. 14).
    weight : float
        Share of the image in an overlay, in [0, 1].
    colours : str
        Colour map of matplotlib for overlays.
    size : int
        Height and width, in pixels, of the picture an encoder is given; it resizes that to its own size.
    normalise : str
        How maps come to [0, 1]: "min-max", "shap", "lime" or "none", see `unit_maps`. With "min-max" a constant map
        is 0 everywhere.
    n_top : int
        How many concepts are named.
    ascending : bool
        Whether concepts of small magnitude are the important ones.
    template : str
        A sentence with {} where the names of concepts go.
    concepts : str
        "sentence", or "weighted": the sum of the embeddings of all names, each times its value, divided by the
        Euclidean norm of the values (Eq. 15).
    trailing_comma : bool
        Whether ", " follows the last name, as in the release.
    sentence : str
        "ours" (`concept_sentence`), or "release": exactly the sentence of the released code, for the scorers trained
        on it (`released_sentence`), which knows no template.
    cache : EmbeddingCache, str or Path, optional
        Where embeddings are kept; none by default.
    batch_size : int
        How many pictures or texts are encoded at once.
    display_progressbar : bool
        Whether `embed` shows its progress.

    Raises
    ------
    TypeError
        If `encoder` is none.
    ValueError
        If a setting is none of those named, or there is a cache and no telling one encoder from another.
    """

    def __init__(
        self,
        encoder: Encoder | str | Any,
        *,
        saliency: str = "overlay",
        weight: float = 0.5,
        colours: str = "bwr",
        size: int = 224,
        normalise: str = "min-max",
        n_top: int = 15,
        ascending: bool = False,
        template: str = "",
        concepts: str = "sentence",
        trailing_comma: bool = True,
        sentence: str = "ours",
        cache: EmbeddingCache | str | Path | None = None,
        batch_size: int = 16,
        display_progressbar: bool = False,
    ) -> None:
        check_choice("saliency", saliency, SALIENCIES)
        check_range("weight", weight, 0, 1)
        colour_map(colours)
        check_choice("normalise", normalise, NORMALISATIONS)
        check_choice("concepts", concepts, CONCEPTS)
        check_choice("sentence", sentence, SENTENCES)
        check_template(template)
        if sentence == "release" and (template or concepts != "sentence" or ascending or not trailing_comma):
            raise ValueError(
                "Expected arguments `template`, `concepts`, `ascending` and `trailing_comma` as they are by default "
                'beside sentence="release", which is fixed. Leave them out.'
            )
        self.saliency, self.weight, self.colours, self.normalise = saliency, float(weight), colours, normalise
        self.size = check_whole("size", size, 1)
        self.n_top = check_whole("n_top", n_top, 1)
        self.ascending, self.template, self.concepts = bool(ascending), template, concepts
        self.trailing_comma, self.sentence = bool(trailing_comma), sentence
        self.batch_size = check_whole("batch_size", batch_size, 1)
        self.display_progressbar = display_progressbar
        self.encoder = as_encoder(encoder)
        self.cache = EmbeddingCache(cache) if isinstance(cache, str | Path) else cache
        self._encoding = Encoding(self.encoder, self.cache, self.batch_size)

    @classmethod
    def from_settings(cls, encoder: Encoder | str | Any, settings: Mapping[str, Any], **overrides: Any) -> Embedder:
        """Return an embedder with the settings of another.

        Parameters
        ----------
        encoder : Encoder, str or object
            As in the class.
        settings : mapping
            What `settings` of the other gave.
        **overrides : Any
            Arguments of the class that take precedence, or are no settings: `cache`, `batch_size`.

        Returns
        -------
        Embedder
            A new one.

        Raises
        ------
        ValueError
            If there is an unknown setting.
        """
        unknown = sorted(set(settings) - set(SETTINGS))
        if unknown:
            raise ValueError(f"Expected argument `settings` to have some of {list(SETTINGS)} but it has {unknown}.")
        return cls(encoder, **{**settings, **overrides})

    #: (N, h, w) to (N,) of bool: which maps are finite and show anything.
    usable_maps = staticmethod(usable_maps)

    @property
    def dim(self) -> int:
        """Size of an embedding."""
        return self.encoder.dim

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self.encoder.name

    @property
    def settings(self) -> dict[str, Any]:
        """How explanations are shown, in values that JSON can hold."""
        return {name: getattr(self, name) for name in SETTINGS}

    @torch.no_grad()
    def pictures(self, images: Tensor, maps: Tensor) -> Tensor:
        """Show maps as the encoder is given them.

        Parameters
        ----------
        images : Tensor
            (N, 3, H, W), floating, in [0, 1].
        maps : Tensor
            (N, h, w), floating.

        Returns
        -------
        Tensor
            (N, 3, size, size), float32, in [0, 1], of 256 levels.

        Raises
        ------
        TypeError
            If an argument is not a tensor of a floating-point dtype.
        ValueError
            As in `embed_maps`.
        """
        _check_pair(images, maps)
        return self._levels(images, maps).float() / 255

    @torch.no_grad()
    def embed_maps(self, images: Tensor, maps: Tensor) -> Tensor:
        """Embed maps of one batch of images.

        Parameters
        ----------
        images : Tensor
            (N, 3, H, W), floating, in [0, 1].
        maps : Tensor
            (N, h, w), floating, of any range and size. A constant map shows nothing but is embedded; `usable_maps`
            tells it.

        Returns
        -------
        Tensor
            (N, dim), float32, on the device of `images`.

        Raises
        ------
        TypeError
            If an argument is not a tensor of a floating-point dtype.
        ValueError
            If shapes do not fit, images are outside [0, 1], or a map holds NaN or infinity.
        """
        _check_pair(images, maps)
        makes = self._encoding.keys
        keys = None if makes is None else makes.of_maps(images, maps, self._picture_settings)

        def encode(places: Sequence[int]) -> Tensor:
            some = slice(places[0], places[-1] + 1) if len(places) == places[-1] - places[0] + 1 else list(places)
            return self._encode(self._levels(images[some], maps[some].to(images.device)))

        return self._encoding.of(len(images), keys, encode, images.device)

    @torch.no_grad()
    def embed_drawings(self, pictures: Tensor) -> Tensor:
        """Embed explanations as people saw them: only the encoder's own preprocessing changes them.

        Parameters
        ----------
        pictures : Tensor
            (N, 3, H, W), floating, in [0, 1]; rounded to 8 bits.

        Returns
        -------
        Tensor
            (N, dim), float32, on the device of `pictures`.

        Raises
        ------
        TypeError
            If `pictures` is not a tensor of a floating-point dtype.
        ValueError
            If the shape is wrong or values are outside [0, 1].
        """
        check_images(pictures)
        levels = to_levels(pictures)
        makes = self._encoding.keys
        keys = None if makes is None else makes.of_drawings(levels)
        return self._encoding.of(len(levels), keys, lambda some: self._encode(levels[list(some)]), pictures.device)

    @torch.no_grad()
    def embed_concepts(self, values: Tensor | np.ndarray, names: Sequence[str]) -> Tensor:
        """Embed importances of the same concepts for several images.

        Parameters
        ----------
        values : Tensor or np.ndarray
            (N, L) importances of any sign.
        names : sequence of str
            (L,), all different.

        Returns
        -------
        Tensor
            (N, dim), float32, on the device of `values`.

        Raises
        ------
        ValueError
            If shapes do not fit, names are not different, or a value is NaN or infinite.
        """
        device = values.device if isinstance(values, Tensor) else torch.device("cpu")
        table = to_numpy(values)
        names = _checked_names(names)
        check_shape("values", table, ("N", "L"), (None, len(names)))
        rows = [dict(zip(names, row, strict=True)) for row in table.astype(np.float64).tolist()]
        return self._embed_lists([ConceptExplanation(row) for row in rows]).to(device)

    @torch.no_grad()
    def embed(self, explanations: Sequence[Explanation]) -> Tensor:
        """Embed explanations of either kind, of images of any size.

        Parameters
        ----------
        explanations : sequence of Explanation
            N of them; read `batch_size` at a time, so that they need not fit into memory.

        Returns
        -------
        Tensor
            (N, dim), float32, on the CPU, in their order.

        Raises
        ------
        TypeError
            If one is no explanation.
        ValueError
            If one cannot be embedded, as in `embed_maps` and `embed_concepts`.
        """
        out = torch.empty(len(explanations), self.dim)
        waiting: dict[str, list[tuple[int, Any]]] = {modality: [] for modality in MODALITIES}
        embedders: dict[str, Callable[[list[Any]], Tensor]] = {
            "map": self._embed_shown,
            "drawing": self._embed_drawn,
            "concepts": self._embed_lists,
        }
        places = progress(range(len(explanations)), "Embedding explanations", show=self.display_progressbar)

        def flush(kind: str) -> None:
            if waiting[kind]:
                rows, items = zip(*waiting[kind], strict=True)
                out[list(rows)] = embedders[kind](list(items)).cpu()
                waiting[kind].clear()

        for place in places:
            explanation = explanations[place]
            if not isinstance(explanation, Explanation):
                raise TypeError(
                    "Expected argument `explanations` to hold Map-, Drawing- or ConceptExplanation but got "
                    f"{type(explanation).__name__} at {place}."
                )
            waiting[explanation.modality].append((place, explanation))
            if len(waiting[explanation.modality]) == self.batch_size:
                flush(explanation.modality)
        for kind in waiting:
            flush(kind)
        return out

    @property
    def _picture_settings(self) -> dict[str, Any]:
        """What settles a picture, and so the key of its embedding."""
        shown = {"weight": self.weight, "colours": self.colours} if self.saliency == "overlay" else {}
        return {"saliency": self.saliency, "size": self.size, "normalise": self.normalise, **shown}

    def _levels(self, images: Tensor, maps: Tensor, normalise: str | None = None) -> Tensor:
        """Return what is shown, (n, 3, size, size) of uint8."""
        size = (self.size, self.size)
        if tuple(images.shape[-2:]) != size:
            images = resized_levels(to_levels(images), size).float() / 255
        maps = resized(unit_maps(maps, normalise or self.normalise)[:, None], size)[:, 0]
        if self.saliency == "masked":
            return masked_levels(images, maps)
        return overlay_levels(images, maps, weight=self.weight, colours=self.colours)

    def _encode(self, levels: Tensor) -> Tensor:
        # Not every encoder takes them without the way over floats.
        quick: Callable[[Tensor], Tensor] | None = getattr(self.encoder, "encode_levels", None)
        return self.encoder.encode_images(levels.float() / 255) if quick is None else quick(levels)

    def _embed_shown(self, shown: Sequence[MapExplanation]) -> Tensor:
        """Return embeddings (n, dim) of maps whose images may differ in size."""
        pairs = [(each.image[None], each.map[None]) for each in shown]
        for image, heat in pairs:
            _check_pair(image, heat)
        makes, ways = self._encoding.keys, [each.normalise or self.normalise for each in shown]
        keys = None
        if makes is not None:
            settings = [{**self._picture_settings, "normalise": way} for way in ways]
            keys = [makes.of_maps(*pair, each)[0] for pair, each in zip(pairs, settings, strict=True)]

        def encode(places: Sequence[int]) -> Tensor:
            pictures: dict[int, Tensor] = {}
            # Those of one size at once.
            for group in _grouped(places, lambda place: (*(part.shape for part in pairs[place]), ways[place])):
                images, maps = (torch.cat([pairs[place][part] for place in group]) for part in (0, 1))
                levels = self._levels(images, maps.to(images.device), ways[group[0]])
                pictures.update(zip(group, levels, strict=True))
            return self._encode(torch.stack([pictures[place] for place in places]))

        return self._encoding.of(len(shown), keys, encode)

    def _embed_drawn(self, drawn: Sequence[DrawingExplanation]) -> Tensor:
        """Return embeddings (n, dim) of drawings, which may differ in size."""
        rows: dict[int, Tensor] = {}
        for group in _grouped(range(len(drawn)), lambda place: drawn[place].picture.shape):
            rows.update(zip(group, self.embed_drawings(torch.stack([drawn[i].picture for i in group])), strict=True))
        return torch.stack([rows[place] for place in range(len(drawn))])

    def _sentence(self, each: ConceptExplanation) -> str:
        if self.sentence == "release":
            return released_sentence(
                each.values if each.written is None else each.written,
                each.vocabulary or tuple(each.values),
                counterfactual=each.ascending,
                n_top=self.n_top,
            )
        return concept_sentence(
            each.values,
            n_top=self.n_top,
            ascending=each.ascending or self.ascending,
            template=self.template,
            trailing_comma=self.trailing_comma,
        )

    def _embed_lists(self, lists: Sequence[ConceptExplanation]) -> Tensor:
        """Return embeddings (n, dim) of lists of concepts."""
        # Checks the values as well.
        sentences = [self._sentence(each) for each in lists]
        if self.concepts == "sentence":
            return self._encoding.texts(sentences)
        names = list(dict.fromkeys(name for each in lists for name in each.values))
        column = {name: place for place, name in enumerate(names)}
        values = torch.zeros(len(lists), len(names), dtype=torch.float64)
        for row, each in enumerate(lists):
            for name, value in each.values.items():
                values[row, column[name]] = float(value)
        norm = values.norm(dim=1, keepdim=True)
        embeddings = self._encoding.texts(names) if names else torch.empty(0, self.dim)
        shares = (values / torch.where(norm == 0, 1, norm)).to(embeddings)
        return shares @ embeddings


#: Arguments of `Embedder` that settle what is embedded.
SETTINGS = (
    "saliency",
    "weight",
    "colours",
    "size",
    "normalise",
    "n_top",
    "ascending",
    "template",
    "concepts",
    "trailing_comma",
    "sentence",
)


def _check_pair(images: Tensor, maps: Tensor) -> None:
    check_images(images)
    check_maps(maps)
    check_shape("maps", maps, ("N", "h", "w"), (len(images), None, None))
    finite = finite_rows(maps)
    if not finite.all():
        raise ValueError(
            f"Expected argument `maps` to be finite but {int((~finite).sum())} of {len(maps)} hold NaN or infinity. "
            "Leave them out; Embedder.usable_maps(maps) tells which."
        )


def _checked_names(names: Sequence[str]) -> list[str]:
    listed = [names] if isinstance(names, str) else [str(name) for name in names]
    double = sorted({name for name in listed if listed.count(name) > 1})
    if double:
        raise ValueError(f"Expected argument `names` to be different but {double[0]!r} comes more than once.")
    return listed


def _grouped(items: Sequence[Item], kind: Callable[[Item], Any]) -> list[list[Item]]:
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(kind(item), []).append(item)
    return list(groups.values())
