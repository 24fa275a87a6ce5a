"""Wrong input of every kind: one clear error, before any work, that says what was expected and what to do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import Saliency

from quantus_concepts import CEM, CGIM, CLM, IDR, IIR, MCS, Patch, optimise_patch, score_contrasts
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N = 6


class World:
    """A correct call of every metric; each case below spoils one thing."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.model = SharingConceptModel()
        self.images = rng.normal(size=(N, 3, 12, 12)).astype(np.float32)
        self.classes = rng.integers(0, N_CLASSES, N)
        self.labels = rng.integers(0, 2, (N, N_CONCEPTS))
        self.class_concepts = rng.uniform(size=(N_CLASSES, N_CONCEPTS))
        self.points = rng.uniform(0, 12, (N, 3, 2))
        self.parts = np.array([0, 1, -1, 2, 0])
        self.masks = np.zeros((N, 1, 12, 12))
        self.masks[:, :, 2:7, 3:9] = 1
        self.contrast = TinyConceptModel(seed=1)
        self.changed = np.where(self.masks == 1, 0.5 * self.images, self.images)
        self.photographs = rng.random((N, 3, 12, 12), dtype=np.float32)

    def named(self) -> SharingConceptModel:
        """Return a model that knows the names of its concepts."""
        model = SharingConceptModel()
        model.bank = SimpleNamespace(names=list("abcde"))
        return model

    def spoilt(self, name: str, index: Any, value: float) -> np.ndarray:
        array = np.array(getattr(self, name), dtype=float)
        array[index] = value
        return array

    def cem(self, **kwargs: Any) -> list[float]:
        call = {"model": self.model, "x_batch": self.images, "y_batch": self.classes, **kwargs}
        return CEM(self.labels)(**call)

    def clm(self, **kwargs: Any) -> list[float]:
        return CLM(**{"points": self.points, "part_of_concept": self.parts, **kwargs})(
            self.model, self.images, self.classes
        )

    def call_unexplained(self, metric: Any, **kwargs: Any) -> list[float]:
        """Call a metric with known ground truth; no explanation must be computed."""

        def explain(model, inputs, targets, **kwargs):
            pytest.fail("explained before the arguments were checked")

        call = {"model": self.model, "x_batch": self.images, "y_batch": self.classes, "s_batch": self.masks}
        return metric(**{**call, "explain_func": explain, **kwargs})

    def mcs(self, call: dict[str, Any] | None = None, **kwargs: Any) -> list[float]:
        arguments = {"contrast_model": self.contrast, "contrast_labels": self.classes, **kwargs}
        return self.call_unexplained(MCS(**arguments), **(call or {}))

    def idr(self, call: dict[str, Any] | None = None, **kwargs: Any) -> list[float]:
        return self.call_unexplained(IDR(**{"counterpart": self.changed, **kwargs}), **(call or {}))

    def iir(self, call: dict[str, Any] | None = None, **kwargs: Any) -> list[float]:
        return self.call_unexplained(IIR(**(kwargs or {"patched": self.changed})), **(call or {}))

    def iir_of_photographs(self, init: Any = None, **kwargs: Any) -> list[float]:
        patch = Patch(self.photographs[0] if init is None else init, **kwargs)
        return self.iir(patch=patch, call={"x_batch": self.photographs})

    def optimise(self, **kwargs: Any) -> object:
        arguments = {"images": self.photographs, "masks": self.masks, "init": self.photographs[0], "steps": 1, **kwargs}
        return optimise_patch(self.model, **arguments)


