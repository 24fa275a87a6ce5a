"""Verdicts and tables of numbers that are written down here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from quantus_concepts.functional.statistics.seeds import seeds_interval
from quantus_concepts.metrics.streaming.table import kinds_of_rows
from quantus_concepts.results.verdicts import difference_verdict, with_verdicts
from quantus_concepts.studies._kit.results import join_seeds, load_paper
from quantus_concepts.studies.concepts.bottleneck import ceiling_text, wrong_labels
from quantus_concepts.studies.concepts.collection import COLLECTED_COLUMNS, Collected, Scored
from quantus_concepts.studies.concepts.comparisons import (
    bounds_of,
    compare_answers,
    with_image_intervals,
    with_own_ranges,
)
from quantus_concepts.studies.concepts.figures import intervention_rows
from quantus_concepts.studies.concepts.report import (
    accuracy_table,
    comparisons_table,
    full_tables,
    own_range,
    place_tables,
    presence_tables,
    rivals_tables,
    settings_table,
    verdicts,
    without_verdict,
)
from quantus_concepts.studies.concepts.terms import setting_name, shown_names

POST_HOC, TRADITIONAL, RANDOM = "post-hoc CBM", "traditional CBM", "random directions"
EMPTY = {
    "what": "",
    "baseline": "",
    "explanation": "",
    "set": "all",
    "l": None,
    "alpha": math.nan,
    "item_kind": "",
    "item": "",
    "chance": math.nan,
}
PAPER = load_paper("quantus_concepts.studies.concepts", l=float, alpha=float)


def row(model: str, metric: str, value: float, half: float = 0.01, **fields: Any) -> dict[str, Any]:
    ends = {"low": value - half, "high": value + half}
    known = {"model": model, "metric": metric, "value": value, "n": 90, "undefined": 10, "seed": 4}
    return EMPTY | known | ends | fields


def cem(model: str, value: float, explanation: str = "effect", **fields: Any) -> dict[str, Any]:
    return row(model, "CEM", value, **{"explanation": explanation, "l": 1, "chance": 0.23} | fields)


def gain(model: str, value: float, explanation: str = "effect", **fields: Any) -> dict[str, Any]:
    return row(model, "CEM gain", value, **{"explanation": explanation, "l": 1, "chance": 0.0} | fields)


def clm(model: str, value: float, **fields: Any) -> dict[str, Any]:
    return row(model, "CLM", value, explanation="contribution", l=1, alpha=1.0, chance=1 / 12, **fields)


def specific(model: str, value: float, explanation: str, **fields: Any) -> dict[str, Any]:
    return row(model, "part specificity", value, explanation=explanation, l=1, alpha=1.0, **fields)


def cgim(scores: dict[str, float], model: str, explanation: str, **fields: Any) -> list[dict[str, Any]]:
    """The rows of some concepts, which have no interval, and first the one of their mean."""
    fields = {"explanation": explanation, "item_kind": "concept"} | fields
    mean = row(model, "CGIM correlation", float(np.nanmean([*scores.values()])), **fields)
    fields |= {"low": math.nan, "high": math.nan}
    return [mean, *(row(model, "CGIM correlation", value, item=name, **fields) for name, value in scores.items())]


def joined(*rows: Any) -> pd.DataFrame:
    return mean_rows(pd.DataFrame(list(rows), columns=COLLECTED_COLUMNS).astype({"l": "Int64"}))


def mean_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return join_seeds(frame.astype({"l": float}).assign(what=kinds_of_rows(frame)), RANDOM, bounds_of)


#: Accuracies of a model that knows its classes, and the concept AUC of a model that knows its concepts or does not.
KNOWS = [row(POST_HOC, "accuracy", 0.75), row(RANDOM, "accuracy", 0.5, low=0.4, high=0.6)]
AUC = [row(RANDOM, "concept AUC", 0.5, low=0.4, high=0.6, item_kind="concept")]
KNOWING, UNKNOWING = ([row(POST_HOC, "concept AUC", value, item_kind="concept"), *AUC] for value in (0.9, 0.6))
NO_DRAWS = pd.DataFrame(columns=["model", "metric", "explanation", "item", "draw", "value", "seed"])


def told(rows: pd.DataFrame, draws: pd.DataFrame = NO_DRAWS) -> dict[str, str]:
    return {verdict.question: verdict.verdict for verdict in verdicts(with_verdicts(rows), draws, "in the image")}


def first_concept() -> list[dict[str, Any]]:
    """Return gains of the first concept by ranking, and the ranges of random directions."""
    rows = [gain(POST_HOC, 0.8, "value"), gain(POST_HOC, -0.4), gain(POST_HOC, 0.9, "weight")]
    rows += [gain(POST_HOC, 0.3, set="correct"), gain(RANDOM, 0.0, set="correct", low=-0.2, high=0.2)]
    for ranking, low, high in (("value", 0.1, 0.9), ("effect", -0.1, 0.2), ("weight", -0.1, 0.2)):
        rows.append(gain(RANDOM, (low + high) / 2, ranking, low=low, high=high))
    return rows


def test_a_verdict_says_where_the_interval_lies_and_no_more():
    found = told(joined(*first_concept(), *KNOWS, row("plain backbone", "accuracy", 0.8)))
    none = "0 of 0 concepts above own range, 0 below; 0.0 by luck"
    assert found == {
        "Class accuracy (plain backbone: 80.0 %)": "above",
        "Are the concepts known (concept AUC)?": "–",
        # A constant added to the values would move it.
        "First concept in the image, beyond prevalence (CEM gain, by value)?": "–",
        "First concept in the image, beyond prevalence (CEM gain, by effect)?": "below",
        "In correctly classified images (CEM gain, by effect)?": "above",
        f"Important where it belongs (CGIM correlation, by value; {none})?": "–",
        f"Important where it belongs (CGIM correlation, by effect; {none})?": "–",
    }


def test_a_model_that_does_not_know_its_concepts_is_not_praised():
    rows = joined(*first_concept(), *KNOWS, *UNKNOWING)
    found = told(rows)
    assert found["Class accuracy"] == "above"
    assert found["Are the concepts known (concept AUC)?"] == "within"
    # Praise is withheld, and blame is not.
    assert found["In correctly classified images (CEM gain, by effect)?"] == "no verdict"
    assert found["First concept in the image, beyond prevalence (CEM gain, by effect)?"] == "below"
    assert "does not know its concepts" in accuracy_table(rows, trains=True).caption
    assert "does not know" not in accuracy_table(joined(*KNOWS, *KNOWING), trains=True).caption
    weak_classes = joined(*first_concept(), row(POST_HOC, "accuracy", 0.55), *KNOWS[1:], *KNOWING)
    assert told(weak_classes)["In correctly classified images (CEM gain, by effect)?"] == "above"


def test_the_reason_stands_beside_the_verdict_and_in_the_csv():
    rows = with_verdicts(joined(*first_concept(), *KNOWS, *UNKNOWING))
    why = {verdict.question: verdict.why for verdict in verdicts(rows, NO_DRAWS, "in the image")}
    assert why["In correctly classified images (CEM gain, by effect)?"] == "concept AUC from 0.59, not above 0.60"
    question = "First concept in the image, beyond prevalence (CEM gain, by value)?"
    assert why[question] == "moves with the zero of the values"
    shown = next(verdict for verdict in verdicts(rows, NO_DRAWS, "in the image") if verdict.question == question)
    assert shown.cells[0] == f"{question} ({why[question]})"
    table = presence_tables(rows, PAPER, "in")[0]
    assert "moves with the zero of the values" in table.csv


def scored(model: str, correct: int) -> pd.DataFrame:
    """Return the accuracies and gains of 20 images of 10 classes."""
    keys = {"model": model, "explanation": "effect", "baseline": "", "seed": 4, "l": 1.0, "alpha": math.nan}
    columns = {
        "image": np.arange(20),
        "label": np.arange(20) % 10,
        "item": "",
        "value": (np.arange(20) < correct) * 1.0,
    }
    truth = {"metric": "class concepts", "explanation": "", "item": "red", "value": np.linspace(0, 1, 20)}
    rows = [pd.DataFrame(keys | columns | {"metric": metric}) for metric in ("CEM gain", "accuracy")]
    return pd.concat([*rows, pd.DataFrame(keys | columns | truth)[:10]], ignore_index=True)


@pytest.mark.parametrize("of", ["study", "rival", "rival without random banks", "neither"])
def test_a_difference_of_a_model_without_verdict_has_none(of):
    weak, strong = (
        pd.DataFrame([*KNOWS[:1], *auc, *KNOWS[1:]], columns=COLLECTED_COLUMNS).astype({"l": "Int64"})
        for auc in (UNKNOWING, KNOWING)
    )
    own, theirs = (weak if of == "study" else strong), (weak if of.startswith("rival") else strong)
    theirs = theirs[:2] if "without" in of else theirs
    compared = pd.concat([scored(POST_HOC, 19), scored("plain backbone", 2)], ignore_index=True)
    models = {"ours": Scored(POST_HOC, own, compared), "theirs": Scored(POST_HOC, theirs, scored(POST_HOC, 2))}
    collected = Collected(models, None, "", False, True)
    of_rivals = rivals_tables(collected, mean_rows(own))[1]
    expected = "no verdict" if of in ("study", "rival") else "above 0"
    for table, said in (
        (of_rivals, expected),
        (comparisons_table(collected, mean_rows(own)), "no verdict" if of == "study" else "above 0"),
    ):
        cells = table.frame[table.frame["column"] == "verdict"].set_index("what")["text"]
        assert cells["CEM gain, by effect"] == said
        # Accuracies are compared all the same.
        assert cells[["accuracy, by effect"]].tolist() == ["above 0"]
    named = "ours" if of == "study" else "theirs"
    assert (f"No verdict on the concepts of {named}: " in of_rivals.caption) == (expected == "no verdict")


@pytest.mark.parametrize(("place", "said"), [(0.38, "above"), (0.395, "within"), (None, "above")])
def test_the_ranking_is_chosen_before_looking(place, said):
    rows = [specific(POST_HOC, 0.4, "value"), specific(POST_HOC, 0.3, "weight"), specific(POST_HOC, 0.4, "effect")]
    for name in ("value", "weight", "effect"):
        rows.append(specific(RANDOM, 0.0, name, low=-0.15, high=0.12))
    # Parts lie where they lie: the mean place is a baseline as well.
    rows += [] if place is None else [specific(POST_HOC, place, "effect", baseline="mean place of the part")]
    found = told(joined(*rows, *KNOWS))
    question = "Map at its own part, more than random directions (part specificity, α = 1, by {})?"
    assert question.format("weight") not in found
    assert found[question.format("value")] == "–"
    assert found[question.format("effect")] == said


def test_places_have_no_verdict_against_0():
    images = pd.concat([scored(POST_HOC, 19), scored(TRADITIONAL, 2)], ignore_index=True)
    images = images.replace({"metric": {"CEM gain": "part specificity"}}).assign(alpha=1.0)
    names = ["", "other parts of the image", "feature norm"]
    maps = pd.concat([scored(POST_HOC, 19)[:20].assign(metric="CLM", alpha=1.0, baseline=name) for name in names])
    maps["value"] = np.where(maps["baseline"] == "", maps["value"], 0.0)
    table = without_verdict(compare_answers(pd.concat([images, maps], ignore_index=True), True), [])
    said = table.set_index(["metric", "b"])["verdict"]
    assert said["part specificity", TRADITIONAL] == said["CLM", "other parts of the image"] == "–"
    assert said["accuracy", TRADITIONAL] == said["CLM", "feature norm"] == ""


def drawn(names: list[str], n_draws: int) -> pd.DataFrame:
    """Return correlations of random banks, which have the same range for all concepts."""
    values = np.linspace(-0.5, 0.5, n_draws)
    rows = [("effect", name, draw, value) for name in names for draw, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["explanation", "item", "draw", "value"]).assign(
        seed=4, model=RANDOM, metric="CGIM correlation"
    )


@pytest.mark.parametrize(("n_draws", "marks"), [(39, 0), (399, 2)])
def test_concepts_are_counted_against_their_own_random_range(n_draws, marks):
    ours = {"red beak": 0.9, "blue wing": 0.1, "short leg": -0.9, "long tail": math.nan}
    draws = drawn([*ours], n_draws)
    rows = with_own_ranges(joined(*cgim(ours, POST_HOC, "effect"), *KNOWS), draws)
    # One in 40 of three.
    counts = "1 of 3 concepts above own range, 1 below; 0.1 by luck"
    assert own_range(rows, draws, "effect") == counts
    # Without a random range of the mean there is no verdict on it.
    assert told(rows, draws)[f"Important where it belongs (CGIM correlation, by effect; {counts})?"] == "–"
    table = full_tables(with_verdicts(rows), draws)[0]
    # With 39 banks two concepts cannot pass.
    assert ("let a concept pass only if 3 do" in table.caption) == (marks == 0)
    named = table.frame.set_index("item")
    assert named["text"].astype(str).str.contains("▲|▼").sum() == marks
    assert (named["random_high"].dropna() < 0.51).all()
    # What is above is no discovery of a model that does not know its concepts; what is below is.
    rows = with_own_ranges(joined(*cgim(ours, POST_HOC, "effect"), *KNOWS, *UNKNOWING), draws)
    marked = full_tables(with_verdicts(rows), draws)[0].frame["text"].astype(str)
    assert (marked.str.contains("▲").sum(), marked.str.contains("▼").sum()) == (0, marks // 2)


def test_banks_fitted_to_shuffled_images_are_a_second_range_of_cgim():
    ours = cgim({"red beak": 0.5, "blue wing": 0.3}, POST_HOC, "effect")
    banks = cgim({"red beak": 0.0, "blue wing": 0.0}, RANDOM, "effect", low=-0.1, high=0.1)[:1]
    for top, said, why in ((0.2, "above", ""), (0.395, "within", "fitted to shuffled images: to 0.40")):
        fields = {"low": -0.1, "high": top, "explanation": "effect", "item_kind": "concept"}
        shuffled = row(POST_HOC, "CGIM correlation", 0.1, baseline="fitted to shuffled images", **fields)
        rows = with_verdicts(joined(*ours, *banks, shuffled, shuffled | {"seed": 5}, *(ours[0] | {"seed": 5},)))
        mean = rows[(rows["model"] == POST_HOC) & (rows["what"] == "score")].iloc[0]
        assert (mean["verdict"], mean["why"]) == (said, why)
        # Seeds have the mean of their ranges, and no interval.
        assert rows.loc[rows["baseline"] == "fitted to shuffled images", "high"].tolist() == [top]


def test_baselines_of_cem_are_rows_of_their_model():
    rows = [cem(POST_HOC, 0.8), cem(POST_HOC, 0.7, explanation="", baseline="commonest concept"), cem(TRADITIONAL, 0.9)]
    joined_rows = joined(*rows, cem(TRADITIONAL, 0.95, explanation="", baseline="class recital"))
    cells = presence_tables(joined_rows, PAPER, "in")[2].frame
    found = cells.set_index(["explanation", "model"])["value"].sort_index()
    assert found["commonest concept", POST_HOC].item() == 0.7
    assert found["class recital", TRADITIONAL].item() == 0.95


def image_scores(seeds: int, right: dict[str, float]) -> pd.DataFrame:
    """Return accuracies of 60 images of 12 classes by model; images are equally hard for all models."""
    hard = np.random.default_rng(0).random((seeds, 60))
    parts = [
        pd.DataFrame({"model": name, "seed": seed, "image": range(60), "value": (hard[seed] < share).astype(float)})
        for name, share in right.items()
        for seed in range(seeds)
    ]
    about = {"metric": "accuracy", "explanation": "", "l": math.nan, "alpha": math.nan, "baseline": "", "item": ""}
    table = pd.concat(parts, ignore_index=True).assign(**about)
    return table.assign(label=table["image"] % 12, predicted=0)


@pytest.mark.parametrize(("seeds", "same_images"), [(1, True), (4, True), (4, False)])
def test_models_are_compared_on_the_same_images(seeds, same_images):
    images = image_scores(seeds, {POST_HOC: 0.95, TRADITIONAL: 0.3, "plain backbone": 0.95})
    compared = compare_answers(images, same_images).set_index("b")
    wide = images.groupby("model")["value"].mean()
    assert compared.loc[TRADITIONAL, "difference"] == pytest.approx(wide[POST_HOC] - wide[TRADITIONAL])
    assert difference_verdict(compared.loc[TRADITIONAL]) == "above 0"
    # A model and its copy.
    copy = compared.loc["plain backbone"]
    assert (copy["difference"], copy["p"], difference_verdict(copy)) == (0, 1, "not shown")
    assert (compared["p_adjusted"] >= compared["p"]).all()


def class_scores(noise: dict[str, list[float]]) -> pd.DataFrame:
    """Return the importances of 3 concepts for 8 classes: the truth, with noise of a size by model and seed."""
    truth = np.random.default_rng(0).random((8, 3))
    places = [(label, item) for label in range(8) for item in range(3)]
    about = {"alpha": math.nan, "l": math.nan, "image": -1, "predicted": -1, "baseline": ""}

    def rows(values: np.ndarray, metric: str, **more: Any) -> pd.DataFrame:
        columns = {"label": [k for k, _ in places], "item": [f"c{j}" for _, j in places], "value": values.ravel()}
        return pd.DataFrame(columns | about | {"metric": metric, "explanation": ""} | more)

    parts = []
    for model, sizes in noise.items():
        for seed, size in enumerate(sizes):
            drawn = truth + size * np.random.default_rng([1, seed]).standard_normal(truth.shape)
            parts.append(rows(drawn, "class importance", model=model, seed=seed, explanation="value"))
            parts.append(rows(truth, "class concepts", model=model, seed=seed))
    return pd.concat(parts, ignore_index=True)


def correlation(images: pd.DataFrame, model: str, seed: int) -> float:
    """The mean over concepts of Pearson's correlation over classes, by NumPy."""
    own = images[(images["model"] == model) & (images["seed"] == seed)]
    wide = [of.pivot(index="label", columns="item", values="value").to_numpy() for _, of in own.groupby("metric")]
    truth, importance = wide
    return float(np.mean([np.corrcoef(importance[:, j], truth[:, j])[0, 1] for j in range(3)]))


