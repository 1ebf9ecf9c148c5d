"""What a configuration says about other nodes, and about channels on their way to them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from accord.config import ConfigError, parse
from accord.config.net import net_options
from accord.config.settings import (
    ChannelSettings,
    FailureSettings,
    MulticastSettings,
    NetSettings,
    TransportRuleSettings,
)
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.discovery import DiscoveryOptions
from accord.core.overlay.options import OverlayOptions, TransportRule
from accord.runtime.addresses import SocketAddress
from accord.runtime.dialler import TransportOptions
from accord.runtime.multicast_links import MulticastOptions
from accord.runtime.overlay_service import NetOptions

WHOLE = """
[net]
listen = ["127.0.0.1:7400", "ws://127.0.0.1:7480/links"]
neighbours = ["tcp://127.0.0.1:7401", "[::1]:7402"]
proxy = "http://127.0.0.1:3128"
ping_bytes_per_s = 5000
discover = true
discover_links = 3
announce = "ws://far.example.org:80/links"
ping_ms = 200

[[net.transports]]
channels = "video/#"
transport = "udp"

[net.failures]
links = { denver = 0.02 }
nodes = { boise = 0.1 }

[[net.transports]]
channels = ["a", "b/+"]
transport = "tcp"

[net.multicast]
group = "239.17.4.1:7410"
interface = "127.0.0.1"

[channels."uav/#"]
max_delay_ms = 200
paths = 2
resiliency = 0.999
datagrams = true

[channels.log]
template = "local"
resiliency = 1
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(text, file="a.toml")
    return str(error.value).splitlines()


def test_a_whole_file() -> None:
    config = parse(WHOLE)
    assert config.net == NetSettings(
        listen=(SocketAddress("127.0.0.1", 7400), SocketAddress("127.0.0.1", 7480, "ws", "/links")),
        neighbours=(SocketAddress("127.0.0.1", 7401), SocketAddress("::1", 7402)),
        proxy="http://127.0.0.1:3128",
        ping_bytes_per_s=5_000,
        discover=True,
        discover_links=3,
        announce=(SocketAddress("far.example.org", 80, "ws", "/links"),),
        ping_ms=200,
        transports=(
            TransportRuleSettings(channels=("video/#",), transport="udp"),
            TransportRuleSettings(channels=("a", "b/+"), transport="tcp"),
        ),
        multicast=MulticastSettings(
            group=(SocketAddress("239.17.4.1", 7410),), interface="127.0.0.1", hops=1
        ),
        failures=FailureSettings(links={"denver": 0.02}, nodes={"boise": 0.1}),
    )
    assert config.channels == (
        ChannelSettings(name="uav/#", max_delay_ms=200, paths=2, resiliency=0.999, datagrams=True),
        ChannelSettings(name="log", template="local", resiliency=1.0),
    )


def test_what_a_node_takes_of_it() -> None:
    assert net_options(parse(WHOLE)) == NetOptions(
        listen=(SocketAddress("127.0.0.1", 7400), SocketAddress("127.0.0.1", 7480, "ws", "/links")),
        neighbours=(SocketAddress("127.0.0.1", 7401), SocketAddress("::1", 7402)),
        transports=TransportOptions(proxy=urlsplit("http://127.0.0.1:3128")),
        overlay=OverlayOptions(
            ping_us=200_000,
            ping_bytes_per_s=5_000,
            link_failures={"denver": 0.02},
            node_failures={"boise": 0.1},
        ),
        discover=DiscoveryOptions(max_links=3),
        announce=(SocketAddress("far.example.org", 80, "ws", "/links"),),
        channels=(
            ChannelDefinition(
                "uav/#",
                max_delay_us=200_000,
                paths=2,
                resiliency=0.999,
                options={"datagrams": "true"},
            ),
            ChannelDefinition("log", template="local", resiliency=1.0),
        ),
        multicast=MulticastOptions(group=SocketAddress("239.17.4.1", 7410), interface="127.0.0.1"),
        transport_rules=(TransportRule(("video/#",), "udp"), TransportRule(("a", "b/+"), "tcp")),
    )


