"""Frames of MQTT, and the extension beside its twin `core.native.reference` on the same input."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from accord.core.mqtt.wire import varint_bytes
from accord.core.native import reference

try:
    EXTENSION: Any = import_module("accord.core.native._native")
except ImportError:
    EXTENSION = None

LARGEST: Final = 268_435_455


def sized(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def user(name: bytes, text: bytes = b"1") -> bytes:
    return b"\x26" + sized(name) + sized(text)


def expiry(seconds: int) -> bytes:
    return b"\x02" + seconds.to_bytes(4, "big")


def alias(number: int) -> bytes:
    return b"\x23" + number.to_bytes(2, "big")


def publish(
    topic: bytes, block: bytes | None = b"", payload: bytes = b"p", packet_id: int | None = None
) -> bytes:
    """A PUBLISH: QoS 1 with a packet identifier, MQTT 3.1.1 where the block is None."""
    first, number = (0x30, b"") if packet_id is None else (0x32, packet_id.to_bytes(2, "big"))
    properties = b"" if block is None else varint_bytes(len(block)) + block
    body = sized(topic) + number + properties + payload
    return bytes((first,)) + varint_bytes(len(body)) + body


A, B, LONG = b"a", "b/é".encode(), b"long/topic/" * 30
MANY: Final = [b"t%d" % number for number in range(100)]  # more than the extension remembers
TOPICS: Final = {sized(topic): topic.decode().upper() for topic in (A, B, LONG, *MANY)}
ALIASES: Final = {1: sized(A), 2: sized(LONG), 3: sized(b"unknown"), 65_535: sized(B)}
# Those of a node that nobody need look at, those that it looks at, and those that it refuses.
NAMES: Final = (
    b"h", b"altitude_m", b"n" * 256, "é".encode(), b"accord", b"keys", b"key", b"deadline-ms",
    b"metadata", b"accord-where", b"accord-", b"", b"n" * 257, b"\xe9", b"\0",
)  # fmt: skip
TEXTS: Final = (
    b"", b"420", b"plain text", "é💧".encode(), b"x" * 300, b"\0", b"12345678\0", b"\xff", b"\xc3",
    b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x8f\xbf\xbf", b"12345678\xe2\x82",
)  # fmt: skip
CLEAN: Final = (
    *(user(name, b"420") for name in NAMES[:6]), b"\x01\x00", b"\x01\x01", b"\x03" + sized(b"t/p"),
    *map(expiry, (0, 1, 59, 2**31, 0xFFFFFFFE, 0xFFFFFFFF)),
)  # fmt: skip
OTHERS: Final = (
    *map(alias, (0, 1, 2, 3, 4, 65_535)), user(b"h") * 256, user(b"h") * 257, b"\x01\x02",
    b"\x0b\x05", b"\x0b\x80\x80\x01", b"\x0b\x80\0", b"\x0b\xff\xff\xff\xff\x01", b"\x24\1",
    b"\x08" + sized(A), b"\x09" + sized(b"\xff"), b"\x03" + sized(b"\xff"), b"\x02\0", b"\x26\0",
)  # fmt: skip
PAYLOADS: Final = (b"", b"payload", b"x" * 130, publish(A))
LENGTHS: Final = (
    b"\x80\0",
    b"\x82\0",
    b"\xff\xff\xff\x7f",
    b"\x80\x80\x80\1",
    b"\xff" * 5,
    b"\x01",
)  # that are wrong


ODD: Final = ("property", "property", "pair", "pair", "bytes", "topic", "first", "length", "id")


def make_packet(choose: Callable[[Sequence[Any]], Any], is_v5: bool) -> bytes:
    """Mostly a clean frame, otherwise with one thing that is not."""
    odd = "" if choose(range(6)) else choose(ODD)
    topic = choose([A, A, B, LONG, choose(MANY)])
    several = [choose(CLEAN) for _ in range(choose([0, 1, 2, 4]))]
    found = list({each[:1] if each[0] != 0x26 else each: each for each in several}.values())
    if odd == "topic":
        topic = choose([b"", b"unknown"])
    elif odd == "property":
        found.append(choose(OTHERS))
    elif odd == "pair":
        found.append(user(choose(NAMES), choose(TEXTS)))
    elif odd == "bytes":
        found.append(user(b"h", bytes(choose(range(256)) for _ in range(choose([1, 2, 4, 9])))))
    if is_v5 and choose([False, False, True]):
        topic = choose([b"", b"", b"", b"", b"", topic])
        found.insert(
            choose(range(len(found) + 1)), alias(choose([1, 1, 2, 2, 65_535, 65_535, 3, 4]))
        )
    packet_id = 0 if odd == "id" else choose([None, 1, 2, 258, 65_535])
    block = b"".join(found) if is_v5 else None
    packet = bytearray(publish(topic, block, choose(PAYLOADS), packet_id))
    if odd == "first":
        packet[0] ^= choose([1, 2, 4, 8, 0x40])
    elif odd == "length":
        packet[1:2] = choose(LENGTHS)
    return bytes(packet)


class Read(NamedTuple):
    data: bytes
    start: int
    is_v5: bool


def scanned(module: Any, data: bytes, start: int = 0, is_v5: bool = True) -> Any:
    return module.scan(data, start, is_v5, LARGEST, TOPICS, ALIASES)


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives, or that it raised ValueError; it raises nothing else."""
    try:
        return call(*arguments)
    except ValueError as error:
        return type(error)


