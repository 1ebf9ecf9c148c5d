"""`accord report`, against a node that has one ready."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from lxml import etree
from rich.console import Console
from typer.testing import CliRunner, Result

from accord.apps.report.page import page, plots
from accord.apps.report.sections import share_text, totals
from accord.cli.main import app
from accord.cli.report import draw_report
from accord.core.queries.report import Report, decode_report, encode_report
from tests.cli.http_answers import answering
from tests.cli.sample_report import NASTY, SINCE_MS, UNTIL_MS, sample_report

EMPTY = Report(node="denver", since_ms=SINCE_MS, until_ms=UNTIL_MS)


class FakeNode:
    """Answers each question the same; `paths` are those asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.code = 200
        self.body = encode_report(sample_report())

    def asked(self) -> dict[str, list[str]]:
        parts = urlsplit(self.paths[-1])
        assert parts.path == "/api/v1/report"
        return parse_qs(parts.query)

    @contextmanager
    def serving(self) -> Iterator[str]:
        def answer(path: str) -> tuple[int, bytes]:
            self.paths.append(path)
            return self.code, self.body

        with answering(answer) as url:
            yield url


class Asking(FakeNode):
    def __init__(self, url: str = "") -> None:
        super().__init__()
        self.url = url

    def __call__(self, *arguments: str) -> Result:
        environment = {"COLUMNS": "100", "ACCORD_HTTP_URL": self.url}
        return CliRunner().invoke(app, ["report", *arguments], env=environment)


@pytest.fixture
def asking() -> Iterator[Asking]:
    asking = Asking()
    with asking.serving() as asking.url:
        yield asking