@pytest.mark.parametrize(
    ("same_images", "noise"),
    [(True, [1.0, 1.2, 0.9, 1.1]), (True, [0.1, 3.0, 0.1, 3.0]), (False, [1.0, 1.2, 0.9, 1.1])],
)
def test_cgim_is_compared_over_several_seeds(same_images, noise):
    images = class_scores({POST_HOC: [0.05, 0.05, 0.05, 0.06], TRADITIONAL: noise})
    answers = pd.concat([images, image_scores(4, {POST_HOC: 0.9, TRADITIONAL: 0.6})], ignore_index=True)
    compared = compare_answers(answers, same_images).set_index("what")
    row = compared.loc["CGIM correlation, by value"]
    ours, theirs = ([correlation(images, name, seed) for seed in range(4)] for name in (POST_HOC, TRADITIONAL))
    assert (row["value_a"], row["value_b"]) == (pytest.approx(np.mean(ours)), pytest.approx(np.mean(theirs)))
    apart = np.subtract(ours, theirs)
    assert row["difference"] == pytest.approx(apart.mean())
    half = 3.182446 * apart.std(ddof=1) / 2  # t of 3 degrees of freedom, the square root of 4 seeds
    if same_images:
        # More seeds do not average the classes away, which are the same for all.
        assert row["high"] - row["low"] > 2 * half
    else:
        assert (row["low"], row["high"]) == (pytest.approx(apart.mean() - half), pytest.approx(apart.mean() + half))
    assert (row["p"] < 0.05) == (row["low"] > 0)
    assert row["p_adjusted"] >= row["p"] > 0
    assert "CGIM, by value" not in compared.index


