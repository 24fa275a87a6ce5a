"""The strongest concepts of images, drawn: maps on one scale, values, and what each adds to the class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Backbone
from captum_concepts.models.interventions import chosen_concepts
from captum_concepts.pictures import gallery
from captum_concepts.pictures.views import (
    ClassViews,
    ConceptViews,
    as_pictures,
    bank_views,
    check_images,
    class_labels,
    concept_views,
    known_normalisation,
)
from captum_concepts.support import checks
from captum_concepts.texts import clip_text, readable_name, signed_text

if TYPE_CHECKING:
    from captum_concepts.bank.bank import ConceptBank

BY = ("effect", "contribution", "value", "weight")
_GREY = "#6e6e6e"
_BAR = 0.9  # inches that a colour bar takes


def show_concepts(
    model: nn.Module | Backbone,
    images: Tensor | ArrayLike,
    top: int = 4,
    *,
    layer: str | None = None,
    bank: ConceptBank | None = None,
    by: str | None = None,
    concepts: str | int | Sequence[str | int] | Tensor | np.ndarray | None = None,
    concept_labels: Tensor | ArrayLike | None = None,
    labels: Tensor | ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    pictures: Tensor | ArrayLike | None = None,
    batch_size: int = 64,
) -> tuple[Figure, np.ndarray]:
    """Draw the strongest concepts of each image: where they are, their values, and what they do for the class.

    A row for each image: the image with the class predicted, the maps of its concepts over it, and a waterfall of
    effects, which says of each concept whether it is present. The effect of a concept is what the logit of that class,
    less the mean of all, loses if the concept is set to its absent level; without a known level (``absent_values`` or
    ``mean_values`` of the model) there are contributions in their place, weight times value, from zero to the logit,
    which depend on what a value of 0 means. All maps share one scale, that of the colour bar, so that they can be
    compared; it is in units of the concept values where the model's formula tells how (`PostHocCBM`, linear
    `BottleneckCBM`), and begins at the threshold from which on a concept is present, where there is one. It ends at the
    99th percentile of the cells above its beginning, so that one hot cell does not make all others invisible; cells
    beyond it have a white frame.

    Below the class is the range of 95 % of the values of random directions, for a model with random banks
    (``PostHocCBM.fit(random_banks=39)``). A concept is grey and has the words "weak direction" if its direction cannot
    be distinguished from random images (p-value of at least .05 or, without one, held-out accuracy below .6). Nothing
    is shown or saved, and pyplot does not know of the figure.

    Parameters
    ----------
    model : nn.Module or Backbone
        A concept model, such as a `PostHocCBM`; with `layer` and `bank` any model; with `bank` a `Backbone`.
    images : Tensor or array
        (N, C, H, W), or one image (C, H, W), as the model takes them.
    top : int
        How many concepts of each image.
    layer : str, optional
        Name of the layer of `model` that `bank` was fitted on, averaged over space where it gives maps.
    bank : ConceptBank, optional
        Concepts of that layer. Without a head on them there are values and maps but no waterfall.
    by : str, optional
        Ranking of the concepts: "effect", "contribution", "value" or "weight", by size for all but the value; by
        default the effect, the contribution without a known level, and the value with a bank.
    concepts : sequence, optional
        Names or indices of the concepts to show, in place of the strongest.
    concept_labels : Tensor or array, optional
        (N, L) of 0 and 1: a tick before the name of a concept that is labelled present, a cross before one that is not.
        A concept whose value is below the threshold is written "no fur", without either.
    labels : Tensor or array, optional
        (N,) of int: the true classes, written under a wrong prediction.
    class_names : sequence of str, optional
        K names; by default those of the model, or numbers.
    pictures : Tensor or array, optional
        (N, 3, H, W) of uint8, or of numbers in [0, 1]: the images as they are shown. By default `images` with the
        normalisation undone that the model, its `Backbone` or timm's configuration of it knows.
    batch_size : int
        Batch size.

    Returns
    -------
    tuple of Figure and np.ndarray
        The figure and its Axes (N, 2 + top), or (N, 1 + top) without a head.

    Raises
    ------
    TypeError
        If `model` is no concept model, and `layer` and `bank` are not given.
    ValueError
        If a shape or a choice does not fit, or the pictures are not in [0, 1].

    See Also
    --------
    show_top_images : One concept over many images.
    plot_coam : One map over its image.
    plot_contributions : One waterfall.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM, show_concepts
    >>> bank = ConceptBank(torch.eye(4), names=["red", "long", "striped", "hooked"])
    >>> cbm = PostHocCBM(nn.Conv2d(3, 4, 3), bank, nn.Linear(4, 5))
    >>> figure, axes = show_concepts(cbm, torch.rand(2, 3, 16, 16), top=3)
    >>> axes.shape  # the image, three maps, the waterfall
    (2, 5)
    >>> figure.savefig("concepts.png")
    """
    checks.check_whole("top", top, 1)
    if by is not None:
        checks.check_choice("by", by, BY)
    # Before the model runs, which may take minutes.
    tiles = _pictures(pictures, images, model)
    views = _compute_views(model, images, layer, bank, batch_size)
    by = (views.kind if isinstance(views, ClassViews) else "value") if by is None else by
    n, n_concepts = views.values.shape
    if concepts is None:
        strength = views.importance(by)
        chosen = (strength if by == "value" else strength.abs()).topk(min(top, n_concepts)).indices
    else:
        chosen = chosen_concepts(concepts, views.names, n, n_concepts).expand(n, -1)
    present = gallery.as_marks("concept_labels", concept_labels, ("N", "L"), (n, n_concepts))
    if labels is not None:
        labels = checks.to_class_indices("labels", labels)
        checks.check_shape("labels", labels, ("N",), (n,))
    names = None
    if isinstance(views, ClassViews):
        names = class_labels(class_names or getattr(model, "class_names", None), views.logits.shape[1])
    maps = views.maps.gather(1, chosen[:, :, None, None].expand(-1, -1, *views.maps.shape[2:]))
    low, high = scale_of(maps, views.map_threshold)
    has_residual = isinstance(views, ClassViews) and bool(views.residual.abs().max() > 1e-4)
    kind = by if by in ("effect", "contribution") else getattr(views, "kind", "")
    names_of_rest = {"effect": f"at the {getattr(views, 'level', '')}", "contribution": "bias"}
    remainder = ("residual and " if has_residual else "") + names_of_rest.get(kind, "")
    rows = []
    for i, js in enumerate(chosen.tolist()):
        rows.append([gallery.Tile(gallery.as_picture("images", tiles[i]), _class_title(views, i, names, labels))])
        for j, map_ in zip(js, maps[i], strict=True):
            value, weak = views.values[i, j].item(), views.weak[j]
            absent = views.threshold is not None and value < views.threshold
            mark = None if present is None or absent else bool(present[i, j])
            # No line ends within "p = 0.87".
            more = "\n" + weak.replace(" = ", "\u00a0=\u00a0") if weak else ""
            title = f"{'no ' if absent else ''}{clip_text(views.names[j], 60)}\n{signed_text(value, 2)}{more}"
            picture = gallery.overlay(tiles[i], map_, coloured="blend", low=low, high=high)
            rows[i].append(gallery.Tile(picture, title, mark, _GREY if weak else None))
    figure, axes = gallery.draw_tiles(rows, last=0.0 if names is None else 2.6, bar=_BAR)
    if isinstance(views, ClassViews):
        for i, row in enumerate(axes):
            there = None if views.threshold is None else views.values[i] >= views.threshold
            plot_contributions(
                views.importance(kind)[i],
                views.names,
                views.totals(kind)[i].item(),
                present=there,
                top=chosen.shape[1],
                rest=remainder,
                total_name="logit less the mean" if kind == "effect" else "logit",
                ax=row[-1],
            )
    _show_scale(figure, axes[:, 1 : 1 + chosen.shape[1]], maps.flatten(0, 1), (low, high), views, tiles.shape[2:])
    return figure, axes


def show_top_images(
    model: nn.Module | Backbone,
    images: Tensor | ArrayLike,
    concept: int | str,
    top: int = 8,
    *,
    layer: str | None = None,
    bank: ConceptBank | None = None,
    concept_labels: Tensor | ArrayLike | None = None,
    pictures: Tensor | ArrayLike | None = None,
    batch_size: int = 64,
) -> tuple[Figure, np.ndarray]:
    """Draw the images in which a concept has its highest values, with its map on one scale.

    Parameters
    ----------
    model : nn.Module or Backbone
        As in `show_concepts`.
    images : Tensor or array
        (N, C, H, W), those to choose from.
    concept : int or str
        Index or name of the concept.
    top : int
        How many images.
    layer : str, optional
        As in `show_concepts`, like all that follow.
    bank : ConceptBank, optional
        Concepts of that layer.
    concept_labels : Tensor or array, optional
        (N, L) of 0 and 1.
    pictures : Tensor or array, optional
        (N, 3, H, W).
    batch_size : int
        Batch size.

    Returns
    -------
    tuple of Figure and np.ndarray
        The figure and its Axes, the image of the highest value first.

    Raises
    ------
    TypeError
        As in `show_concepts`.
    ValueError
        As in `show_concepts`, or if there is no such concept.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM, show_top_images
    >>> bank = ConceptBank(torch.eye(2), names=["red", "blue"])
    >>> cbm = PostHocCBM(nn.Conv2d(3, 2, 3), bank, nn.Linear(2, 5))
    >>> figure, axes = show_top_images(cbm, torch.rand(20, 3, 16, 16), "red", top=4)
    >>> figure.savefig("red.png")
    """
    checks.check_whole("top", top, 1)
    # Before the model runs, which may take minutes.
    tiles = _pictures(pictures, images, model)
    views = _compute_views(model, images, layer, bank, batch_size)
    n, n_concepts = views.values.shape
    (j,) = checks.find_names("concept", views.names, [concept])
    present = gallery.as_marks("concept_labels", concept_labels, ("N", "L"), (n, n_concepts))
    best = views.values[:, j].argsort(descending=True, stable=True)[:top].tolist()
    maps = views.maps[best, j]
    low, high = scale_of(maps, views.map_threshold)
    shown = [
        gallery.Tile(
            gallery.overlay(tiles[i], map_, coloured="blend", low=low, high=high),
            f"image {i}: {signed_text(views.values[i, j].item(), 2)}",
            None if present is None else bool(present[i, j]),
        )
        for i, map_ in zip(best, maps, strict=True)
    ]
    columns = min(len(shown), 4)
    rows = [shown[start : start + columns] for start in range(0, len(shown), columns)]
    figure, axes = gallery.draw_tiles(rows, bar=_BAR)
    title = clip_text(readable_name(views.names[j]), 60) + (f"\n{views.weak[j]}" if views.weak[j] else "")
    colour = _GREY if views.weak[j] else "black"
    figure.suptitle(title, fontsize="medium", parse_math=False, color=colour)
    _show_scale(figure, axes, maps, (low, high), views, tiles.shape[2:])
    return figure, axes.ravel()[: len(shown)]


def plot_contributions(
    contributions: Tensor | ArrayLike,
    names: Sequence[str],
    total: float,
    *,
    present: Tensor | ArrayLike | None = None,
    top: int = 5,
    rest: str = "bias",
    total_name: str = "logit",
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw how the contributions of concepts add up to the logit of a class, as a waterfall.

    The largest contributions come first, then the sum of the other concepts, then what the concepts do not say (the
    bias, and a residual where there is one), then the logit.

    Parameters
    ----------
    contributions : Tensor or array
        (L,), effect, or weight times value, of each concept.
    names : sequence of str
        L names.
    total : float
        The logit, or whatever the contributions are parts of.
    present : Tensor or array, optional
        (L,), bool or 0/1: whether the model calls each concept present, written behind its name: "crown red: no".
    top : int
        How many concepts get a bar of their own.
    rest : str
        Name of the last bar before the logit.
    total_name : str
        Name of the last bar.
    ax : Axes, optional
        Axes to draw on; None for a new figure, which is not registered with pyplot.

    Returns
    -------
    tuple of Figure and Axes
        To go on drawing, or ``fig.savefig(path)``.

    Raises
    ------
    ValueError
        If there is not one name, or one of `present`, for each contribution.

    Examples
    --------
    >>> from captum_concepts import plot_contributions
    >>> names = ["red wing", "long bill"]
    >>> figure, axes = plot_contributions([2.0, -0.5], names, total=1.7, present=[1, 0])
    >>> figure.savefig("contributions.png")
    """
    checks.check_whole("top", top, 1)
    checks.check_finite("total", total)
    parts = checks.to_array("contributions", contributions).astype(float)
    checks.check_shape("contributions", parts, ("L",), (len(names),))
    present = gallery.as_marks("present", present, ("L",), (len(names),))
    order = np.argsort(-np.abs(parts), kind="stable")
    largest, smaller = order[:top], order[top:]
    texts = [clip_text(readable_name(str(name)), 30) for name in names]
    if present is not None:
        texts = [f"{text}: {'yes' if is_there else 'no'}" for text, is_there in zip(texts, present, strict=True)]
    bars = [(texts[j], parts[j]) for j in largest]
    if len(smaller):
        bars.append((f"{len(smaller)} other concept{'s' if len(smaller) > 1 else ''}", parts[smaller].sum()))
    bars.append((clip_text(str(rest), 30), total - parts.sum()))
    if ax is None:
        ax = gallery.TextFigure(figsize=(4, 0.6 + 0.3 * (len(bars) + 1)), layout="constrained").subplots()
    starts = np.cumsum([0.0, *(width for _, width in bars)])
    places = np.arange(len(bars) + 1)
    for place, (start, (_, width)) in enumerate(zip(starts, bars, strict=False)):
        ax.barh(place, width, left=start, height=0.7, color=gallery.MARKS[bool(width >= 0)][1])
    ax.barh(places[-1], total, height=0.7, color=_GREY)
    labels = [f"{name}  {signed_text(width, 2)}" for name, width in bars] + [
        f"{clip_text(total_name, 30)}  {signed_text(total, 2)}"
    ]
    ax.set_yticks(places, labels, fontsize="x-small", parse_math=False)
    ax.set_ylim(len(bars) + 0.6, -0.6)
    ax.axvline(0, color="black", linewidth=0.6)
    ax.tick_params(axis="x", labelsize="x-small")
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return gallery.figure_of(ax), ax


