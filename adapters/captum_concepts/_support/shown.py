"""Representations of objects: `repr` on one line, and small HTML tables in a notebook."""

from __future__ import annotations

import base64
import functools
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from captum_concepts._support.files import printable

#: Letters of a line, and of one value in it.
LINE, VALUE = 199, 60
_SHOWN = 3


def one_line(value: Any) -> str:
    """Return a dataclass or a named tuple with its fields."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else value._fields
    return describe(value, **{name: getattr(value, name) for name in names})


def describe(value: Any, /, *facts: str, **settings: Any) -> str:
    """Return the class of an object with facts about it and its settings; those that are None are left out."""
    parts = [f"{name}={show_value(setting)}" for name, setting in settings.items() if setting is not None]
    line = f"{type(value).__name__}({', '.join([*(clip_text(fact, LINE) for fact in facts), *parts])})"
    return line if len(line) <= LINE else f"{line[: LINE - 4]}...)"


def show_value(value: Any) -> str:
    """Return a value as a line shows it: of arrays the shape, of modules and functions the name."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:  # arrays, tensors and tables
        return f"<{tuple(shape)}>"
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return show_value(value.item())
    if isinstance(value, float):
        return repr(value) if len(repr(value)) < 8 else f"{value:.4g}"
    if isinstance(value, Path) and len(str(value)) > VALUE:
        return repr(f"...{str(value)[3 - VALUE :]}")  # its end is what tells it
    if isinstance(value, str | Path):
        return repr(clip_text(str(value), VALUE))
    if isinstance(value, functools.partial):
        return f"partial({show_value(value.func)})"
    if isinstance(value, nn.Module):
        return type(value).__name__
    if name := getattr(value, "__qualname__", ""):
        return str(name).rpartition("<locals>.")[2]
    if isinstance(value, Mapping):
        entries = [f"{show_value(key)}: {show_value(item)}" for key, item in islice(value.items(), _SHOWN)]
        return _list_items(entries, len(value), "{}")
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        items = [show_value(item) for item in islice(value, _SHOWN)]
        return _list_items(items, len(value), "()" if type(value) is tuple else "[]")
    plain: Any = object.__repr__
    text = repr(value) if type(value).__repr__ is not plain else ""
    # Addresses are others in every run.
    fits = 0 < len(text) <= VALUE and "\n" not in text and " at 0x" not in text
    return text if fits else type(value).__name__


def _list_items(first: list[str], length: int, brackets: str) -> str:
    more = [f"... {length - len(first)} more"] if length > len(first) else []
    line = ", ".join([*first, *more]) + ("," if brackets == "()" and length == 1 else "")
    return f"{brackets[0]}{line}{brackets[1]}" if len(line) <= VALUE else f"<{length} in all>"


def clip_text(text: str, length: int) -> str:
    """Truncate a text to `length` characters."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def readable(name: str) -> str:
    """Write the name of a concept for readers: ``has_bill_shape::needle`` is "bill shape: needle"."""
    return name.removeprefix("has_").replace("::", ": ").replace("_", " ")


def signed_text(number: float, digits: int = 1) -> str:
    """Return a number with its sign."""
    return f"{number:+.{digits}f}".replace("-", "−")


#: Rows of a table, concepts listed for a class, letters of a name, pixels a side of a picture.
ROWS, STRONGEST, NAME, PICTURE = 20, 3, 60, 160
#: Numbers of an array that are written out.
_SHORT = 8
# No colour of its own: legible on a light page and on a dark one.
_FAINT = "opacity:0.65;font-size:90%"
_LEFT = "text-align:left"


def bank_html(bank: Any) -> str:
    """Return a concept bank: its concepts, the worst by held-out balanced accuracy first."""
    accuracies = bank.test_accuracy.tolist()
    has_accuracy = not all(map(math.isnan, accuracies))
    # In the given order if none is known: sorting is stable.
    order = sorted(range(len(bank)), key=lambda j: math.inf if math.isnan(accuracies[j]) else accuracies[j])[:ROWS]
    weak = {bank.names.index(name) for name in bank.weak}
    columns = [[name_html(bank.names[j]) for j in order]]
    heads = ["concept"]
    for title, shares in (("balanced accuracy, held out", accuracies), ("p-value", bank.p_values.tolist())):
        if not all(map(math.isnan, shares)):
            columns.append([_share(shares[j]) for j in order])
            heads.append(title)
    if has_accuracy:
        columns.append(["weak" if j in weak else "" for j in order])
        heads.append("")
    note = "worst first; chance is 0.5, below 0.6 is weak" if has_accuracy else "no held-out accuracy is known"
    method = f", method {bank.settings['method']}" if "method" in bank.settings else ""
    title = f"{_count(len(bank), 'concept')} of {bank.cavs.shape[1]} dimensions{method}"
    return _title_html(type(bank).__name__, title) + _table(heads, zip(*columns, strict=True), len(bank), note)


def chain_html(model: Any, linear: nn.Linear | None) -> str:
    """Return a concept model: its stages, and the strongest concepts of each class if the head is linear."""
    theta = None if linear is None else linear.weight.detach().to("cpu", torch.float32)
    names = getattr(model.concept_layer, "names", None)
    n_concepts = model.n_concepts()
    stages = [
        "images",
        _backbone_name(model.features),
        "concepts" if n_concepts is None else _count(n_concepts, "concept"),
        "classes" if theta is None else _count(len(theta), "class"),
    ]
    pool = "maps decompose the values" if model.linear_pool else "maps are local evidence, no decomposition"
    title = _title_html(type(model).__name__, " → ".join(stages)) + _note(pool)
    if theta is None:
        return title + _note(f"head: {show_value(model.head)}, not linear, so no weights to tell by class")
    labels = [str(j) for j in range(theta.shape[1])] if names is None else names
    classes = getattr(model, "class_names", None) or range(len(theta))
    rows = [[name_html(str(k)), _strongest(weights, labels)] for k, weights in zip(classes, theta[:ROWS], strict=False)]
    return title + _table(["class", "strongest concepts by weight"], rows, len(theta), "")


def sample_html(sample: Any, *pictures: str) -> str:
    """Return a sample of a data set: the fields that are pictures, and the others in words."""
    fields = sample._asdict()
    tiles = {name: fields.pop(name) for name in pictures if isinstance(fields[name], Tensor) and fields[name].ndim == 3}
    images = "".join(
        f'<img alt="{name}" style="margin:4px" src="{_picture_uri(tile)}"/>' for name, tile in tiles.items()
    )
    rows = [[name, escape(clip_text(printable(_in_words(name, value)), LINE))] for name, value in fields.items()]
    note = "concepts are counted from 0, as in the data set's concept_names" if "concepts" in fields else ""
    title = _title_html(type(sample).__name__, "")
    return f"{title}<div>{images}</div>{_table(['field', 'value'], rows, len(rows), note)}"


def record_html(record: Any) -> str:
    """Return the record of a metric's call: the mean of its scores, chance, and why scores are undefined."""
    defined = [score for score in record.scores if not math.isnan(score)]
    rows = [["mean", _share(sum(defined) / len(defined) if defined else math.nan)]]
    rows += [["chance", _share(record.chance)]] if not math.isnan(record.chance) else []
    rows += [["defined", str(len(defined))], ["undefined", str(len(record.scores) - len(defined))]]
    rows += [[f"undefined: {name_html(why)}", str(count)] for why, count in record.reasons.items()]
    return _title_html(type(record).__name__, _count(len(record.scores), "score")) + _table(
        ["", ""], rows, len(rows), ""
    )