def test_options_of_a_channel() -> None:
    text = """
[channels."chat/#"]
template = "total_order"
[channels."chat/#".options]
slow_members = "wait"
stall_timeout_ms = 5_000
spanner = 1.5
persistent = true
[channels.voice]
datagrams = true
options = { persistent = "7d" }
[channels.alarms]
template = "of_another_node"
options = { hops = 3 }
"""
    chat, voice, alarms = net_options(parse(text)).channels
    assert chat == ChannelDefinition(
        "chat/#",
        template="total_order",
        options={
            "slow_members": "wait",
            "stall_timeout_ms": "5000",
            "spanner": "1.5",
            "persistent": "true",
        },
    )
    assert voice.options == {"datagrams": "true", "persistent": "7d"}
    assert alarms.options == {"hops": "3"}, "who has the template checks them"


def test_a_node_by_itself() -> None:
    assert net_options(parse("[net]\nping_ms = 100")).is_alone
    assert net_options(parse("[net]\ndiscover = true")).is_alone, "it can find nobody"
    group = "[net.multicast]\ngroup = '239.1.1.1:7'\ninterface = '127.0.0.1'"
    assert not net_options(parse(f"[net]\ndiscover = true\n{group}")).is_alone


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("net.listen = 'x'", "1: net.listen: expected HOST:PORT"),
        ("net.listen = 'http://a:1'", "1: net.listen: expected HOST:PORT, ws://HOST:PORT/PATH"),
        ("net.proxy = 'ann:secret@proxy'", "1: net.proxy: expected the URL of a proxy, such as"),
        ("net.listen = 'wss://127.0.0.1:1'", "1: net.listen: expected a certificate and its key"),
        ("net.neighbours = 'wss://far/'", "1: net.neighbours: expected HOST:PORT, ws://HOST"),
        ("net.neighbours = 'wss://far:443/'", "1: net.neighbours: wss://far:443 is another"),
        ("net.ping_ms = 9", "1: net.ping_ms: expected 10 to 60000, got 9"),
        ("net.encrypted = true", "1: net.encrypted: expected a certificate and its key under"),
        (
            "[net]\nlisten = '0.0.0.0:7400'",
            "2: net.listen: 0.0.0.0:7400 is another machine: expected a secret that all nodes",
        ),
        ("net.neighbours = 'far:7400'", "1: net.neighbours: far:7400 is another machine"),
        (
            "[[net.transports]]\nchannels = 'a'\ntransport = 'pigeon'",
            '3: net.transports[1].transport: expected one of "multicast", "tcp", "udp", got',
        ),
        (
            "[[net.transports]]\nchannels = 'a'",
            "net.transports[1].transport: expected, but missing",
        ),
        (
            "[[net.transports]]\nchannels = 'a'\ntransport = 'multicast'",
            "3: net.transports[1].transport: expected a group under [net.multicast]",
        ),
        (
            "[net.multicast]\ngroup = '10.0.0.1:7'",
            "2: net.multicast.group: expected an IPv4 multicast address and a port",
        ),
        (
            "[net.multicast]\ngroup = '239.1.1.1:7'",
            "2: net.multicast.group: other machines are in the group: expected a secret",
        ),
        (
            "[net.multicast]\ninterface = 'eth0'",
            "2: net.multicast.interface: expected an IPv4 address of this machine, got 'eth0'",
        ),
        (
            "net.transports = 3",
            "1: net.transports: expected tables with two brackets, [[transports]]",
        ),
        ("[[net.carry]]\nchannels = 'a'", "net.carry: unknown key, renamed to transports"),
        ("net.hello_bytes_per_s = 9", "unknown key, renamed to ping_bytes_per_s"),
        ("quality.patience_ms = 9", "unknown key, renamed to reaction_timeout_ms"),
        ("[channels]\nx = 3", "2: channels.x: expected a table, got 3"),
        ("channels = 3", "1: channels: expected tables, such as [channels.NAME], got 3"),
        ("[channels.'a#']", "1: channels.'a#': expected a wildcard to fill its whole level"),
        ("[channels.a]\npaths = 9", "2: channels.a.paths: expected 1 to 8, got 9"),
        ("[channels.a]\nresiliency = 1.5", "2: channels.a.resiliency: expected 0 to 1, got 1.5"),
        (
            "[channels.a]\nresiliency = 'high'",
            "2: channels.a.resiliency: expected a number, got 'high'",
        ),
        ("[channels.a]\nresiliency = true", "channels.a.resiliency: expected a number, got true"),
        ("[channels.a]\ntemplate = 'a b'", "2: channels.a.template: expected letters, digits"),
        ('[channels."uav/#"]\nmax_delay = 2', "2: channels.'uav/#'.max_delay: unknown key, did"),
        ("[channels.'$SYS/#']", "1: channels.'$SYS/#': expected no channel that begins with $"),
        ("[channels.a]\noptions = 3", "2: channels.a.options: expected a table such as"),
        (
            "[channels.a.options]\nspanner = [2]",
            "2: channels.a.options.spanner: expected text, true, false or a number, got a list",
        ),
        (
            "[channels.a]\ntemplate = 'reliable'\n[channels.a.options]\nslow_members = 'maybe'",
            "4: channels.a.options.slow_members: expected drop or wait, got 'maybe'",
        ),
        (
            "[channels.a]\noptions = { nonsense = 3 }",
            "2: channels.a.options.nonsense: the template has no such option, expected one of",
        ),
        (
            "[channels.a]\ntemplate = 'local'\ndatagrams = true",
            "3: channels.a.datagrams: the template has no such option",
        ),
        (
            "[channels.a]\ndatagrams = true\noptions = { datagrams = false }",
            "2: channels.a.datagrams: expected the same as in its options",
        ),
    ],
)
def test_mistakes(text: str, mistake: str) -> None:
    (found,) = mistakes(text)
    assert mistake in found
    assert found.startswith("a.toml:")


