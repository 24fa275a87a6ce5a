"""From explanations to embeddings: shown as pictures and sentences, encoded, and cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.support.checks import check_axes, check_shape, check_whole, different_names, to_array
from captum_concepts.support.running import progress, to_host
from captum_concepts.texts import describe
from quantus_concepts.datasets.ratings.explanations import (
    MODALITIES,
    ConceptExplanation,
    DrawingExplanation,
    Explanation,
    MapExplanation,
)
from quantus_concepts.functional.attribution.normalisation import finite_rows
from quantus_concepts.pasta.cache import EmbeddingCache
from quantus_concepts.pasta.encoders.encoder import (
    Encoder,
    Parts,
    PartsEncoder,
    check_image_form,
    check_unit,
    check_unit_images,
)
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.pasta.encoders.overlay import to_levels, usable_maps
from quantus_concepts.pasta.presentation import Presentation
from quantus_concepts.pasta.scorer import Scorer

#: Part of every key; raised whenever the same settings give another picture or text.
VERSION = 2


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
        An `Encoder`; "siglip", "clip", "eva02" or "MODEL/TAG" of open_clip, which download their weights; "embedded"
        (`EmbeddedEncoder`); or the parts of a model (see `PartsEncoder`).
    saliency : str
        "overlay" (Eq. 1), or "masked", the image times the map (Eq. 14).
    weight : float
        Share of the image in an overlay, in [0, 1].
    colours : str
        Colour map of matplotlib for overlays.
    size : int
        Height and width, in pixels, of the picture an encoder is given; it resizes that to its own size.
    normalise : str
        How maps come to [0, 1]: "min-max" (a constant map becomes 0), "shap" (divided by the largest magnitude,
        negative values 0), "lime" ((m + 1) * 0.49 of masks in [-1, 1]) or "none" (they are in [0, 1]).
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
        "ours", or "release": exactly the sentence of the released code, for the scorers trained on it, without a
        template.
    cache : EmbeddingCache, str or Path, optional
        Cache of embeddings; none by default.
    batch_size : int
        Batch size of pictures or texts.
    display_progressbar : bool
        Whether `embed` shows its progress.

    Raises
    ------
    TypeError
        If `encoder` is none.
    ValueError
        If a setting is none of those named, or there is a cache and an encoder without `fingerprint`.
    """

    def __init__(
        self,
        encoder: Encoder | Parts | str,
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
        self.presentation = Presentation(
            saliency, weight, colours, size, normalise, n_top, ascending, template, concepts, trailing_comma, sentence
        )
        self.batch_size = check_whole("batch_size", batch_size, 1)
        self.display_progressbar = display_progressbar
        self.encoder = as_encoder(encoder)
        self.cache = EmbeddingCache(cache) if isinstance(cache, str | Path) else cache

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.settings.items() if value != getattr(Presentation, name)}
        return describe(self, repr(self.name), **changed, cache=self.cache)

    @classmethod
    def from_settings(cls, encoder: Encoder | Parts | str, settings: Mapping[str, Any], **overrides: Any) -> Embedder:
        """Return an embedder with the settings of another.

        Parameters
        ----------
        encoder : Encoder, str or object
            As in the class.
        settings : mapping
            `settings` of the other embedder.
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
        names = [field.name for field in fields(Presentation)]
        if unknown := sorted(set(settings) - set(names)):
            raise ValueError(f"Expected argument `settings` to have some of {names} but it has {unknown}.")
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
        return asdict(self.presentation)

    @torch.no_grad()
    def pictures(self, images: Tensor | ArrayLike, maps: Tensor | ArrayLike) -> Tensor:
        """Show maps as the encoder is given them.

        Parameters
        ----------
        images : Tensor or array_like
            (N, 3, H, W), floating, in [0, 1].
        maps : Tensor or array_like
            (N, h, w), floating.

        Returns
        -------
        Tensor
            (N, 3, size, size), float32, in [0, 1], of 256 levels.

        Raises
        ------
        TypeError
            If an argument is not of a floating-point dtype.
        ValueError
            As in `embed_maps`.
        """
        images, maps = torch.as_tensor(images), torch.as_tensor(maps)
        check_pairs(images, maps)
        return self.presentation.levels(images, maps, self.presentation.normalise).float() / 255

    @torch.no_grad()
    def embed_maps(self, images: Tensor | ArrayLike, maps: Tensor | ArrayLike, *, checked: bool = False) -> Tensor:
        """Embed maps of one batch of images.

        Parameters
        ----------
        images : Tensor or array_like
            (N, 3, H, W), floating, in [0, 1].
        maps : Tensor or array_like
            (N, h, w), floating, of any range and size. A constant map shows nothing but is embedded; `usable_maps`
            is False for it.
        checked : bool
            Whether images are known to lie in [0, 1] and maps to be finite; checking this
            forces a device synchronisation.

        Returns
        -------
        Tensor
            (N, dim), float32, on the device of `images`.

        Raises
        ------
        TypeError
            If an argument is not of a floating-point dtype.
        ValueError
            If shapes do not fit, images are outside [0, 1], or a map holds NaN or infinity.
        """
        images, maps = torch.as_tensor(images), torch.as_tensor(maps)
        check_pairs(images, maps, values=not checked)
        return self._embed_pairs(images, maps, [self.presentation.normalise] * len(images), images.device)

    @torch.no_grad()
    def embed_drawings(self, pictures: Tensor | ArrayLike) -> Tensor:
        """Embed explanations as people saw them: only the encoder's own preprocessing changes them.

        Parameters
        ----------
        pictures : Tensor or array_like
            (N, 3, H, W), floating, in [0, 1]; rounded to 8 bits.

        Returns
        -------
        Tensor
            (N, dim), float32, on the device of `pictures`.

        Raises
        ------
        TypeError
            If `pictures` are not of a floating-point dtype.
        ValueError
            If the shape is wrong or values are outside [0, 1].
        """
        pictures = torch.as_tensor(pictures)
        check_unit_images(pictures)
        levels = to_levels(pictures)
        items = (({"picture": levels.shape[1:]}, [array]) for array in _arrays(levels))
        return self._look_up(
            "drawing", items, len(levels), lambda rows: self._encode_levels(levels[list(rows)]), levels.device
        )

    @torch.no_grad()
    def embed_concepts(self, values: Tensor | ArrayLike, names: Sequence[str]) -> Tensor:
        """Embed importances of the same concepts for several images.

        Parameters
        ----------
        values : Tensor or array_like
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
        table = to_array("values", values)
        names = different_names("names", [names] if isinstance(names, str) else names)
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
        waiting: dict[str, dict[int, Explanation]] = {modality: {} for modality in MODALITIES}
        places = progress(range(len(explanations)), "Embedding explanations", show=self.display_progressbar)

        def flush(kind: str) -> None:
            if waiting[kind]:
                out[list(waiting[kind])] = embedders[kind](list(waiting[kind].values())).cpu()
                waiting[kind].clear()

        embedders: dict[str, Callable[[list[Any]], Tensor]] = {
            "map": self._embed_maps,
            "drawing": self._embed_pictures,
            "concepts": self._embed_lists,
        }
        for place in places:
            explanation = explanations[place]
            if not isinstance(explanation, Explanation):
                raise TypeError(
                    "Expected argument `explanations` to hold Map-, Drawing- or ConceptExplanation but got "
                    f"{type(explanation).__name__} at {place}."
                )
            waiting[explanation.modality][place] = explanation
            if len(waiting[explanation.modality]) == self.batch_size:
                flush(explanation.modality)
        for kind in waiting:
            flush(kind)
        return out

    def _embed_pairs(
        self,
        images: Tensor | Sequence[Tensor],
        maps: Tensor | Sequence[Tensor],
        ways: Sequence[str],
        device: torch.device | None = None,
    ) -> Tensor:
        """Return embeddings (n, dim) of maps, each brought to [0, 1] in its own way, on images of any sizes."""
        kinds = [(tuple(images[place].shape), tuple(maps[place].shape), way) for place, way in enumerate(ways)]

        def levels(places: Sequence[int]) -> Tensor:
            batch, heats = (torch.stack([values[place] for place in places]) for values in (images, maps))
            return self.presentation.levels(batch, heats.to(batch.device), ways[places[0]])

        def encode(places: Sequence[int]) -> Tensor:
            return self._encode_levels(_by_kind(places, [kinds[place] for place in places], levels))

        items = (
            ({**self.presentation.of_picture(way), "image": size, "map": map_size}, arrays)
            for (size, map_size, way), *arrays in zip(kinds, _arrays(images), _arrays(maps), strict=True)
        )
        return self._look_up("map", items, len(kinds), encode, device)

    def _embed_maps(self, explanations: Sequence[MapExplanation]) -> Tensor:
        """Return embeddings (n, dim) of maps whose images may differ in size."""
        images = [explanation.image for explanation in explanations]
        maps = [explanation.map for explanation in explanations]
        for image, heat in zip(images, maps, strict=True):
            check_pairs(image[None], heat[None])
        ways = [explanation.normalise or self.presentation.normalise for explanation in explanations]
        return self._embed_pairs(images, maps, ways)

    def _embed_pictures(self, drawings: Sequence[DrawingExplanation]) -> Tensor:
        """Return embeddings (n, dim) of drawings, which may differ in size."""
        pictures = [drawing.picture for drawing in drawings]
        return _by_kind(
            range(len(pictures)),
            [picture.shape for picture in pictures],
            lambda places: self.embed_drawings(torch.stack([pictures[place] for place in places])),
        )

    def _embed_lists(self, lists: Sequence[ConceptExplanation]) -> Tensor:
        """Return embeddings (n, dim) of lists of concepts."""
        # This checks the values, too.
        sentences = [self.presentation.text(concepts) for concepts in lists]
        if self.presentation.concepts == "sentence":
            return self._embed_texts(sentences)
        names = list(dict.fromkeys(name for concepts in lists for name in concepts.values))
        rows = [[float(concepts.values.get(name, 0)) for name in names] for concepts in lists]
        values = torch.tensor(rows, dtype=torch.float64).view(len(lists), len(names))
        norm = values.norm(dim=1, keepdim=True)
        embeddings = self._embed_texts(names) if names else torch.empty(0, self.dim)
        shares = (values / torch.where(norm == 0, 1, norm)).to(embeddings)
        return shares @ embeddings

    def _embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings of texts, each text encoded once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        distinct = list(places)
        items: Iterable[tuple[Mapping[str, Any], list[bytes]]] = (({}, [text.encode()]) for text in distinct)
        embeddings = self._look_up(
            "text", items, len(distinct), lambda rows: self.encoder.encode_texts([distinct[row] for row in rows])
        )
        return embeddings[[places[text] for text in texts]]

    def _encode_levels(self, levels: Tensor) -> Tensor:
        """Encode pictures (n, 3, H, W) of 8 bits."""
        # An encoder of a user's may take floats alone.
        return self.encoder.encode_images(levels if isinstance(self.encoder, PartsEncoder) else levels.float() / 255)

    def _look_up(
        self,
        kind: str,
        items: Iterable[tuple[Mapping[str, Any], Iterable[np.ndarray | bytes]]],
        n: int,
        encode: Callable[[Sequence[int]], Tensor],
        device: torch.device | None = None,
    ) -> Tensor:
        """Return embeddings of n items from the cache, and encode those that are not there.

        The key of an item is the fingerprint of the encoder, of how the item is shown, and of what is in it.
        """
        if n == 0:
            return torch.empty(0, self.dim, device=device)
        if self.cache is None:
            embeddings = torch.cat([self._check_dim(encode(rows)) for rows in self._batches(range(n))])
            return embeddings if device is None else embeddings.to(device)
        # Asked each time: the weights of a user's model may have changed.
        head = {"version": VERSION, "kind": kind, "encoder": fingerprint_of_encoder(self.encoder)}
        keys = [fingerprint_of(head | {"settings": how}, *parts) for how, parts in items]
        embeddings_by_key = self.cache.get(dict.fromkeys(keys))
        missing = {key: row for row, key in reversed(list(enumerate(keys))) if key not in embeddings_by_key}
        for rows in self._batches(sorted(missing.values())):
            computed = self._check_dim(encode(rows)).cpu()
            fresh = {keys[row]: embedding for row, embedding in zip(rows, computed, strict=True)}
            self.cache.put(fresh)
            embeddings_by_key.update(fresh)
        return torch.stack([embeddings_by_key[key] for key in keys]).to(device)

    def _check_dim(self, embeddings: Tensor) -> Tensor:
        check_shape("encoder", embeddings, ("N", "dim"), (None, self.dim))
        return embeddings

    def _batches(self, items: Sequence[int]) -> list[Sequence[int]]:
        return [items[start : start + self.batch_size] for start in range(0, len(items), self.batch_size)]


