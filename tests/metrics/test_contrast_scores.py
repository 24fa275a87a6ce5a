"""`score_contrasts` against the metric classes through stock Quantus, by hand, and with methods that fail."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pandas as pd
import pytest
import quantus
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from captum_concepts import build_method
from quantus_concepts import IDR, IIR, MCS, Subject, score_contrasts, score_relative, summarise
from quantus_concepts.functional import idr, iir, mcs, perturbation, relative_contrast
from quantus_concepts.metrics import attribute_regions
from quantus_concepts.metrics.contrast.pairs import Regions, exclusion_reasons, score_pair
from quantus_concepts.metrics.contrast.scores import contrast_table, first_reasons, random_regions
from reference import attribution as reference
from untouched import untouched

N, SIZE, N_CLASSES = 24, 12, 3
THRESHOLD = 0.3


def network(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pooled = nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return nn.Sequential(*pooled, nn.Linear(6, N_CLASSES)).eval()


class World:
    """Objects as squares of noise in noise, three models, and labels that each gets partly right."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.bare = torch.rand(N, 3, SIZE, SIZE, generator=generator)
        self.masks = torch.zeros(N, 1, SIZE, SIZE, dtype=torch.bool)
        for i, mask in enumerate(self.masks):
            mask[:, 1 + i % 4 : 7 + i % 4, 2 + i % 5 : 7 + i % 5] = True
        noise = torch.rand(N, 3, SIZE, SIZE, generator=generator)
        self.full = torch.where(self.masks, noise, self.bare)
        # Weak patches for most images, and strong ones that no model overlooks.
        strength = torch.where(torch.arange(N) % 4 == 0, 1.0, 0.02).view(-1, 1, 1, 1)
        self.patched = torch.where(self.masks, self.bare + strength * (noise - self.bare), self.bare)
        self.f_o, self.f_s, self.f_0 = (network(seed) for seed in range(3))
        self.objects = self._labels(self.f_o, self.full, every=3)
        self.scenes = self._labels(self.f_s, self.full, every=5)
        self.plain = self._labels(self.f_0, self.bare, every=7)
        scene = Subject(self.f_s, self.full, self.scenes)
        self.pairs = {
            "mcs": (Subject(self.f_o, self.full, self.objects), scene),
            "idr": (scene, Subject(self.f_s, self.bare, self.scenes)),
            "iir": (Subject(self.f_0, self.bare, self.plain), Subject(self.f_0, self.patched, self.plain)),
        }

    def _labels(self, model: nn.Module, images: Tensor, every: int) -> Tensor:
        with torch.no_grad():
            answers = model(images).argmax(1)
        return torch.where(torch.arange(N) % every == 0, (answers + 1) % N_CLASSES, answers)


@pytest.fixture(scope="module")
def world():
    return World()