def test_the_same_training_five_times_says_of_cgim_what_one_says():
    once = class_scores({POST_HOC: [0.05], TRADITIONAL: [1.0]})
    again = pd.concat([once.assign(seed=seed) for seed in range(5)], ignore_index=True)
    one, several = (compare_answers(images, True).set_index("what") for images in (once, again))
    for name in ("difference", "low", "high", "p"):
        assert several.loc["CGIM correlation, by value", name] == pytest.approx(
            one.loc["CGIM correlation, by value", name]
        )


def test_seeds_on_the_same_photographs_do_not_average_them_away():
    images = image_scores(1, {POST_HOC: 0.5})
    images = pd.concat([images.assign(seed=seed) for seed in range(5)], ignore_index=True)
    value = images["value"].mean()
    rows = joined(*(row(POST_HOC, "accuracy", value, half=0.1, seed=seed) for seed in range(5)))
    narrow, wide = rows.iloc[0], with_image_intervals(rows, images).iloc[0]
    # Five times the same training says no more than one.
    alone = seeds_interval(np.tile(images["value"].to_numpy()[:60], (2, 1)), images["label"].to_numpy()[:60])
    assert (wide["low"], wide["high"]) == pytest.approx(alone)
    assert wide["high"] - wide["low"] > narrow["high"] - narrow["low"]