def fingerprint_of_encoder(encoder: Encoder) -> str:
    """Return the identity of an encoder for a cache, or raise where it has none."""
    fingerprint = getattr(encoder, "fingerprint", None)
    if fingerprint is None:
        raise ValueError(
            f"Expected {encoder.name} to have an attribute `fingerprint`, a text that is another one wherever "
            "embeddings may differ: a cache on disk cannot know what an object depends on. Or use no cache."
        )
    return str(fingerprint)


def check_pairs(images: Tensor, maps: Tensor, *, values: bool = True) -> None:
    """Raise unless maps are (N, h, w), and of images (N, 3, H, W); and finite, and in [0, 1], where values count."""
    check_image_form(images)
    if not maps.is_floating_point():
        raise TypeError(f"Expected argument `maps` to be floating but got {str(maps.dtype)[6:]}.")
    check_axes(images=(images, "N 3 H W"), maps=(maps, "N h w"))
    if not all(maps.shape[1:]):
        raise ValueError(f"Expected argument `maps` to have places but got shape {tuple(maps.shape)}.")
    if not values or not images.numel():
        return
    low, high, finite = to_host(*torch.aminmax(images.detach()), finite_rows(maps))
    check_unit("images", low, high)
    if not finite.all():
        raise ValueError(
            f"Expected argument `maps` to be finite but {int((~finite).sum())} of {len(maps)} hold NaN or infinity. "
            "Leave out those for which Embedder.usable_maps(maps) is False."
        )


