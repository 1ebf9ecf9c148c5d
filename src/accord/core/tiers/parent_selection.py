"""Selection of the active and the standby parent of a secondary node, with fail-over.

One linked parent is *active*, one is standby. The child leaves the active parent when its link goes
down, when it is silent, when it has restarted and lost its state, and when it has lacked for a
while what the standby has: then it is cut off itself. A preferred parent becomes active again once
it has been standby for long enough; that time doubles after each failure, up to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from accord.core.model.units import NEVER_US
from accord.core.overlay.liveness import RttEstimator
from accord.core.overlay.status import ParentStatus
from accord.core.tiers.messages import EventId, ParentHeartbeat, TierOptions

_MAX_DOUBLINGS: Final = 5
_NO_SESSION: Final = (0, 0)


class ParentState:
    """A node that is, or was, linked as a parent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rank = 0  # lower is preferred
        self.is_linked = False
        self.is_alive = False  # not silent at the last check
        self.received_us = 0
        self.session = _NO_SESSION  # its incarnation, and the start of its state for this child
        self.version = 0  # acknowledged version of the interests
        self.floor = 0  # floor of the interest log when the parent had none of it
        self.delta_sent_us = -NEVER_US  # time of the last interest delta
        self.attend_us = NEVER_US  # time of the next heartbeat
        self.through = 0  # acknowledged number upstream
        self.parent_epoch = 0  # last parent epoch it has replied in
        self.waiting = 0
        self.lost = 0
        self.failures = 0
        self.steady_us = 0  # since when it has been a healthy standby
        self.round_trip = RttEstimator()

    def is_usable(self) -> bool:
        return self.is_linked and self.is_alive

    def is_known(self) -> bool:
        """Whether it has ever replied."""
        return self.session != _NO_SESSION

    def attend_by(self, due_us: int) -> None:
        self.attend_us = min(self.attend_us, due_us)


