"""Pictures: Algorithm 2 by hand, and a gallery that says what it should."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from captum_concepts.pictures.gallery import gallery, overlay, plot_coam
from reference.clm import upsample

# The ends of viridis, as matplotlib has them.
LOW, HIGH = np.array([0.267004, 0.004874, 0.329415]), np.array([0.993248, 0.906157, 0.143936])


def test_coloured_literal():
    # 0.4 * colour + image, clipped at 1.
    image = np.full((1, 2, 3), 0.25)
    image[0, 1, 0] = 0.9
    result = overlay(image, np.array([[-3.0, 5.0]]))
    np.testing.assert_allclose(result[0, 0], 0.25 + 0.4 * LOW, atol=1e-6)
    np.testing.assert_allclose(result[0, 1], [1.0, *(0.25 + 0.4 * HIGH[1:])], atol=1e-6)


def test_masked_literal():
    # Upsampled to four pixels, 0 and 4 give 0, 1, 3, 4; those of at least 3 are shown.
    image = np.full((1, 4, 3), 0.5)
    result = overlay(image, np.array([[0.0, 4.0]]), coloured=False, threshold=3.0)
    np.testing.assert_array_equal(result[..., 0], [[0, 0, 0.5, 0.5]])


@pytest.mark.parametrize("coloured", [True, False])
def test_reference(coloured):
    rng = np.random.default_rng(0)
    image, values = rng.random((9, 7, 3)), rng.standard_normal((3, 4))
    heat = upsample(values, (9, 7))
    if coloured:
        colours = mpl.colormaps["viridis"]((heat - heat.min()) / (heat.max() - heat.min()))[..., :3]
        expected = np.minimum(0.7 * colours + image, 1)
    else:
        expected = np.where((heat >= 0.1)[..., None], image, 0.0)
    result = overlay(image, values, beta=0.7, coloured=coloured, threshold=0.1)
    # A pixel at the border of two of viridis' 256 colours may fall to either side.
    np.testing.assert_allclose(result, expected, atol=0.02)
    assert np.isclose(result, expected).mean() > 0.95


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return {
        "images": rng.random((3, 12, 10, 3)),
        "maps": rng.standard_normal((3, 2, 4, 4)),
        "names": [["grey leg", "blue crown"], ["black eye", "grey leg"], ["buff nape", "solid back"]],
        "present": np.array([[1, 0], [0, 0], [1, 1]]),
        "class_maps": rng.standard_normal((3, 4, 4)),
        "class_names": ["nuthatch", "jay", "warbler"],
    }


def test_blended_literal():
    # White stays white where the map is low; at its highest 0.7 of the colour is mixed in.
    result = overlay(np.ones((1, 2, 3)), np.array([[-3.0, 5.0]]), coloured="blend")
    np.testing.assert_allclose(result[0], [[1, 1, 1], 0.3 + 0.7 * HIGH], atol=1e-6)
    # `low` and `high` make maps comparable: half of the scale, a quarter of the opacity.
    half = overlay(np.ones((1, 1, 3)), np.array([[5.0]]), coloured="blend", low=0, high=torch.tensor(10.0))
    np.testing.assert_allclose(half[0, 0], 1 - 0.175 * (1 - np.array(mpl.colormaps["viridis"](0.5)[:3])), atol=1e-3)


def test_constant_map_is_the_lowest_colour():
    result = overlay(np.zeros((4, 5, 3)), np.full((2, 2), 7.0))
    np.testing.assert_allclose(result, np.broadcast_to(0.4 * LOW, (4, 5, 3)), atol=1e-6)
    # Rounding does not take it from its own value.
    assert (overlay(np.full((9, 7, 3), 0.5), np.full((2, 3), 0.1), coloured=False, threshold=0.1) == 0.5).all()


def titles(axes):
    return [[ax.get_title() for ax in row] for row in axes]


def test_gallery(rows):
    figure, axes = gallery(**rows)
    assert titles(axes) == [
        ["nuthatch", "✓ grey leg", "✗ blue crown", "class"],
        ["jay", "✗ black eye", "✗ grey leg", "class"],
        ["warbler", "✓ buff nape", "✓ solid back", "class"],
    ]
    assert axes[0, 1].title.get_color() != axes[0, 2].title.get_color()
    np.testing.assert_allclose(axes[1, 0].images[0].get_array(), rows["images"][1])
    np.testing.assert_allclose(
        axes[1, 2].images[0].get_array(), overlay(rows["images"][1], rows["maps"][1, 1], coloured="blend")
    )
    blended = overlay(rows["images"][2], rows["class_maps"][2], coloured="blend")
    np.testing.assert_allclose(axes[2, 3].images[0].get_array(), blended)
    _, axes = gallery(**rows, coloured=True)
    np.testing.assert_allclose(axes[1, 2].images[0].get_array(), overlay(rows["images"][1], rows["maps"][1, 1]))
    figure.savefig(io.BytesIO(), format="png")


def test_a_concept_that_acts_by_its_absence_is_no_failure_to_find_it(rows):
    absent = np.array([[0, 1], [1, 1], [0, 0]], dtype=bool)
    parts = torch.tensor([[0.81, -0.26], [0.04, 1.0], [12.3, 0.5]])
    _, axes = gallery(**rows, absent=absent, contributions=parts)
    assert [row[1:3] for row in titles(axes)] == [
        ["✓ grey leg (+0.8)", "no blue crown (−0.3)"],
        ["no black eye (+0.0)", "no grey leg (+1.0)"],
        ["✓ buff nape (+12.3)", "✓ solid back (+0.5)"],
    ]


def test_forms_of_images_and_what_does_not_fit(rows):
    image = np.random.default_rng(0).integers(0, 256, (6, 8, 3)) / 255
    values, levels = np.arange(4.0).reshape(2, 2), (image * 255).round().astype(np.uint8)
    expected = overlay(image, values)
    for form in (np.moveaxis(image, -1, 0), levels, torch.tensor(levels).permute(2, 0, 1), image[None]):
        np.testing.assert_allclose(overlay(form, values[None, None]), expected, atol=1e-6)
    np.testing.assert_allclose(overlay(image[..., 0], values), overlay(np.repeat(image[..., :1], 3, -1), values))
    with pytest.raises(ValueError, match="Undo the normalisation"):
        overlay(image + 1.1, values)
    with pytest.raises(ValueError, match="`map` to be finite"):
        overlay(image, values * np.nan)
    with pytest.raises(ValueError, match="`low` to be at most `high`"):
        overlay(image, values, low=2.0, high=1.0)
    with pytest.raises(ValueError, match=r"`maps` to have shape \(N, k, h, w\) = \(2, .*got \(3, 2, 4, 4\)"):
        gallery(**rows | {"images": np.zeros((2, 12, 10, 3))})
    with pytest.raises(ValueError, match=r"`present` to have shape \(N, k\) = \(3, 2\)"):
        gallery(**rows | {"present": np.ones((3, 3))})
    with pytest.raises(ValueError, match="`threshold` to be a number"):
        overlay(image, values, coloured=False)
    with pytest.raises(ValueError, match="`image` to hold an image"):
        overlay(np.zeros((4, 5, 2)), values)
    with pytest.raises(ValueError, match=r"`names` to hold k = 2 names.*lengths \[1, 2\]"):
        gallery(**rows | {"names": [["a", "b"], ["c"], ["d", "e"]]})
    with pytest.raises(ValueError, match="`class_names` to have length N = 3 but got 1"):
        gallery(**rows | {"class_names": ["jay"]})
    with pytest.raises(ValueError, match=r"`axes` to have shape \(N, columns\) = \(3, 4\)"):
        gallery(**rows, axes=Figure().subplots(3, 3))
    _, ax = plot_coam(image, values, "has_crown::blue_$5 and $6", present=False)
    assert ax.get_title() == "✗ crown: blue $5 and\n$6"
    np.testing.assert_allclose(ax.images[0].get_array(), overlay(image, values, coloured="blend"))
