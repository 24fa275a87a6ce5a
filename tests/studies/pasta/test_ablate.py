from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fixtures_pasta import write_pasta_release
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.training import TrainingSettings
from quantus_concepts.results.verdicts import difference_verdict
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies.pasta.ablate import (
    ABLATIONS,
    ENCODERS,
    Variant,
    ablation_report,
    differences,
    other_encoders,
    table_names,
    train_variants,
    variant_figures,
)
from quantus_concepts.studies.pasta.scorers import SCORER, SHUFFLED, Plan

EXPLAINERS = ("0", "3", "6", "9", "12", "15", "40", "41", "46")


def rows(ablation: str, variant: str, values: list[float], measure: str = "SCC") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "ablation": ablation,
            "variant": variant,
            "model": SCORER,
            "question": "Q1",
            "modality": "all",
            "measure": measure,
            "value": values,
            "seed": range(len(values)),
        }
    )


def test_differences_are_taken_split_by_split() -> None:
    frame = pd.concat(
        [rows("votes", "mode", [0.1, 0.5, 0.3]), rows("votes", "mean", [0.2, 0.61, 0.39])], ignore_index=True
    )
    (difference,) = differences(frame, "votes", ABLATIONS["votes"], "Q1").to_dict("records")
    # Of two splits there is no interval and no verdict.
    (undecided,) = differences(frame[frame["seed"] < 2], "votes", ABLATIONS["votes"], "Q1").to_dict("records")
    assert math.isnan(undecided["low"])
    assert difference_verdict(undecided) == "–"
    # Each is about 0.1 better, however far apart the splits are.
    assert (difference["variant"], difference["value"]) == ("mean", pytest.approx(0.1))
    assert difference["low"] == pytest.approx(0.1, abs=0.03)
    assert difference_verdict(difference) == "above 0"


def graded(n_images: int = 20, n_explainers: int = 20) -> tuple[RatedExplanations, torch.Tensor]:
    """Return ratings, and embeddings whose first of 17 numbers is the vote; the others are noise."""
    rng = np.random.default_rng(0)
    n = n_images * n_explainers
    votes = rng.integers(1, 6, n).astype(float)
    images, explainers = np.divmod(np.arange(n), n_explainers)
    ratings = RatedExplanations(
        [ConceptExplanation({"wing": 1.0})] * n,
        np.repeat(votes[:, None, None], 6, axis=2).repeat(3, axis=1),
        image_ids=images.astype(str),
        explainer_ids=explainers.astype(str),
        labels=np.full(n, "owl"),
        datasets=np.full(n, "owls"),
        modalities=np.full(n, "concepts"),
        name="owls",
    )
    return ratings, torch.as_tensor(np.column_stack([votes, rng.standard_normal((n, 16))])).float()


@pytest.mark.parametrize("regressor", ["", "ridge"])
def test_a_scorer_learns_from_embeddings_with_the_votes_and_its_control_does_not(
    regressor: str, tmp_path: Path
) -> None:
    ratings, embeddings = graded()
    settings = TrainingSettings(epochs=60, learning_rate=1e-2)
    plan = Plan(("Q1",), label_names=("owl",), settings=settings, n_splits=4)
    with RunFolder("pasta ablate", {}, tmp_path / "out") as out:
        rows_of_splits = variant_figures(out, ratings, embeddings, Variant("", plan={"only": regressor}), plan)
    means = rows_of_splits[rows_of_splits["measure"] == "SCC"].groupby("model")["value"].mean()
    assert means[SCORER] > 0.8
    # About 9 test items a split: 2 / sqrt(4 * 8).
    assert abs(means[SHUFFLED]) < 0.36


