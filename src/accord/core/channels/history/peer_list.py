"""List of nodes that a parent sends to secondary nodes which request history.

A secondary node cannot see a node that leaves and returns between two samples. Each node therefore
carries the time since which it has been present without a break: if that differs from before, some
of its events may be lost. Nothing is sampled while no secondary node asks; when one asks again, all
nodes count as new.
"""

from __future__ import annotations

from typing import Final

from accord.core.channels.history.history_client import LOOK_US, PeerPort, PeerState

ASKED_US: Final = 10_000_000  # sampling continues for so long after a request

Nodes = tuple[tuple[str, PeerState], ...]


class PeerList:
    """The list; `version` increases whenever `nodes` change."""

    def __init__(self, around: PeerPort) -> None:
        self.version = 0
        self.nodes: Nodes = ()
        self._around = around
        self._since: dict[str, tuple[int, int]] = {}  # (time, incarnation)
        self._until_us = 0
        self._look_us = 0
        self._seen = -1  # last sampled version of the environment

    def ask(self, now_us: int) -> None:
        """Start or extend sampling."""
        if self._until_us <= now_us:
            self._since.clear()
            self._until_us = now_us + ASKED_US
            self._look(now_us)
        self._until_us = now_us + ASKED_US

    def look_if_due(self, now_us: int) -> None:
        is_due = now_us >= self._look_us or self._seen != self._around.version()
        if now_us < self._until_us and is_due:
            self._look(now_us)

    def next_due_us(self) -> int | None:
        return self._look_us if self._look_us < self._until_us else None

    def _look(self, now_us: int) -> None:
        self._look_us = now_us + LOOK_US
        self._seen = self._around.version()
        nodes = []
        for name in sorted(dict.fromkeys(self._around.names())):
            standing = self._around.standing(name)
            if not (standing.is_here and standing.incarnation):
                self._since.pop(name, None)
            elif self._since.get(name, (0, 0))[1] != standing.incarnation:
                self._since[name] = (now_us, standing.incarnation)
            since, _ = self._since.get(name, (0, 0))
            nodes.append((name, standing._replace(since=since)))
        found = dict(nodes)
        self._since = {name: each for name, each in self._since.items() if name in found}
        if tuple(nodes) != self.nodes:
            self.nodes = tuple(nodes)
            # No version is used twice, in any incarnation of this node.
            self.version = max(self.version + 1, now_us)
