"""The Parquet files of SUB: their columns, the names in their metadata, and single images out of row groups."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captum_concepts.support.checks import (
    check_axes,
    check_choice,
    check_folder,
    check_path,
    check_whole,
    different_names,
)
from captum_concepts.support.files import (
    check_plain_file,
    clear_abandoned,
    parse_json,
    reason_of,
    shorten,
    write_atomically,
)
from captum_concepts.support.images import FORMATS, MAX_PIXELS
from captum_concepts.support.running import progress
from quantus_concepts.datasets.parquet import BATCH, MAX_BYTES, MAX_ROWS, arrow, check_pages, open_parquet

if TYPE_CHECKING:
    import pyarrow

IMAGE, ATTRIBUTE, BIRD = "image", "attr_label", "bird_label"
FILE_COLUMNS = (IMAGE, ATTRIBUTE, BIRD)
_BYTES = f"{IMAGE}.bytes"
#: Where the names of labels are kept, and how a name is written there that is "group::option" in CUB-200-2011.
METADATA, SEPARATOR, OFFICIAL = b"huggingface", "--", "::"
LICENCE = "cc-by-nc-4.0"
FOLDER = "data"
#: What can be written as an image: the path or the bytes of a file, a Pillow image, a tensor (3, H, W) in [0, 1].
Picture = str | Path | bytes | Image.Image | Tensor
FILE = "test-00000-of-00001.parquet"


class Names(NamedTuple):
    """What the labels of a file mean, and the licence if the file names one."""

    attributes: tuple[str, ...]
    birds: tuple[str, ...]
    licence: str


class Place(NamedTuple):
    """Where an image is: file, row group, and row in it."""

    file: int
    group: int
    row: int


def find_files(root: str | Path) -> list[Path]:
    """Return the Parquet files of a folder, or of ``data`` in it, in the order of their names."""
    folder = check_folder("root", root, "the folder of SUB's Parquet files")
    for place in (folder / FOLDER, folder):
        files = sorted(place.glob("*.parquet")) if place.is_dir() else []
        if files:
            return files
    raise FileNotFoundError(
        f"Expected argument `root` to name the folder of SUB's Parquet files but {folder} and {folder / FOLDER} hold "
        "none."
    )


def read_substitution_labels(path: Path) -> tuple[Names, np.ndarray, list[int]]:
    """Return names, the labels (n, 2) of attribute and bird, and the rows of each row group; no image is read."""
    with open_parquet(path) as file:
        schema = file.schema_arrow
    names = _read_names(path, schema)
    with open_parquet(path) as file:
        for name in (ATTRIBUTE, BIRD):
            # Before they are read: a text that all rows share may be long.
            if not arrow().types.is_integer(kind := schema.field(name).type):
                raise ValueError(f"its {name} are {shorten(kind)}, expected whole numbers")
        parts, n_in_groups = [np.empty((0, 2), dtype=np.int64)], []
        for group in range(file.num_row_groups):
            check_pages(path, file, group, (ATTRIBUTE, BIRD))
            # What the header says of the number of rows is not believed.
            n_in_groups.append(0)
            for batch in file.iter_batches(BATCH, [group], [ATTRIBUTE, BIRD], use_threads=False):
                if any(column.null_count for column in batch.columns):
                    raise ValueError("a label is missing")
                parts.append(np.stack([batch.column(name).to_numpy() for name in (ATTRIBUTE, BIRD)], 1))
                n_in_groups[group] += len(batch)
                if sum(n_in_groups) > MAX_ROWS:
                    raise ValueError(f"it has more than {MAX_ROWS:,} rows")
    labels = np.concatenate(parts)
    for column, label_names, kind in zip(labels.T, names, (ATTRIBUTE, BIRD), strict=False):
        outside = (column < 0) | (column >= len(label_names))
        if outside.any():
            raise ValueError(
                f"{path} cannot be used: row {int(outside.argmax())} has {kind} {int(column[outside][0])} but its "
                f"metadata names {len(label_names)}."
            )
    return names, labels.astype(np.int64), n_in_groups


def read_images(path: Path, group: int) -> pyarrow.ChunkedArray:
    """Return the images of one row group, as they are stored."""
    # One after another: what the header says of their size is not believed.
    images, size = [], 0
    with open_parquet(path) as file:
        check_pages(path, file, group, (_BYTES,))
        for batch in file.iter_batches(1, [group], [_BYTES], use_threads=False):
            images.append(batch.column(IMAGE))
            size += batch.nbytes
            if size > MAX_BYTES:
                raise ValueError(f"the images of row group {group} unpack to more than {MAX_BYTES:,} bytes")
    return arrow().chunked_array(images)


def decode_image(stored: pyarrow.ChunkedArray, row: int, path: Path) -> Tensor:
    """Return one image (3, H, W) in [0, 1] of a row group."""
    try:
        content = stored[row].as_py()["bytes"]
        if content is None:
            raise ValueError("it holds no bytes")
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, more than {MAX_PIXELS:,}")
            pixels = np.array(image.convert("RGB"))
    except Exception as error:  # a damaged file fails in any way
        raise ValueError(f"An image of {path} cannot be read ({reason_of(error)}).") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(255)


def _read_names(path: Path, schema: Any) -> Names:
    if not set(FILE_COLUMNS) <= set(schema.names):
        raise ValueError(
            f"{path} is no file of SUB: expected the columns {list(FILE_COLUMNS)} but got {shorten(schema.names)}."
        )
    try:
        info = parse_json((schema.metadata or {})[METADATA])["info"]
        attributes, birds = (_as_names(name, info["features"][name]["names"]) for name in (ATTRIBUTE, BIRD))
        return Names(attributes, birds, str(info.get("license", "")))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is no file of SUB: its schema's metadata has no names of {ATTRIBUTE} and {BIRD} under "
            f"{METADATA.decode()!r} ({reason_of(error)})."
        ) from error


def _as_names(column: str, names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise TypeError(f"those of {column} are no list of names")
    different_names(column, [name.replace(SEPARATOR, OFFICIAL) for name in names])
    return tuple(names)


def schema_of(attributes: Sequence[str], birds: Sequence[str], licence: str) -> pyarrow.Schema:
    """Return the schema of SUB's files, with the names of labels in its metadata."""
    pa = arrow()
    features = {IMAGE: {"_type": "Image"}} | {
        column: {"names": list(names), "_type": "ClassLabel"}
        for column, names in ((ATTRIBUTE, attributes), (BIRD, birds))
    }
    info: dict[str, Any] = {"features": features} | ({"license": licence} if licence else {})
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [(IMAGE, image), (ATTRIBUTE, pa.int64()), (BIRD, pa.int64())]
    return pa.schema(fields).with_metadata({METADATA: json.dumps({"info": info}).encode()})


