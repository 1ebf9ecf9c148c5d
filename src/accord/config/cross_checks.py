"""Checks of settings that are valid alone but not in combination."""

from __future__ import annotations

from collections.abc import Iterator

from accord.config.settings import ChannelSettings, Config, NetSettings
from accord.config.toml_lines import Path
from accord.core.model.channels import problem_with_filter
from accord.core.queries.messages import problems_among
from accord.core.queries.spark_settings import problem_on_master
from accord.runtime.addresses import WEBSOCKET_TLS, SocketAddress

ENCRYPTED = ("mqtts", "websockets", "https")


def problems(config: Config) -> Iterator[tuple[Path, str]]:
    """Paths of settings, each with its problem."""
    yield from _problems_with_listeners(config)
    yield from _problems_with_tls(config)
    yield from _problems_with_users(config)
    yield from _problems_with_sizes(config)
    yield from _problems_with_declared(config)
    spark = config.pipeline.spark
    for name in spark.settings:
        if problem := problem_on_master(name, spark.master):
            yield ("pipeline", "spark", name), problem
    if config.pipeline.site and not (config.listen.http or config.listen.https):
        yield ("pipeline", "site"), "expected listen.http or https, where the pipeline connects"
    yield from _problems_with_net(config)
    if config.keep and not config.node.data:
        yield ("keep",), "expected a data directory in node.data (or --data)"


def _problems_with_listeners(config: Config) -> Iterator[tuple[Path, str]]:
    is_open = not config.users and config.anonymous.allowed is None
    taken: dict[SocketAddress, str] = {}
    for name, address in config.listen.addresses():
        is_protected = name in ENCRYPTED and config.tls.client_ca
        if is_open and not address.is_loopback and not is_protected:
            problem = (
                f"other machines can reach {address}, but no users are configured: add users "
                f"([users.NAME], with a password made by `accord user hash`), or let everybody "
                f"in ([anonymous] allowed = true), or listen on 127.0.0.1:{address.port}"
            )
            yield ("listen", name), problem
        if address.port and address in taken:
            yield ("listen", name), f"{address} is already where {taken[address]} listens"
        taken[address] = name


def _problems_with_tls(config: Config) -> Iterator[tuple[Path, str]]:
    if config.tls.certificate:
        return
    for name in ENCRYPTED:
        if getattr(config.listen, name):
            yield ("listen", name), "expected a certificate and its key under [tls]"
    for name in ("key", "client_ca"):
        if getattr(config.tls, name):
            yield ("tls", name), "expected a certificate beside it"


def _problems_with_users(config: Config) -> Iterator[tuple[Path, str]]:
    for user in config.users:
        # In HTTP Basic authentication a colon ends the name.
        if not user.name or not user.name.isprintable() or ":" in user.name:
            yield (
                ("users", user.name),
                "expected a name of printable characters other than a colon",
            )
    if not config.users and config.anonymous.allowed is False:
        yield (
            ("anonymous", "allowed"),
            "without users nobody could connect: expected true, or users ([users.NAME])",
        )
    for key in ("may", "may_not"):
        for name in ("publish", "subscribe"):
            if any("%u" in pattern for pattern in getattr(getattr(config.anonymous, key), name)):
                yield ("anonymous", key, name), "expected no %u, as nobody verified a name"


def _problems_with_declared(config: Config) -> Iterator[tuple[Path, str]]:
    """Attributes that two tables declare differently."""
    declared = [
        (number, name, type_)
        for number, keep in enumerate(config.keep)
        for name, type_ in keep.attributes.items()
    ]
    for position, problem in problems_among((name, type_) for _, name, type_ in declared):
        number, name, _ = declared[position]
        yield ("keep", number, "attributes", name), problem


