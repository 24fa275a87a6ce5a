"""`score_discovered`: planted concepts score high, random ones do not, and what is unknown is undefined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from backbone_families import clip_vit
from captum_concepts import ConceptBank, embed, from_open_clip
from quantus_concepts import plot_discovered, score_discovered
from quantus_concepts.functional import bank_stability, delete_concepts, explained_variance
from untouched import untouched

L, D, N, K = 4, 24, 60, 4
DRAWN = torch.Generator().manual_seed(0)
#: Concepts of six dimensions each, and images that show one of them; the places of an image differ a little.
PLANTED = torch.eye(L).repeat_interleave(D // L, 1) / math.sqrt(D // L)
SHOWN = torch.arange(N) % L
CODES = torch.eye(L)[SHOWN][:, :, None, None] * (1 + torch.rand(N, 1, 3, 3, generator=DRAWN))
IMAGES = torch.einsum("nlhw,ld->ndhw", CODES, PLANTED) + 0.05 * torch.rand(N, D, 3, 3, generator=DRAWN)


class Given(nn.Module):
    """A backbone whose maps are the images."""

    def forward(self, images: Tensor) -> Tensor:
        return images


def linear(weights: Tensor) -> nn.Linear:
    """Return a head with a class for each row, and one more for images in which none is above 0.5."""
    head = nn.Linear(weights.shape[1], len(weights) + 1)
    head.weight = nn.Parameter(torch.cat([weights, torch.zeros_like(weights[:1])]))
    head.bias = nn.Parameter(torch.tensor([0.0] * len(weights) + [0.5]))
    return head


def row(table: pd.DataFrame, metric: str, baseline: str = "", l: int | None = None, item: str = "") -> pd.Series:  # noqa: E741
    chosen = (table["metric"] == metric) & (table["baseline"] == baseline) & (table["item"] == item)
    if l is not None:
        chosen &= table["l"] == l
    (found,) = (series for _, series in table[chosen].iterrows())
    return found


def beats(table: pd.DataFrame, metric: str, baseline: str = "random activations", **where: Any) -> int:
    """Return 1 if the bank's value is above the range of a baseline, -1 if it is below, and 0 inside."""
    value, other = row(table, metric, **where)["value"], row(table, metric, baseline, **where)
    return int(value > other["high"]) - int(value < other["low"])


@pytest.fixture(scope="module")
def bank():
    return ConceptBank.from_activations(Given(), IMAGES, L)


@pytest.fixture(scope="module")
def table(bank):
    return score_discovered(Given(), bank, IMAGES, linear(PLANTED), n_splits=2)


