"""Banks from Captum's concept activation vectors, and back."""

import numpy as np
import pytest
import torch
from captum.concept import CAV, Concept

from captum_concepts import ConceptBank


def captum_cav(names, classes, weights, layer="conv", ids=None, **stats):
    concepts = [Concept(i, name, None) for i, name in zip(ids or range(len(names)), names, strict=True)]
    return CAV(concepts, layer, {"weights": torch.tensor(weights), "classes": classes, **stats})


def test_from_captum_follows_the_classes_and_not_the_order_of_rows():
    cavs = [
        captum_cav(["striped", "random"], [1, 0], [[1.0, 2.0], [-1.0, -2.0]], accs=torch.tensor(0.75)),
        captum_cav(["dotted", "random"], np.array([0, 1]), [[3.0, 4.0], [-3.0, -4.0]]),
    ]
    bank = ConceptBank.from_captum(cavs)
    assert bank.names == ["striped", "dotted"]
    assert bank.cavs.tolist() == [[-1.0, -2.0], [3.0, 4.0]]
    assert bank.intercepts.tolist() == [0.0, 0.0]
    assert bank.test_accuracy.isnan().all()
    named = ConceptBank.from_captum(cavs, names=["x", "y"], concept="random")
    assert named.cavs.tolist() == [[1.0, 2.0], [-3.0, -4.0]]


def test_to_captum_and_back():
    bank = ConceptBank([[1.0, -2.0], [0.5, 3.0]], names=["striped", "<furry>"])
    cavs = bank.to_captum("layer4")
    assert [cav.layer for cav in cavs] == ["layer4", "layer4"]
    returned = ConceptBank.from_captum(cavs)
    assert torch.equal(returned.cavs, bank.cavs)
    assert returned.names == bank.names
    # The second row is that of the images without the concept.
    assert torch.equal(ConceptBank.from_captum(cavs, concept=1).cavs, -bank.cavs)
    # What Captum's own TCAV looks up.
    weights, classes = cavs[1].stats["weights"], cavs[1].stats["classes"]
    assert weights[classes.index(cavs[1].concepts[0].id)].tolist() == [0.5, 3.0]


def test_from_captum_takes_the_mapping_of_tcav_and_one_of_its_layers():
    cavs = {
        "0-1": {layer: captum_cav(["a", "r"], [0, 1], [[w], [-w]], layer) for layer, w in (("x", 1.0), ("y", 2.0))},
        "2-1": {layer: captum_cav(["b", "r"], [2, 1], [[w], [-w]], layer, [2, 1]) for layer, w in (("x", 3.0),)},
    }
    assert ConceptBank.from_captum(cavs, layer="x").cavs.tolist() == [[1.0], [3.0]]
    for layer in (None, "z"):
        with pytest.raises(ValueError, match=rf"`layer` to choose one of \['x', 'y'\], .* but got {layer!r}"):
            ConceptBank.from_captum(cavs, layer=layer)


def test_bad_input_of_from_captum():
    with pytest.raises(ValueError, match="has no weights"):
        ConceptBank.from_captum(CAV([Concept(0, "a", None)], "x"))
    with pytest.raises(TypeError, match=r"got NoneType.*compute_cavs"):
        ConceptBank.from_captum([None])
    with pytest.raises(ValueError, match=r"`concept` to name one of \['a'\]"):
        ConceptBank.from_captum(captum_cav(["a"], [0], [[1.0]]), concept="b")
    with pytest.raises(ValueError, match=r"row for 'a' \(id 0\)"):
        ConceptBank.from_captum(captum_cav(["a"], [5], [[1.0]]))
    with pytest.raises(ValueError, match=r"one width d but got \[1, 2\]"):
        ConceptBank.from_captum([captum_cav(["a"], [0], [[1.0]]), captum_cav(["b"], [0], [[1.0, 2.0]])])
