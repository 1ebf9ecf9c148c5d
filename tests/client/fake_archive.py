"""A node that answers queries, played over streams in memory."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa

import accord
from accord.client.address import Address
from accord.client.session import Session
from accord.client.transport import Stream
from accord.core.monitoring.ledger import event_id
from accord.core.mqtt.packets import Connect, Disconnect, Packet, Puback, Publish, Suback, Subscribe
from accord.core.mqtt.properties import CHANNEL, END, EVENT, PAGE, PUBLISHER, RECEIVED, Properties
from accord.core.router.rights import QUERIES
from tests.client.test_driver import Line, Server

Question = dict[str, Any]
EXPORTS = "$accord/export"
ENDING = ((PAGE, END),)
FIRST_MS = 1_700_000_000_000


class FakeArchive:
    """Has events 0 to `size` - 1, a second apart; a cursor is the number of the next one.

    `cut_at` breaks the connection before this event, once; from the question `holds_after` on none
    is answered; `dropped` are events that policies take away; `failure` is said instead of a page.
    At the page from `gone_at` on the connection breaks, and that is its end.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[Question] = []
        self.compared: list[Question] = []  # requests for known attributes
        self.hint = ""
        self.sent = 0
        self.cut_at: int | None = None
        self.is_resumed = True
        self.holds_after = 1_000
        self.dropped: set[int] = set()
        self.failure: Question | None = None
        self.gone_at: int | None = None
        self.interrupt: Callable[[], None] | None = None  # when one is not answered
        self._farewell: Publish | None = None
        self._find: Question = {}
        self.news = asyncio.Event()
        self._server = Server()
        self._serving: asyncio.Task[None] | None = None
        self._packet_id = 0

    async def open(self, address: Address) -> Stream:
        """The transport; it serves in the loop of who connects."""
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        return await self._server.open(address)

    @asynccontextmanager
    async def connected(self, **options: Any) -> AsyncIterator[Session]:
        connecting = accord.connect(transport=self.open, random=lambda: 0.0, **options)
        try:
            async with connecting as session:
                yield session
        finally:
            if self._serving is not None:
                self._serving.cancel()
                await asyncio.gather(self._serving, return_exceptions=True)

    async def until_asked(self, times: int) -> None:
        while len(self.asked) < times:
            self.news.clear()
            await self.news.wait()

    async def _serve(self) -> None:
        is_resumed = False
        while True:
            line = await self._server.accept(is_resumed=is_resumed)
            is_resumed = self.is_resumed
            if self._farewell is not None:
                line.say(self._farewell)
                self._farewell = None
            while await self._is_going_on(line, await line.hear(Packet)):  # type: ignore[arg-type]
                pass
            line.cut()

    async def _is_going_on(self, line: Line, packet: Packet) -> bool:
        match packet:
            case Subscribe():
                line.say(Suback(packet.packet_id, (1,)))
            case Publish():
                line.say(Puback(packet.packet_id))
                if packet.topic == "$accord/attributes":
                    self._answer_attributes(line, packet)
                    return True
                assert packet.topic in (QUERIES, EXPORTS)
                question = json.loads(packet.payload)
                self.asked.append(question)
                self._find = question if question["do"] == "find" else self._find
                self.news.set()
                if len(self.asked) > self.holds_after and self.interrupt is not None:
                    asyncio.get_running_loop().call_soon(self.interrupt)
                if question["do"] == "export" and len(self.asked) <= self.holds_after:
                    self._export(line, packet, question)
                elif question["do"] != "cancel" and len(self.asked) <= self.holds_after:
                    return self._answer(line, packet, question)
            case Disconnect() | Connect():
                return False
            case _:
                pass
        return True

    def _answer(self, line: Line, request: Publish, question: Question) -> bool:
        is_newest = self._find.get("order", "newest") == "newest"
        first = int(question.get("cursor", "0"))
        last = min(first + question.get("page", 100), self._find.get("limit", self.size), self.size)
        if self.failure is None:
            for place in range(first, last):
                number = self.size - 1 - place if is_newest else place
                if self.cut_at == number:
                    self.cut_at = None
                    return False
                if number not in self.dropped:
                    line.say(self._event(request, number))
                    self.sent += 1
        if self.gone_at == first:
            self.gone_at = None
            self._farewell = self._message(request, b'{"ok": false, "detail": "gone"}', ENDING)
            return False
        is_more = last < min(self.size, self._find.get("limit", self.size))
        end = self.failure or {
            "ok": True,
            "count": last - first,
            "cursor": str(last) if is_more else None,
            "files": 2,
            "files_skipped": 5,
            "bytes": 1000,
            "tail": 1,
            "took_ms": 3,
            "engine": "datafusion",
        }
        line.say(self._message(request, json.dumps(end).encode(), ENDING))
        return True

    def _answer_attributes(self, line: Line, request: Publish) -> None:
        self.compared.append(json.loads(request.payload))
        answer = {"ok": True, "events": 1, "attributes": ["m"], "unknown": ["n"], "hint": self.hint}
        line.say(self._message(request, json.dumps(answer).encode(), ()))

    def _export(self, line: Line, request: Publish, question: Question) -> None:
        """A part of a hundred events."""
        numbers = range(min(self.size, question.get("limit", self.size)))
        first = int(question.get("cursor", "0"))
        part = numbers[first : first + 100]
        more = first + 100 < len(numbers)
        if question.get("format") == "arrow":
            body = self._arrow(list(part), is_first=not first, is_last=not more)
        else:
            body = b"".join(b'{"n":%d}\n' % number for number in part)
        answer = self.failure or {
            "ok": True,
            "events": len(part),
            "cursor": str(first + 100) if more else None,
            "body": b64encode(body).decode(),
        }
        line.say(self._message(request, json.dumps(answer).encode(), ()))

    @staticmethod
    def _arrow(numbers: list[int], *, is_first: bool, is_last: bool) -> bytes:
        rows = pa.record_batch({"n": pa.array(numbers, pa.int64())})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        data: bytes = sink.getvalue().to_pybytes()
        return data[0 if is_first else rows.schema.serialize().size : None if is_last else -8]

    def _event(self, request: Publish, number: int) -> Publish:
        user = (
            ("n", str(number)),
            (CHANNEL, "uav/imagery"),
            (EVENT, event_id(number)),
            (RECEIVED, str(FIRST_MS + 1000 * number)),
            (PUBLISHER, "camera"),
        )
        return self._message(request, b"payload", user)

    def _message(
        self, request: Publish, payload: bytes, user: tuple[tuple[str, str], ...]
    ) -> Publish:
        topic = request.properties.response_topic
        assert topic is not None
        self._packet_id = self._packet_id % 60_000 + 1
        properties = Properties(correlation_data=request.properties.correlation_data, user=user)
        return Publish(topic, payload, 1, packet_id=self._packet_id, properties=properties)
