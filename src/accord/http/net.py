"""The overlay over HTTP: all nodes, links, channels and routes; and channel definitions.

Reading takes the right to statistics; defining and deleting channels takes the right to policies,
as both affect other clients' events.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import Response
from msgspec import Struct

from accord.core.model.errors import PolicyError
from accord.core.overlay.channel_directory import Channel, ChannelList, ChannelRequest, channel_of
from accord.core.overlay.status import NetStatus
from accord.http.responses import BodyRefused, json_response, read_body, response_schemas
from accord.http.schemas import CHANNELS, JSON, NET, Deleted, Problem
from accord.runtime.channel_requests import MAX_BYTES, ChannelExistsError, ChannelView, define
from accord.runtime.policy_requests import decoding_problem

_DEFINED: Final = response_schemas(Channel, _400=Problem, _412=Problem)
_TAKING: Final[dict[str, Any]] = {
    "response_class": Response,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": {"$ref": "#/components/schemas/ChannelRequest"}}},
        }
    },
}


class NetView(ChannelView, Protocol):
    """A node's part in the overlay, seen from outside. Called on its event loop."""

    def status(self) -> NetStatus: ...

    def is_configured(self, name: str) -> bool:
        """Whether the configuration of this node defines the channel."""


def add_net(app: FastAPI, net: NetView) -> list[type[Struct]]:
    """Add the routes, which the guard protects; returns the structs to describe in OpenAPI."""
    _add_reading(app, net)
    _add_changes(app, net)
    return [NetStatus, ChannelList, Channel, ChannelRequest, Deleted, Problem]


def _add_reading(app: FastAPI, net: NetView) -> None:
    @app.get(NET, response_class=Response, responses=response_schemas(NetStatus))
    async def status() -> Response:
        """All nodes, links, channels and routes, and what came in time, as this node knows it."""
        return json_response(net.status())

    @app.get(CHANNELS, response_class=Response, responses=response_schemas(ChannelList))
    async def channels() -> Response:
        """The channels that are defined at any node, and whether they get what they require."""
        return json_response(ChannelList(channels=tuple(map(channel_of, net.channel_statuses()))))

    @app.get(
        f"{CHANNELS}/{{name:path}}",
        response_class=Response,
        responses=response_schemas(Channel, _404=Problem),
    )
    async def channel(name: str) -> Response:
        """One of them, by the name or filter it is defined for."""
        for each in net.channel_statuses():
            if each.name == name:
                return json_response(channel_of(each))
        return json_response(
            Problem(f"{name!r} is not defined; `accord channel ls` shows what is"), 404
        )


def _add_changes(app: FastAPI, net: NetView) -> None:
    @app.put(f"{CHANNELS}/{{name:path}}", responses=_DEFINED, **_TAKING)
    async def put_channel(request: Request, name: str) -> Response:
        """Define a channel, or a filter of channels, for all nodes.

        With `If-None-Match: *` only if it is not defined otherwise already.
        """
        try:
            definition = (await _read(request)).definition(name)
            is_new_only = request.headers.get("if-none-match", "").strip() == "*"
            return json_response(define(net, definition, replaces=not is_new_only))
        except BodyRefused as refusal:
            return json_response(refusal.problem, refusal.code)
        except PolicyError as error:
            code = 412 if isinstance(error, ChannelExistsError) else 400
            return json_response(Problem(error.problem, error.place), code)

    @app.delete(
        f"{CHANNELS}/{{name:path}}",
        response_class=Response,
        responses=response_schemas(Deleted, _404=Problem),
    )
    async def delete_channel(name: str) -> Response:
        """Delete the definition of a channel, whichever node has made it."""
        if problem := net.delete_channel(name):
            return json_response(Problem(problem), 404)
        return json_response(Deleted(name=name, comes_back=net.is_configured(name)))


async def _read(request: Request) -> ChannelRequest:
    data, _ = await read_body(request, (JSON,), MAX_BYTES)
    try:
        return msgspec.json.decode(data, type=ChannelRequest)
    except RecursionError:
        raise BodyRefused(400, "JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wrong = decoding_problem(error)
        raise BodyRefused(400, wrong.problem, wrong.place) from None