def scale_of(maps: Tensor, threshold: float | None) -> tuple[float, float]:
    """Return the ends of one scale of several maps: the threshold, or the least, and the 99th percentile above it."""
    low = maps.min().item() if threshold is None else threshold
    above = maps[maps > low].flatten()
    high = above.sort().values[int(0.99 * (len(above) - 1))].item() if len(above) else low
    # Where nothing reaches the threshold, nothing is coloured.
    return low, high if high > low else low + 1.0


def _compute_views(
    model: nn.Module | Backbone,
    images: Tensor | ArrayLike,
    layer: str | None,
    bank: ConceptBank | None,
    batch_size: int,
) -> ConceptViews:
    checks.check_whole("batch_size", batch_size, 1)
    if bank is not None and (layer is not None or isinstance(model, Backbone)):
        return bank_views(model, layer, bank, images, batch_size)
    if layer is not None or bank is not None:
        missing = "layer" if layer is None else "bank"
        raise ValueError(f"Expected arguments `layer` and `bank` together but `{missing}` is missing.")
    return concept_views(model, images, batch_size)


def _pictures(pictures: Tensor | ArrayLike | None, images: Tensor | ArrayLike, model: nn.Module | Backbone) -> Tensor:
    """Return the images as they are shown, (N, 1 or 3, H, W), or raise if they cannot be drawn."""
    tensor = check_images(images)
    name, n = "images", len(tensor)
    if pictures is None:
        tensor = as_pictures(tensor, known_normalisation(model))
    else:
        name, tensor = "pictures", check_images(pictures, "pictures")
        if len(tensor) != n:
            raise ValueError(f"Expected argument `pictures` to hold N = {n} images but got {len(tensor)}.")
    gallery.check_levels(name, tensor.min().item(), tensor.max().item())
    return tensor


