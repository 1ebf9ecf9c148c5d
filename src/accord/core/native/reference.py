"""Reference implementation of `frames.c` in Python: its specification, and the fallback.

A *frame* is one PUBLISH of QoS 0 or 1. It is *clean* if it can be forwarded undecoded: its topic is
known, it is neither retained nor a duplicate, and its properties are well-formed and of the kinds
forwarded unchanged. A scan ends before the first packet that is not a clean frame; the caller
decodes that packet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_FORMAT: Final = 0x01
_EXPIRY: Final = 0x02
_CONTENT_TYPE: Final = 0x03
_IDENTIFIER: Final = 0x0B
_ALIAS: Final = 0x23
_USER: Final = 0x26
# Bytes after the identifier of fixed-size properties, and number of strings in others.
_FIXED: Final = {_FORMAT: 1, _EXPIRY: 4, _ALIAS: 2}
_TEXTS: Final = {_CONTENT_TYPE: 1, 0x08: 1, 0x09: 1, _USER: 2}
_CLEAN: Final = (_FORMAT, _EXPIRY, _CONTENT_TYPE, _ALIAS, _USER)
_MAX_PAIRS: Final = 256
_MAX_NAME: Final = 256
_SPECIAL: Final = (b"key", b"deadline-ms", b"metadata")
_OWN: Final = b"accord-"
_NO_ACK: Final = 255
_MAX_BODY: Final = 268_435_455


class _Scanned(NamedTuple):
    start: int
    end: int
    topic: bytes
    block: int
    payload: int
    expiry_s: int
    packet_id: int
    alias: int


class _Parts(NamedTuple):
    """A frame split into its parts."""

    qos: int
    topic: bytes
    packet_id: int
    block: bytes
    payload: bytes


class Frames:
    """The clean frames of one read, each with a label for its receivers.

    `ways` is what each label denotes. `end` is where the frames end in `data`; `wanted` is the size
    of the following packet if it is incomplete, and 0 if it is complete or its size unknown.
    """

    def __init__(self, data: bytes, is_v5: bool, qos: int) -> None:
        self.data = data
        self.is_v5 = is_v5
        self.qos = qos
        self.ways: list[Any] = []
        self.count = 0
        self.start = 0
        self.end = 0
        self.wanted = 0
        # Plain means one label, no aliases and no expiries.
        self._is_plain = True
        # Repeated headers not yet expanded: the first frame, its label, and how many of its size.
        self._repeated: list[tuple[_Scanned, int, int]] = []
        self._expanded: list[tuple[_Scanned, int]] = []

    def _add(self, frame: _Scanned, label: int, count: int) -> None:
        """Add `count` frames of the same size and header that follow each other."""
        self._repeated.append((frame, label, count))
        self.count += count
        if label or frame.alias or frame.expiry_s >= 0:
            self._is_plain = False

    def _frames(self) -> list[tuple[_Scanned, int]]:
        """Every frame with its label."""
        for frame, label, count in self._repeated:
            self._expanded.append((frame, label))
            size = frame.end - frame.start
            for moved in range(size, size * count, size):
                places = (frame.start + moved, frame.end + moved, frame.topic)
                blocks = (frame.block + moved, frame.payload + moved)
                self._expanded.append((_Scanned(*places, *blocks, *frame[5:]), label))
        self._repeated = []
        return self._expanded

    def take(self, parts: bytes) -> tuple[bytes, bytes, int]:
        """Frames of the labels whose byte in `parts` is not 0; these bytes; the smallest expiry.

        Labels beyond `parts` have 0. Topics replace aliases. The expiry is -1 if no frame has one.
        """
        if self._is_plain:
            one = parts[:1].replace(b"\0", b"")
            return self.data[self.start : self.end] if one else b"", one * self.count, -1
        taken: list[bytes] = []
        marks = bytearray()
        least = -1
        for frame, label in self._frames():
            mark = parts[label] if label < len(parts) else 0
            if mark:
                marks.append(mark)
                taken.append(self._written(frame))
                if frame.expiry_s >= 0 and (least < 0 or frame.expiry_s < least):
                    least = frame.expiry_s
        return b"".join(taken), bytes(marks), least

    def spans(self, label: int) -> bytes:
        """Offsets of the properties of this label's frames: pairs of native 32-bit numbers."""
        return b"".join(struct.pack("=II", frame.block, frame.payload) for frame in self._of(label))

    def relabel(self, label: int, which: Any, ways: list[Any]) -> int:
        """Relabel the frames with `label`: first free label plus each frame's number in `which`.

        `ways` is what the new labels denote. Returns the first of them.
        """
        octets = bytes(which)
        steps = [step for (step,) in struct.iter_unpack("=I", octets[: len(octets) // 4 * 4])]
        first = len(self.ways)
        frames = self._frames()
        places = [place for place, (_, each) in enumerate(frames) if each == label]
        is_known = 0 <= label < first and len(octets) == 4 * len(places)
        if not is_known or any(step >= len(ways) for step in steps):
            raise ValueError("relabel: expected a number below that of the ways for each frame")
        self.ways += ways
        self._is_plain = False
        for place, step in zip(places, steps, strict=True):
            frames[place] = (frames[place][0], first + step)
        return first

    def piece(self, label: int, first: int, count: int) -> Frames:
        """At most `count` frames with this label, from the `first` on, with label 0."""
        found = self._of(label)[first : first + count] if first >= 0 and count > 0 else []
        if label < 0 or not found:
            raise ValueError("piece: expected frames of a label")
        made = Frames(self.data, self.is_v5, self.qos)
        made.ways = [self.ways[label]]
        made.start = found[0].start
        made.end = found[-1].end
        for frame in found:
            made._add(frame, 0, 1)
        # Frames of other labels may be in between.
        made._is_plain = False
        return made

    def sizes(self) -> list[tuple[int, int]]:
        """The number of frames and bytes of each label."""
        counts, sums = [0] * len(self.ways), [0] * len(self.ways)
        for frame, label in self._frames():
            counts[label] += 1
            sums[label] += frame.end - frame.start
        return list(zip(counts, sums, strict=True))

    def places(self, label: int) -> list[tuple[int, int]]:
        """Start and end offsets in `data` of the frames with this label."""
        return [(frame.start, frame.end) for frame in self._of(label)]

    def acks(self, codes: bytes) -> bytes:
        """The PUBACKs of QoS 1 frames, with the reason code of their label; 255 means no PUBACK."""
        acks: list[bytes] = []
        for frame, label in self._frames():
            code = codes[label] if label < len(codes) else _NO_ACK
            if code != _NO_ACK:
                packet_id = frame.packet_id.to_bytes(2, "big")
                has_code = code and self.is_v5
                acks.append(
                    b"\x40\x03" + packet_id + bytes((code,))
                    if has_code
                    else b"\x40\x02" + packet_id
                )
        return b"".join(acks)

    def _of(self, label: int) -> list[_Scanned]:
        return [frame for frame, each in self._frames() if each == label]

    def _written(self, frame: _Scanned) -> bytes:
        if not frame.alias:
            return self.data[frame.start : frame.end]
        block = self.data[frame.block : frame.payload]
        block = b"".join(
            block[start:end] for start, end in _properties(block) if block[start] != _ALIAS
        )
        payload = self.data[frame.payload : frame.end]
        return _frame(_Parts(self.qos, frame.topic, frame.packet_id, block, payload), self.is_v5)


def scan(  # noqa: PLR0913, PLR0917 - as the extension has it
    data: bytes,
    start: int,
    is_v5: bool,
    limit: int,
    topics: dict[bytes, Any],
    aliases: dict[int, bytes],
) -> Frames | None:
    """The clean frames of one QoS from `start` to the first other packet; None without any.

    `topics` maps length-prefixed topics to what they denote, `aliases` maps aliases to topics; a
    packet has at most `limit` bytes.
    """
    if start < 0 or limit < 0:
        raise ValueError("scan: expected a start and a limit that are not negative")
    if start >= len(data) or data[start] not in (0x30, 0x32):
        return None
    frames = Frames(data, is_v5, data[start] >> 1 & 3)
    labels: dict[bytes, int] = {}
    at = start
    while len(data) - at >= 2 and data[at] == data[start]:
        length, body = _varint(data, at + 1, len(data))
        end = body + length
        if body < 0 or end - at > limit:
            break
        if end > len(data):
            frames.wanted = end - at
            break
        found = _scanned(frames, at, body, end, aliases)
        if found is None or found.topic not in topics:
            break
        label = labels.get(found.topic)
        if label is None:
            label = labels[found.topic] = len(frames.ways)
            frames.ways.append(topics[found.topic])
        count = 1
        size = end - at
        if found.block == found.payload and not found.packet_id:
            # Headers without properties and identifiers are compared, not read again.
            head = data[at : found.payload]
            while data.startswith(head, end) and end + size <= len(data):
                count += 1
                end += size
        frames._add(found, label, count)
        at = end
    frames.start = start
    frames.end = at
    return frames if frames.count else None


def single(data: bytes, is_v5: bool, topics: dict[bytes, Any]) -> tuple[Any, int, int] | None:
    """For a single clean frame without alias: its entry in `topics`, expiry, packet identifier.

    The expiry is -1 if there is none, the packet identifier 0 at QoS 0. None for any other `data`.
    """
    frames = scan(data, 0, is_v5, len(data), topics, {})
    if frames is None or frames.end != len(data) or frames.count != 1:
        return None
    frame, _ = frames._frames()[0]
    return frames.ways[0], frame.expiry_s, frame.packet_id


def _scanned(
    frames: Frames, start: int, body: int, end: int, aliases: dict[int, bytes]
) -> _Scanned | None:
    """A frame that is clean except that its topic may be unknown."""
    data = frames.data
    topic_end = body + 2 + int.from_bytes(data[body : body + 2], "big")
    at = topic_end + (2 if frames.qos else 0)
    if end - body < 2 or at + frames.is_v5 > end:
        return None
    packet_id = int.from_bytes(data[topic_end:at], "big")
    if frames.qos and packet_id == 0:
        return None
    payload, expiry_s, alias = at, -1, 0
    if frames.is_v5:
        length, at = _varint(data, at, end)
        payload = at + length
        if at < 0 or payload > end:
            return None
        checked = _checked(data[at:payload])
        if checked is None:
            return None
        expiry_s, alias = checked
    topic = data[body:topic_end]
    if (len(topic) == 2) != (alias > 0):
        return None  # the caller registers new aliases
    if alias:
        topic = aliases.get(alias, b"")
    return _Scanned(start, end, topic, at, payload, expiry_s, packet_id, alias)


def _checked(block: bytes) -> tuple[int, int] | None:
    """Expiry and alias of a clean property block; -1 and 0 if absent."""
    expiry_s, alias = -1, 0
    seen: set[int] = set()
    pairs = 0
    try:
        for at, end in _properties(block):
            kind = block[at]
            if kind not in _CLEAN or (kind in seen and kind != _USER):
                return None
            seen.add(kind)
            if kind == _USER:
                pairs += 1
                middle = at + 3 + int.from_bytes(block[at + 1 : at + 3], "big")
                name, text = block[at + 3 : middle], block[middle + 2 : end]
                if pairs > _MAX_PAIRS or not _is_attribute(name) or not _is_text(text):
                    return None
            elif kind == _EXPIRY:
                expiry_s = int.from_bytes(block[at + 1 : end], "big")
                expiry_s = -1 if expiry_s == 0xFFFFFFFF else expiry_s  # equivalent to none
            elif kind == _ALIAS:
                alias = int.from_bytes(block[at + 1 : end], "big")
                if alias == 0:
                    return None
            elif block[at + 1] > 1 if kind == _FORMAT else not _is_text(block[at + 3 : end]):
                return None
    except ValueError:
        return None
    return expiry_s, alias


def _properties(block: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each property; raises ValueError if one is unknown or incomplete."""
    at = 0
    while at < len(block):
        kind = block[at]
        end = at + 1
        if kind in _FIXED:
            end += _FIXED[kind]
        elif kind in _TEXTS:
            for _ in range(_TEXTS[kind]):
                if end + 2 > len(block):
                    raise ValueError("expected whole properties")
                end += 2 + int.from_bytes(block[end : end + 2], "big")
        elif kind == _IDENTIFIER:
            _, end = _varint(block, end, len(block))
        else:
            raise ValueError("expected properties of a PUBLISH")
        if not 0 <= end <= len(block):
            raise ValueError("expected whole properties")
        yield at, end
        at = end


def _is_text(text: bytes) -> bool:
    try:
        return "\0" not in text.decode()
    except UnicodeDecodeError:
        return False


def _is_attribute(name: bytes) -> bool:
    """Whether a user property is an attribute, without a meaning to the node itself."""
    is_special = name in _SPECIAL or name.startswith(_OWN)
    return 0 < len(name) <= _MAX_NAME and not is_special and _is_text(name)


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A variable byte integer and the position after it, which is -1 if it is invalid."""
    value = 0
    for shift in (0, 7, 14, 21):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, -1) if byte == 0 and shift else (value, at)
    return 0, -1


def _varint_bytes(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _ends(frames: bytes) -> Iterator[tuple[int, int, int]]:
    """Start of each frame, start of its body, and its end."""
    at = 0
    while at < len(frames):
        length, body = _varint(frames, at + 1, len(frames))
        if body < 0 or body + length > len(frames):
            raise ValueError("expected whole packets")
        yield at, body, body + length
        at = body + length


def _split(frames: bytes, is_v5: bool) -> Iterator[_Parts]:
    for start, body, end in _ends(frames):
        qos = frames[start] >> 1 & 3
        topic_end = body + 2 + int.from_bytes(frames[body : body + 2], "big")
        at = topic_end + (2 if qos else 0)
        if frames[start] >> 4 != 3 or end - body < 2 or at > end:
            raise ValueError("expected whole PUBLISH packets")
        packet_id = int.from_bytes(frames[topic_end:at], "big")
        length = 0
        if is_v5:
            length, at = _varint(frames, at, end)
        if at < 0 or at + length > end:
            raise ValueError("expected whole PUBLISH packets")
        block = frames[at : at + length]
        for _ in _properties(block):
            pass
        yield _Parts(qos, frames[body:topic_end], packet_id, block, frames[at + length : end])


def _frame(parts: _Parts, is_v5: bool) -> bytes:
    packet_id = parts.packet_id.to_bytes(2, "big") if parts.qos else b""
    length = _varint_bytes(len(parts.block)) if is_v5 else b""
    body = (parts.topic, packet_id, length, parts.block if is_v5 else b"", parts.payload)
    size = sum(map(len, body))
    if size > _MAX_BODY:
        raise ValueError(f"expected a packet of at most {_MAX_BODY} bytes behind its length")
    return b"".join((bytes((0x30 | parts.qos << 1,)), _varint_bytes(size), *body))


def _expiry_s(block: bytes) -> int:
    for start, end in _properties(block):
        if block[start] == _EXPIRY:
            return int.from_bytes(block[start + 1 : end], "big")
    return -1


def rewrite(  # noqa: PLR0913, PLR0917 - as the extension has it
    frames: bytes, is_v5: bool, to_v5: bool, qos: int, waited_s: int, more: bytes
) -> bytes:
    """Re-encode messages for another receiver.

    The result is in the receiver's MQTT version, at a QoS that is not higher, with the expiry
    reduced by `waited_s`, and with the properties `more` appended.
    """
    if not 0 <= qos <= 2 or not 0 <= waited_s < 1 << 32:
        raise ValueError("rewrite: expected a QoS up to 2 and seconds of 32 bits")
    made: list[bytes] = []
    for parts in _split(frames, is_v5):
        block = parts.block
        if waited_s:
            block = b"".join(
                b"\x02" + max(_expiry_s(block[start:end]) - waited_s, 0).to_bytes(4, "big")
                if block[start] == _EXPIRY
                else block[start:end]
                for start, end in _properties(block)
            )
        at_qos = min(parts.qos, qos)
        made.append(_frame(parts._replace(qos=at_qos, block=block + more), to_v5))
    return b"".join(made)


def number(frames: bytes, first: int) -> bytes:
    """QoS 1 frames with packet identifiers from `first` on; 65,535 is followed by 1."""
    if not 1 <= first <= 65_535:
        raise ValueError("number: expected an identifier from 1 to 65535")
    made = bytearray(frames)
    for start, body, end in _ends(frames):
        at = body + 2 + int.from_bytes(frames[body : body + 2], "big")
        if frames[start] & 0xF6 != 0x32 or end - body < 4 or at + 2 > end:
            raise ValueError("number: expected PUBLISH packets of QoS 1")
        made[at : at + 2] = first.to_bytes(2, "big")
        first = first % 65_535 + 1
    return bytes(made)


def cut(frames: bytes, wanted: int, largest: int, most: int) -> tuple[int, int]:
    """Where to split a run: the bytes of the first frames, and their number.

    They have `wanted` bytes together, or at most `largest`; there are at most `most`, and at least
    one if something is wanted. The frames after them are not examined.
    """
    at = count = 0
    ends = _ends(frames)
    while at < min(wanted, len(frames)) and count < most:
        _, _, end = next(ends)
        if count and end > largest:
            break
        at = end
        count += 1
    return at, count


def expired(frames: bytes, is_v5: bool, waited_ms: int) -> bytes:
    """For each frame 1 if it has expired after `waited_ms`, else 0."""
    return bytes(0 <= _expiry_s(parts.block) * 1000 <= waited_ms for parts in _split(frames, is_v5))


def acknowledged(data: bytes, start: int) -> tuple[list[tuple[int, int]], int]:
    """PUBACKs without reason code from `start` on: ranges of packet identifiers, and their end."""
    if start < 0:
        raise ValueError("acknowledged: expected a start that is not negative")
    ranges: list[tuple[int, int]] = []
    at = start
    while at <= len(data) - 4 and data[at] == 0x40 and data[at + 1] == 2:
        packet_id = data[at + 2] << 8 | data[at + 3]
        if packet_id == 0:
            break
        if ranges and sum(ranges[-1]) == packet_id:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((packet_id, 1))
        at += 4
    return ranges, at


def records(frames: bytes, is_v5: bool, head: bytes, first: int) -> list[bytes]:
    """A journal record for each frame (msgpack, see `journal.events`).

    A record is `head`, then expiry, attributes, payload and the event's number, `first` for the
    first frame.
    """
    if first < 0:
        raise ValueError("records: expected a number that is not negative")
    made: list[bytes] = []
    for count, parts in enumerate(_split(frames, is_v5)):
        expiry_s = _expiry_s(parts.block)
        block = b"".join(
            parts.block[start:end]
            for start, end in _properties(parts.block)
            if parts.block[start] != _EXPIRY
        )
        made.append(
            head
            + (b"\xff" if expiry_s < 0 else struct.pack(">BI", 0xCE, expiry_s))
            + struct.pack(">BI", 0xC6, len(block))
            + block
            + struct.pack(">BI", 0xC6, len(parts.payload))
            + parts.payload
            + struct.pack(">BQ", 0xCF, first + count)
            + b"\x00\xc2"
        )
    return made
