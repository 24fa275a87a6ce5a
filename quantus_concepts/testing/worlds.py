"""Worlds in which damage is planted: a model that is right, one that was trained, and rows of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.backbones.embedding import as_loader, read_batch, stacked
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import linear_part
from captum_concepts.models.effects import ABSENT_LEVEL
from captum_concepts.models.heads import fit_logistic
from captum_concepts.support.checks import check_choice, to_numpy
from captum_concepts.support.running import evaluation_mode, floating_images, progress, to_model
from quantus_concepts.functional import hide_part
from quantus_concepts.metrics.host.looks import Looked
from quantus_concepts.metrics.host.predictions import ConceptPredictions, facts_of
from quantus_concepts.painted.images import painted_birds, sample_loader
from quantus_concepts.painted.subject import POST_HOC, painted_subject
from quantus_concepts.testing.damages import DIRECTIONS, FITTED, HIDDEN, MAPS, NETWORK, OFFSETS, SIZE, settle

#: The worlds that have a name.
RIGHT, TRAINED = "right", "trained"
World = str | ConceptPredictions | Callable[[int], ConceptPredictions]
#: Painted birds of a world: pixels, classes, concepts.
_BIRDS = {"image_size": 64, "n_classes": 10, "n_concepts": 30}


def world_maker(world: World) -> Callable[[int], ConceptPredictions]:
    """Return what makes the rows of a world from a seed.

    Parameters
    ----------
    world : str, ConceptPredictions or callable
        "right", "trained", rows of a model of one's own with concept labels, or a function of a seed.

    Returns
    -------
    callable
        Seed to rows, which have ``truth["fitted"]``.

    Raises
    ------
    ValueError
        If there is no such world, or rows lack concept labels or values.
    """
    if isinstance(world, ConceptPredictions):
        rows = prepare(world)
        return lambda seed: half_of(rows, seed)
    if callable(world):
        return lambda seed: prepare(world(seed))
    check_choice("world", world, [RIGHT, TRAINED])
    return right_world if world == RIGHT else trained_world


def right_world(seed: int, n_fitted: int = 600, n_scored: int = 300) -> ConceptPredictions:
    """Return the rows of a model that is right: labels of painted birds with a planted embedding, without training.

    Concept j is coordinate j of a rotated space, +1 or -1 by its label, with noise of deviation 1/2; ten more
    coordinates hold the class, another ten only noise. Maps are Gaussians at the annotated parts; where a part is
    hidden, the coordinates of its concepts shrink to a fifth.
    """
    generator = torch.Generator().manual_seed(seed)
    settings = {**_BIRDS, "seed": seed}
    train, test = painted_birds(
        (settings | {"split": "train"}, 0, n_fitted), (settings | {"split": "test"}, 0, n_scored)
    )
    labels, classes = (
        torch.cat([getattr(part, name) for part in (train, test)]) for name in ("concept_labels", "labels")
    )
    n_classes, n_concepts = _BIRDS["n_classes"], _BIRDS["n_concepts"]
    width = n_concepts + n_classes + 10
    basis = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]

    def noise(*shape: int) -> Tensor:
        return 0.5 * torch.randn(shape, generator=generator)

    planted = 2 * labels.float() - 1 + noise(*labels.shape)
    of_class = 1.5 * functional.one_hot(classes.long(), n_classes) + noise(len(classes), n_classes)
    space = torch.cat([planted, of_class, noise(len(classes), 10)], 1)
    directions, parts = basis[:, :n_concepts].T.contiguous(), test.part_of_concept
    points = torch.cat([train.points, test.points])
    # Hidden parts and maps are of the images that are scored.
    hidden = space[n_fitted:, None].repeat(1, test.points.shape[1], 1)
    for part in range(test.points.shape[1]):
        hidden[:, part, :n_concepts][:, parts == part] *= 0.2
    maps = _gaussians(test.points)[:, parts.clamp(min=0)] * (parts >= 0)[None, :, None, None]
    maps = maps + 0.1 * torch.rand(maps.shape, generator=generator)
    scored = torch.arange(n_fitted, len(space))
    embedding, hidden = space @ basis.T, hidden @ basis.T
    rows = ConceptPredictions(
        classes=classes,
        values=embedding @ directions.T,
        embedding=embedding,
        truth={
            "labels": classes,
            "concept_labels": labels.to(torch.uint8),
            "points": points,
            FITTED: torch.arange(len(space)) < n_fitted,
        },
        looks={
            MAPS: Looked({"maps": maps}, places=scored),
            HIDDEN: Looked({"values": hidden @ directions.T, "embedding": hidden}, places=scored),
        },
        tables={
            "class_concepts": test.class_concepts.float().numpy(),
            "part_of_concept": parts.numpy(),
            DIRECTIONS: directions,
            OFFSETS: torch.zeros(n_concepts),
            SIZE: (_BIRDS["image_size"],) * 2,
        },
        about={
            **{"values": "margin", "bank_values": "margin", "bounded": False, "n_classes": n_classes},
            **{"kind": "planted model", "zero": "zero at the margin", "effect": ABSENT_LEVEL},
        },
    )
    return prepare(rows)


def _gaussians(points: Tensor, size: int = 64, side: int = 16) -> Tensor:
    """Return maps (n, P, side, side) at the first place of each part; zero where it is hidden."""
    first = points[:, :, 0]
    pixels = (torch.arange(side) + 0.5) * (size / side) - 0.5
    distance = (first[..., 0, None, None] - pixels) ** 2 + (first[..., 1, None, None] - pixels[:, None]) ** 2
    return torch.exp(-distance / (2 * 6**2)).nan_to_num(0)


def trained_world(seed: int, n_fitted: int = 1000, n_scored: int = 300, epochs: int = 12) -> ConceptPredictions:
    """Return the rows of a post-hoc CBM of painted birds, whose network is trained for it (about 15 s)."""
    subject = painted_subject(n_fitted, n_scored, epochs=epochs, random_directions=3, seed=seed)
    model = cast(PostHocCBM, subject.models[POST_HOC])
    return predict_world(model, sample_loader(subject.train, 64), subject.loader())


@torch.no_grad()
def predict_world(
    model: PostHocCBM, fitted: Iterable[Any], scored: Iterable[Any], *, display_progressbar: bool = False
) -> ConceptPredictions:
    """Return the rows of a post-hoc CBM for `meta_evaluate`: values, embeddings, maps, and its values of hidden parts.

    Parameters
    ----------
    model : PostHocCBM
        The concept model; it is left as it was.
    fitted : iterable
        Batches of the images that the model was fitted to, as `score_concepts` takes them, with concept labels.
    scored : iterable
        Batches of other images, whose scores count; over a data set that knows the classes' concepts and the parts.
    display_progressbar : bool
        Whether bars show the batches.

    Returns
    -------
    ConceptPredictions
        The rows of both, with ``truth["fitted"]``. An image that is scored keeps its maps: 4 (d + L) bytes a place.

    Raises
    ------
    ValueError
        If batches have no classes or concept labels.

    Examples
    --------
    >>> from quantus_concepts import CEM, painted_subject
    >>> from quantus_concepts.testing import meta_evaluate, predict_world
    >>> subject = painted_subject(60, 40, image_size=32, epochs=1, random_directions=1)
    >>> rows = predict_world(subject.models["post-hoc CBM"], subject.loader(), subject.loader())
    >>> frame = meta_evaluate(
    ...     [CEM()], world=rows, damages=["names permuted"], worlds=2, repetitions=1
    ... )
    >>> len(frame) > 8
    True
    """
    data = getattr(scored, "dataset", None)
    parts = getattr(data, "part_of_concept", None)
    sees = parts is not None and bool((torch.as_tensor(parts) >= 0).any())
    bank, n_classes = model.bank, cast(nn.Linear, linear_part(model.head)).out_features
    directions, offsets = bank.cavs.float(), bank.intercepts.float()
    if model.values == "margin":
        directions, offsets = directions / bank.norms[:, None], offsets / bank.norms
    else:
        offsets = torch.zeros_like(offsets)
    about = {**facts_of(model, n_classes), "effect": ABSENT_LEVEL}
    tables: dict[str, Any] = {DIRECTIONS: directions.cpu(), OFFSETS: offsets.cpu()}
    tables |= {} if parts is None else {"part_of_concept": to_numpy(parts)}
    table = getattr(data, "class_concepts", None)
    tables |= {} if table is None else {"class_concepts": to_numpy(table).astype(np.float32)}
    found = []
    with evaluation_mode(model):
        for loader, is_fitted in ((fitted, True), (scored, False)):
            for batch in progress(stacked(as_loader(loader)), "predicting", show=display_progressbar, unit="batch"):
                rows, size = _predict(model, read_batch(batch), is_fitted=is_fitted, sees=sees and not is_fitted)
                found.append(rows)
    tables |= {SIZE: size} if sees else {}
    return prepare(replace(ConceptPredictions.join(found), tables=tables, about=about))


def _predict(
    model: PostHocCBM, batch: dict[str, Any], *, is_fitted: bool, sees: bool
) -> tuple[ConceptPredictions, tuple[int, int]]:
    """Return the rows of a batch, and the size of its images."""
    images = to_model(model, floating_images(batch["images"]))
    features = model.features(images)
    embedding = model.embed_features(features)
    layer, looks = model.concept_layer, {}
    points = torch.as_tensor(batch["points"]) if sees else None
    if points is not None:
        points = points if points.ndim == 4 else points[:, :, None]
        maps = {"maps": model.maps_from_features(features).float().cpu()}
        if model.linear_pool:
            maps["features"] = model.feature_maps(features).float().cpu()
        hidden = []
        for part in points.unbind(1):
            without = model.embed_features(model.features(hide_part(images, part)))
            hidden.append(without.masked_fill(part.isnan().any(-1).all(1)[:, None].to(without.device), torch.nan))
        of_parts = torch.stack(hidden, 1)
        looks[MAPS] = Looked(maps)
        looks[HIDDEN] = Looked({"values": layer(of_parts).float().cpu(), "embedding": of_parts.float().cpu()})
    labels = torch.as_tensor(batch["labels"]).long()
    truth = {"labels": labels, "concept_labels": torch.as_tensor(batch["concept_labels"]).to(torch.uint8)}
    truth[FITTED] = torch.full((len(labels),), is_fitted)
    if "points" in batch and batch["points"] is not None:
        points = torch.as_tensor(batch["points"]).float()
        truth["points"] = points if points.ndim == 4 else points[:, :, None]
    values = layer(embedding).float().cpu()
    rows = ConceptPredictions(
        classes=labels, values=values, embedding=embedding.float().cpu(), truth=truth, looks=looks, head=model.head
    )
    return rows, (int(images.shape[-2]), int(images.shape[-1]))


def prepare(rows: ConceptPredictions) -> ConceptPredictions:
    """Return rows whose head is fitted to the images that are marked, with what the network itself predicts.

    The network's answer is that of a logistic head on its embedding; without embedding that of the model's own head.
    """
    if rows.values is None or "concept_labels" not in rows.truth:
        raise ValueError(
            "Expected argument `world` to be rows with concept values and truth `concept_labels`, but they lack "
            f"{'values' if rows.values is None else '`concept_labels`'}. Pass them to `predict_concepts`."
        )
    truth = dict(rows.truth)
    if FITTED not in truth:
        # Every other image of a class.
        truth[FITTED] = _places_in_class(rows.labels) % 2 == 0
    own = truth[FITTED].bool()
    n_classes = rows.about.get("n_classes") or int(rows.labels.max()) + 1
    about = {**rows.about, "n_classes": n_classes}
    about["effect"] = about.get("effect") or ABSENT_LEVEL
    rows = settle(replace(rows, truth=truth, about=about), refit=True)
    if NETWORK not in truth:
        network = cast(Tensor, rows.predicted)
        if rows.embedding is not None:
            head = fit_logistic(rows.embedding[own], rows.labels[own], n_classes)
            with torch.no_grad():
                network = head(rows.embedding).argmax(1)
        truth[NETWORK] = network
    if "class_concepts" not in rows.tables:
        labels, members = truth["concept_labels"].float(), functional.one_hot(rows.labels.long(), n_classes).float()
        known = members.sum(0).clamp(min=1)[:, None]
        rows = replace(rows, tables={**rows.tables, "class_concepts": ((members.T @ labels) / known).numpy()})
    return replace(rows, truth=truth)


def _places_in_class(labels: Tensor) -> Tensor:
    """Return the number (n,) of each image among those of its class."""
    of_class = functional.one_hot(labels.long()).cumsum(0)
    return of_class.gather(1, labels.long()[:, None])[:, 0] - 1


def half_of(rows: ConceptPredictions, seed: int) -> ConceptPredictions:
    """Return rows of which half the images of each class that are scored are left out, others for each seed.

    The deviation of a score over such halves is that over samples of images as many as there are.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator)
    scored = order[~rows.truth[FITTED].bool()[order]]
    kept = scored[_places_in_class(rows.labels[scored]) % 2 == 0]
    return rows[torch.cat([rows.truth[FITTED].bool().nonzero()[:, 0], kept.sort().values])]
