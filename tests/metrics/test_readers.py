"""One function reads images, one masks, one points, one classes, one presence: entrances agree."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import Saliency
from torch import nn

from captum_concepts import ConceptBank, PostHocCBM, embed, explain_func
from captum_concepts.support.checks import to_class_indices, to_masks
from quantus_concepts import CEM, CLM, IDR, IIR, MCS, PASTAScore, score_concepts
from quantus_concepts.functional import mask_centres
from quantus_concepts.metrics.contrast.regions import Subject
from quantus_concepts.metrics.host.checks import to_classes
from quantus_concepts.pasta import EmbeddedEncoder, Scorer

N, L, K, SIDE = 12, 5, 3, 8
R = np.random.default_rng(0)
LEVELS = R.integers(0, 256, (N, 3, SIDE, SIDE), dtype=np.uint8)
IMAGES = LEVELS.astype(np.float32) / 255
LABELS = R.integers(0, 2, (N, L))
POINTS = R.random((N, 2, 2)) * (SIDE - 1)
PARTS = [0, 1, -1, 0, 1]
EXPLAIN = explain_func(Saliency)


@pytest.fixture(scope="module")
def cbm() -> PostHocCBM:
    torch.manual_seed(0)
    bank = ConceptBank(torch.randn(L, 4), torch.randn(L))
    model = PostHocCBM(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), bank, nn.Linear(L, K)).eval()
    model.absent_values = torch.zeros(L)
    return model


@pytest.fixture(scope="module")
def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, K)).eval()


def test_images_of_uint8_are_those_divided_by_255(cbm: PostHocCBM, classifier: nn.Module) -> None:
    classes = np.zeros(N, int)
    masks = np.zeros((N, 1, SIDE, SIDE), bool)
    masks[:, :, 2:5, 2:6] = True
    turned, other = ((images * ~masks).astype(images.dtype) for images in (LEVELS, IMAGES))
    for make in (
        lambda images, _: CEM(LABELS)(cbm, images, classes),
        lambda images, _: CLM(points=POINTS, part_of_concept=PARTS, alpha=3)(cbm, images, classes),
        lambda images, _: MCS(classifier, classes, masks=masks)(cbm, images, classes, explain_func=EXPLAIN),
        lambda images, pair: IDR(pair, masks=masks)(classifier, images, classes, explain_func=EXPLAIN),
        lambda images, _: embed(cbm.features, [torch.tensor(images)]).features.tolist(),
        lambda images, _: EXPLAIN(classifier, images, classes).tolist(),
        lambda images, _: cbm.intervene(torch.tensor(images), [0], [1.0]).tolist(),
        lambda images, _: Subject(classifier, images, classes).logits().tolist(),
    ):
        np.testing.assert_array_equal(make(LEVELS, turned), make(IMAGES, other))
    metric = CEM(LABELS)
    metric.update(cbm, LEVELS, classes)
    assert metric.compute() == CEM(LABELS)(cbm, IMAGES, classes)
    tables = [
        score_concepts(
            cbm, [(torch.tensor(images), torch.tensor(classes), torch.tensor(LABELS))], CEM(importance="value")
        )
        for images in (LEVELS, IMAGES)
    ]
    pd.testing.assert_frame_equal(*tables)
    predicted = cbm(torch.tensor(IMAGES)).argmax(1)
    rows = tables[0].query("metric == 'CEM' and explanation == 'value' and set == 'all'")
    assert rows.value.iloc[0] == pytest.approx(np.mean(CEM(LABELS, importance="value")(cbm, LEVELS, predicted)))


def test_pictures_of_uint8_are_rated_as_those_divided_by_255() -> None:
    scorer, maps = Scorer(384, labels=None), R.random((N, 1, SIDE, SIDE)).astype("float32")
    metric = PASTAScore(scorer, EmbeddedEncoder())
    levels, floats = (metric(None, images, np.zeros(N, int), maps) for images in (LEVELS, IMAGES))
    assert levels == floats


def test_rows_of_a_table_are_not_divided() -> None:
    rows = torch.tensor([[0, 3], [7, 1]], dtype=torch.uint8)
    cbm = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(2)), nn.Linear(2, 2), pool=lambda out: out, maps=None).eval()
    cbm.features = nn.Linear(2, 2, bias=False)
    torch.nn.init.eye_(cbm.features.weight)
    assert cbm.own_inputs(rows).tolist() == [[0, 3], [7, 1]]


def test_pairs_in_other_units_and_patches_of_levels_are_refused(classifier: nn.Module) -> None:
    classes, masks = np.zeros(N, int), np.zeros((N, 1, SIDE, SIDE), bool)
    masks[:, :, 2:5, 2:6] = True
    with pytest.raises(ValueError, match="`counterpart` to be in the units of `x_batch`, uint8, but got float32"):
        IDR(IMAGES, masks=masks)(classifier, LEVELS, classes, explain_func=EXPLAIN)
    with pytest.raises(ValueError, match="`x_batch` to be images in floating point"):
        IIR(255 - LEVELS, masks=masks)(classifier, LEVELS, classes, explain_func=EXPLAIN)


def test_half_precision_into_a_float_model_is_said(cbm: PostHocCBM) -> None:
    half, classes = IMAGES.astype(np.float16), np.zeros(N, int)
    for call in (
        lambda: CEM(LABELS)(cbm, half, classes),
        lambda: embed(cbm.features, [torch.tensor(half)]),
        lambda: score_concepts(cbm, [(torch.tensor(half), torch.tensor(classes), torch.tensor(LABELS))], CEM()),
    ):
        with pytest.warns(UserWarning, match="Inputs of float16 go into a model of float32"):
            call()


def test_masks_of_0_and_255_are_those_of_0_and_1(classifier: nn.Module) -> None:
    masks = np.zeros((N, 1, SIDE, SIDE), np.uint8)
    masks[:, :, 2:5, 2:6] = 1
    levels, classes = masks * np.uint8(255), np.zeros(N, int)
    maps = R.normal(size=(N, 1, SIDE, SIDE))
    for make in (
        lambda given: CLM(alpha=3)(classifier, IMAGES, classes, a_batch=maps, s_batch=given),
        lambda given: CLM(alpha=3, masks=given)(classifier, IMAGES, classes, a_batch=maps),
        lambda given: IDR(IMAGES * (masks == 0), masks=given)(classifier, IMAGES, classes, explain_func=EXPLAIN),
        lambda given: mask_centres(given[:, 0]).tolist(),
    ):
        np.testing.assert_array_equal(make(levels), make(masks))
    with pytest.raises(ValueError, match=r"hold only 0 and 1 but got 3 .* `masks > 127`"):
        to_masks("masks", np.where(masks > 0, 254, 3))
    with pytest.raises(ValueError, match="hold only 0 and 1 but got 255"):
        CEM(LABELS * 255)


def test_points_as_shares_of_the_image_are_refused(cbm: PostHocCBM) -> None:
    classes = np.zeros(N, int)
    shares = POINTS / SIDE
    with pytest.raises(ValueError, match=r"`points` to hold \(x, y\) in pixels .* Multiply x by 8 and y by 8"):
        CLM(points=shares, part_of_concept=PARTS)(cbm, IMAGES, classes)
    batch = torch.tensor(IMAGES), torch.tensor(classes), torch.tensor(LABELS), torch.tensor(shares)
    with pytest.raises(ValueError, match=r"in pixels of the images"):
        score_concepts(cbm, [batch], CLM(part_of_concept=PARTS))
    # Places of whole pixels are no shares, nor are parts one of which lies elsewhere.
    CLM(points=POINTS.round().clip(0, 1), part_of_concept=PARTS)(cbm, IMAGES, classes)
    CLM(points=np.concatenate([shares[:, :1], POINTS[:, 1:]], 1), part_of_concept=PARTS)(cbm, IMAGES, classes)


CLASSES = np.array([2, 0, 1])


@pytest.mark.parametrize(
    "given",
    [CLASSES, CLASSES.astype(float), CLASSES[:, None], np.eye(3)[CLASSES], CLASSES.astype(np.uint16), [2, 0, 1],
     torch.tensor(CLASSES), pd.Series(CLASSES), CLASSES[::-1][::-1]],
)  # fmt: skip
def test_classes_are_read_by_one_function(given: object) -> None:
    assert to_classes("labels", given).tolist() == to_class_indices("labels", given).tolist() == [2, 0, 1]


@pytest.mark.parametrize("given", [CLASSES * 0.5, np.array([0, np.inf]), np.array([True, False]), CLASSES.astype(str)])
def test_what_is_no_class_raises(given: np.ndarray) -> None:
    for read in (to_classes, to_class_indices):
        with pytest.raises((TypeError, ValueError), match="`labels`"):
            read("labels", given)


def test_a_misspelt_truth_and_a_device_that_is_not_there_raise(cbm: PostHocCBM) -> None:
    values = cbm.concept_predictor(torch.tensor(IMAGES)).detach().numpy()
    classes, metric = np.zeros(N, int), CEM(LABELS)
    for call in (metric.evaluate_batch, metric.update):
        with pytest.raises(TypeError, match=r"no argument `concept_label`. Did you mean `concept_labels`"):
            call(cbm.head, values, classes, values, concept_label=LABELS)
    for device in ("cuda", "cuda:7", "gpu"):
        if device == "gpu" or not torch.cuda.is_available():
            with pytest.raises(ValueError, match=f"`device` to name a device of this machine.* but got '{device}'"):
                metric(cbm.head, values, classes, values, device=device)


def test_softmax_does_not_move_a_score(cbm: PostHocCBM) -> None:
    # Only the predicted class counts, which the softmax does not change.
    classes = cbm(torch.tensor(IMAGES)).argmax(1).numpy()
    metric = CEM(LABELS, only_correct=True)
    assert metric(cbm, IMAGES, classes, softmax=True) == metric(cbm, IMAGES, classes, softmax=False)
