"""A run: nodes on a topology, workload and faults, and the findings.

An exception in a machine is a finding like any other, with time and node, and ends the run. A run
depends on its seed alone: the same seed gives the same trace, so a finding can be reproduced.

The outcome of a run, and how to reproduce it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.sim.checkers import Checker, Finding
from accord.sim.delivery_oracle import ChannelTally, DeliveryOracle
from accord.sim.engine import Engine
from accord.sim.faults import Fault, Timed, problem_with
from accord.sim.hosts import Host
from accord.sim.links import LinkCounts, LinkModel, with_delays
from accord.sim.machine import ChannelSpec, Machine, Make, Publication, SimSubscription, number_of
from accord.sim.topology import Span, Topology
from accord.sim.trace import SimulationError, Trace
from accord.sim.workloads import Workload

_SHOWN = 10


class Outcome(Struct, frozen=True, kw_only=True):
    """`findings` are the first of each checker; `found` counts all of them."""

    seed: int
    topology: str
    nodes: int
    until_us: int
    happened: int
    trace: str  # its hash, or empty
    channels: dict[str, ChannelTally]
    links: dict[tuple[str, str], LinkCounts]
    breaks: int
    crashes: int
    unpublished: int
    overdue: int
    findings: tuple[Finding, ...]
    found: int
    last: tuple[str, ...]  # lines of the trace
    replay: str

    @property
    def is_good(self) -> bool:
        return self.found == 0

    def check(self) -> Outcome:
        """Return itself; raises RunFailedError if there are findings."""
        if self.found:
            raise RunFailedError(self)
        return self

    def report(self) -> Iterator[str]:
        """Summary of a failed run for the operator."""
        yield f"seed {self.seed}: {self.found} findings in {self.until_us / 1_000_000:g} s"
        for finding in self.findings[:_SHOWN]:
            yield f"  {finding}"
        if self.found > _SHOWN:
            yield f"  … and {self.found - _SHOWN} more"
        if self.trace:
            yield f"trace {self.trace}"
        yield f"replay with: {self.replay}"


class RunFailedError(AccordError):
    """A run with findings; names the seed, and the command that replays it."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__("\n".join(outcome.report()))

    def parts(self) -> list[str]:
        return list(self.outcome.report())


Model = LinkModel | Callable[[Span], LinkModel]


class Options(Struct, frozen=True, kw_only=True):
    """How a run is observed."""

    settle_us: int = 10_000_000  # how long a subscription takes to propagate
    patience_us: int = 10_000_000  # how long a delivery may take before it counts as lost
    sample_us: int = 1_000_000
    is_checking: bool = False  # invariants after each step
    is_tracing: bool = True
    most_happenings: int = 1 << 60


