"""What `benchmark concepts` collects: its birds and photographs, ranges of images, and rare concepts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from captum_concepts.backbones.networks import load_network
from fixtures_commands import NETWORK
from fixtures_cub import write_cub
from golden.runs import smaller
from quantus_concepts.datasets import CUB200, PaintedBirds
from quantus_concepts.datasets.birds.cub200 import CBM_ATTRIBUTES, GROUP_OF_ATTRIBUTE
from quantus_concepts.painted import images as loading
from quantus_concepts.painted.images import KeptImages
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts.data import Source, load_data


def test_each_seed_paints_other_birds_of_the_same_classes(monkeypatch):
    monkeypatch.setattr(loading, "PAINTED_AT_ONCE", 12)
    source = Source(
        data="painted",
        min_images=1,
        image_size=32,
        n_train=27,
        n_test=10,
        birds={"n_classes": 5, "seed": 0},
        seeds=range(2),
    )
    _, together = load_data(source, None)
    # Other birds of the same classes, with a truth of their own.
    birds = KeptImages(PaintedBirds(57, image_size=32, n_classes=5), range(30, 57))
    later = PaintedBirds(27, image_size=32, n_classes=5, first=30)
    assert torch.equal(together.train.images, birds.images)
    assert torch.equal(together.train.labels, birds.labels)
    assert torch.equal(together.class_concepts, later.class_concepts)


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


def cub_source(**changed):
    return Source(**{"data": "cub", "root": Path("CUB_200_2011"), "min_images": 1} | changed)


def test_truth_stays_aligned_with_the_concepts_that_are_left(cub):
    source = cub_source(concepts=PATTERNS, min_images=3, image_size=32)
    (data,) = load_data(source, load_network("network.py:model"))
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
    assert any(
        f"{len(data.left_out)} of {len(full.concept_names)} concepts are left out" in note for note in data.notes
    )


def test_concepts_left_out_are_undefined_in_results(cub):
    arguments = ["--data", "cub", "--root", "CUB_200_2011", "--backbone", "network.py:model", "--min-images", "3"]
    arguments += ["--concepts", PATTERNS, "--image-size", "32", "--no-sweep", "--no-progress", "--device", "cpu"]
    with smaller(figures=False):
        assert main(["benchmark", "concepts", *arguments, "--out", "result"]) == 0
    table = pd.read_csv("result/results.csv", keep_default_na=False, na_values="")
    data = CUB200(cub, concepts=["has_wing_*", "has_bill_shape::dagger"])
    counts = np.minimum(data.concept_labels.sum(0), 6 - data.concept_labels.sum(0)).numpy()
    rare = {name for name, count in zip(data.concept_names, counts, strict=True) if count < 3}
    table = table[table["model"] != "the same importance everywhere"]  # its mean alone
    concepts = table[(table["item_kind"] == "concept") & (table["metric"] != "CLM")]
    for _, rows in concepts.groupby(["model", "metric", "explanation"], dropna=False):
        items = rows[rows["item"].notna()].set_index("item")
        assert set(items.index) == set(data.concept_names)
        assert items.loc[sorted(rare), "value"].isna().all()
        assert items.loc[sorted(rare), "undefined"].eq(1).all()
        (mean,) = rows.loc[rows["item"].isna(), "undefined"]
        assert mean >= len(rare)


def test_a_file_says_for_which_size_its_network_is_made(cub):
    (data,) = load_data(cub_source(), load_network("network.py:model"))
    assert data.train[0].image.shape == (3, 224, 224)
    assert any("does not say for which size" in note for note in data.notes)
    (cub.parent / "network.py").write_text(NETWORK + "\nIMAGE_SIZE = 48\n")
    (data,) = load_data(cub_source(), load_network("network.py:model"))
    assert data.train[0].image.shape == (3, 48, 48)
    assert not any("which size" in note for note in data.notes)
