"""Figures of reports draw every number that is there, in one look, on light pages and on dark ones."""

from __future__ import annotations

import base64
import io
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from PIL import Image

from quantus_concepts.studies._kit.galleries import GalleryRow, draw_gallery
from quantus_concepts.studies._kit.plots import BAND, INK, dots, lines, new_axes, png, report_style, svg

ROWS = [
    {"name": "x", "model": "a", "value": 0.5, "low": 0.4, "high": 0.6, "random_low": 0.1, "random_high": 0.3},
    {"name": "x", "model": "b", "value": 0.7, "low": math.nan, "high": math.nan},
    {"name": "y", "model": "a", "value": math.nan, "low": math.nan, "high": math.nan},
    {"name": "y", "model": "b", "value": 0.2, "low": 0.1, "high": 0.2},
]
FRAME = pd.DataFrame(ROWS)


@pytest.fixture(autouse=True)
def _style():
    with rc_context({"font.size": 33}):
        with report_style():
            yield
        # The look of the user comes back.
        assert rcParams["font.size"] == 33


def points(ax: Axes) -> list[float]:
    return sorted(
        float(line.get_xdata()[0])
        for line in ax.lines
        if line.get_marker() in ("o", "s") and line.get_ydata().size == 1
    )


def legend(ax: Axes) -> list[str]:
    return [text.get_text() for of in ax.get_figure().legends for text in of.get_texts()]


def test_dots_draw_each_number_over_its_random_range():
    _, ax = dots(FRAME, "name", "model", label="%", order=["b", "a", "c"], reference=0.25)
    assert points(ax) == [20, 50, 70]
    assert [(patch.get_x(), patch.get_width()) for patch in ax.patches] == [(10, pytest.approx(20))]
    # The band does not begin at the edge of the axes.
    assert ax.get_xlim()[0] < 10
    assert [text.get_text() for text in ax.get_yticklabels()] == ["x", "y"]
    assert legend(ax) == ["b", "a", "95 % of random baselines"]
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"] == [25]
    _, ax = dots(FRAME[FRAME["model"] == "b"], "name", percent=False)
    assert points(ax) == [0.2, 0.7]
    assert legend(ax) == []
    _, ax = dots(FRAME[:0], "name", "model")
    assert points(ax) == []


