"""What models predict, kept as rows: files that are no such files, selections, and what a stranger looks at."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from captum_concepts.fingerprints import tensors_hash
from damaged import DAMAGES, Loader, check_damaged
from quantus_concepts import score_concepts
from quantus_concepts.metrics import ConceptPredictions, predict_concepts, score_predictions
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.looks import Look, Looked, Looking
from quantus_concepts.metrics.host.prediction_files import FACTS, KIND
from quantus_concepts.metrics.host.scores import MetricScores
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel

N, PARTS = 12, [2, 0, -1, 1, 0]


def drawn() -> list[tuple[Tensor, ...]]:
    random = torch.Generator().manual_seed(5)
    images = torch.rand(N, 3, 12, 15, generator=random)
    present = (torch.rand(N, N_CONCEPTS, generator=random) < 0.4).float()
    points = 12 * torch.rand(N, 3, 2, 2, generator=random)
    return [(images[i : i + 4], torch.arange(4) % N_CLASSES, present[i : i + 4], points[i : i + 4]) for i in (0, 4, 8)]


BATCHES = drawn()
MODEL = SharingConceptModel(0)
ROWS = predict_concepts(MODEL, BATCHES, truth={"part_of_concept": PARTS}, class_concepts=np.eye(N_CLASSES, N_CONCEPTS))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused_by_name(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "rows.safetensors"
    ROWS.save(path)
    check_damaged(Loader(path, lambda: ConceptPredictions.load(path)), damage)
    assert score_predictions(ConceptPredictions.load(path)).equals(score_predictions(ROWS))


def resigned(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors with a right hash, as somebody would who wants the file to be read."""
    save_file(tensors, path, {"kind": KIND, "sha256": tensors_hash(KIND, sorted(tensors.items()))})


def facts(tensors: dict[str, Tensor], **others: Any) -> dict[str, Tensor]:
    found = json.loads(bytes(tensors[FACTS].tolist())) | others
    return tensors | {FACTS: torch.tensor(list(json.dumps(found).encode()), dtype=torch.uint8)}


#: What a file holds that contradicts itself.
LIES: dict[str, Any] = {
    "fewer classes": lambda of: of | {"classes": of["classes"][:-1]},
    "fewer values": lambda of: of | {"values": of["values"][1:]},
    "values of one number": lambda of: of | {"values": torch.tensor(1.0)},
    "classes of fractions": lambda of: of | {"classes": of["classes"].double()},
    "a class that is none": lambda of: of | {"predicted": of["predicted"] + 100},
    "a negative class": lambda of: of | {"classes": of["classes"] - 100},
    "a head of other concepts": lambda of: of | {"head/weight": of["head/weight"][:, 1:].clone()},
    "a head of other classes": lambda of: of | {"head/bias": of["head/bias"][1:].clone()},
    "half a head": lambda of: {name: value for name, value in of.items() if name != "head/bias"},
    "no values": lambda of: {name: value for name, value in of.items() if name != "values"},
    "truth of fewer images": lambda of: of | {"truth/labels": of["truth/labels"][:-1]},
    "facts that are no JSON": lambda of: of | {FACTS: torch.tensor([123, 34], dtype=torch.uint8)},
    "facts that are a list": lambda of: of | {FACTS: torch.tensor(list(b"[]"), dtype=torch.uint8)},
    "facts that are fractions": lambda of: of | {FACTS: torch.rand(9)},
    "looks that are numbers": lambda of: facts(of, looks=[1, 2]),
    "a look without its columns": lambda of: facts(of, looks=[["maps", {}], ["others", 3]]),
    "a threshold in words": lambda of: facts(of, threshold="high"),
    "nothing about the model": lambda of: facts(of, about=[]),
    "half of a bank": lambda of: of | {"banks/cavs": torch.rand(2, N_CONCEPTS, 3)},
}


@pytest.mark.parametrize("lie", LIES)
def test_files_that_contradict_themselves_are_refused(tmp_path: Path, lie: str) -> None:
    path = tmp_path / "rows.safetensors"
    ROWS.save(path)
    resigned(path, LIES[lie](load_file(path)))
    with pytest.raises(ValueError, match=r"rows\.safetensors is a damaged file of concept predictions: "):
        ConceptPredictions.load(path)


def test_other_bytes_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.safetensors"
    ROWS.save(path)
    good = path.read_bytes()
    path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
    with pytest.raises(ValueError, match="its content is not what was written"):
        ConceptPredictions.load(path)
    save_file({"classes": torch.arange(3)}, path)
    with pytest.raises(ValueError, match=r"rows\.safetensors"):
        ConceptPredictions.load(path)
    with pytest.raises(FileNotFoundError):
        ConceptPredictions.load(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError):
        ROWS.save(tmp_path / "no folder" / "rows.safetensors")


