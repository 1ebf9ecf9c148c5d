"""What an idle connection costs each broker, and what a subscription does."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Final

from benchmarks import subscriptions
from benchmarks.aims import Aim, aims_table, at_most
from benchmarks.contenders import Broker, Setup, running
from benchmarks.latency import receive_delivery
from benchmarks.load import Shape
from benchmarks.options import Options, progress
from benchmarks.race import Case, attempt
from benchmarks.report import Table, number, significant
from benchmarks.wire import Dialect

ABOUT: Final = (
    "Clients of MQTT 3.1.1 (or NATS) connect over loopback, subscribe to a topic of their own and "
    "wait. Memory is what the broker's processes have more than with the first few, by connection: "
    "without the kernel's socket buffers. CPU is that of connecting and subscribing. At the end a "
    "message reaches some of them. Then a hundred clients of MQTT 5 have more and more "
    "subscriptions, each with a wildcard, and 100 B messages go to channels never used before, one "
    "subscriber each: CPU and memory of the broker's process."
)
IDLE: Final = "idle"
SUBSCRIPTIONS: Final = "subscriptions"
_COUNT: Final = 100_000
_MOST_KB: Final = 5.0
# Fewer connections don't show what each takes.
_ENOUGH: Final = 10_000
# Flat: a thousand times as many subscriptions, but for the caches of the processor.
_MOST_GROWTH: Final = 1.5
_SETUP: Final = Setup(
    "many",
    accord="[limits]\nconnections = 200000\nsessions = 200000\nsubscriptions_per_client = 20000\n",
)
_QUICK_COUNT: Final = 1_000
# The first connections make a broker allocate what it needs once.
_FIRST: Final = 200
_BATCH: Final = 50
_RATE_HZ: Final = 2_000
_SOURCES: Final = 20
_SETTLE_S: Final = 1.0
_SAMPLES: Final = 100
_SPARE_FILES: Final = 1_000
_CASE: Final = Case(Shape("1→1"), 100, 0)


@dataclass(frozen=True)
class Held:
    """`count` connections beyond the first, held at once, and what each costs."""

    name: str
    count: int
    memory_bytes: float
    cpu_us: float
    reached: int


def run(options: Options) -> list[Table]:
    tables: list[Table] = []
    aims: list[Aim] = []
    for group, measure in ((IDLE, _idle), (SUBSCRIPTIONS, _subscriptions)):
        if options.has_case(group):
            table, found = measure(options)
            tables.append(table)
            aims += found
    return [*tables, aims_table(aims, "Bars")]


def _idle(options: Options) -> tuple[Table, list[Aim]]:
    table = Table(
        "Idle connections", ["broker", "connections", "KB each", "CPU µs to connect", "reached"]
    )
    aims: list[Aim] = []
    asked = options.connections or (_QUICK_COUNT if options.is_quick else _COUNT)
    # Before the brokers start: they inherit what is allowed.
    count = allow(asked)
    with running(options, suits=lambda _: True, setup=_SETUP) as contenders:
        for broker in contenders.brokers:
            progress(f"connections: {count:,} to {broker.name}")

            def measure(each: Broker) -> None:
                held = hold(each, count)
                _add(table, held)
                if each.contender.has_predicates:
                    aims.append(_idle_aim(held))

            troubles = attempt({broker.name: broker}, measure)
            table.notes += [f"{name}: {trouble}." for name, trouble in troubles.items()]
        table.notes += contenders.absent
    if count < asked:
        table.notes.append(f"Fewer than {asked:,}: the system allows no more open files.")
    return table, aims


def _idle_aim(held: Held) -> Aim:
    """Fewer may show that each takes too much, but not that so many can be held."""
    count, size_kb = held.count + _FIRST, held.memory_bytes / 1024
    is_met = size_kb <= _MOST_KB
    return Aim(
        f"{held.name}: idle connections",
        f"{_COUNT:,}, ≤ {_MOST_KB:g} KB each",
        f"{count:,}, {significant(size_kb)} KB each",
        is_met if count >= (_COUNT if is_met else _ENOUGH) else None,
    )


def _subscriptions(options: Options) -> tuple[Table, list[Aim]]:
    sizes = subscriptions.QUICK_SIZES if options.is_quick else subscriptions.SIZES
    table = Table(
        "Subscriptions",
        ["broker", "subscriptions", "bytes each", "CPU µs to subscribe", "CPU µs per message"],
    )
    aims: list[Aim] = []
    with running(options, suits=lambda each: each.is_mqtt, setup=_SETUP) as contenders:
        for broker in contenders.brokers:

            def measure(each: Broker) -> None:
                found = []
                with ExitStack() as stack:
                    fleet = subscriptions.Fleet(each, stack)
                    for size in sizes:
                        progress(f"connections: {size:,} subscriptions at {each.name}")
                        held = fleet.hold(size, options.rounds)
                        found.append(held)
                        costs = (held.memory_bytes, held.subscribe_us, held.message_us)
                        table.add(each.name, number(size), *map(significant, costs))
                if each.contender.has_predicates:
                    aims.append(_flat_aim(each.name, found))

            troubles = attempt({broker.name: broker}, measure)
            table.notes += [f"{name}: {trouble}." for name, trouble in troubles.items()]
        table.notes += contenders.absent
    return table, aims


def _flat_aim(name: str, found: Sequence[subscriptions.Held]) -> Aim:
    fewest, most = found[0], found[-1]
    return at_most(
        f"{name}: message among {most.size:,} subscriptions",
        (_MOST_GROWTH, f"among {fewest.size:,}"),
        most.message_us,
        fewest.message_us,
        "CPU µs",
    )


def _add(table: Table, held: Held) -> None:
    table.add(
        held.name,
        number(held.count + _FIRST),
        significant(held.memory_bytes / 1024),
        significant(held.cpu_us),
        f"{held.reached} of {_SAMPLES}",
    )


def hold(broker: Broker, count: int) -> Held:
    """Opens `count` connections in all, and lets them go again."""
    dialect = _CASE.dialect(broker.contender)
    with ExitStack() as stack:
        crowd = Crowd(broker, dialect, stack)
        crowd.grow(_FIRST)
        sleep(_SETTLE_S)
        memory, cpu_s = broker.memory_bytes(), broker.cpu_s()
        crowd.grow(count)
        cpu_s = broker.cpu_s() - cpu_s
        sleep(_SETTLE_S)
        memory, more = broker.memory_bytes() - memory, count - _FIRST
        return Held(broker.name, more, memory / more, cpu_s * 1e6 / more, crowd.reach(_SAMPLES))


class Crowd:
    """Connected clients, each with a subscription of its own."""

    def __init__(self, broker: Broker, dialect: Dialect, stack: ExitStack) -> None:
        self._broker = broker
        self._dialect = dialect
        self._stack = stack
        self._connections: list[socket.socket] = []

    def grow(self, count: int) -> None:
        for connection in calmly(self._broker, range(len(self._connections), count)):
            client = len(self._connections)
            self._connections.append(self._stack.enter_context(connection))
            self._dialect.enter(connection, f"client-{client}")
            self._dialect.subscribe(connection, _topic(client))

    def reach(self, samples: int) -> int:
        """How many of some clients, from first to last, get a message that is for them."""
        publisher = self._stack.enter_context(self._broker.connect())
        self._dialect.enter(publisher, "publisher")
        reached = 0
        step = len(self._connections) // samples
        for client in range(0, samples * step, step):
            topic, payload = _topic(client), bytes(_CASE.payload_size)
            publisher.sendall(self._dialect.message(topic, payload, 1))
            delivery = self._dialect.delivery(topic, len(payload))
            reached += bool(receive_delivery(self._connections[client], delivery))
        return reached


def calmly(broker: Broker, clients: Sequence[int]) -> Iterator[socket.socket]:
    """A connection for each, slow enough and from enough addresses not to look like an attack."""
    start = perf_counter()
    for done, client in enumerate(clients):
        if done % _BATCH == 0:
            sleep(max(0.0, start + done / _RATE_HZ - perf_counter()))
        yield broker.connect(f"127.0.0.{2 + client % _SOURCES}")


def _topic(client: int) -> str:
    return f"idle/{client:06}"


def allow(count: int) -> int:
    """How many connections this process and those it starts may have, asking for `count`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return min(count, max(soft, wanted) - _SPARE_FILES)