def name_html(name: str) -> str:
    """Return a name of any content as HTML shows it."""
    return escape(clip_text(printable(name), NAME))


def _in_words(name: str, value: Any) -> str:
    if name == "concepts" and isinstance(value, Tensor) and value.ndim == 1:
        present = value.nonzero().flatten().tolist()
        return f"{len(present)} of {len(value)} present: {', '.join(map(str, present))}"
    short = isinstance(value, Tensor) and value.ndim == 1 and len(value) <= _SHORT
    return show_value(value.tolist()) if short else show_value(value)


def _picture_uri(image: Tensor) -> str:
    """Return an image (C, H, W) as the data URI of a small PNG; values outside [0, 1] are scaled into it."""
    pixels = image.detach().cpu().float().nan_to_num() / (255 if image.dtype == torch.uint8 else 1)
    pixels = pixels if len(pixels) in (1, 3) else pixels.mean(0, keepdim=True)
    low, high = min(0.0, pixels.min().item()), max(1.0, pixels.max().item())
    levels = ((pixels - low) / (high - low) * 255).round().byte().expand(3, -1, -1).permute(1, 2, 0).numpy()
    picture = Image.fromarray(levels)
    picture.thumbnail((PICTURE, PICTURE))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _backbone_name(features: nn.Module) -> str:
    """Return the name of a backbone, and of the layer where it is cut by name."""
    inner, layer = getattr(features, "model", None), getattr(features, "layer", None)
    cut = isinstance(inner, nn.Module) and isinstance(layer, str)
    return f"{show_value(inner)} up to {layer}" if cut else show_value(features)


def _strongest(weights: Tensor, names: Sequence[str]) -> str:
    """Return the concepts of the largest absolute weight, with their signs."""
    order = weights.abs().argsort(descending=True, stable=True)[:STRONGEST].tolist()
    return ", ".join(f"{name_html(names[j])} ({signed_text(weights[j].item(), 2)})" for j in order)


def _title_html(kind: str, text: str) -> str:
    return f"<div><strong>{escape(kind)}</strong> {escape(text)}</div>"


def _note(text: str) -> str:
    return f'<div style="{_FAINT}">{escape(text)}</div>' if text else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], n: int, note: str) -> str:
    """Return a table of cells that are HTML already, and how many rows it leaves out."""
    head = "".join(f'<th style="{_LEFT}">{escape(title)}</th>' for title in heads)
    cells = ["".join(f'<td style="{_LEFT}">{cell}</td>' for cell in row) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    more = [f"and {n - ROWS} more"] if n > ROWS else []
    below = _note("; ".join([*more, note] if note else more))
    return f'<table style="color:inherit"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}'


def _share(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3f}"


def _count(n: int, what: str) -> str:
    return f"{n} {what if n == 1 else f'{what}es' if what.endswith('s') else f'{what}s'}"