def nothing_or_nan(model, inputs, targets, **kwargs):
    """Maps of which some are zero, and some not finite."""
    maps, kinds = inputs.copy(), (1000 * inputs[:, 0, 0, 0]).astype(int) % 5
    maps[kinds == 0], maps[kinds == 1, 0, 0, 0] = 0, np.nan
    return maps


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("name", ["vanilla gradient", "nothing or NaN"])
def test_each_column_is_what_the_metric_gives_in_stock_quantus(world, name, normalise):
    method = nothing_or_nan if name == "nothing or NaN" else build_method(name)
    regions = world.masks.clone()
    regions[1], regions[2] = False, True
    # One batch, as Quantus explains: sums of floats depend on it.
    settings = {"threshold": THRESHOLD, "seed": 3, "batch_size": N, "normalise": normalise}
    table = score_contrasts({name: method}, regions, **world.pairs, **settings).set_index("metric")
    images = score_contrasts({name: method}, regions, **world.pairs, **settings, per_image=True)
    full, bare, patched, masks = (array.numpy() for array in (world.full, world.bare, world.patched, regions))
    moved = random_regions(regions, N, 3)(list(range(N))).numpy()
    contrast = {"contrast_model": world.f_s, "contrast_labels": world.scenes}
    of = {} if normalise else MCS.printed
    calls = {
        "MCS": (MCS(**contrast, **of), world.f_o, full, world.objects),
        "MCS baseline": (MCS(**contrast, masks=moved, **of), world.f_o, full, world.objects),
        "IDR": (IDR(bare, **of), world.f_s, full, world.scenes),
        "IIR": (IIR(patched, threshold=THRESHOLD, **of), world.f_0, bare, world.plain),
        "perturbation": (IIR(patched, average=True, **of), world.f_0, bare, world.plain),
    }
    assert list(table.index) == list(calls)
    for metric, (scorer, model, x_batch, labels) in calls.items():
        call = {"x_batch": x_batch, "y_batch": labels.numpy(), "s_batch": masks, "explain_func_kwargs": {}}
        results = quantus.evaluate({metric: scorer}, {name: method}, model, **call)
        settings = summarise({name: {metric: results[name][metric]}}, {metric: scorer}).iloc[0]
        ours = images[images["metric"] == metric]["score"].to_numpy()
        # To the bit.
        np.testing.assert_array_equal(ours, results[name][metric])
        # Some images are wrong, and some are right, or nothing is tested.
        assert 0 < np.isnan(ours).sum() < N - 5
        given = images.loc[images["metric"] == metric, "reason"]
        assert ((given != "") == np.isnan(ours)).all()
        assert set(given.iloc[1:3]) == {"masks are empty or full"}
        row = table.loc[metric]
        # An interval of `perturbation` may reach beyond 1, where that of the class is cut.
        same = ["value", "low", "n", "undefined"] + ["high"] * (metric != "perturbation")
        pd.testing.assert_series_equal(row[same], settings[same], check_exact=True, check_names=False)
        assert row["chance"] == settings["chance"] or (np.isnan(row["chance"]) and metric.startswith(("I", "p", "M")))
    assert table.loc["MCS", "control"] == table.loc["MCS baseline", "value"]
    assert np.isnan(table.loc["IDR", "control"])


def regions(*values: float) -> Regions:
    return Regions(torch.tensor(values).double(), np.full(len(values), "", dtype=object))


def test_by_hand():
    pairs = {
        "MCS": (mcs, regions(0.8, 0.6, 0.9), regions(0.2, 0.4, 0.1), ["", "", "wrong"]),
        "MCS baseline": (mcs, regions(0.4, 0.3, 0.45), regions(0.1, 0.2, 0.05), ["", "", "wrong"]),
        "IDR": (idr, regions(0.2, 0.4, 0.1), regions(0.3, 0.4, 0.0), ["", "", ""]),
        "IIR": (iir, regions(0.5, 0.0, 0.4, 1.0), regions(0.52, 0.3, 0.2, 1.0), ["", "", "", "seen"]),
        "perturbation": (perturbation, regions(0.5, 0.0, 0.4, 1.0), regions(0.52, 0.3, 0.2, 1.0), ["", "", "", "seen"]),
    }
    parts = []
    for metric, (compare, first, second, why) in pairs.items():
        scores, reasons = score_pair(compare, first, second, np.array(why, object), "nothing there")
        columns = {"method": "m", "metric": metric, "score": scores, "reason": first_reasons(reasons)}
        parts.append(pd.DataFrame(columns))
    table = contrast_table(pd.concat(parts), unconverged=1).set_index("metric")
    assert table["value"].tolist() == pytest.approx([0.4, 0.2, 1 / 3, 0.5, (0.04 + 0.5) / 2])
    assert table.loc["MCS", "control"] == pytest.approx(0.2)
    assert table["n"].tolist() == [2, 2, 3, 2, 2]
    assert table["undefined"].tolist() == [1, 1, 0, 2, 2]
    assert table["unconverged"].tolist() == [0, 0, 0, 1, 1]
    assert table.loc["MCS", "reason"] == "wrong (1)"
    assert table.loc["IIR", "reason"] == "the explanation method failed: nothing there (1); seen (1)"


def test_an_image_is_left_out_for_the_first_condition_that_it_does_not_meet():
    unmarked = np.array(["no mask", "", "", ""], object)
    first, second = np.array([False, False, False, True]), np.array([False, False, True, True])
    why = exclusion_reasons(unmarked, ("first", first), ("second", second))
    assert why.tolist() == ["no mask", "first", "first", ""]
    assert exclusion_reasons(unmarked, ("second", second)).tolist() == ["no mask", "second", "", ""]


