"""Pictures of what a concept model says: the numbers behind them, one scale, and what is written."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import (
    Backbone,
    BottleneckCBM,
    ConceptBank,
    LayerFeatures,
    PostHocCBM,
    ResidualCBM,
    plot_contributions,
    show_concepts,
    show_top_images,
)
from captum_concepts.pictures.views import concept_views
from tiny_models import TinyConceptModel, seeded
from untouched import untouched

IMAGES = torch.rand(5, 3, 12, 12, generator=torch.Generator().manual_seed(1))
NAMES = ["red | wing", "$long$ tail", "<b>"]


def network() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Conv2d(3, 4, 3, stride=3), nn.ReLU()).eval())


def linear(*sizes: int) -> nn.Linear:
    return seeded(nn.Linear(*sizes).eval(), sum(sizes))


def cbm(values: str = "margin") -> PostHocCBM:
    bank = ConceptBank.random(3, 4, NAMES, seed=2, mean=torch.full((4,), 0.2))
    return PostHocCBM(network(), ConceptBank(2 * bank.cavs, bank.intercepts, NAMES), linear(3, 2), values)


MODELS = {
    "margin": cbm(),
    "raw": cbm("raw"),
    "bottleneck": BottleneckCBM(network(), linear(4, 3), linear(3, 2), activation=None),
    "sigmoid": BottleneckCBM(network(), linear(4, 3), linear(3, 2)),
    "residual": ResidualCBM(cbm(), linear(4, 2)),
    "layers": PostHocCBM(network(), cbm().bank, nn.Sequential(linear(3, 6), nn.Tanh(), linear(6, 2)).eval()),
    "any": TinyConceptModel(),
}


@pytest.mark.parametrize("kind", MODELS)
def test_views_are_what_the_model_gives(kind: str) -> None:
    model = MODELS[kind]
    with untouched(model):
        views = concept_views(model, IMAGES, batch_size=2)
    with torch.no_grad():
        values = model.concept_predictor(IMAGES)
        assert torch.allclose(views.values, values, atol=1e-6)
        assert torch.allclose(views.logits, model(IMAGES), atol=1e-6)
        assert torch.allclose(views.residual, model(IMAGES) - model.head(values), atol=1e-6)
        maps = model.concept_maps(IMAGES)
    # However they are scaled, they are the model's maps.
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(views.maps[0].flatten(1), maps[0].flatten(1), strict=True)]
    assert np.allclose(correlation, 1)
    if kind in ("margin", "raw", "bottleneck", "residual"):
        assert torch.allclose(views.maps.mean((2, 3)), views.values, atol=1e-5)
        # Contributions, bias and residual make the logit.
        chosen = views.predicted
        bias = model.head.bias.detach()[chosen] + views.residual.gather(1, chosen[:, None])[:, 0]
        assert torch.allclose(views.contributions.sum(1) + bias, views.logits.amax(1), atol=1e-5)
        assert torch.equal(views.totals("contribution"), views.logits.amax(1))


def test_effects_are_shown_where_the_level_is_known() -> None:
    model = cbm()
    with pytest.raises(ValueError, match=r"`by` to be 'contribution', .* but got 'effect'. Set `model.absent_values`"):
        show_concepts(model, IMAGES, by="effect")
    assert concept_views(model, IMAGES).kind == "contribution"
    model.absent_values = torch.tensor([0.1, -0.2, 0.3])
    views = concept_views(model, IMAGES)
    theta = model.head.weight.detach()
    expected = (theta - theta.mean(0))[views.predicted] * (views.values - model.absent_values)
    torch.testing.assert_close(views.parts, expected)
    # What is left is what the head says where all concepts are absent.
    logits = model.head(model.absent_values).detach()
    at_level = (logits - logits.mean())[views.predicted]
    torch.testing.assert_close(views.totals("effect"), expected.sum(1) + at_level)
    _, axes = show_concepts(model, IMAGES, 3)
    texts = [label.get_text() for label in axes[0, -1].get_yticklabels()]
    assert texts[-2].startswith("at the absent level")
    assert texts[-1].startswith("logit less the mean")
    _, axes = show_concepts(model, IMAGES, 3, by="contribution")
    texts = [label.get_text() for label in axes[0, -1].get_yticklabels()]
    assert [text.split("  ")[0] for text in texts[-2:]] == ["bias", "logit"]


def test_a_figure_says_class_concepts_and_values() -> None:
    model = cbm()
    model.class_names = ["finch", "wren"]
    labels = torch.ones(5, 3, dtype=torch.int64)
    _, axes = show_concepts(model, IMAGES, 2, concept_labels=labels, labels=torch.zeros(5, dtype=torch.int64))
    assert axes.shape == (5, 4)
    views = concept_views(model, IMAGES)
    for i, row in enumerate(axes):
        strongest = views.contributions[i].abs().argsort(descending=True)[:2].tolist()
        title = row[0].get_title()
        wrong = views.predicted[i] == 1
        assert title.startswith("wren" if wrong else "finch")
        assert ("label: finch" in title) == bool(wrong)
        for ax, j in zip(row[1:], strongest, strict=False):
            value = views.values[i, j].item()
            assert ax.get_title().startswith("no " if value < 0 else "✓ ")
            assert f"{value:+.2f}".replace("-", "−") in ax.get_title()
        waterfall = [label.get_text() for label in row[-1].get_yticklabels()]
        assert waterfall[-1] == f"logit  {views.logits[i].max():+.2f}".replace("-", "−")
        assert len(waterfall) == 2 + 1 + 1 + 1


def test_a_weak_direction_is_grey_and_says_so() -> None:
    known = cbm().bank
    known.p_values = torch.tensor([0.01, 0.31, torch.nan])
    model = PostHocCBM(network(), known, linear(3, 2))
    _, axes = show_concepts(model, IMAGES, 3, concept_labels=torch.ones(5, 3, dtype=torch.int64))
    of_tail = [ax for ax in axes[:, 1:-1].flat if "$long$" in ax.get_title()]
    assert len(of_tail) == 5
    for ax in axes[:, 1:-1].flat:
        is_weak = ax in of_tail
        assert ("weak direction\n(p\u00a0=\u00a00.31)" in ax.get_title()) == is_weak
        assert (ax.title.get_color() == "#6e6e6e") == is_weak
    figure, _ = show_top_images(model, IMAGES, "$long$ tail", top=2)
    assert figure.get_suptitle() == "$long$ tail\nweak direction (p = 0.31)"


def test_all_maps_share_one_scale() -> None:
    # The same map twice as strong in the second image: alone each would be as bright.
    bank = ConceptBank(torch.ones(1, 1), names=["bright"])
    model = PostHocCBM(nn.Conv2d(3, 1, 1).eval(), bank, linear(1, 2))
    with torch.no_grad():
        model.features.weight.fill_(1 / 3)
        model.features.bias.zero_()
    base = torch.linspace(0, 0.5, 16).view(1, 1, 4, 4).expand(1, 3, -1, -1)
    _, axes = show_concepts(model, torch.cat([base, 2 * base]), 1)
    weak, strong = (ax.images[0].get_array() for ax in axes[:, 1])
    # Half of the scale gets a quarter of the opacity, 0.7 at most, and teal, not yellow.
    for picture, image, share, place in ((weak, 0.5, 0.175, 0.5), (strong, 1.0, 0.7, 1.0)):
        colour = np.array(mpl.colormaps["viridis"](place)[:3])
        assert np.allclose(picture[-1, -1], (1 - share) * image + share * colour, atol=0.02)


def test_one_hot_cell_does_not_set_the_scale() -> None:
    bank = ConceptBank(torch.ones(1, 1), names=["bright"])
    model = PostHocCBM(nn.Conv2d(3, 1, 1).eval(), bank, linear(1, 2))
    with torch.no_grad():
        model.features.weight.fill_(1 / 3)
        model.features.bias.zero_()
    striped = torch.zeros(1, 3, 12, 12)
    striped[..., ::2] = 0.2
    hot = torch.zeros(1, 3, 12, 12)
    hot[..., 3, 5], hot[..., 4, 4], hot[..., 0, 0] = 1.0, 0.2, 0.1
    figure, axes = show_concepts(model, torch.cat([striped, hot]), 1)
    picture = axes[0, 1].images[0].get_array()
    # The stripes have the highest colour: 72 + 2 of 75 coloured cells have .2, and one has 1.
    colour = np.array(mpl.colormaps["viridis"](1.0)[:3])
    assert np.allclose(picture[5, 4], 0.3 * 0.2 + 0.7 * colour, atol=0.02)
    assert not axes[0, 1].patches
    (frame,) = axes[1, 1].patches
    assert (frame.get_x(), frame.get_y(), frame.get_width()) == (4.5, 2.5, 1.0)
    (bar,) = (ax for ax in figure.axes if ax not in axes)
    assert bar.get_ylim()[1] == pytest.approx(0.2)


def test_text_in_svg_files_is_text(tmp_path: Path) -> None:
    figure, _ = plot_contributions([1.0], ["has_crown_color::red"], 1.0, present=[False])
    figure.savefig(tmp_path / "text.svg")
    assert ">crown color: red: no  +1.00</text>" in (tmp_path / "text.svg").read_text(encoding="utf-8")
    assert mpl.rcParams["svg.fonttype"] == "path"


def test_a_bank_on_any_model_and_on_a_backbone() -> None:
    model = nn.Sequential(network(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear(4, 7)).eval()
    bank = cbm().bank
    with untouched(model):
        _, axes = show_concepts(model, IMAGES, 2, layer="0", bank=bank)
    assert axes.shape == (5, 3)
    with torch.no_grad():
        values = PostHocCBM(LayerFeatures(model, "0"), bank, linear(3, 2)).concept_predictor(IMAGES)
    assert f"{values[0].max():+.2f}".replace("-", "−") in axes[0, 1].get_title()
    _, same = show_concepts(Backbone(model[0], "mean", None, 4), IMAGES[0], 2, bank=bank)
    assert [ax.get_title() for ax in same[0]] == [ax.get_title() for ax in axes[0]]
    with pytest.raises(ValueError, match="`bank` is missing"):
        show_concepts(model, IMAGES, layer="0")


def test_normalised_images_are_shown_as_they_were() -> None:
    numbers = (0.5, 0.4, 0.3), (0.2, 0.2, 0.2)
    mean, std = (torch.tensor(of_channels)[:, None, None] for of_channels in numbers)
    known, timms = cbm(), network()
    known.normalisation = numbers
    timms.pretrained_cfg = {"mean": numbers[0], "std": numbers[1]}
    backbone = Backbone(network(), "mean", None, 4, numbers)
    normalised, bank = (IMAGES - mean) / std, cbm().bank
    shown = [
        show_concepts(known, normalised)[1][0, 0],
        show_concepts(timms, normalised, layer="1", bank=bank)[1][0, 0],
        show_concepts(backbone, normalised, bank=bank)[1][0, 0],
    ]
    for ax in shown:
        assert np.allclose(ax.images[0].get_array(), IMAGES[0].permute(1, 2, 0), atol=1e-5)
    values = concept_views(known, normalised).values[:, 1]
    _, axes = show_top_images(known, normalised, "$long$ tail", top=3)
    order = values.argsort(descending=True)[:3].tolist()
    assert [ax.get_title().partition(":")[0] for ax in axes] == [f"image {i}" for i in order]


def test_a_waterfall_by_hand() -> None:
    _, ax = plot_contributions(Tensor([0.5, -2.0, 0.25]), ["a", "b", "c"], 1.0, top=1)
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    _, said = plot_contributions([0.5, -2.0], ["a", "b"], 1.0, present=[1, 0])
    assert [text.get_text() for text in said.get_yticklabels()][:2] == ["b: no  −2.00", "a: yes  +0.50"]
    with pytest.raises(ValueError, match=r"`present` to have shape \(L,\) = \(2,\)"):
        plot_contributions([0.5, -2.0], ["a", "b"], 1.0, present=[1])
    # b, the two others, the bias that is missing to 1, the logit.
    assert bars == [(0.0, -2.0), (-2.0, 0.75), (-1.25, 2.25), (0.0, 1.0)]


def test_concepts_by_name_custom_pictures_and_bad_arguments() -> None:
    pictures = (IMAGES * 255).to(torch.uint8)
    _, axes = show_concepts(cbm(), 5 * IMAGES - 2, concepts=["<b>"], pictures=pictures)
    assert axes.shape == (5, 3)
    assert "<b>" in axes[0, 1].get_title()
    with pytest.raises(ValueError, match="Undo the normalisation"):
        show_concepts(cbm(), 5 * IMAGES - 2)
    with pytest.raises(ValueError, match=r"`labels` to have shape \(N,\) = \(5,\)"):
        show_concepts(cbm(), IMAGES, labels=[0])
    with pytest.raises(ValueError, match=r"`concept_labels` to have shape \(N, L\) = \(5, 3\)"):
        show_concepts(cbm(), IMAGES, concept_labels=[[1]])
    with pytest.raises(ValueError, match="`by` to be one of"):
        show_concepts(cbm(), IMAGES, by="size")
    with pytest.raises(ValueError, match="`by` to be 'value'"):
        show_concepts(network(), IMAGES, layer="1", bank=cbm().bank, by="weight")
    with pytest.raises(ValueError, match="`class_names` to hold K = "):
        show_concepts(cbm(), IMAGES, class_names=["a"])
