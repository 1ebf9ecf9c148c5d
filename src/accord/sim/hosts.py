"""A simulated computer: runs a node's machine, loses it in a crash, and starts a new one."""

from __future__ import annotations

from typing import Final, cast

from accord.core.model.units import NEVER_US
from accord.journal.faults import FaultDisk
from accord.sim.clock import stream
from accord.sim.faults import Disk
from accord.sim.links import Link
from accord.sim.machine import ChannelSpec, Machine, Make, Node, SimSubscription, Start
from accord.sim.trace import SimulationError

# Wall clock at the start: an arbitrary day, the same in each run.
BEGIN_MS: Final = 1_750_000_000_000


class HostLinks(dict[str, Link]):
    """The links of one node, by the node at their other end."""

    def __missing__(self, name: str) -> Link:
        raise SimulationError(f"expected a neighbour, got {name!r}")


class Host:
    """`machine` is None while it is down;

    `subscriptions` are its clients' subscriptions, up or down.
    """

    def __init__(
        self, name: str, links: dict[str, Link], seed: int, channels: tuple[ChannelSpec, ...]
    ) -> None:
        self.name = name
        self.links = HostLinks(links)
        self.machine: Machine | None = None
        self.node: Node | None = None  # the machine, if clients can use it
        self.started_us = 0
        self.due_us = NEVER_US  # the machine's next deadline
        self.wake_us = NEVER_US  # when it is scheduled
        self.spins = 0  # calls at the same time
        self.subscriptions: dict[tuple[str, str], SimSubscription] = {}
        self.disk = self._new_disk(seed)
        self._seed = seed
        self._channels = channels
        self._incarnation = 0
        self._starts = 0

    def _new_disk(self, seed: int) -> FaultDisk:
        random = stream(seed, "disk", self.name)
        return FaultDisk(lambda most: random.randint(0, most), location=self.name)

    def start(self, make: Make, now_us: int) -> Machine:
        assert self.machine is None
        self._starts += 1
        self._incarnation = max(self._incarnation + 1, BEGIN_MS + now_us // 1_000)
        start = Start(
            name=self.name,
            now_us=now_us,
            incarnation=self._incarnation,
            neighbours=tuple(self.links),
            random=stream(self._seed, "node", self.name, self._starts),
            disk=self.disk,
            channels=self._channels,
        )
        machine = self.machine = make(start)
        is_node = hasattr(machine, "publish") and hasattr(machine, "deliveries")
        self.node = cast("Node", machine) if is_node else None
        self.started_us = now_us
        self.due_us = self.wake_us = NEVER_US
        return machine

    def crash(self, disk: Disk) -> None:
        """Lose the machine's state; its disk keeps what the fault specifies."""
        self.machine = self.node = None
        self.due_us = self.wake_us = NEVER_US
        if disk == "lost":
            self.disk = self._new_disk(self._seed + self._starts)
        elif disk == "torn":
            self.disk = self.disk.crash()
        else:
            self.disk.kill()

    def as_node(self) -> Node:
        """The machine for a client."""
        if self.node is None:
            raise SimulationError(f"{self.name}: expected a node that clients can use")
        return self.node