def test_selected_rows_are_those_of_the_images() -> None:
    images, labels, present, points = (torch.cat(parts) for parts in zip(*BATCHES, strict=True))
    kept = torch.tensor([0, 1, 5, 7, 8, 11])
    truth = {"part_of_concept": PARTS}
    alone = score_concepts(
        MODEL,
        [(images[kept], labels[kept], present[kept], points[kept])],
        truth=truth,
        class_concepts=np.eye(N_CLASSES, N_CONCEPTS),
        baselines=False,
    )
    selected = score_predictions(ROWS.select(kept), baselines=False)
    pd.testing.assert_frame_equal(selected, alone, rtol=1e-6)
    flags = np.isin(np.arange(N), kept)
    pd.testing.assert_frame_equal(score_predictions(ROWS.select(flags), baselines=False), selected)
    assert len(ROWS.select(kept)) == 6
    assert repr(ROWS).startswith("ConceptPredictions(12 images, classes=")


def test_rows_of_heads_that_differ_keep_their_own_importances() -> None:
    parts = []
    for level in (0.0, 5.0):
        head = nn.Linear(N_CONCEPTS, N_CLASSES)
        known = {"classes": torch.tensor([0, 1]), "values": ROWS.values[:2], "predicted": torch.tensor([0, 1])}
        tables = {"level": np.full(N_CONCEPTS, level)}
        parts.append(ConceptPredictions(**known, head=head, tables=tables, about={}))
    joined = ConceptPredictions.join(parts)
    # The concepts of the second lie below its level, and come last.
    assert not torch.equal(parts[1].naming("effect"), parts[1].importance("effect"))
    for of in ("naming", "importance"):
        assert getattr(joined, of)("effect").tolist() == [
            row for part in parts for row in getattr(part, of)("effect").tolist()
        ]


@dataclass(frozen=True)
class Brightness(Look):
    """How bright images are, and how much their first concept value changes where they are turned round."""

    strided: bool = True

    def see(self, looking: Looking) -> Looked:
        """Return a column of both."""
        values, _ = looking.ask("turned", lambda device: looking.images.flip(-1).to(device))
        before = looking.rows.values
        return Looked({"light": looking.images.mean((1, 2, 3)), "change": values[:, 0] - before[:, 0]})


class LightOfImages(ConceptMetric):
    """Stranger's metric that has to see the model."""

    name = "light"
    bounds = (-1.0, 1.0)

    def look(self) -> Brightness:
        """Return what to see."""
        return Brightness()

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return both columns."""
        seen = rows.looks[Brightness().name].columns
        fields = [{"metric": self.name, "explanation": name} for name in ("light", "change")]
        values = np.stack([seen[each["explanation"]].double().numpy() for each in fields], 1)
        return MetricScores(fields, values, bounds=self.bounds)


def test_a_look_of_a_stranger_is_seen_once_and_kept(tmp_path: Path) -> None:
    images = torch.cat([batch[0] for batch in BATCHES])
    with torch.no_grad():
        change = MODEL.concept_predictor(images.flip(-1))[:, 0] - MODEL.concept_predictor(images)[:, 0]
    expected = [images.mean().item(), change.mean().item()]
    table = score_concepts(MODEL, BATCHES, [LightOfImages()])
    np.testing.assert_allclose(table["value"], expected, atol=1e-6)
    rows = predict_concepts(MODEL, BATCHES, [LightOfImages()])
    rows.save(tmp_path / "rows.safetensors")
    assert score_predictions(ConceptPredictions.load(tmp_path / "rows.safetensors"), [LightOfImages()]).equals(table)
    assert LightOfImages(display_progressbar=False)(
        model=MODEL, x_batch=images.numpy(), y_batch=np.zeros(N, dtype=int)
    ) == pytest.approx(images.mean((1, 2, 3)).tolist())
    with pytest.raises(ValueError, match="light needs `Brightness`: name the metric in `metrics=` of `predict_concep"):
        score_predictions(predict_concepts(MODEL, BATCHES), [LightOfImages()])


def test_strided_looks_are_of_every_nth_image_of_baseline_models() -> None:
    own = {"controls": {"other": [SharingConceptModel(seed) for seed in (3, 4)]}}
    whole = score_concepts(MODEL, BATCHES, [LightOfImages()], **own)
    strided = score_concepts(MODEL, BATCHES, [LightOfImages()], control_stride=3, **own)
    rows = [table[table["model"] == "other"].reset_index(drop=True) for table in (whole, strided)]
    assert len(rows[0]) == len(rows[1]) == 2
    assert not np.allclose(rows[0]["value"], rows[1]["value"])
    pd.testing.assert_frame_equal(whole[whole["model"] != "other"], strided[strided["model"] != "other"])
