"""Admission at a secondary node, which knows nobody but its parents.

It checks what its own clients take, and asks its active parent, which asks all others in its place
and tells what is to be expected of them (`guests`). When another parent becomes the active one, all
is asked of that, and what the one before holds is released then. While there is none, what was
promised stays as it is until it would be over. What its publishers advertise both parents are told.
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
from accord.core.admission.source_paths import SourcePath
from accord.core.model.decoding import decode_or_none
from accord.core.overlay.tier_links import TierLinks

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[AdmissionMessage | AdvertisementAck]] = (
    msgspec.msgpack.Decoder(AdmissionMessage | AdvertisementAck)
)


class SecondaryAdmission(NetworkedAdmission):
    """`dropped` counts what parents said that made no sense."""

    def __init__(self, admission: Admission, incarnation: int, tiers: TierLinks) -> None:
        super().__init__(admission)
        self.dropped = 0
        self._tiers = tiers
        self._seen = tiers.version
        self._posting = AdvertisementSender(incarnation, tiers, self._post)
        admission.find_ways = self.ways
        admission.ask_parents()
        tiers.serve(SERVICE, self._hear)

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int
    ) -> None:
        """A local publisher's promise; the same name again replaces it."""
        self.admission.advertise(publisher, name, filter_, rate_hz, now_us)
        advert = AdvertisementRecord(filter_.channel, str(filter_.predicate), rate_hz)
        self._posting.put(publisher, name, advert)

    def unadvertise(self, publisher: str, name: str) -> bool:
        self._posting.put(publisher, name, None)
        return super().unadvertise(publisher, name)

    def ways(self, filter_: Filter, known: tuple[SourcePath, ...] = ()) -> tuple[SourcePath, ...]:  # noqa: ARG002
        """To the active parent, whatever it is about: who publishes what, only that knows."""
        for parent, link in self._tiers.links.items():
            if link.is_active:
                return (SourcePath((self.admission.name, parent), 0),)
        return known

    def advance(self, now_us: int) -> None:
        if self._tiers.version != self._seen:
            self._seen = self._tiers.version
            self.admission.looking.changed()
        self.admission.advance(now_us)
        self._posting.advance(now_us)
        self._send()

    def next_due_us(self) -> int:
        if self.admission.sends or self._tiers.version != self._seen:
            return 0
        due_us = self._posting.next_due_us()
        own_us = self.admission.next_due_us()
        return due_us if own_us is None else min(due_us, own_us)

    def check_invariants(self) -> None:
        self.admission.check_invariants()
        self._posting.check_invariants()

    def _hear(self, parent: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_decoder, body)
        if message is None:
            self.dropped += 1
        elif isinstance(message, AdvertisementAck):
            self._posting.heard(parent, message, now_us)
        else:
            self.admission.receive(parent, message, now_us)
            self._send()

    def _post(self, parent: str, post: AdvertisementDelta) -> None:
        self._tiers.say(parent, SERVICE, _encode(post))

    def _send(self) -> None:
        for parent, message in drain(self.admission.sends):
            self._tiers.say(parent, SERVICE, _encode(message))
