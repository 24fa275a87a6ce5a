"""Reading the batches of a loader, and running a backbone once over them to get pooled embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, Subset

from captum_concepts.backbones.backbone import Backbone, factory_of
from captum_concepts.backbones.pooling import Maps, Pool, Pooling, resolve_stages
from captum_concepts.support import running
from captum_concepts.support.checks import check_shape, to_class_indices, to_presence
from captum_concepts.texts import in_one_line

T = TypeVar("T")
#: Fields of a batch, in the order of a tuple; others have a name, in a mapping or a named tuple.
USUAL = ("images", "labels", "concept_labels", "points")
#: Names of images and labels in processors and data sets of Hugging Face.
_OTHER_NAMES = {"pixel_values": "images", "image": "images", "label": "labels"}


#: Images alone; images, labels and concept labels in this order; or fields by name.
LoaderBatch = Tensor | np.ndarray | Sequence[object] | Mapping[str, object]


@in_one_line
class Embeddings(NamedTuple):
    """Pooled embeddings of a data set, with the labels that the loader gives.

    Attributes
    ----------
    features : Tensor
        (N, d), on the device of the backbone.
    labels : Tensor or None
        (N,) of int64: classes, where the loader gives them.
    concept_labels : Tensor or None
        (N, L) of 0 and 1, where the loader gives them.
    """

    features: Tensor
    # Any: whoever fits to them knows that the loader gave them.
    labels: Any
    concept_labels: Any


def embed(
    features: nn.Module | Backbone,
    loader: Iterable[LoaderBatch],
    *,
    pool: Pool = "mean",
    maps: Maps | None = None,
    display_progressbar: bool = False,
) -> Embeddings:
    """Run a backbone once over the images of a loader, in eval mode and without gradient.

    The result can be kept and used for many banks and heads (`ConceptBank.fit`, `fit_logistic`).

    Parameters
    ----------
    features : nn.Module or Backbone
        As in `PostHocCBM`; left as it was.
    loader : iterable or Dataset
        A data set of single images, or batches ``(images, labels, concept_labels, ...)``, ``(images, labels)`` or
        ``(images,)``, or dicts of these names; "pixel_values" and "label", as processors and data sets of Hugging Face
        give them, are images and labels. Images are brought to the device and type of the backbone, and those of uint8
        are divided by 255. They are not
        normalised: do this before, if the backbone expects it.
    pool : "mean" or callable
        As in `PostHocCBM`.
    maps : callable, optional
        As in `PostHocCBM`.
    display_progressbar : bool
        Whether to show progress over the batches.

    Returns
    -------
    Embeddings
        In the order of the loader.

    Raises
    ------
    ValueError
        If the loader is empty or its batches have another form.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import embed
    >>> images, labels = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> embed(nn.Conv2d(3, 6, 3), [(images, labels)]).features.shape
    torch.Size([4, 6])
    """
    module, pooling = resolve_stages(features, pool, maps)
    return embed_batches(module, pooling, loader, 1, display_progressbar)


def embed_batches(
    features: nn.Module,
    pooling: Pooling,
    loader: Iterable[LoaderBatch] | Dataset[LoaderBatch],
    required: int,
    display_progressbar: bool,
    width: int | None = None,
) -> Embeddings:
    """Do the work of `embed`, insisting on the first items of each batch, and on a width of the embeddings."""
    reference = running.first_floating(features)
    rows: list[Tensor] = []
    labels: list[Tensor] = []
    concepts: list[Tensor] = []
    # A loader draws a seed for its workers, and often its order, from the global generator.
    with (
        running.keep_generators(running.device_of(features)),
        running.evaluation_mode(features, pooling),
        torch.no_grad(),
    ):
        batches = running.progress(as_loader(loader), "Embedding images", show=display_progressbar, leave=True)
        for batch in stacked(batches):
            items = _check_batch(batch, required)
            images = running.floating_images(items["images"])
            if not rows:
                _warn_of_levels(images, pooling.normalisation)
            images = images if reference is None else running.to_model(features, images)
            output = _run_backbone(features, images)
            if not rows and pooling.pool == "mean":
                _warn_of_logits(features, output)
            rows.append(pooling(output, width))
            # Otherwise the maps of two batches would be in memory together.
            del output
            n = len(rows[-1])
            if "labels" in items:
                labels.append(_check_labels(items["labels"], n))
            if "concept_labels" in items:
                check_shape("concept_labels", items["concept_labels"], ("N", "L"), (n, None))
                to_presence("concept_labels", items["concept_labels"])
                concepts.append(items["concept_labels"])
    if not rows:
        raise ValueError("Expected argument `loader` to give at least one batch but it is empty.")
    embeddings = torch.cat(rows)
    return Embeddings(
        embeddings,
        torch.cat(labels).to(embeddings.device) if labels else None,
        torch.cat(concepts).to(embeddings.device) if concepts else None,
    )


def as_loader(loader: Iterable[LoaderBatch] | Dataset[LoaderBatch], batch_size: int = 64) -> Iterable[LoaderBatch]:
    """Return what gives batches: a data set of single images in a loader, anything else as it is."""
    if not isinstance(loader, Dataset) or isinstance(loader, IterableDataset):
        return loader
    # Some data sets give batches.
    images = read_batch(loader[0], "loader")["images"]
    return DataLoader(loader, batch_size=batch_size) if images.ndim == 3 else loader  # type: ignore[return-value]


def stacked(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches of a loader; a ValueError with the remedy if its images differ in size."""
    try:
        yield from batches
    except RuntimeError as error:
        if "to be equal size" not in str(error):
            raise
        raise ValueError(
            "Expected argument `loader` to give images of one size, but those of a batch differ and cannot be stacked. "
            "Pass `image_size` to a data set of this package; otherwise resize and crop in its `transform`."
        ) from error


