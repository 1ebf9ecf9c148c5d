"""A managed node in this process: real sockets, real worker processes, real files."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import accord
from accord.client.session import Session
from accord.core.monitoring.ledger import OUTCOMES, event_number
from accord.core.overlay.status import ChannelStatus
from accord.core.policy.policy_set import parse_policy_set
from accord.core.router.rights import EVERYTHING
from accord.journal.ledger_records import LedgerQuery
from accord.runtime.addresses import SocketAddress
from accord.runtime.monitor import Monitor
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.policy_runtime import PolicyRuntime
from accord.runtime.users import Users

ALARMS_FIRST = """
strategy = "strict"
[[policies]]
name = "alarms"
channel = "alarm"
importance = 6
"""


def a_node(data: Path | None = None, policies: Path | None = None) -> Node:
    settings = Settings(
        name="here",
        listeners=(ListenerSettings(SocketAddress("127.0.0.1", 0)),),
        data=data,
        policies=policies,
        statistics_s=0,
    )
    return Node(settings, Users(anonymous=EVERYTHING))


def url(node: Node) -> str:
    return f"mqtt://{node.addresses[0]}"


def manager(node: Node) -> PolicyRuntime:
    assert node.policy_runtime is not None
    return node.policy_runtime


async def decide(node: Node, text: str) -> None:
    await manager(node).admin.replace(parse_policy_set(text))


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_true():
            await asyncio.sleep(0.01)


async def ask(session: Session, **request: object) -> dict[str, object]:
    """A request to the node itself, as any MQTT 5 client can send it."""
    async with session.subscribe("answers") as answers:
        body = json.dumps(request)
        await session.publish(
            "$accord/policies", body, response_topic="answers", correlation_data=b"1"
        )
        async for event in answers:
            assert event.properties.correlation_data == b"1"
            answer = json.loads(event.payload)
            assert isinstance(answer, dict)
            return answer
    raise AssertionError


def test_policies_over_mqtt() -> None:
    async def run() -> None:
        async with a_node() as node, accord.connect(url(node)) as session:
            found = await ask(session, do="get")
            assert found["ok"] is True
            policy = {"name": "alarms", "channel": "alarm", "importance": 6}
            assert (await ask(session, do="put policy", policy=policy))["version"] == 1
            assert (await ask(session, do="patch", settings={"strategy": "strict"}))["ok"] is True
            told = await ask(session, do="explain", operation="publish", channel="alarm")
            assert "alarms" in json.dumps(told)
            assert node.broker.context.discipline.name == "strict"
            wrong = await ask(session, do="patch", settings={"strategy": "fast"})
            assert (wrong["ok"], wrong["place"]) == (False, "strategy")

    asyncio.run(run())


def test_what_matters_overtakes_on_a_thin_link() -> None:
    async def run() -> None:
        async with a_node() as node:
            await decide(node, ALARMS_FIRST)
            await manager(node).admin.patch({"client_bandwidth": "400 kbit/s"})
            async with (
                accord.connect(url(node)) as publisher,
                accord.connect(url(node)) as receiver,
                receiver.subscribe("#", qos=0) as events,
            ):
                for _ in range(40):
                    await publisher.publish("bulk", b"x" * 1_000)
                await publisher.publish("alarm", b"!")
                channels = []
                async for event in events:
                    channels.append(event.channel)
                    if len(channels) == 41:
                        break
                assert channels.index("alarm") < 35
                session = next(each for each in node.broker.sessions.values() if each.subscriptions)
                assert session.connection is not None
                assert session.connection.link.limit_bps == 400_000

    asyncio.run(run())


def picture() -> bytes:
    image = Image.effect_noise((640, 480), 80).convert("RGB")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def test_pictures_are_shaped_by_a_worker() -> None:
    async def run() -> None:
        async with a_node() as node:
            await decide(
                node,
                """
                [[policies]]
                name = "small"
                channel = "image"
                preferences = { shaping = "scaling", max_bytes = 20000 }
                """,
            )
            original = picture()
            async with (
                accord.connect(url(node)) as session,
                session.subscribe("image") as events,
            ):
                outcome = await session.publish("image", original, content_type="image/jpeg")
                async for event in events:
                    assert len(event.payload) <= 20_000 < len(original)
                    assert Image.open(io.BytesIO(event.payload)).format == "JPEG"
                    assert event.attributes["shaped-from"] == len(original)
                    break
                await manager(node).admin.patch({"shaping": False})
                await session.publish("image", original)
                async for event in events:
                    assert event.payload == original
                    break
            answer = await manager(node).monitor.search(
                LedgerQuery(number=event_number(outcome.event)), 10
            )
            (entry,) = answer.entries
            assert (OUTCOMES[entry.outcome], entry.policy) == ("shaped", "small")

    asyncio.run(run())


def test_costly_conditions_are_evaluated_by_a_worker() -> None:
    async def run() -> None:
        async with (
            a_node() as node,
            accord.connect(url(node)) as session,
            session.subscribe("t", xpath="count(//a[count(//b[. = 'x']) > 3]) = 400") as events,
        ):
            xml = "<r>" + "<a/><b>x</b>" * 400 + "</r>"
            await session.publish("t", b"1", metadata=xml)
            async for event in events:
                assert event.payload == b"1"
                break
            assert manager(node).dispatcher.workers.counts.done == 1

    asyncio.run(run())


def test_policies_follow_resources() -> None:
    async def run() -> None:
        async with a_node() as node:
            await decide(
                node,
                """
                [[policies]]
                name = "thin"
                when = "link_kbps < 500"
                importance = 1
                """,
            )
            async with accord.connect(url(node)) as session, session.subscribe("a"):
                await session.publish("a", b"")
                (entity,) = [each.entity for each in node.broker.sessions.values()]
                await manager(node).admin.patch({"client_bandwidth": "300 kbit/s"})
                await until(lambda: entity.holding != 0)
                way = node.broker.fan_out_for(entity, "a")
                assert way.grant.importance == 1
                await manager(node).admin.patch({"client_bandwidth": None})
                await until(lambda: entity.holding == 0)

    asyncio.run(run())


def test_a_look_that_fails_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[int] = []

    def look(_: Monitor, *, now_ms: int) -> None:
        looks.append(now_ms)
        raise ValueError("expected a number")

    async def run() -> None:
        monkeypatch.setattr("accord.runtime.policy_runtime._SAMPLE_S", 0.01)
        monkeypatch.setattr(Monitor, "sample", look)
        async with a_node():
            await until(lambda: len(looks) > 1)

    asyncio.run(run())
    assert "node sampling: failed" in caplog.text


def test_predicates_are_matched_by_the_importance_they_have_now() -> None:
    async def run() -> None:
        async with (
            a_node() as node,
            accord.connect(url(node)) as session,
            session.subscribe("alarm", where="level > 3"),
        ):
            (found,) = node.broker.sessions.values()
            (subscription,) = found.subscriptions.values()
            assert subscription.importance == 3
            await decide(node, ALARMS_FIRST)
            await until(lambda: subscription.importance == 6)

    asyncio.run(run())


@pytest.mark.parametrize("has_file", [True, False])
def test_changes_survive_a_restart_until_the_file_is_edited(tmp_path: Path, has_file: bool) -> None:
    file = tmp_path / "policies.toml"
    file.write_text(ALARMS_FIRST)
    policies = file if has_file else None

    async def strategy(change: str | None) -> str:
        async with a_node(tmp_path / "data", policies) as node:
            if change is not None:
                await manager(node).admin.patch({"strategy": change})
            return node.broker.context.discipline.name

    assert asyncio.run(strategy(None)) == ("strict" if has_file else "weighted fair")
    assert asyncio.run(strategy("laxity")) == "laxity"
    assert asyncio.run(strategy(None)) == "laxity"
    file.write_text(ALARMS_FIRST.replace("strict", "fifo"))
    assert asyncio.run(strategy(None)) == ("fifo" if has_file else "laxity")


def test_the_ledger_is_there_after_a_restart(tmp_path: Path) -> None:
    async def publish() -> str:
        async with (
            a_node(tmp_path) as node,
            accord.connect(url(node)) as session,
            session.subscribe("a") as events,
        ):
            outcome = await session.publish("a", b"x")
            async for _ in events:
                return outcome.event
        raise AssertionError

    async def look(event: str) -> list[str]:
        async with a_node(tmp_path) as node:
            wanted = LedgerQuery(number=event_number(event))
            answer = await manager(node).monitor.search(wanted, 10)
            return [OUTCOMES[entry.outcome] for entry in answer.entries]

    event = asyncio.run(publish())
    assert asyncio.run(look(event)) == ["delivered"]


def test_a_request_that_fails_is_answered_and_so_are_those_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        async with a_node() as node, accord.connect(url(node)) as client:
            assert node.ports.net is not None
            listed = node.ports.net.channel_statuses
            broken = iter([True, False])

            def failing() -> list[ChannelStatus]:
                if next(broken):
                    raise ValueError("poison")
                return listed()

            monkeypatch.setattr(node.ports.net, "channel_statuses", failing)
            async with client.subscribe("answers") as answers:
                for _ in range(2):
                    body = b'{"do": "list"}'
                    await client.publish("$accord/channels", body, response_topic="answers")
                first, second = [json.loads((await anext(answers)).payload) for _ in range(2)]
            assert (first["ok"], first["detail"]) == (False, "the node failed to answer")
            assert second == {"ok": True, "channels": []}

    asyncio.run(scene())


def test_what_can_not_be_put_away_does_not_keep_the_node_from_closing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []

    async def scene() -> None:
        async with a_node(tmp_path) as node:
            assert node.durability is not None
            close = node.durability.close

            def noted() -> None:
                closed.append(True)
                close()

            monkeypatch.setattr(node.durability, "close", noted)
            node.broker.context.ledger.add(-(2**63), 1, "a", "", "b", 0, 1, 1, 1, 0, 0, "", "", 0)
            node.broker.context.ledger.add(2**64, 1, "a", "", "b", 0, 1, 1, 1, 0, 0, "", "", 0)

    asyncio.run(scene())
    assert closed == [True]
    assert [each.message for each in caplog.records] == ["ledger: write failed"]