def test_one_accuracy_has_one_interval():
    fields = {"explanation": "uncertainty"}
    rows = joined(
        row(POST_HOC, "accuracy", 0.6, half=0.05),
        row(POST_HOC, "accuracy after interventions", 0.6, half=0.2, l=0, **fields),
        row(POST_HOC, "accuracy after interventions", 0.7, half=0.2, l=1, **fields),
        row(TRADITIONAL, "accuracy after interventions", 0.4, half=0.2, l=1, baseline="wrong labels", **fields),
    )
    curves = intervention_rows(rows)
    ours = curves[curves["model"] == POST_HOC]
    assert ours[["count", "low", "high"]].to_numpy().tolist() == pytest.approx(
        np.array([[0, 0.55, 0.65], [1, 0.5, 0.9]])
    )
    assert curves.iloc[-1][["model", "labels"]].tolist() == [TRADITIONAL, "wrong labels"]


def test_tables_hold_the_paper_beside_ours_and_chance_last():
    frame = joined(
        clm(POST_HOC, 0.133), clm(POST_HOC, 0.2, baseline="centred Gaussian"), clm(RANDOM, 0.14, low=0.1, high=0.2)
    )
    cells = place_tables(frame, PAPER)[0].frame
    assert [*cells["model"].cat.categories] == [POST_HOC, "paper", RANDOM, "chance"]
    line = cells.query("alpha == 'α = 1' and level == 'l = 1'").set_index(["explanation", "model"])["value"]
    assert line["contribution θ·u", POST_HOC] == line["contribution θ·u", "paper"] == 0.133
    # A baseline of the maps is a row of its model, and is held against no random range.
    gaussian = cells.query("explanation == 'centred Gaussian'").iloc[0]
    assert (gaussian["model"], gaussian["value"]) == (POST_HOC, 0.2)
    assert math.isnan(gaussian["random_low"])
    assert cells.query("model == 'chance'")["value"].tolist() == [1 / 12]