def gives_in_order(loader: object) -> bool:
    """Return whether a loader gives the images of its data set in their order; what is no DataLoader has its own."""
    if not isinstance(loader, DataLoader):
        return True
    if isinstance(loader.dataset, IterableDataset):
        # Of several workers each gives batches of its own.
        return loader.num_workers < 2
    # Of a batch sampler of the user's own the DataLoader's sampler says nothing.
    sampler = getattr(loader.batch_sampler, "sampler", None) if type(loader.batch_sampler) is BatchSampler else None
    return type(loader.sampler if loader.batch_sampler is None else sampler) is SequentialSampler


def check_order(loader: object, truth: Iterable[str], name: str = "loader") -> None:
    """Raise if truth of images is given next to a loader that may give them in another order."""
    names = " and ".join(f"`{argument}`" for argument in dict.fromkeys(truth))
    if names and not gives_in_order(loader):
        raise ValueError(
            f"Expected argument `{name}` to give images in the order of {names} but it has a sampler of its own and "
            f"may shuffle them. Make it with shuffle=False, or let it give {names} with the images."
        )


def whole_data_set(dataset: object) -> tuple[Any, np.ndarray | None]:
    """Return a data set of which another one is a part, or a part of a part, and its rows; None for all."""
    rows = None
    while isinstance(dataset, Subset):
        indices = np.asarray(dataset.indices, dtype=np.int64)
        rows = indices if rows is None else indices[rows]
        dataset = dataset.dataset
    return dataset, rows


def _run_backbone(features: nn.Module, images: Tensor) -> Any:
    """Run the backbone; re-raise its errors with the input shape."""
    try:
        return features(images)
    except RuntimeError as error:
        error.add_note(
            f"Raised by `features` (or `backbone`), of type {type(features).__name__}, on images of shape "
            f"{tuple(images.shape)}. It has to take images: a layer inside a network does not; "
            "`LayerFeatures(model, layer)` runs the network up to it."
        )
        raise


def _warn_of_levels(images: Tensor, normalisation: tuple[Sequence[float], Sequence[float]] | None) -> None:
    """Warn of images that seem to hold levels of 0 to 255 or of 0 to 1, as no normalisation leaves them."""
    if images.ndim != 4 or images.shape[1] != 3 or not images.numel() or images.amin() < 0:
        return
    highest = float(images.amax())
    # In a normalised image everything darker than the mean is negative.
    if highest <= 1 and images.amin() < highest and normalisation is not None and min(normalisation[0]) > 0:
        mean, deviation = ([round(float(number), 3) for number in values] for values in normalisation)
        running.warn_user(
            f"Images of the first batch lie in 0 to 1: they seem not to be normalised, though the model wants a mean "
            f"of {mean} and a deviation of {deviation} taken out. `Backbone.normalise` does, and so does the model's "
            "own transform or processor."
        )
    if highest > 50:
        running.warn_user(
            f"Images of the first batch reach {highest:.0f}: they seem to hold levels of 0 to 255. Give "
            "what the network was trained on, in general levels divided by 255 and normalised."
        )


