"""`explore`: images, concept maps, values and corrections of a concept model on one self-contained page."""

from __future__ import annotations

import base64
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from captum_concepts.backbones.embedding import USUAL, check_order, read_batch
from captum_concepts.models.chain import linear_part
from captum_concepts.models.effects import effect_level
from captum_concepts.pictures.gallery import PALETTE, as_picture
from captum_concepts.pictures.views import ClassViews, as_pictures, check_images, class_labels, concept_views
from captum_concepts.support.checks import (
    check_path,
    check_shape,
    check_whole,
    to_points,
    to_presence,
    to_tensor,
)
from captum_concepts.support.files import check_target, write_atomically
from captum_concepts.texts import describe, readable_name
from quantus_concepts.explorer.policy import content_policy
from quantus_concepts.functional import cem
from quantus_concepts.functional.attribution.regions import point_hits
from quantus_concepts.metrics.host.alignment import Order, TruthLookup
from quantus_concepts.metrics.host.checks import to_classes, to_parts
from quantus_concepts.metrics.host.model import ConceptModel

_MEGABYTE = 1_000_000
#: Largest page, which a browser still opens at once.
MAX_MEGABYTES = 20.0
#: Maps of more places are averaged down to so many a side.
MAX_PLACES = 16
_QUALITY = 85
#: Concepts that the scores of single images count, and whose maps are shown first.
TOP = 3


