"""The secret of receipts, and nodes in one process whose clients answer each other."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from tests.runtime.test_overlay_service import in_two_nodes, net_of, node, until, url_of

import accord
from accord.core.broker.feedback import FORGED
from accord.core.model.receipts import SECRET_BYTES, ReceiptSigner
from accord.runtime.node import Node
from accord.runtime.receipt_secret import FILE, load_receipt_secret


def shed(at: Node) -> dict[str, int]:
    return dict(at.broker.context.counters.shed_causes.counts)


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_the_secret_is_kept_and_nobody_else_s(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    secret = load_receipt_secret(folder)
    assert len(secret) == SECRET_BYTES
    assert load_receipt_secret(folder) == secret
    assert mode_of(folder / FILE) == 0o600
    assert [each.name for each in folder.iterdir()] == [FILE]
    assert load_receipt_secret(tmp_path / "other") != secret
    assert load_receipt_secret(None) != load_receipt_secret(None)


def test_a_secret_that_others_could_read_is_closed(tmp_path: Path) -> None:
    secret = load_receipt_secret(tmp_path)
    (tmp_path / FILE).chmod(0o644)
    assert load_receipt_secret(tmp_path) == secret
    assert mode_of(tmp_path / FILE) == 0o600


@pytest.mark.parametrize("found", [b"", b"short", bytes(SECRET_BYTES + 1)])
def test_a_damaged_secret_is_made_anew(tmp_path: Path, found: bytes) -> None:
    (tmp_path / FILE).write_bytes(found)
    (tmp_path / "feedback.tmp").write_bytes(b"left behind by a crash")
    secret = load_receipt_secret(tmp_path)
    assert load_receipt_secret(tmp_path) == secret
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_without_a_place_for_it_the_secret_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert len(load_receipt_secret(tmp_path / "file")) == SECRET_BYTES
    (tmp_path / FILE).mkdir()
    assert len(load_receipt_secret(tmp_path)) == SECRET_BYTES
    assert (tmp_path / FILE).is_dir()


def test_clients_of_two_nodes_answer_each_other() -> None:
    async def scene(a: Node, b: Node) -> None:
        async with (
            accord.connect(url_of(a), client_id="camera") as camera,
            accord.connect(url_of(b), client_id="desk") as desk,
            desk.subscribe("uav/#") as events,
            camera.feedback() as answers,
            desk.feedback() as back,
        ):
            await until(lambda: net_of(a).bridge.remote_interests.nodes)
            published = await camera.publish("uav/x", feedback=True, correlation_data=b"42")
            event = await anext(events)
            for number in range(20):
                await event.feedback(str(number))
                answer = await anext(answers)
                assert (answer.text, answer.source, answer.node) == (str(number), "desk", "b")
                assert (answer.event, answer.correlation_data) == (published.event, b"42")
                await answer.feedback(f"back {number}")
                returned = await anext(back)
                assert (returned.text, returned.source, returned.node) == (
                    *(f"back {number}", "camera"),
                    "a",
                )
            forged = ReceiptSigner("a", bytes(32)).make("camera", "", 1, "uav/x", None)
            await desk.publish(f"$accord/feedback/{forged}", b"gotcha")
            await until(lambda: FORGED in shed(a))
            assert shed(a) == {FORGED: 1}

    asyncio.run(in_two_nodes(scene))


def test_a_restarted_node_still_accepts_its_receipts(tmp_path: Path) -> None:
    async def publish(client: str) -> str:
        async with (
            node("a", data=tmp_path) as a,
            accord.connect(url_of(a), client_id=client) as source,
            source.subscribe("uav/#") as events,
        ):
            await source.publish("uav/x", feedback=True)
            topic = (await anext(events)).properties.response_topic
            assert topic is not None
            return topic

    async def answer(topic: str) -> bytes:
        async with (
            node("a", data=tmp_path) as a,
            accord.connect(url_of(a), client_id="camera") as camera,
            camera.feedback() as answers,
            accord.connect(url_of(a)) as desk,
        ):
            await desk.publish(topic, b"seen")
            return (await anext(answers)).payload

    topic = asyncio.run(publish("camera"))
    assert asyncio.run(answer(topic)) == b"seen"
    with pytest.raises(accord.RefusedError, match="source of the event gone"):
        asyncio.run(answer(asyncio.run(publish(""))))
    (tmp_path / FILE).unlink()
    with pytest.raises(accord.RefusedError, match="not made by this node"):
        asyncio.run(answer(topic))
