from __future__ import annotations

import asyncio
import base64
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import argon2
import httpx
import msgspec
import pytest
from tests.fake_ledger import FakeLedger
from tests.fake_node import FakeNode
from tests.live_client import LiveServer, live_server
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.protocol import State

from accord.core.monitoring.delivery import Delivery
from accord.core.monitoring.recent_changes import RecentChanges
from accord.core.monitoring.verdict import NodeProblem
from accord.core.monitoring.viewers import MAX_WATCHES
from accord.core.router.rights import Rights
from accord.http import live as live_module
from accord.http import server as server_module
from accord.operations.ports import NodePorts
from accord.runtime.process import Clock
from accord.runtime.users import User, Users

HANDSHAKE = (
    "GET /api/v1/live HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n\r\n"
)
CLOSE = b"\x88\x80" + bytes(4)  # of a client, with a mask of zeros


class Measured:
    """A node whose series are set by the test; each change is a sample."""

    def __init__(self, *names: str) -> None:
        self.ledger = FakeLedger()
        self.node = NodePorts(view=FakeNode(), ledger=self.ledger, now_ms=Clock().now_ms)
        self.set(**dict.fromkeys(names or ("a",), 0.0))

    def set(self, **values: float) -> None:
        self.ledger.sampled_ms += 1_000
        for name, value in values.items():
            self.ledger.series.add(name, self.ledger.sampled_ms, value)


def run(
    measured: Measured,
    main: Callable[[LiveServer], Coroutine[Any, Any, None]],
    *,
    users: Users | None = None,
) -> None:
    async def whole() -> None:
        async with live_server(measured.node, users=users) as server:
            await main(server)
        if users is not None:
            await users.close()

    asyncio.run(whole())


