"""Concepts that too few training images show or lack, in the study of concept models."""

import numpy as np
import pandas as pd
import pytest
import torch

from fixtures_commands import NETWORK
from fixtures_cub import write_cub
from quantus_concepts.datasets import CUB200
from quantus_concepts.datasets.birds.cub200 import CBM_ATTRIBUTES, attribute_group
from quantus_concepts.studies._models.networks import load_network
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts.data_option import load_data
from quantus_concepts.studies.concepts.options import ConceptOptions

#: Official numbers of the wing colours that are concepts, but one.
RARE = {str(number + 1) for number in CBM_ATTRIBUTES if attribute_group(number) == "has_wing_color"} - {"24"}
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
    given = {"data": "cub", "root": "CUB_200_2011", "backbone": "network.py:model", "device": "cpu"}
    return ConceptOptions(**given | changed)


def test_truth_stays_aligned_with_the_concepts_that_are_left(cub):
    asked = options(concepts=PATTERNS, min_images=3, image_size=32)
    (data,) = load_data(asked, load_network("network.py:model"))
    whole = CUB200(cub, "train", concepts=["has_wing_*", "has_bill_shape::dagger"])
    counts = whole.concept_labels.sum(0)
    kept = torch.nonzero(torch.minimum(counts, 6 - counts) >= 3).flatten().tolist()
    assert 0 < len(kept) < len(whole.concept_names)
    assert data.concept_names == [whole.concept_names[j] for j in kept]
    assert data.left_out == [name for j, name in enumerate(whole.concept_names) if j not in kept]
    for ours, theirs in ((data.train, whole), (data.test, CUB200(cub, "test", concepts=whole.concept_names))):
        assert torch.equal(ours.concept_labels, theirs.concept_labels[:, kept])
        assert torch.equal(ours[2].concepts, theirs[2].concepts[kept])
    assert torch.equal(data.class_concepts, whole.class_concepts[:, kept])
    assert torch.equal(data.part_of_concept, whole.part_of_concept[kept])
    (note,) = [note for note in data.notes if "left out" in note]
    assert note.startswith(f"{len(data.left_out)} of {len(whole.concept_names)} concepts are left out")


def test_concepts_left_out_are_undefined_in_results(cub):
    arguments = ["--data", "cub", "--root", "CUB_200_2011", "--backbone", "network.py:model", "--min-images", "3"]
    arguments += ["--concepts", PATTERNS, "--image-size", "32", "--no-sweep", "--no-progress", "--device", "cpu"]
    assert main(["benchmark", "concepts", *arguments, "--out", "result"]) == 0
    table = pd.read_csv("result/results.csv", keep_default_na=False, na_values="")
    asked = CUB200(cub, concepts=["has_wing_*", "has_bill_shape::dagger"])
    counts = np.minimum(asked.concept_labels.sum(0), 6 - asked.concept_labels.sum(0)).numpy()
    rare = {name for name, count in zip(asked.concept_names, counts, strict=True) if count < 3}
    concepts = table[(table["item_kind"] == "concept") & (table["metric"] != "CLM")]
    for _, rows in concepts.groupby(["model", "metric", "explanation"], dropna=False):
        items = rows[rows["item"].notna()].set_index("item")
        assert set(items.index) == set(asked.concept_names)
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
