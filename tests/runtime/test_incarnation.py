"""Which life of a node this is: larger at each start, whatever the clock says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.brokers import HOST

from accord.core.broker.broker_context import NUMBERS_PER_MS
from accord.core.router.rights import EVERYTHING
from accord.runtime.addresses import SocketAddress
from accord.runtime.incarnation import FILE, LATEST_MS, STEP_MS, next_incarnation
from accord.runtime.node import Node, Settings
from accord.runtime.overlay_service import NetOptions, OverlayService
from accord.runtime.process import Clock
from accord.runtime.users import Users

NOW_MS = 1_700_000_000_000


class SetBack(Clock):
    """A clock that was set back."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self._offset_ns -= by_ms * 1_000_000


def test_the_clock_s_time_counts_while_it_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    assert next_incarnation(folder, NOW_MS) == NOW_MS
    assert next_incarnation(folder, NOW_MS + 1) == NOW_MS + 1
    assert next_incarnation(None, NOW_MS - 5) == NOW_MS - 5
    assert [each.name for each in folder.iterdir()] == [FILE]


@pytest.mark.parametrize("back_ms", [0, 1, 86_400_000])
def test_a_clock_that_was_set_back_does_not(tmp_path: Path, back_ms: int) -> None:
    assert next_incarnation(tmp_path, NOW_MS) == NOW_MS
    second = next_incarnation(tmp_path, NOW_MS - back_ms)
    third = next_incarnation(tmp_path, NOW_MS - back_ms)
    # All that a life gives numbers to, counted from its incarnation on, is below the next one.
    assert (second, third) == (NOW_MS + STEP_MS, NOW_MS + 2 * STEP_MS)
    assert next_incarnation(tmp_path, NOW_MS + 86_400_000) == NOW_MS + 86_400_000


@pytest.mark.parametrize(
    "found",
    [
        *(b"", b"\xff\xfe", b"{}", b"[1]", b'"1"', b"-1", b"1.5", b"1" * 5_000, b"[" * 100_000),
        str(LATEST_MS + 1).encode(),
    ],
)
def test_what_is_damaged_is_told_and_replaced(
    tmp_path: Path, found: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(found)
    (tmp_path / "incarnation.tmp").write_bytes(b"left behind by a crash")
    assert next_incarnation(tmp_path, NOW_MS) == NOW_MS
    assert "damaged" in caplog.text
    assert msgspec.json.decode((tmp_path / FILE).read_bytes()) == NOW_MS
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_what_can_not_be_read_or_written_leaves_the_clock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert next_incarnation(tmp_path / "file", NOW_MS) == NOW_MS
    assert "incarnation file: not written" in caplog.text
    caplog.clear()
    (tmp_path / FILE).mkdir()
    assert next_incarnation(tmp_path, NOW_MS) == NOW_MS
    assert (tmp_path / FILE).is_dir()
    assert "incarnation file: not written" in caplog.text


@pytest.mark.parametrize("is_secondary", [False, True])
def test_a_node_that_starts_with_an_earlier_clock_is_a_later_one(
    tmp_path: Path, is_secondary: bool
) -> None:
    nowhere = SocketAddress(HOST, 1)
    options = NetOptions(
        listen=() if is_secondary else (SocketAddress(HOST, 0),),
        neighbours=(nowhere,) if is_secondary else (),
        is_secondary=is_secondary,
    )
    settings = Settings(name="a", statistics_s=0, net=options, data=tmp_path)

    async def life(clock: Clock) -> tuple[int, int]:
        async with Node(settings, Users(anonymous=EVERYTHING), clock) as node:
            assert node.net is not None
            assert node.admission is not None
            assert node.quality is not None
            assert node.net.incarnation == node.incarnation
            assert node.broker.context.number >= node.incarnation * NUMBERS_PER_MS
            if isinstance(node.net, OverlayService):
                assert node.net.overlay.sender.incarnation == node.incarnation
            return node.incarnation, node.broker.context.number

    first, number = asyncio.run(life(Clock()))
    second, later = asyncio.run(life(SetBack(3_600_000)))
    assert second > first
    assert later > number
