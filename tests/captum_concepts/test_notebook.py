"""Banks, models, samples and records in a notebook: well-formed, what they hold, and no name that is not a text."""

from __future__ import annotations

import base64
import io
import math
import re
from xml.etree import ElementTree

import numpy as np
import torch
from PIL import Image
from torch import nn

from captum_concepts import BottleneckCBM, ConceptBank, LayerFeatures, PostHocCBM
from quantus_concepts.datasets import PaintedBirds, PaintedSubstitutions
from quantus_concepts.metrics.host.record import Record

TAGS = {"body", "div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=1>', "&amp; $x$", "a\x00\u202eb", "x" * 500]


def parse_html(html: str) -> ElementTree.Element:
    root = ElementTree.fromstring(f"<body>{html}</body>")
    assert {node.tag for node in root.iter()} <= TAGS
    assert {name for node in root.iter() for name in node.attrib} <= {"style"}
    # Neither light nor dark.
    assert not any(word in html.replace("color:inherit", "") for word in ("color", "background", "border"))
    return root


def rows_of(html: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in parse_html(html).iterfind(".//tbody/tr")]


def test_bank_shows_the_worst_first() -> None:
    bank = ConceptBank(
        torch.eye(4),
        names=["wing", "bill", "tail", "eye"],
        test_accuracy=[0.9, 0.55, float("nan"), 0.75],
        settings={"method": "svm"},
    )
    html = bank._repr_html_()
    assert rows_of(html) == [
        ["bill", "0.550", "weak"],
        ["eye", "0.750", ""],
        ["wing", "0.900", ""],
        ["tail", "unknown", ""],
    ]
    assert "4 concepts of 4 dimensions, method svm" in html
    tested = ConceptBank(torch.eye(2), names=["a", "b"], test_accuracy=[0.9, 0.7], p_values=[0.004, torch.nan])
    assert rows_of(tested._repr_html_()) == [["b", "0.700", "unknown", ""], ["a", "0.900", "0.004", ""]]
    unknown = ConceptBank(torch.ones(25, 3), names=[f"c{j}" for j in range(25)])._repr_html_()
    assert rows_of(unknown) == [[f"c{j}"] for j in range(20)]
    assert "and 5 more; no held-out accuracy is known" in unknown


def test_model_shows_the_strongest_concepts_of_each_class() -> None:
    head = nn.Linear(3, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.1, -2.0, 1.0], [0.0, 0.5, 0.25]]))
    bank = ConceptBank(torch.rand(3, 4), names=["wing", "bill", "tail"])
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())
    cbm = PostHocCBM(LayerFeatures(network, "1"), bank, nn.Sequential(head, nn.Dropout()))
    html = cbm._repr_html_()
    assert rows_of(html) == [
        ["0", "bill (−2.00), tail (+1.00), wing (+0.10)"],
        ["1", "bill (+0.50), tail (+0.25), wing (+0.00)"],
    ]
    assert "images → Sequential up to 1 → 3 concepts → 2 classes" in html
    assert "maps decompose the values" in html
    unnamed = BottleneckCBM(network[0], nn.Linear(4, 3), head)._repr_html_()
    assert rows_of(unnamed)[0] == ["0", "1 (−2.00), 2 (+1.00), 0 (+0.10)"]
    assert "maps are local evidence" in unnamed
    # A head that is not linear has no weights to tell.
    deep = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    assert rows_of(PostHocCBM(nn.Conv2d(3, 4, 3), bank, deep)._repr_html_()) == []


def test_hostile_names_are_text() -> None:
    bank = ConceptBank(torch.rand(5, 4), names=HOSTILE)
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), bank, nn.Linear(5, 2))
    for html in (bank._repr_html_(), cbm._repr_html_()):
        text = "".join(parse_html(html).itertext())
        assert "<script>" not in html
        assert "\x00" not in text
        assert "\u202e" not in text
    assert rows_of(bank._repr_html_())[0] == [HOSTILE[0]]
    assert len(rows_of(bank._repr_html_())[4][0]) == 60


def pictures_of(html: str) -> list[np.ndarray]:
    addresses = re.findall(r' src="data:image/png;base64,([^"]*)"', html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(address)))) for address in addresses]


def test_a_sample_shows_its_picture_and_concepts() -> None:
    html = PaintedBirds(20, image_size=32, n_classes=4, n_concepts=10)[1]._repr_html_()
    sample = PaintedBirds(20, image_size=32, n_classes=4, n_concepts=10)[1]
    (picture,) = pictures_of(html)
    assert np.array_equal(picture, (sample.image * 255).round().byte().permute(1, 2, 0).numpy())
    cells = dict(rows_of(re.sub(r"<img[^>]*/>", "", html)))
    assert cells["label"] == str(sample.label)
    present = sample.concepts.nonzero().flatten().tolist()
    assert cells["concepts"] == f"{len(present)} of {len(sample.concepts)} present: {', '.join(map(str, present))}"
    birds = PaintedSubstitutions(PaintedBirds(20, image_size=32, n_classes=4, n_concepts=10))
    assert len(pictures_of(birds[0]._repr_html_())) == 2


def test_a_record_shows_what_is_undefined_and_why() -> None:
    reasons = {"<script>": 2}
    record = Record((0.5, 1.0, math.nan, math.nan), np.empty(0), 0.25, reasons, None, (0.0, 1.0), True)
    html = record._repr_html_()
    assert rows_of(html) == [
        ["mean", "0.750"],
        ["chance", "0.250"],
        ["defined", "2"],
        ["undefined", "2"],
        ["undefined: <script>", "2"],
    ]
    assert "4 scores" in html
