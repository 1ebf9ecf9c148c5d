"""Columnar decoder: reads the fields of many msgpack records in parallel with numpy.

Each step reads one field of all records and yields numbers, or positions in the buffer. A record
that is not in the usual form is flagged odd, and its results are invalid.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from accord.journal.events import KeptEvent

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# A record starts with an array header with the number of items; the first item is its kind.
_ARRAY: Final = 0x90
_HEAD: Final = b"\0\xa5event"
_HEAD_WORD: Final = np.uint64(int.from_bytes(_HEAD, "little"))
_HEAD_BITS: Final = np.uint64((1 << 8 * len(_HEAD)) - 0x100)
# Fields added later: records may lack them.
ADDED: Final = [field.type for field in msgspec.structs.fields(KeptEvent)[8:]]
FEWEST: Final = 9
_FALSE: Final = 0xC2
_NUMBERS: Final = {  # by type byte: size in bytes, and whether signed
    0xCC: (1, False), 0xCD: (2, False), 0xCE: (4, False), 0xCF: (8, False),
    0xD0: (1, True), 0xD1: (2, True), 0xD2: (4, True), 0xD3: (8, True),
}  # fmt: skip
_IS_NUMBER: Final = np.isin(np.arange(256), list(_NUMBERS))
_SHORT: Final = 0xA0 >> 5
TEXT: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
BINARY: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}


class TextSlices:
    """Ranges of a buffer, with the row each belongs to."""

    def __init__(self, rows: Places, starts: Places, ends: Places) -> None:
        self.rows = rows
        self.starts = starts
        self.ends = ends


class MsgpackFields:
    """A cursor over the fields of many records in parallel; `at` is its position in each."""

    def __init__(self, data: bytes, starts: Places, ends: Places) -> None:
        self._bytes = np.frombuffer(data, np.uint8)
        # Overlapping 8-byte words at each position: one step instead of eight.
        self._words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))
        self._ends = ends
        words = self._words[starts]
        is_event: Flags = words & _HEAD_BITS == _HEAD_WORD
        marks = (words & np.uint64(0xFF)).astype(np.int64)
        # The most frequent number of items; nearly all records have the same writer version.
        usual = int(np.argmax(np.bincount(marks[is_event], minlength=1)))
        self.items = min(max(usual - _ARRAY, FEWEST), FEWEST + len(ADDED))
        self.is_irregular: Flags = ~is_event | (marks != self.items + _ARRAY)
        self.at = starts
        self._seek(starts + len(_HEAD))

    def integers(self) -> Places:
        marks = self._bytes[self.at]
        numbers = marks.astype(np.int64)
        numbers[marks >= 0xE0] -= 256
        sizes = np.ones(len(marks), np.int64)
        self.is_irregular |= (marks >= 0x80) & (marks < 0xE0) & ~_IS_NUMBER[marks]
        for mark, (width, is_signed) in _NUMBERS.items():
            rows = np.flatnonzero(marks == mark)
            if len(rows):
                found = self._read(self.at[rows] + 1, width)
                sizes[rows] += width
                if is_signed:
                    rest = 64 - 8 * width
                    numbers[rows] = (found << np.uint64(rest)).view(np.int64) >> rest
                else:
                    numbers[rows] = found.view(np.int64)
                    self.is_irregular[rows] |= numbers[rows] < 0  # beyond 63 bits
        self._seek(self.at + sizes)
        return numbers

    def skip(self, kind: object) -> None:
        """Skip a number or a boolean."""
        if kind is bool:
            self.is_irregular |= self._bytes[self.at] & 0xFE != _FALSE
            self._seek(self.at + 1)
        else:
            self.integers()

    def pieces(self, widths: dict[int, int]) -> TextSlices:
        """Ranges of texts or binary data; a short text has its length in its type byte."""
        marks = self._bytes[self.at]
        starts = self.at + 1
        lengths = (marks & 31).astype(np.int64)
        is_known: Flags = (marks >> 5 == _SHORT) & (widths is TEXT)
        for mark, width in widths.items():
            rows = np.flatnonzero(marks == mark)
            if len(rows):
                lengths[rows] = self._read(starts[rows], width)
                starts[rows] += width
                is_known[rows] = True
        self.is_irregular |= ~is_known
        starts = np.minimum(starts, self._ends)
        self._seek(starts + lengths)
        return TextSlices(np.arange(len(starts)), starts, self.at)

    def _read(self, places: Places, width: int) -> npt.NDArray[np.uint64]:
        """Read big-endian numbers of this many bytes."""
        return self._words[places].byteswap() >> np.uint64(64 - 8 * width)

    def _seek(self, places: Places) -> None:
        self.is_irregular |= places > self._ends
        self.at = np.minimum(places, self._ends)
