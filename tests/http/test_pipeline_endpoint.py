"""The node's end of the pipeline of a site, which connects over HTTP."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import argon2
import msgspec
import pytest
from tests.fake_node import FakeNode
from tests.live_client import ANYWHERE
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from accord.core.queries.messages import (
    EventQuery,
    FromNode,
    FromPipeline,
    Health,
    Page,
    PageFrames,
    PageQuery,
    QueryHit,
    WatchedPredicate,
    WatchPredicates,
    decode_from_node,
    encode_frame,
)
from accord.core.router.rights import Rights
from accord.http.app import create_app
from accord.http.server import HttpServer, serve
from accord.journal import retention
from accord.journal.disk import OsDisk
from accord.operations.ports import NodePorts
from accord.runtime.durability import EVENTS
from accord.runtime.pipeline import Pipeline, PipelineError, PipelineOptions, PipelineTimeouts
from accord.runtime.users import User, Users

A = EventQuery(channel="a")
READY = Health(state="ready")
PIECE = 50_000


class SiteEnd:
    """The pipeline's end of the connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._frames = PageFrames()
        self._waiting: list[bytes] = []

    async def send(self, message: FromPipeline) -> None:
        data = encode_frame(message)
        for at in range(0, len(data), PIECE):
            await self.socket.send(data[at : at + PIECE])

    async def receive(self) -> FromNode:
        while not self._waiting:
            data = await self.socket.recv()
            assert isinstance(data, bytes)
            self._waiting += self._frames.feed(data)
        return decode_from_node(self._waiting.pop(0))


class World:
    def __init__(self, pipeline: Pipeline, server: HttpServer, data: Path) -> None:
        self.pipeline = pipeline
        self.server = server
        self.data = data

    @asynccontextmanager
    async def site(self, node: str = "alpha", login: str = "") -> AsyncIterator[SiteEnd]:
        url = f"ws://{self.server.address}/api/v1/pipeline?node={node}"
        named = base64.b64encode(login.encode()).decode()
        headers = {"Authorization": f"Basic {named}"} if login else {}
        async with connect(url, additional_headers=headers) as socket:
            yield SiteEnd(socket)

    async def refusal(self, node: str = "alpha", login: str = "") -> tuple[int, str]:
        with pytest.raises(InvalidStatus) as refused:
            async with self.site(node, login):
                pass
        response = refused.value.response
        return response.status_code, msgspec.json.decode(response.body or b"{}")["detail"]

    def needed_from(self) -> int:
        return retention.needed_from(OsDisk(self.data / EVENTS))


@asynccontextmanager
async def a_node(
    data: Path, *, users: Users | None = None, is_site: bool = True, silence_s: float = 60.0
) -> AsyncIterator[World]:
    (data / EVENTS).mkdir()
    timeouts = PipelineTimeouts(silence_s=silence_s)
    options = PipelineOptions(is_site=is_site, timeouts=timeouts) if is_site else None
    pipeline = Pipeline(options, node="alpha", data=data)
    pipeline.start()
    ports = NodePorts(view=FakeNode(), pipeline=pipeline)
    server = await serve(create_app(ports, users=users, site=pipeline.site), ANYWHERE)
    try:
        yield World(pipeline, server, data)
    finally:
        await pipeline.close()
        await server.stop()
        if users is not None:
            await users.close()


async def until(is_done: Callable[[], object]) -> None:
    while not is_done():
        await asyncio.sleep(0.01)


def test_questions_and_answers_of_any_size(tmp_path: Path) -> None:
    hit = QueryHit(0, 1, 2, "a", "camera", 1, b"", b"x" * 1_000_000)

    async def main() -> None:
        async with a_node(tmp_path) as world, world.site() as site:
            await site.send(READY)
            where = "x = 'ü" + "y" * 100_000 + "'"
            asked = asyncio.create_task(world.pipeline.page(EventQuery(channel="a", where=where)))
            question = await site.receive()
            assert isinstance(question, PageQuery)
            assert question.ask.where == where
            await site.send(Page(id=question.id, events=(hit,)))
            assert (await asked).events == (hit,)

    asyncio.run(main())