def _class_title(views: ConceptViews, i: int, names: list[str] | None, labels: Tensor | None) -> str:
    if not isinstance(views, ClassViews) or names is None:
        return ""
    shares = views.logits[i].softmax(0)
    k = int(shares.argmax())
    title = f"{clip_text(names[k], 40)} ({shares[k]:.0%})"
    if views.random_values is not None:
        low, high = views.random_values[i].tolist()
        title = f"{title}\nrandom {signed_text(low)} to {signed_text(high)}"
    true = None if labels is None else int(labels[i])
    return title if true is None or true == k else f"{title}\nlabel: {clip_text(names[true], 40)}"


def _show_scale(
    figure: Figure,
    axes: np.ndarray,
    maps: Tensor,
    ends: tuple[float, float],
    views: ConceptViews,
    size: Sequence[int],
) -> None:
    """Draw the colour bar of maps (n, h, w) on one scale, and frame cells beyond its end by a twentieth of it."""
    low, high = ends
    clipped = maps > high + 0.05 * (high - low)
    rows, columns = size[0] / maps.shape[1], size[1] / maps.shape[2]
    for ax, cells in zip(axes.ravel(), clipped, strict=False):
        for y, x in cells.nonzero().tolist():
            corner = x * columns - 0.5, y * rows - 0.5
            ax.add_patch(Rectangle(corner, columns, rows, fill=False, edgecolor="white", linewidth=1))
    colours = ScalarMappable(Normalize(low, high), mpl.colormaps[gallery.PALETTE])
    extend = "max" if clipped.any() else "neither"
    bar = figure.colorbar(colours, ax=list(axes.ravel()), shrink=0.8, pad=0.01, aspect=30, extend=extend)
    bar.ax.tick_params(labelsize="x-small")
    bar.set_label(
        "concept map, in units of the value" if views.map_threshold is not None else "concept map", size="x-small"
    )
