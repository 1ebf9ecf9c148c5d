"""Requests to list and define channels, over `$accord/channels`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from accord.client.errors import ChannelRefusedError
from accord.client.messages import ReceivedEvent
from accord.core.overlay.channel_directory import Channel
from accord.core.router.rights import CHANNELS

RequestFn = Callable[[str, bytes], Awaitable[ReceivedEvent]]


class ChannelsReply(msgspec.Struct, frozen=True):
    ok: bool = False
    channel: Channel | None = None
    channels: tuple[Channel, ...] = ()
    error: str = "invalid reply from the node"
    place: str = ""


_DECODER: Final = msgspec.json.Decoder(ChannelsReply)


async def request_channels(session_request: RequestFn, **request: Any) -> ChannelsReply:
    """Send a request; raises ChannelRefusedError if the server refuses it."""
    event = await session_request(CHANNELS, msgspec.json.encode(request))
    try:
        answer = _DECODER.decode(event.payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = ChannelsReply()
    if not answer.ok:
        raise ChannelRefusedError(answer.error, answer.place)
    return answer
