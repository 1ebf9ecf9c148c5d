"""A publisher of one flow, as a process of its own: MQTT 5, QoS 1.

It is an open loop: an event is due at its time, and what has to wait for the broker waits with the
time at which it was due, so that being held back shows as latency. An event that only waited for
its own time is stamped when the process wakes up, for that delay is no broker's fault.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from contextlib import suppress
from time import monotonic_ns
from typing import Final

import msgspec

from accord.apps.load.traffic import LoadClient
from accord.core.mqtt.properties import Properties
from benchmarks.mqtt import Mqtt
from benchmarks.table2.plans import STAMP, Flow, Sent

_PATIENCE_S: Final = 30.0
_READ_BYTES: Final = 65_536
_SECOND: Final = 1_000_000_000
_MOST_IDS: Final = 65_535


class Frames:
    """Frames made beforehand, one for each size and document; only stamps are written anew."""

    def __init__(self, flow: Flow) -> None:
        dialect = Mqtt(level=5, qos=1)
        self._flow = flow
        self._frames: list[tuple[bytearray, int, int]] = []
        documents = flow.metadata or ("",)
        for turn in range(max(len(flow.sizes), len(documents))):
            size = flow.sizes[turn % len(flow.sizes)]
            text = documents[turn % len(documents)]
            properties = Properties(user=(("metadata", text),) if text else ())
            # Not all the same byte: what compresses is no image.
            payload = bytes(STAMP.size) + bytes((7 * at) % 251 for at in range(size - STAMP.size))
            frame = dialect.message(flow.topic, payload, 1, properties)
            id_at = dialect.delivery_of(frame).id_at
            assert id_at is not None
            self._frames.append((bytearray(frame), size, id_at))

    def size(self, number: int) -> int:
        return self._frames[number % len(self._frames)][1]

    def frame(self, number: int, due_ns: int) -> memoryview:
        frame, size, id_at = self._frames[number % len(self._frames)]
        frame[id_at : id_at + 2] = (number % _MOST_IDS + 1).to_bytes(2)
        STAMP.pack_into(frame, len(frame) - size, due_ns, number, self._flow.number)
        return memoryview(frame)


class Publisher:
    def __init__(self, flow: Flow, connection: socket.socket, window: int) -> None:
        self._flow = flow
        self._frames = Frames(flow)
        self._client = LoadClient(connection, Mqtt(level=5, qos=1))
        self._buffer = bytearray(_READ_BYTES)
        self._window = window
        self._due: list[int] = []

    def run(self, start_ns: int) -> Sent:
        end_ns = start_ns + round(self._flow.seconds * _SECOND)
        due_ns, is_held = start_ns, False
        while (now_ns := monotonic_ns()) < end_ns:
            unacknowledged = len(self._due) - self._client.acknowledged
            is_free = self._client.is_idle and unacknowledged < self._window
            if is_free and due_ns <= now_ns:
                paced = self._flow.bytes_per_s > 0
                number = len(self._due)
                stamp_ns = due_ns if paced and is_held else now_ns
                self._due.append(stamp_ns)
                self._client.send(self._frames.frame(number, stamp_ns))
                if paced:
                    due_ns += self._pause_ns(number)
            else:
                is_held = not is_free
                until_ns = min(end_ns, due_ns) if is_free else end_ns
                self._wait((until_ns - now_ns) / _SECOND)
        return self._result(due_ns, end_ns)

    def _result(self, due_ns: int, end_ns: int) -> Sent:
        sent = len(self._due)
        while self._flow.bytes_per_s and due_ns < end_ns:
            self._due.append(due_ns)
            due_ns += self._pause_ns(len(self._due) - 1)
        sizes = [self._frames.size(number) for number in range(len(self._due))]
        return Sent(due_ns=self._due, sizes=sizes, sent=sent, refused=self._client.refused)

    def _pause_ns(self, number: int) -> int:
        return round(self._frames.size(number) * _SECOND / self._flow.bytes_per_s)

    def _wait(self, seconds: float) -> None:
        connection = self._client.socket
        writers = [] if self._client.is_idle else [connection]
        # Not poll, which counts whole milliseconds.
        readable, writable, _ = select.select([connection], writers, [], seconds)
        if readable:
            self._client.take(self._buffer, 0)
        if writable:
            self._client.push()


def main() -> None:
    flow = msgspec.json.decode(sys.stdin.readline(), type=Flow)
    if flow.is_first:
        with suppress(OSError):
            os.nice(-5)  # measuring must not wait for a processor
    with socket.create_connection((flow.host, flow.port), _PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        most = Mqtt(level=5, qos=1).enter(connection, flow.name)
        publisher = Publisher(flow, connection, min(most, flow.window))
        print("ready", flush=True)
        word = sys.stdin.readline()
        if word:
            print(msgspec.json.encode(publisher.run(int(word))).decode(), flush=True)


if __name__ == "__main__":
    main()