class Wrapped(nn.Module):
    """A head of another form than a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear(PLANTED)

    def forward(self, rows: Tensor) -> Tensor:
        return self.inner(rows)


def test_nothing_is_changed_and_batches_and_another_head_give_the_same(bank, table):
    backbone, head = Given(), Wrapped()
    with untouched(backbone, head):
        again = score_discovered(backbone, bank, [IMAGES[:25], IMAGES[25:]], head, n_splits=2)
    pd.testing.assert_frame_equal(again, table, atol=1e-4)


def test_planted_concepts_score_high(table):
    for metric in ("stability over halves", "stability over seeds"):
        assert row(table, metric)["value"] > 0.99
        assert beats(table, metric) == 1
        assert beats(table, metric, "random directions") == 1
    assert row(table, "explained variance")["value"] > 0.95
    assert row(table, "explained variance")["chance"] == L / D
    assert beats(table, "explained variance", "random directions") == 1
    best = row(table, "explained variance", "principal components")["value"]
    assert row(table, "explained variance")["value"] <= best
    assert row(table, "predictions kept")["value"] == 1
    assert row(table, "predictions kept", "random directions")["value"] < 0.95
    # The class is the concept.
    assert row(table, "predictions kept after deletion", l=0)["value"] == 1
    assert row(table, "predictions kept after deletion", l=1)["value"] == 0
    for baseline in ("random directions", "random order"):
        assert beats(table, "predictions kept after deletion", baseline, l=1) == -1
        assert beats(table, "logit drop", baseline, l=1) == 1
    for name in (f"concept {number}" for number in range(1, L + 1)):
        assert row(table, "logit drop", item=name)["n"] == N // L
        assert beats(table, "logit drop", "random directions", item=name) == 1


def test_drops_of_single_random_activations(bank):
    columns = ["value", "low", "high", "n"]
    # A single concept is the strongest of all images.
    alone = score_discovered(Given(), ConceptBank(bank.cavs[:1]), IMAGES, linear(PLANTED), n_banks=5)
    single = row(alone, "logit drop", "random activations", item="one concept")
    assert single[columns].tolist() == pytest.approx(
        row(alone, "logit drop", "random activations", l=1)[columns].tolist()
    )
    # The head reads the first two of the planted concepts, and places show one each.
    table = score_discovered(Given(), bank, IMAGES, linear(PLANTED[:2]), n_splits=1)
    single = row(table, "logit drop", "random activations", item="one concept")
    overall = row(table, "logit drop", "random activations", l=1)
    assert single["n"] > 39
    assert single["low"] < overall["low"] < overall["high"] < single["high"]


def test_directions_that_are_random_score_as_random_ones_do():
    bank = ConceptBank.random(L, D, seed=5)

    def discover(rows, seed):
        return torch.randn(L, D, generator=torch.Generator().manual_seed(1000 * seed + len(rows) + int(rows.sum())))

    table = score_discovered(Given(), bank, IMAGES, discover=discover, n_splits=2)
    for metric in ("stability over halves", "stability over seeds"):
        assert row(table, metric)["value"] < 0.5
    assert beats(table, "explained variance", "random directions") == 0
    assert row(table, "explained variance", "random directions")["value"] == pytest.approx(L / D, abs=0.03)


def test_concepts_that_the_head_does_not_read_are_deleted_without_effect(bank):
    # The images hold four concepts, and the class is about the first two.
    found = (bank.cavs @ PLANTED.T).argmax(1).tolist()
    head = linear(torch.stack([PLANTED[0], PLANTED[1]]))
    table = score_discovered(Given(), bank, IMAGES, head, n_splits=1)
    for name, planted in zip(bank.names, found, strict=True):
        drop = row(table, "logit drop", item=name)["value"]
        baseline = row(table, "logit drop", "random directions", item=name)
        if planted < 2:
            assert drop > baseline["high"]
            assert drop > 0.5
        else:
            assert baseline["low"] <= drop <= baseline["high"]
            assert abs(drop) < 0.05


def test_the_table_has_the_numbers_of_the_functions(bank):
    head = linear(torch.randn(K, D, generator=DRAWN))
    asked: list[Tensor] = []

    def discover(rows, seed):
        asked.append(rows)
        return rows[:L]

    labels = torch.arange(N) % K
    table = score_discovered(Given(), bank, IMAGES, head, labels=labels, discover=discover, n_splits=1)
    places, embeddings = IMAGES.flatten(2).transpose(1, 2).flatten(0, 1), IMAGES.mean((2, 3))
    # An image is in one half with all its places.
    first, second, all_places = asked
    assert len(first) == len(second) == len(places) / 2
    assert len(torch.cat([first, second]).unique(dim=0)) == len(places.unique(dim=0))
    halves = [{tuple(np.round(rows[:9].mean(0).tolist(), 4)) for rows in half.split(9)} for half in (first, second)]
    assert set.union(*halves) == {tuple(np.round(rows.tolist(), 4)) for rows in embeddings}
    assert torch.equal(all_places, places)
    stability = bank_stability(bank.cavs, first[:L], second[:L])
    assert row(table, "stability over halves")["value"] == pytest.approx(stability.mean().item(), abs=1e-6)
    item = row(table, "stability over halves", item=bank.names[2])["value"]
    assert item == pytest.approx(stability[2].item(), abs=1e-6)
    seeds = bank_stability(bank.cavs, bank.cavs, places[:L]).mean().item()
    assert row(table, "stability over seeds")["value"] == pytest.approx(seeds, abs=1e-6)
    variance = explained_variance(places, bank.cavs).item()
    assert row(table, "explained variance")["value"] == pytest.approx(variance, abs=1e-6)

    def centred(rows):
        logits = head(rows).detach()
        own = logits.gather(1, labels[:, None])[:, 0] - logits.mean(1)
        return (logits.argmax(1) == labels).double().mean().item(), own

    order = ((embeddings - embeddings.mean(0)) @ bank.cavs.T).argsort(1, descending=True)
    before = centred(embeddings)[1]
    for count, rows in zip((0, 1, 2, 4), delete_concepts(embeddings, bank.cavs, order, (0, 1, 2, 4)), strict=True):
        kept, logits = centred(rows)
        assert row(table, "predictions kept after deletion", l=count)["value"] == pytest.approx(kept)
        drop = row(table, "logit drop", l=count)["value"]
        assert drop == pytest.approx((before - logits).mean().item(), abs=1e-5)
    # With true labels the prediction that is kept is the accuracy.
    accuracy = (head(embeddings).argmax(1) == labels).double().mean().item()
    assert row(table, "predictions kept after deletion", l=0)["value"] == pytest.approx(accuracy)


def test_undefined_with_a_reason(bank):
    words = ConceptBank(bank.cavs, settings={"method": "text"})
    table = score_discovered(Given(), words, IMAGES, n_banks=2)
    undefined = table[table["value"].isna()]
    assert undefined.groupby("reason")["metric"].unique().map(list).to_dict() == {
        "how the bank was discovered is not known: pass `discover`": ["stability over halves", "stability over seeds"],
        "no `head` was given": ["predictions kept", "predictions kept after deletion", "logit drop"],
    }
    same = IMAGES[:1].mean((2, 3), keepdim=True).expand(5, -1, -1, -1)
    for metric, images, reason in (
        ("explained variance", same, "the activations do not vary"),
        ("stability over halves", IMAGES[:1], "there are no two halves of one image"),
        ("stability over halves", IMAGES[:2, :, :1, :1], "a half of the images has fewer places"),
    ):
        table = score_discovered(Given(), words if images is same else bank, images, n_banks=2)
        assert row(table, metric)["reason"].startswith(reason)
    # A concept that is nowhere the strongest.
    weak = ConceptBank(torch.cat([PLANTED, -PLANTED.sum(0, keepdim=True)]))
    table = score_discovered(Given(), weak, IMAGES, linear(PLANTED), n_banks=2)
    nowhere = row(table, "logit drop", item="concept 4")
    assert (nowhere["n"], nowhere["reason"]) == (0, "it is the strongest concept of no image")


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        ("cavs", {"bank": ConceptBank(torch.eye(3))}),
        ("labels", {"head": linear(PLANTED), "labels": [0, 1]}),
        ("labels", {"head": linear(PLANTED), "labels": [K + 1] * N}),
        ("images", {"images": IMAGES * torch.nan}),
    ],
)
def test_wrong_input_is_refused(message, changed, bank):
    with pytest.raises(ValueError, match=message):
        score_discovered(Given(), **{"bank": bank, "images": IMAGES, "n_splits": 1, "n_banks": 1} | changed)


def test_plot(table, bank, tmp_path):
    figure, axes = plot_discovered(table)
    assert [len(panel.lines) for panel in axes[1:]] == [4, 4]
    line = axes[2].lines[0]
    np.testing.assert_allclose(line.get_ydata()[1], row(table, "logit drop", l=1)["value"])
    figure.savefig(tmp_path / "discovered.png", dpi=30)
    without_head = score_discovered(Given(), bank, IMAGES, n_splits=1, n_banks=1)
    _, same = plot_discovered(without_head, axes)
    assert same[0] is axes[0]
    with pytest.raises(ValueError, match="score_discovered"):
        plot_discovered(table.drop(columns="l"))


def test_words_of_a_clip_model_are_scored_by_embeddings():
    torch.manual_seed(0)
    model = clip_vit()
    images = torch.rand(8, 3, 32, 32, generator=DRAWN)

    def tokenizer(texts):
        return torch.tensor([[1 + len(text) % 5, 7, 0, 0] for text in texts])

    bank = ConceptBank.from_text(model, tokenizer, ["striped", "furry", "red"])
    backbone = from_open_clip(model)
    table = score_discovered(backbone, bank, images, linear(torch.randn(3, 12, generator=DRAWN)))
    embeddings = embed(backbone, [(images,)]).features
    variance = explained_variance(embeddings, bank.cavs).item()
    assert row(table, "explained variance")["value"] == pytest.approx(variance, abs=1e-5)
    assert row(table, "stability over halves")["reason"].startswith("how the bank was discovered")
    assert row(table, "predictions kept after deletion", l=0)["value"] == 1