class TestCommand:
    def test_of_the_last_hour(self, asking: Asking) -> None:
        shown = asking()
        assert (shown.exit_code, shown.stderr) == (0, "")
        assert shown.stdout.startswith("denver  20")
        assert asking.asked() == {}  # the last hour of all channels

    def test_of_some_time(self, asking: Asking) -> None:
        arguments = ("--since", "2026-11-01", "--until", "2026-11-02T12:00:00Z")
        assert asking(*arguments, "--channel", "uav/#").exit_code == 0
        assert asking.asked() == {
            "since": ["2026-11-01"],
            "until": ["2026-11-02T12:00:00Z"],
            "channel": ["uav/#"],
        }

    def test_json_is_the_whole_report(self, asking: Asking) -> None:
        shown = asking("--last", "7d", "--json")
        assert decode_report(shown.stdout_bytes) == sample_report()

    def test_a_page(self, asking: Asking, tmp_path: Path) -> None:
        path = tmp_path / "report.html"
        shown = asking("--html", str(path))
        assert (shown.exit_code, shown.stdout) == (0, "")
        assert path.read_text("utf-8").startswith("<!doctype html>")
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["--last", "soon"], "--last: expected a time"),
            (["--since", "x"], "--since: expected a time"),
            (["--until", "x"], "--until: expected a time"),
            (["--since", "-1h", "--until", "-2h"], "--until: expected a time after -1h"),
            (["--channel", "a/#/b"], "--channel: expected '#'"),
        ],
    )
    def test_mistakes(self, asking: Asking, arguments: list[str], problem: str) -> None:
        shown = asking(*arguments)
        assert shown.exit_code == 2
        assert shown.stderr.startswith(f"error: {problem}")
        assert asking.paths == []

    def test_two_beginnings(self, asking: Asking) -> None:
        assert asking("--last", "1h", "--since", "-2h").exit_code == 2

    def test_a_page_that_can_not_be_written(self, asking: Asking, tmp_path: Path) -> None:
        shown = asking("--html", str(tmp_path / "missing" / "x.html"))
        assert shown.exit_code == 2
        assert "no such file" in shown.stderr

    def test_no_matplotlib(
        self, asking: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        shown = asking("--html", str(tmp_path / "x.html"))
        assert shown.exit_code == 2
        assert "pip install 'accord[pipeline]'" in shown.stderr
        assert asking.paths == []

    def test_what_the_node_says(self, asking: Asking) -> None:
        asking.code, asking.body = 503, b'{"status": 503, "detail": "the data pipeline is off"}'
        assert asking().stderr == "error: the data pipeline is off\n"
        asking.code = 400
        asking.body = b'{"status": 400, "detail": "too long ago", "place": "since"}'
        assert asking().stderr == "error: since: too long ago\n"
        asking.code, asking.body = 200, b"[]"
        assert "does not answer like a node" in asking().stderr


def drawn(report: Report, width: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width, markup=False).print(draw_report(report))
    return output.getvalue().splitlines()


class TestScreen:
    @pytest.mark.parametrize("width", [60, 80, 110, 160])
    def test_fits(self, width: int) -> None:
        lines = drawn(sample_report(), width)
        assert max(map(len, lines)) <= width
        assert "\x1b" not in "\n".join(lines)

    def test_what_it_says(self) -> None:
        text = re.sub(" +", " ", "\n".join(drawn(sample_report(), 160)))
        for line in (
            "arrived 116,400, among them 6,000 late and 2,400 made smaller; 33/s, 33.3 KB/s",
            "in time > 99.9 %",
            "latency half within 800 µs, 95 % within 12.5 ms, 99 % within 2.14 s",
            "uav/imagery 50,000 14 > 99.9 % 800 µs 12.5 ms 2.14 s 2,500 1,000 1,000",
            "… and 8 more: --html, --json",
            "(none) 40 0 – – – – – – 40",
            "shed the outbox was full weather 900 22.5 % 3",
            "mobile-7 uav/imagery 12.5 ms 800 µs 9.00 ms > 99.9 % 4,000",
            "uav/# altitude_m > 300 AND platform = 'UAV' 4 1,200 40,000 3 % 0.3",
            "7 more predicates not measured",
            "camera-1 uav/imagery 40,000 11 80.0 MB 160,000 4",
        ):
            assert line in text

    def test_a_quiet_hour(self) -> None:
        text = "\n".join(drawn(EMPTY, 80))
        assert "everything arrived, whole and in time" in text
        assert "nothing was kept" in text
        assert dict(totals(EMPTY))["in time"] == "–"

    def test_shares_are_never_rounded_to_all_or_nothing(self) -> None:
        shares = (0.0, 0.0001, 0.5, 0.999, 0.99999, 1.0)
        texts = ["0 %", "< 0.1 %", "50 %", "99.9 %", "> 99.9 %", "100 %"]
        assert [share_text(share) for share in shares] == texts


class Reading(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value is not None:
                self.links.append(value)
            if name == "id" and value is not None:
                self.ids.append(value)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


class TestPage:
    def test_stands_alone_and_runs_nothing(self) -> None:
        text = page(sample_report())
        read = Reading(text)
        assert "script" not in read.tags
        assert all(link.startswith("#") for link in read.links)
        assert {link[1:] for link in read.links} <= set(read.ids)
        assert "\x1b" not in text
        assert "default-src 'none'" in text
        shown = NASTY.replace("\x1b", "\\x1b")
        assert read.texts.count(shown) >= 6

    def test_has_tables_and_plots(self) -> None:
        read = Reading(page(sample_report()))
        assert read.tags.count("svg") == read.tags.count("figure") == 4
        assert read.tags.count("table") == 6
        assert "sensor/11" in read.texts  # all rows, not just the first

    def test_plots_are_pictures_that_share_nothing(self) -> None:
        names: list[str] = []
        for title, picture in plots(sample_report()):
            root = etree.fromstring(picture.encode())
            assert "width" not in root.attrib, title
            names += [str(each.get("id")) for each in root.iterfind(".//*[@id]")]
        assert names
        assert len(names) == len(set(names))

    def test_a_quiet_hour(self) -> None:
        read = Reading(page(EMPTY))
        assert "svg" not in read.tags
        assert "nothing was delivered" in read.texts
