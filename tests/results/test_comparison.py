"""`compare`: matching of rows, clusters, pairs, corrections, CGIM; on tables by hand and on what the package gives."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from quantus import Sparseness
from torch import nn

from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM
from quantus_concepts import CEM, CGIM, Evaluation, compare, evaluate, plot_comparison, score_concepts
from quantus_concepts.functional import adjust_p_values, cgim_difference, paired_difference, seeds_interval
from quantus_concepts.metrics import UsualMetrics, predict_concepts, score_predictions
from quantus_concepts.metrics.concepts.cgim import class_means

RNG = np.random.default_rng(0)
CLASSES = np.arange(20) % 4
SCORES = {name: RNG.random(20) for name in ("x", "y", "z")}


def table(*models: str, metric: str = "CEM", **columns: object) -> pd.DataFrame:
    images = {"metric": metric, "image": range(20), "label": CLASSES, **columns}
    return pd.concat([pd.DataFrame({"model": name, **images, "value": SCORES[name]}) for name in models])


def test_two_tables_are_matched_by_image() -> None:
    first, second = table("x"), table("y").sample(frac=1, random_state=0)
    (row,) = compare(first, second).to_dict("records")
    expected = paired_difference(SCORES["x"], SCORES["y"], CLASSES)
    assert (row["a"], row["b"], row["metric"]) == ("x", "y", "CEM")
    assert row["difference"] == pytest.approx(expected.difference)
    assert (row["low"], row["high"], row["p"]) == pytest.approx((expected.low, expected.high, expected.p))
    assert (row["value_a"], row["value_b"]) == pytest.approx((SCORES["x"].mean(), SCORES["y"].mean()))
    assert (row["n"], row["undefined"], row["p_adjusted"]) == (20, 0, row["p"])
    (row,) = compare(first, first).to_dict("records")
    assert (row["a"], row["b"], row["difference"], row["p"]) == ("a", "b", 0, 1)
    assert np.isnan([row["low"], row["high"]]).all()


def test_pairs_of_one_table_and_their_correction() -> None:
    models = table("x", "y", "z")
    result = compare(models)
    assert result[["a", "b"]].values.tolist() == [["x", "y"], ["x", "z"], ["y", "z"]]
    np.testing.assert_allclose(result["p_adjusted"], adjust_p_values(result["p"]))
    reference = compare(models, reference="z", adjust="none")
    assert reference[["a", "b"]].values.tolist() == [["x", "z"], ["y", "z"]]
    assert reference["difference"].tolist() == result["difference"][1:].tolist()
    assert reference["p_adjusted"].equals(reference["p"])


def test_variants_are_rows_in_their_order() -> None:
    variants = [
        {"metric": "CLM", "l": 3.0, "explanation": "weight"},
        {"metric": "CEM", "l": math.nan, "explanation": ""},
        {"metric": "CEM", "l": 1.0, "explanation": "value"},
    ]
    tables = [pd.concat([table(name, **variant) for variant in variants]) for name in ("x", "y")]
    result = compare(*tables)
    assert result["metric"].tolist() == ["CLM", "CEM", "CEM"]
    assert result["explanation"].tolist() == ["weight", "", "value"]
    assert result["l"].fillna(0).tolist() == [3, 0, 1]
    # Empty columns are left out.
    assert "explanation" not in compare(table("x", explanation=""), table("y", explanation=""))


def test_baselines_are_compared_with_the_maps_themselves() -> None:
    parts = [
        table("x", baseline=name).assign(value=SCORES[key]) for name, key in (("", "x"), ("norm", "y"), ("c", "z"))
    ]
    other = table("x", metric="CEM", baseline="")
    clm = pd.concat([part.assign(metric="CLM") for part in parts])
    result = compare(pd.concat([clm, other]), by="baseline", reference="")
    assert result[["metric", "a", "b"]].values.tolist() == [["CLM", "norm", ""], ["CLM", "c", ""]]
    assert result["difference"][0] == pytest.approx(SCORES["y"].mean() - SCORES["x"].mean())


def test_clusters() -> None:
    first, second = table("x", bird=CLASSES // 2), table("y", bird=CLASSES // 2)
    for clusters, expected in ((None, None), ("bird", CLASSES // 2), (CLASSES % 3, CLASSES % 3)):
        (low,) = compare(first, second, clusters=clusters)["low"]
        assert low == pytest.approx(paired_difference(SCORES["x"], SCORES["y"], expected).low)


X, Y = table("x"), table("y")


@pytest.mark.parametrize(
    ("tables", "keywords", "message"),
    [
        ((X, Y[:17]), {}, "3 rows of 'x' and 0 rows of 'y' have no counterpart: metric CEM, image 17"),
        ((pd.concat([X] * 2), Y), {}, "20 rows are there again"),
        ((X, table("y", label=(CLASSES + (np.arange(20) < 5)) % 4)), {}, "5 of 20 images have other classes"),
        ((X,), {}, "`model` or `method` with at least two names"),
        ((X, Y), {"reference": "x"}, "either argument `b` or `reference`"),
        ((X, Y), {"names": ("A",)}, "`names` to name the two tables `a` and `b`"),
        ((X, Y), {"adjust": "holms"}, "Did you mean 'holm'"),
        ((X.drop(columns="image"), Y), {}, "`a` to have rows, and columns `metric`, `image`"),
        ((X, {"y": SCORES["y"]}), {}, "`b` to be a DataFrame or what `evaluate` returns"),
        ((X.drop(columns="label"), Y.drop(columns="label")), {}, "a column `label` or `class` for `clusters`"),
        ((X, Y), {"clusters": [0, 1, 2]}, "one cluster for each image, 0 to 19, but got 3"),
    ],
)
def test_refused(tables: tuple[pd.DataFrame, ...], keywords: dict[str, str], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        compare(*tables, **keywords)


def test_cgim_is_compared_by_classes() -> None:
    truth, x, y = torch.rand(3, 6, 4, generator=torch.Generator().manual_seed(0)).double()
    x[2, 1] = math.nan

    def rows(model: str, metric: str, explanation: str, matrix: torch.Tensor) -> pd.DataFrame:
        label, item = np.indices(matrix.shape).reshape(2, -1)
        columns = {"model": model, "metric": metric, "explanation": explanation, "image": -1, "label": label}
        return pd.DataFrame({**columns, "item": [f"concept {j}" for j in item], "value": matrix.flatten()})

    classes = [rows(name, "class importance", "weight", matrix) for name, matrix in (("x", x), ("y", y))]
    both = pd.concat([*classes, rows("", "class concepts", "", truth), table("x", "y")])
    result = compare(both)
    assert result["metric"].tolist() == ["CEM", *["CGIM"] * 2, *["CGIM correlation"] * 2]
    kinds = itertools.product((False, True), ("concept", "class"))
    for row, (centred, per) in zip(result[1:].to_dict("records"), kinds, strict=True):
        expected = cgim_difference(x, y, truth, per, centred)
        assert (row["item_kind"], row["explanation"]) == (per, "weight")
        assert (row["difference"], row["low"], row["p"]) == pytest.approx(
            (expected.difference, expected.low, expected.p)
        )
        assert (row["n"], row["undefined"]) == (expected.n, expected.undefined)
    with pytest.raises(ValueError, match="'class concepts' with those of 'class importance'"):
        compare(*(both[both["model"] == name] for name in ("x", "y")))
    gone = (both["metric"] == "class importance") & (both["model"] == "y") & (both["label"] == 5)
    with pytest.raises(
        ValueError, match=r"the same classes and concepts .* but the rows of 'y' lack the classes 5. Pass"
    ):
        compare(both[~gone])
    gone = (both["metric"] == "class concepts") & (both["item"] == "concept 1")
    with pytest.raises(ValueError, match=r"but those of 'class concepts' lack the concepts concept 1. Pass"):
        compare(both[~gone])
    # No class is predicted correctly by both: nothing is compared, and no p-value is counted.
    apart = both.copy()
    of_class = apart["metric"] == "class importance"
    apart.loc[of_class & ((apart["model"] == "x") == (apart["label"] < 3)), "value"] = math.nan
    undefined = compare(apart)
    assert undefined["n"].tolist()[1:] == [0] * 4
    assert undefined["undefined"].tolist()[1:] == [4, 6, 4, 6]
    assert undefined.loc[1:, ["value_a", "value_b", "difference", "low", "high", "p_adjusted"]].isna().all(axis=None)
    assert undefined["p_adjusted"][0] == undefined["p"][0]


def small_cbm(seed: int) -> PostHocCBM:
    generator = torch.Generator().manual_seed(seed)
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.randn(4, 4, generator=generator)), nn.Linear(4, 2))
    with torch.no_grad():
        for parameter in cbm.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    cbm.absent_values = torch.zeros(4)
    return cbm


IMAGES = torch.rand(12, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 2
PRESENT = (torch.rand(12, 4, generator=torch.Generator().manual_seed(1)) < 0.5).int()


def test_evaluations() -> None:
    head = nn.Linear(4, 2)
    values = torch.randn(12, 4, generator=torch.Generator().manual_seed(2)).numpy()
    methods = {"values": values, "opposite": -values}
    metrics = {"CEM": CEM(PRESENT), "CGIM": CGIM(PRESENT[:2] * 0.9 + 0.05)}
    evaluation = evaluate(metrics, methods, head, values, LABELS.numpy())
    with pytest.warns(UserWarning, match="without one score for each image: CGIM"):
        (row,) = compare(evaluation, clusters=LABELS).to_dict("records")
    first, second = (evaluation.results[name]["CEM"] for name in methods)
    expected = paired_difference(first, second, LABELS)
    assert (row["a"], row["b"], row["metric"]) == ("values", "opposite", "CEM")
    assert row["difference"] == pytest.approx(expected.difference)
    assert row["p"] == pytest.approx(expected.p)
    with pytest.raises(ValueError, match="Pass `clusters` as an array"):
        compare(evaluation)


def test_scores_of_any_method_are_compared_between_evaluations_only() -> None:
    explanations = {name: np.random.default_rng(seed).random((12, 3, 16, 16)) for seed, name in enumerate("xyz")}

    def evaluation(seed: int, methods: str) -> Evaluation:
        metrics = {"CEM": CEM(PRESENT), "Sparseness": Sparseness()}
        chosen = {name: explanations[name] for name in methods}
        return evaluate(metrics, chosen, small_cbm(seed), IMAGES.numpy(), LABELS.numpy())

    first, second = evaluation(0, "xyz"), evaluation(1, "xyz")
    within = compare(first, clusters=None)
    assert within[["metric", "a", "b"]].values.tolist() == [["Sparseness", *pair] for pair in ("xy", "xz", "yz")]
    between = compare(first, second, clusters=None, names=("A", "B"))
    rows = [["CEM", "any method", "A", "B"], *(["Sparseness", name, "A", "B"] for name in "xyz")]
    assert between[["metric", "method", "a", "b"]].values.tolist() == rows
    expected = paired_difference(first.results["x"]["CEM"], second.results["x"]["CEM"])
    assert (between["difference"][0], between["p"][0]) == pytest.approx((expected.difference, expected.p))
    # One method each: the row of any method says so.
    single = compare(evaluation(0, "x"), evaluation(1, "y"), clusters=None)
    rows = [["CEM", "any method", "x", "y"], ["Sparseness", "", "x", "y"]]
    assert single[["metric", "method", "a", "b"]].values.tolist() == rows


def test_a_plot_shows_each_difference_and_zero() -> None:
    result = compare(table("x", "y", "z", l=1.0))
    result.loc[0, "p_adjusted"] = 0.01
    figure, ax = plot_comparison(result)
    assert [label.get_text() for label in ax.get_yticklabels()][1] == "CEM l = 1: x - z"
    filled, hollow = (line for line in ax.lines if line.get_marker() == "o")
    assert filled.get_xdata().tolist() == [result["difference"][0]]
    assert hollow.get_xdata().tolist() == result["difference"][1:].tolist()
    assert any(set(line.get_xdata()) == {0} for line in ax.lines)
    (bars,) = ax.containers[0].lines[2]
    ends = np.array([segment[:, 0] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, result[["low", "high"]])
    figure.canvas.draw()
    with pytest.raises(ValueError, match="`result` to be what `compare` returns"):
        plot_comparison(result.drop(columns="low"))


def test_tables_of_score_concepts_give_both_kinds_of_cgim(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(4, 3, generator=generator)
    labels = torch.arange(60) % 4
    features = torch.randn(60, 5, generator=generator) + torch.randn(4, 5, generator=generator)[labels]
    present = (torch.rand(60, 3, generator=generator) < truth[labels]).long()
    tables, importances = {}, {}
    for name in ("one", "two"):
        head = nn.Linear(3, 4)
        head.weight.data = torch.randn(4, 3, generator=generator)
        model = PostHocCBM(nn.Identity(), ConceptBank(torch.randn(3, 5, generator=generator)), head)
        model.absent_values = torch.zeros(3)
        settings = {
            "class_concepts": truth,
            "truth": {"concept_names": list("cab")},
            "metrics": UsualMetrics(top_l=[1, 2]),
        }
        rows = predict_concepts({name: model}, [(features, labels, present)], **settings)
        kinds = settings["metrics"].explanations
        importances[name] = torch.stack([class_means(rows[name], kind, 4)[0][0] for kind in kinds])
        tables[name] = score_predictions(rows, settings["metrics"], per_image=True)
        tables[name].to_csv(tmp_path / f"{name}.csv", index=False)
    # Pandas reads an empty text as NaN, in which two tables agree.
    read = [pd.read_csv(tmp_path / f"{name}.csv", float_precision="round_trip") for name in tables]
    result = compare(*tables.values())
    assert result.equals(compare(*read))
    assert result.equals(compare(pd.concat(tables.values(), ignore_index=True).drop_duplicates()))
    assert {"accuracy", "CEM", "CEM gain", "CGIM", "CGIM correlation"} <= {*result["metric"]}
    assert {*result["a"]} == {"one"}
    rows = result.set_index(["metric", "explanation", "item_kind"])[["difference", "n"]]
    for place, explanation in enumerate(("weight", "value", "contribution", "effect")):
        pair = [importances[name][place] for name in ("one", "two")]
        for metric, per in itertools.product(("CGIM", "CGIM correlation"), ("concept", "class")):
            expected = cgim_difference(*pair, truth.double(), per, metric == "CGIM correlation")
            (row,) = rows.loc[[(metric, explanation, per)]].values.tolist()
            assert row == pytest.approx([expected.difference, expected.n], nan_ok=True)


def test_seeds_of_two_models() -> None:
    """Tables of several seeds, in a column `seed`: a row for each, or an interval over both images and seeds."""
    rng = np.random.default_rng(0)
    seeds = [table("x", "y", seed=seed) for seed in range(3)]
    both = pd.concat([part.assign(value=part["value"] + rng.normal(0, 0.1, len(part))) for part in seeds])
    by_seed = compare(both)
    assert by_seed["seed"].tolist() == [0, 1, 2]
    first, second = (
        both[both["model"] == name].pivot(index="seed", columns="image", values="value") for name in ("x", "y")
    )
    low, high = seeds_interval(first - second, CLASSES, bounds=(-1, 1))
    assert low < by_seed["difference"].mean() < high


def test_clusters_in_an_array_need_images_by_number():
    rng, n = np.random.default_rng(0), 12
    names, labels = [f"{number}.jpg" for number in range(n)], np.arange(n) % 3
    tables = [
        pd.DataFrame({"model": model, "metric": "CEM", "image": names, "label": labels, "value": rng.random(n)})
        for model in "AB"
    ]
    with pytest.raises(ValueError, match=r"`image` to number the images.*but got '0.jpg'"):
        compare(*tables, clusters=labels)


class TestConventions:
    """Scores whose importance is counted from different zeros are not compared."""

    IMAGES, CLASSES = torch.randn(24, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3
    SHOWN = (torch.rand(24, 3, generator=torch.Generator().manual_seed(1)) < 0.5).int()

    def table(self, name: str, *explanations: str) -> pd.DataFrame:
        layer, head = nn.Linear(4, 3), nn.Linear(3, 3)
        generator = torch.Generator().manual_seed(len(name))
        for part in (layer, head):
            part.weight.data = torch.randn(part.weight.shape, generator=generator)
        parts = {"features": nn.Identity(), "concept_layer": layer, "head": head, "pool": nn.Identity()}
        model = BottleneckCBM(**parts, activation=None if name == "logits" else torch.sigmoid)
        model.absent_values = None if name == "unknown" else torch.full((3,), -1.0)
        metrics = UsualMetrics(top_l=[1], explanations=explanations)
        shares = torch.eye(3) * 0.5 + 0.2
        batches = [(self.IMAGES, self.CLASSES, self.SHOWN)]
        return score_concepts({name: model}, batches, metrics, class_concepts=shares, per_image=True, baselines=False)

    def test_only_what_has_one_zero_is_compared(self) -> None:
        kinds = ("weight", "value", "contribution", "effect")
        first, second = self.table("logits", *kinds), self.table("probabilities", *kinds)
        with pytest.warns(
            UserWarning, match=r"CEM by weight \(zero of the logit, probability\), .*CGIM by contribution"
        ):
            result = compare(first, second)
        assert {*zip(result["metric"], result["explanation"], strict=True)} == {
            ("accuracy", ""),
            *((metric, "effect") for metric in ("CEM", "CEM gain", "CGIM", "CGIM correlation")),
            # The correlation over classes depends neither on the zero nor on the unit.
            *(("CGIM correlation", kind) for kind in ("value", "weight")),
        }
        by_value = result[(result["metric"] == "CGIM correlation") & (result["explanation"] == "value")]
        assert by_value["item_kind"].tolist() == ["concept"]
        assert {*result.loc[result["explanation"] == "effect", "convention"]} == {"absent level"}
        # One convention, or none that is known: everything is compared.
        assert len(compare(first, first.assign(model="other"))) > len(result)
        plain = (each.drop(columns="convention") for each in (first, second))
        assert len(compare(*plain)) > len(result)

    def test_nothing_is_left(self) -> None:
        first, second = (
            table[table["metric"] == "CEM"] for table in (self.table("logits", "value"), self.table("odds", "value"))
        )
        with pytest.warns(UserWarning, match="from different zeros"), pytest.raises(ValueError, match="there is none"):
            compare(first, second)


def test_one_class_has_no_interval_and_a_reason() -> None:
    """And what has a score for each image is compared, whatever its interval."""
    labels, values = PRESENT[:, :4], torch.randn(12, 4, generator=torch.Generator().manual_seed(2)).numpy()
    methods = {"values": values, "opposite": -values}
    one = np.zeros(12, int)
    # As many concepts as images: CGIM has as many scores, which are of concepts all the same.
    square = torch.rand(12, 12, generator=torch.Generator().manual_seed(3)).numpy()
    evaluation = evaluate({"CEM": CEM(labels)}, methods, nn.Linear(4, 2), values, one)
    reason = "^No interval and no p-value of CEM: all images are in one cluster; pass `clusters=None`"
    with pytest.warns(UserWarning, match=reason) as caught:
        (row,) = compare(evaluation, clusters=one).to_dict("records")
    assert len(caught) == 1
    assert row["n"] == 12
    assert np.isnan([row["low"], row["high"], row["p"]]).all()
    assert "_why" not in row
    independent = compare(evaluation, clusters=None)
    assert independent["p"].notna().all()
    of_concepts = evaluate(
        {"CGIM": CGIM((square[:2] > 0.5) * 1.0, labels=LABELS), "CEM": CEM((square > 0.5) * 1)},
        {"values": square, "opposite": -square},
        nn.Linear(12, 2),
        square,
        LABELS.numpy(),
    )
    with pytest.warns(UserWarning, match="without one score for each image: CGIM"):
        assert compare(of_concepts, clusters=LABELS)["metric"].tolist() == ["CEM"]


@pytest.mark.parametrize(
    ("first", "second", "clusters", "why"),
    [
        ([1, np.nan, np.nan], [0, 1, np.nan], None, "fewer than two images have both scores"),
        ([0.3, 0.4, 0.6], [0.1, 0.2, 0.4], None, "all images have the same difference"),
        ([0.3, 0.4, np.nan], [0.2, 0.1, 0.4], [0, 0, 1], "all images are in one cluster"),
    ],
)
def test_no_p_value_has_a_reason(first: list[float], second: list[float], clusters: list[int] | None, why: str) -> None:
    images = {"metric": "CEM", "image": range(3)}
    tables = [pd.DataFrame({"model": name, **images, "value": v}) for name, v in (("a", first), ("b", second))]
    with pytest.warns(UserWarning, match=f"^No interval and no p-value of CEM: {why}"):
        compare(*tables, clusters=clusters)


def test_cgim_of_two_classes_has_a_reason() -> None:
    keys = {"label": [0, 0, 1, 1], "item": ["x", "y"] * 2, "image": -1}
    of_models = [
        pd.DataFrame({"model": name, "metric": "class importance", "explanation": "weight", "value": values, **keys})
        for name, values in (("a", [1, 0.1, 0, 0.9]), ("b", [0.3, 0.6, 0.5, 0.4]))
    ]
    truth = pd.DataFrame({"model": "", "metric": "class concepts", "explanation": "", "value": [1.0, 0, 0, 1], **keys})
    with pytest.warns(
        UserWarning, match="^No interval and no p-value of CGIM, CGIM correlation: fewer than three classes"
    ):
        compare(pd.concat([*of_models, truth]))