def test_settings_of_the_bank_beside_the_papers():
    swept = row(POST_HOC, "accuracy", 0.6, item_kind="setting", item=setting_name(1, 100))
    (table,) = settings_table(joined(swept, row("plain backbone", "accuracy", 0.75)), PAPER)
    cells = table.frame.set_index(["row", "model", "column"])["value"].sort_index()
    assert cells["C = 1", POST_HOC, "n = 100"] == 0.6
    assert cells["C = 1", "paper", "n = 100"] == 0.591
    assert (cells["plain backbone", POST_HOC].item(), cells["plain backbone", "paper"].item()) == (0.75, 0.754)
    assert settings_table(joined(row(POST_HOC, "accuracy", 0.6)), PAPER) == []


def test_names_that_would_become_the_same_stay():
    assert shown_names(["has_bill_shape::needle"]) == {"has_bill_shape::needle": "bill shape: needle"}
    assert shown_names(["has_size", "size"]) == {"has_size": "has_size", "size": "size"}


def test_the_papers_figures_are_those_its_text_quotes():
    # Section 4.3.2: present "around 55% of the times", "drops to 49%"; 4.4.2: "only 13.3% of the time", at
    # alpha = 6 "not in the correct concept locations 41% of the time"; appendix C: 59.1% at 100 and 1.
    first = PAPER[(PAPER["explanation"] == "contribution") & (PAPER["l"] == 1)]
    assert first.loc[first["metric"] == "CEM", "value"].tolist() == [0.493, 0.554]
    assert first.loc[first["metric"] == "CLM", "value"].tolist() == [0.133, 0.334, 0.590]
    accuracy = PAPER[PAPER["item_kind"] == "setting"]
    assert accuracy.loc[accuracy["value"].idxmax(), "item"] == setting_name(1, 100)
    assert PAPER["metric"].value_counts().to_dict() == {"CLM": 27, "CEM": 18, "accuracy": 11}


def test_an_accuracy_above_the_ceiling_is_leakage_or_wrong_labels():
    def text(**values: float) -> str:
        names = {"share": "concept-set ceiling as wrong labels", "unique": "images with unique concepts"}
        rows = [row(POST_HOC, names.get(name, "concept-set ceiling"), value) for name, value in values.items()]
        return ceiling_text(pd.DataFrame(rows))

    assert text(ceiling=0.8, share=0.091, unique=0.03) == (
        " The best head on the concept labels reaches 80.0 %; the post-hoc CBM is more accurate, which is leakage or "
        "what 9.1 % wrong labels would give."
    )
    assert "what beyond 30 % wrong labels would give" in text(ceiling=0.8, share=0.3, unique=0.03)
    assert text(ceiling=0.8, share=0.0, unique=0.03) == " The best head on the concept labels reaches 80.0 %."
    nothing = text(ceiling=0.995, share=math.nan, unique=0.974)
    assert "says nothing about accuracy: 97.4 % of the images have concepts that no other image has" in nothing
    assert ceiling_text(pd.DataFrame([row(POST_HOC, "accuracy", 0.8)])) == ""
    assert [wrong_labels(share) for share in (0.037, 0.3)] == ["3.7", "beyond 30"]
