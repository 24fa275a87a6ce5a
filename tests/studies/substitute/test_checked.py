"""The recipe of docs/gallery.md: what `substitute filter` keeps, in the format of SUB."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fixtures_commands import ATTRIBUTES, BIRDS, write_filtered, write_generated
from quantus_concepts.datasets import SUB

GALLERY = Path(__file__).parents[3] / "docs" / "gallery.md"


def test_the_recipe_writes_what_sub_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    if not GALLERY.exists():
        pytest.skip("the site is not beside these tests")
    generated = write_generated(tmp_path / "generated")
    write_filtered(
        tmp_path / "filtered",
        generated,
        {f"{BIRDS[0]}--{ATTRIBUTES[0]}", f"{BIRDS[1]}--{ATTRIBUTES[1]}/00001.png"},
    )
    monkeypatch.chdir(tmp_path)
    (recipe,) = re.findall(r"```python\n(.*?write_sub.*?)```", GALLERY.read_text("utf-8"), re.S)
    exec(recipe, {})
    with pytest.warns(UserWarning, match="licensed"):
        sub = SUB(tmp_path / "my_sub")
    names = [sub.attribute_names[index].replace("::", "--") for index in sub.attribute]
    assert names == [*[ATTRIBUTES[0]] * 3, ATTRIBUTES[1]]
    assert [sub.bird_names[index] for index in sub.bird] == [*[BIRDS[0]] * 3, BIRDS[1]]
    expected = np.asarray(Image.open(generated / f"{BIRDS[1]}--{ATTRIBUTES[1]}" / "00001.png"))
    np.testing.assert_array_equal(np.round(np.asarray(sub[3].image).transpose(1, 2, 0) * 255), expected)
