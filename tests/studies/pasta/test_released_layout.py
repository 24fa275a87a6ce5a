"""A folder laid out as the release is trained on and scored, from end to end, through the commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fixtures_pasta import read_records, write_pasta_release
from golden.runs import smaller
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import RELEASED_KEYS, load_scorer
from quantus_concepts.studies.app import main

EXPLAINERS = ("0", "3", "6", "9", "12", "15", "39", "40", "41", "46")
QUIET = ("--device", "cpu", "--no-progress")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose drawings are the images upside down, so that no map drawn anew is one of them."""
    folder = tmp_path_factory.mktemp("release")
    return write_pasta_release(folder, datasets=("coco", "pascalpart"), n_images=3, explainers=EXPLAINERS)


def test_train_and_score(release: Path, tmp_path: Path) -> None:
    trained, scored, base = tmp_path / "trained", tmp_path / "scored", release / "result_dataset"
    options = shlex.split("--encoder embedded --seeds 1 --epochs 1 --learning-rate 0.001 --question Q1")
    settings = ["--sentence", "release", "--labels", "image-name", *QUIET, "--out", str(trained)]
    with smaller(figures=False):
        assert main(["pasta", "train", "--data", str(release), *options, *settings]) == 0
    scorer = load_scorer(trained / "scorer.safetensors")
    assert (scorer.settings["sentence"], scorer.labelled_by) == ("release", "image-name")
    # A folder, in which each split has a scorer, too.
    folders = ["--images", str(base / "imgs"), "--explanations", str(base / "expl"), "--scorer", str(trained)]
    assert main(["pasta", "score", *folders, *QUIET, "--out", str(scored)]) == 0
    frame = pd.read_csv(scored / "scores.csv", keep_default_na=False, dtype={"explainer": str})
    frame = frame.set_index("explanation")
    records = read_records(release)
    assert len(frame) == len(records) == 60
    assert set(frame.note) == {""}
    assert set(frame.explainer) == set(EXPLAINERS)
    assert frame.modality.value_counts().to_dict() == {"drawing": 42, "concepts": 18}
    # Each as by hand, with the label in the name of its image, which is not the class predicted.
    rated = PastaRatings(release, labels="image-name")
    embeddings = Embedder.from_settings("embedded", scorer.settings).embed(rated.explanations)
    expected = scorer.score(embeddings, rated.labels.tolist())[:, 0].numpy()
    suffixes = {"drawing": ".png", "concepts": ".json"}
    names = [Path(record["explication"]).stem for record in records]
    files = [name + suffixes[kind] for name, kind in zip(names, rated.modalities.tolist(), strict=True)]
    np.testing.assert_allclose(frame.loc[files].Q1.astype(float), expected, atol=6e-5)
    page = "".join((scored / "report.html").read_text().split())
    assert "image-name" in page


def test_a_released_scorer_takes_the_images_label_and_the_released_sentence(tmp_path: Path) -> None:
    scorer = Scorer(768, seed=1)
    with torch.no_grad():
        scorer.biases[-1].fill_(1.1)
    tensors = [value[0] for pair in zip(scorer.weights, scorer.biases, strict=True) for value in pair]
    torch.save(dict(zip(RELEASED_KEYS, tensors, strict=True)), tmp_path / "PASTA_Q1.pth")
    loaded = load_scorer(tmp_path / "PASTA_Q1.pth")
    assert loaded.settings == {"sentence": "release"}
    assert loaded.labelled_by == "image-name"
    embeddings = torch.zeros(1, 768)
    # 1 + 4 * 1.1 or so: the release leaves what is above 5.
    assert loaded.score(embeddings, ["cat"])[0, 0] == 5
    assert loaded.score(embeddings, ["cat"], clip=False)[0, 0] > 5
