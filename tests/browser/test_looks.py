"""Every page in light and dark, on a desk and on a phone: accessible, no sideways scrolling.

Pictures of all are left in build/console-screenshots to look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.browsing import DESK, PHONE, Page, Visitor, eventually, expect
from tests.browser.traffic import Peer, Site, Stream, address
from tests.pictures import encoded, photo

ROOT: Final = Path(__file__).parents[2]
AXE: Final = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES: Final = ROOT / "build" / "console-screenshots"
PAGES: Final = {
    "overview": "/",
    "channels": "/channels",
    "channel": address("channels", "uav/imagery"),
    "filter": address("channels", "uav/#"),
    "clients": "/clients",
    "client": address("clients", "patrol-1"),
    "watch": "/clients/watch?filter=uav/%23",
    "policies": "/policies",
    "policy": "/policies/Reports",
    "network": "/network",
    "quality": "/quality",
    "admission": "/admission",
    "history": "/history",
    "why": "/why",
    "internals": "/internals?series=sent_hz",
}
POLICY: Final = {"name": "Reports", "channel": "patrol/#", "importance": 6}
_FIND: Final = """
async () => (await axe.run(document, {resultTypes: ['violations']})).violations
  .filter((each) => ['serious', 'critical'].includes(each.impact))
  .map((each) => `${each.id}: ${each.help}: ` + each.nodes.slice(0, 3)
    .map((node) => `${node.html.slice(0, 160)} ${node.any.map((one) => one.message).join(' ')}`)
    .join(' | '))
"""


@pytest.fixture(scope="module", autouse=True)
def traffic(site: Site) -> Iterator[None]:
    picture = encoded(photo(480, 320), "JPEG")
    assert site.http.put("/api/v1/policies/Reports", json=POLICY).status_code == 200
    payloads = {"uav/imagery": picture, "patrol/report": b'{"contacts": 3}', "uav/position": b"12"}
    with (
        Peer(site, "raven-7") as raven,
        Peer(site, "patrol-1", "uav/#", "patrol/#"),
        Peer(site, "desk", "uav/position"),
        Stream(raven, payloads, 5),
    ):
        yield


def serious(page: Page) -> list[str]:
    """What axe-core finds that keeps people from using the page."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())  # as a script tag, the page's own policy would refuse it
    found: list[Any] = page.evaluate(_FIND)
    return [str(each) for each in found]


@pytest.mark.parametrize("name", PAGES)
def test_the_page(visitor: Visitor, name: str) -> None:
    page = visitor.open(PAGES[name])
    expect(page.get_by_role("button", name="Live")).to_be_visible()
    PICTURES.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    for width, size in (("phone", PHONE), ("desk", DESK)):
        visitor.resize(size)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(100)
            page.screenshot(path=PICTURES / f"{name}-{size[0]}-{theme}.png")
            assert visitor.overflow() <= 0, f"{width}, {theme}"
            if AXE.is_file() and size == DESK:
                found += [f"{width}, {theme}: {each}" for each in serious(page)]
    if not AXE.is_file():
        pytest.skip("needs axe-core: `npm ci` in console")
    assert found == []


def test_the_login(visitor: Visitor) -> None:
    page = visitor.page
    session = {
        "user": "", "needs_login": True, "groups": [], "expires_ms": None, "node": "",
        "version": "",
        "rights": {"statistics": False, "policies": False, "publish": [], "subscribe": []},
    }  # fmt: skip
    page.route("**/api/v1/session", lambda route: route.fulfill(json=session))
    visitor.open("/login")
    for size in (DESK, PHONE):
        visitor.resize(size)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.screenshot(path=PICTURES / f"login-{size[0]}-{theme}.png")
            assert visitor.overflow() <= 0
            if AXE.is_file():
                assert serious(page) == []


def test_what_a_page_loads_comes_from_the_node_alone(visitor: Visitor) -> None:
    visitor.open("/")
    names: list[str] = visitor.page.evaluate(
        "performance.getEntriesByType('resource').map((each) => each.name)"
    )
    assert len(names) > 3
    assert all(name.startswith((visitor.url, "blob:", "data:")) for name in names)
    eventually(lambda: not visitor.found, what="a page without findings")
