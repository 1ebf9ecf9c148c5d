"""The console's History: how soon it shows rows, beside `accord query`, and what many rows take."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any, Final
from urllib.request import urlopen

import accord
from accord.core.monitoring.ledger import DELIVERED, Ledger, event_id
from accord.journal.disk import OsDisk
from accord.journal.ledger_records import encode_ledger, record_of
from accord.journal.reader import Reader
from accord.journal.segment_log import SegmentLog
from accord.pipeline import delta_log
from accord.pipeline.journal_sink import SliceJob, commit_batch, write_slice
from benchmarks.aims import Aim, aims_table
from benchmarks.archive_queries import NODE, Archive, made
from benchmarks.console import CHROMIUM, FLAGS
from benchmarks.console_load import HOST
from benchmarks.options import Options, progress
from benchmarks.ports import free_ports
from benchmarks.processes import started
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "One node with its pipeline, embedded Spark, and a day of archived events of 12 channels. "
    "`accord query` is its query without the start of Python: from the request over an open MQTT "
    "connection until the last of 100 events came. The page is headless Chromium without a GPU: "
    "from the press of Find until the rows are drawn. Both in turns, each question asked before "
    "(Spark is warm), the time range another each time. Memory is that of the page's heap after "
    "a collection, with rows read page by page as somebody scrolls."
)
EVENTS: Final = 1_000_000
EVENTS_QUICK: Final = 100_000
_DAY_MS: Final = 86_400_000
_ROWS: Final = 100
_OUTCOMES: Final = 1_000  # in one record
_CONFIG: Final = f"""
[node]
name = "{NODE}"
[[keep]]
channels = ["uav/#"]
attributes = {{ altitude_m = "integer", platform = "string" }}
"""
QUESTIONS: Final = (("a channel", ""), ("with a predicate", "altitude_m < 300"))
_FIND: Final = """
() => new Promise((done) => {
  const begun = performance.now();
  const before = document.querySelector('table[aria-label="Events"] tbody tr[data-index]');
  const id = before?.querySelector('a')?.href;
  [...document.querySelectorAll('button')].find((each) => each.textContent === 'Find').click();
  let wasOther = false;
  const look = () => {
    // A new question has rows of its own: those before are other elements.
    const row = document.querySelector('table[aria-label="Events"] tbody tr[data-index]');
    wasOther ||= row !== before;
    if (row && wasOther) requestAnimationFrame(() => done(performance.now() - begun));
    else requestAnimationFrame(look);
  };
  look();
})
"""
_HEAP: Final = "performance.memory.usedJSHeapSize / 1e6"
_SCROLL: Final = "document.querySelector('[data-scrolls]').scrollTo(0, 1e9)"


def run(options: Options) -> list[Table]:
    if CHROMIUM is None:
        progress("console_history: no Chromium (scripts/peers installs it)")
        return []
    events = EVENTS_QUICK if options.is_quick else EVENTS
    aims: list[Aim] = []
    with tempfile.TemporaryDirectory() as folder:
        archive = made(Path(folder), events, time.time_ns() // 1_000_000 - _DAY_MS)
        _add_outcomes(archive)
        with _node(Path(folder)) as (port, url), _browser() as browser:
            rounds = 5 if options.is_quick else 20
            tables = [
                _first_rows(browser, port, url, rounds, aims),
                _event_answers(url, events, 20 if options.is_quick else 100, aims),
                _many(browser, url, 5_000 if options.is_quick else events, events, aims),
            ]
    return [*tables, aims_table(aims)]


@contextmanager
def _node(folder: Path) -> Iterator[tuple[int, str]]:
    port, http_port = free_ports(2)
    settings = folder / "accord.toml"
    settings.write_text(_CONFIG)
    program = str(Path(sys.executable).with_name("accord"))
    command = [program, "up", "--mqtt", f"{HOST}:{port}", "--http", f"{HOST}:{http_port}"]
    command += ["--websocket", "", "--data", str(folder), "--no-demo", "--pipeline"]
    url = f"http://{HOST}:{http_port}"
    with started([*command, "--config", str(settings)], {}, folder / "log"):
        deadline = time.monotonic() + 180
        while not _is_ready(url):
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.5)
        yield port, url


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only here

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, chromium_sandbox=False
        )
        yield browser
        browser.close()


def _page(browser: Any, url: str) -> Any:
    return browser.new_context(base_url=url, viewport={"width": 1440, "height": 900}).new_page()


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/api/v1/status", timeout=5) as answer:  # noqa: S310
            status = json.load(answer)["statistics"]["pipeline"]
    except OSError:
        return False
    return bool(status["state"] == "ready" and status["lag_records"] == 0)


def _first_rows(browser: Any, port: int, url: str, rounds: int, aims: list[Aim]) -> Table:
    table = Table(
        "First 100 rows, ms", ["question", "accord query", "page", "page − query", "all events"]
    )
    for name, where in QUESTIONS:
        page = _page(browser, url)
        page.goto(f"/history?channel=uav/a&last=24h&where={where}")
        page.locator('a[href^="/why/"]').first.wait_for(timeout=60_000)
        asked: list[float] = []
        shown: list[float] = []
        for turn in range(rounds + 3):
            took_ms = _query(port, where)
            page.wait_for_timeout(300)
            found_ms = page.evaluate(_FIND)
            if turn >= 3:
                asked.append(took_ms)
                shown.append(found_ms)
        page.get_by_text(re.compile(r"^[\d,]+ events? of .* in the last day")).wait_for(
            timeout=120_000
        )
        total = page.locator("h1").text_content().split(" event")[0]
        difference = median(shown) - median(asked)
        table.add(
            name,
            significant(median(asked)),
            significant(median(shown)),
            significant(difference),
            total,
        )
        measured = f"{difference:+.0f} ms"
        aims.append(
            Aim(f"first rows, {name}", "accord query + 100 ms", measured, difference <= 100)
        )
        page.context.close()
    return table


def _query(port: int, where: str) -> float:
    with accord.connect_sync(f"mqtt://{HOST}:{port}") as session:
        began_s = time.perf_counter()
        found = list(session.query("uav/a", where=where or None, since="-24h", limit=_ROWS))
        assert len(found) == _ROWS
        return 1_000 * (time.perf_counter() - began_s)


def _many(browser: Any, url: str, rows: int, events: int, aims: list[Aim]) -> Table:
    """Scroll through many rows; what the page has in memory must not grow."""
    page = _page(browser, url)
    page.goto("/history?last=7d")
    page.locator('a[href^="/why/"]').first.wait_for(timeout=60_000)
    collector = page.context.new_cdp_session(page)
    marks = (min(5_000, rows // 5), rows // 5, rows // 2, rows)
    table = Table("Rows read by scrolling", ["rows read", "page's heap, MB", "seconds"])
    heaps: list[float] = []
    began_s = time.monotonic()
    for mark in marks:
        while (known := _known(page)) < mark:
            page.evaluate(_SCROLL)
            page.wait_for_timeout(10)
        progress(f"{known:,} rows after {time.monotonic() - began_s:.0f} s")
        collector.send("HeapProfiler.collectGarbage")
        heaps.append(page.evaluate(_HEAP))
        table.add(number(known), significant(heaps[-1]), number(time.monotonic() - began_s))
    table.notes.append(
        f"Of {events:,} events. At most 4,000 rows are kept, with the cursors of the other pages."
    )
    growth = heaps[-1] - heaps[0]
    aims.append(Aim("rows read", "memory does not grow", f"{growth:+.1f} MB", growth <= 10))
    page.context.close()
    return table


def _add_outcomes(archive: Archive) -> None:
    """An outcome of each event, archived: neither memory nor journal has them any more."""
    log, tables = SegmentLog(OsDisk(archive.journal)), delta_log.Archive(archive.path, [NODE])
    try:
        first = tables.archived(NODE)
        for start in range(1, archive.events + 1, _OUTCOMES):
            log.commit([_outcomes(archive, start)], now_ms=archive.received_ms(start - 1))
        end = Reader(archive.journal).extent().next_offset
        job = SliceJob(
            node=NODE, journal=archive.journal, first=first, next=end, archive=tables.place,
            columns=tables.events.snapshot().columns,
        )  # fmt: skip
        assert commit_batch([write_slice(job)], tables) is not None
        log.retire(now_ms=archive.received_ms(archive.events - 1), before_offset=end)
    finally:
        log.close()


def _outcomes(archive: Archive, start: int) -> bytes:
    ledger = Ledger()
    for each in range(start, min(start + _OUTCOMES, archive.events + 1)):
        at_ms = archive.received_ms(each - 1)
        ledger.add(
            each, 1, "uav/a", "camera", f"viewer-{each % 7}", DELIVERED, at_ms, at_ms + 1,
            at_ms + 3, 100, 3, "", "", 50,
        )  # fmt: skip
    batch = ledger.take()
    assert batch is not None
    return encode_ledger(record_of(batch, newest=0, taken_ms=at_ms + 3))


def _event_answers(url: str, events: int, rounds: int, aims: list[Aim]) -> Table:
    """What `GET /events/ID` takes for events of the archive."""
    rng = Random(3)
    spent: list[float] = []
    for turn in range(rounds + 5):
        number = rng.randrange(events) + 1
        began_s = time.perf_counter()
        with urlopen(f"{url}/api/v1/events/{event_id(number)}", timeout=30) as answer:  # noqa: S310
            found = json.load(answer)
        took_ms = 1_000 * (time.perf_counter() - began_s)
        assert found["verdict"], found
        if turn >= 5:
            spent.append(took_ms)
    p95 = quantiles(spent, n=20)[-1]
    table = Table("GET /events/ID from the archive, ms", ["events", "p50", "p95", "most"])
    table.add(f"{events:,}", significant(median(spent)), significant(p95), significant(max(spent)))
    aims.append(Aim("why, from the archive", "p95 ≤ 1.5 s", f"{p95 / 1_000:.2f} s", p95 <= 1_500))
    return table


def _known(page: Any) -> int:
    return int(page.locator('table[aria-label="Events"]').get_attribute("aria-rowcount")) - 2
