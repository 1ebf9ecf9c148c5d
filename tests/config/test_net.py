"""What a configuration says about other nodes, and about channels on their way to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.config import ConfigError, parse
from accord.config.net import net_options
from accord.config.settings import ChannelSettings, NetSettings
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.registry import ChannelDefinition
from accord.live.addresses import Address
from accord.live.net import NetOptions

WHOLE = """
[net]
listen = "127.0.0.1:7400"
neighbours = ["127.0.0.1:7401", "[::1]:7402"]
ping_ms = 200

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
        listen=(Address("127.0.0.1", 7400),),
        neighbours=(Address("127.0.0.1", 7401), Address("::1", 7402)),
        ping_ms=200,
    )
    assert config.net.is_used
    assert config.channels == (
        ChannelSettings(name="uav/#", max_delay_ms=200, paths=2, resiliency=0.999, datagrams=True),
        ChannelSettings(name="log", template="local", resiliency=1.0),
    )


def test_what_a_node_takes_of_it() -> None:
    assert net_options(parse(WHOLE)) == NetOptions(
        listen=(Address("127.0.0.1", 7400),),
        neighbours=(Address("127.0.0.1", 7401), Address("::1", 7402)),
        overlay=OverlayOptions(ping_us=200_000),
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
    )


def test_a_node_by_itself() -> None:
    assert not parse("[net]\nping_ms = 100").net.is_used


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("net.listen = 'x'", "1: net.listen: expected HOST:PORT"),
        ("net.ping_ms = 9", "1: net.ping_ms: expected 10 to 60000, got 9"),
        ("net.encrypted = true", "1: net.encrypted: expected a certificate and its key under"),
        (
            "[net]\nlisten = '0.0.0.0:7400'",
            "2: net.listen: 0.0.0.0:7400 is another machine: expected a secret that all nodes",
        ),
        ("net.neighbours = 'far:7400'", "1: net.neighbours: far:7400 is another machine"),
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
