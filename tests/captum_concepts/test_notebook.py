"""Banks and concept models in a notebook: well-formed, what they hold, and no name that is anything but text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from captum_concepts import BottleneckCBM, ConceptBank, LayerFeatures, PostHocCBM

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=1>', "&amp; $x$", "a\x00\u202eb", "x" * 500]


def parsed(html: str) -> ElementTree.Element:
    root = ElementTree.fromstring(f"<body>{html}</body>")
    assert {each.tag for each in root.iter()} <= {"body", "div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert {name for each in root.iter() for name in each.attrib} <= {"style"}
    # Neither light nor dark.
    assert not any(word in html.replace("color:inherit", "") for word in ("color", "background", "border"))
    return root


def rows_of(html: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in parsed(html).iterfind(".//tbody/tr")]


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


@pytest.mark.parametrize(
    "head", [nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), nn.Linear(3, 2, device="meta")]
)
def test_a_head_without_weights_to_tell(head: nn.Module) -> None:
    html = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.rand(3, 4)), head)._repr_html_()
    assert rows_of(html) == []
    assert "images → Conv2d → 3 concepts → classes" in html


def test_hostile_names_are_text() -> None:
    bank = ConceptBank(torch.rand(5, 4), names=HOSTILE)
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), bank, nn.Linear(5, 2))
    for html in (bank._repr_html_(), cbm._repr_html_()):
        shown = "".join(parsed(html).itertext())
        assert "<script>" not in html
        assert "\x00" not in shown
        assert "\u202e" not in shown
    assert rows_of(bank._repr_html_())[0] == [HOSTILE[0]]
    assert len(rows_of(bank._repr_html_())[4][0]) == 60
