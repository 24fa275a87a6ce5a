"""`reliability`: which test a table asks for, its verdicts, and what has none, with the reason."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from quantus_concepts import reliability
from quantus_concepts.functional import adjust_p_values
from quantus_concepts.functional.statistics.reliability import crossed_models, seeds_needed, separate_models
from quantus_concepts.results.over_seeds import with_reliability

RNG = np.random.default_rng(0)
SCORES = {"a": RNG.normal(size=4), "b": RNG.normal(size=4) + 20, "c": RNG.normal(size=4) - 20}


def table(scores: dict[str, np.ndarray] = SCORES, first: int = 0, **columns: object) -> pd.DataFrame:
    rows = [(name, first + seed, value) for name, values in scores.items() for seed, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["model", "seed", "value"]).assign(**{"metric": "CEM", **columns})


def own_seeds(**scores: np.ndarray) -> pd.DataFrame:
    """Return a table whose models share no seed."""
    parts = [table({name: values}, 100 * place) for place, (name, values) in enumerate(scores.items())]
    return pd.concat(parts, ignore_index=True)


def only(rows: pd.DataFrame) -> pd.Series:
    assert len(rows) == 1
    return rows.iloc[0]


def test_shared_seeds() -> None:
    row = only(reliability(table().sample(frac=1, random_state=1).sort_values("model", kind="stable")))
    expected = crossed_models(np.stack([*SCORES.values()]))
    assert (row["sd_models"], row["sd_seeds"], row["p"]) == pytest.approx(expected)
    assert (row["test"], row["n_models"], row["n_seeds"], row["panel"]) == ("two-way", 3, 4, "a; b; c")
    assert (row["verdict"], row["reason"]) == ("separates these models", "")
    assert row["seeds_needed"] == seeds_needed(expected.sd_models / expected.sd_seeds)


def test_own_seeds() -> None:
    groups = SCORES | {"d": RNG.normal(size=3)}
    row = only(reliability(own_seeds(**groups)))
    assert (row["sd_models"], row["sd_seeds"], row["p"]) == pytest.approx(separate_models([*groups.values()]))
    assert (row["test"], row["n_models"], row["n_seeds"], row["panel"]) == ("Welch", 4, 3, "a; b; c; d")


def test_variants_and_correction() -> None:
    noise = {name: RNG.normal(size=4) for name in "abc"}
    parts = [
        table(metric="CLM", l=3.0, explanation="weight"),
        table(noise, metric="CEM", l=math.nan, explanation=None),
        table(noise, metric="CEM", l=1.0, explanation="value", low=RNG.random(12), n=np.arange(12)),
    ]
    # An empty text of a table in memory is NaN in one that was saved.
    parts[1].loc[3:, "explanation"] = ""
    rows = reliability(pd.concat(parts))
    assert rows["metric"].tolist() == ["CLM", "CEM", "CEM"]
    assert rows["l"].fillna(0).tolist() == [3, 0, 1]
    assert rows["explanation"].tolist() == ["weight", "", "value"]
    assert rows["verdict"].tolist() == ["separates these models", "not shown to", "not shown to"]
    np.testing.assert_allclose(rows["p_adjusted"], adjust_p_values(rows["p"]))
    assert "low" not in rows
    # The verdict is by the corrected p-value.
    close = {"a": np.array([0.10, 0.12, 0.11]), "b": np.array([0.31, 0.30, 0.35]), "c": np.array([0.20, 0.24, 0.21])}
    many = reliability(pd.concat([table(close), *(table(noise, metric=f"metric {place}") for place in range(7))]))
    assert many["p"][0] <= 0.05 < many["p_adjusted"][0]
    assert many["verdict"][0] == "not shown to"


def test_other_columns() -> None:
    renamed = table().rename(columns={"model": "method", "seed": "fold"})
    assert only(reliability(renamed, by="method", over="fold"))["p"] == only(reliability(table()))["p"]
    # Without anything that says of what it is.
    assert only(reliability(table().drop(columns="metric")))["p"] == only(reliability(table()))["p"]


def changed(**scores: object) -> pd.DataFrame:
    return table({name: np.array(values, float) for name, values in ({**SCORES} | scores).items()})


FEW = "unknown: fewer than 3 models or 3 seeds"


@pytest.mark.parametrize(
    ("data", "verdict", "reason"),
    [
        (table({name: SCORES[name] for name in "ab"}), FEW, "2 models, 4 seeds"),
        (table({name: SCORES[name][:2] for name in "abc"}), FEW, "3 models, 2 seeds"),
        (table({name: SCORES[name][:1] for name in "abc"}), FEW, "3 models, 1 seeds"),
        (table({"a": SCORES["a"]}), FEW, "1 models, 4 seeds"),
        (own_seeds(**SCORES | {"c": SCORES["c"][:2]}), FEW, "3 models, 2 seeds"),
        (changed(b=[1, math.nan, math.inf, 1]), "unknown: undefined scores", "undefined: b in 2 of 4 seeds"),
        (changed(b=[1, 2, 3]), "unknown: missing scores", "missing: b in 1 of 4 seeds"),
        (
            changed(a=[0.1] * 4, b=[0.2] * 4, c=[0.4] * 4),
            "unknown: no spread over seeds",
            "the same in all seeds: a, b, c",
        ),
        (
            changed(b=SCORES["a"] + 1, c=SCORES["a"] + 2),
            "unknown: no spread over seeds",
            "models differ by the same in all seeds",
        ),
        (own_seeds(**SCORES | {"b": np.full(4, 0.3)}), "unknown: no spread over seeds", "the same in all seeds: b"),
    ],
)
def test_no_verdict(data: pd.DataFrame, verdict: str, reason: str) -> None:
    rows = reliability(pd.concat([data, table(metric="other")]))
    assert rows.loc[0, ["verdict", "reason"]].tolist() == [verdict, reason]
    assert rows.loc[0, ["p", "p_adjusted", "seeds_needed"]].isna().all()
    # It takes no part in the correction.
    assert rows["p_adjusted"][1] == rows["p"][1]
    known = verdict in (FEW, "unknown: no spread over seeds") and min(rows.loc[0, ["n_models", "n_seeds"]]) > 1
    assert rows.loc[0, ["sd_models", "sd_seeds"]].notna().all() == known


def test_a_constant_model_among_others_with_shared_seeds() -> None:
    assert only(reliability(changed(b=[20] * 4)))["verdict"] == "separates these models"


def test_nothing_between_models_needs_no_number_of_seeds() -> None:
    row = only(reliability(changed(a=[1, 2, 3, 4], b=[4, 1, 2, 3], c=[3, 4, 1, 2.1])))
    assert (row["verdict"], row["sd_models"], row["seeds_needed"]) == ("not shown to", 0, math.inf)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (table().drop(columns="seed"), r"columns `model`, `seed` and `value`, but it lacks \['seed'\]"),
        (table()[:0], "it is empty"),
        (table().astype({"value": str}), "numbers in its column `value`"),
        (table().replace({"model": {"a": None}}), "name `model` and `seed` but 4 rows do not"),
        (pd.concat([table(), table()]), "once for each `model` and `seed` but 12 rows are there again"),
        (table(seconds=RNG.random(12)), r"\['metric', 'seconds'\] differ in every row"),
    ],
)
def test_refused(data: pd.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=f"^Expected argument `table` to .*{message}"):
        reliability(data)


def test_refused_kind() -> None:
    with pytest.raises(TypeError, match="`table` to be a DataFrame"):
        reliability({"a": [1.0]})  # type: ignore[arg-type]


def test_the_table_is_not_changed() -> None:
    data = table(explanation=None)
    before = data.copy()
    reliability(data)
    pd.testing.assert_frame_equal(data, before)


def test_a_column_of_a_report_names_the_verdict_and_its_panel() -> None:
    noise = {name: np.random.default_rng(place).normal(size=4) for place, name in enumerate("abc")}
    seeds = pd.concat(
        [table(l=1.0, explanation="effect"), table(noise, l=3.0, explanation="effect"), table(noise, metric="accuracy")]
    ).assign(low=0.0)
    rows = seeds.drop(columns="seed").groupby(["model", "metric", "explanation", "l"], dropna=False, sort=False)
    rows = rows["value"].mean().reset_index().assign(low=-1.0, verdict="above")
    rows = pd.concat([rows, rows.iloc[:1].assign(model="random banks"), rows.iloc[:1].assign(l=5.0)])
    found = with_reliability(rows.fillna({"explanation": ""}), seeds)
    assert found.drop(columns=["reliability", "panel"]).equals(rows.fillna({"explanation": ""}))
    said = found.groupby(["metric", "l"], dropna=False)["reliability"].unique()
    assert said["CEM", 1.0].tolist() == ["separates these models", ""]
    assert said["CEM", 3.0].tolist() == said["accuracy"].iloc[0].tolist() == ["not shown to"]
    # What was in no table of seeds says nothing.
    assert said["CEM", 5.0].tolist() == [""]
    assert set(found["panel"]) == {"a; b; c", ""}
    assert found.loc[found["model"] == "random banks", "panel"].tolist() == [""]
