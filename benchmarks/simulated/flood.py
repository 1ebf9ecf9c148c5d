"""Flooding, to compare with: each node hands what is new to it to all its other neighbours."""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.channels.template import Context, Template
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.duplicate_filter import DuplicateFilter
from accord.core.overlay.signalling import TransitEvent

_decoder: Final = msgspec.msgpack.Decoder(TransitEvent)


class Flood(Template):
    """`copies` and `bytes` are what it sent to neighbours."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.copies = 0
        self.bytes = 0
        self._published = 0
        self._duplicates = DuplicateFilter()

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],  # noqa: ARG002
        definition: ChannelDefinition,  # noqa: ARG002
        now_us: int,  # noqa: ARG002
    ) -> None:
        self._published += 1
        sent = msgspec.structs.replace(event, source=self.context.name, number=self._published)
        self._duplicates.is_new(sent.source, 0, sent.number)
        self._pass_on("", event.channel, msgspec.msgpack.encode(sent))

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        event = _decoder.decode(body)
        if self._duplicates.is_new(event.source, 0, event.number):
            self.context.deliver(event)
            self._pass_on(neighbour, channel, body)

    def _pass_on(self, origin: str, channel: str, body: bytes) -> None:
        for neighbour in self.context.neighbours():
            if neighbour != origin:
                self.context.send_message(neighbour, channel, body)
                self.copies += 1
                self.bytes += len(body)