VALUES: dict[str, tuple[Callable[[World], object], str]] = {
    "labels for fewer samples": (
        lambda w: CEM(w.labels[:4])(w.model, w.images, w.classes),
        r"`concept_labels` to have one row for each sample of `x_batch`, 6, but got 4",
    ),
    "labels for other concepts": (
        lambda w: CEM(w.labels[:, :3])(w.model, w.images, w.classes),
        r"model's L = 5 concepts but got \(6, 3\)",
    ),
    "class concepts in percent": (lambda w: CGIM(w.class_concepts * 100), r"lie in \[0, 1\].*Divide percentages"),
    "y of another length": (lambda w: w.cem(y_batch=w.classes[:2]), r"`y_batch` to have shape \(N,\) = \(6,\)"),
    "points of fewer parts": (lambda w: w.clm(points=w.points[:, :2]), r"parts below P = 2.*but got 2"),
    "parts of other concepts": (lambda w: w.clm(part_of_concept=w.parts[:4]), r"model's L = 5 concepts but got \(4,\)"),
    "points without their concepts": (lambda w: CLM(points=w.points), r"needs `part_of_concept`"),
    "no explanations": (
        lambda w: CEM(w.labels)(w.model.head, w.labels.astype(float), w.classes),
        r"pass `a_batch` or `explain_func`",
    ),
    "labels neither 0 nor 1": (lambda w: CEM(w.spoilt("labels", (2, 3), 0.5)), r"only 0 and 1 but got 0.5 at \(2, 3\)"),
    "l above the concepts with a part": (lambda w: w.clm(top_l=5), r"concepts with a part, 4, but got 5"),
    "class out of range": (lambda w: w.cem(y_batch=w.classes + 4), r"class indices 0 to 3"),
    "y of fractions": (lambda w: w.cem(y_batch=w.classes * 0.5), r"`y_batch` to hold class indices .* got float64"),
    "NaN in images": (lambda w: w.cem(x_batch=w.spoilt("images", (1, 0, 0, 0), np.nan)), r"first at \(1, 0, 0, 0\)"),
    "region not binary": (
        lambda w: w.mcs(masks=w.masks * 255),
        r"`masks` to hold only 0 and 1 but got 255.0 at \(0, 0, 2, 3\)",
    ),
    "regions of another size": (
        lambda w: w.mcs(call={"s_batch": w.masks[..., :6]}),
        r"`s_batch` .* \(H, W\) = \(12, 12\), but got \(12, 6\)\. Resize",
    ),
    "all regions empty": (lambda w: w.mcs(masks=w.masks * 0), r"`masks` .* all 6 masks are empty"),
    "no region": (lambda w: w.mcs(call={"s_batch": None}), r"pass `s_batch` .*or bind `masks`"),
    "no contrast labels": (lambda w: w.mcs(contrast_labels=None), r"MCS needs argument `contrast_labels`"),
    "labels of the other model": (
        lambda w: w.mcs(call={"y_batch": np.full(N, 9)}),
        r"`y_batch` to hold class indices 0 to 3, .* got 9 at 0\. .* counted from 1, or those of another model",
    ),
    "a counterpart of another order": (
        lambda w: w.idr(counterpart=np.roll(w.changed, 1, 0)),
        r"`counterpart` to show the images of `x_batch`, in their order.* Align it",
    ),
    "neither patched images nor a patch": (
        lambda w: w.iir(patched=None),
        r"IIR needs one of arguments `patched` .* and `patch`",
    ),
    "patched images and a patch": (
        lambda w: w.iir(patched=w.changed, patch=Patch(w.photographs[0])),
        r"one of arguments `patched` and `patch` but got both",
    ),
    "patched images without a patch": (
        lambda w: w.iir(patched=np.where(np.arange(N)[:, None, None, None] == 4, w.images, w.changed)),
        r"`patched` to differ from `x_batch` but image 4 is identical",
    ),
    "patched images of another order": (
        lambda w: w.iir(patched=w.changed[::-1]),
        r"`patched` to show the images of `x_batch`, in their order",
    ),
    "explanations without their function": (
        lambda w: w.mcs(call={"a_batch": w.images, "explain_func": None}),
        r"MCS explains again.*: pass `explain_func`",
    ),
    "normalised images without the normalisation": (
        lambda w: w.iir(patch=Patch(w.photographs[0])),
        r"`x_batch` to lie in the pixel range \[0, 1\] but got values from -\d.* `mean` and `std`",
    ),
    "images of 0 to 1 said to be of 0 to 255": (
        lambda w: w.iir_of_photographs(pixel_range=(0, 255)),
        r"`x_batch` to use the pixel range \[0, 255\] but its largest value is .*Pass pixel_range=\(0, 1\)",
    ),
    "a mean without a deviation": (
        lambda w: Patch(w.photographs[0], mean=[0.5] * 3),
        r"`mean` and `std` together but got `mean` without `std`",
    ),
    "squared norms without a step": (
        lambda w: Patch(w.photographs[0], squared=True),
        r"`step_size` with squared=True but got None.* Start with 1 or less",
    ),
    "nowhere to patch": (
        lambda w: w.optimise(masks=w.spoilt("masks", (2, 0), 0)),
        r"`masks` to say where each patch goes but it is empty for image 2",
    ),
    "a table by class as labels of images": (
        lambda w: CEM(w.labels[:N_CLASSES])(w.model, w.images, w.classes),
        r"`concept_labels` to have one row for each sample .* `table\[labels\]`",
    ),
    "a table on its side": (
        lambda w: CGIM(w.class_concepts.T)(w.model, w.images, w.classes),
        r"L = 5 concepts but got \(5, 4\). Transpose it: a row is a class",
    ),
    "concepts of classes in another order": (
        lambda w: CGIM(pd.DataFrame(w.class_concepts, columns=list("abdce")))(w.named(), w.images, w.classes),
        r"column 2 is 'd', the model's concept 3. Pass `table\[model.bank.names\]`",
    ),
    "concepts of images in another order": (
        lambda w: CEM(pd.DataFrame(w.labels, columns=list("bacde")))(w.named(), w.images, w.classes),
        r"`concept_labels` .* column 0 is 'b', the model's concept 1",
    ),
}
TYPES: dict[str, tuple[Callable[[World], object], str]] = {
    "a Captum class as explanation": (
        lambda w: w.call_unexplained(CEM(w.labels), explain_func=Saliency),
        r"got Captum's Saliency. Wrap the class: captum_concepts.explain_func\(Saliency\)",
    ),
    "a Captum class among methods": (
        lambda w: score_contrasts({"S": Saliency}, w.masks, idr=None),
        r"`methods\['S'\]` to be a function",
    ),
    "a model that is not a module": (lambda w: w.cem(model="resnet18"), r"torch.nn.Module but got str"),
}


@pytest.mark.parametrize("case", [*VALUES, *TYPES])
def test_error(case):
    call, match = (VALUES | TYPES)[case]
    world = World()
    before = [parameter.clone() for parameter in world.model.parameters()]
    with pytest.raises(ValueError if case in VALUES else TypeError, match=match) as raised:
        call(world)
    # said in a sentence, not by an assertion or an index somewhere inside
    assert len(str(raised.value)) > 30
    assert all(torch.equal(a, b) for a, b in zip(before, world.model.parameters(), strict=True))
    assert not world.model.training


def test_classes_may_be_whole_floats_a_column_or_one_hot():
    world = World()
    expected = world.cem()
    for classes in (world.classes.astype(float), world.classes[:, None], np.eye(N_CLASSES)[world.classes]):
        assert world.cem(y_batch=classes) == expected


def test_columns_in_the_order_of_the_model_or_of_other_names_are_taken():
    world = World()
    expected = world.cem()
    for columns in ("abcde", "vwxyz"):
        labels = pd.DataFrame(world.labels, columns=list(columns))
        assert CEM(labels)(world.named(), world.images, world.classes) == expected