def test_predicates_that_were_registered_before_it_came(tmp_path: Path) -> None:
    watched = WatchedPredicate("a", "x > 1", "")

    async def main() -> None:
        async with a_node(tmp_path) as world:
            world.pipeline.watch([watched])
            for _ in range(2):
                async with world.site() as site:
                    await site.send(READY)
                    assert await site.receive() == WatchPredicates((watched,))
                await until(lambda: world.pipeline.health.state == "starting")

    asyncio.run(main())


def test_without_it_the_status_says_what_to_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_node(tmp_path, silence_s=0.05) as world:
            await until(lambda: world.pipeline.lack)
            status = world.pipeline.status()
            assert status.state == "starting"
            assert "start `accord pipeline` with alpha under [pipeline.nodes]" in status.problem
            with pytest.raises(PipelineError, match="accord pipeline") as refused:
                await world.pipeline.page(A)
            assert refused.value.kind == "off"
            async with world.site():
                await until(lambda: not world.pipeline.lack)

    asyncio.run(main())


def test_a_question_waits_for_the_next_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_node(tmp_path) as world:
            async with world.site() as site:
                await site.send(READY)
                asked = asyncio.create_task(world.pipeline.page(A))
                await site.receive()
            async with world.site() as site:
                await site.send(READY)
                question = await site.receive()
                assert isinstance(question, PageQuery)
                await site.send(Page(id=question.id, events=()))
                assert (await asked).events == ()
            assert world.pipeline.status().restarts == 1

    asyncio.run(main())


def test_only_one_at_a_time_and_only_for_this_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_node(tmp_path) as world:
            assert await world.refusal("beta") == (409, "this is node alpha, not 'beta'")
            async with world.site() as site:
                await site.send(READY)
                await until(lambda: world.pipeline.health.state == "ready")
                code, problem = await world.refusal()
                assert code == 503
                assert problem.startswith("another pipeline is connected, from 127.0.0.1")
                assert world.pipeline.health.state == "ready"

    asyncio.run(main())


def test_a_node_with_a_pipeline_of_its_own_takes_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_node(tmp_path, is_site=False) as world:
            code, problem = await world.refusal()
            assert (code, problem) == (409, "this node has not the pipeline of a site")

    asyncio.run(main())


def test_it_takes_the_right_to_everything(tmp_path: Path) -> None:
    password = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
    everything = Rights(subscribe=("#",), system=True)
    users = [
        User("site", password, everything),
        User("ann", password, Rights(subscribe=("#",))),
    ]

    async def main() -> None:
        async with a_node(tmp_path, users=Users(users)) as world:
            assert (await world.refusal())[0] == 401
            assert (await world.refusal(login="site:wrong"))[0] == 401
            code, problem = await world.refusal(login="ann:secret")
            assert (code, problem) == (403, "ann may not connect a pipeline")
            async with world.site(login="site:secret") as site:
                await site.send(READY)
                await until(lambda: world.pipeline.health.state == "ready")

    asyncio.run(main())


def test_garbage_ends_the_connection_and_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_node(tmp_path) as world, world.site() as site:
            await site.socket.send(b"\x00\x00\x00\x02??")
            with pytest.raises(ConnectionClosed) as closed:
                await site.receive()
            assert "invalid message" in str(closed.value)
            await until(lambda: "invalid message" in world.pipeline.status().last_end)

    asyncio.run(main())


def test_the_journal_is_kept_until_it_is_archived(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_node(tmp_path) as world:
            assert world.needed_from() == 0
            async with world.site() as site:
                await site.send(Health(state="ready", released_offset=70))
                await until(lambda: world.needed_from() == 70)
                await site.send(Health(state="ready"))  # another process that knows nothing yet
                await site.send(Health(state="ready", released_offset=90))
                await until(lambda: world.needed_from() == 90)

    asyncio.run(main())


def test_what_was_archived_before_is_known_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / EVENTS).mkdir()
        retention.register(tmp_path / EVENTS, retention.ARCHIVE, 50)
        pipeline = Pipeline(PipelineOptions(is_site=True), node="alpha", data=tmp_path)
        pipeline.start()
        await pipeline.close()

    asyncio.run(main())
    assert retention.needed_from(OsDisk(tmp_path / EVENTS)) == 50
