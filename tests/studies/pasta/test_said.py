"""What people said comes first, and a scorer that does not rank as they did gives no verdict."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fixtures_pasta_report import made_ratings
from golden.runs import smaller
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, Question
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.functional import interval, seeds_interval
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta.report import said_section, said_verdicts
from quantus_concepts.studies.pasta.score import withheld
from quantus_concepts.studies.pasta.votes import (
    clear_pairs,
    ranking,
    ranks_as_people,
    rater_agreement,
    turned,
    vote_differences,
    vote_means,
)
from tiny_encoders import PoolingEncoder

#: Mean votes of four explainers.
LIKED = {"gradcam": 4.2, "lime": 3.4, "edges": 2.6, "random": 1.7}


def write_ratings(root: Path, n_images: int = 40, size: int = 32) -> Path:
    """Write 480 ratings: images with a blob, four explainers, three raters; the better a map the more it marks."""
    rng = np.random.default_rng(0)
    rows = ["image,explainer,rater,label,Q1,Q3"]
    grid = np.mgrid[:size, :size]
    for number in range(n_images):
        centre = rng.uniform(8, size - 8, 2)
        blob = np.exp(-((grid - centre[:, None, None]) ** 2).sum(0) / 40)
        pixels = (60 + 190 * blob[..., None] * rng.random(3)).astype(np.uint8)
        (root / "images").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / "images" / f"{number:02d}.png")
        for name, liked in LIKED.items():
            (root / name).mkdir(exist_ok=True)
            share = (liked - 1.7) / 2.5
            np.save(
                root / name / f"{number:02d}.npy", (share * blob + (1 - share) * rng.random((size, size))).astype("f4")
            )
            votes = np.clip(np.rint(liked + rng.normal(0, 0.6, (3, 2))), 1, 5).astype(int)
            rows += [f"{number:02d}.png,{name},rater {k},cat,{q1},{q3}" for k, (q1, q3) in enumerate(votes.tolist())]
    (root / "ratings.csv").write_text("\n".join(rows))
    return root / "ratings.csv"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ratings(tmp_path_factory.mktemp("rated"))


@pytest.fixture(scope="module")
def trained(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    options = "--encoder embedded --embedding size=64 --seeds 3 --epochs 20 --no-progress --device cpu"
    with smaller(figures=False):
        assert main(["pasta", "train", "--data", str(table), *shlex.split(options), "--out", str(out)]) == 0
    return out


def test_a_report_begins_with_what_people_said(trained: Path) -> None:
    page = " ".join((trained / "report.html").read_text(encoding="utf-8").split())
    first, last = (
        page.index(f"People on {name}, {place} of 4 explainers")
        for place, name in (("the best", "gradcam"), ("the last", "random"))
    )
    compared = page.index("People on gradcam, the best, less random, the last of 4 explainers (paired difference")
    assert compared < first < last < page.index("do scores follow the votes?")
    assert page.index("Explainers compared: difference of votes") < page.index("Mean vote by explainer")
    assert page.index("What people said") < page.index("Agreement with the votes")
    votes = pd.read_csv(trained / "votes.csv")
    of_q1 = votes[votes["measure"] == "Q1"].set_index("explainer")
    assert of_q1["value"].to_dict() == pytest.approx(LIKED, abs=0.15)
    assert (of_q1["low"] < of_q1["value"]).all()
    pairs = pd.read_csv(trained / "vote_differences.csv")
    assert pairs.groupby("what").size().to_dict() == {"Q1": 6, "Q3": 6}
    row = pairs[(pairs["what"] == "Q1") & (pairs["a"] == "gradcam") & (pairs["b"] == "random")].iloc[0]
    votes_of = {name: of_q1.loc[name, "value"] for name in ("gradcam", "random")}
    assert row["difference"] == pytest.approx(votes_of["gradcam"] - votes_of["random"])
    assert row["p"] < row["p_adjusted"] < 0.05
    # Nobody said that the table's Q1 is the paper's.
    assert "whose wording its files do not give" in page
    assert "consistent with how I would explain" not in page
    assert "paper, human" not in page
    assert "missing" not in page
    assert of_q1.loc["random", "high"] < of_q1.loc["random", "random_low"]


def test_all_ratings_are_learned_from_and_few_explainers_are_split_by_image(trained: Path) -> None:
    page = " ".join((trained / "report.html").read_text(encoding="utf-8").split())
    assert "with fewer than 8 explainers all are in every part" in page
    assert "The scorer that is written learned from all explanations." in page
    assert [file.name for file in trained.glob("*.safetensors")] == ["scorer.safetensors"]
    scorer = load_scorer(trained)
    assert scorer.metadata["explanations"] == 160
    found = scorer.metadata["ranking"]["Q1"]
    assert (found["pairs"], set(found["votes"])) == (3, set(LIKED))
    assert found["votes"] == pytest.approx(LIKED, abs=0.15)


def test_an_untrained_encoder_gives_no_verdict(trained: Path, table: Path, tmp_path: Path) -> None:
    for name in ("gradcam", "random"):
        (tmp_path / "explanations" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "explanations" / name / f"a_{number:02d}_cat.npy").write_bytes(
                (table.parent / name / f"{number:02d}.npy").read_bytes()
            )
    (tmp_path / "images").mkdir()
    for number in range(4):
        (tmp_path / "images" / f"a_{number:02d}_cat.png").write_bytes(
            (table.parent / "images" / f"{number:02d}.png").read_bytes()
        )
    folders = ["--images", str(tmp_path / "images"), "--explanations", str(tmp_path / "explanations")]
    command = ["pasta", "score", *folders, "--scorer", str(trained), "--no-progress", "--device", "cpu"]
    with smaller(figures=False):
        assert main([*command, "--out", str(tmp_path / "out")]) == 0
    page = " ".join((tmp_path / "out" / "report.html").read_text(encoding="utf-8").split())
    assert "No verdict on explainers by this scorer: its encoder is untrained." in page
    assert "Best-rated explainer less each other one" not in page
    assert "&lt; .001" not in page


def test_means_have_intervals_over_raters_and_images(table: Path) -> None:
    ratings = PastaRatings(table)
    rows = np.flatnonzero(ratings.explainer_ids == "lime")
    votes = ratings.votes[rows, :, 0].T
    means = vote_means(ratings, ("Q1",)).set_index("explainer")
    assert means.loc["lime", "value"] == pytest.approx(votes.mean())
    assert means.loc["lime", ["low", "high"]].tolist() == list(seeds_interval(votes, None, (1, 5)))
    # A strict rater widens it, which images alone would not show.
    strict = ratings.votes.copy()
    strict[:, 0] = np.clip(strict[:, 0] - 2, 1, 5)
    changed = PastaRatings(table)
    object.__setattr__(changed, "votes", strict)
    wide = vote_means(changed, ("Q1",)).set_index("explainer").loc["lime"]
    images = interval(strict[rows, :, 0].mean(1), (1, 5))
    assert wide["high"] - wide["low"] > 2 * (images[1] - images[0])


def test_raters_that_are_not_known_leave_the_images() -> None:
    ratings = made_ratings(12, 3)
    rows = ratings.explainer_ids == "shifted 0 %"
    low, high = vote_means(ratings, ("Q1",)).set_index("explainer").loc["shifted 0 %", ["low", "high"]]
    assert (low, high) == interval(ratings.votes[rows][:, :, 0].mean(1), (1, 5))
    agreement = rater_agreement(ratings, ("Q1",)).set_index("explainer")["value"]
    assert 0.5 < agreement["one rater and the joined vote (SCC)"] < 1
    assert 0.5 < agreement["reliability of the mean vote"] < 1
    chance = made_ratings(60, 3)
    chance.votes[:] = np.random.default_rng(0).integers(1, 6, chance.votes.shape)
    assert rater_agreement(chance, ("Q1",))["value"].iloc[1] < 0.3


MEANS = pd.DataFrame({"explainer": list("abc"), "measure": "Q1", "value": [4.0, 3.8, 2.0]})
COMPARED = pd.DataFrame(
    {
        "what": "Q1",
        "a": list("aab"),
        "b": list("bcc"),
        "difference": [0.2, 2.0, 1.8],
        "low": [-0.1, 1.8, 1.6],
        "high": [0.5, 2.2, 2.0],
        "value_a": [4, 4, 3.8],
        "value_b": [3.8, 2, 2],
        "p_adjusted": [0.2, 0.001, 0.05],
    }
)


def test_only_pairs_that_people_rate_clearly_apart_count() -> None:
    assert clear_pairs(COMPARED, "Q1") == [("a", "c"), ("b", "c")]
    assert clear_pairs(turned(COMPARED, "cba"), "Q1") == [("b", "c"), ("a", "c")]
    right = ranking(MEANS, COMPARED, {"a": 3.0, "b": 3.5, "c": 2.9}, "Q1")
    assert (right["pairs"], right["ordered"], ranks_as_people(right)) == (2, 2, "")
    wrong = ranking(MEANS, COMPARED, {"a": 2.0, "b": 3.5, "c": 2.9}, "Q1")
    assert ranks_as_people(wrong) == "it puts 1 of 2 pairs of explainers that people rate clearly apart in their order"
    alike = ranking(MEANS, COMPARED.iloc[:1], {"a": 3.0, "b": 3.5}, "Q1")
    assert ranks_as_people(alike) == "people rate no explainer that it learned from clearly above another"


def test_comparisons_are_turned_so_that_the_first_comes_first() -> None:
    rows = turned(COMPARED, "cab").to_dict("records")
    assert [(row["a"], row["b"], row["difference"]) for row in rows] == [
        ("c", "a", -2),
        ("c", "b", -1.8),
        ("a", "b", 0.2),
    ]
    assert [rows[0][name] for name in ("low", "high", "value_a", "value_b")] == [-2.2, -1.8, 2, 4]


def crossed(n_raters: int = 10, n_images: int = 12, **fields: object) -> RatedExplanations:
    """Return votes of raters that differ on images that differ: one explainer is exactly 1 better for each of them."""
    level = 1 + np.arange(n_raters)[:, None] % 2 + np.arange(n_images) % 3
    votes = np.concatenate([(level + more).T[..., None] for more in (0, 1, 0)])
    n = len(votes)
    known = {"raters": tuple(f"P{number}" for number in range(n_raters)), "asked": {"clarity": Question("clarity")}}
    return RatedExplanations(
        [ConceptExplanation({"fur": 1.0})] * n,
        votes,
        image_ids=np.tile([f"i{number}" for number in range(n_images)], 3),
        explainer_ids=np.repeat(["random", "lime", "edges"], n_images),
        labels=np.full(n, ""),
        datasets=np.full(n, "x"),
        modalities=np.full(n, "concepts"),
        name="x",
        **(known | fields),
    )


def test_an_explainer_that_is_better_for_each_rater_and_image_is_said_to_be() -> None:
    ratings = crossed()
    means, compared = vote_means(ratings, ("clarity",)), vote_differences(ratings, ("clarity",))
    assert compared["difference"].tolist() == [-1, 0, 1]
    assert compared["n"].tolist() == [120] * 3
    assert compared["p_adjusted"].round(6).tolist() == [0, 1, 0]
    verdicts = said_verdicts(means, compared, ratings)
    assert [verdict.verdict for verdict in verdicts] == ["above 0", "above 0", "–", "–"]
    assert verdicts[0].question.startswith("People on lime, the best, less edges, the last of 3 explainers")
    # The intervals of the means overlap all the same: they hold how strict raters are.
    assert verdicts[2].low < verdicts[3].high
    # Where low is good the best has the lowest votes.
    low = crossed(asked={"change": Question("change", "Did it change?", low_is_good=True)})
    means, compared = vote_means(low, ("change",)), vote_differences(low, ("change",))
    first = said_verdicts(means, compared, low)[0]
    assert first.question.endswith(
        "less lime, the last of 3 explainers (paired difference of votes, change; low is good)"
    )
    assert (first.value, first.verdict) == (-1, "below 0")


def test_raters_that_are_not_known_are_compared_by_image() -> None:
    known, unknown = (vote_differences(crossed(**fields), ("clarity",)) for fields in ({}, {"raters": ()}))
    assert unknown["n"].tolist() == [12] * 3
    assert unknown["difference"].tolist() == known["difference"].tolist()
    assert (unknown["high"] - unknown["low"] > known["high"] - known["low"]).all()


def test_pairs_that_nobody_rated_on_one_image_have_no_difference() -> None:
    ratings = crossed()
    ratings.votes[:12, :5] = np.nan
    ratings.votes[12:24, 5:] = np.nan
    compared = vote_differences(ratings, ("clarity",)).set_index(["a", "b"])
    assert np.isnan(compared.loc[("random", "lime"), ["difference", "p_adjusted"]].astype(float)).all()
    assert compared.loc[("random", "edges"), "n"] == 60


def test_an_explanation_counts_once_however_many_voted(tmp_path: Path) -> None:
    ratings = crossed()
    ratings.votes[13:24, 2:] = np.nan
    mean = vote_means(ratings, ("clarity",)).set_index("explainer").loc["lime", "value"]
    by_image = [np.nanmean(votes) for votes in ratings.votes[12:24]]
    assert mean == pytest.approx(np.mean(by_image))
    assert mean != pytest.approx(np.nanmean(ratings.votes[12:24]))
    means, compared = vote_means(ratings, ("clarity",)), vote_differences(ratings, ("clarity",))
    section = said_section(means, compared, ratings, ("clarity",))
    captions = [part.caption for part in section.parts]
    assert any("each explanation counts once, however many voted on it" in caption for caption in captions)
    assert not any("single votes" in caption or "Low is good" in caption for caption in captions)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"released": True}, ""),
        ({"untrained_encoder": True}, "untrained"),
        ({"simulated": True}, "simulated raters"),
        ({}, "does not say whether it ranks"),
        ({"ranking": {"Q1": {"pairs": 10, "ordered": 9}}}, ""),
        ({"ranking": {"Q1": {"pairs": 10, "ordered": 8}}}, "8 of 10 pairs"),
    ],
)
def test_what_gives_no_verdict(metadata: dict[str, object], reason: str) -> None:
    scorer = Scorer(4, ("Q1",), None, metadata=json.loads(json.dumps(metadata)))
    found = withheld(scorer, PoolingEncoder(), "Q1")
    assert reason in found
    assert bool(found) == bool(reason)
    assert "untrained" in withheld(scorer, EmbeddedEncoder(), "Q1")
