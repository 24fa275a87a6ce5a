"""Parquet files of strangers, opened with limits on what they become."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from captum_concepts.lazy import check_extra
from captum_concepts.support.files import check_plain_file, reason_of
from quantus_concepts.datasets.pages import unpacked_sizes

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

#: Of a file, and of the columns of a row group once they are unpacked. SUB has 38,400 rows in all; a row group of
#: images usually has a hundred.
MAX_ROWS, MAX_BYTES = 1_000_000, 2**28
#: Rows read at a time, of labels and texts.
BATCH = 2**16


def arrow(module: str = "pyarrow") -> ModuleType:
    """Import a module of the package that reads Parquet, or say how to get it."""
    check_extra("pyarrow", "sub", "A Parquet file")
    return importlib.import_module(module)


def check_pages(path: Path, file: ParquetFile, group: int, names: Sequence[str]) -> None:
    """Raise if the pages of columns are too large, before they are unpacked; sizes in the footer may be wrong."""
    about = file.metadata.row_group(group)
    total = 0
    with path.open("rb") as pages:
        for column in map(about.column, range(about.num_columns)):
            if column.path_in_schema in names:
                # Without a dictionary its place is 0 or None.
                start = min(place for place in (column.dictionary_page_offset, column.data_page_offset) if place)
                for size in unpacked_sizes(pages, start, start + column.total_compressed_size):
                    total += size
                    if total > MAX_BYTES:
                        raise ValueError(f"the {names[0]} of row group {group} unpack to more than {MAX_BYTES:,} bytes")


@contextmanager
def open_parquet(path: Path, dictionaries: Sequence[str] = ()) -> Iterator[ParquetFile]:
    """Open a Parquet file for a block that reads it; a ValueError with its path, whatever goes wrong in there."""
    parquet = arrow("pyarrow.parquet")
    check_plain_file(path, "Parquet file")
    try:
        with parquet.ParquetFile(path, read_dictionary=[*dictionaries]) as file:
            yield file
    except Exception as error:  # a damaged file fails in any way
        raise ValueError(f"Parquet file {path} cannot be read ({reason_of(error)}).") from error
