"""What a node tells others of its links."""

from __future__ import annotations

import msgspec

from accord.core.overlay.liveness import Ping, pong_for
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import LINK, LinkValue, Overlay

S = 1_000_000


def test_links_that_came_up_one_after_the_other_are_equally_likely_to_fail() -> None:
    """Else it would be chance which of two paths of the same length is chosen."""
    overlay = Overlay("seattle", 1, OverlayOptions(), lambda: 0.0, lambda *_: None)
    now_us = 0
    for neighbour in ("denver", "los-angeles"):
        overlay.link_up(neighbour, now_us)
        now_us += S
        overlay.advance(now_us)
        pings = [(to, said) for to, said in overlay.sends if isinstance(said, Ping)]
        overlay.sends.clear()
        for to, ping in pings:
            overlay.receive(to, pong_for(ping), now_us + 1_000)
        now_us += 7 * S
        overlay.advance(now_us)
    told = {
        neighbour: msgspec.msgpack.decode(value, type=LinkValue)
        for neighbour, value in overlay.store.of("seattle", LINK).items()
    }
    assert [each.is_up for each in told.values()] == [True, True]
    assert told["denver"].failure == told["los-angeles"].failure > 0


def test_a_link_that_keeps_changing_is_told_no_more_often_than_one_that_changes_little() -> None:
    options = OverlayOptions(ping_us=S, advertise_slowly_us=10 * S)
    overlay = Overlay("seattle", 1, options, lambda: 0.0, lambda *_: None)
    overlay.link_up("denver", 0)
    told: list[tuple[int, bytes]] = []
    for second in range(1, 301):
        overlay.advance(second * S)
        pings = [said for to, said in overlay.sends if isinstance(said, Ping)]
        overlay.sends.clear()
        round_trip_us = 20_000 if second % 4 < 2 else 400_000
        for ping in pings:
            overlay.receive("denver", pong_for(ping), second * S + round_trip_us)
        for value in overlay.store.of("seattle", LINK).values():
            if not told or told[-1][1] != value:
                told.append((second, value))
    assert 30 <= len(told) <= 40
    assert len([second for second, _ in told if second <= 60]) >= 8  # the first ones at once
