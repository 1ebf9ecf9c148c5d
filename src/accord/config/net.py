"""What a configuration says about other nodes, as the node takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from accord.config.errors import ConfigError, Mistake
from accord.config.settings import ChannelSettings, Config
from accord.core.channels.routed import DATAGRAMS
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.registry import ChannelDefinition
from accord.live.net import NetOptions

_LEAST_KEY: Final = 16
_MOST_KEY: Final = 4_096


def net_options(config: Config) -> NetOptions:
    """ConfigError where the key can't be read."""
    net = config.net
    return NetOptions(
        listen=net.listen,
        neighbours=net.neighbours,
        key=_key(net.key_file),
        tls=config.tls if net.encrypted else None,
        overlay=OverlayOptions(ping_us=net.ping_ms * 1_000),
        channels=tuple(map(definition_of, config.channels)),
    )


def definition_of(channel: ChannelSettings) -> ChannelDefinition:
    return ChannelDefinition(
        name=channel.name,
        template=channel.template,
        max_delay_us=channel.max_delay_ms * 1_000,
        paths=channel.paths,
        resiliency=channel.resiliency,
        options={DATAGRAMS: "true"} if channel.datagrams else {},
    )


def _key(file: str) -> bytes:
    if not file:
        return b""
    try:
        key = Path(file).read_bytes().strip()
    except OSError as error:
        raise _mistake(f"can't be read: {error.strerror or error}") from None
    if not _LEAST_KEY <= len(key) <= _MOST_KEY:
        raise _mistake(f"expected a secret of {_LEAST_KEY} to {_MOST_KEY} bytes, got {len(key)}")
    return key


def _mistake(problem: str) -> ConfigError:
    return ConfigError([Mistake("", "net.key_file", problem)])
