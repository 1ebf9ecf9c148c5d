"""Columnar decoder: splits many blocks of MQTT properties at once with numpy.

The blocks are ranges of one buffer. Each step reads one property of every block that has one left,
so the number of steps is that of the longest block's properties, not the number of blocks. Results
are positions in the buffer; nothing is copied.

A block that does not have the form a node writes is flagged odd and left to the full decoder:
properties in another order or of another kind, lengths that do not fit, more user properties than
MAX_STEPS. UTF-8 is not checked here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from accord.pipeline.msgpack_fields import Flags, Places, TextSlices

MAX_STEPS: Final = 64
_PAYLOAD_FORMAT: Final = 1
_CONTENT_TYPE: Final = 3
_RESPONSE_TOPIC: Final = 8
_CORRELATION_DATA: Final = 9
_USER: Final = 38


class PropertyBlocks:
    """Contents of the blocks in `data`, which is padded after the last of them.

    User properties are `names` and `values`, of equal number.
    """

    def __init__(self, data: bytes, places: TextSlices) -> None:
        self._bytes = np.frombuffer(data, np.uint8)
        self._at = places.starts.copy()
        self._stop = places.ends
        self.is_odd: Flags = np.zeros(len(self._at), np.bool_)
        self._skip_flag()
        self.content_types = self._take(_CONTENT_TYPE)
        self.response_topics = self._take(_RESPONSE_TOPIC)
        self._take(_CORRELATION_DATA)
        self.names, self.values = self._take_pairs()

    def _having(self, number: int) -> Places:
        """The blocks whose next property is this one."""
        return np.flatnonzero((self._bytes[self._at] == number) & (self._at < self._stop))

    def _skip_flag(self) -> None:
        rows = self._having(_PAYLOAD_FORMAT)
        at = self._at[rows]
        self.is_odd[rows] |= (self._bytes[at + 1] > 1) | (at + 2 > self._stop[rows])
        self._at[rows] = np.minimum(at + 2, self._stop[rows])

    def _take(self, number: int) -> TextSlices:
        """Read the text or data of this property."""
        rows = self._having(number)
        starts = self._at[rows] + 3
        ends = starts + self._length(starts - 2)
        stops = self._stop[rows]
        self.is_odd[rows] |= ends > stops
        ends = np.minimum(ends, stops)
        self._at[rows] = ends
        return TextSlices(rows, np.minimum(starts, ends), ends)

    def _take_pairs(self) -> tuple[TextSlices, TextSlices]:
        found: list[tuple[Places, Places, Places, Places]] = []
        data = self._bytes
        rows = np.flatnonzero((self._at < self._stop) & ~self.is_odd)
        at, stop = self._at[rows], self._stop[rows]
        for _ in range(MAX_STEPS):
            if not len(rows):
                break
            middle = np.minimum(at + 3 + self._length(at + 1), stop)
            last = middle + 2 + self._length(middle)
            is_fine = (data[at] == _USER) & (last <= stop)
            if not is_fine.all():
                self.is_odd[rows[~is_fine]] = True
                rows, at, stop = rows[is_fine], at[is_fine], stop[is_fine]
                middle, last = middle[is_fine], last[is_fine]
            found.append((rows, at, middle, last))
            is_left = last < stop
            rows, at, stop = rows[is_left], last[is_left], stop[is_left]
        self.is_odd[rows] = True
        return self._in_order(found)

    def _length(self, places: Places) -> Places:
        high = self._bytes[places].astype(np.int64)
        return (high << 8) | self._bytes[places + 1]

    def _in_order(
        self, found: list[tuple[Places, Places, Places, Places]]
    ) -> tuple[TextSlices, TextSlices]:
        """Results of all steps in row order, without partial ones of odd blocks."""
        if not found:
            none: Places = np.zeros(0, np.int64)
            return TextSlices(none, none, none), TextSlices(none, none, none)
        rows, at, middle, last = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        if self.is_odd.any():
            order = order[~self.is_odd[rows[order]]]
        rows, at, middle, last = rows[order], at[order], middle[order], last[order]
        return TextSlices(rows, at + 3, middle), TextSlices(rows, middle + 2, last)
