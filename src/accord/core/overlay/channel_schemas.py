"""Request and reply bodies for channels, used over HTTP and on `$accord/channels` alike."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from accord.core.model.errors import PolicyError
from accord.core.overlay.channel_directory import MAX_PATHS, ChannelDefinition
from accord.core.overlay.status import ChannelStatus

MAX_DELAY_MS: Final = 3_600_000
OPTION_EXPECTED: Final = "expected text, true, false or a number"


class ChannelRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Definition of a channel: 0 ms means any delay, a resiliency of 0 uses all paths.

    The template defines its `options`: a routed one has `datagrams`, true if its QoS 0 events may
    be sent over UDP. Each value is text, true, false or a number.
    """

    template: str = "routed"
    max_delay_ms: Annotated[float, Meta(ge=0, le=MAX_DELAY_MS)] = 0
    paths: Annotated[int, Meta(ge=1, le=MAX_PATHS)] = 1
    resiliency: Annotated[float, Meta(ge=0, le=1)] = 0.0
    options: dict[str, Any] = {}

    def definition(self, name: str) -> ChannelDefinition:
        """The channel definition; raises `PolicyError` for an option of another type."""
        return ChannelDefinition(
            name=name,
            template=self.template,
            max_delay_us=round(self.max_delay_ms * 1_000),
            paths=self.paths,
            resiliency=self.resiliency,
            options={option: _text(option, value) for option, value in self.options.items()},
        )


class Channel(Struct, frozen=True, kw_only=True):
    """Definition of a channel or a filter, the node that made it, and its traffic.

    `flows` lead from publishing nodes to interested nodes; `flows_met` of them meet the
    requirements. `delivered` and `late` count arrivals at all nodes.
    """

    name: str
    template: str
    max_delay_ms: float
    paths: int
    resiliency: float
    node: str
    options: dict[str, str] = {}
    flows: int = 0
    flows_met: int = 0
    delivered: int = 0
    late: int = 0
    missing_at: tuple[str, ...] = ()  # nodes where its template is not installed


class ChannelList(Struct, frozen=True, kw_only=True):
    """All defined channels, sorted by name."""

    channels: tuple[Channel, ...]


def channel_of(status: ChannelStatus) -> Channel:
    return Channel(
        name=status.name,
        template=status.template,
        max_delay_ms=status.max_delay_us / 1_000,
        paths=status.paths,
        resiliency=status.resiliency,
        node=status.node,
        options=status.options,
        flows=status.flows,
        flows_met=status.flows_met,
        delivered=status.delivered,
        late=status.late,
        missing_at=status.missing_at,
    )


def option_text(value: object) -> str | None:
    """An option's value as text for templates; None if it has another type."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if isfinite(value):
            return f"{value:.15g}"
        case _:
            return None


def _text(option: str, value: object) -> str:
    text = option_text(value)
    if text is None:
        raise PolicyError(f"options.{option[:40]}", OPTION_EXPECTED)
    return text
