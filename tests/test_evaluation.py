"""`evaluate` keeps all results and numbers of Quantus; `summarise` adds chance and controls."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import quantus
import torch
from captum.attr import Saliency
from scipy import stats

from captum_concepts import ConceptBank, PostHocCBM, RandomAttribution, explain_func
from quantus_concepts import CEM, CGIM, CLM, IDR, MCS, evaluate, plot_summary, summarise
from quantus_concepts.functional import interval, paired_difference
from quantus_concepts.metrics.host.metric import nanmean
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel
from untouched import untouched

N = 12


@pytest.fixture
def model() -> SharingConceptModel:
    return SharingConceptModel()


@pytest.fixture
def call(model):
    rng = np.random.default_rng(3)
    return {
        "model": model,
        "x_batch": rng.normal(size=(N, 3, 12, 12)).astype(np.float32),
        "y_batch": rng.integers(0, N_CLASSES, N),
    }


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(4).integers(0, 2, (N, N_CONCEPTS))


def constant(model, inputs, targets, **kwargs):
    maps = np.full_like(inputs, 0.5)
    maps[0] = 1
    return maps


def negative(model, inputs, targets, **kwargs):
    return -1 - np.random.default_rng(0).random(size=inputs.shape)


def broken(model, inputs, targets, **kwargs):
    raise RuntimeError("no gradient here")


class Raising(quantus.Sparseness):
    """A metric of Quantus that fails for one method only."""

    def __call__(self, *args, a_batch=None, **kwargs):
        if a_batch.max() == 1:
            raise KeyError("constant maps")
        return super().__call__(*args, a_batch=a_batch, **kwargs)


METHODS = {"gradient": {"method": "Gradient"}, "random": explain_func(RandomAttribution)}


def test_results_are_those_of_quantus(call, labels):
    def metrics():
        return {"CEM": CEM(labels), "Sparseness": quantus.Sparseness()}

    stock = quantus.evaluate(metrics(), METHODS, **call, explain_func_kwargs={})
    with untouched(call["model"].train(), call["x_batch"]):
        assert evaluate(metrics(), METHODS, **call).results == stock
    framed = evaluate(metrics(), METHODS, **call, return_as_df=True, agg_func=np.mean).results
    expected = quantus.evaluate(metrics(), METHODS, **call, explain_func_kwargs={}, agg_func=np.mean, return_as_df=True)
    pd.testing.assert_frame_equal(framed, expected)
    calls = {"small": {"batch_size": 2}, "large": {"batch_size": 8}}
    results, summary = evaluate(metrics(), {"random": METHODS["random"]}, **call, call_kwargs=calls)
    assert results["random"] == {name: dict.fromkeys(calls, scores) for name, scores in stock["random"].items()}
    assert summary["call"].tolist() == ["small", "small", "large", "large"]


def test_what_raises_costs_its_own_results_only(call, labels):
    metrics = {"Raising": Raising(), "CEM": CEM(labels)}
    methods = {"constant": constant, "gradient": {"method": "Gradient"}, "broken": broken}
    with pytest.warns(UserWarning, match="Raising of constant failed. KeyError: 'constant maps'"):
        results, summary = evaluate(metrics, methods, **call)
    assert np.isnan([results[name]["Raising"] for name in ("constant", "broken")]).all()
    assert len(results["constant"]["Raising"]) == N
    assert np.isfinite(results["gradient"]["Raising"]).all()
    assert results["broken"]["CEM"] == results["constant"]["CEM"] == CEM(labels)(**call)
    rows = summary.set_index(["method", "metric"])
    failed = rows.loc["constant", "Raising"]
    assert (failed["n"], failed["undefined"], failed["reason"]) == (0, N, "KeyError: 'constant maps'")
    assert math.isnan(failed["value"])
    reason = rows.loc["broken", "Raising"]["reason"]
    assert reason == "the explanation method raised RuntimeError: no gradient here"
    # On images with a concept model CEM needs no explanation, and one row says so.
    assert summary.query("metric == 'CEM'")[["method", "reason"]].values.tolist() == [["any method", ""]]


def test_maps_that_quantus_refuses_are_scored(call):
    masks = np.zeros((N, 1, 12, 12))
    masks[:, :, :6, :6] = 1
    metrics = {"CLM": CLM(alpha=3, masks=masks), "Sparseness": quantus.Sparseness()}
    with pytest.warns(UserWarning, match="less than zero"):
        results = evaluate(metrics, {"negative": negative, **METHODS}, **call).results
    # Classes serve as concepts here: the maps are given.
    expected = CLM(alpha=3, masks=masks)(**call, a_batch=negative(None, call["x_batch"], call["y_batch"]))
    assert results["negative"]["CLM"] == expected
    assert np.isfinite(expected).all()
    assert np.isnan(results["negative"]["Sparseness"]).all()


def test_methods_may_have_any_name_where_metrics_explain_again(call):
    masks = np.zeros((N, 1, 12, 12), dtype=bool)
    masks[:, :, 3:8, 3:8] = True
    call |= {"y_batch": call["model"](torch.as_tensor(call["x_batch"])).argmax(1).numpy(), "s_batch": masks}
    metrics = {"MCS": MCS(SharingConceptModel(), call["y_batch"])}
    methods = {"mine": {"method": "Saliency"}, "Saliency": {"method": "Saliency"}}
    results = evaluate(metrics, methods, **call).results
    # The same weights in another model: no method tells the two apart.
    assert results["mine"]["MCS"] == results["Saliency"]["MCS"] == [0] * N


def test_an_aggregation_that_raises_warns(call, labels):
    call["agg_func"] = lambda scores: 1 / 0
    with pytest.warns(UserWarning, match="agg_func raised ZeroDivisionError"):
        evaluation = evaluate({"CEM": CEM(labels)}, {"random": METHODS["random"]}, **call)
    assert math.isnan(evaluation.results["random"]["CEM"])
    assert "agg_func raised" in evaluation.summary["reason"][0]
    assert "agg_func raised" in evaluation._repr_html_()
    assert evaluation.summary["n"][0] == N


def test_summary_by_hand():
    results = {"a": {"m": [0.5, 0.25, math.nan, 0.75]}, "chance": {"m": [0.25, 0.25, 0.5, 0.0]}}
    summary = summarise(results, {"m": None}, control="chance")
    a = summary.iloc[0]
    half = stats.t.ppf(0.975, 2) * 0.25 / math.sqrt(3)
    assert (a["value"], a["n"], a["undefined"], a["control"]) == (0.5, 3, 1, 0.25)
    assert a["low"] == pytest.approx(0.5 - half)
    assert a["high"] == pytest.approx(0.5 + half)
    assert math.isnan(a["chance"])


def test_summary_of_stock_results_has_chance_and_reasons(call, labels):
    masks = np.zeros((N, 1, 12, 12))
    masks[1:, :, :4, :4] = 1
    metrics = {"CEM": CEM(labels), "IDR": IDR(counterpart=np.where(masks == 1, 0, call["x_batch"]), masks=masks)}
    with pytest.warns(UserWarning, match="masks are empty"):
        results = quantus.evaluate(metrics, METHODS, **call, explain_func_kwargs={})
    for summary in (summarise(results, metrics), summarise(pd.DataFrame.from_dict(results), metrics)):
        reasons = summary.query("metric == 'IDR'")["reason"]
        assert reasons.str.contains(r"masks are empty or full, of samples 0 \(1\)").all()
    row = summarise(results, metrics).query("metric == 'CEM'").iloc[0]
    assert row["value"] == pytest.approx(np.mean(metrics["CEM"].records[-1].scores))
    assert row["n"] == N


def test_classes_are_clusters_as_in_a_comparison(call):
    # Six classes of ten images; hits depend on the class.
    classes = np.arange(60) % 6
    scores = {"a": {"hit": (classes < 4).astype(float)}, "b": {"hit": (classes < 2).astype(float)}}
    summary = summarise(scores, {"hit": None}, clusters=classes).set_index("method")
    for name in scores:
        assert tuple(summary.loc[name, ["low", "high"]]) == interval(scores[name]["hit"], (0, 1), classes)
    # As independent images the intervals are disjoint, where the paired difference shows nothing.
    with pytest.raises(ValueError, match=f"one cluster for each sample, {len(classes)}, but got {len(classes) - 1}"):
        summarise(scores, {"hit": None}, clusters=classes[:-1])
    # Some metrics score something else than samples.
    summarise(scores | {"other": {"hit": [1.0, 0.0]}}, {"hit": None}, clusters=classes)
    alone = summarise(scores, {"hit": None}).set_index("method")
    assert alone.loc["a", "low"] > alone.loc["b", "high"]
    assert paired_difference(scores["a"]["hit"], scores["b"]["hit"], classes).p > 0.05
    assert summary.loc["a", "low"] < summary.loc["b", "high"]
    # `evaluate` knows the classes; one class alone leaves the images.
    metrics = {"Sparseness": quantus.Sparseness(disable_warnings=True)}
    methods = {"noise": np.random.default_rng(0).random((N, 3, 12, 12))}
    for y_batch in (call["y_batch"], np.zeros(N, int)):
        results, summary = evaluate(metrics, methods, **call | {"y_batch": y_batch})
        groups = y_batch if y_batch.any() else None
        expected = interval(results["noise"]["Sparseness"], (-np.inf, np.inf), groups)
        assert tuple(summary.loc[0, ["low", "high"]]) == expected


def test_each_method_has_its_own_reason(model, labels):
    values = model.concept_predictor(torch.zeros(N, 3, 12, 12)).detach().numpy()
    metrics = {"CEM": CEM(labels, disable_warnings=True)}
    wrong = {
        "zeros": np.zeros((N, N_CONCEPTS)),
        "wrong shape": np.ones((N, N_CONCEPTS + 1)),
        "not finite": np.full((N, N_CONCEPTS), np.nan),
    }
    results = quantus.evaluate(metrics, wrong, model.head, values, np.zeros(N, int), explain_func_kwargs={})
    reasons = summarise(results, metrics).set_index("method")["reason"]
    assert [word in reasons[name] for name, word in zip(wrong, ("zero", "shape", "NaN"), strict=True)] == [True] * 3
    # Of copies it is not known which call they are of.
    copied = {name: {"CEM": list(results[name]["CEM"])} for name in wrong}
    assert summarise(copied, metrics)["reason"].str.startswith("not known").all()


def test_scores_that_are_not_of_samples_have_no_interval_and_no_mean(call):
    truth = np.random.default_rng(0).uniform(size=(N_CLASSES, N_CONCEPTS))
    metrics = {"CGIM": CGIM(truth, importance="weight")}
    summary = evaluate(metrics, {"random": METHODS["random"]}, **call).summary
    assert summary[["low", "high"]].isna().all(axis=None)
    assert summary["n"][0] + summary["undefined"][0] == N_CONCEPTS
    summary = summarise({"a": {"m": np.ones((3, 7))}, "b": {"m": {"layer": [1.0]}}}, {"m": None})
    assert summary["n"].tolist() == [0, 0]
    assert summary["value"].isna().all()
    assert summary["reason"].str.startswith("not one score for each sample").all()


def test_controls_of_many_models_are_a_distribution():
    scores = {"cbm": {"m": [0.9, 0.8]}}
    banks = [{"random": {"m": [share, share]}} for share in np.linspace(0, 1, 39)]
    row = summarise(scores, {"m": None}, control=banks).iloc[0]
    assert row["control"] == pytest.approx(0.5)
    assert row[["control_low", "control_high", "control_coverage"]].tolist() == pytest.approx([0, 1, 0.95])
    summary = summarise(scores, {"m": None}, control={"m": np.linspace(0, 1, 39)}).iloc[0]
    assert summary.equals(row)
    few = summarise(scores, {"m": None}, control=banks[:5]).iloc[0]
    assert few["control_high"] == pytest.approx(4 / 38)
    assert few["control_coverage"] == pytest.approx(4 / 6)
    assert "control_low" not in summarise(scores, {"m": None}, control=banks[:1])


def test_plot_shows_chance_and_control_of_each_number():
    results = {"$x$": {"m": [0.5, 0.7], "n": [math.nan]}, "random": {"m": [0.1, 0.2], "n": [0.3]}}
    summary = summarise(results, {"m": None, "n": None}, control="random")
    fig, axes = plot_summary(summary)
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["$x$", "random"]
    assert [text.get_text() for text in axes[1].texts] == ["undefined", "n"]
    fig.canvas.draw()
    counts = [[label.get_text() for label in ax.child_axes[0].get_yticklabels()] for ax in axes]
    assert counts == [["2", "2"], ["0 of 1", "1"]]
    with pytest.raises(ValueError, match="`ax` to hold 2 axes"):
        plot_summary(summary, ax=axes[:1])
    with pytest.raises(ValueError, match=r"no column \['method'"):
        plot_summary(pd.DataFrame({"value": [1.0]}))


def fitted(n_banks: int = 4) -> PostHocCBM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.ReLU()).eval()
    generator = torch.Generator().manual_seed(1)
    images, classes = torch.rand(40, 3, 12, 12, generator=generator), torch.arange(40) % N_CLASSES
    bank = ConceptBank.random(N_CONCEPTS, 6, mean=torch.ones(6))
    return PostHocCBM.fit(network, [(images, classes)], bank=bank, random_banks=n_banks)


def test_random_banks_are_the_baseline_of_concept_metrics_at_no_pass(call, labels):
    model = fitted()
    runs = []
    model.features.register_forward_hook(lambda *_: runs.append(1))
    class_concepts = np.random.default_rng(0).random((N_CLASSES, N_CONCEPTS))
    metrics = {
        **{"CEM": CEM(labels), "CEM gain": CEM(labels, gain=True)},
        **{"CGIM": CGIM(class_concepts), "CGIM correlation": CGIM(class_concepts, centred=True)},
    }
    call |= {"model": model}
    # A method that runs no model.
    methods = {"random": {"method": "Control Var. Random Uniform"}}
    summary = evaluate(metrics, methods, **call, baselines=True).summary.set_index("metric")
    assert len(runs) == 1
    gain = metrics["CEM gain"].records[-1]
    low, high = interval(gain.values, (-1, 1), call["y_batch"])
    assert summary.loc["CEM gain", ["low", "high", "chance"]].tolist() == [low, high, 0]
    assert summary.loc["CGIM correlation", ["low", "high", "chance"]].isna().all()
    for name, metric in metrics.items():
        # One bank takes all images for one class, over which nothing correlates.
        values = [nanmean(metric(**call | {"model": bank_model})) for bank_model in model.random_models()]
        assert summary.loc[name, "control"] == pytest.approx(np.nanmean(values))
        ends = [np.nanmin(values), np.nanmax(values)]
        assert summary.loc[name, ["control_low", "control_high"]].tolist() == pytest.approx(ends)
    # The metrics hold what they gave for the model, not for the baseline.
    assert evaluate({"CEM": metrics["CEM"]}, methods, **call, baselines=False).summary["control"].isna().all()


def test_the_random_banks_of_a_model_are_the_baseline_by_themselves(call, labels):
    metrics, bare_model = {"CEM": CEM(labels), "Sparseness": quantus.Sparseness()}, call["model"]
    call |= {"model": fitted()}
    summary = evaluate(metrics, METHODS, **call).summary.set_index(["method", "metric"])
    requested = evaluate({"CEM": metrics["CEM"]}, METHODS, **call, baselines=True).summary
    requested = requested.set_index(["method", "metric"])
    pd.testing.assert_frame_equal(summary.loc[requested.index], requested, check_dtype=False)
    # What a call knows is known of the random banks too; a call that is wrong has no baseline.
    calls = {name: {"custom_batch": {name: labels}} for name in ("concept_labels", "labls")}
    with pytest.warns(UserWarning, match="`custom_batch`"):
        of_calls = evaluate({"CEM": CEM(1 - labels)}, METHODS, **call, call_kwargs=calls).summary
    control = of_calls.set_index("call")["control"]
    assert control["concept_labels"] == pytest.approx(requested["control"].iloc[0])
    assert np.isnan(control["labls"]).all()
    # Random maps take 39 calls of a metric, and are off by default.
    assert summary["control"].isna().tolist() == [False, True, True]
    # What is named goes before them, for what depends on the method.
    named = evaluate(metrics, METHODS, **call, control="random").summary
    assert named["control"].isna().tolist() == [True, False, False]
    # A model without random banks has no baseline on images.
    for baselines in (True, None):
        bare = evaluate({"CEM": metrics["CEM"]}, METHODS, **call | {"model": bare_model}, baselines=baselines).summary
        assert bare["control"].isna().all()


def test_random_maps_are_the_baseline_of_other_metrics(call):
    metrics = {"Sparseness": quantus.Sparseness()}
    summary = evaluate(metrics, METHODS, **call, baselines=True, n_baselines=3).summary
    draws = [explain_func(RandomAttribution, seed=seed) for seed in range(3)]
    values = [np.mean(quantus.Sparseness()(**call, explain_func=draw)) for draw in draws]
    assert summary["control"].tolist() == pytest.approx([np.mean(values)] * 2)
    assert summary["control_high"].tolist() == pytest.approx([max(values)] * 2)


def test_baselines_do_not_warn_of_undefined_scores(call, labels):
    metric = CEM(labels, labels=call["y_batch"], only_correct=True)
    call |= {"model": fitted()}
    with pytest.warns(UserWarning, match="scores are NaN where") as caught:
        evaluate({"CEM": metric}, {"random": METHODS["random"]}, **call, baselines=True, n_baselines=3)
    assert len(caught) == 1
    # The metric itself goes on warning.
    assert not metric._disable_warnings


def test_the_key_is_the_method_where_it_names_one(call):
    metrics = {"Sparseness": quantus.Sparseness()}
    results = evaluate(metrics, {"Saliency": {}, "InputXGradient": {}}, **call).results
    for name in ("Saliency", "InputXGradient"):
        assert results[name] == evaluate(metrics, {"x": {"method": name}}, **call).results["x"]
    # A method that is named goes before the key.
    same = evaluate(metrics, {"Saliency": {"method": "InputXGradient"}}, **call).results["Saliency"]
    assert same == results["InputXGradient"]


def test_keyword_arguments_of_a_method_do_not_reach_the_next(call):
    keywords = []

    def noting(model, inputs, targets, **kwargs):
        keywords.append(kwargs)
        return np.ones_like(inputs)

    evaluate({"Sparseness": quantus.Sparseness()}, {"IG": {"method": "IntegratedGradients"}, "mine": noting}, **call)
    assert keywords == [{"method": "mine"}]


def test_two_methods_of_the_same_scores_are_warned_of(call):
    metrics = {"Sparseness": quantus.Sparseness()}
    with pytest.warns(UserWarning, match="mine and yours have the same scores. Both were computed with Gradient"):
        evaluate(metrics, {"mine": {}, "yours": {}}, **call)
    with pytest.warns(UserWarning, match="Is it the same explanation under two names"):
        evaluate(metrics, {"mine": {"method": "Saliency"}, "yours": {"method": "Saliency"}}, **call)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"metrics": {"CEM": CEM}}, TypeError, r"`metrics\['CEM'\]` to be a metric"),
        ({"xai_methods": ["Saliency"]}, TypeError, "got list"),
        ({"xai_methods": {"S": Saliency}}, TypeError, r"captum_concepts.explain_func\(Saliency\)"),
        ({"batchsize": 4}, TypeError, "Did you mean `batch_size`"),
        ({"baselines": True, "control": "random"}, ValueError, "either `control` or `baselines=True`"),
    ],
)
def test_evaluate_refuses(call, change, error, message):
    arguments = {"metrics": {"Sparseness": quantus.Sparseness()}, "xai_methods": METHODS, **call, **change}
    with pytest.raises(error, match=message):
        evaluate(**arguments)


@pytest.mark.parametrize(
    ("changed", "error", "name"),
    [
        ({"results": [1.0]}, TypeError, "results"),
        ({"metrics": {}}, ValueError, "metrics"),
        ({"control": "c"}, ValueError, "control"),
        ({"control": {"n": [0.5]}}, ValueError, "control"),
    ],
)
def test_summarise_refuses(changed, error, name):
    scores = {"a": {"m": [1.0, 0.5]}, "b": {"m": [0.0, 0.5]}}
    with pytest.raises(error, match=f"^Expected argument `{name}`"):
        summarise(**{"results": scores, "metrics": {"m": None}, **changed})
