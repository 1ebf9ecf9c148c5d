"""`accord channel …`, against the API over a fake overlay."""

from __future__ import annotations

import json
from collections.abc import Iterator

import argon2
import msgspec
import pytest

from accord.core.overlay.channel_directory import Channel, ChannelDefinition
from accord.core.router.rights import Rights
from accord.runtime.users import User, Users
from tests.cli.net_server import lines, run, serving
from tests.fake_net import FakeNet

PASSWORD = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("x")


class Site:
    def __init__(self, net: FakeNet, url: str) -> None:
        self.net = net
        self.url = url

    def failure(self, *arguments: str, exit_code: int = 2) -> str:
        heard = run(self.url, "channel", *arguments)
        assert heard.exit_code == exit_code, heard.output
        return " ".join(heard.stderr.split())

    def heard(self, *arguments: str) -> list[str]:
        return lines(run(self.url, "channel", *arguments))


@pytest.fixture
def site() -> Iterator[Site]:
    net = FakeNet()
    with serving(net) as url:
        yield Site(net, url)


def test_create(site: Site) -> None:
    create = ("create", "uav/imagery", "--template", "routed", "--max-delay", "200ms")
    heard = site.heard(*create, "--paths", "2", "--resiliency", "0.999")
    assert heard == [
        "channel uav/imagery",
        "template routed",
        "requires within 200 ms, 2 paths, resiliency 0.999",
        "defined at seattle",
    ]
    assert site.net.registry.all() == [
        ChannelDefinition("uav/imagery", max_delay_us=200_000, paths=2, resiliency=0.999)
    ]


def test_what_is_left_out_has_defaults(site: Site) -> None:
    heard = run(site.url, "channel", "create", "chat", "--json")
    assert json.loads(heard.stdout)["max_delay_ms"] == 0
    assert site.net.registry.get("chat") == ChannelDefinition("chat")


def test_options(site: Site) -> None:
    heard = site.heard("create", "voice", "--datagrams", "--option", "persistent=3d")
    assert heard[-1] == "options datagrams=true, persistent=3d"
    found = site.net.registry.get("voice")
    assert found is not None
    assert found.options == {"persistent": "3d", "datagrams": "true"}


def test_only_what_is_new_unless_it_is_to_be_replaced(site: Site) -> None:
    for _ in range(2):
        site.heard("create", "chat", "--paths", "2")
    failed = site.failure("create", "chat", exit_code=1)
    assert "'chat' is defined at node 'seattle' already" in failed
    assert "or replace it (--replace" in failed
    site.heard("create", "chat", "--replace")
    assert [each.paths for each in site.net.registry.all()] == [1]


