"""The network as one node knows it, in rows that are kept up to date: what the live map shows.

It follows the records of the state store, so a change costs what it concerns, however large the
network is. Flows and arrivals of nodes that are not reachable are left out: their state is unknown.
So is what exceeds the bounds, until there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from accord.core.model.errors import decode_or_none
from accord.core.model.locations import Location
from accord.core.monitoring.sightings import LINKS, NODES, Subject
from accord.core.overlay.arrival_counts import ArrivalRecord
from accord.core.overlay.overlay import LINK, NODE, Overlay
from accord.core.overlay.state_store import Watcher
from accord.core.overlay.status import ArrivalStatus, FlowStatus
from accord.core.overlay.status_publisher import ARRIVED, FLOW, FlowRecord
from accord.core.overlay.status_snapshot import flow_status

MAX_NODES: Final = 1_000
MAX_LINKS: Final = 5_000
MAX_FLOWS: Final = 400
MAX_ARRIVALS: Final = 600
_BOUNDS: Final = {NODE: MAX_NODES, LINK: MAX_LINKS, FLOW: MAX_FLOWS, ARRIVED: MAX_ARRIVALS}

_flow: Final = msgspec.msgpack.Decoder(FlowRecord)
_arrived: Final = msgspec.msgpack.Decoder(ArrivalRecord)


class NetNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node; members that are as usual are left out."""

    is_reachable: bool = True
    processing_us: int = 0
    started_ms: int = 0  # by its own clock
    location: Location | None = None


class NetLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One direction of a link, as its source reports it; members that are as usual are left out."""

    latency_us: int
    is_up: bool = True
    is_used: bool = True
    loss: float = 0.0
    failure: float = 0.0


Row = NetNode | NetLink | FlowStatus | ArrivalStatus
Key = tuple[str, str, str]
"""Kind; the node that reports it; the link's target, or the number of the flow or arrival."""
Change = tuple[Key, Row | None]
"""A row that replaces the one before; None: there is none any more."""


def states_in(changes: Iterable[Change], observer: str) -> Iterator[tuple[Subject, bool | None]]:
    """Which links and other nodes are up or down in the changes that `observer` sees."""
    for (kind, origin, other), row in changes:
        if kind == LINK:
            yield (LINKS, origin, other), row.is_up if isinstance(row, NetLink) else None
        elif kind == NODE and origin != observer:
            is_up = row.is_reachable if isinstance(row, NetNode) else None
            yield (NODES, observer, origin), is_up


