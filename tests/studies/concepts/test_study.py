"""The run of `benchmark concepts`: its birds and photographs, ranges of images, rare concepts and the explorer."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from concept_ranges import check_concepts
from quantus_concepts.metrics.streaming.columns import ModelColumns
from torch import nn

from fixtures_commands import NETWORK
from fixtures_cub import write_cub
from quantus_concepts.datasets import CUB200, PaintedBirds
from quantus_concepts.datasets.birds.cub200 import CBM_ATTRIBUTES, GROUP_OF_ATTRIBUTE
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._models import loading
from quantus_concepts.studies._models.loading import KeptImages
from quantus_concepts.studies._models.networks import Network, load_network
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts.data_option import load_data
from quantus_concepts.studies.concepts.options import ConceptOptions
from quantus_concepts.studies.concepts.study import score_seed


def test_each_seed_paints_other_birds_of_the_same_classes(monkeypatch):
    monkeypatch.setattr(loading, "PAINTED_AT_ONCE", 12)
    options = ConceptOptions(n_train=27, n_test=10, n_classes=5, image_size=32, seeds=2, min_images=1)
    _, together = load_data(options, None)
    # Other birds of the same classes, with a truth of their own.
    birds = KeptImages(PaintedBirds(57, image_size=32, n_classes=5), range(30, 57))
    later = PaintedBirds(27, image_size=32, n_classes=5, first=30)
    assert torch.equal(together.train.images, birds.images)
    assert torch.equal(together.train.labels, birds.labels)
    assert torch.equal(together.class_concepts, later.class_concepts)


def test_ranges_give_the_numbers_of_one_pass_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = check_concepts(tmp_path, "local", None)
    files = sorted(tmp_path.rglob("*.safetensors"))
    assert len(files) == 3
    files[1].unlink()
    scored = []
    add = ModelColumns.add
    monkeypatch.setattr(ModelColumns, "add", lambda self, batch, *args: (scored.append(batch), add(self, batch, *args)))
    again()
    # Two batches, each by two models and three controls.
    assert len(scored) == 10


def test_the_explorer_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = f"benchmark concepts {ConceptOptions.quick} --explore --no-progress --device cpu --out out"
    assert main(shlex.split(words)) == 0
    page = Path("out/explore.html").read_text(encoding="utf-8")
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match
    data = json.loads(match[1])
    assert (len(data["pictures"]), len(data["concepts"]), len(data["classes"])) == (18, 8, 3)
    assert "explore.html" in Path("out/report.html").read_text(encoding="utf-8")
    # The grey range is that of the random control of the study.
    assert len(data["random_values"]) == 18
    # Both are of the same images: how many are classified right is the accuracy in the table.
    table = pd.read_csv("out/results.csv").query("metric == 'accuracy' and model == 'post-hoc CBM' and item.isna()")
    wrong = [value for value in data["scores"]["confidence when wrong"][0] if value is not None]
    assert 1 - len(wrong) / 18 == pytest.approx(table["value"].iloc[0])


class Counting(nn.ReLU):
    """Counts the images of its passes."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, x):
        self.seen += len(x)
        return super().forward(x)