def test_relative_mcs_is_the_contrast_with_the_last_model(world):
    models = {0.5: world.f_o, 0.25: world.f_0, 1.0: world.f_s}
    method = build_method("vanilla gradient")
    table = score_relative(
        {"gradient": method}, world.masks, models, world.full, world.bare, world.scenes, batch_size=8
    )
    scores = []
    for k in (0.25, 0.5):
        scorer = MCS(world.f_s, world.scenes, disable_warnings=True)
        arguments = {"s_batch": world.masks.numpy(), "explain_func": method, "batch_size": 8}
        scores.append(scorer(models[k], world.full.numpy(), world.scenes.numpy(), **arguments))
    right = [
        torch.stack([Subject(models[k], images, world.scenes).correct() for k in (0.25, 0.5)])
        for images in (world.full, world.bare)
    ]
    expected = relative_contrast(torch.tensor(scores, dtype=torch.float64), *right)
    curve = table[table["metric"] == "relative MCS"]
    assert curve["k"].tolist() == [0.25, 0.5]
    np.testing.assert_array_equal(curve[["value", "low", "high"]].to_numpy().T, torch.stack(list(expected.score)))
    np.testing.assert_array_equal(curve["n"], (~np.isnan(scores)).sum(1))
    counted = curve["reason"].str.findall(r"\((\d+)\)").map(lambda counts: sum(map(int, counts)))
    np.testing.assert_array_equal(counted, curve["undefined"])
    correlation = table[table["metric"] == "correlation"][["value", "low", "high"]].to_numpy()[0]
    np.testing.assert_array_equal(correlation, np.array(expected.correlation))
    drop = table[table["metric"] == "accuracy drop"].set_index("k")["value"]
    assert drop[0.25] == pytest.approx(expected.drop.value[0].item(), abs=1e-12)
    assert len(drop) == 3


def test_relative_mcs_leaves_out_an_image_without_a_region_and_a_broken_map(world):
    masks, broken = world.masks.clone(), 5
    masks[3], masks[4] = False, True

    def gives_one_nan(model, inputs, targets):
        maps = inputs.copy()
        maps[np.all(inputs == world.full[broken].numpy(), axis=(1, 2, 3)), 0, 0, 0] = np.nan
        return maps

    models, labels = {0.5: world.f_s, 1.0: world.f_s}, Subject(world.f_s, world.full, world.scenes).logits().argmax(1)
    table = score_relative(
        {"m": gives_one_nan}, lambda rows: masks[rows], models, world.full, world.bare, labels, batch_size=7
    )
    row = table[table["metric"] == "relative MCS"].iloc[0]
    assert (row["n"], row["undefined"]) == (N - 3, 3)
    failed = "the explanation method failed: attributions hold NaN or infinity (1)"
    assert row["reason"] == f"masks are empty or full (2); {failed}"


@pytest.mark.parametrize(
    ("levels", "model", "reason"),
    [
        ((0.5,), "f_0", "two k besides the largest"),
        ((0.25, 0.5), "f_0", "the accuracy drop is the same at every k"),
        ((0.25, 0.5), "f_o", "no image has a score at k = 0.25, 0.5"),
    ],
)
def test_an_undefined_correlation_has_a_reason(world, levels, model, reason):
    models = dict.fromkeys(levels, getattr(world, model)) | {1.0: world.f_s}
    methods = {"edges": build_method("Sobel edges")}
    table = score_relative(methods, world.masks, models, world.full, world.bare, world.scenes).set_index("metric")
    assert np.isnan(table.loc["correlation", "value"])
    assert reason in table.loc["correlation", "reason"]


BAD_ARGUMENTS = {
    "no pair": ({}, "at least one of arguments `mcs`, `idr` and `iir`"),
    "lengths": ({"mcs": "short"}, "`mcs` to show the same images but they have 24 and 3"),
    "two models": ({"idr": "mcs"}, "`idr` to be of one model but got two"),
    "masks": ({"mcs": "mcs", "masks": torch.eye(SIZE).expand(3, SIZE, SIZE)}, "a mask for each of 24 images but got 3"),
}


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_wrong_arguments_raise(world, changes, message):
    pairs = {**world.pairs, "short": (world.pairs["mcs"][0], Subject(world.f_s, world.full[:3], world.scenes[:3]))}
    changes = {key: pairs[value] if isinstance(value, str) else value for key, value in changes.items()}
    with pytest.raises(ValueError, match=re.escape(message)):
        score_contrasts({"pixels": pixels}, changes.pop("masks", world.masks), **changes)


