"""Every view at the width of a small terminal, of a large one, and in a pipe: nothing is lost."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from accord.apps.five_cities.screen import draw_phase, draw_summary
from accord.apps.load.screen import show_report
from accord.cli.main import app
from accord.cli.quality import draw_properties, draw_quality
from accord.core.monitoring.ledger import event_id
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.queries.report import encode_report
from accord.terminal.screen import PIPE_WIDTH
from tests.apps.five_cities import test_screen as five_cities
from tests.apps.load import test_report as bench
from tests.cli import ledger_server, net_server
from tests.cli import test_quality as quality_samples
from tests.cli.http_answers import answering
from tests.cli.sample_report import sample_report
from tests.cli.test_policy import Site
from tests.cli.test_sim import SMALL
from tests.client.fake_archive import FakeArchive
from tests.fake_admission import FakeAdmission
from tests.fake_ledger import FIRST, FakeLedger
from tests.fake_net import FakeNet

ROOT = Path(__file__).parents[2]
WIDTHS = (80, 140)

# What must be read at a glance in each view, whole and in this order within its line.
COMMANDS = {
    "status --every 10ms": ("in out", "events/s", "subscriptions", "journal"),
    "top --once": ("channel", "expired/s replaced/s", "user", "limit", "patrol-2"),
    "why": ("event at channel to outcome took", "why", "queue full", "packet too large"),
    f"why {event_id(FIRST + 1)}": ("bravo expired", "importance 5, policy Reports"),
    "net": (
        "node state interests delay",
        "link state forward reverse loss availability",
        "denver – seattle",
    ),
    "net trace uav/imagery": ("hop link node so far slack loss", "seattle →"),
    "channel ls": ("channel template requires", "defined at", "uav/#", "within 200 ms, 2 paths"),
    "channel show uav/#": ("requires within 200 ms, 2 paths",),
    "admission": ("filter rate count own", "node resource", "client filter", "see above"),
    "admission check stock --where 'price > 2'": ("at least at most", "Yes: nothing"),
    "policy list": ("policy precedence applies to", "gives", "on patrol/#"),
    "policy show": ('name = "Report"',),
    "policy limit": ("none",),
    "policy history": ("version changed by what", "1 20"),
    "policy presets": ("preferences mean", "BFTrack within 15 s"),
    "policy apply examples/policies.toml --dry-run": ("client operation channel", "desk-1"),
    "policy explain --file examples/policies.toml --client desk-1 --group analysts "
    "--channel uav/imagery --publisher raven-7": ("setting value", "does not apply asks for"),
    "report": ("outcome cause channel", "events", "share", "blue-force/position"),
    "predicate match TRUE": ("line channel attributes", "12 grid/feeder feeder='F-14'"),
    "predicate explain 'altitude_m > 300 AND platform = \"UAV\"'": ("canonical", "all of"),
    "sim run SCENARIO --seed 7": ("seed nodes virtual s", "seed channel published", "uav/imagery"),
}  # fmt: skip

Urls = dict[str, str]


@pytest.fixture(scope="module")
def urls() -> Iterator[Urls]:
    net = FakeNet()
    channel = ChannelDefinition("uav/#", max_delay_us=200_000, paths=2)
    assert net.create_channel(channel, replace=False) is None
    report = encode_report(sample_report())
    with ExitStack() as stack:
        found = stack.enter_context(net_server.serving(net, admission=FakeAdmission()))
        ledger = stack.enter_context(ledger_server.serving(FakeLedger().fill()))
        site = stack.enter_context(Site())
        run({"policy": site.url}, "policy strategy strict", None)
        yield {
            **dict.fromkeys(("status", "net", "channel", "admission"), found),
            **dict.fromkeys(("why", "top"), ledger),
            "policy": site.url,
            "report": stack.enter_context(answering(lambda _: (200, report))),
        }


def run(urls: Urls, line: str, width: int | None) -> str:
    """As on a terminal of that width, or in a pipe."""
    arguments = shlex.split(line)
    environment: dict[str, str | None] = {
        **({"COLUMNS": None} if width is None else {"COLUMNS": str(width), "FORCE_COLOR": "1"}),
        "TERM": "dumb",
        "LINES": "100",
        "ACCORD_HTTP_URL": urls.get(arguments[0], ""),
    }
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def words(text: str) -> list[str]:
    """But for marks of nothing, which are left out of lines that would have nothing else."""
    return sorted(text.translate({ord("─"): "", ord("–"): "", ord("·"): ""}).split())


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(line: str, urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SMALL)
    command = line.replace("SCENARIO", str(scenario))
    piped = run(urls, command, None)
    for width in WIDTHS:
        shown = run(urls, command, width)
        assert max(map(len, shown.splitlines())) <= width
        assert words(shown) == words(piped)
        lines = [" ".join(each.split()) for each in shown.splitlines()]
        for wanted in COMMANDS[line]:
            assert any(wanted in each for each in lines), (wanted, shown)
        assert run(urls, command, width) == shown


def drawn(*things: RenderableType) -> Callable[[Console], None]:
    return lambda console: console.print(*things, sep="\n")


SCREENS: dict[str, tuple[Callable[[Console], None], tuple[str, ...]]] = {
    "demo five-cities": (
        drawn(draw_phase(five_cities.PHASE)),
        ("channel limit path expected", "+ Seattle → Los Angeles → Washington 38 ms"),
    ),
    "summary of demo five-cities": (
        drawn(draw_summary([five_cities.PHASE])),
        ("phase channel late violated gap settled median max",),
    ),
    "quality": (
        drawn(draw_quality(quality_samples.STATUS), draw_properties(quality_samples.PROPERTIES)),
        ("publisher offers", "used by utility", "expectation of expects", "state", "why"),
    ),
    "bench": (
        lambda console: show_report(console, bench.report(bench.result())),
        ("events per second MB/s", "latency p50 p90 p99 max"),
    ),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screens(name: str) -> None:
    draw, wanted = SCREENS[name]
    shown = {}
    for width in (*WIDTHS, PIPE_WIDTH):
        console = Console(width=width, color_system=None)
        with console.capture() as captured:
            draw(console)
        shown[width] = captured.get()
        assert max(map(len, shown[width].splitlines())) <= width
        lines = [" ".join(each.split()) for each in shown[width].splitlines()]
        for each in wanted:
            assert any(each in line for line in lines), (each, shown[width])
    assert words(shown[80]) == words(shown[140]) == words(shown[PIPE_WIDTH])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_query_has_a_header_and_a_line_for_each_event(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = FakeArchive(3)
    monkeypatch.setattr("accord.client.session.transport_with", lambda _: archive.open)
    header, *lines = run({}, "query uav/#", width).strip().splitlines()
    assert header.split() == ["time", "id", "channel", "attributes,", "payload"]
    assert [line[header.index("id") :].split() for line in lines] == [
        [str(number), "uav/imagery", f"n={number}", "payload"] for number in (2, 1, 0)
    ]


def test_a_query_in_a_pipe_has_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = FakeArchive(3)
    monkeypatch.setattr("accord.client.session.transport_with", lambda _: archive.open)
    lines = run({}, "query uav/#", None).splitlines()
    assert [line.split()[2:] for line in lines] == [
        [str(number), "uav/imagery", f"n={number}", "payload"] for number in (2, 1, 0)
    ]