def embedder_for(
    scorer: Scorer,
    encoder: Encoder | Parts | Embedder | str | None = None,
    *,
    cache: EmbeddingCache | str | Path | None = None,
    **overrides: Any,
) -> Embedder:
    """Return an embedder that shows explanations as a scorer saw them when it was trained."""
    if isinstance(encoder, Embedder):
        if cache is not None:
            raise ValueError("Argument `cache` has no effect with an Embedder, which has its own: leave it out.")
        embedder = encoder
    else:
        if encoder is None:
            if scorer.encoder is None:
                raise ValueError(
                    "Expected argument `encoder`, for the scorer does not name the one it was trained on. Scorers of "
                    'the release were trained on "siglip", "clip" or "eva02".'
                )
            encoder = scorer.encoder
        embedder = Embedder.from_settings(encoder, scorer.settings or {}, cache=cache, **overrides)
    scorer.check_encoder(embedder.encoder)
    return embedder


def _by_kind(places: Sequence[int], kinds: Sequence[Any], compute: Callable[[Sequence[int]], Tensor]) -> Tensor:
    """Return a row for each place, in their order; those of one kind (images of one size) are computed together."""
    groups: dict[Any, list[int]] = {}
    for place, kind in zip(places, kinds, strict=True):
        groups.setdefault(kind, []).append(place)
    if len(groups) == 1:
        return compute(places)
    rows = {place: row for group in groups.values() for place, row in zip(group, compute(group), strict=True)}
    return torch.stack([rows[place] for place in places])


def _arrays(values: Tensor | Sequence[Tensor]) -> Iterator[np.ndarray]:
    """Go through arrays whose bytes are hashed, floats as float32; those of one tensor leave its device together."""
    for tensor in values.detach().cpu() if isinstance(values, Tensor) else values:
        tensor = tensor.detach().cpu()
        yield np.ascontiguousarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())
