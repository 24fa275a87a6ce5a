"""Planted damage to concept models: functions of the rows of predictions, of which each metric should notice some.

A damage is a function ``(rows, t, generator) -> rows`` of all rows of a world (`quantus_concepts.testing.worlds`) and
of its size t in [0, 1]; nothing of a network is run. ``rows.truth["fitted"]`` tells the images to which head and levels
are fitted from those that are scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.models.chain import linear_part, make_linear
from captum_concepts.models.heads import fit_logistic
from captum_concepts.models.interventions import mean_absent_values
from quantus_concepts.metrics.host.predictions import ConceptPredictions

#: Columns of rows: maps (n, L, h, w) and, if there are any, the features (n, d, h, w) of which they are projections.
MAPS = "concept maps"
#: Values (n, P, L) of the same images with a part hidden and, if there are any, their embeddings (n, P, d).
HIDDEN = "values without a part"
#: Truth of rows: to which images head and levels are fitted (N,), and what the network itself predicts (N,).
FITTED, NETWORK = "fitted", "network_classes"
#: Tables of rows: unit directions (L, d) of which values are the projections, and values from which a concept is there.
DIRECTIONS, OFFSETS, THRESHOLDS = "directions", "offsets", "thresholds"
#: Tables of rows: height and width of the images, and how many of them a metric sees at once; all by default.
SIZE, BATCH = "image_size", "batch_size"

Function = Callable[[ConceptPredictions, float, torch.Generator], ConceptPredictions]


@dataclass(frozen=True)
class Damage:
    """A damage of rows, its name in pictures, and what rows have to have for it."""

    title: str
    function: Function
    needs: tuple[str, ...] = ()

    def __call__(self, rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
        """Return rows with damage of size t; at 0 they are as they were."""
        return self.function(rows, t, generator)

    def possible(self, rows: ConceptPredictions) -> bool:
        """Whether the rows have what it needs."""
        known = {*rows.looks, *rows.tables, *(["embedding"] if rows.embedding is not None else [])}
        return known >= {*self.needs}


# Parts of rows.


def fitted(rows: ConceptPredictions) -> Tensor:
    """Return whether head and levels are fitted to an image (N,)."""
    return rows.truth[FITTED].bool()


def linear_head(rows: ConceptPredictions) -> tuple[Tensor, Tensor]:
    """Return weight (K, L) and bias (K,) of the head, in float32."""
    linear = cast(nn.Linear, linear_part(cast(nn.Module, rows.head)))
    weight = linear.weight.detach().float()
    return weight, weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.detach().float()


def settle(rows: ConceptPredictions, *, refit: bool = False, **known: Any) -> ConceptPredictions:
    """Return rows with other parts, whose predictions and absent levels follow from them; the head too with `refit`."""
    rows = replace(rows, **known)
    values, own = cast(Tensor, rows.values), fitted(rows)
    n_classes = rows.about["n_classes"]
    head = fit_logistic(values[own], rows.labels[own], n_classes) if refit else cast(nn.Module, rows.head)
    level = mean_absent_values(values[own], rows.truth["concept_labels"][own])
    # A concept that all images show has no absent level; its lowest value is nearest to one.
    level = torch.where(level.isnan(), values[own].amin(0), level)
    with torch.no_grad():
        predicted = head(values).argmax(1)
    return replace(rows, head=head, predicted=predicted, classes=predicted, tables={**rows.tables, "level": level})


def with_weights(rows: ConceptPredictions, weight: Tensor, bias: Tensor, **known: Any) -> ConceptPredictions:
    """Return rows with another linear head."""
    return settle(rows, head=make_linear(weight, bias, weight.dtype).eval(), **known)


def _with_columns(rows: ConceptPredictions, name: str, change: Callable[[Mapping[str, Tensor]], Any]) -> dict[str, Any]:
    """Return looks in which columns of one are changed; the same where rows lack it."""
    if name not in rows.looks:
        return {"looks": rows.looks}
    look = rows.looks[name]
    return {"looks": {**rows.looks, name: replace(look, columns={**look.columns, **change(look.columns)})}}


def _rows_of(rows: ConceptPredictions, name: str) -> Tensor:
    """Return the numbers of the images that a look saw."""
    places = rows.looks[name].places
    return torch.arange(len(rows)) if places is None else places


def change_values(
    rows: ConceptPredictions, change: Callable[[Tensor, Tensor], Tensor], *, refit: bool = False, **known: Any
) -> ConceptPredictions:
    """Return rows whose values (n, L), of hidden parts too, are changed; `change` gets values and image numbers."""
    numbers = torch.arange(len(rows))
    values = change(cast(Tensor, rows.values), numbers)
    seen = _rows_of(rows, HIDDEN) if HIDDEN in rows.looks else numbers

    def hidden(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        n_parts = columns["values"].shape[1]
        return {"values": torch.stack([change(columns["values"][:, part], seen) for part in range(n_parts)], 1)}

    known = _with_columns(rows, HIDDEN, hidden) | known
    return settle(rows, refit=refit, values=values, **known)


def change_maps(rows: ConceptPredictions, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Return looks with other maps (n, L, h, w)."""
    return _with_columns(rows, MAPS, lambda columns: {"maps": change(columns["maps"])})