class NetMap:
    """Rows by key; `update` brings them up to date and returns what changed."""

    def __init__(self, overlay: Overlay) -> None:
        self.rows: dict[Key, Row] = {}
        self._left_out: dict[Key, None] = {}
        self.version = 0  # grows whenever a row changes
        self._overlay = overlay
        self._changed: dict[Key, None] = {(NODE, overlay.name, ""): None}
        self._counts = dict.fromkeys(_BOUNDS, 0)
        self._faults: tuple[list[str], list[tuple[str, str]]] = ([], [])
        self._faults_version = 0
        self._version = -1  # of the link-state map, when reachability was examined last
        overlay.store.watch(LINK, self._on_link)
        overlay.store.watch(NODE, self._on_node)
        for kind in (FLOW, ARRIVED):
            overlay.store.watch(kind, self._watcher(kind))

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    @property
    def left_out(self) -> int:
        """How many rows are beyond the bounds."""
        return len(self._left_out)

    def update(self) -> list[Change]:
        """Bring the rows up to date; returns those that changed."""
        overlay = self._overlay
        reachable = overlay.map.distances(overlay.name).costs
        if self._version != overlay.map.version:
            self._version = overlay.map.version
            self._note_reachable(reachable)
        keys, self._changed = self._changed, {}
        has_nodes = any(key[0] == NODE for key in keys)
        known = {*overlay.map.nodes(), *overlay.store.origins()} if has_nodes else set[str]()
        links = self._links(keys)
        changes = []
        for key in keys:
            kind, origin, other = key
            is_reachable = origin == overlay.name or origin in reachable
            row: Row | None
            if kind == NODE:
                row = self._node(origin, is_reachable) if origin in known else None
            elif kind == LINK:
                row = links.get((origin, other))
            else:
                row = self._record(kind, origin, other) if is_reachable else None
            if self._put(key, row):
                changes.append((key, row))
        self.version += bool(changes)
        return changes

    def faults(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Nodes that are not reachable, and failed links between the others, by their ends."""
        if self._faults_version != self.version:
            self._faults_version = self.version
            self._faults = self._find_faults()
        return self._faults

    def check_invariants(self) -> None:
        for kind, bound in _BOUNDS.items():
            count = sum(key[0] == kind for key in self.rows)
            assert count == self._counts[kind] <= bound

    def _find_faults(self) -> tuple[list[str], list[tuple[str, str]]]:
        away = {
            name
            for (_, name, _), row in self.rows.items()
            if isinstance(row, NetNode) and not row.is_reachable
        }
        failed = {
            (min(source, target), max(source, target))
            for (_, source, target), row in self.rows.items()
            if isinstance(row, NetLink) and not row.is_used and not away & {source, target}
        }
        return sorted(away), sorted(failed)

    def _put(self, key: Key, row: Row | None) -> bool:
        """Take a row; returns whether it differs from the one before."""
        kind = key[0]
        before = self.rows.get(key)
        if before is None and row is not None and self._counts[kind] >= _BOUNDS[kind]:
            self._left_out[key] = None
            return False
        self._left_out.pop(key, None)
        if before == row:
            return False
        if row is None:
            del self.rows[key]
            self._counts[kind] -= 1
            self._fill(kind)
            return True
        self._counts[kind] += before is None
        self.rows[key] = row
        return True

    def _fill(self, kind: str) -> None:
        """Have a row that was left out examined again, as there is room for one."""
        for key in self._left_out:
            if key[0] == kind:
                self._changed[key] = None
                return

    def _node(self, name: str, is_reachable: bool) -> NetNode:
        overlay = self._overlay
        return NetNode(
            is_reachable=is_reachable,
            processing_us=overlay.map.processing_us(name),
            started_ms=overlay.store.version_of(name)[0],
            location=overlay.locations.get(name),
        )

    def _links(self, keys: Iterable[Key]) -> dict[tuple[str, str], NetLink]:
        found = {}
        for kind, source, target in keys:
            if kind == LINK and (link := self._overlay.map.reported(source, target)) is not None:
                found[source, target] = NetLink(
                    latency_us=link.latency_us,
                    is_up=link.is_up,
                    is_used=link.is_usable,
                    loss=round(link.loss, 4),
                    failure=link.failure,
                )
        return found

    def _record(self, kind: str, origin: str, key: str) -> Row | None:
        encoded = self._overlay.store.get(origin, kind, key)
        if encoded is None:
            return None
        if kind == FLOW:
            flow = decode_or_none(_flow, encoded)
            return None if flow is None else flow_status(origin, flow)
        found = decode_or_none(_arrived, encoded)
        if found is None:
            return None
        return ArrivalStatus(
            node=origin,
            source=found.source,
            channel=found.channel,
            delivered=found.delivered,
            late=found.late,
        )

    def _note_reachable(self, reachable: Iterable[str]) -> None:
        """Note nodes that became reachable or unreachable, with what they report."""
        now = {*reachable, self._overlay.name}
        for (kind, name, _), row in list(self.rows.items()):
            if kind == NODE and isinstance(row, NetNode) and row.is_reachable != (name in now):
                self._changed[NODE, name, ""] = None
                self._changed.update(dict.fromkeys(self._reported_by(name)))

    def _reported_by(self, name: str) -> Iterator[Key]:
        for kind in (FLOW, ARRIVED):
            for key in self._overlay.store.of(name, kind):
                yield kind, name, key

    def _on_link(self, origin: str, neighbour: str, _value: bytes | None) -> None:
        self._changed[LINK, origin, neighbour] = None
        self._changed[LINK, neighbour, origin] = None  # it counts if both ends report it up
        self._changed[NODE, origin, ""] = None
        self._changed[NODE, neighbour, ""] = None

    def _on_node(self, origin: str, _key: str, _value: bytes | None) -> None:
        self._changed[NODE, origin, ""] = None

    def _watcher(self, kind: str) -> Watcher:
        def note(origin: str, key: str, _value: bytes | None) -> None:
            self._changed[kind, origin, key] = None

        return note
