"""What the report says of made-up numbers, sentence by sentence."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from quantus_concepts.metrics import PremiseCheck
from quantus_concepts.studies.attribution.data import CHANGES
from quantus_concepts.studies.attribution.findings import findings, paper_findings
from quantus_concepts.studies.attribution.study import COLUMNS, tidy
from quantus_concepts.studies.attribution.tables import GroundTruth

F_O = PremiseCheck("f_o", "scene", 0.91, 0.92, 0.1, 0.98, 1e-7, 2.2, 0.1, 500)
F_S = PremiseCheck("f_s", "object", 0.94, 0.935, 0.1, 0.98, 1e-7, 1.0, 0.1, 500)
BROKEN = replace(F_S, accuracy_without=0.9, remains_correct=0.9)
#: What removing the object costs, by k.
FALLING, FLAT = {0.1: 0.5, 1.0: 0.01}, {0.1: 0.01, 1.0: 0.01}
HIGH, LOW = ("Grad-CAM", "vanilla gradient"), ("SmoothGrad", "guided backpropagation")


def row(method, metric, value=math.nan, half=0.02, **fields):
    ends = {"low": value - half, "high": value + half}
    return {"method": method, "metric": metric, "value": value, **ends, "n": 90, "undefined": 10, **fields}


def scores(metric, half=0.02, **values):
    """Rows of the four methods in the order of HIGH and LOW."""
    given = zip((*HIGH, *LOW), values["of"], strict=True)
    return [row(method, metric, value, half, reference=values.get("reference", math.nan)) for method, value in given]


def frame_of(rows):
    return tidy([pd.DataFrame(rows)], 0) if rows else pd.DataFrame(columns=list(COLUMNS))


def every(rows, checks=(F_O, F_S), drops=()):
    premises = pd.DataFrame(columns=["model", "metric", "k", "value", "n"])
    if drops:
        premises = pd.DataFrame({"metric": "accuracy drop", "k": list(drops), "value": list(drops.values())})
    return findings(frame_of(rows), GroundTruth(list(checks), premises))


def said(topic, rows, checks=(F_O, F_S), drops=()):
    return " ".join(finding.text for finding in every(rows, checks, drops) if finding.topic == topic)


def test_nothing_to_say_of_nothing():
    assert every([], ()) == []


def test_premises_that_hold():
    text = said("Premises", scores("MCS", of=[0.3, 0.2, 0.1, 0.0]))
    assert text == "The ground truth of f_o and f_s is verified: every premise of each holds."


def test_premises_that_do_not_hold_are_named_with_by_how_much():
    found = scores("MCS", of=[0.3, 0.2, 0.1, 0.0]) + scores("IDR", of=[0.8, 0.7, 0.6, 0.5])
    text = said("Premises", found, (F_O, BROKEN))
    assert "The ground truth of f_o is verified: every premise holds. f_s is not verified." in text
    assert "Removing the object costs f_s 4 points, more than the 2 allowed." in text
    assert "90 % of the correct predictions of f_s stay correct" in text
    assert "From the object alone" not in text  # that one holds
    assert "What is said on MCS and IDR below" in text


def test_what_rests_on_unverified_truth_says_so():
    found = scores("MCS", of=[0.3, 0.2, 0.1, 0.0]) + scores("IDR", of=[0.8, 0.7, 0.6, 0.5])
    found += scores("IIR", of=[0.8, 0.7, 0.1, 0.1])
    only_f_s = {v.topic for v in every(found, [F_S]) if "(Ground truth not verified.)" in v.text}
    assert only_f_s == {"MCS", "The paper's findings"}
    both = {v.topic for v in every(found, []) if "(Ground truth not verified.)" in v.text}
    assert both == {"MCS", "IDR", "The paper's findings"}
    assert "The premises of f_o and f_s were not checked." in said("Premises", found, ())
    assert not any("not verified" in str(v) for v in every(found))


def test_patches_need_no_premise():
    assert said("Premises", scores("IIR", of=[0.8, 0.7, 0.1, 0.1]), ()) == ""


def test_the_highest_mcs_stands_alone_only_where_no_interval_overlaps():
    alone = said("MCS", scores("MCS", of=[0.3, 0.2, 0.1, 0.0]))
    assert "Grad-CAM has the highest MCS (0.300, 95 % interval 0.280–0.320); no other method's" in alone
    two = said("MCS", scores("MCS", of=[0.3, 0.28, 0.1, 0.0]))
    assert "its interval overlaps that of vanilla gradient: which of them is best cannot be known." in two
    three = said("MCS", scores("MCS", of=[0.3, 0.28, 0.27, 0.0]))
    assert "overlaps those of vanilla gradient and SmoothGrad" in three


def test_mcs_is_held_against_its_random_mask():
    found = scores("MCS", of=[0.3, 0.2, 0.1, 0.0], reference=0.1)
    found += [row(method, "MCS baseline", 0.1, 0.01) for method in (*HIGH, *LOW)]
    text = said("MCS", found)
    assert "Above a random mask of the same size: Grad-CAM and vanilla gradient; not distinguishable from it: " in text
    assert "from it: SmoothGrad; below it: guided backpropagation." in text


def test_idr_is_held_against_half():
    text = said("IDR", scores("IDR", of=[0.8, 0.51, 0.49, 0.3], reference=0.5))
    assert "Grad-CAM has the highest IDR (80 %, 95 % interval 78–82)" in text
    assert (
        "Above the 50 % of a random map: Grad-CAM; not distinguishable from it: vanilla gradient and SmoothGrad" in text
    )
    assert "no less than what it covers: guided backpropagation." in text


def test_iir_has_no_chance_and_counts_what_was_left_out():
    found = [r | {"unconverged": 8} for r in scores("IIR", of=[0.5, 0.4, 0.1, 0.1])]
    text = said("IIR", found)
    assert "There is no chance value" in text
    assert "8 of 100 patches did not converge and were left out." in text
    assert "most of them" not in text
    assert "most of them" in said("IIR", [r | {"unconverged": 80} for r in found])
    assert "the random map has 70 %" in said("IIR", [*found, row("random", "IIR", 0.7)])


def test_tcav_is_not_ranked_beside_maps():
    found = [*scores("MCS", of=[0.3, 0.2, 0.1, 0.0]), row("TCAV", "MCS", 0.6, math.nan, reference=-0.3)]
    assert "Grad-CAM has the highest MCS" in said("MCS", found)
    assert "differs by 0.600 between the models, −0.300 with random concepts" in said("TCAV", found)
    assert "passed its significance test" in said("TCAV", [row("TCAV", "MCS")])


def test_relative_mcs_needs_a_trend():
    found = scores("correlation", of=[0.9, 0.5, 0.01, -0.5])
    text = said("Relative MCS", found, drops=FALLING)
    assert "costs the target class 50.0 points of accuracy at k = 0.1 and 1.0 at k = 1." in text
    assert "Grad-CAM follows the accuracy drop most closely (r = 0.90, 0.88–0.92)" in text
    assert "No positive correlation is established for SmoothGrad and guided backpropagation." in text
    assert "no established trend" not in text
    text = said("Relative MCS", found, drops=FLAT)
    assert "no established trend" in text
    assert "(Ground truth not verified.)" in text


@pytest.mark.parametrize(("value", "holds"), [(0.01, True), (0.05, False), (-0.05, False)])
def test_the_random_control(value, holds):
    found = [row("random", "MCS", value), row("random", "IDR", 0.5 + value)]
    text = said("Controls", found)
    assert text.count("does not hold the expected") == (0 if holds else 2)
    assert text.count(" holds the expected") == (2 if holds else 0)
    assert ("in twenty" in text) != holds


def test_the_edge_detector_must_be_exactly_zero():
    assert "is exactly 0" in said("Controls", [row("Sobel edges", "MCS", 0.0, 0.0)])
    assert "something is wrong" in said("Controls", [row("Sobel edges", "MCS", 1e-6)])


def test_methods_without_a_number_are_named():
    found = [row("mine", "MCS"), row("mine", "IIR"), row("other", "IDR", 0.5)]
    assert said("Not defined", found) == "mine has no MCS and IIR."
    found += [row("yours", "MCS"), row("yours", "IIR"), row("third", "IDR")]
    assert said("Not defined", found) == "mine and yours have no MCS and IIR. third has no IDR."


def of_the_paper(rows, metric):
    return [text for name, text in paper_findings(frame_of(rows)) if name == metric]


@pytest.mark.parametrize(
    ("values", "phrase"),
    [
        ([0.3, 0.2, 0.1, 0.0], "Our figures agree."),
        ([0.3, 0.28, 0.1, 0.0], "allow it but do not show it: it cannot be distinguished from vanilla gradient."),
        ([0.2, 0.1, 0.3, 0.0], "Our figures disagree: SmoothGrad is higher, the intervals apart."),
        ([0.2, 0.1, 0.3, 0.3], "SmoothGrad and guided backpropagation are higher"),
    ],
)
def test_finding_highest_contrast(values, phrase):
    (text,) = of_the_paper(scores("MCS", of=values), "MCS")
    assert phrase in text


@pytest.mark.parametrize("metric", ["IDR", "IIR"])
@pytest.mark.parametrize(
    ("values", "phrase"),
    [
        ([0.8, 0.7, 0.1, 0.1], "Our figures agree: both are above every other method"),
        ([0.7, 0.8, 0.1, 0.1], "Our figures agree: both are above every other method"),
        ([0.8, 0.5, 0.48, 0.1], "do not show it either: vanilla gradient cannot be distinguished from SmoothGrad."),
        ([0.8, 0.3, 0.5, 0.5], "disagree: SmoothGrad and guided backpropagation are above vanilla gradient"),
        (
            [0.5, 0.3, 0.48, 0.1],
            "SmoothGrad is above vanilla gradient, the intervals apart. Grad-CAM cannot be distinguished from",
        ),
    ],
)
def test_finding_the_two_robust_methods(metric, values, phrase):
    text = of_the_paper(scores(metric, of=values), metric)[0]
    assert text.startswith(f"The paper finds Grad-CAM and vanilla gradient highest in {metric}.")
    assert phrase in text


@pytest.mark.parametrize(
    ("values", "phrase"),
    [
        ([0.8, 0.7, 0.1, 0.05], "Our figures agree, for all 2."),
        ([0.8, 0.7, 0.19, 0.05], "do not show all of it: it holds for guided backpropagation, it is open for Smooth"),
        ([0.8, 0.7, 0.3, 0.05], "disagree: it holds for guided backpropagation, it does not for SmoothGrad."),
        ([0.1, 0.1, 0.3, 0.3], "disagree: it does not for SmoothGrad and guided backpropagation."),
    ],
)
def test_finding_misled_methods(values, phrase):
    text = of_the_paper(scores("IIR", of=values), "IIR")[1]
    assert "for over 80 % of the images (an IIR below 20 %)" in text
    assert phrase in text


def test_findings_need_their_methods():
    assert paper_findings(frame_of(scores("IDR", of=[0.8, 0.7, 0.1, 0.1])[1:])) == []
    assert paper_findings(frame_of([row("Grad-CAM", "MCS", 0.3), row("random", "MCS", 0.0)])) == []


def test_sizes_and_places_that_move_mcs():
    found = [row("Grad-CAM", "MCS", 0.5, 0.05), row("random", "MCS", 0.0, 0.05)]
    for method, values in (("Grad-CAM", (0.3, 0.52, 0.7, 0.45)), ("random", (0.3, 0.0, 0.0, 0.0))):
        found += [
            row(method, "robustness", value, 0.05, variant=change)
            for value, change in zip(values, CHANGES, strict=True)
        ]
    assert said("Size and place", found) == (
        "Beyond its interval, MCS is lower where objects are smaller for Grad-CAM; higher where objects are in the "
        "middle for Grad-CAM."
    )
    assert said("Size and place", found[:2]) == ""
    same = [each for each in found if each.get("variant", "") in ("", "larger")]
    assert said("Size and place", same).startswith("No method's MCS can be distinguished from its own")
