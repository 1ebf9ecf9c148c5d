"""`$accord/channels`: MQTT clients list, define and delete channels, as over HTTP.

A request is a JSON object whose `do` selects one of the structs below. The reply has `ok`, and if
that is false `error` and possibly `place`. As over HTTP, clients that may read statistics may list
channels, and clients that may change policies may define them, as definitions affect the events
of other clients.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from accord.core.model.errors import PolicyError
from accord.core.overlay.channel_directory import (
    Channel,
    ChannelDefinition,
    ChannelRequest,
    channel_of,
)
from accord.core.overlay.status import ChannelStatus
from accord.runtime.policy_requests import decoding_problem

MAX_BYTES: Final = 65_536


class ChannelView(Protocol):
    """A node's channels, as seen and changed from outside."""

    @property
    def templates(self) -> list[str]: ...

    def channel_statuses(self) -> list[ChannelStatus]: ...

    def problem_with_defining(self) -> str:
        """Why no channel can be defined at this node; empty if one can."""

    def problem_with_options(self, definition: ChannelDefinition) -> tuple[str, str] | None:
        """The option that the template can't use, and why."""

    def create_channel(self, definition: ChannelDefinition, *, replace: bool) -> str | None:
        """Returns the problem, or None."""

    def delete_channel(self, name: str) -> str | None: ...


class ChannelExistsError(PolicyError):
    """The channel is already defined differently."""


class ListChannels(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="list"):
    """List all defined channels, of any node."""


class Create(
    ChannelRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do",
    tag="create",
):  # fmt: skip
    """Define a channel or filter; a different existing definition only if it `replaces` it."""

    name: str
    replaces: bool = False


class Delete(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="delete"):
    name: str


Request = ListChannels | Create | Delete
_DECODER: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_ACTIONS: Final = ("list", "create", "delete")


def handle_request(net: ChannelView, body: bytes, *, may_see: bool, may_change: bool) -> bytes:
    """The reply to a request; never raises for invalid requests."""
    try:
        request = _read(body)
        if isinstance(request, ListChannels) and not (may_see or may_change):
            raise PolicyError("request", "you may not see channels: it takes may.statistics")
        if not isinstance(request, ListChannels) and not may_change:
            raise PolicyError("request", "you may not define channels: it takes may.policies")
        result = _act(net, request)
    except PolicyError as error:
        result = {"ok": False, "error": error.problem, "place": error.place}
    return msgspec.json.encode(result)


def define(net: ChannelView, definition: ChannelDefinition, *, replaces: bool) -> Channel:
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


def _act(net: ChannelView, request: Request) -> dict[str, object]:
    match request:
        case Create():
            definition = request.definition(request.name)
            return {"ok": True, "channel": define(net, definition, replaces=request.replaces)}
        case Delete():
            if problem := net.delete_channel(request.name):
                raise PolicyError("name", problem)
            return {"ok": True}
        case ListChannels():
            return {"ok": True, "channels": [channel_of(each) for each in net.channel_statuses()]}


def _read(body: bytes) -> Request:
    if len(body) > MAX_BYTES:
        raise PolicyError("request", f"expected at most {MAX_BYTES} bytes, got {len(body)}")
    try:
        return _DECODER.decode(body)
    except RecursionError:
        raise PolicyError("request", "JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise decoding_problem(error, _ACTIONS) from None


def _unknown_template(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f", did you mean {near[0]}?" if near else ";"
    return f"unknown template {name!r}{hint} expected one of {', '.join(known)}"


def _find(net: ChannelView, name: str) -> ChannelStatus | None:
    return next((each for each in net.channel_statuses() if each.name == name), None)
