"""The subscribers of a trial, as one process: note when each event arrived, and nothing else."""

from __future__ import annotations

import os
import select
import socket
import sys
from contextlib import ExitStack, suppress
from time import monotonic_ns
from typing import Final

import msgspec

from benchmarks.mqtt import PUBACK, Mqtt
from benchmarks.table2.plans import STAMP, Arrivals, Audience, Received

_PATIENCE_S: Final = 30.0
_READ_BYTES: Final = 1024 * 1024
_TENTH: Final = 100_000_000
_PUBLISH: Final = 3


class Parser:
    """Cuts what one connection receives into frames, and reads the stamps of events."""

    def __init__(self, received: Received) -> None:
        self._received = received
        self._data = bytearray()

    def take(self, data: bytes, now_ns: int) -> bytes:
        """Notes the events that are complete; returns what acknowledges them."""
        buffer, at, answers = self._data, 0, bytearray()
        buffer += data
        while (frame := _next(buffer, at)) is not None:
            body, end = frame
            if buffer[at] >> 4 == _PUBLISH:
                answers += self._note(buffer, buffer[at] >> 1 & 3, body, end, now_ns)
            at = end
        del buffer[:at]
        return bytes(answers)

    def _note(self, frame: bytearray, qos: int, at: int, end: int, now_ns: int) -> bytes:
        at += 2 + int.from_bytes(frame[at : at + 2])
        answer = b""
        if qos:
            answer, at = PUBACK + frame[at : at + 2], at + 2
        length, at = _variable(frame, at)
        at += length
        due_ns, number, flow = STAMP.unpack_from(frame, at)
        arrivals = self._received.flows.get(flow)
        if arrivals is None:
            arrivals = self._received.flows[flow] = Arrivals()
        arrivals.arrived_ns.append(now_ns)
        arrivals.due_ns.append(due_ns)
        arrivals.numbers.append(number)
        arrivals.sizes.append(end - at)
        return answer


def _next(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """Where the body of the frame at `at` begins and ends, if it is complete."""
    if len(buffer) - at < 5 and not _has_length(buffer, at):
        return None
    length, body = _variable(buffer, at + 1)
    return (body, body + length) if body + length <= len(buffer) else None


def _has_length(buffer: bytearray, at: int) -> bool:
    return any(not byte & 0x80 for byte in buffer[at + 1 : at + 5])


def _variable(buffer: bytearray, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte = buffer[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at


def _enter(audience: Audience, stack: ExitStack) -> list[socket.socket]:
    dialect = Mqtt(level=5, qos=audience.qos)
    connections = []
    for number, predicate in enumerate(audience.predicates or ("",)):
        connection = socket.create_connection((audience.host, audience.port), _PATIENCE_S)
        stack.enter_context(connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        dialect.enter(connection, f"subscriber-{number}")
        properties = {"where": predicate} if predicate else {}
        connection.sendall(dialect.subscription(audience.topic, properties=properties))
        dialect.check_subscribed(connection)
        connections.append(connection)
    return connections


def receive_all(connections: list[socket.socket], until: int) -> Received:
    """What arrives until there is something to read at `until`."""
    received = Received(flows={}, tenths={})
    parsers = {each.fileno(): (each, Parser(received)) for each in connections}
    poll = select.poll()
    for number in (*parsers, until):
        poll.register(number, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number == until:
                return received
            connection, parser = parsers[number]
            data = connection.recv(_READ_BYTES)
            now_ns = monotonic_ns()
            if not data:
                raise ConnectionError("the broker closed the connection")
            tenth = now_ns // _TENTH
            received.tenths[tenth] = received.tenths.get(tenth, 0) + len(data)
            if answers := parser.take(data, now_ns):
                connection.sendall(answers)


def main() -> None:
    audience = msgspec.json.decode(sys.stdin.buffer.readline(), type=Audience)
    with suppress(OSError):
        os.nice(-5)  # measuring must not wait for a processor
    with ExitStack() as stack:
        connections = _enter(audience, stack)
        print("ready", flush=True)
        received = receive_all(connections, sys.stdin.fileno())
        print(msgspec.json.encode(received).decode(), flush=True)


if __name__ == "__main__":
    main()