class Explorer:
    """A page of `explore`: shown by a notebook, and written by `save`.

    Parameters
    ----------
    html : str
        The page.
    n_images : int
        How many images it shows.
    path : Path, optional
        File that was written.

    Attributes
    ----------
    html : str
        The page.
    path : Path or None
        File that was written.
    """

    def __init__(self, html: str, n_images: int, path: Path | None = None) -> None:
        self.html = html
        self.path = path
        self._n_images = n_images

    def __repr__(self) -> str:
        path = None if self.path is None else str(self.path)
        return describe(self, f"{self._n_images} images", f"{len(self.html) / _MEGABYTE:.1f} MB", path=path)

    def _repr_html_(self) -> str:
        # A frame without an origin of its own: nothing of the notebook is within reach of the page.
        source = escape(self.html, quote=True)
        style = "width:100%;height:760px;border:1px solid #8886;border-radius:6px"
        return f'<iframe title="Concept explorer" sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page as one file, which needs no network.

        Parameters
        ----------
        path : path
            Path of the file; an existing file is replaced.

        Raises
        ------
        FileNotFoundError
            If its folder does not exist.
        IsADirectoryError
            If it is a folder.
        """
        target = check_target(check_path("path", path), "the page")
        with write_atomically(target) as temporary:
            temporary.write_text(self.html, encoding="utf-8")
        self.path = target


def explore(
    model: ConceptModel,
    images: Tensor | ArrayLike | Iterable[object],
    out: str | os.PathLike[str] | None = None,
    *,
    labels: Tensor | ArrayLike | None = None,
    concept_labels: Tensor | ArrayLike | None = None,
    points: Tensor | ArrayLike | None = None,
    part_of_concept: Tensor | ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    pictures: Tensor | ArrayLike | None = None,
    title: str = "Concept explorer",
    n_images: int = 100,
    picture_size: int = 320,
    batch_size: int = 64,
) -> Explorer:
    """Make a page on which to look at a concept model's images and to correct its concepts.

    The page shows each image with concept maps over it on one common scale, the values with their threshold, labels
    and effects (what the class loses if the concept is set to its absent level; contributions, weight times value,
    where the model knows no level), and, for a model with random banks (``PostHocCBM.fit(random_banks=39)``),
    whether each value lies above, within or below the range of 95 % of random directions. A concept is grey and has
    the words "weak direction" if the direction itself cannot be distinguished from random images: its p-value is at
    least .05 or, without one, its accuracy on images held back is below .6. The page begins with an image whose
    answer is clear: predicted correctly, with a strong concept above that range. Concepts are corrected by sliders:
    logits and probabilities are computed anew in the page, for a linear head; the residual of a `ResidualCBM` stays
    as it is. Images are sorted by score and filtered by class and concept. The address holds what is shown, so that a
    view can be shared. The page is one file that loads nothing.

    Parameters
    ----------
    model : nn.Module
        A concept model (`captum_concepts.PostHocCBM`, or any with its members).
    images : Tensor, array or iterable
        (N, C, H, W), as the model takes them, or a loader as of `score_concepts`, which gives labels, concept labels
        and points with them.
    out : path, optional
        File to write; an ``.html`` that is there is replaced. None to show the page in a notebook only.
    labels : array_like, optional
        (N,) of int, the true classes.
    concept_labels : array_like, optional
        (N, L) of 0 and 1.
    points : array_like, optional
        (N, P, 2) or (N, P, Q, 2), places of the parts in pixels of the images, as of `CLM`.
    part_of_concept : array_like, optional
        (L,) of int: the part each concept is about, -1 for none.
    class_names : sequence of str, optional
        K names; by default those of the model or of the loader's data set, or numbers.
    pictures : array_like, optional
        (N, 3, H, W) of uint8, or of numbers in [0, 1]: the images as they are shown. By default `images` with the
        model's normalisation undone, where it is known.
    title : str
        Title of the page.
    n_images : int
        How many images at most, the first ones.
    picture_size : int
        Pixels of the longer side of a picture on the page.
    batch_size : int
        Batch size.

    Returns
    -------
    Explorer
        With the page in `html`; a notebook shows it.

    Raises
    ------
    TypeError
        If `model` is no concept model, or a number of images or pixels is not whole.
    ValueError
        If shapes do not go together, there is no image, or the page would be larger than 20 MB.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import explore
    >>> bank = ConceptBank(torch.eye(4), names=["red", "long", "striped", "hooked"])
    >>> cbm = PostHocCBM(nn.Conv2d(3, 4, 3), bank, nn.Linear(4, 5))
    >>> page = explore(cbm, torch.rand(2, 3, 32, 32), "explore.html")
    >>> page.path.name
    'explore.html'
    """
    target = None if out is None else check_target(check_path("out", out), "the page")
    content = page_content(
        model,
        images,
        labels=labels,
        concept_labels=concept_labels,
        points=points,
        part_of_concept=part_of_concept,
        class_names=class_names,
        pictures=pictures,
        n_images=n_images,
        picture_size=picture_size,
        batch_size=batch_size,
    )
    page = Explorer(page_html(title, content), len(content["pictures"]))
    if target is not None:
        page.save(target)
    return page


def page_content(
    model: ConceptModel,
    images: Tensor | ArrayLike | Iterable[object],
    *,
    labels: Tensor | ArrayLike | None = None,
    concept_labels: Tensor | ArrayLike | None = None,
    points: Tensor | ArrayLike | None = None,
    part_of_concept: Tensor | ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    pictures: Tensor | ArrayLike | None = None,
    n_images: int = 100,
    picture_size: int = 320,
    batch_size: int = 64,
) -> dict[str, Any]:
    """Return what a page of `explore` is made from, which JSON can hold; the arguments are those of `explore`."""
    n_images = check_whole("n_images", n_images, 1)
    picture_size = check_whole("picture_size", picture_size, 32)
    batch_size = check_whole("batch_size", batch_size, 1)
    truth, truth_of = {}, TruthLookup(images, [model], class_names=class_names)
    for name, value, check in (
        ("labels", labels, to_classes),
        ("concept_labels", concept_labels, to_presence),
        ("points", points, to_points),
    ):
        if value is not None:
            truth[name] = truth_of.argument(name, value, check)
    check_order(images, truth, "images")
    parts = truth_of("part_of_concept", part_of_concept, to_parts)
    fields = _collect_fields(images, truth, n_images, truth_of.order)
    views = concept_views(model, fields["images"], batch_size)
    n = len(views.values)
    _check_fields(fields, *views.values.shape)
    pixels = as_pictures(views.images, getattr(model, "normalisation", None))
    if pictures is not None:
        pixels = check_images(pictures, "pictures")[:n]
        check_shape("pictures", pixels, ("N", "C", "H", "W"), (n, None, None, None))
    scores = image_scores(
        views,
        fields.get("labels"),
        fields.get("concept_labels"),
        fields.get("points"),
        parts,
    )
    content = {
        "classes": [readable_name(name) for name in class_labels(truth_of.class_names, views.logits.shape[1])],
        "start": clear_image(views, fields.get("labels")),
        "scores": {name: [_round_all(values), lowest] for name, (values, lowest) in scores.items()},
        **_numbers(views, model),
        **_maps(views),
        "pictures": [picture_uri(picture, picture_size) for picture in pixels],
        "ratio": pixels.shape[2] / pixels.shape[3],
    }
    if "labels" in fields:
        content["labels"] = fields["labels"].tolist()
    if "concept_labels" in fields:
        content["present"] = ["".join(map(str, row)) for row in fields["concept_labels"].int().tolist()]
    return content


def _collect_fields(images: Any, truth: dict[str, Any], n_images: int, order: Order) -> dict[str, Tensor]:
    """Return the first images with what is known of them, from arrays or the batches of a loader."""
    fields: dict[str, list[Tensor]] = {}
    in_memory = isinstance(images, Tensor | np.ndarray) or not isinstance(images, Iterable)
    for batch in [_rows("images", images)] if in_memory else images:
        for name, value in read_batch(batch, "images").items():
            if name in USUAL:
                fields.setdefault(name, []).append(order.apply(name, _rows(name, value)))
        if sum(map(len, fields["images"])) >= n_images:
            break
    if not fields:
        raise ValueError("Expected argument `images` to give at least one batch but it is empty.")
    fields |= {name: [torch.tensor(np.asarray(value))] for name, value in truth.items()}
    return {name: torch.cat(parts)[:n_images] for name, parts in fields.items()}


def _check_fields(fields: dict[str, Tensor], n: int, n_concepts: int) -> None:
    """Raise where the truth does not fit the images or the concepts; points get an axis of places if they lack it."""
    if "labels" in fields:
        check_shape("labels", fields["labels"], ("N",), (n,))
    if "concept_labels" in fields:
        check_shape("concept_labels", fields["concept_labels"], ("N", "L"), (n, n_concepts))
        to_presence("concept_labels", fields["concept_labels"])
    if "points" in fields:
        if fields["points"].ndim == 3:
            fields["points"] = fields["points"][:, :, None]
        check_shape("points", fields["points"], ("N", "P", "Q", "2"), (n, None, None, 2))


def _rows(name: str, value: Any) -> Tensor:
    """Return a tensor of one row for each image, or raise."""
    tensor = to_tensor(name, value)
    if not tensor.ndim:
        raise ValueError(f"Expected argument `{name}` to have a row for each image but got one number.")
    return tensor


def _numbers(views: ClassViews, model: Any) -> dict[str, Any]:
    """Return what the page computes with: values, the head where it is linear, and what is added past the concepts."""
    values, logits, residual = views.values, views.logits, views.residual
    linear = linear_part(model.head)
    content: dict[str, Any] = {
        "concepts": [readable_name(name) for name in views.names],
        "weak": views.weak,
        "threshold": views.threshold,
        "values": floats(values),
        "logits": floats(logits),
        "ends": [_round_all(ends) for ends in _ends(views, bounded=getattr(model, "bounded", False))],
        "linear": linear is not None,
        "exact": bool(getattr(model, "linear_pool", False)),
    }
    if linear is not None:
        bias = linear.weight.new_zeros(len(linear.weight)) if linear.bias is None else linear.bias
        content |= {"weight": floats(linear.weight), "bias": floats(bias)}
        level, _ = effect_level(model)
        if level is not None:
            content["absent"] = floats(level.expand(values.shape[1]))
        if residual.abs().max() > 1e-5 * (1 + logits.abs().max()):
            content["residual"] = floats(residual)
    else:
        content["parts"] = floats(views.parts)
    content |= {"kind": views.kind, "level": views.level}
    for name in ("random_values", "random_parts"):
        if (range_ := getattr(views, name)) is not None:
            content[name] = [_round_all(row) for row in range_]
    return content


def _ends(views: ClassViews, *, bounded: bool) -> tuple[Tensor, Tensor]:
    """Return each concept's values of absence and presence, (L,) each: the ends of its slider."""
    low, high = views.values.amin(0), views.values.amax(0)
    if bounded:
        return torch.zeros_like(low), torch.ones_like(high)
    if views.random_values is not None:
        low, high = low.minimum(views.random_values.min()), high.maximum(views.random_values.max())
    if views.threshold is not None:
        # As far to either side of the threshold: of one image nothing is known of the other side.
        reach = (low - views.threshold).abs().maximum((high - views.threshold).abs())
        low, high = views.threshold - reach, views.threshold + reach
    return low, high


