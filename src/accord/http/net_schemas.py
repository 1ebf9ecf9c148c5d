"""Paths and schemas of channels over HTTP. Light: commands import it too."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

NET: Final = "/api/v1/net"
CHANNELS: Final = "/api/v1/channels"


class Deleted(Struct, frozen=True, kw_only=True):
    """The channel that is defined no more; or only until the node is started again."""

    name: str
    comes_back: bool = False
