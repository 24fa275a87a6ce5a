"""`score_discovered`: planted concepts are kept, and nothing of shuffled pixels and random weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torchvision
from torch import Tensor, nn

from backbone_families import clip_vit
from captum_concepts import ConceptBank, embed, from_open_clip, from_torchvision
from quantus_concepts import plot_discovered, score_discovered
from quantus_concepts.functional import (
    bank_stability,
    delete_concepts,
    explained_variance,
    monosemanticity,
    surrogate_fidelity,
)
from quantus_concepts.functional.discovered.monosemanticity import mean_likeness
from quantus_concepts.metrics.discovered import verdicts
from quantus_concepts.metrics.discovered.rows import SameVariance
from untouched import untouched

L, D, N, K = 4, 24, 60, 4
DRAWN = torch.Generator().manual_seed(0)
#: Concepts of six dimensions each, and images that show one of them; the places of an image differ a little.
PLANTED = torch.eye(L).repeat_interleave(D // L, 1) / math.sqrt(D // L)
SHOWN = torch.arange(N) % L
CODES = torch.eye(L)[SHOWN][:, :, None, None] * (1 + torch.rand(N, 1, 3, 3, generator=DRAWN))
IMAGES = torch.einsum("nlhw,ld->ndhw", CODES, PLANTED) + 0.05 * torch.rand(N, D, 3, 3, generator=DRAWN)


def striped_images(n: int) -> tuple[Tensor, Tensor]:
    """Return noisy stripes (n, 3, 24, 24) in four directions, which are the classes."""
    drawn, classes, places = torch.Generator().manual_seed(0), torch.arange(n) % 4, 1.2 * torch.arange(24.0)
    angles = (classes * math.pi / 4 + 0.2 * torch.randn(n, generator=drawn))[:, None, None]
    waves = torch.sin(angles.cos() * places + angles.sin() * places[:, None] + torch.rand(n, 1, 1, generator=drawn) * 6)
    colours, noise = torch.rand(n, 3, 1, 1, generator=drawn), torch.randn(n, 3, 24, 24, generator=drawn)
    return 0.5 + 0.3 * waves[:, None] * colours + 0.15 * noise, classes


def striped_network(images: Tensor, classes: Tensor, steps: int) -> nn.Sequential:
    """Return maps, pool and classes of a network after so many steps of Adam."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()]
        network = nn.Sequential(nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))
    optimiser = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(images), classes).backward()
        optimiser.step()
    return network.eval()


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
    return ConceptBank.from_activations(nn.Identity(), IMAGES, L)


@pytest.fixture(scope="module")
def table(bank):
    return score_discovered(nn.Identity(), bank, IMAGES, linear(PLANTED), n_splits=2)


