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
from accord.core.admission.errors import AdmissionError
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.messages import AdmissionMessage
from accord.core.admission.networked_admission import NetworkedAdmission, drain
from accord.core.admission.remote_advertisements import RemoteAdvertisements
from accord.core.admission.source_paths import SourcePath, path_from
from accord.core.channels.template import Context, Template
from accord.core.model.errors import AccordError, decode_or_none
from accord.core.overlay.state_store import StateStore
from accord.core.overlay.tier_links import TierLinks
from accord.core.predicates.predicate import parse

SERVICE: Final = "$admission"

_encode: Final = msgspec.msgpack.Encoder().encode
_message: Final = msgspec.msgpack.Decoder(AdmissionMessage)
_advert: Final = msgspec.msgpack.Decoder(AdvertisementRecord)
_of_child: Final[msgspec.msgpack.Decoder[AdmissionMessage | AdvertisementDelta]] = (
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
        self.guests = ChildReservations(admission)
        self.dropped = 0
        self._tiers = TierLinks() if tiers is None else tiers
        self._elsewhere = RemoteAdvertisements(admission)
        self._repeating = ChildAdvertisements(
            context.name, store, self._tiers, self._elsewhere, self._advert_taken
        )
        self._store = store
        self._gone_us = admission.options.timing.lease_us  # by then no reservation holds there
        self._map_version = -1  # last map version processed
        self._map_due_us = 0  # earliest time of the next check
        self._openings = 0
        self._missed: dict[str, int] = {}  # unreachable nodes, and since when
        self._gone: dict[str, bool] = {}  # nodes whose advertisements are ignored
        self._check_us = -1  # when the next unreachable node will be ignored; -1: none
        admission.find_ways = self.ways
        context.watch(ADVERT, self._advert_told)
        context.watch(ADVERTISER, self._repeating.told)
        for origin, key, value in store.all(ADVERT):
            self._advert_told(origin, key, value)
        for origin, key, value in store.all(ADVERTISER):
            self._repeating.told(origin, key, value)
        self._tiers.serve(SERVICE, self._child_said)
        self._tiers.watch_leaving(self._child_left)

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

    def ways(self, filter_: Filter, known: tuple[SourcePath, ...] = ()) -> tuple[SourcePath, ...]:
        """Return the paths from all nodes whose advertisements intersect the filter."""
        map_, name = self.context.map, self.context.name
        before = {way.path[-1]: way.path for way in known}
        found: list[SourcePath] = []
        for node, sums in self.admission.order.intersecting_by_node(filter_).items():
            path = None if node == name else path_from(map_, node, name, before.get(node))
            if path is not None:
                found.append(SourcePath(path, sums.rate))
        return tuple(sorted(found))

    # --------------------------------------------------------------------------- for its driver

    def said(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
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
            self._map_due_us = now_us + self.admission.options.settle_us
            self._look_for_nodes(now_us)
            # If links only got worse, paths stay unless one uses such a link.
            if map_.openings != self._openings or self._has_bent():
                self._openings = map_.openings
                self.admission.looking.changed()
        elif 0 <= self._check_us <= now_us:
            self._look_for_nodes(now_us)
        self._repeating.advance()
        self.guests.advance(now_us)
        self.admission.advance(now_us)
        self._send()

    def next_due_us(self) -> int | None:
        if self.admission.sends or self.guests.sends or self._repeating.is_due:
            return 0
        dues = [self.admission.next_due_us(), self.guests.next_due_us()]
        dues.append(self._check_us if self._check_us >= 0 else None)
        if self.context.map.version != self._map_version:
            dues.append(self._map_due_us)
        return min((due for due in dues if due is not None), default=None)

    def check_invariants(self) -> None:
        self.admission.check_invariants()
        self.guests.check_invariants()
        self._elsewhere.check_invariants()
        assert not self._missed.keys() & self._gone.keys()
        assert not self._gone.keys() & set(self.admission.elsewhere())
        assert (self._check_us >= 0) == bool(self._missed)

    # ------------------------------------------------------------------------------------- inside

    def _send(self) -> None:
        for neighbour, message in drain(self.admission.sends):
            self.context.say(neighbour, "", _encode(message))
        for child, message in drain(self.guests.sends):
            self._tiers.say(child, SERVICE, _encode(message))

    # -------------------------------------------------------------------------- secondary nodes

    def _child_said(self, child: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_of_child, body)
        if message is None:
            self.dropped += 1
        elif isinstance(message, AdvertisementDelta):
            posted = self._repeating.posted(child, message)
            if posted is not None:
                self._tiers.say(child, SERVICE, _encode(posted))
        else:
            self.guests.receive(child, message, now_us)
            self._send()

    def _child_left(self, child: str) -> None:
        self.guests.left(child)
        self._repeating.left(child)
        self._send()

    # ------------------------------------------------------------------------------ other nodes

    def _advert_told(self, origin: str, key: str, value: bytes | None) -> None:
        if origin != self.context.name and origin not in self._gone:
            self._advert_taken(origin, key, value)

    def _advert_taken(self, origin: str, key: str, value: bytes | None) -> None:
        publisher, _, name = key.rpartition("\n")
        if value is not None:
            try:
                advert = _advert.decode(value)
                filter_ = Filter(advert.channel, parse(advert.where))
                self._elsewhere.tell(origin, publisher, name, filter_, advert.rate_hz)
                return
            except (AccordError, ValueError, RecursionError, OverflowError):
                self.dropped += 1  # the previous value is void, too
        self._elsewhere.untell(origin, publisher, name)

    def _has_bent(self) -> bool:
        """Check whether any subscription's path has changed."""
        map_, name = self.context.map, self.context.name
        return any(
            path_from(map_, path[-1], name, path) != path
            for path in self.admission.subscriptions.paths()
        )

    def _look_for_nodes(self, now_us: int) -> None:
        """Check reachability; ignore advertisements of nodes that were unreachable for long."""
        reachable = self.context.map.distances(self.context.name).costs
        for node in [each for each in self._gone if each in reachable]:
            del self._gone[node]
            for key, value in self._store.of(node, ADVERT).items():
                self._advert_told(node, key, value)
        missed = {
            node: self._missed.get(node, now_us)
            for node in self.admission.elsewhere()
            if node not in reachable
        }
        for node, since_us in list(missed.items()):
            if since_us + self._gone_us <= now_us:
                del missed[node]
                self._gone[node] = True
                self._elsewhere.gone(node)
        self._missed = missed
        self._check_us = min(missed.values()) + self._gone_us if missed else -1
