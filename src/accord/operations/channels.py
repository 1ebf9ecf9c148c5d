"""Channels and the overlay: all nodes, links and routes; definitions of channels.

Reading takes the right to statistics. Defining and deleting takes the right to policies, because
definitions affect the events of other clients.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

from msgspec import Meta, Struct

from accord.core.model.errors import PolicyError
from accord.core.overlay.channel_directory import (
    MAX_DELAY_MS,
    MAX_PATHS,
    Channel,
    ChannelDefinition,
    ChannelList,
    ChannelRequest,
    channel_of,
)
from accord.core.overlay.status import ChannelStatus, NetStatus
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.ports import NetPort, NodePorts, need
from accord.operations.visibility import visible_net

ChannelName = Annotated[
    str, Meta(max_length=65_535, description="A channel or a filter.", examples=["uav/imagery"])
]


class ChannelExistsError(PolicyError):
    """The channel is already defined differently."""

    status = 412


class Deleted(Struct, frozen=True, kw_only=True):
    """The channel whose definition is deleted; until the next start if it `comes_back` then."""

    name: str
    comes_back: bool = False


class GetNet(Request[NetStatus], frozen=True, tag="get"):
    pass


class ListChannels(Request[ChannelList], frozen=True, tag="list"):
    pass


class GetChannel(Request[Channel], frozen=True, kw_only=True, tag="get"):
    name: ChannelName


class CreateChannel(Request[Channel], frozen=True, kw_only=True, tag="create"):
    """Fields as in `[channels]`: 0 ms means any delay, a resiliency of 0 uses all paths.

    The template defines its `options`: a routed one has `datagrams`, true if its QoS 0 events may
    be sent over UDP. Each value is text, true, false or a number.
    """

    name: ChannelName
    template: Annotated[str, Meta(examples=["total_order"])] = "routed"
    max_delay_ms: Annotated[float, Meta(ge=0, le=MAX_DELAY_MS)] = 0
    paths: Annotated[int, Meta(ge=1, le=MAX_PATHS)] = 1
    resiliency: Annotated[float, Meta(ge=0, le=1)] = 0.0
    options: dict[str, Any] = {}  # noqa: RUF012 (copied)
    replaces: Annotated[bool, Meta(description="Whether it may replace another definition.")] = (
        False
    )

    def definition(self) -> ChannelDefinition:
        """The channel definition; raises `PolicyError` for an option of another type."""
        return ChannelRequest(
            template=self.template,
            max_delay_ms=self.max_delay_ms,
            paths=self.paths,
            resiliency=self.resiliency,
            options=self.options,
        ).definition(self.name)


class DeleteChannel(Request[Deleted], frozen=True, kw_only=True, tag="delete"):
    name: ChannelName


def _net(node: NodePorts) -> NetPort:
    return need(node.net, "overlay and defines no channels")


@operation("net", "GET /net", Right.STATISTICS)
def get_net(node: NodePorts, _ask: GetNet, asker: Asker) -> NetStatus:
    """All nodes, links, channels and routes, and what came in time, as this node knows it."""
    return visible_net(_net(node).status(), asker)


@operation("channels", "GET /channels", Right.STATISTICS)
def list_channels(node: NodePorts, _ask: ListChannels, asker: Asker) -> ChannelList:
    """The channels that are defined at any node, and whether they get what they require."""
    seen = (each for each in _net(node).channel_statuses() if asker.may_see(each.name))
    return ChannelList(channels=tuple(map(channel_of, seen)))


@operation("channels", "GET /channels/{name}", Right.STATISTICS)
def get_channel(node: NodePorts, ask: GetChannel, asker: Asker) -> Channel:
    """One definition, by the name or filter it is for."""
    found = _find(_net(node), ask.name)
    if found is None or not asker.may_see(ask.name):
        problem = f"{ask.name[:200]!r} is not defined"
        raise RequestError(404, problem, remedy="`accord channel ls` shows what is")
    return channel_of(found)


@operation("channels", "PUT /channels/{name}", Right.POLICIES, changes=True)
def create_channel(node: NodePorts, ask: CreateChannel, _asker: Asker) -> Channel:
    """Define a channel, or a filter of channels, for all nodes.

    A PUT replaces another definition, unless it has `If-None-Match: *`.
    """
    return define(_net(node), ask.definition(), replaces=ask.replaces)


@operation("channels", "DELETE /channels/{name}", Right.POLICIES, changes=True)
def delete_channel(node: NodePorts, ask: DeleteChannel, _asker: Asker) -> Deleted:
    """Delete the definition of a channel, whichever node made it."""
    net = _net(node)
    if problem := net.delete_channel(ask.name):
        raise RequestError(404, problem, "name")
    return Deleted(name=ask.name, comes_back=net.is_configured(ask.name))


def define(net: NetPort, definition: ChannelDefinition, *, replaces: bool) -> Channel:
    """Raises PolicyError if invalid, ChannelExistsError if already defined differently."""
    if not_here := net.problem_with_defining():
        raise PolicyError("", not_here)
    if definition.name.startswith("$"):
        raise PolicyError(
            "name", "channels that begin with $ stay on their node: nothing to define"
        )
    if definition.template not in net.templates:
        raise PolicyError("template", _unknown_template(definition.template[:40], net.templates))
    if wrong := net.problem_with_options(definition):
        raise PolicyError(f"options.{wrong[0][:40]}", wrong[1])
    was_there = _find(net, definition.name) is not None
    if problem := net.create_channel(definition, replace=replaces):
        raise (ChannelExistsError if was_there and not replaces else PolicyError)("", problem)
    found = _find(net, definition.name)
    assert found is not None, "it has just been defined"
    return channel_of(found)


def _unknown_template(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f", did you mean {near[0]}?" if near else ";"
    return f"unknown template {name!r}{hint} expected one of {', '.join(known)}"


def _find(net: NetPort, name: str) -> ChannelStatus | None:
    return next((each for each in net.channel_statuses() if each.name == name), None)
