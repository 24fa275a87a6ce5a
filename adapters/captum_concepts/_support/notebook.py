"""Concept banks and concept models as a notebook shows them: small tables that take their colours from the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts._support.files import printable
from captum_concepts._support.shown import clipped, signed, written

#: Rows of a table, concepts listed for a class, letters of a name.
ROWS, STRONGEST, NAME = 20, 3, 60
# No colour of its own: legible on a light page and on a dark one.
_FAINT = "opacity:0.65;font-size:90%"
_LEFT = "text-align:left"


def bank_html(bank: Any) -> str:
    """Return a concept bank: its concepts, the worst by held-out balanced accuracy first."""
    accuracies = bank.test_accuracy.tolist()
    known = not all(map(math.isnan, accuracies))
    # As given where none is known: sorting is stable.
    order = sorted(range(len(bank)), key=lambda j: math.inf if math.isnan(accuracies[j]) else accuracies[j])[:ROWS]
    weak = {bank.names.index(name) for name in bank.weak}
    columns = [[shown_name(bank.names[j]) for j in order]]
    heads = ["concept"]
    for title, shares in (("balanced accuracy, held out", accuracies), ("p-value", bank.p_values.tolist())):
        if not all(map(math.isnan, shares)):
            columns.append([_share(shares[j]) for j in order])
            heads.append(title)
    if known:
        columns.append(["weak" if j in weak else "" for j in order])
        heads.append("")
    note = "worst first; chance is 0.5, below 0.6 is weak" if known else "no held-out accuracy is known"
    method = f", method {bank.settings['method']}" if "method" in bank.settings else ""
    title = f"{_count(len(bank), 'concept')} of {bank.cavs.shape[1]} dimensions{method}"
    return _titled(type(bank).__name__, title) + _table(heads, zip(*columns, strict=True), len(bank), note)


def chain_html(model: Any) -> str:
    """Return a concept model: its stretches, and of a linear head the concepts that speak most for each class."""
    theta, names = _weights(model.head), getattr(model.concept_layer, "names", None)
    n_concepts = model.n_concepts()
    stages = [
        "images",
        _named(model.features),
        "concepts" if n_concepts is None else _count(n_concepts, "concept"),
        "classes" if theta is None else _count(len(theta), "class"),
    ]
    pool = "maps decompose the values" if model.linear_pool else "maps are local evidence, no decomposition"
    title = _titled(type(model).__name__, " → ".join(stages)) + _note(pool)
    if theta is None:
        return title + _note(f"head: {written(model.head)}, not linear, so no weights to tell by class")
    labels = [str(j) for j in range(theta.shape[1])] if names is None else names
    classes = getattr(model, "class_names", None) or range(len(theta))
    rows = [
        [shown_name(str(k)), _strongest(weights, labels)] for k, weights in zip(classes, theta[:ROWS], strict=False)
    ]
    return title + _table(["class", "strongest concepts by weight"], rows, len(theta), "")


def shown_name(name: str) -> str:
    """Return a name of any content as HTML shows it."""
    return escape(clipped(printable(name), NAME))


def _weights(head: nn.Module) -> Tensor | None:
    """Return the weights (K, L) of a linear head on the CPU; None for another form."""
    layers = [layer for layer in head.modules() if next(layer.children(), None) is None]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if len(linear) != 1 or not all(isinstance(layer, nn.Linear | nn.Dropout | nn.Identity) for layer in layers):
        return None
    weights = linear[0].weight
    return None if weights.is_meta else weights.detach().to("cpu", torch.float32)


def _named(features: nn.Module) -> str:
    """Return the name of a backbone, and of the layer where it is cut by name."""
    inner, layer = getattr(features, "model", None), getattr(features, "layer", None)
    cut = isinstance(inner, nn.Module) and isinstance(layer, str)
    return f"{written(inner)} up to {layer}" if cut else written(features)


def _strongest(weights: Tensor, names: Sequence[str]) -> str:
    """Return the concepts of the largest absolute weight, with their signs."""
    order = weights.abs().argsort(descending=True, stable=True)[:STRONGEST].tolist()
    return ", ".join(f"{shown_name(names[j])} ({signed(weights[j].item(), 2)})" for j in order)


def _titled(kind: str, text: str) -> str:
    return f"<div><strong>{escape(kind)}</strong> {escape(text)}</div>"


def _note(text: str) -> str:
    return f'<div style="{_FAINT}">{escape(text)}</div>' if text else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], n: int, note: str) -> str:
    """Return a table of cells that are HTML already, and how many rows it leaves out."""
    head = "".join(f'<th style="{_LEFT}">{escape(each)}</th>' for each in heads)
    cells = ["".join(f'<td style="{_LEFT}">{cell}</td>' for cell in row) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    more = [f"and {n - ROWS} more"] if n > ROWS else []
    below = _note("; ".join([*more, note] if note else more))
    return f'<table style="color:inherit"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}'


def _share(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3f}"


def _count(n: int, what: str) -> str:
    return f"{n} {what if n == 1 else f'{what}es' if what.endswith('s') else f'{what}s'}"
