"""Feedback as Python programs see it, without asyncio too."""

from __future__ import annotations

import asyncio
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import accord
from accord.client.messages import ReceivedEvent
from accord.core.model.errors import EventError
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.properties import Properties
from accord.testing import MemoryNode
from tests.brokers import HOST, accord_only, start_accord


def test_a_dialogue() -> None:
    async def main() -> None:
        async with (
            MemoryNode() as node,
            accord.connect(transport=node.connect, client_id="camera") as camera,
            accord.connect(transport=node.connect, client_id="desk") as desk,
            desk.subscribe("uav/#") as events,
            camera.feedback() as answers,
            desk.feedback() as back,
        ):
            published = await camera.publish(
                "uav/x", b"image", feedback=True, correlation_data=b"42"
            )
            event = await anext(events)
            assert event.wants_feedback
            answered = await event.feedback("seen", quality=3)
            answer = await anext(answers)
            assert (answer.text, answer.attributes) == ("seen", {"quality": 3})
            assert (answer.channel, answer.source, answer.node) == ("uav/x", "desk", "memory")
            assert (answer.event, answer.correlation_data) == (published.event, b"42")
            await answer.feedback(b"thanks")
            thanks = await anext(back)
            assert (thanks.payload, thanks.source) == (b"thanks", "camera")
            assert thanks.event == answered.event
            await thanks.feedback(b"welcome")
            assert (await anext(answers)).payload == b"welcome"

    asyncio.run(main())


def test_who_wants_no_answers_gets_none() -> None:
    async def main() -> None:
        async with (
            MemoryNode() as node,
            accord.connect(transport=node.connect) as camera,
            accord.connect(transport=node.connect) as desk,
            desk.subscribe("uav/#") as events,
        ):
            for topic in (None, "reply/here"):
                await camera.publish("uav/x", response_topic=topic)
                event = await anext(events)
                assert not event.wants_feedback
                with pytest.raises(EventError, match="the source of the event wants no answers"):
                    await event.feedback(b"seen")
            with pytest.raises(EventError, match="expected no response topic besides"):
                await camera.publish("uav/x", feedback=True, response_topic="reply/here")
            # It wants answers, but does not listen.
            await camera.publish("uav/x", feedback=True)
            with pytest.raises(accord.RefusedError, match="does not listen") as caught:
                await (await anext(events)).feedback(b"seen")
            assert caught.value.reason is Reason.IMPLEMENTATION_SPECIFIC_ERROR
            with pytest.raises(ValueError, match="qos: expected 0 to 2, got 3"):
                camera.feedback(qos=3)
            with pytest.raises(ValueError, match="queue: expected at least 1, got 0"):
                camera.feedback(queue=0)

    asyncio.run(main())


def test_answers_wait_while_the_source_is_away() -> None:
    async def main() -> None:
        async with (
            MemoryNode() as node,
            accord.connect(transport=node.connect) as desk,
            desk.subscribe("uav/#") as events,
        ):
            async with (
                accord.connect(
                    transport=node.connect, client_id="camera", clean_start=False
                ) as camera,
                camera.feedback(keep=True),
            ):
                await camera.publish("uav/x", feedback=True)
                event = await anext(events)
            await event.feedback(b"seen")
            async with (
                accord.connect(
                    transport=node.connect, client_id="camera", clean_start=False
                ) as camera,
                camera.feedback() as answers,
            ):
                assert (await anext(answers)).payload == b"seen"

    asyncio.run(main())


def test_answers_go_on_when_the_connection_breaks() -> None:
    async def main() -> None:
        async with (
            MemoryNode() as node,
            accord.connect(transport=node.connect, client_id="camera") as camera,
            accord.connect(transport=node.connect) as desk,
            desk.subscribe("uav/#") as events,
            camera.feedback() as answers,
        ):
            await camera.publish("uav/x", feedback=True)
            event = await anext(events)
            node.break_connections()
            await event.feedback(b"seen")
            assert (await anext(answers)).payload == b"seen"

    asyncio.run(main())


def test_an_event_of_no_session_can_not_be_answered() -> None:
    event = ReceivedEvent(channel="x", properties=Properties(response_topic="$accord/feedback/r"))
    with pytest.raises(EventError, match="not received by a session"):
        asyncio.run(event.feedback(b""))


@accord_only
def test_without_asyncio() -> None:
    with (
        start_accord(config='[node]\nname = "gate"\n') as broker,
        accord.connect_sync(f"mqtt://{HOST}:{broker.port}") as camera,
        camera.feedback() as answers,
        camera.subscribe("uav/#") as events,
    ):
        camera.publish("uav/x", b"image", feedback=True)
        camera.respond(next(events), b"seen")
        answer = next(answers)
        assert (answer.payload, answer.source) == (b"seen", camera.client_id)
        assert answer.node == "gate"
        camera.respond(answer, b"thanks")
        thanks = answers.get(timeout_s=60)
        assert thanks is not None
        assert thanks.payload == b"thanks"
        assert answers.get(timeout_s=0.01) is None


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "feedback.py"
    asyncio.run(runpy.run_path(str(path))["main"]([]))
    assert capsys.readouterr().out.splitlines() == [
        "camera: desk says 'sharp' of image 0",
        "camera: desk says 'blurred' of image 1",
        "desk: image 1 will be taken again",
        "camera: desk says 'sharp' of image 2",
    ]


def test_the_example_says_how_it_is_used() -> None:
    path = Path(__file__).parents[2] / "examples" / "feedback.py"
    told = subprocess.run(
        [sys.executable, path, "--help"], check=True, capture_output=True, text=True
    )
    assert told.stdout.startswith("A camera publishes images")
