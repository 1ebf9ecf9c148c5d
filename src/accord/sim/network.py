"""All links of a simulation, and which of them nodes can use.

A link is *blocked* in one or both directions while it is down or a partition separates its ends;
each cause is counted separately, so that repairing one does not undo another. Blocking is not
reported: machines have to detect it. Streams also have a *connection*. Its end is reported to both
ends, and it is re-established when both nodes run and nothing blocks the link. When a node's
process ends, its neighbours learn so after the delay of the link; when its computer fails, only
after trying for `dead_us`. Without streams, links are up whenever a node runs, and never reported
down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from accord.sim.clock import Clock
from accord.sim.links import STREAM, Arrive, Link, LinkModel
from accord.sim.trace import SimulationError

# (node, its neighbour, whether the link is up, now_us)
NotifyLink = Callable[[str, str, bool, int], None]
# A connection in some state: its two directions, and their epoch.
Episode = tuple[Link, Link, int]


class Network:
    """Directed links by their two ends.

    Messages go to `arrive`, link changes to `notify`; `pull` requests data when a link takes more.
    """

    def __init__(
        self,
        clock: Clock,
        seed: int,
        *,
        arrive: Arrive,
        notify: NotifyLink,
        pull: Callable[[Link, int], None],
    ) -> None:
        self._clock = clock
        self._seed = seed
        self._arrive = arrive
        self._notify = notify
        self._pull = pull
        self._running: dict[str, bool] = {}
        self._breaks = 0
        self._parts: dict[str, int] | None = None
        self.links: dict[tuple[str, str], Link] = {}
        self.by_source: dict[str, dict[str, Link]] = {}

    def add_node(self, name: str) -> None:
        if name in self.by_source:
            raise SimulationError(f"expected names that differ, got {name} twice")
        self.by_source[name] = {}
        self._running[name] = False

    def join(self, one: str, other: str, model: LinkModel, back: LinkModel | None = None) -> None:
        """Link two nodes; the reverse direction is the same unless `back` is given."""
        for source, target in ((one, other), (other, one)):
            if source not in self.by_source:
                raise SimulationError(f"link {one}–{other}: expected a node, got {source!r}")
            if source == target or (source, target) in self.links:
                raise SimulationError(f"link {one}–{other}: expected two nodes, linked once")
            if back is not None and back.mode != model.mode:
                raise SimulationError(f"link {one}–{other}: expected one mode both ways")
            chosen = model if back is None or source == one else back
            link = Link(
                source,
                target,
                chosen,
                clock=self._clock,
                seed=self._seed,
                arrive=self._arrive,
                break_=self._break_soon,
            )
            self.links[source, target] = self.by_source[source][target] = link
        self._parts = None

    def link(self, source: str, target: str) -> Link:
        found = self.links.get((source, target))
        if found is None:
            raise SimulationError(f"expected a link from {source} to {target}, there is none")
        return found

    def both(self, one: str, other: str) -> tuple[Link, Link]:
        return self.link(one, other), self.link(other, one)

    @property
    def breaks(self) -> int:
        """Connections that broke."""
        return self._breaks

    # Nodes

    def is_running(self, name: str) -> bool:
        return self._running[name]

    def start(self, name: str, now_us: int) -> None:
        """A node runs from now on; its machine is notified as links come up."""
        self._running[name] = True
        self._parts = None
        for neighbour, link in self.by_source[name].items():
            back = self.links[neighbour, name]
            if link.model.mode == STREAM:
                if link.is_up or back.is_up:
                    self._break(link, back, now_us)
                self._connect_soon(link, back, now_us)
            else:
                link.is_up = True
                self._notify(name, neighbour, True, now_us)

    def stop(self, name: str, now_us: int, *, is_silent: bool = False) -> None:
        """A node stops; `is_silent` if the whole computer failed."""
        self._running[name] = False
        self._parts = None
        for neighbour, link in self.by_source[name].items():
            back = self.links[neighbour, name]
            link.is_up = False
            if link.model.mode == STREAM and back.is_up:
                is_noticed = not (is_silent or link.blocks or back.blocks)
                after_us = link.typical_us if is_noticed else back.model.dead_us
                self._clock.at(now_us + after_us, self._on_break, (link, back, link.epoch))

    # Links

    def block(
        self, source: str, target: str, cause: str, now_us: int, *, is_reported: bool = False
    ) -> None:
        """Block this direction; with `is_reported`, both ends are notified at once."""
        link, back = self.both(source, target)
        if not link.blocks:
            link.blocked_since = now_us
            if link.model.mode == STREAM:
                link.interrupt()
                episode = (link, back, link.epoch)
                self._clock.at(now_us + link.model.dead_us, self._on_dead, (*episode, now_us))
        link.blocks[cause] = link.blocks.get(cause, 0) + 1
        self._parts = None
        if is_reported:
            self._break(link, back, now_us)

    def unblock(self, source: str, target: str, cause: str, now_us: int) -> None:
        """Undo one `block` with the same cause, if there is one."""
        link, back = self.both(source, target)
        if cause not in link.blocks:
            return
        link.blocks[cause] -= 1
        if not link.blocks[cause]:
            del link.blocks[cause]
        if link.blocks:
            return
        self._parts = None
        if link.model.mode == STREAM:
            link.release(now_us)
            self._pull(link, now_us)
            self._connect_soon(link, back, now_us)
            return
        for each in (link, back):
            if not each.is_up and not each.blocks and self._running[each.source]:
                each.is_up = True
                self._notify(each.source, each.target, True, now_us)

    def partition(self, groups: Sequence[Iterable[str]], now_us: int) -> None:
        """Separate the groups from each other, and from the nodes in none of them."""
        place = {name: number for number, group in enumerate(groups) for name in group}
        for name in place:
            if name not in self.by_source:
                raise SimulationError(f"partition: expected a node, got {name!r}")
        for source, target in self.links:
            if place.get(source) != place.get(target):
                self.block(source, target, "partition", now_us)

    def heal(self, now_us: int) -> None:
        """End all partitions."""
        for source, target in self.links:
            link = self.links[source, target]
            while "partition" in link.blocks:
                self.unblock(source, target, "partition", now_us)

    def part(self, name: str) -> int:
        """Component of the network a running node is in; nodes that reach each other share it."""
        if self._parts is None:
            self._parts = self._find_parts()
        return self._parts[name]

    def _find_parts(self) -> dict[str, int]:
        parts: dict[str, int] = {}
        for number, first in enumerate(self.by_source):
            if first in parts:
                continue
            parts[first] = number
            waiting = [first] if self._running[first] else []
            while waiting:
                name = waiting.pop()
                for target, link in self.by_source[name].items():
                    back = self.links[target, name]
                    is_open = link.is_up and back.is_up and not (link.blocks or back.blocks)
                    if target not in parts and is_open:
                        parts[target] = number
                        waiting.append(target)
        return parts

    # Connections

    def _connect_soon(self, link: Link, back: Link, now_us: int) -> None:
        if link.is_up or back.is_up:
            return
        after_us = link.model.connect_us + link.typical_us + back.typical_us
        self._clock.at(now_us + after_us, self._on_connect, (link, back, link.epoch))

    def _on_connect(self, now_us: int, episode: Episode) -> None:
        link, back, epoch = episode
        is_possible = self._running[link.source] and self._running[link.target]
        if link.epoch != epoch or link.is_up or link.blocks or back.blocks or not is_possible:
            return
        link.is_up = back.is_up = True
        self._parts = None
        self._notify(link.source, link.target, True, now_us)
        self._notify(link.target, link.source, True, now_us)

    def _break_soon(self, link: Link) -> None:
        # Not within the sender's step: machines are not re-entered.
        back = self.links[link.target, link.source]
        self._clock.at(self._clock.now_us, self._on_break, (link, back, link.epoch))

    def _on_break(self, now_us: int, episode: Episode) -> None:
        link, back, epoch = episode
        if link.epoch == epoch:
            self._break(link, back, now_us)

    def _on_dead(self, now_us: int, since: tuple[Link, Link, int, int]) -> None:
        link, back, epoch, blocked_since = since
        if link.blocks and link.epoch == epoch and link.blocked_since == blocked_since:
            self._break(link, back, now_us)

    def _break(self, link: Link, back: Link, now_us: int) -> None:
        were_up = (link.is_up, back.is_up)
        self._breaks += any(were_up)
        self._parts = None
        link.cut()
        back.cut()
        for each, was_up in zip((link, back), were_up, strict=True):
            if was_up:
                self._notify(each.source, each.target, False, now_us)
        if link.model.mode == STREAM:
            self._connect_soon(link, back, now_us)
