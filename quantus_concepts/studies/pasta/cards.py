"""Explanations as people see them: on the page on which they rate, on cards and in galleries of a report."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from markupsafe import Markup
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.support.images import load_image
from captum_concepts.texts import readable_name
from quantus_concepts.datasets.ratings.explanation_files import ExplanationFile
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, DrawingExplanation, MapExplanation
from quantus_concepts.pasta.encoders.overlay import overlay_maps, unit_maps
from quantus_concepts.studies._kit.report import render

N_CONCEPTS = 15
#: JPEG quality; with full colour resolution, since maps are red on blue.
QUALITY = 86
MEGABYTE = 1_000_000
#: The page on which people answer.
RATING_PAGE = "rate.html"


def pixels(image: Tensor) -> np.ndarray:
    """Return an image (3, H, W) as (H, W, 3)."""
    return image.detach().cpu().clamp(0, 1).permute(1, 2, 0).numpy()


def resize_image(image: Tensor, longest: int) -> Tensor:
    """Bring an image to the size it is shown in."""
    scale = longest / max(image.shape[1:])
    size = [max(1, round(side * scale)) for side in image.shape[1:]]
    return interpolate(image[None], size, mode="bicubic", antialias=True, align_corners=False)[0].clamp(0, 1)


def shown_picture(explanation: MapExplanation | DrawingExplanation, longest: int) -> Tensor:
    """Return (3, h, w) in [0, 1], its longer side `longest`: a drawing as it is, or a map drawn over its image."""
    if isinstance(explanation, DrawingExplanation):
        return resize_image(explanation.picture, longest)
    image = resize_image(explanation.image, longest)
    return overlay_maps(image[None], unit_maps(explanation.map[None].float(), explanation.normalise or "min-max"))[0]


def encode_image(image: Tensor, kind: str, **settings: int) -> bytes:
    """Encode an image (3, H, W) in [0, 1] as a file of a kind of Pillow's."""
    values = (image * 255).round().to(torch.uint8).permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(values.cpu().numpy())).save(buffer, kind, **settings)
    return buffer.getvalue()


def data_url(image: Tensor) -> str:
    """Return an image as a page embeds it."""
    data = encode_image(image, "JPEG", quality=QUALITY, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode('ascii')}"


def top_concepts(explanation: ConceptExplanation, n: int = N_CONCEPTS) -> list[tuple[str, float]]:
    """Return the most important concepts, the most important first."""
    ordered = sorted(explanation.values.items(), key=lambda pair: (abs(pair[1]), pair[0]), reverse=True)
    return (ordered[::-1] if explanation.ascending else ordered)[:n]


def listed_concepts(explanation: ConceptExplanation, n: int = N_CONCEPTS) -> list[tuple[str, str, float]]:
    """Return the most important concepts as a page lists them: name, value as written, share of the largest."""
    top = top_concepts(explanation, n)
    largest = max(abs(value) for _, value in top) or 1.0
    return [(name, short_number(value), value / largest) for name, value in top]


def short_number(value: float) -> str:
    """Write a concept's value with three digits."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        digits = 2 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
        text = f"{value:.{min(digits, 3)}f}"
    else:
        text = f"{value:.1e}"
    return text.replace("-", "−")


class Gallery:
    """The pictures of a page on which people answer questions, each once."""

    def __init__(self, size: int, max_megabytes: float) -> None:
        self.size = size
        self.max_megabytes = max_megabytes
        self.pictures: dict[str, str] = {}
        self.n_bytes = 0
        self._names: dict[Path, str] = {}

    def section(self, file: ExplanationFile, label: str = "") -> dict[str, object]:
        """Return an image, a label to show with it, and its explanation."""
        if file.image is None:
            raise ValueError(f"People rate an explanation next to its image, but {file.path} has none. Leave it out.")
        section: dict[str, object] = {"image": self.image(file.image), "label": readable_name(label)}
        explanation = file.read()
        if isinstance(explanation, ConceptExplanation):
            section["concepts"] = [[name, text, round(share, 4)] for name, text, share in listed_concepts(explanation)]
        else:
            section["drawn"] = file.modality == "drawing"
            section["map"] = self._add(file.path, shown_picture(explanation, self.size))
        return section

    def image(self, path: Path) -> str:
        """Return the name of an image on the page."""
        return self._names.get(path) or self._add(path, resize_image(load_image(path), self.size))

    def check(self, n_done: int, n_all: int) -> None:
        """Raise where the pictures are too many."""
        if self.n_bytes > self.max_megabytes * MEGABYTE:
            raise ValueError(
                f"The page would be larger than {self.max_megabytes:g} MB: {n_done} of {n_all} "
                f"explanations fill it. Take fewer with --n-items, smaller pictures with --picture-size, or allow "
                "more with --max-megabytes."
            )

    def render(
        self,
        questions: Sequence[Mapping[str, object]],
        items: Sequence[Mapping[str, object]],
        seed: int,
        **content: object,
    ) -> str:
        """Render the page on which people answer questions about items."""
        data = {"questions": questions, "pictures": self.pictures, "items": items, "seed": seed}
        # The browser keeps answers under this name.
        data["id"] = fingerprint_of(questions, items, seed)[:12]
        # Only "<" could end the script element early.
        inside = Markup(json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))
        counts = {"n_items": len(items), "n_questions": len(questions)}
        return render("pasta/sheet.html.j2", script="pasta/sheet.js", data=inside, **counts, **content)

    def _add(self, path: Path, picture: Tensor) -> str:
        # The name tells nothing of the file, so that nobody reads an explainer's name from the page.
        name = self._names[path] = f"p{len(self._names)}"
        self.pictures[name] = data_url(picture)
        self.n_bytes += len(self.pictures[name])
        return name
