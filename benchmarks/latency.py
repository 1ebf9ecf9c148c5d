"""How long a message takes through each broker when there is little to do."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import quantiles
from time import perf_counter, sleep
from typing import Final

from benchmarks.contenders import Broker, running
from benchmarks.load import Shape
from benchmarks.mqtt import PUBACK
from benchmarks.options import Options, progress
from benchmarks.race import Case, attempt
from benchmarks.report import Table, number
from benchmarks.wire import Delivery, UnexpectedAnswerError, receive

ABOUT: Final = (
    "From before one process sends a message of 100 B until the same process has received it over "
    "another connection: 200 messages a second, one at a time. At QoS 1 both sides acknowledge "
    "before the next. Contenders take turns; percentiles over all rounds."
)
_CASES: Final = tuple(Case(Shape("1→1"), 100, qos) for qos in (0, 1))
_RATE_HZ: Final = 200
_MESSAGES: Final = 400
_QUICK_MESSAGES: Final = 50
_WARM_UP: Final = 20
_TOPIC: Final = "bench/0"


class Path:
    """A publisher and a subscriber of one broker, on sockets that block."""

    def __init__(self, broker: Broker, case: Case, stack: ExitStack) -> None:
        dialect = case.dialect(broker.contender)
        self.latencies_us: list[float] = []
        self._message = dialect.message(_TOPIC, bytes(case.payload_size), 1)
        self._delivery = dialect.delivery(_TOPIC, case.payload_size)
        self._subscriber = stack.enter_context(broker.connect())
        dialect.enter(self._subscriber, "subscriber")
        dialect.subscribe(self._subscriber, _TOPIC)
        self._publisher = stack.enter_context(broker.connect())
        dialect.enter(self._publisher, "publisher")
        self._measure(_WARM_UP)

    def round(self, count: int) -> None:
        self.latencies_us += self._measure(count)

    def _measure(self, count: int) -> list[float]:
        spent_us = []
        start = perf_counter()
        for turn in range(count):
            sleep(max(0.0, start + turn / _RATE_HZ - perf_counter()))
            sent = perf_counter()
            self._publisher.sendall(self._message)
            delivered = receive_delivery(self._subscriber, self._delivery)
            spent_us.append((perf_counter() - sent) * 1e6)
            if (id_at := self._delivery.id_at) is not None:
                self._subscriber.sendall(PUBACK + delivered[id_at : id_at + 2])
                receive(self._publisher, len(PUBACK) + 2)
        return spent_us


def run(options: Options) -> list[Table]:
    count = _QUICK_MESSAGES if options.is_quick else _MESSAGES
    table = Table("Round trip in µs", ["broker", "QoS", "messages", "p50", "p90", "p99"])
    with running(options, suits=lambda _: True) as contenders:
        for case in _CASES:
            progress(f"latency: QoS {case.qos}")
            latencies_us, troubles = _race(contenders.brokers, case, options.rounds, count)
            for name, spent_us in latencies_us.items():
                table.add(name, str(case.qos), *_figures(spent_us))
            table.notes += [f"{name}, QoS {case.qos}: {why}." for name, why in troubles.items()]
        table.notes += contenders.absent
    return [table]


def receive_delivery(connection: socket.socket, delivery: Delivery) -> bytes:
    received = receive(connection, delivery.size)
    if delivery.between and received.startswith(delivery.between):
        received = received[len(delivery.between) :] + receive(connection, len(delivery.between))
    if received[0] != delivery.head:
        raise UnexpectedAnswerError(f"not a message of {delivery.size} bytes: {received[:20]!r}")
    return received


def _race(
    brokers: Sequence[Broker], case: Case, rounds: int, count: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Latencies by broker, and why some left the race."""
    racing = {broker.name: broker for broker in brokers if case.suits(broker.contender)}
    paths: dict[str, Path] = {}
    with ExitStack() as stack:

        def enter(broker: Broker) -> None:
            paths[broker.name] = Path(broker, case, stack)

        troubles = attempt(racing, enter)
        latencies_us = {name: path.latencies_us for name, path in paths.items()}
        for _ in range(rounds):
            troubles |= attempt(paths, lambda path: path.round(count))
    return latencies_us, troubles


def _figures(latencies_us: Sequence[float]) -> list[str]:
    if len(latencies_us) < 2:
        return ["0", "–", "–", "–"]
    percentiles = quantiles(latencies_us, n=100)
    return [number(len(latencies_us)), *(number(percentiles[each - 1]) for each in (50, 90, 99))]