def _maps(views: ClassViews) -> dict[str, Any]:
    maps = smaller_maps(views.maps)
    low, high = maps.min().item(), maps.max().item()
    high = high if high > low else low + 1.0
    count, h, w = maps.shape[1:]
    sheets = [map_uri(map_, low, high) for map_ in maps]
    start = low if views.map_threshold is None else views.map_threshold
    # A few places of one image would leave all others without colour.
    end = float(np.quantile(maps.numpy(), 0.99))
    scale = {"low": low, "high": high, "from": start, "to": end if end > start else start + 1.0}
    return {"sheets": sheets, "map": scale | {"h": h, "w": w, "columns": tile_columns(count)}}


def _round_all(values: Tensor) -> list[float | None]:
    """Return numbers of five digits; None where one is not finite."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.double().tolist()]


def page_html(title: str, content: dict[str, Any]) -> str:
    """Return the page of `page_content`; raise if it is too large."""
    environment = Environment(
        loader=PackageLoader("quantus_concepts.explorer", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    colours = (mpl.colormaps[PALETTE](np.arange(256))[:, :3] * 255).round().astype(int).tolist()
    # "<" is all that could end the script element early.
    data = json.dumps({**content, "colours": colours}, ensure_ascii=False).replace("<", "\\u003c")
    script = environment.get_template("explorer.js").render()
    more = {"script": Markup(script), "policy": content_policy(script)}
    page = environment.get_template("page.html.j2").render(title=title, data=Markup(data), kind=content["kind"], **more)
    if len(page) > MAX_MEGABYTES * _MEGABYTE:
        n = len(content["pictures"])
        raise ValueError(
            f"The page would have {len(page) / _MEGABYTE:.0f} MB, more than {MAX_MEGABYTES:g}: pass fewer images "
            f"(`n_images`) than {n}, or a smaller `picture_size`."
        )
    # A name need not be text that UTF-8 can hold; in a string of JSON this writes it as it was.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def image_scores(
    views: ClassViews,
    labels: Tensor | None,
    concept_labels: Tensor | None,
    points: Tensor | None,
    parts: np.ndarray | None,
) -> dict[str, tuple[Tensor, bool]]:
    """Return the scores (N,) of the images that are known by name, and whether the lowest is the worst."""
    scores: dict[str, tuple[Tensor, bool]] = {}
    ranked, logits = views.ranking, views.logits
    shares = logits.softmax(1)
    if labels is not None:
        # Undefined, and so last, where the prediction is right.
        scores["confidence when wrong"] = shares.amax(1).masked_fill(logits.argmax(1) == labels, torch.nan), False
    scores["confidence"] = shares.amax(1), True
    if concept_labels is not None:
        top = min(TOP, ranked.shape[1])
        scores[f"CEM of the first {top}"] = cem(ranked, concept_labels, top), True
        if views.threshold is not None:
            present = views.values >= views.threshold
            scores["disagreement with the labels"] = (present != concept_labels.bool()).double().mean(1), False
    if points is not None and parts is not None:
        located = torch.as_tensor(parts)
        chosen = ranked.masked_fill(located < 0, -torch.inf).argmax(1)
        rows = torch.arange(len(ranked))
        size = (views.images.shape[2], views.images.shape[3])
        hits = point_hits(views.maps[rows, chosen], points[rows, located[chosen]].to(views.maps), size)
        scores["CLM of the first located"] = hits[:, 0], True
    return scores


def clear_image(views: ClassViews, labels: Tensor | None) -> int:
    """Return the image the page begins with: its prediction is right and one of its strongest concepts beyond chance.

    Of several it is the most confident one; if there is none, one that meets the first condition, or the second.
    """
    clearness = views.logits.softmax(1).amax(1) / 2
    if labels is not None:
        clearness += 2.0 * (views.predicted == labels)
    if views.random_values is not None:
        strongest = views.parts.abs().topk(min(TOP, views.values.shape[1])).indices
        clearness += 1.0 * (views.values.gather(1, strongest) > views.random_values[:, 1:]).any(1)
    return int(clearness.argmax())


def picture_uri(image: Tensor, size: int) -> str:
    """Return an image (1 or 3, H, W) in [0, 1], at most so many pixels a side, as the address of a WebP picture."""
    levels = np.round(as_picture("images", image) * 255).astype(np.uint8)
    picture = Image.fromarray(levels)
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    return _uri(picture, "webp", quality=_QUALITY, method=4)


def map_uri(maps: Tensor, low: float, high: float) -> str:
    """Return the maps (L, h, w) of an image as the address of one grey PNG picture: tiles in rows, of 256 levels."""
    count, h, w = maps.shape
    columns = tile_columns(count)
    sheet = np.zeros((math.ceil(count / columns) * h, columns * w), dtype=np.uint8)
    levels = ((maps.numpy() - low) / (high - low) * 255).clip(0, 255).round().astype(np.uint8)
    for j, level in enumerate(levels):
        row, column = divmod(j, columns)
        sheet[row * h : (row + 1) * h, column * w : (column + 1) * w] = level
    return _uri(Image.fromarray(sheet), "png", optimize=True)


def tile_columns(count: int) -> int:
    """Return the number of maps in a row of a sheet."""
    return math.ceil(math.sqrt(count))


def smaller_maps(maps: Tensor) -> Tensor:
    """Return maps (N, L, h, w) of at most `MAX_PLACES` a side, averaged where they are larger."""
    size = tuple(min(side, MAX_PLACES) for side in maps.shape[2:])
    return maps if size == tuple(maps.shape[2:]) else interpolate(maps, size, mode="area")


def floats(values: Tensor) -> str:
    """Return numbers as base64 of float32, least byte first."""
    return base64.b64encode(values.detach().cpu().numpy().astype("<f4").tobytes()).decode()


def _uri(picture: Image.Image, kind: str, **settings: object) -> str:
    file = io.BytesIO()
    picture.save(file, kind, **settings)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
