"""The overlay over HTTP: all nodes, links, channels and routes; and channels to be defined.

To look takes the right to statistics, to define and delete channels that to policies: both decide
what becomes of other people's events.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import Response
from msgspec import Struct

from accord.api.answers import json_answer, returns
from accord.api.net_answers import (
    CHANNELS,
    NET,
    Channel,
    ChannelList,
    Deleted,
    WantedChannel,
    channel_of,
)
from accord.api.policy_answers import JSON, Problem
from accord.core.overlay.registry import ChannelDefinition
from accord.core.overlay.status import ChannelStatus, NetStatus
from accord.live.policy_requests import mistake

PATIENCE_S: Final = 30.0
MAX_BYTES: Final = 65_536
ALONE: Final = Problem(
    'this node has no others: give it [net] with listen = "HOST:PORT", or neighbours = '
    '"HOST:PORT" of another node, in its accord.toml, and start it again'
)
_DEFINED: Final = returns(Channel, _400=Problem, _404=Problem, _412=Problem)
_TAKING: Final[dict[str, Any]] = {
    "response_class": Response,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": {"$ref": "#/components/schemas/WantedChannel"}}},
        }
    },
}


class NetView(Protocol):
    """A node's part in the overlay, seen from outside. Called on its event loop."""

    @property
    def templates(self) -> list[str]: ...

    def status(self) -> NetStatus: ...

    def channel_statuses(self) -> list[ChannelStatus]: ...

    def create_channel(self, definition: ChannelDefinition, *, replace: bool) -> str | None:
        """Gives why not, or None."""

    def delete_channel(self, name: str) -> str | None: ...


class _Refusal(Exception):  # noqa: N818 - an answer, not a mistake of ours
    def __init__(self, code: int, problem: str, place: str = "") -> None:
        self.code = code
        self.problem = Problem(problem, place)


def add_net(app: FastAPI, net: NetView | None) -> list[type[Struct]]:
    """Add the routes, which the guard keeps; the structs they return are to be described."""
    _add_reading(app, net)
    _add_changes(app, net)
    return [NetStatus, ChannelList, Channel, WantedChannel, Deleted, Problem]


def _add_reading(app: FastAPI, net: NetView | None) -> None:
    @app.get(NET, response_class=Response, responses=returns(NetStatus, _404=Problem))
    async def status() -> Response:
        """All nodes, links, channels and routes, and what came in time, as this node knows it."""
        return json_answer(ALONE, 404) if net is None else json_answer(net.status())

    @app.get(CHANNELS, response_class=Response, responses=returns(ChannelList, _404=Problem))
    async def channels() -> Response:
        """The channels that are defined at any node, and whether they get what they require."""
        if net is None:
            return json_answer(ALONE, 404)
        return json_answer(ChannelList(channels=tuple(map(channel_of, net.channel_statuses()))))


def _add_changes(app: FastAPI, net: NetView | None) -> None:
    @app.put(f"{CHANNELS}/{{name:path}}", responses=_DEFINED, **_TAKING)
    async def put_channel(request: Request, name: str) -> Response:
        """Define a channel, or a filter of channels, for all nodes.

        With `If-None-Match: *` only if it is not defined otherwise already.
        """
        if net is None:
            return json_answer(ALONE, 404)
        try:
            definition = (await _read(request)).definition(name)
            if definition.template not in net.templates:
                known = ", ".join(net.templates)
                problem = f"expected one of {known}, got {definition.template[:40]!r}"
                raise _Refusal(400, problem, "template")
            is_new_only = request.headers.get("if-none-match", "").strip() == "*"
            return json_answer(channel_of(_define(net, definition, is_new_only=is_new_only)))
        except _Refusal as refusal:
            return json_answer(refusal.problem, refusal.code)

    @app.delete(
        f"{CHANNELS}/{{name:path}}",
        response_class=Response,
        responses=returns(Deleted, _404=Problem),
    )
    async def delete_channel(name: str) -> Response:
        """Delete the definition of a channel, whichever node has made it."""
        if net is None:
            return json_answer(ALONE, 404)
        if problem := net.delete_channel(name):
            return json_answer(Problem(problem), 404)
        return json_answer(Deleted(name=name))


def _define(net: NetView, definition: ChannelDefinition, *, is_new_only: bool) -> ChannelStatus:
    was_there = _find(net, definition.name) is not None
    if problem := net.create_channel(definition, replace=not is_new_only):
        raise _Refusal(412 if is_new_only and was_there else 400, problem)
    found = _find(net, definition.name)
    assert found is not None, "it has just been defined"
    return found


def _find(net: NetView, name: str) -> ChannelStatus | None:
    return next((each for each in net.channel_statuses() if each.name == name), None)


async def _read(request: Request) -> WantedChannel:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise _Refusal(415, f"expected {JSON} as content type, got {kind or 'none'}")
    data = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for part in request.stream():
                data += part
                if len(data) > MAX_BYTES:
                    raise _Refusal(413, f"expected at most {MAX_BYTES} bytes")
    except TimeoutError:
        raise _Refusal(408, f"expected all of it within {PATIENCE_S:.0f} s") from None
    try:
        return msgspec.json.decode(data, type=WantedChannel)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wrong = mistake(error)
        raise _Refusal(400, wrong.problem, wrong.place) from None