@pytest.mark.parametrize("n_outputs", [3, 5])
def test_test_photographs_are_read_and_scored_once(tmp_path, monkeypatch, n_outputs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        counting = Counting()
        convolution, last = nn.Conv2d(3, 8, 3), nn.Linear(8, n_outputs)
        network = nn.Sequential(convolution, counting, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last).eval()
    options = ConceptOptions(
        data="cub", root=write_cub(tmp_path), backbone="resnet18", image_size=32, min_images=1, device="cpu"
    )
    network = Network(network, "a test", "", (0.5,) * 3, (0.5,) * 3)
    (data,) = load_data(options, network)
    reads = Counter()

    def noted(data, index, original=CUB200.__getitem__):
        reads[data.split, index] += 1
        return original(data, index)

    monkeypatch.setattr(CUB200, "__getitem__", noted)
    run = Run(options, None)
    scores = score_seed(run, network, data, 0, first=False, show_scores=len)
    # The first image also tells the shape of the maps.
    assert [key for key, count in reads.items() if count > 1] == [("test", 0)]
    plain = scores[scores["model"] == "plain backbone"]
    has_classes = n_outputs == len(data.class_names)
    assert plain["n"].tolist() == [6] * has_classes
    assert any("accuracy: not applicable. Its 5 outputs" in note for note in run.notes) is not has_classes
    # Training images, test images, those that the network classifies itself, and the shape of the maps.
    assert counting.seen <= 6 + 6 + 6 + 4
    assert len(scores[scores["item_kind"] == "setting"]) == 10


#: Official numbers of the wing colours that are concepts, but one.
RARE = {str(number + 1) for number in CBM_ATTRIBUTES if GROUP_OF_ATTRIBUTE[number] == "has_wing_color"} - {"24"}
PATTERNS = "has_wing_*, has_bill_shape::dagger"


@pytest.fixture
def cub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.py").write_text(NETWORK)
    root = write_cub(tmp_path)
    # One image has these, half of the training images the others.
    marks = root / "attributes/image_attribute_labels.txt"
    lines = [line.split() for line in marks.read_text().splitlines()]
    for line in lines:
        if line[1] in RARE:
            line[2] = str(int(line[0] == "1"))
    marks.write_text("\n".join(" ".join(line) for line in lines))
    return root


def options(**changed):
    settings = {"data": "cub", "root": "CUB_200_2011", "backbone": "network.py:model", "device": "cpu"}
    return ConceptOptions(**settings | changed)


def test_truth_stays_aligned_with_the_concepts_that_are_left(cub):
    chosen = options(concepts=PATTERNS, min_images=3, image_size=32)
    (data,) = load_data(chosen, load_network("network.py:model"))
    full = CUB200(cub, "train", concepts=["has_wing_*", "has_bill_shape::dagger"])
    counts = full.concept_labels.sum(0)
    learnable = torch.nonzero(torch.minimum(counts, 6 - counts) >= 3).flatten().tolist()
    assert 0 < len(learnable) < len(full.concept_names)
    assert data.concept_names == [full.concept_names[j] for j in learnable]
    assert data.left_out == [name for j, name in enumerate(full.concept_names) if j not in learnable]
    for ours, theirs in ((data.train, full), (data.test, CUB200(cub, "test", concepts=full.concept_names))):
        assert torch.equal(ours.concept_labels, theirs.concept_labels[:, learnable])
        assert torch.equal(ours[2].concepts, theirs[2].concepts[learnable])
    assert torch.equal(data.class_concepts, full.class_concepts[:, learnable])
    assert torch.equal(data.part_of_concept, full.part_of_concept[learnable])
    (note,) = [note for note in data.notes if "left out" in note]
    assert note.startswith(f"{len(data.left_out)} of {len(full.concept_names)} concepts are left out")


def test_concepts_left_out_are_undefined_in_results(cub):
    arguments = ["--data", "cub", "--root", "CUB_200_2011", "--backbone", "network.py:model", "--min-images", "3"]
    arguments += ["--concepts", PATTERNS, "--image-size", "32", "--no-sweep", "--no-progress", "--device", "cpu"]
    assert main(["benchmark", "concepts", *arguments, "--out", "result"]) == 0
    table = pd.read_csv("result/results.csv", keep_default_na=False, na_values="")
    data = CUB200(cub, concepts=["has_wing_*", "has_bill_shape::dagger"])
    counts = np.minimum(data.concept_labels.sum(0), 6 - data.concept_labels.sum(0)).numpy()
    rare = {name for name, count in zip(data.concept_names, counts, strict=True) if count < 3}
    concepts = table[(table["item_kind"] == "concept") & (table["metric"] != "CLM")]
    for _, rows in concepts.groupby(["model", "metric", "explanation"], dropna=False):
        items = rows[rows["item"].notna()].set_index("item")
        assert set(items.index) == set(data.concept_names)
        assert items.loc[sorted(rare), "value"].isna().all()
        assert items.loc[sorted(rare), "undefined"].eq(1).all()
        (mean,) = rows.loc[rows["item"].isna(), "undefined"]
        assert mean >= len(rare)


def test_a_file_says_for_which_size_its_network_is_made(cub):
    (data,) = load_data(options(min_images=1), load_network("network.py:model"))
    assert data.train[0].image.shape == (3, 224, 224)
    assert any("does not say for which size" in note for note in data.notes)
    (cub.parent / "network.py").write_text(NETWORK + "\nIMAGE_SIZE = 48\n")
    (data,) = load_data(options(min_images=1), load_network("network.py:model"))
    assert data.train[0].image.shape == (3, 48, 48)
    assert not any("which size" in note for note in data.notes)