def some(n: int, t: float, generator: torch.Generator) -> Tensor:
    """Return a share t of n numbers; those of a smaller share are among them."""
    return torch.randperm(n, generator=generator)[: round(t * n)]


def cycle(n: int, t: float, generator: torch.Generator) -> Tensor:
    """Return a permutation (n,) that moves a share t of all places, each to the next one."""
    moved, order = some(n, t, generator), torch.arange(n)
    if len(moved) > 1:
        order[moved] = moved.roll(1)
    return order


def _scale(rows: ConceptPredictions) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (L,) of the values to which the head is fitted."""
    values = cast(Tensor, rows.values)[fitted(rows)]
    return values.mean(0), values.std(0)


def _rename(rows: ConceptPredictions, order: Tensor) -> ConceptPredictions:
    """Return rows whose concepts have other names: the truth about them changes places, the model stays."""
    names = order.numpy()
    tables = dict(rows.tables)
    for name in ("class_concepts", "training_concepts"):
        if name in tables:
            tables[name] = tables[name][:, names]
    if "part_of_concept" in tables:
        tables["part_of_concept"] = tables["part_of_concept"][names]
    labels = {"concept_labels": rows.truth["concept_labels"][:, order]}
    return settle(rows, tables=tables, truth={**rows.truth, **labels})


# Damages.


def permute_names(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Exchange the names of a share t of the concepts."""
    return _rename(rows, cycle(rows.shape[1], t, generator))