def _warn_of_logits(features: nn.Module, output: Any) -> None:
    """Warn where a network that ends in a linear layer is run to its end: its classes are no embedding."""
    # In eval mode these two do nothing.
    idle = (nn.Identity, nn.Dropout)
    leaves = [(name, part) for name, part in features.named_modules() if not any(part.children())]
    name, last = next((leaf for leaf in reversed(leaves) if not isinstance(leaf[1], idle)), ("", None))
    # Models of transformers give an object.
    output = getattr(output, "logits", output)
    if type(last) is nn.Linear and getattr(output, "shape", ())[1:] == (last.out_features,):
        running.warn_user(
            f"Argument `features` (or `backbone`) is run to its last layer, the linear {name!r}, whose "
            f"{last.out_features} outputs are taken for the embedding. If they are class logits, cut the network: "
            f"`{factory_of(features) or 'from_torchvision'}(model)`, or `LayerFeatures(model, layer)` with the last "
            "layer that gives maps (N, d, h, w)."
        )


def read_batch(batch: LoaderBatch, name: str = "loader") -> dict[str, Any]:
    """Return the fields of a batch: images alone, a tuple or list in order, or a mapping by name."""
    if isinstance(batch, Tensor | np.ndarray):
        return {"images": batch}
    if isinstance(batch, Mapping):
        # A field's own name has precedence.
        renamed = {_OTHER_NAMES.get(str(key), str(key)): value for key, value in batch.items()}
        named = renamed | {str(key): value for key, value in batch.items()}
        fields = {field: value for field, value in named.items() if value is not None}
        if "images" not in fields:
            raise ValueError(
                f"Expected argument `{name}` to give dicts with the keys {list(USUAL)} (or 'pixel_values' and "
                f"'label'), of which all but the first may be missing, but got {[str(key) for key in batch]}."
            )
        return fields
    if not isinstance(batch, tuple | list):
        raise ValueError(
            f"Expected argument `{name}` to give batches, tensors, tuples or dicts, but got {type(batch).__name__}."
        )
    fields = dict(zip(USUAL, batch, strict=False))
    # The fifth item of a plain tuple has no known meaning.
    further = {field: getattr(batch, field) for field in getattr(batch, "_fields", ())[len(USUAL) :]}
    return fields | {field: value for field, value in further.items() if value is not None}


def _check_batch(batch: LoaderBatch, required: int) -> dict[str, Tensor]:
    """Return images, labels and concept labels by name, as many as there are."""
    fields = ("images", "labels", "concept_labels")
    batch_fields = read_batch(batch)
    if any(name not in batch_fields for name in fields[:required]):
        raise ValueError(
            f"Expected argument `loader` to give batches that start with ({', '.join(fields[:required])}), or dicts of "
            f"them, but got {', '.join(batch_fields) or 'nothing'}. To `PostHocCBM.fit` concept labels can also be "
            "passed as `concept_labels` (N, L), or a fitted `bank`."
        )
    items = {name: batch_fields[name] for name in fields if name in batch_fields}
    for name, item in items.items():
        if not isinstance(item, Tensor):
            raise ValueError(
                f"Expected argument `loader` to give {name} as a tensor but got {type(item).__name__}. A data set "
                "gives single images: pass DataLoader(dataset, batch_size=50)."
            )
    if items["images"].ndim < 2:
        raise ValueError(f"Expected argument `loader` to give images but got shape {tuple(items['images'].shape)}.")
    return items


def _check_labels(labels: Tensor, n: int) -> Tensor:
    indices = to_class_indices("labels", labels)
    check_shape("labels", indices, ("N",), (n,))
    if (indices < 0).any():
        raise ValueError(
            "Expected argument `loader` to give `labels` that are class indices, from 0, but got the smallest value "
            f"{int(indices.min())}."
        )
    return indices
