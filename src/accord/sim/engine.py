"""Step engine: feeds machines one input at a time.

A machine gets an input; then `finish_step` forwards its output, schedules its next deadline, and,
in test mode, checks its invariants. A machine is never re-entered during a step: a link that breaks
while it sends is reported to it through the clock.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Final

from accord.core.model.units import NEVER_US
from accord.sim.checkers import Finding
from accord.sim.clock import Clock
from accord.sim.faults import Disk
from accord.sim.hosts import Host
from accord.sim.links import Link
from accord.sim.machine import Machine, Make
from accord.sim.network import Network
from accord.sim.trace import SimulationError, Trace

MAX_SPINS: Final = 10_000  # calls of one machine at one time, after which it counts as stuck


class Engine:
    """Hosts on a network. Clients are up to the simulation."""

    def __init__(
        self, make: Make, seed: int, *, most: int, trace: Trace | None, is_checking: bool
    ) -> None:
        self.clock = Clock(most)
        self.trace = trace
        self.network = Network(
            self.clock,
            seed,
            arrive=self._on_arrival,
            notify=self._notify_link,
            pull=self._resume_pull,
        )
        self.hosts: dict[str, Host] = {}
        self.crashes = 0
        self.error: Exception | None = None
        self.found: list[Finding] = []
        self._make = make
        self._is_checking = is_checking
        self._acting = ""  # the node whose step is running
        self._on_wake = self._wake
        self._on_pull = self._pull_due

    def on_started(self, host: Host, now_us: int) -> None:
        """Hook: the node started; reconnect its clients."""

    def on_crashed(self, host: Host, now_us: int) -> None:
        """Hook: the node crashed; its clients are gone."""

    def deliver(self, host: Host, now_us: int) -> None:
        """Hook: take the host's deliveries for its clients."""

    def machines(self) -> Mapping[str, Machine]:
        hosts = self.hosts.values()
        return {host.name: host.machine for host in hosts if host.machine is not None}

    def restart(self, node: str, now_us: int) -> None:
        host = self.hosts[node]
        if host.machine is not None:
            return
        self._acting = node
        self.note(f"{now_us} start {node}")
        machine = host.start(self._make, now_us)
        self.network.start(node, now_us)
        self.on_started(host, now_us)
        self.finish_step(host, machine, now_us)

    def crash(self, node: str, now_us: int, *, disk: Disk, is_silent: bool) -> None:
        host = self.hosts[node]
        if host.machine is None:
            return
        self.note(f"{now_us} crash {node} {disk}")
        self.crashes += 1
        self.on_crashed(host, now_us)
        host.crash(disk)
        self.network.stop(node, now_us, is_silent=is_silent)

    def set_acting(self, host: Host) -> None:
        """Mark this host as the one whose step runs next."""
        self._acting = host.name

    def note(self, line: str) -> None:
        if self.trace is not None:
            self.trace.note(line)

    def report_fault(self, checker: str, problem: str, error: Exception) -> None:
        """Report a fault of the machine whose step is running; ends the run."""
        self.error = error
        self.found.append(Finding(self.clock.now_us, self._acting, checker, problem))
        self.clock.stop()

    # Steps

    def _on_arrival(self, link: Link, message: Any, checksum: int, size: int) -> None:
        now_us = self.clock.now_us
        host = self.hosts[link.target]
        machine = host.machine
        if machine is None:
            link.counts.blocked += 1
            return
        self._acting = host.name
        if self.trace is not None:
            self.trace.note(f"{now_us} {link.name} {size} {checksum}")
        machine.receive(link.source, message, now_us)
        self.finish_step(host, machine, now_us)

    def _notify_link(self, node: str, neighbour: str, is_up: bool, now_us: int) -> None:
        host = self.hosts[node]
        machine = host.machine
        if machine is None:
            return
        self._acting = node
        self.note(f"{now_us} {node}>{neighbour} {'up' if is_up else 'down'}")
        if is_up:
            machine.link_up(neighbour, now_us)
            self._pull(host.links[neighbour], machine, now_us)
        else:
            machine.link_down(neighbour, now_us)
        self.finish_step(host, machine, now_us)

    def _wake(self, now_us: int, host: Host) -> None:
        if now_us != host.wake_us:
            return  # called since then, with another deadline
        host.wake_us = NEVER_US
        machine = host.machine
        assert machine is not None
        if host.due_us > now_us:
            host.wake_us = host.due_us
            self.clock.at(host.due_us, self._on_wake, host)
            return
        self._acting = host.name
        if self.trace is not None:
            self.trace.note(f"{now_us} wake {host.name}")
        machine.advance(now_us)
        self.finish_step(host, machine, now_us)
        if host.due_us > now_us:
            host.spins = 0
            return
        host.spins += 1
        if host.spins > MAX_SPINS:
            raise SimulationError(f"{host.name} is due at {host.due_us} µs whatever it does")

    def finish_step(self, host: Host, machine: Machine, now_us: int) -> None:
        """Forward the machine's output, and schedule its next deadline."""
        links = host.links
        sends, ready = machine.sends, machine.ready
        while sends or ready:
            for neighbour, message in sends:
                links[neighbour].send(message, now_us)
            sends.clear()
            if ready:
                waiting = list(dict.fromkeys(ready))
                ready.clear()
                for neighbour in waiting:
                    self._pull(links[neighbour], machine, now_us)
            sends, ready = machine.sends, machine.ready
        if host.node is not None and host.node.deliveries:
            self.deliver(host, now_us)
        due_us = machine.next_due_us()
        host.due_us = NEVER_US if due_us is None else due_us
        if host.due_us < host.wake_us:
            # A past deadline is due now; if the clock adjusted it, it would not be recognised.
            host.wake_us = host.due_us if host.due_us > now_us else now_us
            self.clock.at(host.wake_us, self._on_wake, host)
        if self._is_checking:
            self._check(machine)

    def _check(self, machine: Machine) -> None:
        try:
            machine.check_invariants()
        except AssertionError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            problem = str(error).partition("\n")[0] or frame.line
            self.report_fault("invariants", f"{frame.name}: {problem}", error)

    # Data

    def _pull(self, link: Link, machine: Machine, now_us: int) -> None:
        """Let the link pull as much data as it can now, and again when it can take more."""
        taken = 0
        while wanted := link.wanted_bytes(now_us):
            frames = machine.take(link.target, wanted)
            if not frames:
                return
            for frame in frames:
                link.send(frame, now_us)
            taken += 1
            if taken > MAX_SPINS:
                raise SimulationError(f"{link.name}: data without end")
        if link.is_up and link.free_us > now_us and not link.is_pulling:
            link.is_pulling = True
            self.clock.at(link.free_us, self._on_pull, link)

    def _pull_due(self, now_us: int, link: Link) -> None:
        link.is_pulling = False
        self._resume_pull(link, now_us)

    def _resume_pull(self, link: Link, now_us: int) -> None:
        host = self.hosts[link.source]
        machine = host.machine
        if machine is not None and link.is_up:
            self._acting = host.name
            self._pull(link, machine, now_us)
            self.finish_step(host, machine, now_us)
