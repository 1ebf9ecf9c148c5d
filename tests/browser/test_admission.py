"""Admission in the browser: the paper's filters entered and drawn, checks and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.brokers import HOST
from tests.browser.browsing import Page, Visitor, eventually, expect
from tests.browser.test_looks import AXE, serious
from tests.browser.traffic import Peer, Site, start_site
from tests.scenarios.properties import properties_of

CONFIG: Final = """
[admission]
mode = "enforce"
event_bytes = 1000
"""
LIMIT_BPS: Final = 100_000
DEU: Final = "name = 'DEU'"
# Figures 3 to 5 of the paper: filters in the order in which they are advertised, with their rates.
ADVERTISED: Final = (
    ("price > 0", 4),
    (f"price > 3 AND {DEU}", 4),
    ("price > 9", 4),
    (f"price > 8 AND {DEU}", 11),
    ("price > 5", 5),
    (f"price > 7 AND {DEU}", 3),
)
DRAWN: Final = {
    "price > 0": (31, 6),
    "price > 5": (23, 4),
    f"{DEU} AND price > 3": (18, 3),
    f"{DEU} AND price > 7": (14, 2),
    f"{DEU} AND price > 8": (11, 1),
    "price > 9": (4, 1),
}
COVERS: Final = {
    ("price > 0", "price > 5"),
    ("price > 0", f"{DEU} AND price > 3"),
    ("price > 5", "price > 9"),
    ("price > 5", f"{DEU} AND price > 7"),
    (f"{DEU} AND price > 3", f"{DEU} AND price > 7"),
    (f"{DEU} AND price > 7", f"{DEU} AND price > 8"),
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with start_site(CONFIG) as running:
        limits = {"limits": [{"client": "ann", "bandwidth": LIMIT_BPS}]}
        assert running.http.put("/api/v1/policies", json=limits).status_code == 200
        yield running


@pytest.fixture
def page(visitor: Visitor) -> Page:
    return visitor.open("/admission")


def advertise(page: Page, channel: str, where: str, rate: float) -> None:
    panel = page.get_by_role("region", name="Advertise from here")
    panel.get_by_label("Channel to publish to").fill(channel)
    panel.get_by_label("Events that match").fill(where)
    panel.get_by_label("At most").fill(str(rate))
    before = panel.get_by_role("button", name="Withdraw").count()
    panel.get_by_role("button", name="Advertise").click()
    expect(panel.get_by_role("button", name="Withdraw")).to_have_count(before + 1)


def advertise_all(page: Page) -> None:
    for where, rate in ADVERTISED:
        advertise(page, "stock", where, rate)


def check(page: Page, channel: str, where: str = "", client: str = "", rate: str = "") -> None:
    panel = page.get_by_role("region", name="Would this be admitted?")
    panel.get_by_label("Channel or filter").fill(channel)
    panel.get_by_label("Condition").fill(where)
    panel.get_by_label("For client").fill(client)
    panel.get_by_label("Events per second").fill(rate)
    panel.get_by_role("button", name="Check").click()


def drawn(page: Page) -> tuple[dict[str, tuple[float, int]], set[tuple[str, str]]]:
    """The graph: rate and count by filter, and which filter is drawn above which."""
    boxes: list[tuple[str, str, str]] = page.eval_on_selector_all(
        "button[data-place]",
        "(found) => found.map((each) => [each.dataset.place, each.dataset.filter,"
        " each.querySelector('.figures').innerText])",
    )
    names = {place: filter_.removeprefix("stock WHERE ") for place, filter_, _ in boxes}
    figures = {}
    for place, _, text in boxes:
        rate, count = re.findall(r"[\d.]+", text)
        figures[names[place]] = (float(rate), int(count))
    edges: list[tuple[str, str]] = page.eval_on_selector_all(
        "path[data-from]", "(found) => found.map((each) => [each.dataset.from, each.dataset.to])"
    )
    return figures, {(names[one], names[other]) for one, other in edges}


def test_the_figures_of_the_paper_are_entered_and_drawn(site: Site, page: Page) -> None:
    expect(page.get_by_text("Nobody has advertised.")).to_be_visible()
    advertise_all(page)
    eventually(lambda: drawn(page) == (DRAWN, COVERS), what="the order of figure 4 (c)", page=page)
    assert len(site.get("/api/v1/admission")["filters"]) == 6
    assert not AXE.is_file() or serious(page) == []
    # Figure 4 (a): the same filter again adds to it and to what covers it.
    advertise(page, "stock", "price > 5", 3)
    more = {**DRAWN, "price > 0": (34, 7), "price > 5": (26, 5)}
    eventually(lambda: drawn(page) == (more, COVERS), what="figure 4 (a)", page=page)
    panel = page.get_by_role("region", name="Advertise from here")
    panel.get_by_role("button", name="Withdraw").last.click()
    eventually(lambda: drawn(page)[0] == DRAWN, what="the sums as before", page=page)
    # Figure 5: a subscription between the filters.
    check(page, "stock", f"price > 2 AND {DEU}")
    answer = page.get_by_role("status", name="Answer")
    expect(answer).to_contain_text("Yes: ")
    expect(answer).to_contain_text("18\u00a0/s to 31\u00a0/s, 3 to 6 advertisements")
    # A filter of the graph is checked with one click.
    page.get_by_role("button", name=re.compile("^price > 9")).click()
    condition = page.get_by_role("region", name="Would this be admitted?").get_by_label("Condition")
    expect(condition).to_have_value("price > 9")
    page.goto("/internals")
    gone = "the end of the page's advertisements"
    eventually(lambda: not site.get("/api/v1/admission")["filters"], what=gone, page=page)


def subscribe(site: Site, name: str, channel: str, where: str) -> Client:
    """A client of its own; it asks for a subscription, and is told the outcome."""
    codes: list[int] = []
    client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_subscribe = lambda *got: codes.append(got[3][0].value)
    client.connect(HOST, site.broker.port)
    client.loop_start()
    eventually(client.is_connected, what="the connection: its limit counts from then on")
    properties = properties_of(PacketTypes.SUBSCRIBE, UserProperty=[("where", where)])
    client.subscribe([(channel, SubscribeOptions(0))], properties=properties)
    eventually(lambda: codes, what="an answer to the subscription")
    assert codes == [0x97]
    return client


def test_a_check_says_yes_and_no_and_a_refusal_is_explained(site: Site, page: Page) -> None:
    advertise_all(page)
    with Peer(site, "ann"):
        # 31 events of 1,000 bytes a second are more than ann's 100 kbit/s carry; 4 are not:
        # only the first filter has events below 3.
        check(page, "stock", client="ann")
        answer = page.get_by_role("status", name="Answer")
        expect(answer).to_contain_text("No: ")
        expect(answer).to_contain_text("lacks bandwidth of client ann: 248 kbit/s asked")
        expect(answer).to_contain_text("100 kbit/s free")
        expect(answer).to_contain_text("it takes 148 kbit/s more bandwidth for client ann")
        expect(answer).to_contain_text("at most 40.3 % of these events")
        expect(answer.get_by_role("row", name=re.compile("bandwidth"))).to_have_class(
            re.compile("short")
        )
        check(page, "stock", "price < 3", "ann")
        expect(answer).to_contain_text("Yes: ")
        check(page, "stock", client="ann", rate="10")
        expect(answer).to_contain_text("Yes at 10 events/s: it takes 80 kbit/s")
        check(page, "stock", client="ann", rate="20")
        expect(answer).to_contain_text("at most 12.5 events/s fit")
        expect(page).to_have_url(re.compile("rate=20"))
    client = subscribe(site, "ann", "stock", "price > 2")
    refused = page.get_by_role("list", name="Refused lately")
    expect(refused).to_contain_text("ann")
    expect(refused).to_contain_text("stock WHERE price > 2")
    expect(refused).to_contain_text("lacked bandwidth of client ann: 248\u00a0kbit/s asked")
    expect(refused).to_contain_text("To fit, it takes 148 kbit/s more bandwidth for client ann")
    expect(page.locator("h1")).to_contain_text("1 was refused")
    refused.get_by_role("button", name="Check again").click()
    expect(page.get_by_role("status", name="Answer")).to_contain_text("No: ")
    expect(page).to_have_url(re.compile("client=ann"))
    client.disconnect()
    client.loop_stop()


def test_a_subscription_for_real_takes_of_the_book(site: Site, page: Page) -> None:
    advertise_all(page)
    check(page, "stock", "price > 9")
    panel = page.get_by_role("region", name="Would this be admitted?")
    panel.get_by_role("button", name="Subscribe for real").click()
    mine = page.get_by_role("list", name="Of this page")
    expect(mine).to_contain_text("subscribed")
    # The page's own replies are a subscription, too.
    expect(page.locator("h1")).to_contain_text("2 subscriptions have promises")
    book = page.get_by_role("grid", name="Resources").or_(
        page.get_by_role("table", name="Resources")
    )
    expect(book.first).to_contain_text("31\u00a0/s")
    mine.get_by_role("button", name="End").click()
    expect(page.locator("h1")).to_contain_text("1 subscription has a promise")


def test_the_mistake_of_a_condition_is_pointed_at_and_mended(visitor: Visitor, page: Page) -> None:
    check(page, "stock", "price == 3")
    panel = page.get_by_role("region", name="Would this be admitted?")
    expect(panel.locator("mark")).to_have_text("=")
    expect(panel.get_by_label("Condition")).to_have_attribute("aria-invalid", "true")
    panel.get_by_role("button", name=re.compile("^Use ")).click()
    expect(panel.get_by_label("Condition")).to_have_value("price = 3")
    expect(page.get_by_role("status", name="Answer")).to_be_visible()
    visitor.forgive("/api/v1/admission/need")


def test_names_of_others_do_no_harm(site: Site, page: Page) -> None:
    evil = "<img src=x onerror=alert(1)>"
    advertise(page, f"stock/{evil}", "", 1)
    expect(page.locator("button[data-place]")).to_contain_text("all events")
    assert page.locator("img").count() == 0


def test_where_admission_is_off_the_page_says_how_to_have_it(
    visit: Callable[..., Visitor],
) -> None:
    with start_site() as off:
        visitor = visit(off.url)
        page = visitor.open("/admission")
        expect(page.locator("h1")).to_contain_text("Admission is off at this node")
        expect(page.get_by_text("mode = 'enforce'")).to_be_visible()
        page.goto("about:blank")  # the node stops before the visitor leaves
