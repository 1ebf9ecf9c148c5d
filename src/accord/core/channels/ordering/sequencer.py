"""The sequencer of a channel: grants each requesting source the next positions in the order.

It only counts. For receivers that miss a position it knows the holder of every grant: recent ones
exactly, older ones as a range per source; the source itself has the details.

After a takeover it asks all nodes for the positions they hold from earlier epochs, and grants none
until all have replied. From then on no node accepts positions of an earlier epoch, and all
positions that were used and may still be missing somewhere are known. Only suspected nodes
(`failure_detector`) are excluded, and only if every replying node suspects them too: a sequencer
that is itself cut off must not proceed without nodes whose positions the others still accept. An
excluded node is informed of the epoch as soon as it is reachable, so that it stops using positions
of an earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Final

from accord.core.channels.ordering.messages import (
    MAX_GRANT,
    MAX_SHOWN,
    MAX_SUSPECTED,
    Epoch,
    EpochPromise,
    HolderQuery,
    HolderReply,
    PositionGrant,
    PositionRange,
    PositionRequest,
    epoch_of,
    merged,
)

_HELD: Final = 1_024  # recent grants, also pending requests
_SOURCES: Final = 4_096  # sources with ranges of older grants
PREPARE_US: Final = 500_000


class Sequencer:
    """Sequencer of one epoch at a time; `epoch` is valid once no node is waited for."""

    def __init__(self, name: str, incarnation: int, now_us: int) -> None:
        self.epoch: Epoch = (0, name, incarnation)
        self.waiting: dict[str, bool] = {}  # nodes that have not promised yet
        self.excluded: dict[str, bool] = {}  # excluded nodes; True: to be informed now
        self._promised: dict[str, bool] = {}
        self.prepared_us = 0
        self.used_us = now_us
        self._next = 1
        self._held: deque[PositionRange] = deque()
        self._older: dict[str, list[PositionRange]] = {}  # by source, one range per epoch
        self._grants: dict[tuple[str, int], PositionGrant] = {}
        self._requests: dict[str, PositionRequest] = {}  # requests that came before it was ready

    @property
    def is_ready(self) -> bool:
        return self.epoch[0] > 0 and not self.waiting

    @property
    def is_busy(self) -> bool:
        """Whether it waits for promises or holds requests."""
        return bool(self.waiting or self._requests)

    def start_epoch(self, latest: Epoch, nodes: list[str]) -> None:
        """Start an epoch after `latest`; all `nodes` must report positions of earlier ones."""
        self.epoch = (max(latest[0], self.epoch[0]) + 1, *self.epoch[1:])
        self.waiting = dict.fromkeys(nodes, True)
        self.excluded = {}
        self._promised = {}
        self.prepared_us = 0
        while self._held:
            self._merge_oldest()
        self._grants.clear()
        self._next = 1

    def on_promise(self, node: str, message: EpochPromise) -> bool:
        """Apply a promise; False if the node has seen a later epoch than this one."""
        if message.epoch != self.epoch:
            return True
        if message.latest > self.epoch:
            return False
        was_ready = self.is_ready
        if node in self.excluded:
            del self.excluded[node]
            self.waiting[node] = True
        if node not in self.waiting:
            return True
        self._remember(node, [held for held in message.held if held.source == node])
        if not was_ready:
            self.on_reachable(message.in_contact)
        if was_ready or {*self.suspected} <= {*message.suspected}:
            del self.waiting[node]
            self._promised[node] = True
        return True

    def exclude(self, is_suspected: Callable[[str], bool]) -> None:
        """Exclude suspected nodes; the others must promise again with the new exclusions."""
        lost = [each for each in self.waiting if is_suspected(each)]
        if lost:
            others = self._promised | self.waiting
            self.excluded |= dict.fromkeys(lost, False)
            self.waiting = {each: True for each in others if each not in self.excluded}
            self._promised = {}
        for each, is_found in self.excluded.items():
            self.excluded[each] = is_found and not is_suspected(each)

    def on_reachable(self, nodes: Iterable[str]) -> None:
        """Note nodes that are reachable: wait for excluded ones again or, if ready, inform them."""
        for each in [each for each in dict.fromkeys(nodes) if each in self.excluded]:
            if self.is_ready:
                self.excluded[each] = True
            else:
                del self.excluded[each]
                self.waiting[each] = True

    def join(self, nodes: Iterable[str]) -> None:
        """Add nodes that were unknown when the epoch began."""
        others = [each for each in nodes if each not in self._promised | self.waiting]
        self.excluded |= dict.fromkeys(others, False)
        self.on_reachable(others)

    @property
    def suspected(self) -> tuple[str, ...]:
        """Excluded nodes, to be confirmed by the others."""
        return tuple(islice(self.excluded, MAX_SUSPECTED))

    @property
    def is_preparing(self) -> bool:
        return bool(self.waiting) or any(self.excluded.values())

    def awaited(self) -> list[str]:
        """Nodes whose promise is awaited."""
        return [*self.waiting, *[each for each, is_found in self.excluded.items() if is_found]]

    def hold_request(self, source: str, request: PositionRequest) -> None:
        """Hold a request until the sequencer is ready."""
        if len(self._requests) < _HELD:
            self._requests[source] = request

    def take_requests(self) -> list[tuple[str, PositionRequest]]:
        """Remove and return the held requests; none before it is ready."""
        if not self.is_ready:
            return []
        requests, self._requests = self._requests, {}
        return list(requests.items())

    def grant(self, source: str, request: PositionRequest, now_us: int) -> PositionGrant:
        assert self.is_ready
        self.used_us = now_us
        key = (source, request.incarnation)
        known = self._grants.get(key)
        if known is not None and known.request >= request.request:
            return known
        count = max(1, min(request.count, MAX_GRANT))
        held = PositionRange(
            self.epoch, self._next, self._next + count - 1, source, request.incarnation
        )
        self._next += count
        self._held.append(held)
        if len(self._held) > _HELD:
            self._merge_oldest()
        while len(self._grants) >= _HELD:
            del self._grants[next(iter(self._grants))]
        grant = self._grants[key] = PositionGrant(request.request, held)
        return grant

    def holders(self, query: HolderQuery) -> HolderReply:
        """Holders of the positions between two, for the next sources by name."""
        known = chain(*self._older.values(), self._held)
        found = [
            each
            for each in known
            if each.source > query.after and each.is_between(query.low, query.high)
        ]
        sources = sorted({each.source: True for each in found})
        shown = dict.fromkeys(sources[:MAX_SHOWN], True)
        held = merged(each for each in found if each.source in shown)
        is_all = len(shown) == len(sources)
        is_of_earlier = query.low is None or epoch_of(query.low) < self.epoch
        left_out = self.suspected if is_of_earlier else ()
        return HolderReply(query.low, query.high, query.after, tuple(held), is_all, left_out)

    def check_invariants(self) -> None:
        assert not self.waiting.keys() & self.excluded.keys()
        assert not self._promised.keys() & (self.waiting.keys() | self.excluded.keys())
        assert len(self._held) <= _HELD
        assert len(self._older) <= _SOURCES
        for source, older in self._older.items():
            assert older
            assert older == merged(older)
            assert all(each.source == source and each.epoch <= self.epoch for each in older)
        assert len(self._requests) <= _HELD
        last = 0
        for held in self._held:
            assert held.epoch == self.epoch
            assert last < held.first <= held.last < self._next
            last = held.last

    def _merge_oldest(self) -> None:
        """Merge the oldest grant into the range of its source."""
        held = self._held.popleft()
        older = self._older.get(held.source, ())
        # Positions of an earlier incarnation will not arrive.
        current = [each for each in older if each.incarnation >= held.incarnation]
        self._remember(held.source, [*current, held])

    def _remember(self, source: str, ranges: list[PositionRange]) -> None:
        self._older.pop(source, None)
        if ranges:
            while len(self._older) >= _SOURCES:
                del self._older[next(iter(self._older))]
            self._older[source] = merged(ranges)
