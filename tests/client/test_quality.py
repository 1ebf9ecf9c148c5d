"""Expectations and capabilities in Python programs, with a real node in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import accord
from accord.client.errors import QualityRefusedError, RefusedError
from accord.client.quality import (
    Advice,
    Capability,
    Coupling,
    Expectation,
    Line,
    read_expectation_form,
)
from accord.client.quality_files import Profile, QualityFile, load, store
from accord.client.session import Session
from accord.core.quality.properties import Better, Property, QualityError
from accord.core.router.rights import EVERYTHING
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.users import Users

OFTEN = Expectation(rate=(5, 10), utility=3)


def rate(current: float) -> Capability:
    return Capability("rate", 1, 50, current=current, cost=Line(0, 0.5))


def a_node() -> Node:
    settings = Settings(
        listeners=(ListenerSettings(SocketAddress("127.0.0.1", 0)),), statistics_s=0
    )
    return Node(settings, Users(anonymous=EVERYTHING))


def url(node: Node) -> str:
    return f"mqtt://{node.addresses[0]}"


def run(test: Callable[[Session, Session], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with (
            asyncio.timeout(60),
            a_node() as node,
            accord.connect(url(node)) as publishing,
            accord.connect(url(node)) as subscribing,
        ):
            await test(publishing, subscribing)
            assert node.quality is not None
            node.quality.quality.check_invariants()

    asyncio.run(limited())


def test_a_publisher_follows_advice() -> None:
    async def test(publishing: Session, subscribing: Session) -> None:
        async with (
            publishing.publisher("lab/t", capabilities=[rate(2)]) as publisher,
            subscribing.subscribe("lab/#", expect=[OFTEN]) as events,
        ):
            followed: list[Advice] = []

            @publisher.on_advice
            async def follow(advice: Advice) -> float:
                followed.append(advice)
                assert isinstance(advice.target, float)
                return advice.target

            states: list[str] = []
            events.on_state(lambda state: states.append(state.state))
            (often,) = events.expectations
            await often.wait_for("satisfied")
            assert [(each.channel, each.property) for each in followed] == [("lab/t", "rate")]
            assert publisher.capabilities["rate"].current == followed[0].target
            assert (await publisher.ask_usage()).expectations == 1
            assert states[-1] == "satisfied"
            await publisher.publish(b"21.5", celsius=21.5)
            assert (await anext(events)).attributes == {"celsius": 21.5}

    run(test)


def test_a_life() -> None:
    async def test(publishing: Session, subscribing: Session) -> None:
        async with (
            publishing.publisher("lab/t", capabilities=[rate(7)]),
            subscribing.subscribe("lab/t", expect=[OFTEN]) as events,
        ):
            (often,) = events.expectations
            assert often.id == "lab/t#1"
            await often.wait_for("satisfied")
            heard: list[str] = []
            events.on_state(lambda state: heard.append(state.state))
            await often.suspend()
            assert often.state is not None
            assert often.state.state == "suspended"
            assert heard == ["suspended"], "once"
            await often.resume()
            await often.wait_for("satisfied")
            await often.update(Expectation(rate=(100, 200)))
            state = await often.wait_for("unsatisfied")
            assert state.reasons == {"rate": 7}
            await often.revoke()
            with pytest.raises(QualityRefusedError, match="you have none with this id"):
                await often.resume()

    run(test)


def test_profiles_end_with_their_publisher() -> None:
    async def test(publishing: Session, subscribing: Session) -> None:
        async with subscribing.subscribe("lab/t", expect=[OFTEN]) as events:
            (often,) = events.expectations
            await often.wait_for("unsatisfied")
            async with publishing.publisher("lab/t", capabilities=[rate(7)]):
                await often.wait_for("satisfied")
            state = await often.wait_for("unsatisfied")
            assert state.reasons == {"rate": None}

    run(test)


def test_what_is_refused() -> None:
    async def test(publishing: Session, subscribing: Session) -> None:
        with pytest.raises(RefusedError, match="no such property"):
            async with subscribing.subscribe("lab/t", expect=[Expectation(colour="red")]):
                pass
        too_high = Capability("rate", 1, 50, current=60)
        with pytest.raises(QualityRefusedError, match="expected lower ≤ current ≤ upper"):
            async with publishing.publisher("lab/t", capabilities=[too_high]):
                pass
        with pytest.raises(ValueError, match="at least one property"):
            Expectation()
        with pytest.raises(ValueError, match="different ids"):
            subscribing.subscribe("a", expect=[Expectation(trust="low", id="x")] * 2)

    run(test)


def test_a_profile_is_registered_again_after_a_break() -> None:
    async def test() -> None:
        async with (
            asyncio.timeout(60),
            a_node() as node,
            accord.connect(url(node), session_expiry_s=0) as publishing,
            accord.connect(url(node)) as subscribing,
            publishing.publisher("lab/t", capabilities=[rate(7)]),
            subscribing.subscribe("lab/t", expect=[OFTEN]) as events,
        ):
            (often,) = events.expectations
            await often.wait_for("satisfied")
            line = node.broker.sessions[publishing.client_id].connection
            for connection, protocol in node.server.connections.items():
                if connection is line:
                    protocol.abort()
            await often.wait_for("unsatisfied")
            await often.wait_for("satisfied")

    asyncio.run(test())


def test_a_profile_that_is_not_taken_again_is_told_and_tried_with_the_next_connection() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[object] = asyncio.Queue()
        loop.set_exception_handler(lambda _, context: told.put_nowait(context.get("exception")))
        colour = Property(name="colour", better=Better.HIGHER, levels=("grey", "full"))
        offered = Capability("colour", "grey", "full", current="grey")
        async with (
            asyncio.timeout(60),
            a_node() as node,
            accord.connect(url(node), session_expiry_s=0) as publishing,
        ):
            assert node.quality is not None
            negotiation = node.quality.quality.negotiation
            negotiation.registry.define(colour)
            async with publishing.publisher("lab/t", capabilities=[offered]):
                negotiation.registry.remove("colour")
                for error in (QualityRefusedError, None):
                    line = node.broker.sessions[publishing.client_id].connection
                    for connection, protocol in node.server.connections.items():
                        if connection is line:
                            protocol.abort()
                    if error is not None:
                        assert isinstance(await told.get(), error)
                        negotiation.registry.define(colour)
                while not len(negotiation.profiles):
                    await asyncio.sleep(0.01)

    asyncio.run(test())


def test_without_asyncio() -> None:
    async def test() -> None:
        async with asyncio.timeout(60), a_node() as node:
            await asyncio.to_thread(blocking, url(node))

    def blocking(place: str) -> None:
        advised = threading.Event()
        with (
            accord.connect_sync(place) as publishing,
            accord.connect_sync(place) as subscribing,
            publishing.publisher("lab/t", capabilities=[rate(2)]) as publisher,
        ):

            @publisher.on_advice
            def follow(advice: Advice) -> object:
                advised.set()
                return advice.target

            with subscribing.subscribe("lab/t", expect=[OFTEN]) as events:
                (often,) = events.expectations
                assert often.wait_for("satisfied", timeout_s=30).is_satisfied
                assert advised.is_set()
                often.suspend()
                often.resume()
                often.update(Expectation(rate=(5, 6)))
                publisher.update(rate=6.0)
                assert publisher.ask_usage().expectations == 1
                publisher.publish(b"x")
                event = events.get(timeout_s=30)
                assert event is not None
                often.revoke()
                publisher.revoke()

    asyncio.run(test())


@pytest.mark.parametrize("suffix", [".xml", ".json"])
def test_expectations_and_profiles_are_kept_in_files(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"desk{suffix}"
    table = Capability("trust", "low", "high", current="low", cost=(("low", 0.0), ("high", 2.0)))
    kept = QualityFile(
        {
            "lab/+": [
                Expectation(rate=(5, 10), utility=3, id="often"),
                Expectation(trust=("low", None)),
            ]
        },
        [Profile("sensor", "lab/t", [rate(2), table], [Coupling("rate", "confidence", -0.5)])],
    )
    store(file, kept)
    again = load(file)
    assert again.profiles == kept.profiles
    forms = [each.form() for each in again.expectations["lab/+"]]
    assert forms == [
        {"rate": (5, 10), "utility": 3, "id": "often"},
        {"trust": ("low", None), "utility": 1, "id": "lab/+#2"},
    ]
    colour = tmp_path / "colour.properties"
    colour.write_text("name = colour\nlevels = grey < full\nbetter = higher\n")
    store(file, QualityFile({"a": [Expectation(colour=("full", None))]}))
    with pytest.raises(QualityError, match="no such property"):
        load(file)
    assert load(file, properties=[colour]).expectations["a"][0].bounds == {"colour": ("full", None)}


def test_single_values_are_kept_as_the_worst_that_will_do(tmp_path: Path) -> None:
    file = tmp_path / "desk.xml"
    store(file, QualityFile({"a": [Expectation(rate=5, latency=20, trust="low")]}))
    assert load(file).expectations["a"][0].bounds == {
        "rate": (5, None),
        "latency": (None, 20),
        "trust": ("low", None),
    }


def test_files_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(QualityError, match="no such property"):
        store(tmp_path / "a.xml", QualityFile({"a": [Expectation(colour="full")]}))
    with pytest.raises(QualityError, match=r"ends with \.xml or \.json"):
        store(tmp_path / "a.yaml", QualityFile())


def test_expectations_are_read_from_text() -> None:
    read = read_expectation_form('{"rate": [5, null], "utility": 2, "publishers": 3, "id": "x"}')
    assert read.form() == {"rate": [5, None], "utility": 2, "publishers": 3, "id": "x"}
    for wrong in ("", "[]", "{}", '{"utility": 3}', '{"rate": 1, "id": {}}', "[" * 100_000):
        with pytest.raises(ValueError, match=r"expected|nested"):
            read_expectation_form(wrong)
