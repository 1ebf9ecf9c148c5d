"""Admission at a node of the overlay: signalling with neighbours and remote advertisements.

Reservation messages are template messages of this service. Advertisements of local publishers are
state records, so every node knows all of them. Advertisements of a node that has been unreachable
for a lease are ignored until it is reachable again: its publishers may have moved.

A node in an overlay creates one through `Channels.serve` and advertises, subscribes and
unsubscribes here, so that messages leave at once. Messages caused by calling `admission` directly
leave at the next `advance`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.admission.admission import Admission
from accord.core.admission.advertisement_sync import AdvertisementDelta, AdvertisementRecord
from accord.core.admission.child_advertisements import (
    ADVERT,
    ADVERTISER,
    ChildAdvertisements,
    key_of,
)
from accord.core.admission.child_reservations import ChildReservations
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.messages import AdmissionMessage
from accord.core.admission.networked_admission import NetworkedAdmission, drain
from accord.core.admission.remote_advertisements import RemoteAdvertisements
from accord.core.admission.reservation import SourcePath, path_from
from accord.core.channels.template import Context, Template
from accord.core.model.errors import AccordError, AdmissionError, decode_or_none
from accord.core.overlay.state_store import StateStore
from accord.core.overlay.tier_links import TierLinks
from accord.core.predicates.predicate import parse

SERVICE: Final = "$admission"

_encode: Final = msgspec.msgpack.Encoder().encode
_message: Final = msgspec.msgpack.Decoder(AdmissionMessage)
_advert: Final = msgspec.msgpack.Decoder(AdvertisementRecord)
_from_child: Final[msgspec.msgpack.Decoder[AdmissionMessage | AdvertisementDelta]] = (
    msgspec.msgpack.Decoder(AdmissionMessage | AdvertisementDelta)
)


class OverlayAdmission(NetworkedAdmission, Template):
    """Admission service of a node; `tiers` are its links to secondary nodes.

    `dropped` counts invalid messages and state records of others.
    """

    def __init__(
        self,
        context: Context,
        store: StateStore,
        admission: Admission,
        tiers: TierLinks | None = None,
    ) -> None:
        Template.__init__(self, context)
        NetworkedAdmission.__init__(self, admission)
        self.child_reservations = ChildReservations(admission)
        self.dropped = 0
        self._tiers = TierLinks() if tiers is None else tiers
        self._remote = RemoteAdvertisements(admission)
        self._child_advertisements = ChildAdvertisements(
            context.name, store, self._tiers, self._remote, self._apply_advert
        )
        self._store = store
        self._gone_timeout_us = (
            admission.options.timing.lease_us
        )  # by then no reservation holds there
        self._map_version = -1  # last map version processed
        self._map_due_us = 0  # earliest time of the next check
        self._openings = 0
        self._unreachable: dict[str, int] = {}  # unreachable nodes, and since when
        self._ignored: dict[str, bool] = {}  # nodes whose advertisements are ignored
        self._check_us = -1  # when the next unreachable node will be ignored; -1: none
        admission.find_source_paths = self.source_paths
        context.watch(ADVERT, self._on_advert_record)
        context.watch(ADVERTISER, self._child_advertisements.on_rank)
        for origin, key, value in store.all(ADVERT):
            self._on_advert_record(origin, key, value)
        for origin, key, value in store.all(ADVERTISER):
            self._child_advertisements.on_rank(origin, key, value)
        self._tiers.register(SERVICE, self._on_child_message)
        self._tiers.watch_left(self._on_child_left)

    # ---------------------------------------------------------------------------- for its node

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int
    ) -> None:
        """Register a local publisher's advertisement and announce it; the same name replaces it."""
        if "\n" in name:
            raise AdmissionError("name", "expected one line")
        key = key_of(publisher, name)
        value = _encode(AdvertisementRecord(filter_.channel, str(filter_.predicate), rate_hz))
        before = self._store.get(self.context.name, ADVERT, key)
        if not self._store.put(ADVERT, key, value):
            raise AdmissionError("advertisement", "expected less: other nodes can't be told more")
        try:
            self.admission.advertise(publisher, name, filter_, rate_hz, now_us)
        except AdmissionError:
            if before is None:
                self._store.drop(ADVERT, key)
            else:
                self._store.put(ADVERT, key, before)
            raise

    def unadvertise(self, publisher: str, name: str) -> bool:
        self._store.drop(ADVERT, key_of(publisher, name))
        return super().unadvertise(publisher, name)

    def source_paths(
        self, filter_: Filter, known: tuple[SourcePath, ...] = ()
    ) -> tuple[SourcePath, ...]:
        """Return the paths from all nodes whose advertisements intersect the filter."""
        map_, name = self.context.map, self.context.name
        before = {source_path.path[-1]: source_path.path for source_path in known}
        found: list[SourcePath] = []
        for node, sums in self.admission.poset.intersecting_by_node(filter_).items():
            path = None if node == name else path_from(map_, node, name, before.get(node))
            if path is not None:
                found.append(SourcePath(path, sums.rate))
        return tuple(sorted(found))

    # --------------------------------------------------------------------------- for its driver

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        message = decode_or_none(_message, body)
        if message is None:
            self.dropped += 1
            return
        self.admission.receive(neighbour, message, now_us)
        self._send()

    def advance(self, now_us: int) -> None:
        map_ = self.context.map
        if map_.version != self._map_version and now_us >= self._map_due_us:
            self._map_version = map_.version
            self._map_due_us = now_us + self.admission.options.reevaluation_delay_us
            self._check_reachability(now_us)
            # If links only got worse, paths stay unless one uses such a link.
            if map_.openings != self._openings or self._has_path_changed():
                self._openings = map_.openings
                self.admission.reevaluations.schedule()
        elif 0 <= self._check_us <= now_us:
            self._check_reachability(now_us)
        self._child_advertisements.advance()
        self.child_reservations.advance(now_us)
        self.admission.advance(now_us)
        self._send()

    def next_due_us(self) -> int | None:
        if (
            self.admission.sends
            or self.child_reservations.sends
            or self._child_advertisements.is_due
        ):
            return 0
        dues = [self.admission.next_due_us(), self.child_reservations.next_due_us()]
        dues.append(self._check_us if self._check_us >= 0 else None)
        if self.context.map.version != self._map_version:
            dues.append(self._map_due_us)
        return min((due for due in dues if due is not None), default=None)

    def check_invariants(self) -> None:
        self.admission.check_invariants()
        self.child_reservations.check_invariants()
        self._remote.check_invariants()
        assert not self._unreachable.keys() & self._ignored.keys()
        assert not self._ignored.keys() & set(self.admission.remote_advertisers())
        assert (self._check_us >= 0) == bool(self._unreachable)

    # ------------------------------------------------------------------------------------- inside

    def _send(self) -> None:
        for neighbour, message in drain(self.admission.sends):
            self.context.send_message(neighbour, "", _encode(message))
        for child, message in drain(self.child_reservations.sends):
            self._tiers.send_message(child, SERVICE, _encode(message))

    # -------------------------------------------------------------------------- secondary nodes

    def _on_child_message(self, child: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_from_child, body)
        if message is None:
            self.dropped += 1
        elif isinstance(message, AdvertisementDelta):
            posted = self._child_advertisements.on_delta(child, message)
            if posted is not None:
                self._tiers.send_message(child, SERVICE, _encode(posted))
        else:
            self.child_reservations.receive(child, message, now_us)
            self._send()

    def _on_child_left(self, child: str) -> None:
        self.child_reservations.on_left(child)
        self._child_advertisements.on_left(child)
        self._send()

    # ------------------------------------------------------------------------------ other nodes

    def _on_advert_record(self, origin: str, key: str, value: bytes | None) -> None:
        if origin != self.context.name and origin not in self._ignored:
            self._apply_advert(origin, key, value)

    def _apply_advert(self, origin: str, key: str, value: bytes | None) -> None:
        publisher, _, name = key.rpartition("\n")
        if value is not None:
            try:
                advert = _advert.decode(value)
                filter_ = Filter(advert.channel, parse(advert.where))
                self._remote.add(origin, publisher, name, filter_, advert.rate_hz)
                return
            except (AccordError, ValueError, RecursionError, OverflowError):
                self.dropped += 1  # the previous value is void, too
        self._remote.remove(origin, publisher, name)

    def _has_path_changed(self) -> bool:
        """Check whether any subscription's path has changed."""
        map_, name = self.context.map, self.context.name
        return any(
            path_from(map_, path[-1], name, path) != path
            for path in self.admission.subscriptions.paths()
        )

    def _check_reachability(self, now_us: int) -> None:
        """Check reachability; ignore advertisements of nodes that were unreachable for long."""
        reachable = self.context.map.distances(self.context.name).costs
        for node in [each for each in self._ignored if each in reachable]:
            del self._ignored[node]
            for key, value in self._store.of(node, ADVERT).items():
                self._on_advert_record(node, key, value)
        missed = {
            node: self._unreachable.get(node, now_us)
            for node in self.admission.remote_advertisers()
            if node not in reachable
        }
        for node, since_us in list(missed.items()):
            if since_us + self._gone_timeout_us <= now_us:
                del missed[node]
                self._ignored[node] = True
                self._remote.on_node_gone(node)
        self._unreachable = missed
        self._check_us = min(missed.values()) + self._gone_timeout_us if missed else -1