def write_sub(
    samples: Iterable[tuple[Picture, str, str]],
    out: str | Path,
    *,
    attribute_names: Sequence[str],
    bird_names: Sequence[str],
    licence: str = "",
    rows_per_group: int = 100,
    overwrite: bool = False,
    display_progressbar: bool = False,
) -> Path:
    """Write images with a substitution as `SUB` reads them: one Parquet file, in the release's own format.

    Images are taken one after another, and a row group of them is in memory at a time. The file has its name when it
    is complete.

    Parameters
    ----------
    samples : iterable
        Tuples (image, attribute, bird): the image as a path or the bytes of a file, kept as it is, a Pillow image, or a
        tensor (3, H, W) in [0, 1], both written as PNG; what was put in, "group::option", and the reference bird, by
        name.
    out : str or Path
        The folder; the file goes into ``data`` in it.
    attribute_names : sequence of str
        All attributes, "group::option".
    bird_names : sequence of str
        All birds.
    licence : str
        Licence of the images, shown when they are read.
    rows_per_group : int
        Images in a row group.
    overwrite : bool
        Whether a file that is there may be replaced.
    display_progressbar : bool
        Whether a bar shows the images, where the output is a terminal or a notebook.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FileExistsError
        If there is a file already.
    ValueError
        If pyarrow is missing, a name is unknown or occurs twice, or there is no image.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.datasets import SUB, write_sub
    >>> names = {"attribute_names": ["wing::red", "wing::blue"], "bird_names": ["jay", "wren"]}
    >>> image = torch.zeros(3, 32, 32)
    >>> samples = [(image, "wing::red", "wren"), (image, "wing::blue", "jay")]
    >>> path = write_sub(samples, "my_sub", **names, licence="CC0-1.0")
    >>> data = SUB("my_sub")
    >>> data.concept_names, data.added.tolist(), data.bird.tolist()
    (['wing::red', 'wing::blue'], [0, 1], [1, 0])
    """
    check_whole("rows_per_group", rows_per_group, 1)
    attributes = different_names("attribute_names", attribute_names)
    birds = different_names("bird_names", bird_names)
    folder = check_path("out", out) / FOLDER
    path = folder / FILE
    if path.exists() and not overwrite:
        raise FileExistsError(f"Expected argument `out` to name a new folder but {path} is there.")
    schema = schema_of([name.replace(OFFICIAL, SEPARATOR) for name in attributes], birds, licence)
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    rows = _rows(progress(samples, "writing", unit="image", show=display_progressbar), attributes, birds)
    # With the first image, so that a call that fails before leaves nothing.
    if (first := next(rows, None)) is None:
        raise ValueError("Expected argument `samples` to give at least one image but it is empty.")
    folder.mkdir(parents=True, exist_ok=True)
    clear_abandoned(folder)
    following = itertools.chain([first], rows)
    with write_atomically(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        while group := list(itertools.islice(following, rows_per_group)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
    return path


def _rows(
    samples: Iterable[tuple[Picture, str, str]], attributes: list[str], birds: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield samples as rows of the file."""
    for image, attribute, bird in samples:
        check_choice("samples", attribute, attributes)
        check_choice("samples", bird, birds)
        content = {"bytes": _content(image), "path": None}
        yield {IMAGE: content, ATTRIBUTE: attributes.index(attribute), BIRD: birds.index(bird)}


def _content(image: Picture) -> bytes:
    """Return the bytes of an image file."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, str | Path):
        path = check_path("samples", image)
        check_plain_file(path, "Image")
        return path.read_bytes()
    if isinstance(image, Tensor):
        check_axes(samples=(image, "3 H W"))
        image = Image.fromarray((image * 255).round().clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy())
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()
