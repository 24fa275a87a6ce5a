"""Sizes of the pages of a Parquet column, as their headers give them; pyarrow allocates what they say, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

#: Bytes of the longest header: it may hold the smallest and the largest value of its page.
MAX_HEADER = 2**20
#: Places of the sizes in a page header, of Thrift's compact protocol.
_UNPACKED, _PACKED = 2, 3
#: Kinds of fields: truth values, a byte, numbers, text, and a header within the header.
_STOP, _TRUE, _FALSE, _BYTE, _NUMBERS, _DOUBLE, _TEXT, _STRUCT = 0, 1, 2, 3, (4, 5, 6), 7, 8, 12


def unpacked_sizes(file: BinaryIO, start: int, end: int) -> Iterator[int]:
    """Yield how many bytes each page between two places of a file takes once it is unpacked."""
    while start < end:
        file.seek(start)
        header = _Header(file.read(MAX_HEADER))
        numbers = header.read_fields()
        if numbers[_UNPACKED] < 0 or numbers[_PACKED] < 0:
            raise ValueError("a page has a negative size")
        yield numbers[_UNPACKED]
        start += header.place + numbers[_PACKED]


class _Header:
    """Bytes of a header, read from the front."""

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def read_fields(self) -> dict[int, int]:
        """Return the numbers among the fields of a header by their places; skip what else it holds."""
        numbers: dict[int, int] = {}
        field = 0
        while (kind := self._byte()) & 15 != _STOP:
            step, kind = kind >> 4, kind & 15
            field = field + step if step else self._number()
            if kind in _NUMBERS:
                numbers[field] = self._number()
            elif kind == _STRUCT:
                self.read_fields()
            elif kind == _TEXT:
                length = self._varint()
                self.place += length
            elif kind in (_BYTE, _DOUBLE):
                self.place += 1 if kind == _BYTE else 8
            elif kind not in (_TRUE, _FALSE):
                raise ValueError("a page header holds something unknown")
        return numbers

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _varint(self) -> int:
        value, shift = 0, 0
        while (byte := self._byte()) > 127:
            value, shift = value | (byte & 127) << shift, shift + 7
            if shift > 63:
                raise ValueError("a page header holds a number that is too large")
        return value | byte << shift

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
