"""Writing substitutions in SUB's own Parquet format."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from captum_concepts._support.checks import as_list, check_choice, check_path, check_shape
from captum_concepts._support.constraints import TEXT, Flag, Items, Location, Whole, check_arguments
from captum_concepts._support.files import check_plain_file, clear_abandoned, written
from captum_concepts._support.progress import progress
from quantus_concepts.datasets.substitution.sub_files import (
    ATTRIBUTE,
    BIRD,
    FOLDER,
    IMAGE,
    OFFICIAL,
    SEPARATOR,
    arrow,
    schema_of,
)

FILE = "test-00000-of-00001.parquet"


@check_arguments(
    out=Location(),
    attribute_names=Items(TEXT, "names", least=1),
    bird_names=Items(TEXT, "names", least=1),
    licence=TEXT,
    rows_per_group=Whole(1),
    overwrite=Flag(),
    display_progressbar=Flag(),
)
def write_sub(
    samples: Iterable[tuple[Any, str, str]],
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
    TypeError
        If an image is none.
    ValueError
        If pyarrow is missing, a name is unknown, or there is no image.

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
    if isinstance(samples, str | bytes) or not isinstance(samples, Iterable):
        raise TypeError(
            f"Expected argument `samples` to give (image, attribute, bird) but got {type(samples).__name__}."
        )
    attributes, birds = (
        _names(name, value) for name, value in (("attribute_names", attribute_names), ("bird_names", bird_names))
    )
    folder = Path(out) / FOLDER
    path = folder / FILE
    if path.exists() and not overwrite:
        raise FileExistsError(f"Expected argument `out` to name a new folder but {path} is there. Choose another one.")
    schema = schema_of([name.replace(OFFICIAL, SEPARATOR) for name in attributes], birds, licence)
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    rows = _rows(progress(samples, "writing", unit="image", show=display_progressbar), attributes, birds)
    # With the first image, so that a call that fails before leaves nothing.
    if (first := next(rows, None)) is None:
        raise ValueError("Expected argument `samples` to give at least one image but it is empty.")
    folder.mkdir(parents=True, exist_ok=True)
    clear_abandoned(folder)
    following = itertools.chain([first], rows)
    with written(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        while group := list(itertools.islice(following, rows_per_group)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
    return path


def _rows(samples: Iterable[Any], attributes: list[str], birds: list[str]) -> Iterator[dict[str, Any]]:
    """Yield samples as rows of the file."""
    for image, attribute, bird in samples:
        check_choice("samples", attribute, attributes)
        check_choice("samples", bird, birds)
        content = {"bytes": _content(image), "path": None}
        yield {IMAGE: content, ATTRIBUTE: attributes.index(attribute), BIRD: birds.index(bird)}


def _names(name: str, value: Any) -> list[str]:
    names = as_list(name, value, "names")
    if not names or len(set(names)) != len(names) or not all(isinstance(each, str) and each for each in names):
        raise ValueError(f"Expected argument `{name}` to hold different names but got {names!r:.80}.")
    return names


def _content(image: Any) -> bytes:
    """Return the bytes of an image file."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, str | Path):
        path = check_path("samples", image)
        check_plain_file(path, "Image")
        return path.read_bytes()
    if isinstance(image, Tensor):
        check_shape("samples", image, ("3", "H", "W"), (3, None, None))
        image = Image.fromarray((image * 255).round().clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy())
    if not isinstance(image, Image.Image):
        raise TypeError(f"Expected argument `samples` to give images but got {type(image).__name__}.")
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()