class Simulation(Engine):
    """All parts of one run. `make` builds the machine of a node at each of its starts."""

    def __init__(  # noqa: PLR0913 (only two of them are needed, and all go together as one likes)
        self,
        topology: Topology,
        make: Make,
        *,
        seed: int,
        model: Model | None = None,
        faults: Iterable[Timed] = (),
        workload: Workload | None = None,
        channels: Sequence[ChannelSpec] = (),
        checkers: Sequence[Checker] = (),
        options: Options | None = None,
        trace: Trace | None = None,
        replay: str = "",
    ) -> None:
        options = options or Options()
        super().__init__(
            make,
            seed,
            most=options.most_happenings,
            trace=trace or (Trace() if options.is_tracing else None),
            is_checking=options.is_checking,
        )
        self.seed = seed
        self.topology = topology
        self.options = options
        self.tally = DeliveryOracle(
            self, settle_us=options.settle_us, timeout_us=options.patience_us
        )
        self.checkers = list(checkers)
        self._replay = replay or f"Simulation(…, seed={seed})"
        self._build(model, tuple(channels))
        self._plan(faults, workload)

    def _build(self, model: Model | None, channels: tuple[ChannelSpec, ...]) -> None:
        choose = model if callable(model) else with_delays(model or LinkModel())
        for name in self.topology.nodes:
            self.network.add_node(name)
        for span in self.topology.spans:
            self.network.join(span.one, span.other, choose(span))
        for name in self.topology.nodes:
            links = self.network.by_source[name]
            self.hosts[name] = Host(name, links, self.seed, channels)

    def _plan(self, faults: Iterable[Timed], workload: Workload | None) -> None:
        for name in self.topology.nodes:
            self.clock.at(0, self._start, name)
        for timed in faults:
            if problem := problem_with(timed.fault, self.topology):
                raise SimulationError(problem)
            self.clock.at(timed.at_us, self._fail, timed.fault)
        if workload is not None:
            for name, node in workload.places():
                if node not in self.hosts:
                    problem = f"{name}: expected a node of the topology, got {node!r}"
                    raise SimulationError(problem)
            workload.begin(self, self.seed)
        if workload is not None or self.checkers:
            self.clock.at(self.options.sample_us, self._sample)

    def run(self, until_us: int) -> Outcome:
        """Advance to that time, and judge."""
        self.advance(until_us)
        return self.finish()

    def advance(self, until_us: int) -> None:
        """Advance to that time, unless a finding ends the run."""
        try:
            self.clock.run(until_us)
        except Exception as error:  # whatever a machine raises
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
            self.report_fault("exception", f"{type(error).__name__} in {where}: {error}", error)

    def finish(self) -> Outcome:
        """End the run: anything not delivered by now is lost."""
        now_us = self.clock.now_us
        self.tally.judge(now_us, self._missed, is_last=True)
        for checker in self.checkers:
            checker.ended(self, now_us)
        findings = [*self.found, *(each for checker in self.checkers for each in checker.findings)]
        return Outcome(
            seed=self.seed,
            topology=self.topology.name,
            nodes=len(self.topology.nodes),
            until_us=now_us,
            happened=self.clock.happened,
            trace=self.trace.digest() if self.trace else "",
            channels=self.tally.channels,
            links={ends: link.counts for ends, link in self.network.links.items()},
            breaks=self.network.breaks,
            crashes=self.crashes,
            unpublished=self.tally.unpublished,
            overdue=self.tally.overdue,
            findings=tuple(sorted(findings, key=lambda finding: finding.at_us)),
            found=len(self.found) + sum(checker.count for checker in self.checkers),
            last=tuple(self.trace.last()) if self.trace else (),
            replay=self._replay,
        )

    def machine(self, name: str) -> Machine:
        """The machine of a running node."""
        machine = self.hosts[name].machine
        if machine is None:
            raise SimulationError(f"{name} does not run")
        return machine

    def touch(self, name: str) -> None:
        """Forward output that a machine produced outside of the run."""
        self.set_acting(self.hosts[name])
        self.finish_step(self.hosts[name], self.machine(name), self.clock.now_us)

    # Called by the delivery oracle

    def has_run_since(self, node: str, since_us: int) -> bool:
        host = self.hosts[node]
        return host.machine is not None and host.started_us <= since_us

    def is_reachable(self, node: str, other: str) -> bool:
        return self.network.part(node) == self.network.part(other)

    # Clients

    def publish(self, publication: Publication, now_us: int) -> None:
        host = self.hosts[publication.node]
        if host.machine is None:
            self.tally.unpublished += 1
            return
        self.set_acting(host)
        self.note(f"{now_us} publish {publication.node} {publication.number}")
        self.tally.publish(publication, now_us)
        host.as_node().publish(publication, now_us)
        for checker in self.checkers:
            checker.published(publication, host.machine, now_us)
        self.finish_step(host, host.machine, now_us)

    def subscribe(self, subscription: SimSubscription, now_us: int) -> None:
        host = self.hosts[subscription.node]
        host.subscriptions[subscription.subscriber, subscription.filter] = subscription
        if host.machine is not None:
            self.set_acting(host)
            self.note(f"{now_us} subscribe {_described(subscription)}")
            self.tally.subscribe(subscription, now_us)
            host.as_node().subscribe(subscription, now_us)
            self.finish_step(host, host.machine, now_us)

    def unsubscribe(self, subscription: SimSubscription, now_us: int) -> None:
        host = self.hosts[subscription.node]
        del host.subscriptions[subscription.subscriber, subscription.filter]
        if host.machine is not None:
            self.set_acting(host)
            self.note(f"{now_us} unsubscribe {_described(subscription)}")
            self.tally.unsubscribe(subscription, now_us)
            host.as_node().unsubscribe(subscription, now_us)
            self.finish_step(host, host.machine, now_us)

    def on_started(self, host: Host, now_us: int) -> None:
        for subscription in host.subscriptions.values():
            self.tally.subscribe(subscription, now_us)
            host.as_node().subscribe(subscription, now_us)

    def on_crashed(self, host: Host, now_us: int) -> None:
        for subscription in host.subscriptions.values():
            self.tally.unsubscribe(subscription, now_us)

    def deliver(self, host: Host, now_us: int) -> None:
        deliveries = host.as_node().deliveries
        for delivery in deliveries:
            number = number_of(delivery.payload)
            subscriber = delivery.subscriber
            self.note(f"{now_us} deliver {host.name} {subscriber} {number}")
            publication, is_first, is_wanted = self.tally.deliver(number, subscriber, now_us)
            for checker in self.checkers:
                if not is_wanted:
                    checker.unwanted(number, subscriber, host.name, now_us)
                elif publication is not None:
                    checker.delivered(publication, subscriber, host.name, now_us, is_first=is_first)
        deliveries.clear()

    # Called by the clock

    def _start(self, now_us: int, name: str) -> None:
        self.restart(name, now_us)

    def _fail(self, now_us: int, fault: Fault) -> None:
        self.note(f"{now_us} fault {fault}")
        fault.apply(self, now_us)

    def _sample(self, now_us: int, _: object) -> None:
        self.tally.judge(now_us, self._missed)
        for checker in self.checkers:
            checker.sampled(self, now_us)
        self.clock.at(now_us + self.options.sample_us, self._sample)

    def _missed(self, publication: Publication, subscriber: str, node: str) -> None:
        for checker in self.checkers:
            checker.missed(publication, subscriber, node, self.clock.now_us)


def _described(subscription: SimSubscription) -> str:
    return f"{subscription.node} {subscription.subscriber} {subscription.filter}"
