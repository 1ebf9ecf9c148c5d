"""Requests as MQTT clients send them, answered without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec

from accord.core.model.errors import AccordError
from accord.core.router.rights import EVERYTHING, Rights
from accord.operations.catalog import encode_answer, encode_error, topics
from accord.operations.operation import Asker
from accord.operations.ports import NodePorts


def ask(
    node: NodePorts,
    topic: str,
    request: object,
    *,
    rights: Rights = EVERYTHING,
    user: str = "",
    client: str = "",
) -> dict[str, Any]:
    """The reply to a request: an object, or bytes that should be one."""
    body = request if isinstance(request, bytes) else msgspec.json.encode(request)
    asker = Asker(user=user, client=client, rights=rights)

    async def main() -> bytes:
        try:
            operation, asked = topics()[topic].decode(body)
            found = operation.perform(node, asked, asker)
            return encode_answer(await found if isinstance(found, Awaitable) else found)
        except AccordError as error:
            return encode_error(error)

    reply: dict[str, Any] = msgspec.json.decode(asyncio.run(main()))
    return reply
