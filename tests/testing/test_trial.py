"""Metrics on trial: damages do what they say, dummies with a known answer, and what is noticed of numbers by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from quantus.helpers.enums import ScoreDirection
from sklearn.feature_selection import mutual_info_classif

from quantus_concepts import CEM, CLM, ConceptAUC, Locality, painted_subject, score_concepts
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import nanmean
from quantus_concepts.testing import (
    meta_evaluate,
    noticed,
    plot_trial,
    predict_world,
    trial_metrics,
    trial_table,
)
from quantus_concepts.testing.damages import (
    DAMAGES,
    FITTED,
    HIDDEN,
    KNOW_NOTHINGS,
    MAPS,
    NETWORK,
    UNCHANGED,
    linear_head,
)
from quantus_concepts.testing.expected import EXPECTED
from quantus_concepts.testing.scores import ksg_leakage, score_world, scored_rows
from quantus_concepts.testing.worlds import half_of, prepare, right_world, world_maker
from testing_planted import PARTS, K, L, N, planted_rows


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.fixture(scope="module")
def rows() -> ConceptPredictions:
    return prepare(planted_rows())


def logits(rows: ConceptPredictions) -> torch.Tensor:
    weight, bias = linear_head(rows)
    return rows.values @ weight.T + bias


# Damages.


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_of_size_0_changes_nothing(rows: ConceptPredictions, name: str) -> None:
    damaged = DAMAGES[name](rows, 1e-9, draw())
    torch.testing.assert_close(damaged.values, rows.values)
    torch.testing.assert_close(damaged.truth["concept_labels"], rows.truth["concept_labels"])
    assert (damaged.predicted == rows.predicted).all()
    for metric in (CEM(top_l=2), CLM(part_of_concept=PARTS.numpy()), Locality(PARTS.numpy())):
        assert score_world(metric, scored_rows(damaged)) == pytest.approx(
            score_world(metric, scored_rows(rows)), abs=1e-5
        )


@pytest.mark.parametrize("name", [*DAMAGES, *UNCHANGED])
def test_damage_leaves_the_rows_of_the_caller_alone(rows: ConceptPredictions, name: str) -> None:
    before = {"values": rows.values.clone(), "labels": rows.truth["concept_labels"].clone()}
    maps, table = rows.looks[MAPS].columns["maps"].clone(), rows.tables["class_concepts"].copy()
    state = torch.get_rng_state()
    (DAMAGES | UNCHANGED)[name](rows, 1.0, draw())
    assert torch.equal(rows.values, before["values"])
    assert torch.equal(rows.truth["concept_labels"], before["labels"])
    assert torch.equal(rows.looks[MAPS].columns["maps"], maps)
    assert (rows.tables["class_concepts"] == table).all()
    assert torch.equal(torch.get_rng_state(), state)


def test_names_move_with_all_that_is_known_of_a_concept(rows: ConceptPredictions) -> None:
    damaged = DAMAGES["names permuted"](rows, 0.5, draw())
    moved = [
        next(
            k
            for k in range(L)
            if torch.equal(damaged.truth["concept_labels"][:, j], rows.truth["concept_labels"][:, k])
        )
        for j in range(L)
    ]
    assert sum(j != k for j, k in enumerate(moved)) == 4
    assert (damaged.tables["class_concepts"] == rows.tables["class_concepts"][:, moved]).all()
    assert (damaged.tables["part_of_concept"] == rows.tables["part_of_concept"][moved]).all()
    assert torch.equal(damaged.values, rows.values)


def test_names_in_parts_stay_in_their_part(rows: ConceptPredictions) -> None:
    damaged = DAMAGES["names permuted in parts"](rows, 1.0, draw())
    assert (damaged.tables["part_of_concept"] == rows.tables["part_of_concept"]).all()
    assert not torch.equal(damaged.truth["concept_labels"], rows.truth["concept_labels"])


@pytest.mark.parametrize("name", ["polarity reversed", "zero moved", "units"])
def test_the_same_predictions(rows: ConceptPredictions, name: str) -> None:
    damaged = (DAMAGES | UNCHANGED)[name](rows, 1.0, draw())
    assert not torch.allclose(damaged.values, rows.values)
    torch.testing.assert_close(logits(damaged), logits(rows), atol=1e-4, rtol=1e-4)


def test_a_vector_on_the_rows_of_the_head_moves_no_difference_of_logits(rows: ConceptPredictions) -> None:
    damaged = UNCHANGED["vector on head rows"](rows, 1.0, draw())
    before, after = (each - each.mean(1, keepdim=True) for each in (logits(rows), logits(damaged)))
    torch.testing.assert_close(after, before, atol=1e-3, rtol=1e-3)
    assert not torch.allclose(logits(damaged), logits(rows), atol=0.1)


def test_directions_turned_by_a_right_angle_are_orthogonal_to_their_own(rows: ConceptPredictions) -> None:
    turned = DAMAGES["directions rotated"](rows, 1.0, draw())
    own, other = rows.tables["directions"], turned.tables["directions"]
    assert (own * other).sum(1).abs().max() < 1e-5
    torch.testing.assert_close(other.norm(dim=1), own.norm(dim=1))
    torch.testing.assert_close(turned.values, rows.embedding @ other.T + turned.tables["offsets"])


def test_images_are_exchanged_among_those_fitted_and_among_those_scored(rows: ConceptPredictions) -> None:
    damaged = DAMAGES["images exchanged"](rows, 1.0, draw())
    for own in (rows.truth[FITTED], ~rows.truth[FITTED]):
        assert torch.equal(damaged.values[own].sort(0).values, rows.values[own].sort(0).values)
    assert (damaged.values != rows.values).any(1).all()


def test_a_private_code_is_the_same_for_all_images_of_a_class(rows: ConceptPredictions) -> None:
    damaged = DAMAGES["private code"](rows, 1.0, draw())
    for of_class in range(K):
        values = damaged.values[rows.truth[NETWORK] == of_class]
        assert (values - values[0]).abs().max() < 1e-5


def test_a_recital_says_the_concepts_of_the_class(rows: ConceptPredictions) -> None:
    damaged = DAMAGES["class recited"](rows, 1.0, draw())
    usual = torch.as_tensor(rows.tables["class_concepts"])[rows.truth[NETWORK]]
    assert torch.equal(damaged.values > 0, usual > 0.5)
    assert torch.equal(damaged.looks[HIDDEN].columns["values"][:, 0], damaged.values)


def test_shifted_maps_hold_the_same_numbers(rows: ConceptPredictions) -> None:
    maps = [DAMAGES["maps shifted"](rows, t, draw()).looks[MAPS].columns["maps"] for t in (1e-9, 1.0)]
    assert torch.equal(*(each.flatten(2).sort().values for each in maps))
    assert not torch.equal(*maps)


def test_commonest_concepts_are_the_same_for_all_images(rows: ConceptPredictions) -> None:
    values = KNOW_NOTHINGS["commonest concepts"](rows, 1.0, draw()).values
    assert values.std(0).max() < 1e-5


# Scores of rows.


def test_scores_of_kept_maps_are_those_of_the_model() -> None:
    subject = painted_subject(
        *(80, 40), image_size=32, n_classes=4, n_concepts=8, epochs=3, n_pos=25, n_neg=25, random_directions=1
    )
    model, data = subject.models["post-hoc CBM"], subject.test
    rows = scored_rows(predict_world(model, subject.loader(), subject.loader()))
    # The head of a world is fitted by its own rule; by value it does not matter.
    parts = np.asarray(data.part_of_concept)
    metrics = [CLM(part_of_concept=parts, importance="value"), Locality(parts), ConceptAUC()]
    table = score_concepts(model, subject.loader(), metrics, baselines=False, controls=())
    table = table[(table["what"] == "score") & (table["item"] == "")].drop_duplicates("metric").set_index("metric")
    for metric, name in zip(metrics, ("CLM", "locality", "concept AUC"), strict=True):
        assert score_world(metric, rows) == pytest.approx(table.loc[name, "value"], abs=1e-5)


def test_batches_give_the_scores_of_all_images(rows: ConceptPredictions) -> None:
    in_batches = scored_rows(UNCHANGED["batches"](rows, 1.0, draw()))
    for metric in (CLM(part_of_concept=PARTS.numpy()), Locality(PARTS.numpy())):
        assert score_world(metric, in_batches) == pytest.approx(score_world(metric, scored_rows(rows)), abs=1e-6)


def test_nearest_neighbours_agree_with_scikit_learn(rows: ConceptPredictions) -> None:
    values, labels = rows.values.double().numpy(), rows.truth["concept_labels"].numpy() > 0
    by_hand = []
    for concept in range(L):
        sides = [labels[:, concept], ~labels[:, concept]]
        by_hand.append(
            sum(
                side.mean() * mutual_info_classif(values[side, concept, None], rows.labels[side], random_state=0)[0]
                for side in sides
            )
        )
    assert ksg_leakage(rows) == pytest.approx(np.mean(by_hand), abs=0.03)


def test_nearest_neighbours_see_a_code_of_the_class(rows: ConceptPredictions) -> None:
    coded = DAMAGES["private code"](rows, 1.0, draw())
    assert ksg_leakage(coded) > ksg_leakage(rows) + 0.2


def test_every_default_score_is_defined_on_a_model_that_is_right(rows: ConceptPredictions) -> None:
    own = scored_rows(rows)
    values = {name: score_world(scorer, own) for name, scorer in trial_metrics(own).items()}
    assert all(np.isfinite([*values.values()]))
    best = ("concept AUC", "CEM (value)", "CGIM correlation (effect)", "CGIM correlation (value)", "CLM", "accuracy")
    assert all(values[name] > 0.9 for name in best)


def test_scores_that_need_maps_are_left_out_without_them(rows: ConceptPredictions) -> None:
    names = trial_metrics(rows.knowing(looks={}))
    assert "concept AUC" in names
    assert not {"CLM", "part specificity", "locality", "pointing game (Quantus)"} & {*names}
    assert not any(name.endswith(("(Quantus)", "(PyC)")) for name in trial_metrics(peers=False))


# The declared table.


def test_every_claim_has_a_sentence_and_every_score_and_damage_has_a_claim() -> None:
    assert {damage for _, damage in EXPECTED} == {*DAMAGES}
    names = {name for name, _ in EXPECTED}
    assert names >= {*trial_metrics()}
    assert len(EXPECTED) == len(names) * len(DAMAGES)
    for key, claim in EXPECTED.items():
        assert (claim.expected != "") == claim.why.endswith("."), key


# The procedure itself, with dummies whose answer is known.


def sees_all(rows: ConceptPredictions) -> float:
    """Correlation of values and labels plus accuracy: falls with each step of a damage to concepts or head."""
    values, labels = (each - each.mean(0) for each in (rows.values, rows.truth["concept_labels"].float()))
    norms = values.norm(dim=0) * labels.norm(dim=0)
    return float(((values * labels).sum(0) / norms.clamp(min=1e-9)).mean() + rows.correct.float().mean())


def sees_nothing(rows: ConceptPredictions) -> float:
    """Noise of the world and not of the damage."""
    return 0.5 + 1e-3 * float(rows.truth["points"].mean())


DUMMIES = {"sees all": sees_all, "sees nothing": sees_nothing}
SETTINGS: dict[str, Any] = {"world": lambda seed: planted_rows(seed), "sizes": (0.25, 0.5, 1.0), "worlds": 3}
SEEN = ["names permuted", "directions rotated", "polarity reversed", "images exchanged", "head rows permuted"]


@pytest.fixture(scope="module")
def trial() -> pd.DataFrame:
    return meta_evaluate(DUMMIES, **SETTINGS, repetitions=2)


def test_dummies_get_their_known_answers(trial: pd.DataFrame) -> None:
    found = noticed(trial).set_index(["metric", "damage"])
    damaged = found[found["kind"] == "damage"]
    assert set(damaged.loc["sees nothing", "reaction"]) == {"none"}
    assert damaged.loc["sees nothing", "t"].isna().all()
    for damage in SEEN:
        row = found.loc[("sees all", damage)]
        assert row["reaction"] == "worse, in order", damage
        assert row["t"] <= 0.5
        assert row["t_paired"] <= row["t"]
    nothing = found[found["kind"] == "know-nothing"]
    own = ["random concepts", "other images' values", "commonest concepts"]
    assert set(nothing.loc["sees all"].loc[own, "finding"]) == {""}
    own = [name for name in KNOW_NOTHINGS if name != "place prior"]
    assert set(nothing.loc["sees nothing"].loc[own, "finding"]) == {"passes"}
    assert set(found.loc[found["kind"] == "unchanged", "finding"]) == {""}


def test_what_a_dummy_must_notice_is_a_finding(trial: pd.DataFrame) -> None:
    claims = {("sees nothing", "names permuted"): EXPECTED["concept AUC", "names permuted"]}
    claims |= {("sees all", "names permuted"): EXPECTED["accuracy", "names permuted"]}
    found = noticed(trial, claims).set_index(["metric", "damage"])["finding"]
    assert found["sees nothing", "names permuted"] == "misses"
    assert found["sees all", "names permuted"] == "moves"


def test_a_trial_is_the_same_twice_and_has_all_cases(trial: pd.DataFrame) -> None:
    again = meta_evaluate(DUMMIES, **SETTINGS, repetitions=2)
    pd.testing.assert_frame_equal(trial, again, check_exact=True)
    counts = trial.groupby("kind")["value"].size() // len(DUMMIES)
    assert counts.to_dict() == {
        "start": 5,
        "damage": 3 * 2 * 3 * len(DAMAGES),
        "unchanged": 3 * 2 * len(UNCHANGED),
        "know-nothing": 3 * 2 * len(KNOW_NOTHINGS),
    }
    assert [*trial][:6] == ["metric", "damage", "t", "world", "repetition", "value"]


def test_noticed_counts_by_hand() -> None:
    starts, sizes = [0.8, 0.82], (0.2, 0.6, 1.0)
    base: dict[str, Any] = {"metric": "m", "repetition": 0, "better": "higher"}
    frame = [base | {"kind": "start", "damage": "", "t": 0.0, "world": w, "value": v} for w, v in enumerate(starts)]
    changes = {
        "falls": (-0.01, -0.2, -0.4),
        "rises": (0.0, 0.1, 0.3),
        "late": (0.0, 0.0, -0.3),
        "nan": (-0.1, -0.2, np.nan),
    }
    for name, of_sizes in changes.items():
        for world, start in enumerate(starts):
            for t, change in zip(sizes, of_sizes, strict=True):
                row = {"kind": "damage", "damage": name, "t": t, "world": world, "value": start + change}
                frame.append(base | row)
    found = noticed(pd.DataFrame(frame)).set_index("damage")
    # 1.96 sqrt(2) times the deviation of .80 and .82.
    assert found["luck"].tolist() == pytest.approx([1.96 * np.sqrt(2) * 0.01 * np.sqrt(2)] * 4)
    assert found["t"].tolist() == [0.6, 0.6, 1.0, 0.2]
    assert found["t_paired"].tolist() == [0.2, 0.6, 1.0, 0.2]
    assert found["change"].tolist() == pytest.approx([-0.4, 0.3, -0.3, -0.2])
    assert found["undefined"].tolist() == [0, 0, 0, 2]
    # Ranks 1.5, 1.5, 1.5 of equal scores: "late" falls by one step only.
    assert found["reaction"].tolist() == ["worse, in order", "better", "worse, out of order", "worse, in order"]
    lower = noticed(pd.DataFrame(frame).assign(better="lower")).set_index("damage")
    assert lower["reaction"].tolist()[:2] == ["better", "worse, in order"]


def test_less_is_better_is_known_from_the_metric(rows: ConceptPredictions) -> None:
    class Less(ConceptAUC):
        score_direction = ScoreDirection.LOWER

    frame = meta_evaluate(
        {"less": Less(), "more": ConceptAUC()}, **SETTINGS | {"damages": ["names permuted"]}, repetitions=1
    )
    reactions = noticed(frame).query("kind == 'damage'").set_index("metric")["reaction"]
    assert reactions.to_dict() == {"less": "better", "more": "worse, in order"}


def test_a_damage_of_ones_own(rows: ConceptPredictions) -> None:
    def quieter(rows: ConceptPredictions, t: float, generator: torch.Generator) -> ConceptPredictions:
        noise = torch.randn(rows.values.shape, generator=generator)
        return rows.knowing(values=(1 - t) * rows.values + t * noise)

    frame = meta_evaluate(
        [ConceptAUC()], world=rows, damages={"noise": quieter}, sizes=[0.5, 1.0], worlds=2, repetitions=1
    )
    assert noticed(frame).set_index("damage").loc["noise", "reaction"] == "worse, in order"


def test_rows_of_ones_own_are_scored_by_halves(rows: ConceptPredictions) -> None:
    halves = [half_of(rows, seed) for seed in (0, 1)]
    for half in halves:
        assert int((~half.truth[FITTED]).sum()) == N // 4
        assert torch.bincount(half.labels[~half.truth[FITTED]]).tolist() == [N // 4 // K] * K
    assert not torch.equal(halves[0].values, halves[1].values)
    # Rows without a mark are split by class.
    bare = rows.knowing(truth={name: rows.truth[name] for name in ("labels", "concept_labels")}, looks={})
    made = world_maker(bare)(0)
    assert torch.bincount(made.labels[made.truth[FITTED]]).tolist() == [N // K // 2] * K


def test_the_planted_world_of_birds_is_right() -> None:
    rows = scored_rows(right_world(0, 200, 100))
    assert score_world(ConceptAUC(), rows) > 0.99
    assert score_world(CEM(top_l=3), rows) > 0.9
    assert score_world(CLM(part_of_concept=rows.tables["part_of_concept"]), rows) == 1


def test_the_table_and_the_picture(trial: pd.DataFrame) -> None:
    table = trial_table(noticed(trial))
    assert table.index.tolist() == ["sees all", "sees nothing"]
    assert set(table.loc["sees nothing", [*DAMAGES]]) == {"(-)"}
    assert table.loc["sees all", "moved by"] == ""
    figure, axes = plot_trial(trial, damages=["maps shifted", "names permuted"])
    assert [axis.get_ylabel() for axis in axes] == ["sees all", "sees nothing"]
    titles = [text.get_text() for text in axes[0].texts]
    assert {"maps\nshifted", "names\npermuted"} <= {*titles}
    figure.clear()


def test_the_picture_of_a_score_that_is_undefined_everywhere(trial: pd.DataFrame) -> None:
    undefined = trial.assign(value=trial["value"].mask(trial["metric"] == "sees nothing"))
    figure, axes = plot_trial(undefined, damages=["names permuted"])
    assert np.isfinite([axis.get_ylim() for axis in axes]).all()
    figure.clear()


def test_the_picture_has_room_for_the_undamaged_worlds(trial: pd.DataFrame) -> None:
    starts = trial["kind"] == "start"
    apart = trial.assign(value=(1000 * trial["value"]).where(starts))
    figure, axes = plot_trial(apart, damages=["names permuted"])
    assert apart.loc[starts & (apart["metric"] == "sees nothing"), "value"].between(*axes[1].get_ylim()).all()
    figure.clear()


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"metrics": [ConceptAUC]}, TypeError, "metrics of concept models"),
        ({"metrics": [CEM([[0, 1]])]}, ValueError, "without labels of their own"),
        ({"metrics": [CEM(), CEM(top_l=2)]}, ValueError, "different names"),
        ({"damages": ["names"]}, ValueError, "`damages` to be one of"),
        ({"sizes": [0.0]}, ValueError, "`sizes` to lie in"),
        ({"worlds": 1}, ValueError, "`worlds` to be at least 2"),
        ({"world": "wrong"}, ValueError, "`world` to be one of"),
    ],
)
def test_what_would_be_silently_wrong_raises(change: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        meta_evaluate(**{"metrics": [ConceptAUC()], **SETTINGS, "repetitions": 1, **change})


def test_damage_that_rows_do_not_allow_raises(rows: ConceptPredictions) -> None:
    bare = rows.knowing(looks={}, embedding=None)
    with pytest.raises(ValueError, match="`predict_world` makes such rows"):
        meta_evaluate([ConceptAUC()], world=bare, damages=["maps shifted"], worlds=2, repetitions=1)
    frame = meta_evaluate([ConceptAUC()], world=bare, sizes=[1.0], worlds=2, repetitions=1)
    assert not {"maps shifted", "directions rotated", "random concepts"} & {*frame["damage"]}
    with pytest.raises(ValueError, match="lack `concept_labels`"):
        meta_evaluate([ConceptAUC()], world=bare.knowing(truth={"labels": rows.labels}), worlds=2)


def test_noticed_refuses_other_tables() -> None:
    with pytest.raises(ValueError, match="lacks 'metric'"):
        noticed(pd.DataFrame({"value": [1.0]}))
    assert nanmean([1.0, np.nan]) == 1
