"""Converts the settings about other nodes to the node's overlay options.

Converts the admission settings to the node's admission options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from accord.config.errors import ConfigError, ConfigProblem
from accord.config.settings import AdmissionSettings, ChannelSettings, Config, MulticastSettings
from accord.core.admission.demand import Basis
from accord.core.admission.options import AdmissionOptions, Guarantee, Mode
from accord.core.broker.subscription_admission import guarantee_from
from accord.core.model.locations import Location
from accord.core.model.units import BANDWIDTHS_BPS, parse
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.discovery import DiscoveryOptions
from accord.core.overlay.options import OverlayOptions, TransportRule
from accord.runtime.admission import NodeAdmissionOptions
from accord.runtime.dialler import TransportOptions
from accord.runtime.multicast_links import MulticastOptions
from accord.runtime.overlay_service import NetOptions
from accord.runtime.transports.proxy import parse_proxy

_MIN_KEY: Final = 16
_MAX_KEY: Final = 4_096


def net_options(config: Config) -> NetOptions:
    """The overlay options; raises ConfigError if the key cannot be read."""
    net = config.net
    return NetOptions(
        listen=net.listen,
        neighbours=net.neighbours,
        key=_key(net.key_file),
        transports=TransportOptions(
            tls=config.tls if config.tls.certificate else None,
            is_encrypted=net.encrypted,
            proxy=parse_proxy(net.proxy) if net.proxy else None,
        ),
        overlay=OverlayOptions(
            ping_us=net.ping_ms * 1_000,
            ping_bytes_per_s=net.ping_bytes_per_s,
            location=_location(config.node.location),
            link_failures=net.failures.links,
            node_failures=net.failures.nodes,
        ),
        channels=tuple(map(definition_of, config.channels)),
        discover=DiscoveryOptions(max_links=net.discover_links) if net.discover else None,
        announce=net.announce,
        multicast=_multicast(net.multicast),
        is_secondary=net.tier == "secondary",
        transport_rules=tuple(
            TransportRule(each.channels, each.transport) for each in net.transports
        ),
    )


def _location(setting: tuple[float, ...]) -> Location | None:
    return (setting[0], setting[1]) if setting else None


def definition_of(channel: ChannelSettings) -> ChannelDefinition:
    return ChannelDefinition(
        name=channel.name,
        template=channel.template,
        max_delay_us=channel.max_delay_ms * 1_000,
        paths=channel.paths,
        resiliency=channel.resiliency,
        options=channel.all_options,
    )


def _multicast(settings: MulticastSettings) -> MulticastOptions | None:
    for group in settings.group:
        return MulticastOptions(group=group, interface=settings.interface, hops=settings.hops)
    return None


def _key(file: str) -> bytes:
    if not file:
        return b""
    try:
        key = Path(file).read_bytes().strip()
    except OSError as error:
        raise _key_file_error(f"can't be read: {error.strerror or error}") from None
    if not _MIN_KEY <= len(key) <= _MAX_KEY:
        raise _key_file_error(
            f"expected a secret of {_MIN_KEY} to {_MAX_KEY} bytes, got {len(key)}"
        )
    return key


def _key_file_error(problem: str) -> ConfigError:
    return ConfigError([ConfigProblem("", "net.key_file", problem)])


def admission_options(settings: AdmissionSettings) -> NodeAdmissionOptions:
    default = Guarantee(basis=Basis(settings.basis))
    return NodeAdmissionOptions(
        options=AdmissionOptions(
            mode=Mode(settings.mode),
            guarantee=guarantee_from(settings.guarantee, default),
            event_bytes=settings.event_bytes,
            queue_s=settings.queue_s,
            cpu_threshold=settings.cpu_threshold,
            burst_s=settings.burst_s,
        ),
        memory_bytes=settings.memory_bytes or None,
        link_bps=_bps(settings.link_bandwidth),
        links={name: _bps(text) for name, text in settings.links.items()},
    )


def _bps(text: str) -> int:
    """Bits per second; 0 if the setting is empty."""
    return parse(text, BANDWIDTHS_BPS) or 0