def _problems_with_net(config: Config) -> Iterator[tuple[Path, str]]:
    net = config.net
    if net.encrypted and not config.tls.certificate:
        yield ("net", "encrypted"), "expected a certificate and its key under [tls]"
    if any(each.scheme == WEBSOCKET_TLS for each in net.listen) and not config.tls.certificate:
        yield ("net", "listen"), "expected a certificate and its key under [tls]"
    yield from _problems_with_trust(config)
    if net.tier == "secondary":
        yield from _problems_with_secondary(net)
    for number, rule in enumerate(net.transports):
        if rule.transport == "multicast" and not net.multicast.group:
            yield (
                ("net", "transports", number, "transport"),
                "expected a group under [net.multicast]",
            )
    for channel in config.channels:
        if net.tier == "secondary":
            problem = "expected none at a secondary node: define channels at a backbone node"
            yield ("channels", channel.name), problem
        if wrong := problem_with_filter(channel.name):
            yield ("channels", channel.name), wrong
        elif channel.name.startswith("$"):
            problem = "expected no channel that begins with $: these stay on their node"
            yield ("channels", channel.name), problem
        yield from _problems_with_options(channel)


def _problems_with_trust(config: Config) -> Iterator[tuple[Path, str]]:
    """Addresses at which anybody could link as a node, who may then read and publish everything."""
    net = config.net
    for name in ("listen", "neighbours"):
        for address in getattr(net, name):
            is_encrypted = address.scheme == WEBSOCKET_TLS or (net.encrypted and not address.scheme)
            is_proved = net.key_file or (is_encrypted and config.tls.client_ca)
            if is_proved or (address.is_loopback and not config.users):
                continue
            why = (
                f"any program on this machine could be a node at {address} and needs no password"
                if address.is_loopback
                else f"{address} is another machine"
            )
            problem = (
                f"{why}: expected a secret that all nodes share (key_file, made by "
                f"`openssl rand -hex 32 > net.key`), or certificates (encrypted, and client_ca "
                f"under [tls])"
            )
            yield ("net", name), problem
    multicast = net.multicast
    is_here = multicast.interface and SocketAddress(multicast.interface, 0).is_loopback
    if multicast.group and not net.key_file and (config.users or not is_here):
        who = "any program on this machine could be" if is_here else "other machines are"
        instead = "" if config.users else ", or interface = 127.0.0.1"
        problem = (
            f"{who} in the group: expected a secret that all nodes share "
            f"(key_file under [net]){instead}"
        )
        yield ("net", "multicast", "group"), problem


def _problems_with_options(channel: ChannelSettings) -> Iterator[tuple[Path, str]]:
    """Check a channel's options, if its template is installed here; other nodes may have it."""
    # Imported only if there are options, because this loads all templates.
    from accord.core.channels.template import problem_with_options  # noqa: PLC0415
    from accord.runtime.templates import find_template  # noqa: PLC0415

    options = channel.all_options
    template = find_template(channel.template) if options else None
    if channel.datagrams and options["datagrams"] != "true":
        yield ("channels", channel.name, "datagrams"), "expected the same as in its options"
    elif template is not None and (wrong := problem_with_options(options, template.options)):
        name, problem = wrong
        place = ("options", name) if name in channel.options else (name,)
        yield ("channels", channel.name, *place), problem


def _problems_with_secondary(net: NetSettings) -> Iterator[tuple[Path, str]]:
    """A secondary node needs parents, and none of the settings of nodes with a map."""
    if not net.neighbours:
        yield ("net", "neighbours"), "a secondary node has parents: expected one or two addresses"
    for name, is_given in (
        ("listen", net.listen),
        ("discover", net.discover),
        ("transports", net.transports),
        ("multicast", net.multicast.group),
    ):
        if is_given:
            yield ("net", name), "expected none at a secondary node: only its parents link with it"


def _problems_with_sizes(config: Config) -> Iterator[tuple[Path, str]]:
    limits, journal = config.limits, config.journal
    fits = f"expected at least limits.packet_bytes ({limits.packet_bytes}), as a message must fit"
    if limits.queue_bytes < limits.packet_bytes:
        yield ("limits", "queue_bytes"), f"{fits}, got {limits.queue_bytes}"
    if journal.backlog_bytes < limits.packet_bytes:
        yield ("journal", "backlog_bytes"), f"{fits}, got {journal.backlog_bytes}"
    for name, size, least in (
        ("retain_bytes", journal.retain_bytes, "segment_bytes"),
        ("limit_bytes", journal.limit_bytes, "segment_bytes"),
        ("limit_bytes", journal.limit_bytes, "retain_bytes"),
    ):
        bound = getattr(journal, least)
        if 0 < size < bound:
            yield ("journal", name), f"expected 0 or at least {least} ({bound}), got {size}"
