"""What users may not do, whatever else allows it: nodes in this process, with real clients."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import fake_pipeline

import accord
from accord.client.errors import QueryError, RefusedError
from accord.client.session import Session
from accord.client.subscription import Subscription
from accord.core.channels.history.messages import PERSISTENT
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.router.rights import Denied
from accord.http.app import create_app
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.overlay_service import NetOptions
from accord.runtime.pipeline import PipelineOptions
from accord.runtime.users import User, Users, hash_password

ALONE = NetOptions()
ANYWHERE = SocketAddress("127.0.0.1", 0)
PHRASE = "open sesame"
HASH = hash_password(PHRASE)
SECRET = Denied(publish=("alarm/#",), subscribe=("secret/#", "home/%u/#"))


@asynccontextmanager
async def a_node(
    denied: Denied = SECRET,
    data: Path | None = None,
    pipeline: PipelineOptions | None = None,
    kept: tuple[str, ...] = (),
    net: NetOptions = ALONE,
) -> AsyncIterator[Node]:
    """Ann may not all, and bob may."""
    users = Users([User("ann", HASH, may_not=denied), User("bob", HASH)])
    settings = Settings(
        listeners=(ListenerSettings(ANYWHERE),),
        data=data,
        kept=kept,
        pipeline=pipeline,
        net=net,
        statistics_s=0,
    )
    async with Node(settings, users) as node:
        yield node


def client(node: Node, name: str, **options: Any) -> Any:
    return accord.connect(f"mqtt://{node.addresses[0]}", username=name, password=PHRASE, **options)


async def got(events: Subscription, last: str) -> list[str]:
    """The channels of what came until `last`, which is not among them."""
    channels: list[str] = []
    async for event in events:
        if event.channel == last:
            return channels
        channels.append(event.channel)
    raise AssertionError


async def publish(session: Session, *channels: str, **options: Any) -> None:
    for channel in channels:
        await session.publish(channel, b"x", qos=1, **options)


@pytest.mark.parametrize(
    ("pattern", "where"), [("#", None), ("+/+", None), ("#", "n >= 0"), ("$share/g/#", None)]
)
def test_events_of_denied_channels_are_not_delivered(pattern: str, where: str | None) -> None:
    async def main() -> None:
        async with (
            a_node() as node,
            client(node, "ann") as ann,
            client(node, "bob") as bob,
            ann.subscribe(pattern, where=where, qos=1) as events,
        ):
            for channel in ("a/b", "secret/a", "home/ann", "home/ann/x", "home/bob", "z/z"):
                await bob.publish(channel, b"x")
                await bob.publish(channel, b"x", attributes={"n": 1})
                await bob.publish(channel, b"x", qos=1, attributes={"n": 1})
            assert set(await got(events, "z/z")) == {"a/b", "home/bob"}

    asyncio.run(main())


def test_subscriptions_and_messages_that_reach_nothing_else_are_refused() -> None:
    async def main() -> None:
        async with a_node() as node, client(node, "ann") as ann:
            for pattern in ("secret/#", "secret/+", "$share/g/secret/a", "home/ann"):
                with pytest.raises(RefusedError):
                    await ann.subscribe(pattern).__aenter__()
            for channel in ("alarm", "alarm/fire"):
                with pytest.raises(RefusedError):
                    await ann.publish(channel, b"x", qos=1)
            await ann.publish("secret/a", b"x", qos=1)  # that is another right

    asyncio.run(main())


def test_a_member_of_a_group_who_may_not_have_an_event_is_passed_over() -> None:
    async def main() -> None:
        async with (
            a_node() as node,
            client(node, "ann") as ann,
            client(node, "bob") as bob,
            ann.subscribe("$share/g/#", qos=1),
            bob.subscribe("$share/g/#", qos=1) as events,
        ):
            await publish(bob, *(["secret/a"] * 4))
            came = [(await anext(events)).channel for _ in range(4)]
            assert came == ["secret/a"] * 4

    asyncio.run(main())


def test_a_member_who_is_away_since_the_node_was_started_is_passed_over_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_node(data=tmp_path) as node:
            for name in ("ann", "bob"):
                async with (
                    client(node, name, client_id=name) as session,
                    session.subscribe("$share/g/#", qos=1, keep=True),
                ):
                    pass
        async with a_node(data=tmp_path) as node:
            async with client(node, "bob") as other:
                await publish(other, *(["secret/a"] * 4))
            async with (
                client(node, "bob", client_id="bob", clean_start=False) as bob,
                bob.subscribe("$share/g/#", qos=1, keep=True) as events,
            ):
                came = [(await anext(events)).channel for _ in range(4)]
                assert came == ["secret/a"] * 4

    asyncio.run(main())


def test_the_node_replies_to_who_asked_and_publishes_nothing_for_it() -> None:
    async def main() -> None:
        async with (
            a_node() as node,
            client(node, "ann") as ann,
            client(node, "bob") as bob,
            bob.subscribe("#", qos=1) as others,
            ann.subscribe("alarm/#", qos=1) as own,
        ):
            for channel in ("$accord/channels", "$accord/policies", "$accord/advertisements"):
                await ann.publish(channel, b"{}", qos=1, response_topic="alarm/fire")
                assert (await anext(own)).channel == "alarm/fire"
            await publish(ann, "z")
            assert await got(others, "z") == []

    asyncio.run(main())


def test_what_is_retained_is_not_delivered() -> None:
    async def main() -> None:
        async with a_node() as node, client(node, "ann") as ann, client(node, "bob") as bob:
            await publish(bob, "a", "secret/a", "home/ann/x", retain=True)
            async with ann.subscribe("#", qos=1) as events:
                await publish(bob, "z")
                assert await got(events, "z") == ["a"]

    asyncio.run(main())


def test_what_waits_for_a_client_is_dropped_when_it_may_not_have_it_any_more(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with a_node(Denied(), tmp_path) as node, client(node, "bob") as bob:
            keeping = client(node, "ann", client_id="phone")
            async with keeping as ann, ann.subscribe("#", qos=1, keep=True):
                pass
            await publish(bob, "a", "secret/a")
        async with a_node(SECRET, tmp_path) as node, client(node, "bob") as bob:
            await publish(bob, "secret/b", "b")
            keeping = client(node, "ann", client_id="phone", clean_start=False)
            async with keeping as ann, ann.subscribe("#", qos=1, keep=True) as events:
                await publish(bob, "z")
                assert await got(events, "z") == ["a", "b"]

    asyncio.run(main())


def test_the_past_of_a_denied_channel_is_not_delivered(tmp_path: Path) -> None:
    """All that the pipeline has is of channel `a`."""
    pipeline = PipelineOptions(command=fake_pipeline.command({"events": 5}))

    async def main() -> None:
        denied = Denied(subscribe=("a",))
        async with a_node(denied, tmp_path, pipeline, ("#",)) as node, client(node, "bob") as bob:
            async with bob.subscribe("#", since="-1h", qos=1) as events:
                await publish(bob, "z")
                assert await got(events, "z") == ["a"] * 5
            async with client(node, "ann") as ann, ann.subscribe("#", since="-1h", qos=1) as events:
                await publish(bob, "a", "z")
                assert await got(events, "z") == []

    asyncio.run(main())


def test_queries_leave_out_what_is_denied(tmp_path: Path) -> None:
    pipeline = PipelineOptions(command=fake_pipeline.command({"events": 5}))

    def asked() -> list[Any]:
        told = fake_pipeline.told(tmp_path / "pipeline")
        return [each["ask"].get("without") for each in told if each["type"] == "query"]

    async def over_http(node: Node, path: str, name: str = "ann") -> int:
        app = create_app(node.ports, users=node.users)
        word = base64.b64encode(f"{name}:{PHRASE}".encode()).decode()
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as http:
            answer = await http.get(path, headers={"Authorization": f"Basic {word}"})
            return answer.status_code

    async def main() -> None:
        async with a_node(SECRET, tmp_path, pipeline, ("#",)) as node:
            async with client(node, "ann") as ann:
                assert [event async for event in ann.query("#", limit=1)]
                with pytest.raises(QueryError, match="may not subscribe"):
                    assert [event async for event in ann.query("secret/#")]
            denied = ["secret/#", "home/ann/#"]
            assert asked() == [denied]
            assert await over_http(node, "/api/v1/query?channel=%23") == 200
            assert asked() == [denied, denied]
            assert await over_http(node, "/api/v1/query?channel=secret/a") == 403
            # Who reads the journal reads all of it.
            assert await over_http(node, "/api/v1/journal") == 403
            assert await over_http(node, "/api/v1/journal", "bob") == 200

    asyncio.run(main())


def test_the_past_of_persistent_channels_leaves_out_what_is_denied(tmp_path: Path) -> None:
    chat = ChannelDefinition("chat/#", options={PERSISTENT: "true"})
    net = NetOptions(listen=(ANYWHERE,), key=b"k" * 32, channels=(chat,))

    async def main() -> None:
        denied = Denied(subscribe=("chat/secret",))
        async with a_node(denied, tmp_path, net=net) as node, client(node, "bob") as bob:
            await publish(bob, "chat/a", "chat/secret", "chat/b")
            async with client(node, "ann") as ann, ann.subscribe("chat/#", qos=1) as events:
                await publish(bob, "chat/secret", "chat/z")
                assert await got(events, "chat/z") == ["chat/a", "chat/b"]

    asyncio.run(main())