def same(modules: tuple[Any, ...], name: str, *arguments: Any) -> Any:
    """What all `modules` (or objects) give for a call."""
    first, *others = (outcome(getattr(module, name), *arguments) for module in modules)
    for other in others:
        assert first == other, (name, *arguments)
    return first


BOTH: Final = (EXTENSION, reference)


def check_scan(
    read: Read,
    limit: int,
    steps: list[tuple[int, Any, list[Any]]],
    tables: list[bytes],
    modules: tuple[Any, ...] = BOTH,
) -> int:
    """Scan, then relabel in `steps`; `tables` have a byte for each label. How many frames?"""
    same(modules, "single", read.data, read.is_v5, TOPICS)
    call = (read.data, read.start, read.is_v5, limit, TOPICS, ALIASES)
    found = tuple(outcome(module.scan, *call) for module in modules)
    if found[0] is None or found[0] is ValueError:
        assert all(each is found[0] for each in found), call
        return 0
    _check_frames(found, tables)
    for label, which, ways in steps:
        steps_of = which
        if isinstance(which, int):  # one for each frame
            count = len(found[0].places(label))
            steps_of = array("I", [place % (which + 1) for place in range(count)])
        same(found, "relabel", label, steps_of, ways)
        _check_frames(found, tables)
    return int(found[0].count)


def _check_frames(found: tuple[Any, ...], tables: list[bytes], *, is_piece: bool = False) -> None:
    fields = [
        (each.count, each.start, each.end, each.wanted, each.qos, each.is_v5, each.ways, each.data)
        for each in found
    ]
    assert all(each == fields[0] for each in fields), fields
    same(found, "sizes")
    for label in range(-1, len(found[0].ways) + 1):
        same(found, "spans", label)
        same(found, "places", label)
        for first, count in () if is_piece else ((-1, 1), (0, 0), (0, 1), (1, 2), (0, 99)):
            pieces = tuple(outcome(each.piece, label, first, count) for each in found)
            if pieces[0] is ValueError:
                assert all(each is ValueError for each in pieces), (label, first, count)
            else:
                _check_frames(pieces, tables, is_piece=True)
    for table in tables:
        same(found, "take", table)
        same(found, "acks", table)


def check_runs(
    data: bytes,
    is_v5: bool,
    numbers: tuple[int, ...],
    extra: bytes,
    modules: tuple[Any, ...] = BOTH,
) -> None:
    """All that is done with frames that have been scanned, or with bytes that are none."""
    one, two, three = numbers
    same(modules, "rewrite", data, is_v5, bool(one & 1), two % 4, three, extra)
    same(modules, "number", data, one)
    same(modules, "cut", data, one % 200, two % 200, three % 5)
    same(modules, "expired", data, is_v5, one * 1000 + two % 3 - 1)
    same(modules, "acknowledged", data, two % 10 - 1)
    same(modules, "records", data, is_v5, extra, three - 1)
