"""SUB in the release's format: labels, names, what was taken out, images of row groups, and damaged files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from damaged import in_room
from fixtures_cub import ATTRIBUTES as OF_CUB
from fixtures_cub import write_cub
from fixtures_sub import ATTRIBUTES, BIRDS, LABELS, schema, write_release
from quantus_concepts.datasets import CUB200, SUB, write_sub
from quantus_concepts.datasets.substitution import sub_files

pytestmark = pytest.mark.filterwarnings("ignore:The images of:UserWarning")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def cub(tmp_path_factory: pytest.TempPathFactory) -> CUB200:
    return CUB200(write_cub(tmp_path_factory.mktemp("cub")), "test", class_concepts="majority")


def test_names_and_labels_of_the_release(release: Path) -> None:
    sub = SUB(release)
    assert sub.attribute_names == [name.replace("--", "::") for name in ATTRIBUTES]
    assert sub.bird_names == BIRDS
    assert list(zip(sub.attribute.tolist(), sub.bird.tolist(), strict=True)) == LABELS
    # Without a model's concepts they are those that the files name, and nothing is known of what was there before.
    assert (sub.concept_names, sub.class_names) == (sub.attribute_names, BIRDS)
    assert torch.equal(sub.added, sub.attribute)
    assert set(sub.removed.tolist()) == {-1}
    assert sub.pairs.tolist() == [0, 0, 2, 3, 2, 1, 4]
    assert "cc-by-nc-4.0" in repr(sub)


def test_images_are_read_group_by_group(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups_read = []
    read_images = sub_files.read_images
    monkeypatch.setattr(
        "quantus_concepts.datasets.substitution.sub.read_images",
        lambda path, group: groups_read.append((path.name[5:10], group)) or read_images(path, group),
    )
    sub = SUB(release)
    images = [sub[place].image for place in range(len(sub))]
    assert groups_read == [("00000", 0), ("00000", 1), ("00001", 0), ("00001", 1)]
    for number, image in enumerate(images):
        assert image.shape == (3, 310, 320)
        assert image[0, 100, 100] == pytest.approx(number / 255)
    assert sub[-1].label == 1
    with pytest.raises(IndexError, match="`index` to be below the number of images, 7"):
        sub[7]
    # What a worker of a loader is sent holds no images.
    assert len(pickle.dumps(sub)) < 5000
    batch = next(iter(DataLoader(SUB(release, transform="release"), 3, num_workers=1)))
    assert batch.image.shape == (3, 3, 299, 299)


def test_the_release_s_preparation_crops_and_does_not_resize(release: Path) -> None:
    # By hand: 11 of 310 rows and 21 of 320 columns go, half of them in front; the corner of 10 columns is gone.
    image = SUB(release, transform="release")[2].image
    assert image.shape == (3, 299, 299)
    assert torch.allclose(image, torch.tensor((2 / 255 - 0.5) / 2))
    assert SUB(release, transform=lambda image: image[:, :2, :3])[0].image.shape == (3, 2, 3)


def test_names_become_those_of_cub_and_what_was_taken_out_is_the_class_s_own(release: Path, cub: CUB200) -> None:
    sub = SUB(release, cub)
    assert sub.concept_names == cub.concept_names
    assert sub.options == OF_CUB
    assert [sub.class_names[label] for label in sub.labels] == [
        {"B": "001.Black_footed_Albatross", "S": "003.Sooty_Albatross"}[BIRDS[bird][0]] for _, bird in LABELS
    ]
    class_has = cub.class_concepts >= 0.5
    for place, (attribute, _) in enumerate(LABELS):
        name = ATTRIBUTES[attribute].replace("--", "::")
        expected = cub.concept_names.index(name) if name in cub.concept_names else -1
        assert sub.added[place] == expected
        group = name.partition("::")[0]
        having = [
            concept
            for concept, name in enumerate(cub.concept_names)
            if name.partition("::")[0] == group and class_has[sub.labels[place], concept]
        ]
        assert sub.removed[place] == (having[0] if having else -1)
    assert set(sub.removed.tolist()) != {-1}
    assert -1 in sub.added.tolist()
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


def test_a_writing_that_fails_leaves_no_file(tmp_path: Path) -> None:
    samples = [(torch.zeros(3, 4, 4), "a::b", "Jay"), (torch.zeros(3, 4, 4), "a::c", "Jay")]
    with pytest.raises(ValueError, match=r"`samples` to be one of \['a::b'\] but got 'a::c'"):
        write_sub(samples, tmp_path, attribute_names=["a::b"], bird_names=["Jay"], rows_per_group=1)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_damaged_image_raises_when_it_is_read(tmp_path: Path) -> None:
    rows = pq.read_table(write_release(tmp_path) / "data" / "test-00000-of-00002.parquet").to_pylist()
    rows[1]["image"]["bytes"], rows[2]["image"]["bytes"] = b"no image", None
    path = tmp_path / "data" / "test-00000-of-00002.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema()), path)
    sub = SUB(tmp_path)
    assert sub[0].image.shape == (3, 310, 320)
    for place in (1, 2):
        with pytest.raises(ValueError, match=r"An image of .*00000-of-00002.parquet cannot be read"):
            sub[place]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.rename_columns(["image", "label", "bird_label"]), "expected the columns .*'attr_label'"),
        (lambda table: table.replace_schema_metadata({}), "metadata has no names of attr_label and bird_label under"),
        (lambda table: table.replace_schema_metadata(schema(bird_label=[*"xyz"]).metadata), "names other labels than"),
        (lambda table: table.replace_schema_metadata(schema(attr_label=["x"]).metadata), "row 0 has attr_label 1 but"),
        (lambda table: table.replace_schema_metadata(schema(attr_label=["a", " "]).metadata), "are no list of names"),
        (lambda table: table.replace_schema_metadata(schema(attr_label=["a--b", "a::b"]).metadata), "more than once"),
    ],
    ids=["columns", "metadata", "other names", "labels", "empty name", "name twice"],
)
def test_files_that_contradict_themselves_are_refused_by_name(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    path = max((write_release(tmp_path) / "data").iterdir())
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(ValueError, match=f"00001-of-00002.parquet .*{message}"):
        SUB(tmp_path)


def test_a_licence_is_warned_of_and_damaged_and_missing_files_are_named(release: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"licensed cc-by-nc-4\.0"):
        SUB(release)
    with pytest.raises(FileNotFoundError, match=r"`root` to name the folder of SUB's Parquet files but .* hold none"):
        SUB(tmp_path)
    path = max((write_release(tmp_path) / "data").iterdir())
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"00001-of-00002.parquet cannot be read \("):
        SUB(tmp_path)


def test_unknown_names_are_refused_with_the_nearest(tmp_path: Path, cub: CUB200) -> None:
    write_release(tmp_path / "a", attr_label=["has_crown_color--blakc", *ATTRIBUTES[1:]])
    with pytest.raises(ValueError, match=r"attributes .*has_crown_color::blakc' \(nearest: 'has_crown_color::black'\)"):
        SUB(tmp_path / "a", cub)
    write_release(tmp_path / "c", labels=[(3, 0)] * 7)
    with pytest.raises(ValueError, match=r"none of its 112 is among \['has_tail_pattern::spotted'\]"):
        SUB(tmp_path / "c", cub)


def test_a_missing_package_is_named(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"needs the package pyarrow: python -m pip install '\.\[sub\]'"):
        SUB(release)


@pytest.mark.parametrize("changes", [{"transform": "crop"}, {"per_pair": 0}])
def test_settings_out_of_range_are_refused(release: Path, changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(changes))}`"):
        SUB(release, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": []}, "`samples`"),
        ({"attribute_names": ["a::b", "a::b"]}, "`attribute_names`"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    good = {"samples": [(torch.zeros(3, 4, 4), "a::b", "Jay")], "attribute_names": ["a::b"], "bird_names": ["Jay"]}
    with pytest.raises(ValueError, match=message):
        write_sub(out=tmp_path / "sub", **good | changes)
    assert not list(tmp_path.rglob("*.parquet"))


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


def test_sizes_of_images_in_a_header_are_not_believed(tmp_path: Path) -> None:
    rows = {"image": [{"bytes": bytes(10_000_000), "path": "x"}] * 40, "attr_label": [0] * 40, "bird_label": [0] * 40}
    path = tmp_path / "test.parquet"
    pq.write_table(pa.table(rows, schema=schema()), path, compression="zstd", use_dictionary=False)
    size = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    assert size > sub_files.MAX_BYTES
    in_footer(path, size, 1000)
    assert path.stat().st_size < 100_000
    sub = SUB(tmp_path)
    with in_room(1 << 29), pytest.raises(ValueError, match=r"test.parquet .* unpack to more than 268,435,456 bytes"):
        sub[0]