def test_other_machines_need_a_secret_or_certificates() -> None:
    far = "[net]\nlisten = '0.0.0.0:7400'\n"
    assert parse(f"{far}key_file = 'net.key'").net.key_file == "net.key"
    tls = "[tls]\ncertificate = 'node.pem'\nkey = 'node.key'\nclient_ca = 'nodes.pem'\n"
    assert parse(f"{far}encrypted = true\n{tls}").net.encrypted
    assert "is another machine" in mistakes(f"{far}{tls}")[0]
    web = "[net]\nencrypted = true\nneighbours = 'ws://far:80'\n"
    assert "is another machine" in mistakes(f"{web}{tls}")[0], "that one is not encrypted"
    assert parse(f"{web.replace('ws:', 'wss:')}{tls}").net.neighbours[0].scheme == "wss"


HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1$VHeqFfF6fYVyrtqNQ5X0xA$"
    "PpJwKMlxIkLCHVb0l5X6p3pOL1QprdOJ6WQCoY+pSlw"
)
USERS = f"[users.ann]\npassword = '{HASH}'\n"


@pytest.mark.parametrize(
    ("net", "place"),
    [
        ("[net]\nlisten = '127.0.0.1:7400'\n", "2: net.listen: any program on this machine"),
        ("[net]\nneighbours = 'localhost:7400'\n", "2: net.neighbours: any program on this"),
        (
            "[net]\ntier = 'secondary'\nneighbours = '[::1]:7400'\n",
            "3: net.neighbours: any program on this machine",
        ),
        (
            "[net.multicast]\ngroup = '239.1.1.1:7'\ninterface = '127.0.0.1'\n",
            "2: net.multicast.group: any program on this machine",
        ),
    ],
)
def test_where_users_need_passwords_nodes_need_a_key(net: str, place: str) -> None:
    parse(net)
    (mistake,) = mistakes(net + USERS)
    assert mistake.startswith(f"a.toml:{place}")
    assert "expected a secret that all nodes share (key_file" in mistake


def test_certificates_serve_users_nodes_as_well() -> None:
    tls = "[tls]\ncertificate = 'node.pem'\nkey = 'node.key'\n"
    here = "[net]\nlisten = '127.0.0.1:7400'\nencrypted = true\n"
    assert parse(f"{here}{tls}client_ca = 'nodes.pem'\n{USERS}").net.encrypted
    assert "any program" in mistakes(f"{here}{tls}{USERS}")[0], "clients need no certificate"
    assert parse(f"[net]\nlisten = '127.0.0.1:7400'\nkey_file = 'net.key'\n{USERS}").users


def test_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "net.key"
    config = parse("[net]\nkey_file = 'net.key'", file=str(tmp_path / "accord.toml"))
    with pytest.raises(ConfigError, match=r"net.key_file: can't be read: No such file"):
        net_options(config)
    file.write_bytes(b"short\n")
    with pytest.raises(ConfigError, match="expected a secret of 16 to 4096 bytes, got 5"):
        net_options(config)
    file.write_bytes(b"0123456789abcdef\n")
    assert net_options(config).key == b"0123456789abcdef"


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("links = { denver = 1.5 }", "net.failures.links.denver: expected 0 to 1, got 1.5"),
        ("nodes = 0.5", "net.failures.nodes: expected a table, got 0.5"),
    ],
)
def test_a_probability_of_failure_is_a_share(setting: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(f"[net.failures]\n{setting}")
    assert problem in str(raised.value)
