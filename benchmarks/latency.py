"""How long a message takes through each broker when there is little to do, and what it costs."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Final

from accord.apps.load.frames import LoadError, receive
from benchmarks.aims import Aim, aims_table, at_most
from benchmarks.contenders import CONTENDERS, Broker, Field, running
from benchmarks.contents import ONE
from benchmarks.load import Messages, Shape
from benchmarks.mqtt import PUBACK, Mqtt
from benchmarks.options import Options, progress
from benchmarks.race import Case, attempt
from benchmarks.report import Table, number, significant
from benchmarks.wire import Delivery

ABOUT: Final = (
    "From before one process sends a message of 100 B until the same process has received it over "
    "another connection: 200 messages a second, one at a time. At QoS 1 both sides acknowledge "
    "before the next. Then 5,000 a second, again one at a time: CPU time of the broker's process "
    "per message. Properties differ from message to message. Contenders and cases take turns; "
    "percentiles over all rounds, medians of what rounds cost."
)
_REFERENCE: Final = "mosquitto"
_NO_PROPERTIES: Final = "no properties"
_SHAPE: Final = Shape("1→1")
_MANAGED: Final = tuple(
    Case(_SHAPE, 100, qos, level=5, name=name, content=content)
    for qos in (0, 1)
    for name, content in ((_NO_PROPERTIES, None), (ONE.name, ONE))
)
_TRIPS: Final = (
    *(Case(_SHAPE, 100, qos, name=_NO_PROPERTIES) for qos in (0, 1)),
    *_MANAGED,
)
_PACED: Final = _MANAGED
_TRIPS_HZ: Final = 200
_PACED_HZ: Final = 5_000
_MESSAGES: Final = 400
_QUICK_MESSAGES: Final = 50
_PACED_MESSAGES: Final = 5_000
_QUICK_PACED_MESSAGES: Final = 1_000
_WARM_UP: Final = 200
_DIFFERENT: Final = 5_000
_MOST_TRIP: Final = 1.35
# No slower, but for what two medians of the same differ by.
_MOST_PROPERTIES: Final = 1.05
_MOST_PACED: Final = 1.1

Key = tuple[Case, str]


class Path:
    """A publisher and a subscriber of one broker, on sockets that block."""

    def __init__(self, broker: Broker, case: Case, stack: ExitStack, name: str = "0") -> None:
        self.latencies_us: list[float] = []
        self.cpu_us: list[float] = []
        self.rates_hz: list[float] = []
        self._broker = broker
        topic = f"bench/{name}"
        dialect = case.dialect(broker.contender)
        messages = Messages(case.payload_size, case.content)
        self._delivery = messages.delivery(dialect, topic)
        if case.content is None:
            frames = [dialect.message(topic, bytes(case.payload_size), 1)]
        else:
            assert isinstance(dialect, Mqtt)
            ids = [1] * _DIFFERENT
            frames = case.content.frames(dialect, (topic,), case.payload_size, ids)
        self._messages = cycle(frames)
        self._subscriber = stack.enter_context(broker.connect())
        dialect.enter(self._subscriber, f"subscriber/{name}")
        dialect.subscribe(self._subscriber, topic)
        self._publisher = stack.enter_context(broker.connect())
        dialect.enter(self._publisher, f"publisher/{name}")
        self._measure(_WARM_UP, _PACED_HZ)

    def round(self, count: int, rate_hz: int = _TRIPS_HZ) -> None:
        before_s, started_s = self._broker.cpu_s(), perf_counter()
        self.latencies_us += self._measure(count, rate_hz)
        self.cpu_us.append((self._broker.cpu_s() - before_s) * 1e6 / count)
        self.rates_hz.append(count / (perf_counter() - started_s))

    def _measure(self, count: int, rate_hz: int) -> list[float]:
        spent_us = []
        start = perf_counter()
        for turn in range(count):
            sleep(max(0.0, start + turn / rate_hz - perf_counter()))
            message = next(self._messages)
            sent = perf_counter()
            self._publisher.sendall(message)
            delivered = receive_delivery(self._subscriber, self._delivery)
            spent_us.append((perf_counter() - sent) * 1e6)
            if (id_at := self._delivery.id_at) is not None:
                self._subscriber.sendall(PUBACK + delivered[id_at : id_at + 2])
                receive(self._publisher, len(PUBACK) + 2)
        return spent_us


def run(options: Options) -> list[Table]:
    tables: list[Table] = []
    aims: list[Aim] = []
    with running(options, suits=lambda _: True) as contenders:
        if options.has_case("trips"):
            progress("latency: round trips")
            count = _QUICK_MESSAGES if options.is_quick else _MESSAGES
            paths, troubles = _race(contenders, _TRIPS, options.rounds, (count, _TRIPS_HZ))
            tables.append(_trips(paths, troubles))
            aims += _trip_aims(paths)
        if options.has_case("paced"):
            progress("latency: paced")
            count = _QUICK_PACED_MESSAGES if options.is_quick else _PACED_MESSAGES
            paths, troubles = _race(contenders, _PACED, options.rounds, (count, _PACED_HZ))
            tables.append(_paced(paths, troubles))
            aims += _paced_aims(paths)
        if tables:
            tables[0].notes += contenders.absent
    return [*tables, aims_table(aims, "Bars")]


def receive_delivery(connection: socket.socket, delivery: Delivery) -> bytes:
    received = receive(connection, delivery.size)
    if delivery.between and received.startswith(delivery.between):
        received = received[len(delivery.between) :] + receive(connection, len(delivery.between))
    if received[0] != delivery.head:
        raise LoadError(f"not a message of {delivery.size} bytes: {received[:20]!r}")
    return received


Paths = dict[Key, Path]


def _race(
    contenders: Field, cases: Sequence[Case], rounds: int, load: tuple[int, int]
) -> tuple[Paths, list[str]]:
    """All cases and brokers in turns, and why some left the race."""
    brokers = {(case, each.name): each for case in cases for each in contenders.brokers}
    racing = {key: each for key, each in brokers.items() if key[0].suits(each.contender)}
    paths: Paths = {}
    troubles: dict[Key, str] = {}
    with ExitStack() as stack:
        for number, (key, broker) in enumerate(racing.items()):

            def enter(each: Broker, key: Key = key, number: int = number) -> None:
                paths[key] = Path(each, key[0], stack, f"{number:03}")

            troubles |= attempt({key: broker}, enter)
        remaining = dict(paths)
        for _ in range(rounds):
            troubles |= attempt(remaining, lambda path: path.round(*load))
    return paths, [f"{', '.join(_labels(*key))}: {why}." for key, why in troubles.items()]


def _trips(paths: Paths, troubles: Sequence[str]) -> Table:
    columns = [*_LABELS, "messages", "p50", "p90", "p99"]
    ratios = [f"{each} by {_REFERENCE}" for each in ("p50", "p99")]
    table = Table("Round trip in µs", [*columns, *ratios])
    for (case, name), path in paths.items():
        reference = _percentiles(paths.get((case, _REFERENCE)))
        found = _percentiles(path)
        if found is None:
            continue
        cells = [
            number(len(path.latencies_us)),
            *(number(found[each - 1]) for each in (50, 90, 99)),
        ]
        for each in (50, 99):
            cells.append(_ratio(found[each - 1], reference[each - 1] if reference else None))
        table.add(*_labels(case, name), *cells)
    table.notes += troubles
    return table


def _paced(paths: Paths, troubles: Sequence[str]) -> Table:
    table = Table(
        f"CPU µs per message at {_PACED_HZ:,} per second, one at a time",
        [*_LABELS, "CPU µs", f"by {_REFERENCE}", "p50 µs", f"p50 by {_REFERENCE}", "per second"],
    )
    for (case, name), path in paths.items():
        if not path.cpu_us:
            continue
        cost, reference = _cost(path), _cost(paths.get((case, _REFERENCE)))
        table.add(
            *_labels(case, name),
            significant(cost),
            _ratio(cost, reference),
            number(_p50(path)),
            _ratio(_p50(path), _p50(paths.get((case, _REFERENCE)))),
            number(median(path.rates_hz)),
        )
    table.notes += troubles
    return table


def _trip_aims(paths: Paths) -> Iterator[Aim]:
    for name in _accords():
        for case in (key[0] for key in paths if key[1] == name):
            p50 = _p50(paths.get((case, name)))
            where = f"{name}: round trip p50, {_named(case)}"
            reference = _p50(paths.get((case, _REFERENCE)))
            yield at_most(where, (_MOST_TRIP, _REFERENCE), p50, reference, "µs")
        for case in (key[0] for key in paths if key[1] == name and key[0].content):
            plain = next(each for each in _MANAGED if each.qos == case.qos and not each.content)
            where = f"{name}: round trip p50, {_named(case)}"
            reference = _p50(paths.get((plain, name)))
            p50 = _p50(paths.get((case, name)))
            yield at_most(where, (_MOST_PROPERTIES, _NO_PROPERTIES), p50, reference, "µs")


def _paced_aims(paths: Paths) -> Iterator[Aim]:
    for name in _accords():
        for case in (key[0] for key in paths if key[1] == name):
            where = f"{name}: {_PACED_HZ:,} per second, {_named(case)}"
            reference = _cost(paths.get((case, _REFERENCE)))
            cost = _cost(paths.get((case, name)))
            yield at_most(where, (_MOST_PACED, _REFERENCE), cost, reference, "CPU µs")


def _accords() -> list[str]:
    return [each.name for each in CONTENDERS if each.has_predicates]


_LABELS: Final = ("broker", "MQTT", "carries", "QoS")


def _labels(case: Case, name: str) -> tuple[str, ...]:
    return name, "5" if case.level == 5 else "3.1.1", case.name, str(case.qos)


def _named(case: Case) -> str:
    return f"MQTT {'5' if case.level == 5 else '3.1.1'}, QoS {case.qos}, {case.name}"


def _ratio(figure: float | None, reference: float | None) -> str:
    return number(figure / reference, 2) if figure and reference else "–"


def _percentiles(path: Path | None) -> list[float] | None:
    if path is None or len(path.latencies_us) < 2:
        return None
    return quantiles(path.latencies_us, n=100)


def _p50(path: Path | None) -> float | None:
    return median(path.latencies_us) if path is not None and path.latencies_us else None


def _cost(path: Path | None) -> float | None:
    return median(path.cpu_us) if path is not None and path.cpu_us else None
