"""Which option of a group an encoder sees: by hand, of what sees everything, recites or knows nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fixtures_cub import write_cub
from fixtures_sub import write_release
from quantus_concepts.datasets import CUB200, SUB, PaintedBirds, PaintedSubstitutions
from quantus_concepts.functional.statistics.intervals import interval
from quantus_concepts.studies.substitution.vision_language import attribute_words, score_vision_language

#: Three colours and two shapes; the last is no concept of the model, but may be chosen.
OPTIONS = ["wing_color::red", "wing_color::blue", "bill_shape::cone", "bill_shape::needle", "wing_color::green"]
CONCEPTS = OPTIONS[:4]
ADDED, REMOVED = torch.tensor([1, 1, 2, 2, 0, -1]), torch.tensor([0, 0, 3, 3, -1, 2])
LABELS = torch.tensor([0, 0, 0, 1, 1, 1])
#: What an image is like: red, blue, cone, needle, green, and "none".
LIKE = torch.tensor(
    [
        [0.1, 0.9, 0.0, 0.0, 0.2, 0.3],
        [0.8, 0.1, 0.9, 0.0, 0.2, 0.9],
        [0.9, 0.9, 0.5, 0.4, 0.9, 0.6],
        [0.0, 0.0, 0.3, 0.6, 0.0, 0.1],
        [0.0, 0.0, 0.9, 0.9, 0.7, 0.2],
        [0.9, 0.9, 0.9, 0.9, 0.9, 0.0],
    ]
)


class Seer:
    """An encoder whose similarities are the first pixels of an image; records its calls."""

    name, dim, fingerprint, device = "seer", 8, "seer", None

    def __init__(self, texts: list[str]) -> None:
        self.known_texts, self.calls = texts, []

    def encode_images(self, images: Tensor) -> Tensor:
        self.calls.append(len(images))
        # Of one length, so that the cosine is half of what the pixels say.
        similarity = images[:, 0, 0] / 2
        return torch.cat([similarity, (1 - similarity.square().sum(1, keepdim=True)).clamp(min=0).sqrt()], 1)

    def encode_texts(self, texts: list[str]) -> Tensor:
        self.calls.append(tuple(texts))
        places = torch.tensor([self.known_texts.index(text) for text in texts])
        return torch.nn.functional.one_hot(places, len(self.known_texts) + 1).float()


TEXTS = [f"a bird with {attribute_words(name)}" for name in OPTIONS] + ["none"]
BOUND = {"added": ADDED, "removed": REMOVED, "concept_names": CONCEPTS, "options": OPTIONS}


def batches(like: Tensor = LIKE) -> list[tuple[Tensor, Tensor]]:
    images = like[:, None, None].expand(-1, 3, -1, -1)
    return list(zip(images.split(4), LABELS.split(4), strict=True))


def of_all(table: pd.DataFrame, variant: str) -> pd.DataFrame:
    return table[(table["set"] == variant) & (table["item_kind"] == "")].set_index("metric")


def test_by_hand():
    seer = Seer(TEXTS)
    table = score_vision_language(seer, batches(), **BOUND)
    # Texts once, and each image once.
    assert seer.calls == [tuple(TEXTS), 4, 2]
    assert set(table["model"]) == {"seer"}
    # Beside none: blue; none before red; none before cone; needle, which was there; green; the last is not scored.
    rows = of_all(table, "with none")
    assert rows["value"].to_dict() == {"S+": 0.2, "S-": 0.75, "original": 0.25, "none": 0.4}
    assert (rows.loc["S+", "n"], rows.loc["S-", "n"], rows.loc["S-", "undefined"]) == (5, 4, 2)
    # Three colours and none, or two shapes and none.
    colour, shape = 1 / 4, 1 / 3
    expected = {"S+": (3 * colour + 2 * shape) / 5, "S-": 1 - (2 * colour + 2 * shape) / 4}
    expected |= {"original": (2 * colour + 2 * shape) / 4, "none": expected["S+"]}
    assert rows["chance"].to_dict() == pytest.approx(expected)
    # Without: blue, red (which was there), cone, needle (which was there), green.
    rows = of_all(table, "without none")
    assert rows["value"].to_dict() == {"S+": 0.4, "S-": 0.5, "original": 0.5}
    colour, shape = 1 / 3, 1 / 2
    assert rows.loc["original", "chance"] == pytest.approx((2 * colour + 2 * shape) / 4)
    # Pairs are (class, added): the first two, the third, the fourth, the fifth.
    assert rows.loc["S+", "low"] == interval([1, 0, 1, 0, 0], clusters=[0, 0, 1, 2, 3])[0]
    shapes = table[(table["set"] == "without none") & (table["item"] == "bill_shape")].set_index("metric")
    assert shapes["value"].to_dict() == {"S+": 0.5, "S-": 0.5, "original": 0.5}
    assert shapes["chance"].to_dict() == {"S+": 0.5, "S-": 0.5, "original": 0.5}


def test_images_by_themselves_and_only_without_none():
    prompts = [f"p{place}" for place in range(5)]
    table = score_vision_language(
        Seer([*prompts, "nothing"]), batches(), **BOUND, prompts=prompts, none="nothing", per_image=True
    )
    chosen = table[(table["metric"] == "S+") & (table["set"] == "with none")]
    names = ["wing_color::blue", "none", "none", "bill_shape::needle", "wing_color::green", "none"]
    assert chosen["predicted"].tolist() == names
    only = score_vision_language(Seer([*prompts, "unasked"]), batches(), **BOUND, prompts=prompts, none=None)
    assert set(only["set"]) == {"without none"}
    assert of_all(only, "without none").loc["S+", "value"] == 0.4


def test_accuracy_on_what_was_seen():
    present = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0]])
    like = torch.tensor([[0.9, 0.1, 0.2, 0.3, 0.1, 0.0], [0.1, 0.3, 0.1, 0.2, 0.8, 0.1]])
    unsubstituted = [(like[:, None, None].expand(-1, 3, -1, -1), torch.tensor([0, 1]), present)]
    table = score_vision_language(Seer(TEXTS), batches(), **BOUND, seen=unsubstituted)
    rows = of_all(table, "without none")
    # Chosen are red and needle, and green and needle: of four concepts right are red, blue; and red, cone.
    assert rows.loc["T", "value"] == 0.5
    # Put in anywhere are red, blue and cone: two of three; and two of three.
    assert rows.loc["T_A", "value"] == pytest.approx(2 / 3)
    # What is there by 1/3 or 1/2, what is not by the rest.
    first, second = (1 / 3 + 2 / 3 + 1 / 2 + 1 / 2) / 4, (2 / 3 + 1 / 3 + 1 / 2 + 1 / 2) / 4
    assert rows.loc["T", "chance"] == pytest.approx((first + second) / 2)


class Showing(Seer):
    """Sees what images of a data set show, or that of their class."""

    def __init__(self, labels: Tensor, names: list[str]) -> None:
        super().__init__([*(f"a bird with {attribute_words(name)}" for name in names), "none"])
        self.labels = labels

    def encode_images(self, images: Tensor) -> Tensor:
        start = sum(count for count in self.calls if isinstance(count, int))
        self.calls.append(len(images))
        return torch.nn.functional.pad(self.labels[start : start + len(images)], (0, 2))


def test_what_sees_scores_one_and_what_recites_chooses_the_original():
    pairs = PaintedSubstitutions(PaintedBirds(8, "test", image_size=32, n_classes=4, n_concepts=26), 3)
    for labels, expected in (
        (pairs.concept_labels, {"S+": 1, "S-": 1, "original": 0, "none": 0}),
        (pairs.class_concepts[pairs.labels], {"S+": 0, "S-": 0, "original": 1, "none": 0}),
    ):
        table = score_vision_language(Showing(labels, pairs.concept_names), DataLoader(pairs, 7))
        assert of_all(table, "with none")["value"].to_dict() == expected


def test_what_guesses_is_at_chance():
    rng = torch.Generator().manual_seed(0)
    n = 800
    like = torch.rand(n, 6, generator=rng) / 2
    loader = [(like[:, None, None].expand(-1, 3, -1, -1), torch.arange(n))]
    rows = torch.randint(0, 4, (n,), generator=rng)
    bound = {**BOUND, "added": rows, "removed": torch.tensor([1, 0, 3, 2])[rows]}
    table = score_vision_language(Seer(TEXTS), loader, **bound)
    for variant in ("with none", "without none"):
        for _, row in of_all(table, variant).iterrows():
            assert abs(row["value"] - row["chance"]) < 0.05


@pytest.mark.filterwarnings("ignore:The images of:UserWarning")
def test_sub_offers_all_attributes_of_cub(tmp_path):
    cub = CUB200(write_cub(tmp_path / "cub"), "test", class_concepts="majority")
    sub = SUB(write_release(tmp_path / "sub"), cub)
    model = SimpleNamespace(
        encode_image=lambda images: torch.cat([torch.ones(len(images), 1), images.mean((2, 3))], 1),
        encode_text=lambda tokens: torch.cat([torch.ones(len(tokens), 1), tokens], 1),
        preprocess=lambda image: torch.as_tensor(np.array(image)).permute(2, 0, 1) / 255,
        tokenizer=lambda texts: torch.tensor([[len(text), len(set(text)), text.count("a")] for text in texts]).float(),
        name="toy",
    )
    rows = of_all(score_vision_language(model, DataLoader(sub, 3)), "with none")
    # Two black crowns and one more (15 colours), two dagger bills (9 shapes); spotted tails are no concepts.
    assert rows.loc["S+", "n"] == 5
    assert rows.loc["S+", "chance"] == pytest.approx((3 / 16 + 2 / 10) / 5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"concept_names": None}, "`concept_names` to tell what the concepts are called"),
        ({"added": None}, "`added` to hold the concept put into each image"),
        ({"added": ADDED * 0 - 1}, "nothing in common"),
        ({"options": ["tail::long"]}, "`options` to hold concepts of `concept_names` but none"),
        ({"seen": batches()}, "`seen` to give batches with concept labels"),
    ],
)
def test_bad_input_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        score_vision_language(**{"encoder": Seer(TEXTS), "loader": batches(), **BOUND, **changed})