class Wrapped(nn.Module):
    """A head of another form than a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear(PLANTED)

    def forward(self, rows: Tensor) -> Tensor:
        return self.inner(rows)


def test_nothing_is_changed_and_batches_and_another_head_give_the_same(bank, table):
    backbone, head = nn.Identity(), Wrapped()
    with untouched(backbone, head):
        again = score_discovered(backbone, bank, [IMAGES[:25], IMAGES[25:]], head, n_splits=2)
    # Surrogates are of linear heads.
    surrogate = table["metric"].str.startswith("surrogate")
    assert set(again[again["metric"].str.startswith("surrogate")]["reason"]) == {"the head is not one linear layer"}
    again, expected = again[~again["metric"].str.startswith("surrogate")], table[~surrogate]
    pd.testing.assert_frame_equal(again.reset_index(drop=True), expected.reset_index(drop=True), atol=1e-4)


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
    assert beats(table, "predictions kept after deletion", "random order", l=1) == -1
    for baseline in ("random activations", "random order"):
        assert beats(table, "share of the logit drop", baseline, l=1) == 1
    for name in (f"concept {number}" for number in range(1, L + 1)):
        assert row(table, "share of the logit drop", item=name)["n"] == N // L


def test_the_planted_concepts_that_the_head_reads_are_kept_and_no_others():
    # Images show any of 20 concepts, more or less, and the classes are the first four.
    planted, n, drawn = torch.eye(20).repeat_interleave(2, 1) / math.sqrt(2), 300, torch.Generator().manual_seed(0)
    codes = torch.rand(n, 20, 2, 2, generator=drawn) * (torch.rand(n, 20, 2, 2, generator=drawn) < 0.5)
    codes += torch.rand(n, 20, 1, 1, generator=drawn) < 0.2
    images = torch.einsum("nlhw,ld->ndhw", codes, planted) + 0.05 * torch.rand(n, 40, 2, 2, generator=drawn)
    bank, head = ConceptBank.from_activations(nn.Identity(), images, 20), linear(planted[:4])
    table = score_discovered(nn.Identity(), bank, images, head, n_splits=1)
    found = verdicts(table)
    read = (bank.cavs @ planted.T).argmax(1) < 4
    assert found["stable"].all()
    assert found["keep"].tolist() == found["used"].tolist() == read.tolist()
    assert row(table, "surrogate error of the logits")["verdict"] == "below"
    best = row(table, "share of the logit drop", "random directions of the same variance", item="best concept")
    for name, is_read in zip(bank.names, read.tolist(), strict=True):
        assert (row(table, "share of the logit drop", item=name)["low"] > best["high"]) == is_read
        assert is_read or abs(row(table, "share of the logit drop", item=name)["value"]) < 0.05
    # Without anything to lose nothing is used, whatever the shares are.
    everything = table["metric"] == "logit drop without everything"
    assert table[everything]["low"].item() > 0
    untold = score_discovered(
        nn.Identity(),
        bank,
        images,
        linear(1e-9 * torch.randn(4, 40, generator=drawn)),
        discover=lambda rows, seed: bank.cavs,
        n_splits=1,
    )
    assert not verdicts(untold)["used"].any()


def test_nothing_is_kept_of_shuffled_pixels_and_of_random_weights():
    images, classes = striped_images(160)
    trained, untrained = (striped_network(images, classes, steps) for steps in (80, 0))
    assert (trained(images).argmax(1) == classes).float().mean() > 0.9
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.stack([image.flatten(1)[:, torch.randperm(576, generator=generator)] for image in images])
    for network, shown in ((trained, shuffled.view_as(images)), (untrained, images)):
        bank = ConceptBank.from_activations(network[0], shown, 6)
        table = score_discovered(network[0], bank, shown, network[-1], n_splits=1)
        found = verdicts(table)
        assert found["stable"].any()
        assert not found["used"].any()
        # Rounding decides which reason a trained network has.
        if network is untrained:
            assert found["reason"].eq("it is not shown that removing everything lowers the logit of the class").all()
        assert not table.loc[table["metric"] == "share of the logit drop", "verdict"].eq("above").any()


def test_random_directions_have_the_variance_of_the_concepts():
    rows = torch.randn(500, D, generator=DRAWN) * torch.arange(1, D + 1)
    rows -= rows.mean(0)
    directions = torch.eye(D)[[0, 10, D - 1]] + 0.1 * torch.randn(3, D, generator=DRAWN)
    drawn = SameVariance(rows, directions).draw(torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(3))
    units = directions / directions.norm(dim=1, keepdim=True)
    torch.testing.assert_close((rows @ drawn.T).square().mean(0), (rows @ units.T).square().mean(0), rtol=1e-3, atol=0)
    assert (drawn * units).sum(1).abs().max() < 0.9


def test_directions_that_are_random_score_as_random_ones_do():
    bank = ConceptBank.random(L, D, seed=5)

    def discover(rows, seed):
        return torch.randn(L, D, generator=torch.Generator().manual_seed(1000 * seed + len(rows) + int(rows.sum())))

    table = score_discovered(nn.Identity(), bank, IMAGES, discover=discover, n_splits=2)
    for metric in ("stability over halves", "stability over seeds"):
        assert row(table, metric)["value"] < 0.5
    assert beats(table, "explained variance", "random directions") == 0
    assert row(table, "explained variance", "random directions")["value"] == pytest.approx(L / D, abs=0.03)


def test_the_table_has_the_numbers_of_the_functions(bank):
    head = linear(torch.randn(K, D, generator=DRAWN))
    asked: list[Tensor] = []

    def discover(rows, seed):
        asked.append(rows)
        return rows[:L]

    labels = head(IMAGES.mean((2, 3))).argmax(1)
    labels[::5] = (labels[::5] + 1) % K
    table = score_discovered(nn.Identity(), bank, IMAGES, head, labels=labels, discover=discover, n_splits=1)
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
    # Without everything an embedding is the mean.
    total = (before - centred(embeddings.mean(0).expand_as(embeddings))[1]).mean()
    assert row(table, "logit drop without everything")["value"] == pytest.approx(total.item(), abs=1e-6)
    for count, rows in zip((0, 1, 2, 4), delete_concepts(embeddings, bank.cavs, order, (0, 1, 2, 4)), strict=True):
        kept, logits = centred(rows)
        assert row(table, "predictions kept after deletion", l=count)["value"] == pytest.approx(kept)
        drop = row(table, "share of the logit drop", l=count)["value"]
        assert drop == pytest.approx((before - logits).mean().item() / total.item(), rel=1e-4, abs=1e-5)
    values = torch.linalg.lstsq(bank.cavs.T, embeddings.T).solution.T
    weights = head.weight.detach()
    errors = surrogate_fidelity(head(embeddings).detach(), values, weights @ bank.cavs.T, head.bias.detach())
    for name, error in zip(("logits", "probabilities"), errors, strict=True):
        assert row(table, f"surrogate error of the {name}")["value"] == pytest.approx(error.mean().item(), rel=1e-4)
    # With true labels the prediction that is kept is the accuracy.
    accuracy = (head(embeddings).argmax(1) == labels).double().mean().item()
    assert row(table, "predictions kept after deletion", l=0)["value"] == pytest.approx(accuracy)


def test_monosemanticity_in_the_features_of_another_network(bank):
    # To the other network the images of a concept are alike, and those of different ones are not.
    others = torch.eye(L)[SHOWN] + 0.1 * torch.randn(N, L, generator=DRAWN)
    mixed = ConceptBank(torch.cat([PLANTED, PLANTED.sum(0, keepdim=True)]), settings={"method": "text"})
    # What all places share makes their activations no concepts.
    images = IMAGES + 3 * torch.rand(D, 1, 1, generator=DRAWN)
    table = score_discovered(nn.Identity(), mixed, images, embeddings=others, n_splits=1)
    expected = monosemanticity(images.mean((2, 3)) @ nn.functional.normalize(mixed.cavs, dim=1).T, others)
    rows = [row(table, "monosemanticity", item=name) for name in mixed.names]
    assert [found["value"] for found in rows] == pytest.approx(expected.tolist(), abs=1e-5)
    assert [found["verdict"] for found in rows] == ["above"] * L + ["not shown"]
    assert row(table, "monosemanticity")["value"] == pytest.approx(expected.mean().item(), abs=1e-5)
    chance = row(table, "monosemanticity")["chance"]
    assert chance == pytest.approx(mean_likeness(others))
    for name in ("random directions", "random activations"):
        assert row(table, "monosemanticity", name)["n"] == 39
        assert row(table, "monosemanticity", name, item="best concept")["high"] < min(expected[:L])
    # Any direction of features that know the clusters is above chance, and far below the concepts.
    assert chance < row(table, "monosemanticity", "random directions")["value"] < 0.6 < min(expected[:L])
    with pytest.raises(ValueError, match="`embeddings`"):
        score_discovered(nn.Identity(), bank, IMAGES, embeddings=others[1:])


def test_networks_without_a_relu():
    # The same concepts, turned so that activations have both signs.
    turn = torch.linalg.qr(torch.randn(D, D, generator=DRAWN)).Q
    images = torch.einsum("ndhw,de->nehw", IMAGES, turn)
    with pytest.warns(UserWarning, match="clusters"):
        bank = ConceptBank.from_activations(nn.Identity(), images, L)
    table = score_discovered(nn.Identity(), bank, images, linear(PLANTED @ turn), n_splits=2)
    for metric in ("stability over halves", "stability over seeds"):
        assert row(table, metric)["value"] > 0.9
        assert beats(table, metric, "random directions") == 1
    assert row(table, "explained variance")["value"] > 0.7
    assert beats(table, "explained variance", "random directions") == 1
    assert row(table, "predictions kept after deletion", l=1)["value"] < 0.1
    assert beats(table, "share of the logit drop", "random order", l=1) == 1


@pytest.mark.parametrize("family", ["efficientnet_b0", "vit_b_32"])
def test_the_structure_of_torchvision_networks_without_a_relu(family):
    torch.manual_seed(0)
    settings = {"image_size": 64} if family == "vit_b_32" else {}
    network = getattr(torchvision.models, family)(num_classes=5, **settings).eval()
    images = torch.rand(6, 3, 64, 64, generator=DRAWN)
    with pytest.warns(UserWarning, match="clusters"):
        bank = ConceptBank.from_activations(from_torchvision(network), images, 3)
    table = score_discovered(from_torchvision(network), bank, images, n_splits=1, n_banks=2)
    assert np.isfinite(table[table["metric"].str.startswith(("stability", "explained"))]["value"]).all()


def test_undefined_with_a_reason(bank):
    words = ConceptBank(bank.cavs, settings={"method": "text"})
    table = score_discovered(nn.Identity(), words, IMAGES, n_banks=2)
    undefined = table[table["value"].isna()]
    assert undefined.groupby("reason")["metric"].unique().map(list).to_dict() == {
        "how the bank was discovered is not known: pass `discover`": ["stability over halves", "stability over seeds"],
        "no `head` was given": [
            "predictions kept",
            "surrogate error of the logits",
            "surrogate error of the probabilities",
            "logit drop without everything",
            "predictions kept after deletion",
            "share of the logit drop",
        ],
    }
    same = IMAGES[:1].mean((2, 3), keepdim=True).expand(5, -1, -1, -1)
    for metric, images, reason in (
        ("explained variance", same, "the activations do not vary"),
        ("stability over halves", IMAGES[:1], "there are no two halves of one image"),
        ("stability over halves", IMAGES[:2, :, :1, :1], "a half of the images has fewer places"),
    ):
        table = score_discovered(nn.Identity(), words if images is same else bank, images, n_banks=2)
        assert row(table, metric)["reason"].startswith(reason)
    # A concept that is nowhere the strongest.
    weak = ConceptBank(torch.cat([PLANTED, -PLANTED.sum(0, keepdim=True)]))
    table = score_discovered(nn.Identity(), weak, IMAGES, linear(PLANTED), n_banks=2)
    nowhere = row(table, "share of the logit drop", item="concept 4")
    assert (nowhere["n"], nowhere["reason"]) == (0, "it is the strongest concept of no image")


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        ("cavs", {"bank": ConceptBank(torch.eye(3))}),
        ("labels", {"head": linear(PLANTED), "labels": [0, 1]}),
        ("labels", {"head": linear(PLANTED), "labels": [K + 1] * N}),
        ("images", {"images": IMAGES * torch.nan}),
        ("`head` .* behind `backbone` .* RuntimeError", {"head": nn.Conv2d(3, 2, 1)}),
    ],
)
def test_wrong_input_is_refused(message, changed, bank):
    with pytest.raises(ValueError, match=message):
        score_discovered(nn.Identity(), **{"bank": bank, "images": IMAGES, "n_splits": 1, "n_banks": 1} | changed)


def test_plot(table, bank, tmp_path):
    figure, axes = plot_discovered(table)
    assert [len(panel.lines) for panel in axes[2:]] == [4, 4]
    line = axes[3].lines[0]
    points = [line for line in axes[1].lines if line.get_marker() == "o"]
    kept = [line.get_markerfacecolor() != "white" for line in points]
    assert kept == verdicts(table)["keep"].tolist()
    np.testing.assert_allclose(line.get_ydata()[1], row(table, "share of the logit drop", l=1)["value"])
    figure.savefig(tmp_path / "discovered.png", dpi=30)
    without_head = score_discovered(nn.Identity(), bank, IMAGES, n_splits=1, n_banks=1)
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