def test_mistakes(site: Site) -> None:
    assert "NAME: " in site.failure("create", "uav/#/x")
    assert "--max-delay: expected a duration" in site.failure("create", "a", "--max-delay", "soon")
    assert "--option: expected NAME=VALUE" in site.failure("create", "a", "--option", "x")
    wrong = site.failure("create", "a", "--template", "best")
    assert "error: template: unknown template 'best'; expected one of local, routed" in wrong
    typo = site.failure("create", "a", "--template", "rooted")
    assert "unknown template 'rooted', did you mean routed? expected one of local, routed" in typo
    assert "error: paths: expected int <= 8" in site.failure("create", "a", "--paths", "99")
    assert "resiliency" in site.failure("create", "a", "--resiliency", "1.5")
    assert site.net.registry.all() == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--option", "hops=3"), "options.hops: the template has no such option, expected one of"),
        (
            ("--option", "slow_members=wait"),
            "slow_members: the template has no such option",
        ),
        (("--option", "datagram=true"), "did you mean datagrams?"),
        (("--option", "datagrams=perhaps"), "expected true or false, got 'perhaps'"),
        (("--option", "datagrams=true", "--template", "local"), "options.datagrams: the template"),
        (("--option", "persistent=1d", "--option", "persistent=2d"), "both '1d' and '2d' can't be"),
        (("--datagrams", "--option", "datagrams=false"), "--datagrams contradicts --option"),
        (("--max-delay", "200"), "--max-delay: expected a unit (ms, s, m, min, h), as in 200ms"),
    ],
)
def test_options_that_nobody_could_use(
    site: Site, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in site.failure("create", "a", *arguments)
    assert site.net.registry.all() == []


def test_channels_of_the_system_stay_where_they_are(site: Site) -> None:
    assert "channels that begin with $ stay on their node" in site.failure("create", "$SYS/#")


def test_ls(site: Site) -> None:
    assert site.heard("ls") == ["no channels are defined: events take the shortest route"]
    site.heard("create", "uav/#", "--max-delay", "1.5s")
    site.heard("create", "log", "--template", "local")
    assert site.heard("ls") == [
        "channel template requires met delivered late in time defined at",
        "log local stays on its node – – – – seattle",
        "uav/# routed within 1.5 s by 1 of 2 flows 1,000 4 99.6 % seattle",
    ]
    listed = run(site.url, "channel", "ls", "--json").stdout
    found = [msgspec.json.decode(line, type=Channel) for line in listed.splitlines()]
    assert [(each.name, each.max_delay_ms) for each in found] == [("log", 0), ("uav/#", 1_500)]


def test_show(site: Site) -> None:
    site.heard("create", "uav/#")
    assert site.heard("show", "uav/#")[-2:] == [
        "met by 1 of 2 flows",
        "in time 99.6 % (1,000 delivered, 4 late)",
    ]
    assert json.loads(run(site.url, "channel", "show", "uav/#", "--json").stdout)["late"] == 4
    assert "'chat' is not defined" in site.failure("show", "chat")
    wider = run(site.url, "channel", "show", "uav/imagery")
    assert wider.exit_code == 0
    assert "uav/imagery is not defined, but uav/# selects it" in wider.stderr
    assert wider.stdout == run(site.url, "channel", "show", "uav/#").stdout


def test_rm(site: Site) -> None:
    site.heard("create", "uav/#")
    assert site.heard("rm", "uav/#") == ["uav/# is not defined any more"]
    assert "'uav/#' is not defined" in site.failure("rm", "uav/#", exit_code=1)


def test_rm_of_what_the_configuration_says(site: Site) -> None:
    site.heard("create", "chat")
    site.net.configured = ("chat",)
    assert "its accord.toml defines it" in run(site.url, "channel", "remove", "chat").stderr


def test_ls_shows_options_and_where_templates_lack(site: Site) -> None:
    site.heard("create", "voice", "--datagrams")
    site.heard("create", "log", "--template", "local")
    site.net.missing_at = ("denver", "orlando")
    heard = lines(run(site.url, "channel", "list", width=200))
    assert [each.split("seattle")[1] for each in heard[1:]] == [
        " – denver, orlando",
        " datagrams=true denver, orlando",
    ]


def test_a_pipe_gets_rows_whole(site: Site) -> None:
    name = "/".join(["fleet", "a-long-name-of-a-region", "a-long-name-of-a-depot", "telemetry"] * 2)
    site.heard("create", name, "--max-delay", "1.5s", "--persistent")
    heard = lines(run(site.url, "channel", "ls", width=None))
    assert [row.split()[0] for row in heard] == ["channel", name]


def test_rights() -> None:
    users = Users([User("bob", PASSWORD, Rights(("#",), ("#",)))])
    with serving(FakeNet(), users) as running:
        url = running.replace("//", "//bob:x@")
        assert run(url, "channel", "ls").exit_code == 0
        heard = run(url, "channel", "create", "chat")
    assert heard.exit_code == 1
    words = " ".join(heard.stderr.split())
    assert "bob may not use channels.create" in words
    assert "it takes the right may.policies" in words
