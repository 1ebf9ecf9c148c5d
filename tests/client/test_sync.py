from __future__ import annotations

import threading

import pytest
from benchmarks.ports import free_port

import accord
from accord.client.errors import (
    AlreadySubscribedError,
    ConnectionFailedError,
    SessionClosedError,
)
from tests.brokers import HOST
from tests.client.fake_archive import FakeArchive


def test_publish_and_go_through(broker_url: str) -> None:
    with accord.connect_sync(broker_url) as session:
        events = session.subscribe("sync/+")
        for number in range(3):
            session.publish("sync/a", b"x", n=number)
        received = []
        for event in events:
            received.append(event.attributes["n"])
            if len(received) == 3:
                break
        assert received == [0, 1, 2]


def test_a_subscription_ends_with_its_block(broker_url: str) -> None:
    with accord.connect_sync(broker_url) as session:
        with session.subscribe("sync/block") as events:
            with pytest.raises(AlreadySubscribedError):
                session.subscribe("sync/block")
            session.publish("sync/block", b"1")
            assert next(events).payload == b"1"
        with session.subscribe("sync/block") as events:
            assert events.get(timeout_s=0.01) is None
            assert events.shed == 0


def test_request_and_response(broker_url: str) -> None:
    with accord.connect_sync(broker_url) as session, session.subscribe("sync/svc") as requests:

        def serve() -> None:
            request = next(requests)
            session.respond(request, request.payload.upper())

        server = threading.Thread(target=serve)
        server.start()
        assert session.request("sync/svc", b"hello").payload == b"HELLO"
        server.join()


def test_queries() -> None:
    archive = FakeArchive(250)
    with accord.connect_sync(transport=archive.open) as session:
        query = session.query("uav/#", page=100, newest_first=False)
        assert [event.attributes["n"] for event in query] == list(range(250))
        assert (query.stats.pages, query.stats.events) == (3, 250)
        with session.query("uav/#") as query:
            assert next(iter(query)).attributes["n"] == 249
        with pytest.raises(ValueError, match="since: expected"):
            session.query("uav/#", since="x")


def test_leaving_a_query_early_tells_the_node() -> None:
    archive = FakeArchive(250)
    archive.holds_after = 1
    with accord.connect_sync(transport=archive.open) as session:
        for _ in session.query("uav/#", page=10):
            while len(archive.asked) < 2:
                threading.Event().wait(0.001)
            break
    assert [each["do"] for each in archive.asked] == ["find", "next", "cancel"]


def test_closing_the_session_ends_a_loop_in_another_thread(broker_url: str) -> None:
    ended = threading.Event()
    with accord.connect_sync(broker_url) as session:
        events = session.subscribe("sync/silent")

        def wait() -> None:
            assert list(events) == []
            ended.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
    waiter.join(30)
    assert ended.is_set()


def test_nothing_is_left_behind(broker_url: str) -> None:
    before = threading.active_count()
    with accord.connect_sync(broker_url) as session:
        assert session.client_id
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    with pytest.raises(SessionClosedError):
        session.publish("a")


def test_errors_come_through() -> None:
    before = threading.active_count()
    url = f"mqtt://{HOST}:{free_port()}"
    with pytest.raises(ConnectionFailedError), accord.connect_sync(url):
        pass
    with pytest.raises(ValueError, match="expected mqtt://"), accord.connect_sync("nowhere"):
        pass
    assert threading.active_count() == before
