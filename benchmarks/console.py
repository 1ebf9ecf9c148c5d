"""What the console costs: the node that is looked at, and the page that looks."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.request import urlopen

from benchmarks.aims import Aim, aims_table
from benchmarks.console_load import HOST, connect_client, steady_load, viewers
from benchmarks.console_map import CHANNELS as MAP_CHANNELS
from benchmarks.console_map import LINKS, NODES, map_frames_hz, open_map
from benchmarks.mqtt import Mqtt
from benchmarks.options import Options, progress
from benchmarks.ports import free_ports
from benchmarks.processes import cpu_s, memory_bytes, started, with_children
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "One node without the demonstration and the pipeline, loaded from a process of its own: 100 B "
    "events at QoS 0 on 50 channels, each with a subscriber. Viewers watch what the Overview "
    "watches, in another process, and read all. CPU is that of the node's process, by the "
    "scheduler's clock; what is compared takes turns in one run, and medians are shown. Pages run "
    "in headless Chromium without a GPU, which paints by CPU; its CPU is that of all its "
    "processes. The series at 10 Hz are sent by the benchmark in place of the node, which samples "
    "once a second."
)
RATE_HZ: Final = 5_000
CHANNELS: Final = tuple(f"load/{number}" for number in range(50))
OVERVIEW: Final[tuple[dict[str, Any], ...]] = (
    {"set": "node"},
    {"set": "changes", "limit": 100},
    {"set": "series", "limit": 12, "names": [
        "received_hz", "sent_hz", "sessions", "pipeline/lag_ms", "journal/disk_used",
        "delivery/in_time", "delivery/p50_ms", "delivery/p95_ms", "delivery/late_hz",
        "delivery/expired_hz", "delivery/shed_hz", "delivery/refused_hz",
    ]},
)  # fmt: skip
CHROMIUM: Final = shutil.which("chromium")
FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-precise-memory-info",
)  # fmt: skip
_MANY: Final = 10_000
_START_S: Final = 30.0
_MANY_LIMITS: Final = "[limits]\nconnects_per_s_per_address = 5000\n"
_HANDSHAKE: Final = (
    "GET /api/v1/live HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n\r\n"
)
_FIRST_NUMBERS: Final = """
const look = () => {
  const shown = [...document.querySelectorAll('.multiples .value')];
  if (shown.some((each) => /\\d/.test(each.textContent))) window.firstNumbersMs = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
_COUNT_FRAMES: Final = """
(seconds) => new Promise((done) => {
  const begun = performance.now();
  let frames = 0, longest = 0, last = begun;
  const step = (now) => {
    frames += 1; longest = Math.max(longest, now - last); last = now;
    if (now - begun < seconds * 1000) requestAnimationFrame(step);
    else done([frames / (now - begun) * 1000, longest]);
  };
  requestAnimationFrame(step);
})
"""
# From the click or the last key until the table shows something else and is drawn.
_CHANGE: Final = """
([act, text]) => new Promise((done) => {
  const body = document.querySelector('main table tbody');
  const shown = () => [...body.querySelectorAll('tr[data-index] bdi')].slice(0, 3)
    .map((each) => each.textContent).join();
  const before = shown(), begun = performance.now();
  const look = () => {
    if (shown() && shown() !== before) requestAnimationFrame(() => done(performance.now() - begun));
    else requestAnimationFrame(look);
  };
  if (act === 'sort') [...document.querySelectorAll('main th button')]
    .find((each) => each.textContent.trim() === text).click();
  else {
    const box = document.querySelector('main input[type=search]');
    box.value = text;
    box.dispatchEvent(new Event('input', {bubbles: true}));
  }
  look();
})
"""


@dataclass(frozen=True)
class Node:
    """A node that runs."""

    process_id: int
    port: int
    http_port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    def cpu_s(self) -> float:
        return cpu_s([self.process_id])

    def memory_bytes(self) -> int:
        return memory_bytes([self.process_id])


@contextmanager
def _node(limits: str = "") -> Iterator[Node]:
    with TemporaryDirectory() as folder:
        port, http_port = free_ports(2)
        settings = Path(folder) / "accord.toml"
        settings.write_text(limits)
        program = str(Path(sys.executable).with_name("accord"))
        command = [program, "up", "--mqtt", f"{HOST}:{port}", "--http", f"{HOST}:{http_port}"]
        command += ["--websocket", "", "--data", "", "--no-demo", "--no-pipeline"]
        log = Path(folder) / "log"
        with started([*command, "--config", str(settings)], {}, log) as process:
            node = Node(process.pid, port, http_port)
            _until(lambda: _answers(node), log)
            yield node


def _answers(node: Node) -> bool:
    try:
        with urlopen(f"{node.url}/ready") as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


def _until(look: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not look():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def run(options: Options) -> list[Table]:
    aims: list[Aim] = []
    tables = [*_viewing(options, aims), _stalled(options, aims)]
    if CHROMIUM is None:
        progress("console: no Chromium (scripts/peers installs it)")
    else:
        with _browser() as browser:
            tables += [
                _loading(options, browser, aims),
                _drawing(options, browser, aims),
                _map(options, browser, aims),
                _many(browser, aims),
            ]
    return [*tables, aims_table(aims)]


def _viewing(options: Options, aims: list[Aim]) -> Iterator[Table]:
    """The node's CPU with 0, 1 and 20 viewers, in turns."""
    seconds, rounds = (4.0, 3) if options.is_quick else (10.0, 7)
    counts = (0, 1, 20)
    shares: dict[int, list[float]] = {count: [] for count in counts}
    each_us: dict[int, list[float]] = {count: [] for count in counts}
    traffic: dict[int, list[float]] = {count: [] for count in counts}
    with _node() as node:
        time.sleep(2)
        idle = {count: _watched(node, count, 2 * seconds).share for count in (0, 20)}
        with steady_load(node.port, CHANNELS, RATE_HZ):
            time.sleep(2)
            for turn in range(rounds):
                progress(f"console: viewers, {turn + 1} of {rounds}")
                for count in counts:
                    found = _watched(node, count, seconds)
                    shares[count].append(found.share)
                    busy = found.share - (idle[20] if count == 20 else idle[0])
                    each_us[count].append(1e6 * busy / found.events_hz)
                    traffic[count].append(found.bytes_hz)
    table = Table(
        f"Viewers of the Overview at {number(RATE_HZ)} events/s",
        ["viewers", "node, % of a core", "more than without", "CPU µs/event", "bytes/s each"],
        notes=[
            (
                "CPU per event is without what the node takes for as many viewers when it is idle "
                f"({100 * idle[0]:.2f} % of a core without, {100 * idle[20]:.2f} % with 20)."
            )
        ],
    )
    base = median(shares[0])
    for count in counts:
        share = median(shares[count])
        table.add(
            str(count),
            number(100 * share, 2),
            number(100 * (share - base), 2) if count else "–",
            number(median(each_us[count]), 2),
            number(median(traffic[count])) if count else "–",
        )
    for count, most in ((1, 0.01), (20, 0.05)):
        # In turns: each is compared with what ran right before it.
        more = median(a - b for a, b in zip(shares[count], shares[0], strict=True))
        measured = f"{100 * more:.2f} % of a core"
        aims.append(
            Aim(f"{count} open Overview", f"≤ {100 * most:g} % of a core", measured, more <= most)
        )
    ratio = median(a / b for a, b in zip(each_us[20], each_us[0], strict=True))
    aims.append(
        Aim(
            "CPU per event with 20 viewers",
            "≤ 1.05 × without",
            f"{ratio:.3f} ×",
            ratio <= 1.05,
        )
    )
    yield table


@dataclass(frozen=True)
class Watched:
    share: float  # of a core
    events_hz: float
    bytes_hz: float  # to each viewer


def _watched(node: Node, count: int, seconds: float) -> Watched:
    """What the node does for some seconds with this number of viewers."""
    with ExitStack() as stack:
        looking = None
        if count:
            looking = stack.enter_context(viewers(node.url, count, OVERVIEW))
            time.sleep(1)
            looking.seen()
        cpu, begun, events = node.cpu_s(), time.monotonic(), _received(node)
        time.sleep(seconds)
        span, used = time.monotonic() - begun, node.cpu_s() - cpu
        events_hz = (_received(node) - events) / span
        size = looking.seen().total_bytes / span / count if looking else 0
    return Watched(used / span, events_hz, size)


def _received(node: Node) -> int:
    with urlopen(f"{node.url}/api/v1/status") as answer:  # noqa: S310
        found = json.load(answer)["statistics"]["received"]["publishes"]
    return int(found["qos0"])


def _stalled(options: Options, aims: list[Aim]) -> Table:
    """Viewers that stop reading, beside one that reads."""
    seconds = 10.0 if options.is_quick else 25.0  # the node closes them after 30 s
    count = 10
    watched = {"set": "series", "limit": 500}
    table = Table("Viewers that stop reading", ["what", "before", "with 10 of them"])
    with (
        _node() as node,
        steady_load(node.port, CHANNELS, RATE_HZ),
        viewers(node.url, 1, [{"set": "node"}, watched]) as reader,
        ExitStack() as stack,
    ):
        progress("console: viewers that stop reading")
        time.sleep(8)
        reader.seen()
        time.sleep(seconds)
        delay, memory = median(reader.seen().delays_ms), node.memory_bytes()
        for _ in range(count):
            stack.enter_context(_stall(node, watched))
        time.sleep(seconds)
        later, more = median(reader.seen().delays_ms), node.memory_bytes() - memory
    table.add("delay of another viewer, ms", number(delay, 1), number(later, 1))
    table.add("memory of the node, MB", number(memory / 1e6, 1), number((memory + more) / 1e6, 1))
    each_mb = more / count / 1e6
    aims.append(Aim("a viewer that stops reading", "< 1 MB", f"{each_mb:.2f} MB", each_mb < 1))
    aims.append(
        Aim(
            "another viewer meanwhile",
            "no delay",
            f"{later:.1f} ms after {delay:.1f} ms",
            later <= delay + 5,
        )
    )
    return table


def _stall(node: Node, watched: dict[str, Any]) -> socket.socket:
    """A viewer that asks, and then reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect((HOST, node.http_port))
    connection.sendall(_HANDSHAKE.format(host=f"{HOST}:{node.http_port}").encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1)
    text = json.dumps({"watch": 1, **watched}).encode()
    assert len(text) < 126
    connection.sendall(struct.pack("!BBI", 0x81, 0x80 | len(text), 0) + text)
    return connection


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
    context = browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
    return context.new_page()


def _chromium_ids() -> list[int]:
    found = []
    for each in with_children(_own_id()):
        try:
            name = Path(f"/proc/{each}/comm").read_text().strip()
        except OSError:
            continue
        if name.startswith("chrom"):
            found.append(each)
    return found


def _own_id() -> int:
    return int(Path("/proc/self/stat").read_text().split()[0])


def _loading(options: Options, browser: Any, aims: list[Aim]) -> Table:
    """The Overview in a browser that has never seen it."""
    times: list[float] = []
    size, others = 0, 0
    with _node() as node, steady_load(node.port, CHANNELS[:5], 100):
        time.sleep(3)
        for _ in range(5 if options.is_quick else 15):
            progress("console: first load")
            page = _page(browser, node.url)
            page.add_init_script(_FIRST_NUMBERS)
            sizes: list[int] = []
            asked: list[str] = []
            session = page.context.new_cdp_session(page)
            session.send("Network.enable")
            session.on(
                "Network.loadingFinished",
                lambda event, sizes=sizes: sizes.append(event["encodedDataLength"]),
            )
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto("/")
            times.append(_first_numbers_ms(page))
            page.wait_for_timeout(300)
            size = int(sum(sizes))
            others += sum(not each.startswith((node.url, "blob:", "data:")) for each in asked)
            page.context.close()
    table = Table("First load of the Overview", ["what", "measured"])
    table.add("sent by the node, with headers, KB", number(size / 1e3, 1))
    table.add("all files of the console, gzipped, KB", number(_all_files() / 1e3, 1))
    table.add("first live numbers, ms: median", number(median(times)))
    table.add("first live numbers, ms: slowest", number(max(times)))
    table.add("requests to others", number(others))
    first = median(times)
    aims.append(Aim("first load", "≤ 250 KB", f"{size / 1e3:.0f} KB", size <= 250_000))
    aims.append(Aim("first live numbers", "≤ 1 s", f"{first / 1e3:.2f} s", first <= 1_000))
    aims.append(Aim("requests to others", "none", str(others), others == 0))
    return table


def _first_numbers_ms(page: Any) -> float:
    # Not by wait_for_function, which the page's Content-Security-Policy refuses.
    for _ in range(round(_START_S / 0.05)):
        if found := page.evaluate("window.firstNumbersMs"):
            return float(found)
        page.wait_for_timeout(50)
    raise AssertionError("the Overview shows no numbers")


def _all_files() -> int:
    import accord  # noqa: PLC0415

    folder = Path(accord.__file__).parent / "console" / "static"
    files = [each for each in folder.rglob("*") if each.suffix in {".js", ".css", ".html", ".svg"}]
    return sum(len(gzip.compress(each.read_bytes(), 9)) for each in files)


@dataclass(frozen=True)
class Drawn:
    frames_hz: float
    longest_ms: float
    cpu: float  # cores, of all processes of Chromium
    heap_first: int
    heap_last: int


def _drawing(options: Options, browser: Any, aims: list[Aim]) -> Table:
    """Frames per second, CPU and heap of pages under load."""
    seconds = 20.0 if options.is_quick else 300.0
    table = Table(
        "Pages under load",
        ["page", "frames/s", "longest frame ms", "CPU, % of a core", "heap MB", "then"],
    )
    with _node() as node, steady_load(node.port, CHANNELS[:1], 200):
        cases: dict[str, Callable[[Any], Callable[[float], None]]] = {
            "blank": _open_blank,
            "200 series at 10 Hz": _open_series,
            "tap of 200 events/s": _open_tap,
        }
        for name, enter in cases.items():
            progress(f"console: {name}")
            page = _page(browser, node.url)
            wait = enter(page)
            drawn = _draw(page, wait, 5.0 if name == "blank" else seconds)
            page.context.close()
            table.add(
                name,
                number(drawn.frames_hz, 1),
                number(drawn.longest_ms),
                number(100 * drawn.cpu, 1),
                number(drawn.heap_first / 1e6, 1),
                number(drawn.heap_last / 1e6, 1),
            )
            if name == "blank":
                continue
            grown = (drawn.heap_last - drawn.heap_first) / 1e6
            frames, share = drawn.frames_hz, drawn.cpu
            cpu = f"{100 * share:.0f} %"
            aims.append(Aim(f"{name}: frames", "≥ 50 /s", f"{frames:.0f} /s", frames >= 50))
            aims.append(Aim(f"{name}: CPU", "≤ 25 % of a core", cpu, share <= 0.25))
            flat = f"{grown:+.1f} MB in {seconds / 60:.1f} min"
            aims.append(Aim(f"{name}: heap", "flat", flat, grown <= 2))
    return table


def _draw(page: Any, wait: Callable[[float], None], seconds: float) -> Drawn:
    session = page.context.new_cdp_session(page)

    def heap() -> int:
        session.send("HeapProfiler.collectGarbage")
        return int(page.evaluate("performance.memory.usedJSHeapSize"))

    wait(min(15.0, seconds))  # buffers fill
    first = heap()
    # Counting frames keeps the page drawing: CPU is measured without.
    ids = _chromium_ids()
    cpu, begun = cpu_s(ids), time.monotonic()
    wait(seconds)
    share = (cpu_s(ids) - cpu) / (time.monotonic() - begun)
    last = heap()
    page.evaluate(f"window.counted = ({_COUNT_FRAMES})(5)")
    wait(5.5)
    frames, longest = page.evaluate("window.counted")
    return Drawn(frames, longest, share, first, last)


def _open_blank(page: Any) -> Callable[[float], None]:
    page.goto("about:blank")
    return lambda seconds: page.wait_for_timeout(1_000 * seconds)


def _open_tap(page: Any) -> Callable[[float], None]:
    page.goto(f"/channels/{CHANNELS[0]}")
    page.wait_for_selector('table[aria-label="Events"] tbody tr[data-index]')
    return lambda seconds: page.wait_for_timeout(1_000 * seconds)


def _open_series(page: Any) -> Callable[[float], None]:
    """Internals; all rows of its series change ten times a second."""
    names = [f"load/series/{each:03}" for each in range(200)]
    watching: list[tuple[Any, int, list[str]]] = []

    def take(route: Any) -> None:
        server = route.connect_to_server()

        def on_message(text: str) -> None:
            asked = json.loads(text)
            watching[:] = [each for each in watching if each[1] != asked.get("watch")]
            if asked.get("set") != "series":
                server.send(text)
                return
            chosen = asked.get("names") or names
            rows = {name: _row(0) for name in chosen}
            state = {"total": len(names), "matching": len(names), "rows": rows}
            route.send(json.dumps({"id": asked["watch"], "at_ms": _now_ms(), "state": state}))
            watching.append((route, asked["watch"], chosen))

        route.on_message(on_message)

    page.route_web_socket("**/api/v1/live", take)
    page.goto("/internals")
    page.wait_for_selector('table[aria-label="Series"] tbody tr[data-index]')

    def wait(seconds: float) -> None:
        end, due = time.monotonic() + seconds, time.monotonic()
        turn = 0
        while time.monotonic() < end:
            turn += 1
            for route, watch, chosen in watching:
                rows = {name: _row(turn) for name in chosen}
                patch = {"id": watch, "at_ms": _now_ms(), "patch": {"rows": rows}}
                route.send(json.dumps(patch))
            due = max(due + 0.1, time.monotonic() - 0.1)
            page.wait_for_timeout(max(1.0, 1_000 * (due - time.monotonic())))

    return wait


def _map(options: Options, browser: Any, aims: list[Aim]) -> Table:
    """The map of a large network that changes ten times a second."""
    progress("console: map")
    seconds = 10.0 if options.is_quick else 60.0
    with _node() as node:
        page = _page(browser, node.url)
        wait = open_map(page)
        wait(5)
        ids = _chromium_ids()
        cpu, begun = cpu_s(ids), time.monotonic()
        drawn_hz = map_frames_hz(page, wait, seconds)
        share = (cpu_s(ids) - cpu) / (time.monotonic() - begun)
        page.evaluate(f"window.counted = ({_COUNT_FRAMES})(5)")
        wait(5.5)
        frames_hz, longest_ms = page.evaluate("window.counted")
        page.context.close()
    title = f"Map of {NODES} nodes, {number(LINKS)} links and {MAP_CHANNELS} channels at 10 Hz"
    table = Table(title, ["what", "measured"])
    table.add("maps drawn per second", number(drawn_hz, 1))
    table.add("frames per second", number(frames_hz, 1))
    table.add("longest frame, ms", number(longest_ms))
    table.add("CPU, % of a core", number(100 * share))
    aims.append(Aim("map: frames", "≥ 30 /s", f"{drawn_hz:.0f} /s", drawn_hz >= 30))
    return table


def _now_ms() -> int:
    return round(time.time() * 1_000)


def _row(turn: int) -> dict[str, float]:
    value = 100 + turn % 37
    return {
        "last": value, "last_ms": _now_ms(), "count": turn, "mean": value - 0.5, "deviation": 1.5,
        "trend": 0.25,
    }  # fmt: skip


def _many(browser: Any, aims: list[Aim]) -> Table:
    """Tables of 10,000 rows: what the viewer waits, and what the node sends."""
    table = Table(
        f"{number(_MANY)} channels and {number(_MANY)} clients",
        ["page", "sort ms", "search ms", "largest state KB", "largest patch KB", "KB/s"],
    )
    with _node(_MANY_LIMITS) as node, connect_client(node.port, "filler") as filler:
        progress("console: 10,000 channels and clients")
        staying = Mqtt(5, session_s=3_600)
        for each in range(_MANY):
            frame = staying.message(f"site/{each % 100:02}/sensor/{each:05}", b"21.5", 1)
            filler.sendall(frame)
            connect_client(node.port, f"client-{each:05}", staying).close()
        time.sleep(2)
        for name, sorted_by in (("channels", "channel"), ("clients", "client")):
            page = _page(browser, node.url)
            frames: list[str] = []
            page.on("websocket", lambda stream, frames=frames: _listen(stream, frames))
            page.goto(f"/{name}")
            page.wait_for_selector("main table tbody tr[data-index] bdi")
            page.wait_for_timeout(1_000)
            # The first click may change nothing: rows with equal values are shown by name.
            page.locator("main th button").get_by_text(sorted_by, exact=True).click()
            page.wait_for_timeout(1_000)
            sort_ms = [page.evaluate(_CHANGE, ["sort", sorted_by]) for _ in range(7)]
            search_ms = [
                page.evaluate(_CHANGE, ["search", text])
                for text in ("0777", "42", "00123", "9", "05000", "31")
            ]
            begun, before = time.monotonic(), len(frames)
            page.wait_for_timeout(5_000)
            span = time.monotonic() - begun
            size = sum(map(len, frames[before:])) / span
            states = [len(each) for each in frames if '"state"' in each[:60]]
            patches = [len(each) for each in frames if '"patch"' in each[:60]]
            page.context.close()
            table.add(
                name,
                number(median(sort_ms)),
                number(median(search_ms)),
                number(max(states, default=0) / 1e3, 1),
                number(max(patches, default=0) / 1e3, 1),
                significant(size / 1e3),
            )
            for what, found in (("sort", sort_ms), ("search", search_ms)):
                middle = median(found)
                aims.append(Aim(f"{name}: {what}", "≤ 100 ms", f"{middle:.0f} ms", middle <= 100))
            largest = max(states, default=0) / 1e3
            aims.append(
                Aim(f"{name}: a message", "bounded: ≤ 512 KB", f"{largest:.0f} KB", largest <= 512)
            )
    table.notes.append(
        "From the click or the last key until the other rows are drawn: with the way to the node "
        "and back, and for a search with the 30 ms for which the page waits for further keys."
    )
    return table


def _listen(stream: Any, frames: list[str]) -> None:
    if "/live" in stream.url:
        stream.on("framereceived", lambda frame: frames.append(str(frame)))
