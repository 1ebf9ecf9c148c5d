"""Parents and children, for those who look at them."""

from __future__ import annotations

import msgspec


class ChildStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A secondary node, as its parent sees it; `lost` are events it did not get, by cause."""

    name: str
    is_linked: bool
    is_active: bool
    needs: int = 0
    waiting: int = 0  # events for it
    waiting_bytes: int = 0
    unsettled: int = 0  # events of it that are not with everybody yet
    lost: dict[str, int] = {}
    problem: str = ""  # with its name


class ParentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A parent, as its child sees it; `lost` are events it could not keep for the child."""

    name: str
    is_linked: bool
    is_active: bool
    is_standby: bool
    latency_us: int = 0
    waiting: int = 0  # events it has for this node
    lost: int = 0


class TierStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A secondary node: its parents in its order of preference, and what waits for them."""

    parents: tuple[ParentStatus, ...]
    configured: int = 0  # how many parents it was told of
    switches: int = 0  # to another active parent
    waiting: int = 0  # events of its clients that are not with everybody yet
    waiting_bytes: int = 0
    delivered: int = 0
    again: int = 0  # events that came once more, and were dropped
    lost: dict[str, int] = {}  # events of its clients, by cause
