"""`--images-per-class`: fewer photographs, the same number of each class."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from fixtures_commands import write_own_images
from quantus_concepts.datasets import ConceptCSV, ConceptFolder
from quantus_concepts.studies._models.named_networks import Network
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts.data import same_images
from quantus_concepts.studies.concepts.settings import Concepts


def test_each_class_has_so_many_images_drawn_with_the_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_own_images(tmp_path)
    network = Network(torch.nn.Identity(), "none", mean=(0.0,) * 3, std=(1.0,) * 3)
    folder = {"data": "folder", "root": Path("fruit"), "concepts": "concepts.csv", "parts": Path("parts.csv")}
    drawn = []
    for seed in (0, 1, 0):
        settings = Concepts(**folder, min_images=1, images_per_class=5, seed=seed)
        data = same_images(settings, network)
        assert data.train.labels.bincount().tolist() == [5, 5]
        # There are four.
        assert data.test.labels.bincount().tolist() == [4, 4]
        assert any(f"drawn with seed {seed}: 10 of 16 and 8 of 8." in note for note in data.notes)
        drawn.append([data.train[index] for index in range(len(data.train))])
    whole = [*ConceptFolder("fruit", "concepts.csv", "parts.csv", split="train")]
    for number, sample in enumerate(drawn[0]):
        assert sample.label == data.train.labels[number]
        (same,) = [other for other in whole if torch.equal(other.image, sample.image)]
        assert torch.equal(same.concepts, data.train.concept_labels[number])
        torch.testing.assert_close(same.points, sample.points, equal_nan=True)
    images = [torch.stack([sample.image for sample in samples]) for samples in drawn]
    assert torch.equal(images[0], images[2])
    assert not torch.equal(images[0], images[1])


def test_painted_birds_have_their_own_options(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "concepts", "--images-per-class", "3"]) == 2
    assert "`--images-per-class` has no effect with --data painted" in capsys.readouterr().err


def test_a_table_takes_the_place_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_own_images(tmp_path)
    rows = [
        {
            "image": path.relative_to("fruit").as_posix(),
            "class": path.parent.name,
            "round": int(number % 2),
            "split": split,
        }
        for split in ("train", "test")
        for number, path in enumerate(sorted(Path("fruit").glob(f"{split}/*/*")) or sorted(Path("fruit").glob("*/*")))
    ]
    rows = list({row["image"]: row for row in rows}.values())
    for number, row in enumerate(rows):
        row["split"] = ("train", "test")[number % 2]
    pd.DataFrame(rows).to_csv("table.csv", index=False)
    settings = Concepts(data="table", root=Path("fruit"), concepts="table.csv", min_images=1)
    data = same_images(settings, Network(torch.nn.Identity(), "none", mean=(0.0,) * 3, std=(1.0,) * 3))
    assert len(data.train) + len(data.test) == len(rows)
    assert data.concept_names == ["round"]
    torch.testing.assert_close(data.test[0].image, ConceptCSV("table.csv", "fruit", split="test")[0].image)
