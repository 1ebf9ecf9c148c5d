"""`accord net`, against the API over a fake overlay."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from collections.abc import Iterator

import argon2
import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from accord.cli.net import draw_net, required_text, share_text, why_no_routes
from accord.core.overlay.arrival_rates import WINDOW_S, RecentRates
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.route_trace import traces
from accord.core.overlay.status import (
    ChannelStatus,
    NetStatus,
    ParentStatus,
    RefusedLinkStatus,
    TierStatus,
    TransitCounts,
    TransportStatus,
)
from accord.core.router.rights import Rights
from accord.runtime.users import User, Users
from accord.terminal.rows import microseconds as time_text
from tests.cli.net_server import lines, run, serving
from tests.cli.test_terminal import ACCORD, ENVIRONMENT
from tests.cli.watching import watch
from tests.fake_net import FakeNet, five_cities, flow, link, route

PASSWORD = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("x")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    net = FakeNet()
    for definition in (
        ChannelDefinition("uav/#", max_delay_us=200_000, paths=2),
        ChannelDefinition("log", template="local"),
    ):
        assert net.create_channel(definition, replace=False) is None
    with serving(net) as running:
        yield running


def shown(status: NetStatus, lately: RecentRates | None = None, **options: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=140).print(draw_net(status, lately, **options))
    found = [" ".join(line.split()) for line in output.getvalue().splitlines()]
    return [line for line in found if line and "──" not in line]


def part(text: list[str], title: str) -> list[str]:
    """The lines of a table, up to the next one."""
    start = text.index(title) + 1
    return text[start:]


class TestScreen:
    def test_what_channels_go_by(self) -> None:
        rules = (
            TransportStatus(
                channels=("video/#", "audio"), transport="multicast", copies=1_200, kept=3
            ),
            TransportStatus(channels=("log/#",), transport="tcp"),
        )
        heard = shown(replace(five_cities(), transports=rules))
        assert part(heard, "channels transport copies kept on tcp")[:2] == [
            "video/#, audio multicast 1,200 3, which must not be lost",
            "log/# tcp 0 –",
        ]

    def test_what_it_says(self, url: str) -> None:
        heard = lines(run(url, "net", width=140))
        assert heard[:2] == [
            "seattle 5 of 6 nodes reachable · 4 of 5 links up · 2 flows, 2 lacking something",
            "no link with 10.0.0.9:7400: connection refused; see whether a node listens there",
        ]
        assert part(heard, "node state interests delay")[:6] == [
            "denver reachable – 120 µs",
            "losangeles reachable – –",
            "orlando reachable 1 –",
            "seattle this node – –",
            "tampa unreachable – –",
            "washington reachable 2 –",
        ]
        assert part(heard, "link state forward reverse loss availability")[:5] == [
            "denver – orlando up 50 ms 50 ms 0.0 % 100.0 %",
            "denver – seattle up 31 ms 30 ms 0.0 % 100.0 %",
            "denver – washington down – 45 ms 0.0 % 100.0 %",
            "losangeles – seattle up 40 ms 40 ms 0.0 % 100.0 %",
            "losangeles – washington up 60 ms 60 ms 0.0 % 100.0 %",
        ]
        assert part(heard, "channel requires met delivered in time defined at")[:2] == [
            "log stays on its node – – – seattle",
            "uav/# within 200 ms, 2 paths by 1 of 2 flows 1,000 99.6 % seattle",
        ]
        required, state = "within 200 ms, 2 paths", "in use, 1 of 2 paths"
        assert part(heard, "from to requires route delay state")[:2] == [
            f"seattle washington {required} seattle → losangeles → washington 100 ms {state}",
            f"seattle orlando {required} seattle → denver → orlando 80 ms {state}",
        ]
        assert part(heard, "at from channel delivered late in time") == [
            "washington seattle uav/imagery 1,000 4 99.6 %",
            "orlando seattle chat 7 – 100 %",
            "at this node: 3 retransmitted; copies lost: 2 no route, 1 deadline passed",
        ]

    def test_a_node_that_nobody_has_linked_with_yet(self) -> None:
        alone = replace(
            five_cities(),
            nodes=five_cities().nodes[3:4],
            links=(),
            flows=(),
            arrivals=(),
            carried=TransitCounts(),
            links_down=(),
            problem="two nodes are called seattle\x1b[2J",
        )
        assert shown(alone) == [
            "seattle 1 of 1 node reachable · 0 of 0 links up",
            r"two nodes are called seattle\x1b[2J",
            "node state interests delay",
            "seattle this node – –",
        ]

    def test_who_was_refused_and_what_was_widened(self) -> None:
        refused = RefusedLinkStatus(
            node="denver",
            address="10.0.0.7",
            problem="another node denver is linked with seattle, and alive",
            remedy="give each node a name of its own",
            attempts=12,
            since_s=75,
        )
        heard = shown(
            replace(five_cities(), links_down=(), refused=(refused,), interests_aggregated=2_600)
        )
        assert " ".join(heard[1:5]).startswith(
            "interests aggregated: 2,600 filters of clients here exceed the announcement budget, "
            "so other nodes send more events than they want "
            "refused denver at 10.0.0.7 (12 times in 75 s): another node denver is linked with "
            "seattle, and alive; give each node a name of its own"
        )

    def test_links_that_nobody_can_tell_of(self) -> None:
        status = five_cities()
        away = (link("tampa", "miami", 1_000), link("miami", "tampa", 1_000))
        text = shown(replace(status, links=(*status.links, *away, link("x", "seattle", 9))))
        assert "miami – tampa not known 1 ms 1 ms 0.0 % 100.0 %" in text
        assert "seattle – x up – 9 µs 0.0 % 100.0 %" in text

    def test_routes(self) -> None:
        routes = (
            route("a", "b", "c", delay_us=500),
            route("a", "c", delay_us=30_000, state="setting up"),
        )
        status = replace(
            five_cities(), flows=(flow("a", "c", *routes), flow("a", "d", max_delay_us=0))
        )
        text = part(shown(status), "from to requires route delay state")
        assert text[:3] == [
            "a c within 200 ms, 2 paths a → b → c 500 µs in use, 1 of 2 paths",
            "a → c 30 ms setting up",
            "a d 2 paths – – no route",
        ]

    def test_more_than_fits(self) -> None:
        text = shown(five_cities(), rows=2)
        assert "… and 4 more (--json has all)" in text
        assert "… and 3 more (--json has all)" in text
        assert not any(line.startswith("tampa") for line in text)

    def test_lately(self) -> None:
        lately = RecentRates()
        status = five_cities()
        first = status.arrivals[0]
        lately.sample(status, 100.0)
        assert shown(status, lately)[-3].endswith("99.6 % 0 –")
        later = replace(status, arrivals=(replace(first, delivered=1_100, late=5),))
        lately.sample(later, 105.0)
        assert shown(later, lately)[-2].endswith("1,100 5 99.55 % 20 99 %")
        lately.sample(later, 100.0 + WINDOW_S)
        assert lately.rate_hz(later.arrivals[0]) == 10
        lately.sample(later, 105.0 + WINDOW_S)
        assert lately.rate_hz(later.arrivals[0]) == 0

    def test_a_node_that_began_anew(self) -> None:
        lately = RecentRates()
        status = five_cities()
        lately.sample(status, 0.0)
        again = replace(status, arrivals=(replace(status.arrivals[0], delivered=50, late=1),))
        lately.sample(again, 10.0)
        assert lately.rate_hz(again.arrivals[0]) == 5
        assert lately.counts(again.arrivals[0]) == (50, 1)


class TestWords:
    def test_requirements(self) -> None:
        assert required_text(0, 1, 0) == "any route"
        assert required_text(250, 2, 0.999) == "within 250 µs, 2 paths, resiliency 0.999"
        assert required_text(1_500_000, 1, 0) == "within 1.5 s"

    def test_times(self) -> None:
        assert [time_text(each) for each in (0, 7, 1_000, 1_230, 99_960, 100_000, 12_000_000)] == [
            *("0 ms", "7 µs", "1 ms", "1.23 ms", "100 ms", "100 ms", "12 s"),
        ]

    def test_shares(self) -> None:
        assert [
            share_text(*each) for each in ((0, 0), (1, 1), (0, 4), (1, 3), (99_999, 100_000))
        ] == [
            *("–", "100 %", "0 %", "33.33 %", "99.99 %"),
        ]


class TestTrace:
    def test_hop_by_hop(self, url: str) -> None:
        heard = lines(run(url, "net", "trace", "uav/imagery"))
        state = "within 200 ms, 2 paths: lacking: 1 of 2 paths, resiliency 0.9996"
        assert heard == [
            f"uav/imagery from seattle to washington, {state}",
            "route 1, in use: 100 ms of 200 ms, 100 ms to spare",
            "hop link node so far slack loss",
            "seattle → losangeles 40 ms – 40 ms 50 ms 0.0 %",
            "losangeles → washington 60 ms – 100 ms 50 ms 0.0 %",
            f"uav/imagery from seattle to orlando, {state}",
            "route 1, in use: 80.1 ms of 200 ms, 120 ms to spare",
            "hop link node so far slack loss",
            "seattle → denver 30 ms 120 µs 30.1 ms 59.9 ms 0.0 %",
            "denver → orlando 50 ms – 80.1 ms 59.9 ms 0.0 %",
        ]

    def test_filters_and_other_channels_on_the_way(self, url: str) -> None:
        heard = lines(run(url, "net", "trace", "uav/#"))
        assert "carries uav/imagery" in heard

    def test_json(self, url: str) -> None:
        heard = run(url, "net", "trace", "uav/imagery", "--json")
        first, second = map(json.loads, heard.stdout.splitlines())
        assert [each["destination"] for each in (first, second)] == ["washington", "orlando"]
        assert first["routes"][0]["margin_us"] == 100_000
        assert sum(hop["slack_us"] for hop in first["routes"][0]["hops"]) == 100_000

    def test_nothing_to_walk(self, url: str) -> None:
        assert lines(run(url, "net", "trace", "chat")) == [
            "no node sends events of chat to another now: there is no route to walk"
        ]
        assert run(url, "net", "trace", "uav/#/x").exit_code == 2

    def test_what_goes_otherwise(self) -> None:
        def said(template: str, tier: TierStatus | None = None) -> str:
            channel = ChannelStatus(
                name="uav/imagery",
                template=template,
                max_delay_us=0,
                paths=1,
                resiliency=0,
                node="a",
            )
            status = replace(five_cities(), channels=(channel,), tier=tier)
            assert traces(status, "uav/imagery") == []
            return why_no_routes(status, "uav/imagery")

        assert said("total_order") == (
            "uav/imagery is total_order: its events go by a tree, not by routes"
        )
        assert said("flooded") == "uav/imagery is flooded: that template decides, not routes"
        assert said("local") == "uav/imagery is local: its events stay on their node"
        parent = ParentStatus(name="denver", is_linked=True, is_active=True, is_standby=False)
        assert said("reliable", TierStatus(parents=(parent,))) == (
            "events of uav/imagery go by the parents of seattle: denver"
        )

    def test_what_takes_too_long_and_what_is_down(self) -> None:
        status = five_cities()
        slow = flow(
            "seattle",
            "washington",
            route("seattle", "denver", "washington", delay_us=75_000),
            max_delay_us=50_000,
        )
        (trace,) = traces(replace(status, flows=(slow,)), "uav/imagery")
        assert trace.lacks == "too slow"
        (found,) = trace.routes
        assert [hop.is_up for hop in found.hops] == [True, False]
        assert (found.delay_us, found.margin_us) == (30_120, 19_880)
        tight = traces(replace(status, flows=(replace(slow, max_delay_us=10_000),)), "uav/imagery")
        assert tight[0].routes[0].margin_us == -20_120
        assert {hop.slack_us for hop in tight[0].routes[0].hops} == {0}

    def test_any_time_will_do(self) -> None:
        status = replace(
            five_cities(), flows=(flow("a", "b", route("a", "b", delay_us=5), max_delay_us=0),)
        )
        (trace,) = traces(status, "uav/imagery")
        assert trace.routes[0].margin_us is None
        assert trace.routes[0].hops[0].slack_us is None

    def test_flows_that_do_not_name_all_they_carry(self) -> None:
        status = FakeNet().status()
        full = replace(status.flows[0], max_delay_us=0, paths=1, channels=("x",), has_more=True)
        (trace,) = traces(replace(status, flows=(full, status.flows[1])), "chat")
        assert not trace.is_named
        assert traces(replace(status, flows=(replace(full, paths=2),)), "chat") == []


class TestCommand:
    def test_json(self, url: str) -> None:
        heard = run(url, "net", "--json")
        assert msgspec.json.decode(heard.stdout, type=NetStatus).flows == five_cities().flows

    def test_options_in_front_of_a_command(self, url: str) -> None:
        heard = run("", "net", "--url", url, "trace", "uav/imagery")
        assert heard.exit_code == 2
        assert "accord net: expected options after trace" in heard.stderr

    def test_nobody_there(self, dead_url: str) -> None:
        heard = run(dead_url.replace("mqtt", "http"), "net")
        assert heard.exit_code == 2
        assert "no node answers" in heard.stderr

    def test_an_old_node(self, url: str) -> None:
        heard = run(f"{url}/elsewhere", "net")
        assert heard.exit_code == 1
        assert "no GET /elsewhere/api/v1/net; check the address" in heard.stderr

    def test_rights(self) -> None:
        users = Users([User("bob", PASSWORD, Rights(statistics=False))])
        with serving(FakeNet(), users) as running:
            heard = run(running, "net", "--user", "bob", ACCORD_PASSWORD="x")  # noqa: S106
        assert heard.exit_code == 1
        assert "it takes the right may.statistics" in " ".join(heard.stderr.split())

    @pytest.mark.parametrize("form", [["--json"], []])
    def test_watching_through_a_pipe(self, url: str, form: list[str]) -> None:
        command = [*ACCORD, "net", "--watch", "--every", "10ms", "--url", url, *form]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
            assert process.stdout is not None
            start = b'{"node":"seattle"' if form else b"seattle  5 of 6"
            seen = 0
            while seen < 3:
                seen += process.stdout.readline().startswith(start)
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait() == 0


def test_watching_on_a_terminal() -> None:
    """The picture comes again and again, stays when the node goes, and Ctrl-C ends it."""
    command = [*ACCORD, "net", "--watch", "--every", "20ms"]
    reachable = "5 of 6 nodes reachable"
    before, after = watch(command, serving(FakeNet()), reachable, lines=40, columns=120)
    assert "in time recently" in before
    assert reachable in after
