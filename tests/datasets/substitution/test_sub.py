"""SUB in the release's format: labels, names, what was taken out, images of row groups, and damaged files."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from damaged import in_room
from fixtures_cub import ATTRIBUTES as OF_CUB
from fixtures_cub import write_cub
from fixtures_sub import ATTRIBUTES, BIRDS, LABELS, pa, pq, schema, write_release
from quantus_concepts.datasets import CUB200, SUB, parquet, write_sub
from quantus_concepts.datasets.pages import unpacked_sizes
from quantus_concepts.datasets.substitution import sub_files

pytestmark = pytest.mark.filterwarnings("ignore:The images of:UserWarning")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def cub(tmp_path_factory: pytest.TempPathFactory) -> CUB200:
    return CUB200(write_cub(tmp_path_factory.mktemp("cub")), "test", class_concepts="majority")


def test_names_and_labels_of_the_release(release: Path) -> None:
    with pytest.warns(UserWarning, match=r"licensed cc-by-nc-4\.0"):
        sub = SUB(release)
    assert sub.attribute_names == [name.replace("--", "::") for name in ATTRIBUTES]
    assert sub.bird_names == BIRDS
    assert list(zip(sub.attribute.tolist(), sub.bird.tolist(), strict=True)) == LABELS
    # Without a model's concepts they are those that the files name, and nothing is known of what was there before.
    assert torch.equal(sub.added, sub.attribute)
    assert set(sub.removed.tolist()) == {-1}
    assert sub.pairs.tolist() == [0, 0, 2, 3, 2, 1, 4]


def test_images_are_read_group_by_group(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups_read, read_images = [], sub_files.read_images
    monkeypatch.setattr(
        "quantus_concepts.datasets.substitution.sub.read_images",
        lambda path, group: groups_read.append((path.name[5:10], group)) or read_images(path, group),
    )
    sub = SUB(release)
    images = torch.stack([sub[place].image for place in range(len(sub))])
    assert groups_read == [("00000", 0), ("00000", 1), ("00001", 0), ("00001", 1)]
    assert images.shape == (7, 3, 310, 320)
    assert images[:, 0, 100, 100].tolist() == pytest.approx([number / 255 for number in range(7)])
    # What a worker of a loader is sent holds no images.
    assert len(pickle.dumps(sub)) < 5000
    batch = next(iter(DataLoader(SUB(release, transform="release"), 3)))
    assert batch.image.shape == (3, 3, 299, 299)


def test_the_release_s_preparation_crops_and_does_not_resize(release: Path) -> None:
    # By hand: 11 of 310 rows and 21 of 320 columns go, half of them in front; the corner of 10 columns is gone.
    image = SUB(release, transform="release")[2].image
    assert torch.allclose(image, torch.tensor((2 / 255 - 0.5) / 2))
    assert SUB(release, transform=lambda image: image[:, :2, :3])[0].image.shape == (3, 2, 3)


def test_names_become_those_of_cub_and_what_was_taken_out_is_the_class_s_own(release: Path, cub: CUB200) -> None:
    sub = SUB(release, cub)
    assert sub.concept_names == cub.concept_names
    assert sub.options == OF_CUB
    assert [sub.class_names[label] for label in sub.labels] == [
        {"B": "001.Black_footed_Albatross", "S": "003.Sooty_Albatross"}[BIRDS[bird][0]] for _, bird in LABELS
    ]
    groups = [name.partition("::")[0] for name in cub.concept_names]
    for place, (attribute, _) in enumerate(LABELS):
        name = ATTRIBUTES[attribute].replace("--", "::")
        assert sub.added[place] == (cub.concept_names.index(name) if name in cub.concept_names else -1)
        of_class = cub.class_concepts[sub.labels[place]] >= 0.5
        having = [j for j, group in enumerate(groups) if group == name.partition("::")[0] and of_class[j]]
        assert sub.removed[place] == [*having, -1][0]
    assert -1 in sub.added.tolist()
    assert set(sub.removed.tolist()) != {-1}
    assert torch.equal(sub.class_concepts, cub.class_concepts)


def test_some_of_each_pair(release: Path) -> None:
    sub = SUB(release, per_pair=1)
    assert list(zip(sub.attribute.tolist(), sub.bird.tolist(), strict=True)) == [(0, 0), (1, 1), (3, 0), (0, 1), (3, 1)]
    # Image 4 of the release is the second of its pair.
    assert [round(float(sub[place].image[0, 9, 20]) * 255) for place in range(5)] == [0, 2, 3, 5, 6]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    names = ["has_crown_color::black", "has_crown_color::red"]
    image = torch.rand(3, 6, 5, generator=torch.Generator().manual_seed(0))
    Image.new("RGB", (4, 4), (9, 8, 7)).save(tmp_path / "own.png")
    content = (tmp_path / "own.png").read_bytes()
    samples = [
        (image, names[1], "Jay"),
        (tmp_path / "own.png", names[0], "Tern"),
        (content, names[0], "Jay"),
        (Image.new("RGB", (3, 2), (1, 2, 3)), names[1], "Tern"),
    ]
    label_names = {"attribute_names": names, "bird_names": ["Jay", "Tern"]}
    path = write_sub(iter(samples), tmp_path / "new", **label_names, licence="mine", rows_per_group=3)
    file = pq.ParquetFile(path)
    assert (file.num_row_groups, path.name) == (2, "test-00000-of-00001.parquet")
    # The release's columns and types, and names as it writes them.
    expected = schema(attr_label=["has_crown_color--black", "has_crown_color--red"], bird_label=["Jay", "Tern"])
    assert file.schema_arrow.remove_metadata() == expected.remove_metadata()
    sub = SUB(tmp_path / "new")
    assert sub.licence == "mine"
    assert (sub.attribute.tolist(), sub.bird.tolist()) == ([1, 0, 0, 1], [0, 1, 0, 1])
    assert torch.allclose(sub[0].image, image, atol=0.5 / 255 + 1e-6)
    assert torch.equal(sub[1].image, sub[2].image)
    # As it was, byte for byte.
    stored = pq.read_table(path).column("image").to_pylist()
    assert stored[1]["bytes"] == stored[2]["bytes"] == content
    np.testing.assert_allclose(sub[3].image[:, 0, 0] * 255, [1, 2, 3], atol=1e-4)
    with pytest.raises(FileExistsError, match="is there"):
        write_sub(samples, tmp_path / "new", **label_names)


def _metadata(**changed: object) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.replace_schema_metadata(schema(**changed).metadata)


def _with_bytes(content: bytes | None) -> Callable[[pa.Table], pa.Table]:
    image = {"bytes": content, "path": None}
    return lambda table: pa.Table.from_pylist([row | {"image": image} for row in table.to_pylist()], schema=schema())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.rename_columns(["image", "label", "bird_label"]), "expected the columns .*'attr_label'"),
        (lambda table: table.replace_schema_metadata({}), "metadata has no names of attr_label and bird_label"),
        (_metadata(bird_label=[*"xyz"]), "names other labels than"),
        (_metadata(attr_label=["x"]), "row 0 has attr_label 1 but"),
        (_metadata(attr_label=["a--b", "a::b"]), "more than once"),
        (_metadata(attr_label=["a", " "]), "are no list of names"),
        (_with_bytes(b"no image"), "cannot be read"),
        (_with_bytes(None), "it holds no bytes"),
    ],
)
def test_files_that_contradict_themselves_are_refused_by_name(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    path = max((write_release(tmp_path) / "data").iterdir())
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(ValueError, match=f"00001-of-00002.parquet .*{message}"):
        SUB(tmp_path)[6]


def test_missing_and_cut_off_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="`root` to name the folder of SUB's Parquet files"):
        SUB(tmp_path)
    path = max((write_release(tmp_path) / "data").iterdir())
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"00001-of-00002.parquet cannot be read \("):
        SUB(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match="needs the package pyarrow"):
        SUB(tmp_path)


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        ({}, {"transform": "crop"}, "`transform`"),
        ({}, {"per_pair": 0}, "`per_pair`"),
        ({"attr_label": ["has_crown_color--blakc", *ATTRIBUTES[1:]]}, {}, "nearest: 'has_crown_color::black'"),
        ({"labels": [(3, 0)] * 7}, {}, "none of its 112 is among"),
    ],
)
def test_unknown_names_and_settings_are_refused(
    tmp_path: Path, cub: CUB200, settings: dict[str, list[str]], changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SUB(write_release(tmp_path, **settings), cub, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": []}, "`samples`"),
        ({"attribute_names": ["a::b", "a::b"]}, "`attribute_names`"),
        ({"samples": [(torch.zeros(3, 4, 4), name, "Jay") for name in ("a::b", "a::c")]}, "`samples` .* got 'a::c'"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    good = {"samples": [(torch.zeros(3, 4, 4), "a::b", "Jay")], "attribute_names": ["a::b"], "bird_names": ["Jay"]}
    with pytest.raises(ValueError, match=message):
        write_sub(out=tmp_path / "sub", rows_per_group=1, **good | changes)
    assert not list(tmp_path.rglob("*.*"))


def in_footer(path: Path, value: int, other: int) -> None:
    """Write another number into the footer of a Parquet file, where it is a varint of the same length."""

    def varint(number: int, length: int = 0) -> bytes:
        groups = [2 * number >> 7 * place & 127 for place in range(max(length, -(-(2 * number).bit_length() // 7)))]
        return bytes(group | 128 for group in groups[:-1]) + bytes(groups[-1:])

    raw = path.read_bytes()
    start = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    old = varint(value)
    assert raw.count(old, start)
    path.write_bytes(raw[:start] + raw[start:].replace(old, varint(other, len(old))))


def test_numbers_of_rows_in_a_header_are_not_believed(tmp_path: Path) -> None:
    samples = [(torch.zeros(3, 2, 2), "a::b", "Jay")] * 300
    path = write_sub(samples, tmp_path, attribute_names=["a::b"], bird_names=["Jay"], rows_per_group=300)
    in_footer(path, 300, 8000)
    assert pq.ParquetFile(path).metadata.row_group(0).num_rows == 8000
    assert len(SUB(tmp_path)) == 300


def test_sizes_of_images_in_a_header_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parquet, sub_files):
        monkeypatch.setattr(module, "MAX_BYTES", 1 << 24)
    rows = {"image": [{"bytes": bytes(10_000_000), "path": "x"}] * 4, "attr_label": [0] * 4, "bird_label": [0] * 4}
    path = tmp_path / "test.parquet"
    pq.write_table(pa.table(rows, schema=schema()), path, compression="zstd", use_dictionary=False)
    size = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    assert size > sub_files.MAX_BYTES
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("unpacked"))
        with pytest.raises(ValueError, match="unpack to more than 16,777,216 bytes"):
            sub_files.read_images(path, 0)
    in_footer(path, size, 1000)
    assert path.stat().st_size < 100_000
    sub = SUB(tmp_path)
    # Pages say so, too, before they are unpacked.
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("unpacked"))
    with in_room(1 << 28), pytest.raises(ValueError, match=r"test.parquet .* unpack to more than 16,777,216 bytes"):
        sub[0]


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"compression": None}]
)
def test_sizes_of_pages_are_those_that_a_column_has(tmp_path: Path, options: dict[str, Any]) -> None:
    texts = [str(number).encode() * number for number in range(300)]
    path = tmp_path / "test.parquet"
    pq.write_table(pa.table({"a": texts, "b": range(300)}), path, data_page_size=1000, **options)
    for column in map(pq.ParquetFile(path).metadata.row_group(0).column, range(2)):
        start = min(place for place in (column.dictionary_page_offset, column.data_page_offset) if place)
        with path.open("rb") as file:
            sizes = list(unpacked_sizes(file, start, start + column.total_compressed_size))
        # The column's own number counts the headers as well.
        assert sum(sizes) < column.total_uncompressed_size < sum(sizes) + 1000 * len(sizes)
    with path.open("rb") as file, pytest.raises((ValueError, IndexError, KeyError)):
        list(unpacked_sizes(file, 1, path.stat().st_size))
