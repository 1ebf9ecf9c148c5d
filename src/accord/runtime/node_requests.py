"""Requests to other nodes, and the operations that this node performs for them.

The asker's rights travel with a request and are applied at the other node; its name does not, as
clients and users of that name may be others there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from accord.core.channels.node_requests.messages import (
    MAX_REQUEST,
    SERVICE,
    AnswerTooLargeError,
    RequestOutcome,
    RequestResult,
    pack,
)
from accord.core.channels.node_requests.node_requests import NodeOrder, NodeRequests
from accord.core.model.errors import AccordError
from accord.core.router.rights import Rights
from accord.operations.catalog import topics
from accord.operations.operation import (
    FAILED,
    Asker,
    Operation,
    Problem,
    Request,
    RequestError,
    operation_of,
    problem_of,
)
from accord.operations.ports import NodePorts
from accord.runtime.connection_writer import clock_us
from accord.runtime.logs import get_log
from accord.runtime.overlay_service import OverlayService

log = get_log(__name__)

_STATUS: Final = {
    RequestResult.UNKNOWN: 404,
    RequestResult.UNREACHABLE: 504,
    RequestResult.TIMED_OUT: 504,
    RequestResult.TOO_OLD: 501,
    RequestResult.BUSY: 503,
    RequestResult.TOO_LARGE: 413,
    RequestResult.UNREADABLE: 502,
}
_WORDS: Final = {
    RequestResult.UNKNOWN: ("no node {} in this network", "`accord net` lists the nodes"),
    RequestResult.UNREACHABLE: ("node {} can't be reached now", "`accord net` shows its links"),
    RequestResult.TIMED_OUT: ("node {} does not answer", "`accord net` shows its links; try again"),
    RequestResult.TOO_OLD: ("node {} is too old to answer through other nodes", "ask it directly"),
    RequestResult.BUSY: ("too many requests to node {} are under way", "try again"),
    RequestResult.TOO_LARGE: (
        f"expected at most {MAX_REQUEST} bytes for node {{}}",
        "ask it directly",
    ),
    RequestResult.UNREADABLE: ("the answer of node {} can't be read", "ask it directly"),
}
_json: Final = msgspec.json.Encoder()
_rights_encoder: Final = msgspec.msgpack.Encoder()
_rights: Final = msgspec.msgpack.Decoder(Rights)
_problems: Final = msgspec.json.Decoder(Problem)


class NodeRequestService:
    """Asks other nodes for this one, and performs what they ask."""

    def __init__(self, net: OverlayService) -> None:
        store = net.overlay.store
        self.exchange = net.channels.serve(SERVICE, lambda context: NodeRequests(context, store))
        self._net = net
        self._node: NodePorts | None = None
        self._waiting: dict[int, asyncio.Future[RequestOutcome]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        net.after.append(self._on_messages)

    def start(self, node: NodePorts) -> None:
        """Start to perform what others ask, with these parts."""
        self._node = node
        self._on_messages()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for future in self._waiting.values():
            future.cancel()

    def nodes(self) -> list[str]:
        return self.exchange.nodes()

    def known_nodes(self) -> list[str]:
        return self.exchange.known_nodes()

    async def ask(self, name: str, request: Request[Any], asker: Asker) -> Any:
        """The answer of another node; raises RequestError if it refuses, or does not answer."""
        operation = operation_of(type(request))
        body = _json.encode(replace(request, node=""))
        rights = _rights_encoder.encode(asker.rights)
        outcome = await self._exchange(name, operation.topic, body, rights)
        if outcome.result is RequestResult.ANSWERED:
            try:
                return msgspec.json.decode(outcome.body, type=operation.answer)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise _error_of(RequestResult.UNREADABLE, name) from None
        if outcome.result is RequestResult.REFUSED:
            raise _refusal(outcome.body, name)
        raise _error_of(outcome.result, name)

    # ------------------------------------------------------------------------------------ internals

    async def _exchange(self, name: str, topic: str, body: bytes, rights: bytes) -> RequestOutcome:
        sent = self.exchange.request(name, topic, body, rights, clock_us())
        if isinstance(sent, RequestOutcome):
            return sent
        future: asyncio.Future[RequestOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[sent] = future
        self._net.turn()
        try:
            return await future
        finally:
            del self._waiting[sent]
            self.exchange.cancel(sent)

    def _on_messages(self) -> None:
        outcomes, self.exchange.outcomes = self.exchange.outcomes, []
        for each in outcomes:
            future = self._waiting.get(each.id)
            if future is not None and not future.done():
                future.set_result(each)
        if self._node is None:
            return
        orders, self.exchange.orders = self.exchange.orders, []
        for order in orders:
            task = asyncio.create_task(self._perform(order, self._node))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _perform(self, order: NodeOrder, node: NodePorts) -> None:
        is_done = True
        try:
            packed = await asyncio.to_thread(pack, await _answer(order, node))
        except AccordError as error:
            is_done, packed = False, _packed(problem_of(error))
        except AnswerTooLargeError as error:
            too_large = RequestError(413, str(error), "node", remedy="ask for less of it")
            is_done, packed = False, _packed(problem_of(too_large))
        except Exception as error:  # otherwise it would count as being performed for ever
            log.failure("request of a node: failed", error, node=order.to)
            is_done, packed = False, _packed(FAILED)
        self.exchange.reply(order, packed, clock_us(), is_done=is_done)
        self._net.turn()


async def _answer(order: NodeOrder, node: NodePorts) -> bytes:
    """Perform the request with the rights of the asker at the other node."""
    operation, request = _read(order, node)
    try:
        rights = _rights.decode(order.question.rights)
    except (ValueError, RecursionError, OverflowError):
        raise RequestError(400, "expected the rights of the asker", "node") from None
    asker = Asker(address=f"node {order.to}", rights=rights)
    found = operation.perform(node, request, asker)
    return _json.encode(await found if isinstance(found, Awaitable) else found)


def _read(order: NodeOrder, node: NodePorts) -> tuple[Operation, Request[Any]]:
    topic = topics().get(order.question.topic)
    if topic is None:
        problem = f"node {node.view.name} is too old for this operation"
        raise RequestError(501, problem, "node", remedy="ask it directly")
    operation, request = topic.decode(order.question.body)
    if not operation.asks_others:
        raise RequestError(400, f"{operation.name} can't be asked through another node", "node")
    return operation, replace(request, node="")


def _packed(problem: Problem) -> bytes:
    return pack(_json.encode(problem))


def _error_of(result: RequestResult, name: str) -> RequestError:
    problem, remedy = _WORDS[result]
    return RequestError(_STATUS[result], problem.format(name[:80]), "node", remedy=remedy)


def _refusal(body: bytes, name: str) -> RequestError:
    """The other node's problem, as if this node had it."""
    try:
        found = _problems.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _error_of(RequestResult.UNREADABLE, name)
    status = found.status if 400 <= found.status <= 599 else 502
    detail = f"node {name} failed to answer" if found == FAILED else found.detail
    error = RequestError(status, detail, found.place, remedy=found.remedy)
    error.at, error.expected, error.repair = found.at, found.expected, found.repair
    return error
