"""Events for the archive, and a process that keeps writing them to a journal.

    python -m benchmarks.archive_records FOLDER RATE

It writes until its input ends. Each line it prints is an offset up to which everything is durable,
and when that was.
"""

from __future__ import annotations

import os
import sys
from select import select
from time import perf_counter, time

import msgspec

from accord.core.mqtt.properties import Properties, encode_properties
from accord.journal.events import KeptEvent
from accord.journal.writer import AppendRefused, Journal

_CHANNELS = ("uav/imagery", "uav/track", "ground/report", "weather/wind")
_TURN_S = 0.01
_encode = msgspec.msgpack.Encoder().encode


def batch_of(first: int, count: int, size: int, *, at_ms: int = 1_763_280_000_000) -> list[bytes]:
    """Events of one commit, with a payload of `size` bytes and two attributes each."""
    return [_record(number, size, at_ms) for number in range(first, first + count)]


def _record(number: int, size: int, at_ms: int) -> bytes:
    user = (("altitude_m", str(number % 4_000)), ("platform", f"uav-{number % 50}"))
    block = encode_properties(Properties(user=user))[1:]
    payload = os.urandom(size)
    channel = _CHANNELS[number % len(_CHANNELS)]
    return _encode(KeptEvent(at_ms + number // 2, channel, "camera", 1, -1, block, payload, number))


def main() -> None:
    folder, rate = sys.argv[1], int(sys.argv[2])
    journal = Journal.open(
        folder, on_commit=lambda offset: os.write(1, f"{offset} {time()}\n".encode())
    )
    number = 0
    began_s = perf_counter()
    while not select([sys.stdin], [], [], _TURN_S)[0]:
        due = int((perf_counter() - began_s) * rate) - number
        if due > 0:
            taken = journal.append(batch_of(number, due, 100, at_ms=int(time() * 1000)))
            assert not isinstance(taken, AppendRefused)
            number += due
    journal.close()


if __name__ == "__main__":
    main()