def test_wrong_subjects_masks_and_models_raise(world):
    with pytest.raises(ValueError, match="a class for each image"):
        Subject(world.f_o, world.full, world.objects[:2])
    with pytest.raises(ValueError, match="`labels` to hold the class of at least one image"):
        Subject(world.f_o, [world.full[:0]], world.objects[:0])
    with pytest.raises(ValueError, match="all 24 masks are empty"):
        score_contrasts({"pixels": pixels}, torch.zeros_like(world.masks), mcs=world.pairs["mcs"])
    with pytest.raises(ValueError, match="two models"):
        score_relative({"a": np.ones_like}, world.masks, {1.0: world.f_o}, world.full, world.bare, world.scenes)


def test_the_baseline_does_not_depend_on_the_batch(world):
    masks = world.masks
    moved = random_regions(masks, N, 5)
    with untouched(masks):
        together = moved(list(range(N)))
    for rows in ([7, 3, 0], list(range(10, 20))):
        assert torch.equal(moved(rows), together[rows])
    assert torch.equal(together.sum((1, 2, 3)), masks.sum((1, 2, 3)))
    assert (together != masks).any((1, 2, 3)).float().mean() > 0.8
    assert not torch.equal(random_regions(masks, N, 6)(list(range(N))), together)


# What every score rests on: each subject's explanations, reduced to the attribution of a region.


class Images:
    """Noise, and the sizes of the requested batches."""

    def __init__(self, seed: int = 0, as_float: bool = False) -> None:
        self.pixels = torch.randint(0, 256, (7, 3, SIZE, SIZE), generator=torch.Generator().manual_seed(seed)).byte()
        self.as_float = as_float
        self.batch_sizes: list[int] = []

    def __call__(self, rows: list[int]) -> Tensor:
        self.batch_sizes.append(len(rows))
        return self.pixels[rows] / 255 if self.as_float else self.pixels[rows]


def masks(rows: list[int]) -> Tensor:
    """Row i is marked from its top to line i + 1."""
    lines = torch.arange(SIZE)[None, None, :, None].expand(len(rows), 1, SIZE, SIZE)
    return lines <= torch.tensor(rows).view(-1, 1, 1, 1)


def elsewhere(rows: list[int]) -> Tensor:
    return ~masks(rows)


def subjects(*images: Images) -> list[Subject]:
    return [Subject(network(place), source, torch.arange(7) % N_CLASSES) for place, source in enumerate(images)]


def pixels(model, inputs, targets, **kwargs):
    """An explanation that is known: the image itself, less the class's share."""
    return inputs - 0.2 * np.asarray(targets)[:, None, None, None]


def expected_inside(images: Images, regions: Tensor) -> np.ndarray:
    raw = images.pixels.double().numpy() / 255 - 0.2 * (np.arange(7) % N_CLASSES)[:, None, None, None]
    return reference.concept_attribution(reference.positive_percentile(raw), regions.numpy())


@pytest.mark.parametrize("channels", [True, False])
def test_a_raw_map_that_is_kept_is_the_positive_part_of_all_channels(channels):
    (only,) = subjects(Images(0))[:1]
    raw = np.full((7, 3, SIZE, SIZE), -1.0)
    raw[:, 0], raw[:, 1, 0] = 2, 5

    def method(model, inputs, targets):
        return raw[: len(inputs)] if channels else raw[: len(inputs), 1]

    kept = attribute_regions({"m": method}, [only], masks, keep={only: [3]}, normalise=False)["m"].maps[only]
    expected = np.zeros((1, SIZE, SIZE)) + 2 * channels
    expected[:, 0] += 5
    np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize("batch_size", [3, 100])