def permute_names_in_parts(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Exchange the names of all concepts of a share t of the parts, among each part's own."""
    parts = rows.tables["part_of_concept"]
    order, every = torch.arange(rows.shape[1]), np.unique(parts)
    for part in every[some(len(every), t, generator).numpy()]:
        own = torch.as_tensor(np.flatnonzero(parts == part))
        order[own] = own.roll(1)
    return _rename(rows, order)


def rotate_directions(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Turn every direction by t right angles towards a random one, and fit the head again."""
    directions, offsets = (torch.as_tensor(rows.tables[name]) for name in (DIRECTIONS, OFFSETS))
    random = torch.randn(directions.shape, generator=generator)
    random -= (random * directions).sum(1, keepdim=True) * directions / (directions**2).sum(1, keepdim=True)
    random *= directions.norm(dim=1, keepdim=True) / random.norm(dim=1, keepdim=True)
    embedding, angle = cast(Tensor, rows.embedding), math.radians(90 * t)
    turned = math.cos(angle) * directions + math.sin(angle) * random
    # Values of the random direction are centred, as those of random banks are.
    shifted = math.cos(angle) * offsets - math.sin(angle) * (embedding[fitted(rows)].mean(0) @ random.T)
    other = torch.randperm(len(directions), generator=generator)

    def maps(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if "features" in columns:
            found = torch.einsum("ld,ndhw->nlhw", turned, columns["features"]) + shifted[None, :, None, None]
        else:
            found = math.cos(angle) * columns["maps"] + math.sin(angle) * columns["maps"][:, other]
        return {"maps": found}

    looks = _with_columns(rows, MAPS, maps)["looks"]
    hidden = _with_columns(
        replace(rows, looks=looks), HIDDEN, lambda columns: {"values": columns["embedding"] @ turned.T + shifted}
    )
    tables = {**rows.tables, DIRECTIONS: turned, OFFSETS: shifted}
    return settle(rows, refit=True, values=embedding @ turned.T + shifted, tables=tables, **hidden)


def entangle(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Mix a share t of the most correlated concept of another part into every value, and fit the head again."""
    own, parts = fitted(rows), torch.as_tensor(rows.tables["part_of_concept"])
    alike = torch.corrcoef(rows.truth["concept_labels"][own].float().T).nan_to_num(0).abs()
    alike[parts[:, None] == parts] = -1
    other, (mean, deviation) = alike.argmax(1), _scale(rows)

    def mix(values: Tensor, numbers: Tensor) -> Tensor:
        scaled = (values - mean) / deviation
        return ((1 - t) * scaled + t * scaled[:, other]) * deviation + mean

    return change_values(rows, mix, refit=True)


def reverse_polarity(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Reverse the sign of a share t of the values and of their weights: no prediction changes."""
    sign = torch.ones(rows.shape[1])
    sign[some(rows.shape[1], t, generator)] = -1
    weight, bias = linear_head(rows)
    looks = change_maps(rows, lambda maps: maps * sign[None, :, None, None])
    rows = replace(rows, head=make_linear(weight * sign, bias, weight.dtype).eval(), **looks)
    return change_values(rows, lambda values, numbers: values * sign)


def exchange_images(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Give a share t of the images the values and maps of another one, and fit the head again."""
    own, order = fitted(rows), torch.arange(len(rows))
    for group in (own, ~own):
        numbers = group.nonzero()[:, 0]
        order[numbers] = numbers[cycle(len(numbers), t, generator)]
    looks = {name: look[order] for name, look in rows.looks.items()}
    known = {} if rows.embedding is None else {"embedding": rows.embedding[order]}
    return settle(rows, refit=True, values=cast(Tensor, rows.values)[order], looks=looks, **known)


def shift_maps(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Move all maps by t times half of the image's width, in one random direction."""
    angle, side = float(torch.rand(1, generator=generator)) * 2 * math.pi, 32

    def shift(maps: Tensor) -> Tensor:
        large = nn.functional.interpolate(maps, size=(side, side), mode="bilinear", align_corners=False)
        steps = (round(t * side / 2 * math.sin(angle)), round(t * side / 2 * math.cos(angle)))
        return large.roll(steps, (2, 3))

    return replace(rows, **change_maps(rows, shift))


def mix_maps(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Mix a share t of the map of a concept of another part into every map."""
    parts = rows.tables["part_of_concept"]
    other = torch.arange(len(parts))
    for concept, part in enumerate(parts):
        others = np.flatnonzero((parts != part) & (parts >= 0))
        if len(others):
            other[concept] = int(others[int(torch.randint(len(others), (1,), generator=generator))])

    def mix(maps: Tensor) -> Tensor:
        low, high = maps.amin((2, 3), keepdim=True), maps.amax((2, 3), keepdim=True)
        scaled = (maps - low) / (high - low + 1e-9)
        return (1 - t) * scaled + t * scaled[:, other]

    return replace(rows, **change_maps(rows, mix))


def permute_head(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Exchange the rows of a share t of the classes in the head."""
    weight, bias = linear_head(rows)
    order = cycle(len(weight), t, generator)
    return with_weights(rows, weight[order], bias[order])


def hide_code(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Mix a share t of a random code of the class that the network predicts into the values, and fit the head again."""
    mean, deviation = _scale(rows)
    n_classes, n_concepts = rows.about["n_classes"], rows.shape[1]
    codes = torch.randn(n_classes, n_concepts, generator=generator).sign() * deviation + mean
    network = rows.truth[NETWORK].long()
    return change_values(rows, lambda values, of: (1 - t) * values + t * codes[network[of]], refit=True)


def recite_class(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Give a share t of the images the usual concepts of the class that the network predicts; fit the head again."""
    deviation = _scale(rows)[1]
    usual = (2 * (torch.as_tensor(rows.tables["class_concepts"]) > 0.5).float() - 1) * deviation
    network = rows.truth[NETWORK].long()
    recites = torch.rand(len(rows), 1, generator=generator) < t
    return change_values(rows, lambda values, of: torch.where(recites[of], usual[network[of]], values), refit=True)


#: The damages, by their names in tables.
DAMAGES: dict[str, Damage] = {
    "names permuted": Damage("names\npermuted", permute_names),
    "names permuted in parts": Damage("names permuted\nwithin a part", permute_names_in_parts, ("part_of_concept",)),
    "directions rotated": Damage("directions\nrotated", rotate_directions, ("embedding", DIRECTIONS)),
    "concepts mixed": Damage("mixed with the\nmost alike concept", entangle, ("part_of_concept",)),
    "polarity reversed": Damage("polarity\nreversed", reverse_polarity),
    "images exchanged": Damage("values of\nother images", exchange_images),
    "maps shifted": Damage("maps\nshifted", shift_maps, (MAPS,)),
    "maps mixed": Damage("another\npart's map", mix_maps, (MAPS, "part_of_concept")),
    "head rows permuted": Damage("head rows\npermuted", permute_head),
    "private code": Damage("private code\nof the class", hide_code),
    "class recited": Damage("class\nrecited", recite_class, ("class_concepts",)),
}


# What must move no score: the same predictions (spec 7), the same rows in another order or in other batches.


def move_zero(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Add a constant to the values of each concept and take it off the head's bias."""
    constant = 0.5 * _scale(rows)[1] * torch.randn(rows.shape[1], generator=generator)
    weight, bias = linear_head(rows)
    tables = {**rows.tables, THRESHOLDS: thresholds(rows) + constant}
    rows = replace(rows, head=make_linear(weight, bias - weight @ constant, weight.dtype).eval(), tables=tables)
    return change_values(rows, lambda values, numbers: values + constant)


def add_to_rows(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Add one vector to all rows of the head, and one number to all biases."""
    weight, bias = linear_head(rows)
    return with_weights(rows, weight + weight.std() * torch.randn(weight.shape[1], generator=generator), bias + 5)


def change_units(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Multiply the values of each concept by a factor and divide its weights by it."""
    factor = torch.exp(0.5 * torch.randn(rows.shape[1], generator=generator))
    weight, bias = linear_head(rows)
    tables = {**rows.tables, THRESHOLDS: thresholds(rows) * factor}
    looks = change_maps(rows, lambda maps: maps * factor[None, :, None, None])
    head = make_linear(weight / factor, bias, weight.dtype).eval()
    return change_values(replace(rows, head=head, tables=tables, **looks), lambda values, numbers: values * factor)


def change_order(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Put the images in another order."""
    return rows[torch.randperm(len(rows), generator=generator)]


def change_batches(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Predict in batches of 32 images."""
    return replace(rows, tables={**rows.tables, BATCH: 32})


UNCHANGED: dict[str, Damage] = {
    "zero moved": Damage("zero moved", move_zero),
    "vector on head rows": Damage("vector on head rows", add_to_rows),
    "units": Damage("units", change_units),
    "order": Damage("order", change_order),
    "batches": Damage("batches", change_batches),
}


def thresholds(rows: ConceptPredictions) -> Tensor:
    """Return the value (L,) from which a concept is present; 0 of margins."""
    known = rows.tables.get(THRESHOLDS)
    return torch.zeros(rows.shape[1]) if known is None else torch.as_tensor(known)


# Models that know nothing of an image's concepts.


def commonest(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Give every image the prevalence of each concept, with noise that only breaks ties, and fit the head."""
    share = rows.truth["concept_labels"][fitted(rows)].float().mean(0) - 0.5

    def of_all(values: Tensor, numbers: Tensor) -> Tensor:
        noise = torch.randn(values.shape, generator=generator)
        return share + 1e-6 * noise

    return change_values(rows, of_all, refit=True)


def mean_maps(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
    """Give every image the mean of all maps."""
    return replace(rows, **change_maps(rows, lambda maps: maps.mean(0, keepdim=True).expand_as(maps).contiguous()))


#: Models that know nothing, by their names in tables.
KNOW_NOTHINGS: dict[str, Damage] = {
    "random concepts": Damage("random concepts", rotate_directions, ("embedding", DIRECTIONS)),
    "private code": Damage("private code", hide_code),
    "class recital": Damage("class recital", recite_class, ("class_concepts",)),
    "other images' values": Damage("other images' values", exchange_images),
    "commonest concepts": Damage("commonest concepts", commonest),
    "place prior": Damage("place prior", mean_maps, (MAPS,)),
}
