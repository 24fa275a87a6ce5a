"""ConceptRegions: explanations with masks or boxes, images with a concept model, tables, and what knows nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from captum_concepts import ConceptBank, PostHocCBM
from quantus_concepts import (
    CLM,
    ConceptRegions,
    score_concepts,
)
from quantus_concepts.functional import RandomBank, region_scores
from refusals import refusals

N, SIZE, PARTS = 10, 12, np.array([0, 1, -1, 1])
DRAWN = torch.Generator().manual_seed(0)
#: Part 0 is a square whose place varies, part 1 a stripe at the bottom; each has an image without it.
MASKS = torch.zeros(N, 2, SIZE, SIZE, dtype=torch.bool)
for image in range(N):
    MASKS[image, 0, image % 4 : image % 4 + 3, 2:5] = image != 0
    MASKS[image, 1, 10:, :] = image != 1
CLASSES = torch.arange(N) % 2
REST = torch.rand(N, 2, SIZE, SIZE, generator=DRAWN)
#: Channels: the two parts, and noise.
IMAGES = torch.cat([MASKS.float(), REST], 1)
PREDICTOR = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


def model_of(cavs: Tensor) -> PostHocCBM:
    """Return a model whose first concept is the one with part 0 for class 0, and that with part 1 for class 1."""
    head = nn.Linear(4, 2)
    head.weight = nn.Parameter(torch.tensor([[9.0, 0, 0, 1], [0, 9.0, 0, 1]]))
    return PostHocCBM(nn.Identity(), ConceptBank(cavs.float()), head, values="raw").eval()


def of_images(model: PostHocCBM, score: str, classes: Tensor = CLASSES, **settings: Any) -> np.ndarray:
    metric = ConceptRegions(score, MASKS, PARTS, importance="weight", disable_warnings=True, **settings)
    return np.array(metric(model, IMAGES.numpy(), classes.numpy()))


#: The map of a concept is its part; is the same everywhere; is everything but its part.
BEST = torch.eye(4)
WORST = torch.diag(torch.tensor([-1.0, -1, 1, 1]))


class TestMaps:
    """Explanations of a concept predictor."""

    maps = np.repeat(np.arange(144, 0, -1, dtype=float).reshape(1, 1, 12, 12), 3, axis=0)

    def test_masks_of_the_call_by_hand(self) -> None:
        # The largest 24 pixels are the first two rows; of 144 values 0 to 143 those sum to 24 * 131.5.
        masks = np.zeros((3, 1, 12, 12))
        masks[0, 0, :2], masks[1, 0, 1:3] = 1, 1
        expected = {"iou": [1, 1 / 3], "energy": [24 * 131.5 / 10296, 24 * 119.5 / 10296], "hit": [1, 0]}
        for score, (first, second) in expected.items():
            metric = ConceptRegions(score, disable_warnings=True)
            found = metric(PREDICTOR, IMAGES[:3, :3].numpy(), np.arange(3), self.maps, s_batch=masks)
            assert found == pytest.approx([first, second, np.nan], nan_ok=True)
            assert metric.records[-1].chance == pytest.approx(24 / 144)
            assert [*metric.records[-1].reasons] == ["nothing is marked"]

    def test_boxes_and_masks_of_the_explained_concepts(self) -> None:
        boxes = np.array([[[0, 0, 12, 2], [0, 1, 12, 2]]] * 3, dtype=float)
        masks = np.zeros((3, 2, 12, 12))
        masks[:, 0, :2], masks[:, 1, 1:3] = 1, 1
        for regions in (boxes, masks):
            metric = ConceptRegions("iou", regions, [0, 1, -1], disable_warnings=True)
            found = metric(PREDICTOR, IMAGES[:3, :3].numpy(), np.arange(3), self.maps)
            assert found == pytest.approx([1, 1 / 3, np.nan], nan_ok=True)
            assert metric.records[-1].chance == pytest.approx(24 / 144)
            assert [*metric.records[-1].reasons] == ["the explained concept has no part"]
        # A box holds the pixels whose centres it holds.
        narrow = np.array([[[2.6, 0, 1.4, 1.0]]])
        metric = ConceptRegions("energy", narrow, [0])
        first = np.zeros((1, 1, 12, 12))
        first[0, 0, 0, 2:5] = 1, 3, 4
        assert metric(PREDICTOR, IMAGES[:1, :3].numpy(), [0], first) == [3 / 8]

    def test_a_map_that_is_the_same_everywhere(self) -> None:
        for score in ("iou", "energy", "hit"):
            metric = ConceptRegions(score, MASKS, PARTS)
            found = metric(PREDICTOR, IMAGES[2:, :3].numpy(), CLASSES[2:].numpy(), np.ones((N - 2, 1, 4, 4)), **ROWS)
            assert found == pytest.approx([9 / 144, 24 / 144] * 4)
            assert metric.records[-1].chance == pytest.approx(np.mean(found))


ROWS = {"custom_batch": {"regions": MASKS[2:]}}


class TestImages:
    """Images with a concept model."""

    def test_the_best_and_the_worst_model(self) -> None:
        for score in ("iou", "energy", "hit"):
            best, worst = of_images(model_of(BEST), score), of_images(model_of(WORST), score)
            # The part of the first concept is not visible in the first two images.
            assert np.isnan(best).nonzero()[0].tolist() == [0, 1]
            assert (best[2:] == 1).all()
            assert (worst[2:] == 0).all()

    def test_the_numbers_of_the_formula(self) -> None:
        mixed = torch.rand(4, 4, generator=DRAWN)
        model = model_of(mixed)
        maps = torch.einsum("ld,ndhw->nlhw", mixed, IMAGES)
        # By weight, of those with a part: 0, 3, 1 for class 0, and 1, 3, 0 for class 1.
        ranked = torch.tensor([[0, 3], [1, 3]])[CLASSES]
        parts = torch.as_tensor(PARTS)[ranked]
        for top in (1, 2):
            for place, score in enumerate(("iou", "energy", "hit")):
                of_concepts = [
                    region_scores(maps[torch.arange(N), ranked[:, k]], MASKS[torch.arange(N), parts[:, k]])[place]
                    for k in range(top)
                ]
                expected = torch.stack(of_concepts).nanmean(0)
                np.testing.assert_allclose(of_images(model, score, top_l=top), expected, rtol=1e-5)

    def test_a_map_that_names_nothing_is_not_praised(self) -> None:
        # Half of the images have no map at all: the mean is that of both, and coverage says how many there are.
        images = IMAGES[2:].clone()
        images[4:] = 0
        model, chance = model_of(BEST), MASKS[2:].float().mean((2, 3))[torch.arange(N - 2), CLASSES[2:]]
        for score in ("iou", "energy", "hit", "coverage"):
            metric = ConceptRegions(score, MASKS[2:], PARTS, importance="weight")
            found = np.array(metric(model, images.numpy(), CLASSES[2:].numpy()))
            expected = [0.0] * 4 if score == "coverage" else chance[4:].tolist()
            assert found[4:].tolist() == pytest.approx(expected)
            assert score == "coverage" or (found[:4] == 1).all()

    def test_coverage_of_random_directions_is_one_in_forty(self) -> None:
        # Maps of a direction that no channel has, and of random ones, as long as you like.
        features = torch.randn(200, 16, 5, 5, generator=DRAWN)
        regions, classes = torch.ones(200, 1, 5, 5, dtype=torch.bool), torch.zeros(200, dtype=torch.int64)
        covered = []
        for number in range(40):
            cavs = 7 * torch.randn(1, 16, generator=torch.Generator().manual_seed(100 + number))
            head = nn.Linear(1, 2)
            head.weight = nn.Parameter(torch.ones(2, 1))
            model = PostHocCBM(nn.Identity(), ConceptBank(cavs), head, values="raw").eval()
            metric = ConceptRegions("coverage", regions, [0], importance="weight")
            covered.append(np.mean(metric(model, features.numpy(), classes.numpy(), channel_first=True)))
            assert metric.records[-1].chance == 1 / 40
        assert np.mean(covered) == pytest.approx(1 / 40, abs=0.012)

    def test_undefined_is_counted_by_reason(self) -> None:
        with pytest.warns(UserWarning, match=r"no part of the first concepts is visible \(2 of 10 samples\)"):
            ConceptRegions(regions=MASKS, part_of_concept=PARTS, importance="weight")(
                model_of(BEST), IMAGES.numpy(), CLASSES.numpy()
            )


@pytest.fixture(scope="module")
def banks() -> list[RandomBank]:
    drawn = torch.Generator().manual_seed(5)
    head = model_of(BEST).head
    # Long ones: coverage is of directions of length 1.
    cavs = [30 * nn.functional.normalize(torch.randn(4, 4, generator=drawn), dim=1) for _ in range(5)]
    return [RandomBank(of_bank, torch.zeros(4), head) for of_bank in cavs]


METRIC = ConceptRegions("energy", MASKS, PARTS, importance="weight")
METRICS = [METRIC.vary(score=score) for score in ("iou", "energy", "hit")]
TRUTH = {"regions": MASKS, "part_of_concept": PARTS}


def rows_of(table: pd.DataFrame, baseline: str = "", model: str = "model") -> pd.DataFrame:
    return table[(table["model"] == model) & (table["baseline"] == baseline)].set_index("metric")


class Marked(Dataset):
    """Images whose data set knows masks of the object, on which all concepts are, and no points."""

    regions, part_of_concept = MASKS[:, 1:], torch.zeros(4, dtype=torch.int64)

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return IMAGES[index], CLASSES[index], torch.eye(4)[index % 4], torch.zeros(0, 1, 2)


def test_masks_of_the_data_set() -> None:
    model, metric = model_of(BEST), ConceptRegions("energy", importance="weight")
    model.mean_values = torch.zeros(4)
    bound = metric.vary(part_of_concept=np.zeros(4, int))
    expected = score_concepts(model, [(IMAGES, CLASSES)], [bound], truth={"regions": MASKS[:, 1:]})
    for rows in (range(N), range(4, N)):
        data = Subset(Marked(), rows)
        table = score_concepts(model, DataLoader(data, 3), [metric])
        if len(rows) == N:
            pd.testing.assert_frame_equal(table, expected)
        assert rows_of(table)["undefined"].tolist() == [int(1 in rows)] * 2
        # There are no points: of the usual metrics those of places are left out.
        every = score_concepts(model, DataLoader(data, 3), "all")
        assert {"energy inside", "CEM"} < {*every["metric"]}
        assert "CLM" not in {*every["metric"]}
        with pytest.raises(ValueError, match="CLM needs `points`"):
            score_concepts(model, DataLoader(data, 3), [CLM(part_of_concept=np.zeros(4, int))])


def test_in_a_table_with_baselines_and_random_banks(banks: list[RandomBank], tmp_path: Path) -> None:
    model, loader = model_of(torch.rand(4, 4, generator=DRAWN)), [(IMAGES, CLASSES)]
    table = score_concepts(model, loader, METRICS, controls=banks)
    own, predicted = rows_of(table), model(IMAGES).argmax(1)
    part, seen = predicted, MASKS.flatten(2).any(2)
    visible = seen[torch.arange(N), part]
    assert [*own.index] == ["region IoU", "coverage", "energy inside", "pointing game"]
    for name, score in (("region IoU", "iou"), ("energy inside", "energy"), ("coverage", "coverage")):
        scores = of_images(model, score, predicted)
        assert own["value"][name] == pytest.approx(np.nanmean(scores))
        assert (own["n"][name], own["undefined"][name]) == (visible.sum(), (~visible).sum())
    area = MASKS[torch.arange(N), part][visible].float().mean().item()
    assert own["chance"].tolist() == pytest.approx([area, 1 / 40, area, area])
    assert set(own["explanation"]) == {"weight"}
    # The mean region of the other images, pixel by pixel.
    others = (MASKS.float().sum(0) - MASKS.float()) / (seen.sum(0) - seen.float())[..., None, None]
    place = region_scores(others[torch.arange(N), part], MASKS[torch.arange(N), part])
    found = rows_of(table, "mean region of the part")["value"]
    assert found["region IoU"] == pytest.approx(place.iou[visible].mean().item())
    assert found["energy inside"] == pytest.approx(place.energy[visible].mean().item())
    y, x = (((np.arange(12) + 0.5) / 12 - 0.5) ** 2 * 8 for _ in range(2))
    gaussian = torch.from_numpy(np.exp(-y[:, None] - x)).expand(N, -1, -1)
    centre = region_scores(gaussian, MASKS[torch.arange(N), part]).energy[visible].mean().item()
    assert rows_of(table, "centred Gaussian")["value"]["energy inside"] == pytest.approx(centre)
    # Each random bank with its own maps.
    own_banks = [model_of(bank.cavs) for bank in banks]
    draws = [np.nanmean(of_images(of_bank, "energy", of_bank(IMAGES).argmax(1))) for of_bank in own_banks]
    of_banks = rows_of(table, model="control").loc["energy inside"]
    assert of_banks[["low", "high"]].tolist() == pytest.approx([min(draws), max(draws)], rel=1e-5)
    draws = [np.nanmean(of_images(of_bank, "coverage", of_bank(IMAGES).argmax(1))) for of_bank in own_banks]
    of_banks = rows_of(table, model="control").loc["coverage"]
    assert of_banks[["low", "high"]].tolist() == pytest.approx([min(draws), max(draws)])
    # Of truth that the loader or the call has, and by image.
    unbound = [ConceptRegions(score, importance="weight") for score in ("iou", "energy", "hit")]
    asked = score_concepts(model, loader, unbound, truth=TRUTH)
    assert rows_of(asked)["value"].tolist() == pytest.approx(own["value"].tolist())
    dicts = [{"images": IMAGES, "labels": CLASSES, "regions": MASKS}]
    given = score_concepts(model, dicts, unbound, truth={"part_of_concept": PARTS})
    assert rows_of(given)["value"].tolist() == pytest.approx(own["value"].tolist())
    # Without regions of all images at hand there is no mean of others.
    assert set(given["baseline"]) == {"", "centred Gaussian"}
    images = score_concepts(model, loader, METRICS, per_image=True)
    per_image = images[(images["metric"] == "region IoU") & (images["baseline"] == "")]["value"]
    np.testing.assert_allclose(per_image, of_images(model, "iou", predicted), rtol=1e-6)
    model.absent_values = torch.zeros(4)
    every = set(score_concepts(model, loader, "all", truth=TRUTH)["metric"])
    assert every >= {"region IoU", "energy inside", "pointing game", "coverage"}


def test_two_kinds_of_regions_in_one_table() -> None:
    boxes = torch.full((N, 2, 4), torch.nan)
    for image, part in np.argwhere(MASKS.flatten(2).any(2).numpy()):
        y, x = MASKS[image, part].nonzero().unbind(1)
        boxes[image, part] = torch.tensor([x.min(), y.min(), x.max() - x.min() + 1, y.max() - y.min() + 1])
    model = model_of(torch.rand(4, 4, generator=DRAWN))
    metrics = {
        "masks": METRIC,
        "boxes": ConceptRegions("energy", boxes, PARTS, importance="weight"),
        "moved": ConceptRegions("energy", MASKS.roll(1, 2), PARTS, importance="weight"),
    }
    values = score_concepts(model, [(IMAGES, CLASSES)], metrics, baselines=False).set_index("metric")["value"]
    # The masks are rectangles.
    assert values["masks"] == values["boxes"] != values["moved"]
    assert [*values.index] == [row for name in metrics for row in (name, f"{name}, coverage")]


def called(**changed: Any) -> Any:
    arguments = {"regions": MASKS, "part_of_concept": PARTS, "importance": "weight"} | changed
    return ConceptRegions(**arguments)(model_of(BEST), IMAGES.numpy(), CLASSES.numpy())


test_refused = refusals(
    (lambda: called(regions=MASKS[..., :6]), r"`regions` to have the size of the images, \(H, W\) = \(12, 12\)"),
    (lambda: called(regions=MASKS[:, 0]), "`regions` to be masks"),
    (lambda: called(regions=MASKS * 0.5), "`regions` to hold only 0 and 1"),
    (lambda: called(regions=np.full((N, 2, 4), 8.0)), r"`regions` to hold boxes in the images, .* 20 reach outside"),
    (lambda: called(regions=np.zeros((N, 2, 4))), "`regions` to hold boxes .* NaN where a part is not visible"),
    (lambda: called(regions=np.full((N, 2, 4), np.inf)), "`regions`"),
    (lambda: called(part_of_concept=[0, 1, 2, 0]), "`part_of_concept` to name parts below P = 2"),
    (lambda: called(part_of_concept=[0, 1, 0]), "`part_of_concept`"),
    (lambda: called(top_l=4), "`top_l` to be at most .* 3"),
    (lambda: called(score="precision"), "`score`"),
)


def test_what_a_call_lacks_is_said() -> None:
    with pytest.raises(ValueError, match="`regions` also needs `part_of_concept`"):
        called(part_of_concept=None)
    with pytest.raises(ValueError, match="needs to know where concepts are"):
        called(regions=None)
    with pytest.raises(ValueError, match="needs `part_of_concept` in the constructor"):
        ConceptRegions()(PREDICTOR, IMAGES.numpy(), CLASSES.numpy(), custom_batch={"regions": MASKS})
    with pytest.raises(ValueError, match="`y_batch` to hold concepts 0 to 3"):
        METRIC(PREDICTOR, IMAGES.numpy(), CLASSES.numpy() + 4, np.ones((N, 1, 12, 12)))
    with pytest.raises(ValueError, match="'coverage' of explanations"):
        METRIC.vary(score="coverage")(PREDICTOR, IMAGES.numpy(), CLASSES.numpy(), np.ones((N, 1, 12, 12)))
    with pytest.raises(ValueError, match="`regions`"):
        score_concepts(
            model_of(BEST), [(IMAGES, CLASSES)], [ConceptRegions(part_of_concept=PARTS, importance="weight")]
        )
