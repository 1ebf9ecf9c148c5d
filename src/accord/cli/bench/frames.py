"""MQTT packets in bulk.

At hundreds of thousands of events a second there is no time to handle each packet. But consecutive
packets are mostly alike: a *run* is a sequence of packets with the same header, and so of the same
size. A run is an array with a row per packet, in which packet identifiers and timestamps are
columns, read or written all at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Publish

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

STAMP: Final = 8  # bytes of the timestamp at the start of each payload
MAX_ID: Final = 65_535
CHUNK_BYTES: Final = 1 << 16

_FIRST_LOOK: Final = 16


class PacketRun(NamedTuple):
    """Packets of one kind: their first byte, the offset of the body, and all bytes."""

    head: int
    body_at: int
    packets: Bytes

    @property
    def kind(self) -> int:
        return self.head >> 4

    def ids(self, at: int) -> Bytes:
        return self.packets[:, at : at + 2]


def split(data: bytes) -> tuple[list[PacketRun], int]:
    """Return the runs of whole packets in `data`, and where the first incomplete one starts."""
    array = np.frombuffer(data, np.uint8)
    found: list[PacketRun] = []
    at, look = 0, _FIRST_LOOK
    while (header := _header(data, at)) is not None:
        body_at, size = header
        whole = min((len(data) - at) // size, look)
        if not whole:
            break
        rows = array[at : at + whole * size].reshape(whole, size)
        alike = (rows[:, :body_at] == rows[0, :body_at]).all(axis=1)
        count = whole if alike.all() else int(alike.argmin())
        found.append(PacketRun(data[at], body_at, rows[:count]))
        at += count * size
        # A long look-ahead pays only if runs are long.
        look = look * 4 if count == whole else _FIRST_LOOK
    return found, at


def _header(data: bytes, at: int) -> tuple[int, int] | None:
    """Relative start of the body of the packet at `at`, and the packet's size."""
    length = shift = 0
    for place in range(at + 1, min(at + 5, len(data))):
        length |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            start = place + 1 - at
            return start, start + length
        shift += 7
    return None


def replies(first: int, ids: Bytes) -> bytes:
    """An acknowledgement with this first byte for each of the packet identifiers."""
    packets = np.empty((len(ids), 4), np.uint8)
    packets[:, 0], packets[:, 1], packets[:, 2:] = first, 2, ids
    return packets.tobytes()


def latencies_ns(run: PacketRun, size: int, now_ns: int) -> Numbers:
    """Age of the payloads of published packets, `size` bytes at the end of each."""
    end = run.packets.shape[1]
    stamps = np.ascontiguousarray(run.packets[:, end - size : end - size + STAMP])
    sent_ns: Numbers = stamps.view(">i8").astype(np.int64).reshape(-1)
    return now_ns - sent_ns


class PacketTemplate:
    """Up to `count` packets of one event; only times and packet identifiers are filled in."""

    def __init__(self, channel: str, size: int, qos: int) -> None:
        packet = encode(Publish(channel, bytes(size), qos, packet_id=1 if qos else 0), V5)
        self.packet_size = len(packet)
        self.count = max(CHUNK_BYTES // self.packet_size, 1)
        self._packets = np.tile(np.frombuffer(packet, np.uint8), (self.count, 1))
        self._stamp_at = len(packet) - size
        self._id_at = self._stamp_at - 3 if qos else None  # followed by an empty property list
        self._next_id = 0

    def packets(self, count: int, now_ns: int) -> bytes:
        chosen = self._packets[:count]
        stamp = np.frombuffer(now_ns.to_bytes(STAMP, "big"), np.uint8)
        chosen[:, self._stamp_at : self._stamp_at + STAMP] = stamp
        if self._id_at is not None:
            ids = (np.arange(self._next_id, self._next_id + count) % MAX_ID + 1).astype(">u2")
            chosen[:, self._id_at : self._id_at + 2] = ids.view(np.uint8).reshape(count, 2)
            self._next_id = (self._next_id + count) % MAX_ID
        return chosen.tobytes()