def test_lines_have_a_place_for_each_number_and_a_band():
    rows = [
        {"alpha": alpha, "model": model, "value": value, "low": value - 0.1, "high": value + 0.1}
        for alpha in (3, 1)
        for model, value in (("a", alpha / 10), ("random", 0.5), ("b", math.nan if alpha == 3 else 0.9))
    ]
    _, ax = lines(pd.DataFrame(rows), "alpha", "model", band="random", dashed=["b"], ticks={1: "one", 3: "three"})
    (band,) = ax.collections[:1]
    assert band.get_paths()[0].get_extents().extents == pytest.approx([1, 40, 3, 60])
    by_series = [container.lines[0].get_ydata().tolist() for container in ax.containers]
    assert by_series == [[pytest.approx(10), pytest.approx(30)], [90]]
    assert legend(ax) == ["95 % of random baselines", "a", "b"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["one", "three"]


@pytest.mark.parametrize("save_first", [png, svg])
def test_long_names_of_rows_are_inside_the_picture(save_first):
    names = ["nape color: white", "bill length: about the same as head", *map(str, range(10))]
    with report_style():
        figure, _ = dots(
            pd.DataFrame({"row": names, "value": 0.5, "low": np.nan, "high": np.nan}), "row", label="share"
        )
    save_first(figure)
    picture = np.asarray(Image.open(io.BytesIO(png(figure))).convert("L"))
    assert (picture[:, :3] == 255).all()
    assert (picture[:, 3:] < 100).any()


def test_any_name_is_drawn_as_it_is():
    names = ["$\\frac$", "$_{$", "a_b", "<svg>&amp;", "two\nlines"]
    figure, _ = dots(pd.DataFrame({"name": names, "value": 0.5, "low": 0.4, "high": 0.6}), "name", label="$x")
    drawn = [element.text for element in ElementTree.fromstring(svg(figure)).iter("{http://www.w3.org/2000/svg}text")]
    assert {*names[:-1], "two lines", "$x"} <= {*drawn}


def test_a_figure_is_a_png_and_an_svg_whose_ink_is_light_on_a_dark_page():
    figure, _ = dots(FRAME, "name", "model")
    assert png(figure).startswith(b"\x89PNG")
    text = svg(figure).decode()
    ElementTree.fromstring(text)
    assert text.index("@media(prefers-color-scheme:dark)") < text.index(f"fill: {INK}")
    for colour in (INK, BAND):
        assert f"[style*='fill: {colour}']" in text
        assert f"fill: {colour}" in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize(("alpha", "kind"), [(1.0, "jpeg"), (0.5, "png")])
def test_images_of_an_svg_are_jpegs_unless_they_are_transparent(alpha: float, kind: str):
    figure, ax = new_axes(2.0)
    noise = np.random.default_rng(0).random((40, 40, 3))
    ax.imshow(np.dstack([noise, np.full((40, 40), alpha)]))
    text = svg(figure).decode()
    (found,) = re.findall(r"data:image/(\w+);base64,([^\"]+)", text)
    assert found[0] == kind
    assert Image.open(io.BytesIO(base64.b64decode(found[1]))).format == kind.upper()


DRAW = """
import sys
from pathlib import Path
import numpy as np
import pandas as pd
from quantus_concepts.studies._kit.plots import dots, png, report_style, svg
frame = pd.DataFrame({"name": ["$a$", "b"], "value": [0.5, 0.7], "low": [0.4, 0.6], "high": [0.6, 0.8]})
with report_style():
    figure, _ = dots(frame, "name", label="x")
Path(OUT).write_bytes(svg(figure) + png(figure))
"""
EVIL = """
backend: module://evil
text.usetex: True
font.size: 40
figure.facecolor: red
savefig.bbox: tight
savefig.dpi: 10
svg.fonttype: path
svg.hashsalt: other
path.sketch: 5, 100, 2
"""


def test_a_matplotlibrc_in_the_working_directory_changes_no_figure_and_runs_nothing(tmp_path: Path):
    exec(DRAW, {"OUT": tmp_path.parent / "plain"})
    (tmp_path / "matplotlibrc").write_text(EVIL)
    (tmp_path / "evil.py").write_text("open('ran', 'w')")
    for program in ("latex", "dvipng", "dvisvgm"):
        (tmp_path / program).write_text("#!/bin/sh\ntouch ran\n")
        (tmp_path / program).chmod(0o755)
    settings = {name: value for name, value in os.environ.items() if name not in ("MPLBACKEND", "MATPLOTLIBRC")}
    settings |= {"PYTHONPATH": os.pathsep.join([*sys.path, "."]), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-c", f"OUT = 'drawn'\n{DRAW}"], cwd=tmp_path, env=settings, check=True)
    assert not (tmp_path / "ran").exists()
    assert len((tmp_path / "drawn").read_bytes()) > 5000
    assert (tmp_path / "drawn").read_bytes() == (tmp_path.parent / "plain").read_bytes()


def test_a_gallery_draws_pictures_maps_and_texts_in_their_cells():
    picture, region = np.zeros((4, 8, 3)), np.zeros((4, 8), dtype=bool)
    region[1:3, :4] = True
    cells = [picture, np.full((4, 8), np.nan), "blue"]
    row = GalleryRow("a long label", cells, ["", "", "below"], ["0.4", "", ""], ["k", "k", "#009E73"], region)
    (ax,) = draw_gallery(["image", "map", "answer"], [row, row]).axes
    assert [image.get_extent() for image in ax.images] == [
        pytest.approx((0.03, 0.97, 0.735 + top, 0.265 + top)) for top in (0, 1.2)
    ]
    texts = {text.get_text(): text.get_position() for text in ax.texts}
    assert texts["no map"] == pytest.approx((1.5, 1.7))
    assert texts["below"][0] == texts["blue"][0] == texts["answer"][0] == 2.5
    assert texts["0.4"] == pytest.approx((0.94, 1.905))
    # The outline of the region, black below white, lies on the left half of the picture.
    outline = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    assert outline.min(0) == pytest.approx((0.03, 0.265 + 0.47 / 4))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a long label"] * 2
