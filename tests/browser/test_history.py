"""The history on the page: a node with its real pipeline, compared with `accord query`."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow.parquet
import pytest

from tests.brokers import HOST, start_with_http
from tests.browser.browsing import DESK, PHONE, Locator, Page, Visitor, eventually, expect
from tests.browser.test_looks import AXE, PICTURES, serious
from tests.browser.traffic import WAIT_S, Peer, Site
from tests.pictures import encoded, photo

pytestmark = pytest.mark.timeout(600)  # a busy machine may take a minute to start Spark

CONFIG: Final = """
[[keep]]
channels = ["kept/#"]
attributes = { n = "integer" }
"""
EVENTS: Final = 160
SPARK_MS: Final = 120_000
HOSTILE: Final = "<script>window.hacked = 1</script>\u202e\u0007"


@pytest.fixture(scope="module")
def kept() -> Iterator[Site]:
    """A node that starts its pipeline, with events of the last seconds."""
    with (
        start_with_http(CONFIG, ["--pipeline"]) as (broker, url),
        httpx.Client(base_url=url, timeout=WAIT_S) as http,
    ):
        site = Site(url, broker, http)
        with Peer(site, "probe") as probe, Peer(site, "desk", "kept/#"):
            for n in range(EVENTS):
                probe.publish(
                    f"kept/{'even' if n % 2 == 0 else 'odd'}",
                    f"reading {n}",
                    {"n": str(n), "site": "north" if n % 3 else "south"},
                    qos=1 if n % 40 == 39 else 0,
                )
            for n in range(5):
                probe.publish("kept/pictures", encoded(photo(240 + n, 160), "JPEG"))
            probe.publish(f"kept/{HOSTILE}", HOSTILE, {"note": HOSTILE})
            yield site


@pytest.fixture
def ask(kept: Site, visit: Callable[..., Visitor]) -> Callable[..., Page]:
    """Opens the page with a question, and waits for its answer."""

    def enter(**query: str) -> Page:
        page = visit(kept.url).open(str(httpx.URL("/history", params=query)))
        expect(page.get_by_text("not archived")).to_be_visible(timeout=SPARK_MS)
        return page

    return enter


def command(site: Site, *words: str) -> list[dict[str, Any]]:
    """What `accord query` finds."""
    done = subprocess.run(
        [sys.executable, "-m", "accord", "query", *words, "--json",
         "--url", f"mqtt://{HOST}:{site.broker.port}"],
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def ids(page: Page) -> list[str]:
    """The events of the table, by where their last cell leads."""
    found: list[str] = page.locator(
        'table[aria-label="Events"] tbody a[href^="/why/"]'
    ).evaluate_all("(links) => links.map((link) => link.getAttribute('href').slice(5))")
    return found


def rows(page: Page) -> Locator:
    return page.locator('table[aria-label="Events"] tbody tr[data-index]')


def histogram(page: Page) -> Locator:
    return page.get_by_role("slider", name="Events over time")


def counted(page: Page) -> int:
    """Events of all bars, once all are counted."""
    expect(histogram(page)).to_have_attribute("aria-valuetext", re.compile("event"))
    said = histogram(page).get_attribute("aria-valuetext") or ""
    return int(said.split()[0].replace(",", ""))


def test_it_answers_while_spark_starts(kept: Site, visit: Callable[..., Visitor]) -> None:
    page = visit(kept.url).open("/history")
    expect(page.locator("h1")).to_contain_text(
        f"{EVENTS + 6} events in the last hour", timeout=SPARK_MS
    )
    assert counted(page) == EVENTS + 6


def test_rows_are_those_of_the_command(kept: Site, ask: Callable[..., Page]) -> None:
    where = "n > 150 OR n = 3"
    page = ask(channel="kept/#", where=where)
    expected = command(kept, "kept/#", "--where", where)
    assert len(expected) == 10
    expect(rows(page)).to_have_count(10)
    assert ids(page) == [event["id"] for event in expected]
    expect(rows(page).last).to_contain_text("reading 3")
    expect(page.locator("h1")).to_contain_text("10 events of kept/# that match")
    assert counted(page) == 10


def test_it_pages(ask: Callable[..., Page]) -> None:
    page = ask(channel="kept/#")
    expect(page.get_by_text(f"100 of {EVENTS + 6} read")).to_be_visible()

    def is_at_the_end() -> bool:
        page.locator("[data-scrolls]").evaluate("(box) => box.scrollTo(0, 1e6)")
        return "reading 0" in (rows(page).last.text_content() or "")

    eventually(is_at_the_end, what="the oldest event", page=page)


def test_a_mistake_is_pointed_at(kept: Site, visit: Callable[..., Visitor]) -> None:
    visitor = visit(kept.url)
    page = visitor.open("/history?channel=kept/%23&where=n+%3D+7")
    expect(rows(page)).to_have_count(1)
    predicate = page.get_by_role("textbox", name="Predicate")
    predicate.fill("n = = 7")
    expect(page.get_by_text("Character 5:")).to_be_visible()
    expect(page.locator(".editor .wrong")).to_have_text("=")
    expect(rows(page)).to_have_count(1)  # the last good one
    predicate.fill("n = 8")
    expect(page.get_by_text("Character 5:")).to_have_count(0)
    expect(rows(page)).to_contain_text("reading 8")
    visitor.forgive("/api/v1/query")  # browsers report each answer of 400 and above


def test_a_time_is_selected_by_dragging_and_given_back(ask: Callable[..., Page]) -> None:
    page = ask(channel="kept/#", last="15min")
    everything = counted(page)
    histogram(page).scroll_into_view_if_needed()
    box = histogram(page).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 40, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile("from=.*to="))
    expect(page.locator("h1")).to_contain_text(f"{everything} events of kept/# from")
    # With the keyboard, and back.
    histogram(page).focus()
    page.keyboard.press("End")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Zoom out")).to_be_visible()
    page.go_back()
    expect(page.locator("h1")).to_contain_text(f"{everything} events of kept/# from")
    page.get_by_role("button", name="Last 15 min").click()
    expect(page.locator("h1")).to_contain_text(f"{everything} events of kept/# in the last 15")


def test_one_event_leads_to_its_cause(ask: Callable[..., Page]) -> None:
    page = ask(channel="kept/even", where="n = 42")
    rows(page).first.click()
    expect(page).to_have_url(re.compile(r"event=\w+"))
    detail = page.locator("section").filter(has_text="Attributes")
    expect(detail.get_by_text("reading 42")).to_be_visible()
    (event,) = ids(page)
    expect(detail.get_by_role("link", name="Why")).to_have_attribute("href", f"/why/{event}")
    page.reload()
    expect(page.get_by_text("Attributes")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Attributes")).to_have_count(0)


def test_pictures_and_the_time_line(ask: Callable[..., Page]) -> None:
    page = ask(channel="kept/#")
    page.get_by_role("radio", name="Pictures").click()
    pictures = page.get_by_role("button").filter(has=page.locator("img"))
    expect(pictures).to_have_count(5)
    eventually(
        lambda: pictures.first.locator("img").evaluate("(image) => image.naturalWidth") >= 240,
        what="the picture's pixels",
        page=page,
    )
    pictures.first.click()
    expect(page.get_by_alt_text("What the event carries")).to_be_visible()
    page.get_by_role("radio", name="Timeline").click()
    line = page.get_by_role("slider", name="Events on a time line")
    line.focus()
    page.keyboard.press("ArrowLeft")
    expect(line).to_have_attribute("aria-valuetext", re.compile("kept/"))


@pytest.mark.parametrize("kind", ["CSV", "JSON", "Parquet"])
def test_files_have_what_the_command_finds(
    kept: Site, ask: Callable[..., Page], tmp_path: Path, kind: str
) -> None:
    page = ask(channel="kept/even", where="n < 20")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("menuitemradio", name=kind).or_(
            page.get_by_role("menuitem", name=kind)
        ).first.click()
    path = tmp_path / "download"
    waiting.value.save_as(path)
    expected = command(kept, "kept/even", "--where", "n < 20")
    assert len(expected) == 10
    wanted = [(event["id"], event["payload"], event["attributes"]["n"]) for event in expected]
    data = path.read_bytes()
    match kind:
        case "JSON":
            found = [json.loads(line) for line in data.splitlines()]
            assert found == expected
        case "CSV":
            assert [
                (row["id"], row["payload"], int(row["n"]))
                for row in csv.DictReader(StringIO(data.decode()))
            ] == wanted
        case _:
            table = pyarrow.parquet.read_table(BytesIO(data)).to_pylist()
            assert [(row["id"], row["payload"].decode(), row["n"]) for row in table] == wanted
    expect(page.get_by_text(re.compile(r"B saved\.$"))).to_be_visible()


def test_it_goes_on_live_without_gap_or_duplicate(kept: Site, ask: Callable[..., Page]) -> None:
    with Peer(kept, "late-probe") as probe:
        for n in range(4):
            probe.publish("kept/live", f"before {n}")
        page = ask(channel="kept/live")
        expect(rows(page)).to_have_count(4)
        probe.publish("kept/live", "between")  # after the answer, before it goes on
        page.get_by_role("button", name="Go on live").click()
        expect(rows(page)).to_have_count(5)
        for n in range(3):
            probe.publish("kept/live", f"after {n}")
        page.mouse.move(0, 0)
        expect(rows(page)).to_have_count(8)
        page.wait_for_timeout(600)
        found = ids(page)
        assert len({*found}) == len(found) == 8
        expect(rows(page).nth(0)).to_contain_text("after 2")
        expect(rows(page).nth(3)).to_contain_text("between")
        expect(rows(page).nth(4)).to_contain_text("before 3")
        expect(page.locator("h1")).to_contain_text("4 new since")
        page.get_by_role("button", name="Stop live").click()
        probe.publish("kept/live", "unseen")
        page.wait_for_timeout(600)
        expect(rows(page)).to_have_count(8)
        assert found == [event["id"] for event in command(kept, "kept/live")][1:]


def test_a_question_is_stopped_and_goes_on(ask: Callable[..., Page]) -> None:
    page = ask(channel="kept/even", where="n = 2")
    gone: list[str] = []
    page.on("requestfailed", lambda request: gone.append(request.url))
    page.route("**/api/v1/query?**", lambda _route: None)  # takes for ever
    page.get_by_role("textbox", name="Predicate").fill("n = 4")
    expect(page.get_by_text("so far")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    eventually(lambda: gone, what="the end of the request", page=page)
    page.unroute("**/api/v1/query?**")
    page.get_by_role("button", name="Go on reading").click()
    expect(rows(page)).to_contain_text("reading 4")


def test_the_report_has_the_numbers_of_the_node(kept: Site, visit: Callable[..., Visitor]) -> None:
    page = visit(kept.url).open("/history?view=report&channel=kept/%23")
    expect(page.get_by_role("table", name="Slow subscriptions")).to_be_visible(timeout=SPARK_MS)
    report = kept.get("/api/v1/report", channel="kept/#", last="1h")
    assert report["totals"]["delivered"] >= EVENTS
    channels = page.get_by_role("table", name="Channels").locator("tbody tr[data-index]")
    (even,) = (each for each in report["channels"] if each["name"] == "kept/even")
    expect(channels.filter(has_text="kept/even")).to_contain_text(str(even["events"]))
    sources = page.get_by_role("table", name="Sources").locator("tbody tr[data-index]")
    expect(sources.filter(has_text="kept/odd")).to_contain_text("probe")
    expect(page.get_by_role("img", name=re.compile("Latency"))).to_be_visible()
    expect(page.locator("h1")).to_contain_text("arrived in time")


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("history-table", {"channel": "kept/#"}),
        ("history-timeline", {"channel": "kept/#", "show": "timeline"}),
        ("history-gallery", {"channel": "kept/#", "show": "gallery"}),
        ("history-report", {"view": "report"}),
    ],
)
def test_it_looks_well(
    kept: Site, visit: Callable[..., Visitor], name: str, query: dict[str, str]
) -> None:
    visitor = visit(kept.url)
    page = visitor.open(str(httpx.URL("/history", params=query)))
    answered = page.get_by_text("not archived").or_(page.get_by_text("made in"))
    expect(answered.first).to_be_visible(timeout=SPARK_MS)
    page.wait_for_timeout(500)
    if name == "history-table":
        rows(page).nth(2).click()
    PICTURES.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    for size in (PHONE, DESK):
        visitor.resize(size)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(150)
            page.screenshot(path=PICTURES / f"{name}-{size[0]}-{theme}.png", full_page=True)
            assert visitor.overflow() <= 0, f"{size}, {theme}"
            if AXE.is_file():
                found += serious(page)
    assert found == []
    assert page.evaluate("window.hacked") is None


def test_without_a_pipeline_it_says_what_to_do(visitor: Visitor) -> None:
    page = visitor.open("/history")
    expect(page.locator("h1")).to_contain_text("without a data pipeline")
    expect(page.get_by_text("switched off")).to_be_visible()
    expect(page.get_by_text("accord up")).to_be_visible()
    page.get_by_role("radio", name="Report").click()
    expect(page.locator("h1")).to_contain_text("without a data pipeline")
