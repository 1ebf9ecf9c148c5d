"""What services say over links between tiers."""

from __future__ import annotations

from accord.core.overlay.signalling import TemplateMessage
from accord.core.overlay.tier_links import MAX_BYTES, TierLink, TierLinks

NEAR = TierLink(20_000, is_active=True)


def test_a_service_speaks_with_those_who_are_there() -> None:
    links = TierLinks()
    sent: list[tuple[str, TemplateMessage]] = []
    heard: list[tuple[str, bytes, int]] = []
    links.send = lambda neighbour, said: sent.append((neighbour, said))
    links.register("$s", lambda *what: heard.append(what))
    links.send_message("a", "$s", b"lost")
    links.on_message("a", TemplateMessage("$s", "", b"too early"), 1)
    links.set("a", NEAR)
    links.send_message("a", "$s", b"hello")
    links.on_message("a", TemplateMessage("$s", "", b"hi"), 2)
    assert sent == [("a", TemplateMessage("$s", "", b"hello"))]
    assert heard == [("a", b"hi", 2)]
    links.on_message("a", TemplateMessage("$other", "", b""), 3)
    links.on_message("a", TemplateMessage("$s", "", bytes(MAX_BYTES + 1)), 3)
    assert links.dropped == 3
    links.drop("a")
    links.send_message("a", "$s", b"gone")
    assert len(sent) == 1


def test_small_differences_are_passed_over() -> None:
    links = TierLinks()
    links.set("a", NEAR)
    version = links.version
    links.set("a", TierLink(25_000, is_active=True))
    assert links.version == version
    links.set("a", TierLink(29_000, is_active=True))
    assert links.links["a"].delay_us == 29_000
    links.set("a", TierLink(29_000, is_active=False))
    assert links.version == version + 2
    links.drop("a")
    links.drop("a")
    assert links.version == version + 3
