"""Names and payloads of others are shown as they are, and do nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.browser.browsing import DESK, PHONE, Page, Visitor, expect
from tests.browser.traffic import Peer, Site, address

SCRIPT: Final = "<script>window.ran = 1; alert(1)</script>"
IMAGE: Final = "<img src=x onerror='window.ran = 2; alert(2)'>"
ANSI: Final = "\x1b[31;1mred\x1b[0m\x07"
RIGHT_TO_LEFT: Final = "\u202egnp.exe\u2066 \u05e9\u05dc\u05d5\u05dd"
LINK: Final = "javascript:window.ran=3"
LONG: Final = "x" * 60_000
WIDE: Final = "W\u0300" * 200 + "\u0e49" * 200
NAMES: Final = {
    "script": SCRIPT, "image": IMAGE, "right to left": RIGHT_TO_LEFT, "link": LINK,
    "wide": WIDE, "template": "{{7*7}} ${7*7} %s %00", "dots": "../../login", "quotes": "\"'`><",
}  # fmt: skip

PAYLOADS: Final = {
    "script": SCRIPT,
    "ansi": ANSI,
    "right to left": RIGHT_TO_LEFT,
    "60 KB": LONG,
    "wide": WIDE,
    "json": f'{{"{IMAGE}": ["{SCRIPT}"]}}',
    "xml": f"<r xmlns:x='http://www.w3.org/1999/xhtml'><x:script>alert(3)</x:script>{IMAGE}</r>",
    "svg": "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(4)'><script>x</script></svg>",
    "entities": "<!DOCTYPE r [<!ENTITY a 'aaaaa'><!ENTITY b '&a;&a;&a;&a;&a;'>]><r>&b;</r>",
    "deep": "[" * 30_000,
}


@pytest.fixture(scope="module")
def channels(site: Site) -> Iterator[dict[str, str]]:
    """Channels by what is hostile in them; each has a publisher, a subscriber and events."""
    with Peer(site, "hostile " + SCRIPT[:40]) as peer, Peer(site, RIGHT_TO_LEFT + IMAGE, "evil/#"):
        names = {kind: f"evil/{text}" for kind, text in NAMES.items()}
        names["long"] = f"evil/{LONG}"
        for name in names.values():
            for text in (SCRIPT, ANSI, RIGHT_TO_LEFT):
                peer.publish(name, text, {SCRIPT: IMAGE, "ansi": ANSI, RIGHT_TO_LEFT: WIDE})
        yield names


def check(visitor: Visitor, page: Page) -> None:
    page.wait_for_timeout(100)  # for what a script would do
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert visitor.overflow() <= 0
    visitor.resize(PHONE)
    assert visitor.overflow() <= 0


@pytest.mark.parametrize("path", ["/", "/channels", "/clients", "/internals"])
def test_lists(channels: dict[str, str], visitor: Visitor, path: str) -> None:
    page = visitor.open(path)
    if path != "/":
        expect(page.locator("table bdi").first).to_be_visible()
    check(visitor, page)


@pytest.mark.parametrize("kind", [*NAMES, "long"])
def test_the_page_of_a_channel(channels: dict[str, str], visitor: Visitor, kind: str) -> None:
    name = channels[kind]
    if kind == "long":
        page = visitor.open("/channels?search=xxxxx")
        page.locator("table a").first.click()
    else:
        page = visitor.open(address("channels", name))
    if kind != "long":  # of such a name nothing is measured
        expect(page.locator(".figures")).to_contain_text("1 publisher")
    check(visitor, page)


def test_the_tap(site: Site, channels: dict[str, str], visitor: Visitor) -> None:
    page = visitor.open("/channels/evil%2F%23")
    expect(page.get_by_text("Nothing came yet.")).to_be_visible()
    rows = page.locator('table[aria-label="Events"] tbody tr[data-index]')
    with Peer(site, "teller") as peer:
        for count, (kind, payload) in enumerate(PAYLOADS.items(), 1):
            peer.publish("evil/told", payload, {SCRIPT: IMAGE, "ansi": ANSI, RIGHT_TO_LEFT: WIDE})
            expect(rows).to_have_count(count)
            shown = page.get_by_role("heading", name=re.compile("^Payload"))
            size = len(payload.encode())
            words = f"{size} B" if size < 1000 else f"{size / 1000:.1f}".removesuffix(".0")
            expect(shown, kind).to_contain_text(words)
            # No escape sequence, and no mark that turns the text around it, gets into the page.
            text = page.evaluate("document.body.innerText")
            assert "\x1b" not in text, kind
            assert "\u202e" not in text, kind
            check(visitor, page)
            visitor.resize(DESK)
    # Where XML is malformed, the browser describes that in a document of its own, with styles.
    visitor.forgive("Applying inline style")


def test_the_page_of_a_client(channels: dict[str, str], visitor: Visitor) -> None:
    page = visitor.open(address("clients", RIGHT_TO_LEFT + IMAGE))
    expect(page.locator("table").first).to_contain_text("evil/")
    check(visitor, page)


def test_names_in_the_address(channels: dict[str, str], visitor: Visitor) -> None:
    for page_name in ("clients", "channels", "policies", "why"):
        for name in (SCRIPT + IMAGE, "%00"):
            page = visitor.open(f"{address(page_name, name)}?search={SCRIPT}&sort={IMAGE}")
            assert page.evaluate("window.ran") is None
    page = visitor.page
    page.goto("/login?next=//example.org/")
    page.wait_for_timeout(300)
    assert page.url.startswith(visitor.url)
    visitor.forgive("status of 4")  # there is nothing of these names