class ParentSelector:
    """State machine of the choice; `on_parent_epoch` is called whenever `parent_epoch` changes.

    `left` lists parents that are no longer used and still have to be notified.
    """

    def __init__(self, options: TierOptions, on_parent_epoch: Callable[[int], None]) -> None:
        self.parents: dict[str, ParentState] = {}
        self.active = ""
        self.standby = ""
        self.parent_epoch = 0
        self.switches = 0
        self.left: list[str] = []
        self._options = options
        self._on_parent_epoch = on_parent_epoch
        self._lacks: tuple[EventId, int, int] | None = None  # event ID, since when, last reported

    def used(self) -> list[ParentState]:
        """The active parent and the standby, if any."""
        return [self.parents[name] for name in (self.active, self.standby) if name]

    def met(self) -> ParentState | None:
        """The active parent, if it has replied in this parent epoch."""
        active = self.parents.get(self.active)
        return active if active is not None and active.parent_epoch == self.parent_epoch else None

    def link_up(self, parent: str, rank: int, now_us: int) -> None:
        known = self.parents.setdefault(parent, ParentState(parent))
        known.rank = rank
        known.is_linked = True
        known.received_us = known.steady_us = now_us
        known.parent_epoch = 0
        known.delta_sent_us = -NEVER_US
        known.round_trip.reset()
        if parent == self.active:
            self._start_parent_epoch(now_us)
        self.choose(now_us)
        if known in self.used():
            known.attend_us = now_us

    def link_down(self, parent: str, now_us: int) -> None:
        known = self.parents.get(parent)
        if known is not None and known.is_linked:
            known.is_linked = False
            known.attend_us = NEVER_US
            self.choose(now_us)

    def served(self, parent: ParentState, message: ParentHeartbeat, now_us: int) -> bool:
        """Apply a heartbeat; False if it is from before the parent's last restart."""
        life = (message.incarnation, message.attached_us)
        if life < parent.session:
            return False
        if life > parent.session:
            was_known = parent.is_known()
            parent.session = life
            parent.version = parent.through = 0
            parent.steady_us = now_us
            if was_known and parent.name == self.active:
                self._on_parent_reset(parent, now_us)
        parent.waiting = message.waiting
        parent.lost = message.lost
        if message.at_us:
            parent.round_trip.measure(max(0, now_us - message.at_us))
        return True

    def offered(self, lacking: list[EventId], seen: Container[EventId], now_us: int) -> None:
        """Note events that the standby has and this node lacks."""
        if self._lacks is not None and self._lacks[0] in lacking:
            self._lacks = (self._lacks[0], self._lacks[1], now_us)
        elif self._lacks is None or self._lacks[0] in seen:
            self._lacks = (lacking[0], now_us, now_us)

    def choose(self, now_us: int, seen: Container[EventId] = (), version: int = 0) -> None:
        """Choose the active and the standby parent; `version` is that of the interests."""
        linked = [each for each in self.parents.values() if each.is_linked]
        for each in linked:
            each.is_alive = now_us - each.received_us < self._options.dead_us
        linked.sort(key=lambda each: (not each.is_alive, each.rank, each.name))
        active = self.parents.get(self.active)
        if active is None or not active.is_usable():
            self._replace(active, linked, now_us)
        elif self._is_behind(active, seen, now_us):
            active.failures += 1
            self._switch(self.standby, now_us)
        elif self._is_standby_better(active, version, now_us):
            self._switch(self.standby, now_us)
        standby = next((each.name for each in linked if each.name != self.active), "")
        if standby != self.standby:
            self._set_standby(standby if self.active else "", now_us)

    def next_due_us(self) -> int:
        due_us = NEVER_US
        for each in self.used():
            if each.is_linked:
                due_us = min(due_us, each.attend_us)
                if each.is_alive:
                    due_us = min(due_us, each.received_us + self._options.dead_us)
        return due_us

    def status(self) -> list[ParentStatus]:
        ordered = sorted(self.parents.values(), key=lambda each: (each.rank, each.name))
        return [
            ParentStatus(
                name=each.name,
                is_linked=each.is_linked,
                is_active=each.name == self.active,
                is_standby=each.name == self.standby,
                latency_us=int(each.round_trip.mean_us) // 2,
                waiting=each.waiting,
                lost=each.lost,
            )
            for each in ordered
        ]

    def check_invariants(self) -> None:
        assert not self.active or self.active != self.standby
        assert not self.standby or self.active
        for each in self.used():
            assert self.parents[each.name] is each
            assert each.is_linked
            assert each.parent_epoch <= self.parent_epoch

    def _replace(self, active: ParentState | None, linked: list[ParentState], now_us: int) -> None:
        """Choose another active parent after a failure, or a first one."""
        others = [each for each in linked if each is not active]
        usable = [each for each in others if each.is_alive]
        ready = [each for each in usable if each.name == self.standby]
        found = ready or usable
        if not found and (active is None or not active.is_linked):
            found = others
        if found:
            if active is not None:
                active.failures += 1
            self._switch(found[0].name, now_us)
        elif active is not None and not active.is_linked:
            self.active = ""

    def _switch(self, parent: str, now_us: int) -> None:
        before = self.parents.get(self.active)
        self.active = parent
        self.standby = ""
        if before is not None:
            self.switches += 1
            if before.is_linked:
                self.standby = before.name
                before.steady_us = now_us
        self._start_parent_epoch(now_us)

    def _start_parent_epoch(self, now_us: int) -> None:
        """Start a new parent epoch: the downstream window restarts."""
        self.parent_epoch += 1
        self._lacks = None
        for each in self.used():
            each.attend_us = now_us
        self._on_parent_epoch(now_us)

    def _on_parent_reset(self, active: ParentState, now_us: int) -> None:
        """Handle an active parent that has lost its state."""
        standby = self.parents.get(self.standby)
        # A parent that may have failed but has all events is preferred to one that surely has none.
        if standby is not None and now_us - standby.received_us < 2 * self._options.dead_us:
            active.failures += 1
            self._switch(standby.name, now_us)
        else:
            self._start_parent_epoch(now_us)

    def _set_standby(self, parent: str, now_us: int) -> None:
        before = self.parents.get(self.standby)
        if before is not None and before.name != self.active:
            before.attend_us = NEVER_US
            self.left.append(before.name)
        self.standby = parent
        self._lacks = None
        if parent:
            self.parents[parent].attend_us = now_us
            self.parents[parent].steady_us = now_us

    def _is_standby_better(self, active: ParentState, version: int, now_us: int) -> bool:
        standby = self.parents.get(self.standby)
        if standby is None or standby.rank >= active.rank:
            return False
        if not standby.is_usable() or standby.version != version or self._lacks is not None:
            standby.steady_us = now_us
        wait_us = self._options.return_us << min(standby.failures, _MAX_DOUBLINGS)
        was_heard = now_us - standby.received_us <= 2 * self._options.pulse_us
        return was_heard and now_us - standby.steady_us >= wait_us

    def _is_behind(self, active: ParentState, seen: Container[EventId], now_us: int) -> bool:
        """Whether the standby has had an event for long that the active parent lacks."""
        if self._lacks is None:
            return False
        key, since_us, told_us = self._lacks
        behind_us = self._options.behind_us
        if key in seen or now_us - told_us >= behind_us or not self.standby:
            self._lacks = None
            return False
        is_better = not active.waiting and self.parents[self.standby].is_usable()
        return is_better and now_us - since_us >= behind_us
