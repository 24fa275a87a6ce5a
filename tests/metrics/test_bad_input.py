"""What would be silently wrong: one error before any work."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import Saliency
from torch import nn

from captum_concepts import BottleneckCBM, show_concepts
from metric_inputs import metric_arguments, predicted, region
from quantus_concepts import CEM, CGIM, CLM, IDR, IIR, MCS, OracleHead, Patch, score_concepts
from quantus_concepts.metrics.contrast.regions import Subject
from quantus_concepts.metrics.host.checks import check_outputs
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel
from untouched import untouched

N, SIZE = 6, 12
RNG = np.random.default_rng(0)
MODEL = SharingConceptModel()
IMAGES = RNG.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
CLASSES = RNG.integers(0, N_CLASSES, N)
TRUTH = metric_arguments(IMAGES, RNG)
LABELS, TABLE, CHANGED = TRUTH["concept_labels"], TRUTH["class_concepts"], TRUTH["counterpart"]
MASKS = region(N, SIZE)
#: A model that knows the names of its concepts.
NAMED = SharingConceptModel()
NAMED.bank = SimpleNamespace(names=list("abcde"))


def cem(labels: Any = LABELS, **call: Any) -> list[float]:
    return CEM(labels)(**{"model": MODEL, "x_batch": IMAGES, "y_batch": CLASSES, **call})


def clm(**arguments: Any) -> list[float]:
    arguments = {"points": TRUTH["points"], "part_of_concept": TRUTH["part_of_concept"], **arguments}
    return CLM(**arguments)(MODEL, IMAGES, CLASSES)


def never(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    pytest.fail("explained before the arguments were checked")


def explained(metric: Any, **call: Any) -> list[float]:
    arguments = {"model": MODEL, "x_batch": IMAGES, "y_batch": CLASSES, "s_batch": MASKS, "explain_func": never}
    return metric(**arguments | call)


def mcs(call: dict[str, Any] | None = None, **arguments: Any) -> list[float]:
    bound = {"contrast_model": MODEL, "contrast_labels": CLASSES, **arguments}
    return explained(MCS(**bound), **(call or {}))


def spoilt(array: np.ndarray, index: Any, value: float) -> np.ndarray:
    array = array.astype(float)
    array[index] = value
    return array


REFUSED = {
    "labels for fewer samples": (lambda: cem(LABELS[:5]), r"one row for each sample of `x_batch`, 6, but got 5"),
    "labels for other concepts": (lambda: cem(LABELS[:, :3]), r"model's L = 5 concepts but got \(6, 3\)"),
    "labels neither 0 nor 1": (lambda: cem(spoilt(LABELS, (2, 3), 0.5)), r"only 0 and 1 but got 0.5 at \(2, 3\)"),
    "a table by class as labels": (lambda: cem(LABELS[:N_CLASSES]), r"each sample .* `table\[labels\]`"),
    "a table on its side": (lambda: CGIM(TABLE.T)(MODEL, IMAGES, CLASSES), r"got \(5, 4\). Transpose it"),
    "fewer classes": (lambda: cem(y_batch=CLASSES[:2]), r"`y_batch` to have shape \(N,\) = \(6,\)"),
    "NaN": (lambda: cem(x_batch=spoilt(IMAGES, (1, 0, 0, 0), np.nan)), r"first at \(1, 0, 0, 0\)"),
    "points of fewer parts": (lambda: clm(points=TRUTH["points"][:, :2]), r"parts below P = 2.*but got 2"),
    "parts of other concepts": (lambda: clm(part_of_concept=[0, 1, -1, 2]), r"L = 5 concepts but got \(4,\)"),
    "points without their concepts": (lambda: CLM(points=TRUTH["points"]), r"needs `part_of_concept`"),
    "l above the concepts with a part": (lambda: clm(top_l=5), r"concepts with a part, 4, but got 5"),
    "a region that is not binary": (
        lambda: mcs(masks=MASKS * 254),
        r"only 0 and 1 but got 254.*`masks > 127`",
    ),
    "regions of another size": (lambda: mcs({"s_batch": MASKS[..., :6]}), r"`s_batch` .* but got \(12, 6\)"),
    "empty regions": (lambda: mcs(masks=MASKS * 0), r"`masks` .* all 6 masks are empty"),
    "no region": (lambda: mcs({"s_batch": None}), r"pass `s_batch` .*or bind `masks`"),
    "no images": (lambda: mcs({"x_batch": IMAGES[:, 0, 0]}), r"`x_batch` to be images \(N, C, H, W\)"),
    "no function": (lambda: mcs({"a_batch": IMAGES, "explain_func": None}), r"explains again.*: pass `explain_func`"),
    "a counterpart of another size": (lambda: explained(IDR(CHANGED[..., :6])), "the shape of `x_batch`"),
    "neither images nor a patch": (lambda: explained(IIR()), r"IIR needs one of arguments `patched` .* and `patch`"),
    "images and a patch": (
        lambda: IIR(CHANGED, patch=Patch(IMAGES[0], pixel_range=(-9, 9))),
        r"`patched` and `patch` but got both",
    ),
    "images without a patch": (lambda: explained(IIR(IMAGES)), r"`patched` to differ from `x_batch`"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(call, message):
    with untouched(MODEL), pytest.raises(ValueError, match=message):
        call()


def test_a_captum_class_is_no_explanation_and_a_name_no_model():
    with pytest.raises(TypeError, match="`model` to be a torch"):
        cem(model="resnet18")
    with pytest.raises(TypeError, match="`patch` to be a quantus"):
        IIR(patch=IMAGES[0])
    with pytest.raises(TypeError, match=r"Wrap the class: captum_concepts\.explain_func\(Saliency\)"):
        explained(CEM(LABELS), explain_func=Saliency)


def test_columns_in_the_order_of_the_model_or_of_other_names_are_taken():
    for columns in ("abcde", "vwxyz"):
        assert cem(pd.DataFrame(LABELS, columns=list(columns)), model=NAMED) == cem()


def random_maps(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    shape = np.shape(inputs)
    return np.random.default_rng(0).normal(size=shape if len(shape) == 2 else (shape[0], *shape[2:]))


def test_a_head_of_one_logit_is_refused():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 1))
    model = BottleneckCBM(nn.Conv2d(3, 4, 3), nn.Linear(4, N_CONCEPTS), nn.Linear(N_CONCEPTS, 1)).eval()
    two, zeros, images = (
        "an output for each class, at least two, but got one",
        np.zeros(N, int),
        torch.as_tensor(IMAGES),
    )
    for make in (lambda: CEM(LABELS), lambda: CEM(LABELS, only_correct=True), lambda: CGIM(TABLE[:1])):
        with pytest.raises(ValueError, match=two):
            make()(model, IMAGES, zeros)
    with pytest.raises(ValueError, match=two):
        CEM(LABELS)(model.head, model.concept_predictor(images).detach().numpy(), zeros, a_batch=LABELS)
    with pytest.raises(ValueError, match=two):
        mcs({"model": network, "y_batch": zeros})
    with pytest.raises(ValueError, match=two):
        CEM().update(model, IMAGES, concept_labels=LABELS)
    with pytest.raises(ValueError, match=two):
        score_concepts(model, [(images, zeros, torch.as_tensor(LABELS))], baselines=False)
    with pytest.raises(ValueError, match=two):
        Subject(network, images, zeros).correct()
    with pytest.raises(ValueError, match=two):
        show_concepts(model, images.sigmoid())
    # What to pass instead says the same by the larger of two outputs.
    head, pair = nn.Linear(3, 1), nn.Linear(3, 2)
    pair.weight.data, pair.bias.data = (torch.cat([-part, part]) / 2 for part in (head.weight.data, head.bias.data))
    values = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(check_outputs(pair(values), 50).argmax(1), (head(values)[:, 0] > 0).long())


def test_predictions_in_place_of_true_classes_give_one_warning():
    answers = predicted(MODEL, IMAGES)
    wrong = (answers + (np.arange(N) == 3)) % N_CLASSES
    says = r"`y_batch` is the predicted class of all 6 samples .* Pass the true classes as `labels`"
    correct = {"CEM": CEM(LABELS, only_correct=True), "CGIM": CGIM(TABLE), "OracleHead": OracleHead(TABLE)}
    for name, metric in correct.items():
        with pytest.warns(UserWarning, match=f"^{name}: {says}") as caught:
            metric(MODEL, IMAGES, answers, batch_size=4)
        assert sum("true classes" in str(each.message) for each in caught) == 1
        bound = (
            OracleHead(TABLE, labels=answers)
            if name == "OracleHead"
            else type(metric)(*([LABELS, 1, True] if name == "CEM" else [TABLE]), labels=answers)
        )
        for silent, classes in ((metric, wrong), (bound, answers)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                silent(MODEL, IMAGES, classes)
            assert not [each for each in caught if "true classes" in str(each.message)]
    # Batches are counted together.
    for first, n_warnings in ((answers, 1), (wrong, 0)):
        metric = OracleHead(TABLE)
        for rows in (slice(0, 2), slice(2, 4), slice(4, 6)):
            metric.update(MODEL, IMAGES[rows], first[rows])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            metric.compute()
        assert len(caught) == n_warnings
    # One that does not ask who is right, or cannot tell by one sample, does not warn.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cem(y_batch=answers)
        OracleHead(TABLE)(MODEL, IMAGES[:1], answers[:1])
        OracleHead(TABLE, disable_warnings=True)(MODEL, IMAGES, answers)
    with pytest.warns(UserWarning, match=f"^MCS: {says}"):
        mcs({"y_batch": answers, "explain_func": random_maps}, agreement=-1)