async def stalled_viewer(server: LiveServer) -> socket.socket:
    """A viewer of all series that reads nothing but the answer to its handshake."""
    loop = asyncio.get_running_loop()
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    stalled.setblocking(False)
    await loop.sock_connect(stalled, (server.address.host, server.address.port))
    await loop.sock_sendall(stalled, HANDSHAKE.format(host=server.address).encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += await loop.sock_recv(stalled, 1)
    await loop.sock_sendall(stalled, masked_frame(b'{"watch":1,"set":"series","limit":500}'))
    return stalled


def masked_frame(text: bytes) -> bytes:
    """A text message of a client, with a mask of zeros."""
    assert len(text) < 126
    return bytes([0x81, 0x80 | len(text)]) + bytes(4) + text


def test_a_state_and_then_its_differences() -> None:
    measured = Measured("a", "b")

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            state = await viewer.watch("series", number=7)
            assert state["total"] == state["matching"] == 2
            assert state["rows"]["a"]["last"] == 0
            measured.set(a=5.0)
            await viewer.update()
            assert viewer.kinds == ["state", "patch"]
            assert viewer.states[7]["rows"]["a"]["last"] == 5
            assert viewer.states[7]["rows"]["b"]["last"] == 0

    run(measured, main)


def test_two_viewers_share_what_is_computed() -> None:
    measured = Measured("a")

    async def main(server: LiveServer) -> None:
        async with server.client() as one, server.client() as other:
            await one.watch("series", number=1)
            await other.watch("series", number=2)
            assert (server.stream.feeds, server.stream.computed) == (1, 1)
            measured.set(a=1.0)
            await one.update()
            await other.update()
            assert server.stream.computed == 2
            await other.watch("series", number=3, search="A")
            assert (server.stream.feeds, server.stream.computed) == (2, 3)
            assert one.states[1] == other.states[2] == other.states[3]

    run(measured, main)


def test_without_viewers_nothing_is_computed() -> None:
    measured = Measured("a")

    async def main(server: LiveServer) -> None:
        stream = server.stream
        async with server.client() as viewer:
            await viewer.watch("series")
            assert (stream.feeds, stream.is_running) == (1, True)
        while stream.viewers or stream.is_running:
            await asyncio.sleep(0.01)
        measured.set(a=1.0)
        assert (stream.feeds, stream.computed) == (0, 1)

    run(measured, main)


def test_what_did_not_change_is_not_computed_again() -> None:
    measured = Measured("a")

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            await viewer.watch("series")
            for _ in range(5):
                server.stream.advance()
            assert server.stream.computed == 1

    run(measured, main)


def test_a_watch_ends_or_is_replaced() -> None:
    measured = Measured("a", "b")

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            await viewer.watch("series", number=1)
            state = await viewer.watch("series", number=1, names=["b"])
            assert list(state["rows"]) == ["b"]
            assert server.stream.feeds == 1
            await viewer.send(stop=1)
            await viewer.send(stop=1)  # is no mistake
            state = await viewer.watch("series", number=2, prefix="a")
            assert list(state["rows"]) == ["a"]
            assert server.stream.feeds == 1

    run(measured, main)


@pytest.mark.parametrize(
    ("text", "status", "place", "number"),
    [
        ("", 400, "request", None),
        ("[]", 400, "request", None),
        ("7", 400, "request", None),
        ('{"watch":1}', 404, "set", 1),
        ('{"watch":1,"set":"no such"}', 404, "set", 1),
        ('{"watch":1,"set":{}}', 400, "set", None),
        ('{"set":"series"}', 400, "watch", None),
        ('{"watch":-1,"set":"series"}', 400, "watch", None),
        ('{"watch":1e400,"set":"series"}', 400, "watch", None),
        ('{"watch":1,"set":"series","limit":0}', 400, "limit", 1),
        ('{"watch":1,"set":"series","limit":501}', 400, "limit", 1),
        ('{"watch":1,"set":"series","more":1}', 400, "request", 1),
        ('{"watch":1,"set":"series","names":' + "[" * 5_000, 400, "request", None),
        ('{"watch":1,"set":"series","names":' + "[" * 5_000 + "]" * 5_000 + "}", 400, "", None),
        ('{"stop":"x"}', 400, "stop", None),
        ('{"watch":1,"set":"series","search":"\\ud800"}', 400, "", None),
    ],
)
def test_wrong_requests_are_answered_with_problems(
    text: str, status: int, place: str, number: int | None
) -> None:
    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            await viewer.connection.send(text)
            problem = await viewer.problem()
            assert problem["status"] == status
            assert problem["detail"]
            assert problem.get("place", "").startswith(place)
            assert problem["id"] in (number, None)
            assert (await viewer.watch("series"))["total"] == 1  # it goes on

    run(Measured("a"), main)


def test_bytes_are_no_request() -> None:
    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            await viewer.connection.send(b'{"watch":1,"set":"series"}')
            assert (await viewer.problem())["status"] == 400

    run(Measured("a"), main)


def test_a_huge_request_ends_the_connection() -> None:
    async def main(server: LiveServer) -> None:
        async with server.client() as viewer, server.client() as other:
            await viewer.connection.send("x" * (server_module.MAX_MESSAGE_BYTES + 1))
            with pytest.raises(ConnectionClosed):
                await viewer.problem()
            assert (await other.watch("series"))["total"] == 1

    run(Measured("a"), main)


def test_only_so_many_watches_of_a_viewer() -> None:
    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            for number in range(MAX_WATCHES):
                await viewer.watch("series", number=number, limit=number + 1)
            problem = await viewer.watch("series", number=99)
            assert problem["status"] == 429
            await viewer.send(stop=0)
            assert (await viewer.watch("series", number=100))["total"] == 1

    run(Measured("a"), main)


def test_only_so_many_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_VIEWERS", 1)

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            await viewer.watch("series")
            with pytest.raises(InvalidStatus) as found:
                async with server.client():
                    pass
            assert found.value.response.status_code == 503

    run(Measured("a"), main)


def test_only_so_many_different_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_FEEDS", 1)

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            await viewer.watch("series", number=1)
            assert (await viewer.watch("series", number=2))["total"] == 1
            assert (await viewer.watch("series", number=3, limit=1))["status"] == 503

    run(Measured("a"), main)


def basic(user: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:secret".encode()).decode()}


def two_users() -> Users:
    password = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
    return Users([User("ann", password), User("bob", password)])


def test_one_user_does_not_take_the_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_USER_VIEWERS", 2)

    async def main(server: LiveServer) -> None:
        ann, bob = basic("ann"), basic("bob")
        async with server.client(additional_headers=ann):
            async with server.client(additional_headers=ann):
                with pytest.raises(InvalidStatus) as found:
                    async with server.client(additional_headers=ann):
                        pass
                assert found.value.response.status_code == 429
                assert found.value.response.headers["retry-after"] == "10"
                async with server.client(additional_headers=bob) as viewer:
                    assert (await viewer.watch("series"))["total"] == 1
            async with server.client(additional_headers=ann):
                pass

    run(Measured("a"), main, users=two_users())


def test_one_user_does_not_watch_all_that_can_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_USER_FEEDS", 2)

    async def main(server: LiveServer) -> None:
        ann, bob = basic("ann"), basic("bob")
        async with (
            server.client(additional_headers=ann) as one,
            server.client(additional_headers=ann) as other,
            server.client(additional_headers=bob) as viewer,
        ):
            assert (await one.watch("series", limit=1))["total"] == 1
            assert (await other.watch("series", limit=2))["total"] == 1
            refused = await other.watch("series", number=2, limit=3)
            assert (refused["status"], refused["remedy"]) == (429, "stop one")
            assert (await viewer.watch("series", limit=3))["total"] == 1
            assert (await other.watch("series", number=2, limit=3))["total"] == 1  # bob's

    run(Measured("a"), main, users=two_users())


def test_a_set_that_fails_is_a_problem_of_its_viewers_only() -> None:
    measured = Measured("a")

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            measured.node.ledger = None
            problem = await viewer.watch("series")
            assert (problem["status"], problem["detail"]) == (404, "this node has no ledger")
            measured.node.ledger = measured.ledger
            await viewer.update()
            assert viewer.states[1]["total"] == 1

    run(measured, main)


def test_a_set_that_breaks_is_a_problem(caplog: pytest.LogCaptureFixture) -> None:
    measured = Measured("a")

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            measured.ledger.summary = None  # type: ignore[assignment, method-assign]
            assert (await viewer.watch("series"))["status"] == 500

    run(measured, main)
    assert "live set: not computed" in caplog.text


def test_a_state_that_is_too_large_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.core.monitoring.viewers.MAX_STATE_BYTES", 10)

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            assert (await viewer.watch("series"))["status"] == 413

    run(Measured("a"), main)


def test_a_silent_node_sends_its_heartbeat() -> None:
    measured = Measured("a")

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            measured.node.now_ms = lambda: 5_000
            assert await viewer.receive() == {"at_ms": 5_000}

    run(measured, main)


def test_a_viewer_that_does_not_read_costs_little_and_nobody_else() -> None:
    measured = Measured()
    rows = {f"{number:03}-{'x' * 300}": 0.0 for number in range(400)}

    async def main(server: LiveServer) -> None:
        with await stalled_viewer(server):
            async with server.client(max_size=None) as viewer:
                measured.set(**rows)
                await viewer.watch("series", limit=500)
                for number in range(1, 12):
                    measured.set(**dict.fromkeys(rows, float(number)))
                    await viewer.update()
                    last = max(each["last"] for each in viewer.states[1]["rows"].values())
                    assert last == number
                (stalled,) = (each for each in server.protocols() if not each.writable.is_set())
                assert stalled.transport.get_write_buffer_size() < 500_000
                assert server.stream.computed < 20

    run(measured, main)


@pytest.mark.parametrize(
    ("first", "frames"),
    [
        (b"", b"\x89\xfd" + bytes(4) + bytes(125)),  # pings, whose answers nobody reads
        (b"\x01\x80" + bytes(4), b"\x00\x80" + bytes(4)),  # empty fragments of one message
        (b"", b"\x81\x80" + bytes(4)),  # empty messages
    ],
    ids=["pings", "fragments", "messages"],
)
def test_a_viewer_that_sends_without_end_is_closed(first: bytes, frames: bytes) -> None:
    async def flood(connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, first)
        for _ in range(2_000):
            await loop.sock_sendall(connection, frames * 1_000)

    async def main(server: LiveServer) -> None:
        with await stalled_viewer(server) as flooding:
            with pytest.raises(OSError):  # noqa: PT011 (reset, or a broken pipe)
                await flood(flooding)
            while server.stream.viewers:
                await asyncio.sleep(0.01)
            for each in server.protocols():
                assert each.transport.get_write_buffer_size() < 1_000_000
                assert len(each.frames) < 1_000

    run(Measured(), main)


def test_what_is_quoted_of_a_request_is_short() -> None:
    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            await viewer.connection.send(f'{{"watch":1,"set":"node","{"é" * 20_000}":1}}')
            assert len(str(await viewer.problem())) < 1_000

    run(Measured(), main)


def test_a_viewer_that_does_not_read_is_closed_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "READ_TIMEOUT_S", 0.01)
    measured = Measured()

    async def main(server: LiveServer) -> None:
        with await stalled_viewer(server):
            number = 0.0
            while server.stream.viewers:
                number += 1
                measured.set(**{f"{row:03}-{'x' * 300}": number for row in range(400)})
                await asyncio.sleep(0.01)

    run(measured, main)


def test_a_node_stops_while_a_viewer_that_does_not_read_is_closing() -> None:
    measured = Measured(*(f"{number:04}" for number in range(500)))

    async def main(server: LiveServer) -> None:
        with await stalled_viewer(server) as stalled:
            (protocol,) = server.protocols()
            while protocol.writable.is_set():
                measured.set(**{f"{number:04}": time.monotonic() for number in range(500)})
                await asyncio.sleep(0.01)
            await asyncio.get_running_loop().sock_sendall(stalled, CLOSE)
            while protocol.conn.state is State.OPEN:
                await asyncio.sleep(0.01)
            await server.stop()

    run(measured, main)


def test_a_viewer_comes_back_after_a_restart() -> None:
    measured = Measured("a")

    async def main() -> None:
        async with live_server(measured.node) as server:
            address = server.address
            async with server.client() as viewer:
                await viewer.watch("series")
                stopping = asyncio.create_task(server.stop())
                with pytest.raises(ConnectionClosed) as found:
                    await viewer.problem()
                assert found.value.rcvd is not None
                assert found.value.rcvd.code == 1012
                await stopping
        async with live_server(measured.node, address=address) as server, server.client() as viewer:
            assert (await viewer.watch("series"))["total"] == 1

    asyncio.run(main())


def test_other_sites_and_rebound_names_are_refused() -> None:
    async def main(server: LiveServer) -> None:
        for headers, status in [
            ({"Origin": "http://evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Origin": "null"}, 403),
        ]:
            with pytest.raises(InvalidStatus) as found:
                async with server.client(additional_headers=headers):
                    pass
            assert found.value.response.status_code == status
            assert b'"status":403' in found.value.response.body
        async with server.client(additional_headers={"Origin": f"http://{server.address}"}) as own:
            assert (await own.watch("series"))["total"] == 1
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
        writer.write(HANDSHAKE.format(host="rebound.example").encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 421 ")
        writer.close()

    run(Measured("a"), main)


def test_it_is_no_page() -> None:
    async def main(server: LiveServer) -> None:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://{server.address}/api/v1/live")
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
        writer.write(
            HANDSHAKE.format(host=server.address).replace("/api/v1/live", "/health").encode()
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 40")
        writer.close()

    run(Measured("a"), main)


def test_what_is_watched_follows_the_rights() -> None:
    password = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
    users = Users(
        [
            User("ann", password, Rights(subscribe=("#",))),
            User("bob", password, Rights(subscribe=("uav/#",))),
            User("cid", password, Rights(subscribe=("uav/#",))),
            User("dan", password, Rights(subscribe=("#",), statistics=False)),
        ]
    )
    measured = Measured("cpu_percent", "channel/latency_ms/uav/1", "channel/latency_ms/cas/1")

    async def main(server: LiveServer) -> None:
        with pytest.raises(InvalidStatus) as found:
            async with server.client():
                pass
        assert found.value.response.status_code == 401
        with pytest.raises(InvalidStatus) as found:
            async with server.client(additional_headers=basic("dan")):
                pass
        assert found.value.response.status_code == 403
        assert server.stream.viewers == 0
        seen = {}
        async with (
            server.client(additional_headers=basic("ann")) as ann,
            server.client(additional_headers=basic("bob")) as bob,
            server.client(additional_headers=basic("cid")) as cid,
        ):
            for name, viewer in (("ann", ann), ("bob", bob), ("cid", cid)):
                seen[name] = await viewer.watch("series")
            assert server.stream.feeds == 2  # bob and cid may see the same
        assert seen["ann"]["total"] == 3
        assert list(seen["bob"]["rows"]) == ["channel/latency_ms/uav/1", "cpu_percent"]
        assert seen["bob"] == seen["cid"]

    run(measured, main, users=users)


def test_names_of_series_are_bounded_together() -> None:
    measured = Measured()
    measured.set(**{f"{number:03}{'x' * 60_000}": 1.0 for number in range(20)})

    async def main(server: LiveServer) -> None:
        async with server.client(max_size=None) as viewer:
            state = await viewer.watch("series")
            assert (state["total"], len(state["rows"])) == (21, 2)
            assert len(msgspec.json.encode(state)) < 200_000

    run(measured, main)


def test_the_node_at_a_glance() -> None:
    measured = Measured("a")
    late = NodeProblem(
        key="channel/cas/1",
        severity="bad",
        subject="cas/1",
        sentence="cas/1: 30 % late",
        page="/channels/cas/1",
        since_ms=7,
        channel="cas/1",
    )
    measured.ledger.delivery = Delivery(in_time=1.0, delivered_hz=10, deadline_hz=10)

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            state = await viewer.watch("node")
            assert state["verdict"] == "All is well at alpha: 100 % of 10 events/s in time."
            assert state["problems"] == {}
            assert list(state["bins"]) == ["3", "6"]
            assert "journal" not in state  # this node has none
            measured.ledger.problems = (late,)
            measured.set(a=1.0)
            await viewer.update()
            state = viewer.states[1]
            assert state["verdict"] == "cas/1: 30 % late."
            assert state["problems"]["channel/cas/1"] == {
                "rank": 0,
                "severity": "bad",
                "subject": "cas/1",
                "sentence": "cas/1: 30 % late",
                "since_ms": 7,
                "page": "/channels/cas/1",
            }

    run(measured, main)


def test_what_changed_lately() -> None:
    measured = Measured("a")
    recent = measured.node.changes = RecentChanges()
    recent.client_connected("c-1", "", "", now_ms=1)

    async def main(server: LiveServer) -> None:
        async with server.client() as viewer:
            state = await viewer.watch("changes", limit=2)
            assert [row["what"] for row in state["rows"].values()] == ["c-1 connected"]
            recent.link_changed("denver", is_up=False, now_ms=2)
            recent.link_changed("denver", is_up=True, now_ms=3)
            while "3" not in viewer.states[1]["rows"]:
                await viewer.update()
            rows = viewer.states[1]["rows"]
            assert {number: row["what"] for number, row in rows.items()} == {
                "2": "link to denver is down",
                "3": "link to denver is up",
            }

    run(measured, main)


def test_with_the_session_ends_the_stream() -> None:
    password = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
    users = Users([User("ann", password, Rights(subscribe=("#",)))])
    measured = Measured("a")

    async def main(server: LiveServer) -> None:
        async with httpx.AsyncClient(base_url=f"http://{server.address}") as client:
            login = {"user": "ann", "password": "secret"}
            assert (await client.post("/api/v1/session", json=login)).status_code == 200
            cookie = {"Cookie": f"accord_session={client.cookies['accord_session']}"}
            async with (
                server.client(additional_headers=cookie) as viewer,
                server.client(additional_headers=basic("ann")) as other,
            ):
                assert (await viewer.watch("series"))["total"] == 1
                await client.delete("/api/v1/session")
                with pytest.raises(ConnectionClosed) as found:
                    await viewer.problem()
                assert found.value.rcvd is not None
                assert found.value.rcvd.code == live_module.SESSION_ENDED
                assert (await other.watch("series"))["total"] == 1
        with pytest.raises(InvalidStatus) as refused:
            async with server.client(additional_headers=cookie):
                pass
        assert refused.value.response.status_code == 401

    run(measured, main, users=users)
