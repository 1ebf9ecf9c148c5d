"""Admission among nodes: what they say to each other of it, and what they must know of all others.

What is said to a neighbour goes as a message of this service. Advertisements of local publishers
are facts, so that each node knows them all. Those of a node that can't be reached for a while do
not count, until it can be: its publishers may have gone elsewhere.

A node with others makes one of these, by `Channels.serve`, and advertises, subscribes and
unsubscribes here, so that the others are told at once. What is done with `admission` itself is told
when time passes.
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
from accord.core.model.decoding import decode_or_none
from accord.core.model.errors import AccordError
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
    """`dropped` counts what others said that made no sense. `tiers`: to secondary nodes."""

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
        self._gone_us = admission.options.timing.lease_us  # then nothing is promised there
        self._map_version = -1  # as it was last looked at
        self._map_due_us = 0  # when it may be again
        self._openings = 0
        self._missed: dict[str, int] = {}  # nodes that can't be reached, and since when
        self._gone: dict[str, bool] = {}  # those whose advertisements do not count
        self._check_us = -1  # when one of them will have been missed for long
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
        """A local publisher's promise, of which all nodes are told; the same name replaces it."""
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
        """From the nodes with publishers of what the filter lets through, as events come."""
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
            # Where links only get worse, all is as it was unless a way goes over one of them.
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
                self.dropped += 1  # what it said before does not hold any more, either
        self._elsewhere.untell(origin, publisher, name)

    def _has_bent(self) -> bool:
        """Whether a way of some subscription is not the one to take any more."""
        map_, name = self.context.map, self.context.name
        return any(
            path_from(map_, path[-1], name, path) != path
            for path in self.admission.subscriptions.paths()
        )

    def _look_for_nodes(self, now_us: int) -> None:
        """See which can be reached, and leave out those that could not be for long."""
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
