"""Columnar decoder of the MQTT properties of many kept events.

Attributes are entries: their row, and indices into the distinct names and distinct values. Arrow
finds equal texts, and each distinct one is parsed once. What the fast path can't handle takes the
slow path, `KeptEvent.event`, and joins the same entries: XML metadata, properties in an unusual
order, repeated names, texts that do not parse as their type.

`PropertyBlocks` splits many blocks of properties at once with numpy. The blocks are ranges of one
buffer. Each step reads one property of every block that has one left, so the number of steps is
that of the longest block's properties, not the number of blocks. Results are positions in the
buffer; nothing is copied.

A block that does not have the form a node writes is flagged odd and left to the full decoder:
properties in another order or of another kind, lengths that do not fit, more user properties than
MAX_STEPS. UTF-8 is not checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from accord.core.model.channels import problem_with_channel
from accord.core.model.document import Document
from accord.core.model.event import MAX_PAYLOAD, problem_with_name
from accord.core.model.values import INTEGER_MAX, Value
from accord.core.mqtt.event_mapping import DEADLINE, KEY, METADATA
from accord.core.mqtt.properties import read_block
from accord.pipeline.decode.dictionary_columns import DictionaryColumn, inferred, value_structs
from accord.pipeline.decode.msgpack_fields import Flags, Places, TextSlices
from accord.pipeline.decode.scan import ScannedEvents
from accord.pipeline.tables import ATTRIBUTES_TYPE, LAST_MS

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
        self.is_irregular: Flags = np.zeros(len(self._at), np.bool_)
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
        self.is_irregular[rows] |= (self._bytes[at + 1] > 1) | (at + 2 > self._stop[rows])
        self._at[rows] = np.minimum(at + 2, self._stop[rows])

    def _take(self, number: int) -> TextSlices:
        """Read the text or data of this property."""
        rows = self._having(number)
        starts = self._at[rows] + 3
        ends = starts + self._length(starts - 2)
        stops = self._stop[rows]
        self.is_irregular[rows] |= ends > stops
        ends = np.minimum(ends, stops)
        self._at[rows] = ends
        return TextSlices(rows, np.minimum(starts, ends), ends)

    def _take_pairs(self) -> tuple[TextSlices, TextSlices]:
        found: list[tuple[Places, Places, Places, Places]] = []
        data = self._bytes
        rows = np.flatnonzero((self._at < self._stop) & ~self.is_irregular)
        at, stop = self._at[rows], self._stop[rows]
        for _ in range(MAX_STEPS):
            if not len(rows):
                break
            middle = np.minimum(at + 3 + self._length(at + 1), stop)
            last = middle + 2 + self._length(middle)
            is_fine = (data[at] == _USER) & (last <= stop)
            if not is_fine.all():
                self.is_irregular[rows[~is_fine]] = True
                rows, at, stop = rows[is_fine], at[is_fine], stop[is_fine]
                middle, last = middle[is_fine], last[is_fine]
            found.append((rows, at, middle, last))
            is_left = last < stop
            rows, at, stop = rows[is_left], last[is_left], stop[is_left]
        self.is_irregular[rows] = True
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
        if self.is_irregular.any():
            order = order[~self.is_irregular[rows[order]]]
        rows, at, middle, last = rows[order], at[order], middle[order], last[order]
        return TextSlices(rows, at + 3, middle), TextSlices(rows, middle + 2, last)


_MANY_NAMES: Final = 32
_MAX_EXPIRY_S: Final = INTEGER_MAX // 1000


class PropertyColumns:
    """Property columns of `events`; rows that are `bad` have no others."""

    def __init__(self, events: ScannedEvents) -> None:
        count = len(events)
        self.bad: Flags = np.zeros(count, np.bool_)
        self.keys = DictionaryColumn(count)
        self.deadlines = DictionaryColumn(count)
        self.content_types = DictionaryColumn(count)
        self.documents: dict[int, Document] = {}
        self.names: list[str] = []
        self.values: list[Value] = []
        self.rows: Places = np.zeros(0, np.int64)
        self.name_of: Places = self.rows
        self.value_of: Places = self.rows
        self._events = events
        odd = self._read_fast(PropertyBlocks(events.data, events.blocks))
        if odd.any():
            self._read_slow(np.flatnonzero(odd))

    def attributes(self, but: Flags | None = None) -> pa.Array:
        """The map of all entries except those in `but`."""
        rows, names, values = self.rows, self.name_of, self.value_of
        if but is not None and but.any():
            rows, names, values = rows[~but], names[~but], values[~but]
        counts = np.bincount(rows, minlength=len(self.bad))
        ends = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        mask = np.append(self.bad, False)
        keys = pa.array(self.names, pa.string()).take(pa.array(names))
        items = value_structs(self.values).take(pa.array(values))
        offsets = pa.array(ends, mask=mask if mask.any() else None)
        return pa.MapArray.from_arrays(offsets, keys, items, ATTRIBUTES_TYPE)

    def column(
        self, name: str, hold: Callable[[Value], Value | None]
    ) -> tuple[DictionaryColumn, Flags]:
        """The attribute `name` where `hold` returns a value, and the entries used for it.

        `hold` is called once for each distinct value.
        """
        found = DictionaryColumn(len(self.bad))
        taken: Flags = np.zeros(len(self.rows), np.bool_)
        if name not in self.names:
            return found, taken
        of_name = np.flatnonzero(self.name_of == self.names.index(name))
        is_used: Flags = np.zeros(len(self.values), np.bool_)
        is_used[self.value_of[of_name]] = True
        used = np.flatnonzero(is_used)
        place: Places = np.zeros(len(self.values), np.int64)
        place[used] = np.arange(len(used))
        held = [hold(self.values[index]) for index in used.tolist()]
        which = place[self.value_of[of_name]]
        is_held = np.fromiter((value is not None for value in held), np.bool_, len(held))[which]
        found.put_all(self.rows[of_name[is_held]], held, which[is_held])
        taken[of_name[is_held]] = True
        return found, taken

    # Fast path.

    def _read_fast(self, blocks: PropertyBlocks) -> Flags:
        """Decode all rows except odd ones; returns which are odd."""
        odd = blocks.is_irregular
        different = self._events.different
        self._check_rows(odd)
        self._read_content_types(blocks, odd)
        entries = blocks.names
        name_of, names = different(entries)
        value_of, texts = different(blocks.values)
        is_name = np.array([_is_attribute(name) for name in names], np.bool_)
        is_text = np.array([text is not None and "\0" not in text for text in texts], np.bool_)
        if len(entries.rows):
            odd[entries.rows[~(is_name[name_of] & is_text[value_of])]] = True
            odd[_repeated(entries.rows, name_of, len(names))] = True
        self.names = [name or "" for name in names]
        values = [text or "" for text in texts]
        rows = entries.rows
        is_plain: Flags = ~odd[rows]
        for name, read in ((KEY, self._read_keys), (DEADLINE, self._read_deadlines)):
            if name in self.names:
                mine = name_of == self.names.index(name)
                read(rows[mine & is_plain], value_of[mine & is_plain], values, odd)
                is_plain = ~odd[rows] & ~mine & is_plain
        is_plain &= ~odd[rows]
        if not is_plain.all():
            rows, name_of, value_of = rows[is_plain], name_of[is_plain], value_of[is_plain]
        self.rows, self.name_of, self.value_of = rows, name_of, value_of
        self.values = inferred(values)
        return odd

    def _check_rows(self, odd: Flags) -> None:
        """Check an event's other fields."""
        events = self._events
        expiries = events.expiry_s
        odd |= expiries > _MAX_EXPIRY_S
        expiring = np.flatnonzero((expiries >= 0) & ~odd)
        if len(expiring):
            found, which = np.unique(expiries[expiring], return_inverse=True)
            self.deadlines.put_all(expiring, (found * 1000).tolist(), which)
        odd |= (events.received_ms < 0) | (events.received_ms > LAST_MS)
        odd |= events.payloads.ends - events.payloads.starts > MAX_PAYLOAD
        for (which, texts), problem in (
            (events.channel_names, problem_with_channel),
            (events.publisher_names, problem_with_name),
        ):
            is_bad = np.array([bool(problem(text or "")) for text in texts], np.bool_)
            if is_bad.any():
                odd |= is_bad[which]

    def _read_content_types(self, blocks: PropertyBlocks, odd: Flags) -> None:
        which, texts = self._events.different(blocks.content_types)
        rows = blocks.content_types.rows
        is_text = np.array([text is not None and "\0" not in text for text in texts], np.bool_)
        if len(rows):
            odd[rows[~is_text[which]]] = True
            self.content_types.put_all(rows, texts, which)
        rows = blocks.response_topics.rows
        which, texts = self._events.different(blocks.response_topics)
        if len(rows):
            is_topic = np.array([_is_topic(text) for text in texts], np.bool_)
            odd[rows[~is_topic[which]]] = True

    def _read_keys(self, rows: Places, which: Places, texts: list[str], odd: Flags) -> None:
        used, place = np.unique(which, return_inverse=True)
        keys = [texts[index] for index in used.tolist()]
        is_key = np.array([problem_with_name(key) is None for key in keys], np.bool_)
        odd[rows[~is_key[place]]] = True
        self.keys.put_all(rows, keys, place)

    def _read_deadlines(self, rows: Places, which: Places, texts: list[str], odd: Flags) -> None:
        used, place = np.unique(which, return_inverse=True)
        deadlines = [_deadline_ms(texts[index]) for index in used.tolist()]
        is_one = np.array([each is not None for each in deadlines], np.bool_)
        odd[rows[~is_one[place]]] = True
        self.deadlines.put_all(rows, deadlines, place)

    # Slow path.

    def _read_slow(self, rows: Places) -> None:
        names = {name: index for index, name in enumerate(self.names)}
        entries: list[tuple[int, int, int]] = []
        for column in (self.keys, self.deadlines, self.content_types):
            column.index[rows] = -1
        for row in rows.tolist():
            values = self._read_one(row)
            for name, value in values.items():
                entries.append((row, names.setdefault(name, len(names)), len(self.values)))
                self.values.append(value)
        self.names = list(names)
        if not entries:
            return
        more = np.array(entries, np.int64).T
        joined = np.concatenate((np.array((self.rows, self.name_of, self.value_of)), more), axis=1)
        order = np.argsort(joined[0], kind="stable")
        self.rows, self.name_of, self.value_of = joined[:, order]

    def _read_one(self, row: int) -> dict[str, Value]:
        """Decode one event's values; none if it is bad."""
        record = self._events.record(row)
        try:
            event = record.event()
            self.content_types.put(row, read_block(record.attributes).content_type)
        except MemoryError:
            raise
        except Exception:  # whatever is wrong with it, the others must be kept
            self.bad[row] = True
            return {}
        self.keys.put(row, event.key)
        self.deadlines.put(row, event.deadline_ms)
        if event.metadata is not None:
            self.documents[row] = event.metadata
        return dict(event.values)


def _repeated(rows: Places, name_of: Places, names: int) -> Places:
    """The rows that repeat a name."""
    if names <= _MANY_NAMES:  # a bit for each: sum and union differ if one is repeated
        begins = np.flatnonzero(np.diff(rows, prepend=-1))
        bits = np.left_shift(1, name_of)
        is_twice = np.add.reduceat(bits, begins) != np.bitwise_or.reduceat(bits, begins)
        return np.asarray(rows[begins[is_twice]])
    pairs, times = np.unique(rows * names + name_of, return_counts=True)
    return np.asarray(pairs[times > 1] // names)


def _is_attribute(name: str | None) -> bool:
    """An attribute, or one of the two other properties that the fast path supports."""
    return bool(name) and name != METADATA and problem_with_name(name or "") is None


def _is_topic(text: str | None) -> bool:
    return bool(text) and not any(sign in (text or "") for sign in "+#\0")


def _deadline_ms(text: str) -> int | None:
    is_short = text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) if is_short else None
