"""Admission at a secondary node, which communicates only with its parents.

It checks the resources that its own clients take, and requests the rest from its active parent,
which requests it from all other nodes on its behalf and reports the expected rate
(`child_reservations`). When another parent becomes active, all reservations are requested there,
and those at the previous parent are then released. While no parent is active, reservations stay
until their lease ends. Local advertisements are sent to both parents.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.admission.admission import Admission
from accord.core.admission.advertisement_sync import (
    AdvertisementAck,
    AdvertisementDelta,
    AdvertisementRecord,
    AdvertisementSender,
)
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.messages import AdmissionMessage
from accord.core.admission.networked_admission import NetworkedAdmission, drain
from accord.core.admission.overlay_admission import SERVICE
from accord.core.admission.reservation import SourcePath
from accord.core.model.errors import decode_or_none
from accord.core.overlay.tier_links import TierLinks

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[AdmissionMessage | AdvertisementAck]] = (
    msgspec.msgpack.Decoder(AdmissionMessage | AdvertisementAck)
)


class SecondaryAdmission(NetworkedAdmission):
    """Admission through the active parent; `dropped` counts invalid messages of parents."""

    def __init__(self, admission: Admission, incarnation: int, tiers: TierLinks) -> None:
        super().__init__(admission)
        self.dropped = 0
        self._tiers = tiers
        self._seen = tiers.version
        self._advert_sender = AdvertisementSender(incarnation, tiers, self._send_delta)
        admission.find_source_paths = self.source_paths
        admission.delegate_to_parents()
        tiers.register(SERVICE, self._on_message)

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int
    ) -> None:
        """Register a local publisher's advertisement; the same name replaces it."""
        self.admission.advertise(publisher, name, filter_, rate_hz, now_us)
        advert = AdvertisementRecord(filter_.channel, str(filter_.predicate), rate_hz)
        self._advert_sender.put(publisher, name, advert)

    def unadvertise(self, publisher: str, name: str) -> bool:
        self._advert_sender.put(publisher, name, None)
        return super().unadvertise(publisher, name)

    def source_paths(
        self,
        filter_: Filter,  # noqa: ARG002
        known: tuple[SourcePath, ...] = (),
    ) -> tuple[SourcePath, ...]:
        """Return the path to the active parent for any filter: only the parent knows publishers."""
        for parent, link in self._tiers.links.items():
            if link.is_active:
                return (SourcePath((self.admission.name, parent), 0),)
        return known

    def advance(self, now_us: int) -> None:
        if self._tiers.version != self._seen:
            self._seen = self._tiers.version
            self.admission.reevaluations.schedule()
        self.admission.advance(now_us)
        self._advert_sender.advance(now_us)
        self._send()

    def next_due_us(self) -> int:
        if self.admission.sends or self._tiers.version != self._seen:
            return 0
        due_us = self._advert_sender.next_due_us()
        own_us = self.admission.next_due_us()
        return due_us if own_us is None else min(due_us, own_us)

    def check_invariants(self) -> None:
        self.admission.check_invariants()
        self._advert_sender.check_invariants()

    def _on_message(self, parent: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_decoder, body)
        if message is None:
            self.dropped += 1
        elif isinstance(message, AdvertisementAck):
            self._advert_sender.on_ack(parent, message, now_us)
        else:
            self.admission.receive(parent, message, now_us)
            self._send()

    def _send_delta(self, parent: str, delta: AdvertisementDelta) -> None:
        self._tiers.send_message(parent, SERVICE, _encode(delta))

    def _send(self) -> None:
        for parent, message in drain(self.admission.sends):
            self._tiers.send_message(parent, SERVICE, _encode(message))
