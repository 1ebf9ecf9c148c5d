"""Answers requests of MQTT clients to the node: decode, check the right, perform, reply.

Requests whose handlers are plain functions are answered in order, within the turn. The others run
concurrently, bounded in number. The reply goes to the requesting client alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from msgspec import Struct

from accord.core.broker.broker import Broker
from accord.core.broker.broker_context import NodeRequest
from accord.core.broker.client_notifications import reply_to_request
from accord.core.model.errors import AccordError
from accord.core.monitoring.recent_changes import RecentChanges
from accord.core.router.rights import EVERYTHING, QUERIES
from accord.operations.catalog import encode_answer, encode_error, encode_problem, topics
from accord.operations.operation import FAILED, Asker, Operation, Request, RequestError
from accord.operations.ports import NodePorts
from accord.runtime.logs import get_log

log = get_log(__name__)

MAX_REQUESTS: Final = 100  # concurrent


class StreamService(Protocol):
    """Answers the operations that stream their results."""

    def take(self, request: NodeRequest, ask: Request[Any]) -> None:
        """Start to answer, or raise RequestError."""

    def refuse(self, request: NodeRequest, body: bytes) -> None: ...


class ChangeAudit:
    """Records changes: what, by whom, from where; in the log and among the recent changes."""

    def __init__(self, changes: RecentChanges, now_ms: Callable[[], int]) -> None:
        self._changes = changes
        self._now_ms = now_ms

    def __call__(
        self, operation: str, asker: Asker, request: str, *, subject: str = "", channel: str = ""
    ) -> None:
        log.info(
            "operation: done",
            operation=operation,
            who=asker.who,
            client=asker.client,
            address=asker.address,
            subject=subject,
            channel=channel,
            request=request,
        )
        self._changes.audited(
            operation,
            who=asker.who,
            address=asker.address,
            request=request,
            subject=subject,
            channel=channel,
            now_ms=self._now_ms(),
        )


class RequestDispatcher:
    """`streams` answers the operations that stream their results."""

    def __init__(
        self, node: NodePorts, broker: Broker, streams: StreamService | None = None
    ) -> None:
        self.node = node
        self._broker = broker
        self._streams = streams
        self._tasks: set[asyncio.Task[None]] = set()
        broker.context.request_topics = frozenset(topics())

    async def close(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def handle(self, request: NodeRequest) -> None:
        """Answer, now or later; never raises."""
        try:
            operation, ask = topics()[request.message.channel].decode(request.message.payload)
            if operation.streams:
                if self._streams is None:
                    raise RequestError(404, "this node has no data pipeline")
                self._streams.take(request, ask)
                return
            if len(self._tasks) >= MAX_REQUESTS:
                raise RequestError(503, "too many requests are under way", retry_s=1)
            answer = operation.perform(self.node, ask, self._asker(request))
        except AccordError as error:
            self._reply(request, encode_error(error))
        except Exception as error:
            self._fail(request, error)
        else:
            if isinstance(answer, Awaitable):
                task = asyncio.ensure_future(self._wait(request, operation, answer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._reply(request, encode_answer(answer))

    async def _wait(
        self, request: NodeRequest, operation: Operation, answer: Awaitable[Struct]
    ) -> None:
        try:
            body = encode_answer(await answer)
        except AccordError as error:
            body = encode_error(error)
        except Exception as error:
            self._fail(request, error, operation.name)
            return
        self._reply(request, body)

    def _asker(self, request: NodeRequest) -> Asker:
        session = self._broker.sessions.get(request.client)
        if session is None:
            raise RequestError(404, "your session has ended", "request")
        return Asker(
            user=request.user,
            client=request.client,
            address=getattr(session.connection, "address", ""),
            rights=EVERYTHING if request.rights is None else request.rights,
        )

    def _fail(self, request: NodeRequest, error: Exception, operation: str = "") -> None:
        log.failure("request: failed", error, client=request.client, operation=operation)
        self._reply(request, encode_problem(FAILED))

    def _reply(self, request: NodeRequest, body: bytes) -> None:
        self._broker.context.now_ms = self.node.now_ms()
        if self._streams is not None and request.message.channel == QUERIES:
            self._streams.refuse(request, body)
        else:
            reply_to_request(self._broker, request, body)
        self.node.due()