@pytest.mark.filterwarnings("ignore:The validation kappa")
def test_only_what_a_choice_concerns_is_embedded_anew(tmp_path: Path) -> None:
    folder = write_pasta_release(tmp_path, datasets=("coco",), n_images=8, explainers=EXPLAINERS)
    ratings, maps = PastaRatings(folder), PastaRatings(folder, drawings=False)
    assert set(ratings.modalities) == {"drawing", "concepts"}
    plan = Plan(("Q1",), settings=TrainingSettings(epochs=1, learning_rate=1e-2), n_splits=1, train_share=0.5)
    embedder = Embedder(EmbeddedEncoder(), size=32)
    with RunFolder("pasta ablate", {}, tmp_path / "out") as out:
        figures = train_variants(
            out, {name: ABLATIONS[name] for name in ("saliency", "n-top")}, ratings, embedder, plan, maps
        )
    errors = pick(figures, model=SCORER, measure="MSE", modality="all").set_index(["ablation", "variant"])["value"]
    assert set(errors["saliency"].index) == {"overlay", "masked", "drawing"}
    # The folder's lists have six concepts: from ten on nothing changes, to the bit.
    assert errors["n-top", "10"] == errors["n-top", "15"]
    assert errors["saliency", "overlay"] != errors["saliency", "masked"]
    # The ratings hold the drawings that people saw: the default of the other ablations.
    assert errors["saliency", "drawing"] == errors["n-top", "15"]


@pytest.fixture(scope="module")
def folder(golden: Callable[[str], Path]) -> Path:
    return golden("pasta-ablate")


def test_the_command_writes_tidy_results_with_the_paper_as_a_model(folder: Path) -> None:
    results, splits = (pd.read_csv(folder / f"{name}.csv") for name in ("results", "splits"))
    assert set(results["ablation"]) == {*ABLATIONS, ENCODERS}
    assert set(results["model"]) == {SCORER, SHUFFLED, "paper"}
    paper = results[(results["model"] == "paper") & (results["variant"] == "SVM") & (results["measure"] == "QWK")]
    assert paper[["value", "deviation"]].to_numpy().tolist() == [[0.463, 0.056]]
    keys = ["ablation", "variant", "model", "modality", "measure"]
    ours = results[results["model"] != "paper"].set_index(keys)["value"].sort_index()
    means = splits.groupby(keys)["value"].mean().sort_index()
    pd.testing.assert_series_equal(ours, means, check_names=False)
    # A control of every choice.
    assert len(ours.xs(SHUFFLED, level="model")) == len(ours.xs(SCORER, level="model"))


def test_the_verdicts_are_those_of_the_tables(folder: Path) -> None:
    results, splits = (pd.read_csv(folder / f"{name}.csv") for name in ("results", "splits"))
    # Two splits give no interval, and a difference without one is no verdict.
    assert len(ablation_report(results, splits, "", ABLATIONS).verdicts) == 1
    # A third split, with noise of its own.
    third = splits[splits["seed"] == splits["seed"].min()].assign(seed=splits["seed"].max() + 1)
    third["value"] += np.random.default_rng(0).normal(0, 0.01, len(third))
    declared = ablation_report(results, pd.concat([splits, third], ignore_index=True), "", ABLATIONS)
    # The default, and of each ablation the choice that changes most.
    names = [name for name in ABLATIONS if any(ABLATIONS[name].title in row.question for row in declared.verdicts[1:])]
    assert len(names) == len(declared.verdicts) - 1 >= 3
    for verdict, name in zip(declared.verdicts[1:], names, strict=True):
        (shown,) = [part for part in declared.parts if part.name == "choices-Q1"]
        changes = pick(shown.frame, head="SCC minus default", ablation=name)
        most = changes.loc[changes["value"].abs().idxmax()]
        assert (verdict.value, verdict.low, verdict.high) == (most["value"], most["low"], most["high"])
        assert f": {most['variant']}, not " in verdict.question
        assert verdict.verdict == most["verdict"]


def test_names_and_numbers_of_tables() -> None:
    assert table_names("all") == (*ABLATIONS, ENCODERS)
    assert other_encoders("siglip", None) == ()
    assert other_encoders("clip", "siglip, clip, eva02") == ("siglip", "eva02")
    assert other_encoders("embedded", None) == ("embedded/8", "embedded/32", "embedded/512")
    assert table_names("20, votes,15") == ("concepts", "votes")