def test_each_subject_is_reduced_to_the_attribution_of_its_regions(batch_size):
    both = Images(0), Images(1, as_float=True)
    first, second = subjects(*both)
    attributions = attribute_regions(
        {"pixels": pixels, "again": pixels},
        [first, second, first],
        masks,
        elsewhere={first: elsewhere},
        keep={second: [5, 2]},
        batch_size=batch_size,
    )["pixels"]
    every = list(range(7))
    np.testing.assert_allclose(attributions.inside[first], expected_inside(both[0], masks(every)), atol=1e-6)
    np.testing.assert_allclose(attributions.inside[second], expected_inside(both[1], masks(every)), atol=1e-6)
    np.testing.assert_allclose(attributions.elsewhere[first], expected_inside(both[0], elsewhere(every)), atol=1e-6)
    assert set(attributions.elsewhere) == {first}
    assert attributions.failure == ""
    # Only the requested maps, in the requested order.
    assert {subject: maps.shape for subject, maps in attributions.maps.items()} == {second: (2, SIZE, SIZE)}
    raw = both[1].pixels[[5, 2]].double().numpy() / 255 - 0.2 * np.array([2, 2])[:, None, None, None]
    np.testing.assert_allclose(attributions.maps[second], reference.positive_percentile(raw)[:, 0], atol=1e-6)
    # Memory: never more than a batch, and each image once however many methods there are.
    assert max(both[0].batch_sizes) <= batch_size
    assert sum(both[0].batch_sizes) == 7


def test_a_method_that_fails_is_not_called_again_and_leaves_the_others_alone():
    images = Images(0), Images(1)
    first, second = subjects(*images)
    batch_sizes = []

    def fails_on_the_second_subject(model, inputs, targets):
        batch_sizes.append(len(inputs))
        if model is second.model:
            raise RuntimeError("out\nof   luck")
        return inputs

    methods = {
        "good": pixels,
        "bad": fails_on_the_second_subject,
        "another size": lambda model, inputs, targets: inputs[:, :, 1:],
        "last": pixels,
    }
    attributions = attribute_regions(
        methods, [first, second], masks, elsewhere={second: elsewhere}, keep={first: [0]}, batch_size=3
    )
    assert list(attributions) == list(methods)
    assert batch_sizes == [3, 3, 1, 3]
    assert "RuntimeError: out of luck" in attributions["bad"].failure
    assert "shape (1, 11, 12), expected a map" in attributions["another size"].failure
    for name in ("bad", "another size"):
        bad = attributions[name]
        assert bad.maps == {}
        for values in (bad.inside[first], bad.inside[second], bad.elsewhere[second]):
            assert values.shape == (7,)
            assert values.isnan().all()
    for name in ("good", "last"):
        assert attributions[name].failure == ""
        expected = expected_inside(images[1], masks(list(range(7))))
        np.testing.assert_allclose(attributions[name].inside[second], expected, atol=1e-6)
    table = score_contrasts({"bad": fails_on_the_second_subject}, masks, mcs=(first, second), batch_size=3)
    assert table["value"].isna().all()
    assert table["n"].tolist() == [0, 0]


def test_methods_cannot_disturb_each_other():
    def rude(model, inputs, targets):
        model.train()
        maps = inputs.copy()
        inputs[:] = 0
        targets[:] = 0
        return maps

    images = Images(as_float=True)
    only = subjects(images)
    attributions = attribute_regions({"rude": rude, "pixels": pixels}, only, masks, batch_size=3)
    np.testing.assert_allclose(
        attributions["pixels"].inside[only[0]], expected_inside(images, masks(list(range(7)))), atol=1e-6
    )
    assert not only[0].model.training


def test_subjects_of_batches_score_as_those_of_arrays(world):
    """A loader, lists of tensors, and lists of samples that begin with the image."""
    subjects = {id(subject): subject for pair in world.pairs.values() for subject in pair}
    forms = [
        lambda images, labels: DataLoader(TensorDataset(images, labels), 4),
        lambda images, labels: images.split(4),
        lambda images, labels: [(part.numpy(), None) for part in images.split(4)],
    ]
    streamed = {
        key: Subject(subject.model, form(subject.images, subject.labels), subject.labels)
        for (key, subject), form in zip(subjects.items(), itertools.cycle(forms), strict=False)
    }
    pairs = {name: tuple(streamed[id(subject)] for subject in pair) for name, pair in world.pairs.items()}
    methods = {"gradient": build_method("vanilla gradient")}
    expected = score_contrasts(methods, world.masks, **world.pairs, batch_size=4)
    pd.testing.assert_frame_equal(score_contrasts(methods, world.masks, **pairs), expected)
    models = {0.5: world.f_o, 1.0: world.f_s}
    expected = score_relative(methods, world.masks, models, world.full, world.bare, world.scenes, batch_size=4)
    parts = (world.full.split(4), DataLoader(world.bare, 4))
    pd.testing.assert_frame_equal(score_relative(methods, world.masks, models, *parts, world.scenes), expected)
