"""The subscribers of a trial, as one process: note when each event arrived, and nothing else."""

from __future__ import annotations

import os
import selectors
import socket
import sys
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic_ns
from typing import Final

import msgspec

from accord.apps.load.frames import Run
from accord.apps.load.mqtt import packet_id_at
from accord.apps.load.traffic import LoadClient
from accord.core.mqtt.wire import read_varint
from benchmarks.mqtt import Mqtt
from benchmarks.table2.plans import STAMP, Arrivals, Audience, Received

_PATIENCE_S: Final = 30.0
_READ_BYTES: Final = 1024 * 1024
_TENTH: Final = 100_000_000
_QOS: Final = 0x06


def note(received: Received, run: Run, now_ns: int) -> None:
    """What the stamps of events say, frame by frame."""
    for start in range(run.start, run.end, run.size):
        at = start + packet_id_at(run.buffer, start, len(run.head))
        at += 2 if run.head[0] & _QOS else 0
        end = start + run.size
        length, used = read_varint(bytes(run.buffer[at : at + 4]), 0, 4)
        at += used + length
        due_ns, number, flow = STAMP.unpack_from(run.buffer, at)
        arrivals = received.flows.get(flow)
        if arrivals is None:
            arrivals = received.flows[flow] = Arrivals()
        arrivals.arrived_ns.append(now_ns)
        arrivals.due_ns.append(due_ns)
        arrivals.numbers.append(number)
        arrivals.sizes.append(end - at)


def _enter(audience: Audience, stack: ExitStack) -> list[LoadClient]:
    dialect = Mqtt(level=5, qos=audience.qos)
    clients = []
    for number, predicate in enumerate(audience.predicates or ("",)):
        connection = socket.create_connection((audience.host, audience.port), _PATIENCE_S)
        stack.enter_context(connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        dialect.enter(connection, f"subscriber-{number}")
        dialect.subscribe(connection, audience.topic, predicate)
        clients.append(LoadClient(connection, dialect))
    return clients


def receive_all(clients: list[LoadClient], until: int) -> Received:
    """What arrives until there is something to read at `until`."""
    received = Received(flows={}, tenths={})
    buffer = bytearray(_READ_BYTES)
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.on_delivery = partial(note, received)
            client.watch(selector)
        selector.register(until, selectors.EVENT_READ)
        while True:
            for key, mask in selector.select():
                if key.data is None:
                    return received
                now_ns = monotonic_ns()
                if mask & selectors.EVENT_READ:
                    size, tenth = key.data.take(buffer, now_ns), now_ns // _TENTH
                    received.tenths[tenth] = received.tenths.get(tenth, 0) + size
                if mask & selectors.EVENT_WRITE:
                    key.data.push()


def main() -> None:
    audience = msgspec.json.decode(sys.stdin.buffer.readline(), type=Audience)
    with suppress(OSError):
        os.nice(-5)  # measuring must not wait for a processor
    with ExitStack() as stack:
        clients = _enter(audience, stack)
        print("ready", flush=True)
        received = receive_all(clients, sys.stdin.fileno())
        print(msgspec.json.encode(received).decode(), flush=True)


if __name__ == "__main__":
    main()
