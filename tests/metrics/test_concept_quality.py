"""ConceptQuality at the head, on images and in tables of `score_concepts`, and the plot of calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from quantus.helpers.enums import ScoreDirection
from torch import nn

from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM
from metric_inputs import CLASSES, IMAGES, LABELS, LOADER, MODEL
from quantus_concepts import ConceptQuality, plot_calibration, predict_concepts, score_concepts, score_predictions
from quantus_concepts.functional import concept_quality, concept_quality_interval
from quantus_concepts.functional.bottleneck.concept_quality import QUALITIES, chance_quality
from quantus_concepts.metrics.bottleneck.concept_quality import LABELS as NAMES
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel


def sigmoid_model() -> BottleneckCBM:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer, head = nn.Linear(4, N_CONCEPTS), nn.Linear(N_CONCEPTS, N_CLASSES)
        return BottleneckCBM(nn.Identity(), layer, head).eval()


CBM = sigmoid_model()
INPUTS = torch.rand(24, 4, generator=torch.Generator().manual_seed(0))
TRUTH = (torch.rand(24, N_CONCEPTS, generator=torch.Generator().manual_seed(1)) < 0.4).int()
TARGETS = torch.arange(24) % N_CLASSES
BATCHES = [(INPUTS[rows], TARGETS[rows], TRUTH[rows]) for rows in (slice(0, 10), slice(10, None))]
with torch.no_grad():
    MARGINS = MODEL.concept_predictor(torch.as_tensor(IMAGES))
    VALUES = CBM.concept_predictor(INPUTS)


@pytest.mark.parametrize("score", QUALITIES)
def test_at_the_head_and_on_images(score: str) -> None:
    expected = concept_quality(VALUES, TRUTH, score).tolist()
    metric = ConceptQuality(score, concept_labels=TRUTH, threshold=0.5)
    values = VALUES.numpy()
    assert metric(CBM.head, values, TARGETS.numpy(), a_batch=0 * values) == pytest.approx(expected)
    assert metric(CBM, INPUTS.numpy(), TARGETS.numpy()) == pytest.approx(expected)
    chance = float(chance_quality(VALUES, TRUTH, score).nanmean())
    assert metric.records[-1].chance == pytest.approx(chance, nan_ok=True)
    lower = score in ("brier", "calibration_error")
    assert metric.score_direction == (ScoreDirection.LOWER if lower else ScoreDirection.HIGHER)


@pytest.mark.parametrize("score", QUALITIES)
def test_rows_of_a_table(score: str) -> None:
    table = score_concepts({"m": CBM}, BATCHES, [ConceptQuality(score)], controls={"others": [sigmoid_model()]})
    own, values = table[table["model"] == "m"], concept_quality(VALUES, TRUTH, score)
    assert own["metric"].unique().tolist() == [NAMES[score]]
    assert own["what"].tolist() == ["score", *["item"] * N_CONCEPTS]
    assert own["value"].tolist() == pytest.approx([values.mean().item(), *values.tolist()])
    ends = concept_quality_interval(VALUES, TRUTH, TARGETS, score)
    assert own[["low", "high"]].iloc[0].tolist() == pytest.approx(ends)
    assert own["chance"].iloc[0] == pytest.approx(float(chance_quality(VALUES, TRUTH, score).mean()), nan_ok=True)
    # A sigmoid model is a baseline of probabilities too.
    assert table[table["model"] == "others"]["value"].iloc[0] == pytest.approx(values.mean().item())


def test_margins_have_no_scores_of_probabilities_and_their_own_threshold() -> None:
    banks = [SharingConceptModel(seed) for seed in range(1, 4)]
    chosen = [ConceptQuality(score, threshold=0.0) for score in QUALITIES]
    table = score_concepts({"m": MODEL}, LOADER, chosen, controls={"random banks": banks})
    own = table[(table["what"] == "score") & (table["model"] == "m")].set_index("metric")
    assert own.loc[NAMES["f1"], "value"] == pytest.approx(concept_quality(MARGINS, LABELS, "f1", 0.0).nanmean().item())
    for score in ("brier", "calibration_error"):
        assert math.isnan(own.loc[NAMES[score], "value"])
        assert own.loc[NAMES[score], "undefined"] == N_CONCEPTS
        assert own.loc[NAMES[score], "reason"] == "values are no probabilities (5 of 5 concepts)"
    # Random banks have no probabilities, and so no range of them.
    ranges = table[table["what"] == "random range"]
    assert set(ranges["metric"]) == {NAMES["average_precision"], NAMES["f1"]}
    raw = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(N_CONCEPTS, 4) + 0.1), CBM.head, values="raw")
    with pytest.raises(ValueError, match="ConceptQuality needs `threshold` for model 'm'"):
        score_concepts({"m": raw}, BATCHES, [ConceptQuality("f1")])
    table = score_concepts({"m": raw}, BATCHES, [ConceptQuality("f1")], value_threshold=0.3)
    expected = concept_quality(raw.concept_predictor(INPUTS).detach(), TRUTH, "f1", 0.3).mean().item()
    assert table["value"].iloc[0] == pytest.approx(expected)
    with pytest.raises(ValueError, match="Pass 0 for margins"):
        ConceptQuality("f1", concept_labels=LABELS)(MODEL.head, MARGINS.numpy(), CLASSES, a_batch=MARGINS.numpy())


def test_reasons_are_counted() -> None:
    labels = TRUTH.numpy().copy()
    labels[:, 0] = 1
    metric = ConceptQuality(concept_labels=labels)
    with pytest.warns(UserWarning, match=r"all images show the concept, or none does \(1 of 5 concepts\)"):
        scores = metric(CBM.head, VALUES.numpy(), TARGETS.numpy(), a_batch=VALUES.numpy())
    assert scores == pytest.approx(concept_quality(VALUES, labels).tolist(), nan_ok=True)
    rows, values = predict_concepts(CBM, BATCHES), VALUES.clone()
    values[1, 2] = math.nan
    kept = [0, *range(2, 24)]
    found = ConceptQuality().score_rows(rows.knowing(values=values))
    assert found.of_call.tolist() == pytest.approx(concept_quality(VALUES[kept], TRUTH[kept]).tolist())
    assert found.reasons(0) == {"a concept value is NaN, and the image is left out": (1, 24, "samples")}
    found = ConceptQuality("brier").score_rows(rows.knowing(values=values * math.nan))
    assert np.isnan(found.of_call).all()
    assert found.reasons(0) == {"a concept value is NaN, and the image is left out": (24, 24, "samples")}
    metric = ConceptQuality("brier", concept_labels=labels)
    with pytest.warns(UserWarning, match=r"values are no probabilities \(5 of 5 concepts\)"):
        metric(CBM.head, 2 * VALUES.numpy(), TARGETS.numpy(), a_batch=VALUES.numpy())


def test_the_picture_has_the_bins_and_the_share_of_all() -> None:
    rows = predict_concepts(CBM, BATCHES)
    fig, ax = plot_calibration({"a": rows, "b": rows}, n_bins=4)
    diagonal, own, prevalence, *_ = ax.get_lines()
    assert (diagonal.get_xdata()[0], diagonal.get_ydata()[1], len(ax.get_lines())) == (0, 1, 5)
    values, labels = VALUES.double().flatten(), TRUTH.flatten()
    order = values.argsort()
    quarter = order[: len(order) // 4]
    assert own.get_xdata()[0] == pytest.approx(values[quarter].mean().item())
    assert own.get_ydata()[0] == pytest.approx(labels[quarter].double().mean().item())
    assert prevalence.get_ydata()[0] == pytest.approx(labels.double().mean().item())
    # What the points are off, with 30 numbers each, is the error of all concepts as one.
    off = np.abs(own.get_xdata() - own.get_ydata()).mean()
    assert off == pytest.approx(concept_quality(values[:, None], labels[:, None], "calibration_error", n_bins=4).item())
    plt.close(fig)
    assert score_predictions(rows, [ConceptQuality("brier")])["value"].iloc[0] == pytest.approx(
        concept_quality(VALUES, TRUTH, "brier").mean().item()
    )
    with pytest.raises(ValueError, match=r"Expected argument `rows` of 'm' to hold probabilities but"):
        plot_calibration({"m": predict_concepts(MODEL, LOADER)})
    with pytest.raises(ValueError, match=r"Expected argument `rows` to have concept labels"):
        plot_calibration(predict_concepts(CBM, [batch[:2] for batch in BATCHES]))
    with pytest.raises(TypeError, match="`rows`"):
        plot_calibration(VALUES)
