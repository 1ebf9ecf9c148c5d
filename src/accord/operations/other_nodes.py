"""Questions of operations to other nodes of the network.

outcome = await ask_node(node, "berlin", FindEvent(event=event), asker)
async for name, answer in ask_nodes(node, node.others.nodes(), GetAdmission(), asker): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from accord.core.model.errors import AccordError
from accord.operations.operation import Asker, Problem, Request, operation_of, problem_of
from accord.operations.ports import NodePorts

MAX_AT_ONCE: Final = 16  # of one gathering, so that others can ask, too

Answer = TypeVar("Answer")


async def ask_node(node: NodePorts, name: str, request: Request[Answer], asker: Asker) -> Answer:
    """The answer of the node called `name`, which may be this one.

    It is performed there with the asker's rights. Raises RequestError if that node refuses, is
    unknown, can't be reached, is too old, or does not answer within some seconds.
    """
    operation = operation_of(type(request))
    found = operation.perform(node, replace(request, node=name), asker)
    return cast("Answer", await found if isinstance(found, Awaitable) else found)


async def ask_nodes(
    node: NodePorts, names: Iterable[str], request: Request[Answer], asker: Asker
) -> dict[str, Answer | Problem]:
    """The answers of several nodes by name; for a node that gave none, why."""
    room = asyncio.Semaphore(MAX_AT_ONCE)

    async def ask(name: str) -> tuple[str, Any]:
        async with room:
            try:
                return name, await ask_node(node, name, request, asker)
            except AccordError as error:
                return name, problem_of(error)

    return dict(await asyncio.gather(*map(ask, names)))
