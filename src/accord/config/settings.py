"""Everything that can be configured: meaning, range and default.

Parts that a lower layer needs as a whole (limits, users, TLS files, logs) are defined there. The
documentation and the sample file are generated from these structs, and a file is checked against
them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.queries.spark_settings import SparkSettings
from accord.core.router.limits import Limits
from accord.core.router.rights import EVERYTHING, NOTHING_DENIED, Allowed, Denied, Rights
from accord.journal.options import JournalOptions
from accord.journal.retention import Retention
from accord.runtime.addresses import SocketAddress
from accord.runtime.logs import LogSettings
from accord.runtime.tls import TlsFiles
from accord.runtime.users import User

_LOOPBACK = "127.0.0.1"
_HUGE = 1 << 50


class NodeSettings(Struct, frozen=True, kw_only=True):
    """The node itself."""

    name: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=r"^[A-Za-z0-9_.-]*$",
            description="Name of the node; default: the host name.",
        ),
    ] = ""
    data: Annotated[
        str,
        Meta(
            description="Data directory; if empty, nothing survives a restart.",
            extra={"kind": "path"},
        ),
    ] = "accord-data"
    location: Annotated[
        tuple[float, ...],
        Meta(
            description="Where the node is, for the map of the network: latitude and longitude in "
            "degrees, such as [47.61, -122.33].",
            extra={"kind": "location"},
        ),
    ] = ()
    statistics_s: Annotated[
        int,
        Meta(ge=0, le=86_400, description="Interval of the statistics on `$SYS/#`; 0: never."),
    ] = 10

    @property
    def actual_name(self) -> str:
        return self.name or socket.gethostname()

    @property
    def directory(self) -> Path | None:
        return Path(self.data) if self.data else None


class ListenSettings(Struct, frozen=True, kw_only=True):
    """Where the node listens: an address as `HOST:PORT`, a list of them, or `""` for nowhere."""

    mqtt: Annotated[
        tuple[SocketAddress, ...], Meta(description="MQTT over TCP.", extra={"kind": "addresses"})
    ] = (SocketAddress(_LOOPBACK, 1883),)
    mqtts: Annotated[
        tuple[SocketAddress, ...], Meta(description="MQTT over TLS.", extra={"kind": "addresses"})
    ] = ()
    websocket: Annotated[
        tuple[SocketAddress, ...],
        Meta(description="MQTT over WebSocket.", extra={"kind": "addresses"}),
    ] = (SocketAddress(_LOOPBACK, 8083),)
    websockets: Annotated[
        tuple[SocketAddress, ...],
        Meta(description="MQTT over WebSocket and TLS.", extra={"kind": "addresses"}),
    ] = ()
    http: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="Console, HTTP API, metrics; MQTT over WebSocket at `/mqtt`.",
            extra={"kind": "addresses"},
        ),
    ] = (SocketAddress(_LOOPBACK, 8080),)
    https: Annotated[
        tuple[SocketAddress, ...],
        Meta(description="The same over TLS.", extra={"kind": "addresses"}),
    ] = ()
    origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Sites whose web pages may connect over WebSocket and use the HTTP API, "
            'such as `["https://ops.example.org"]`; `["*"]` for all.',
            extra={"kind": "origins"},
        ),
    ] = ()

    def addresses(self) -> Iterator[tuple[str, SocketAddress]]:
        """All addresses, each with the name of its setting."""
        for name in self.__struct_fields__:
            if name != "origins":
                for address in getattr(self, name):
                    yield name, address

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the node."""
        return all(address.is_loopback for _, address in self.addresses())


class KeepSettings(Struct, frozen=True, kw_only=True):
    """Channels whose messages go to the journal before they are acknowledged.

    If none is given, the channels of the demonstration (`demo/#`) are kept while it runs.
    """

    channels: Annotated[
        tuple[str, ...],
        Meta(description="A filter of channels, or a list of them.", extra={"kind": "filters"}),
    ]
    attributes: Annotated[
        dict[str, str],
        Meta(
            description="Attributes that get columns of their own in the archive, by which "
            'queries are quick: each with its type, "integer", "float", "string", "boolean" '
            'or "timestamp". They count for all channels.',
            extra={"kind": "declared"},
        ),
    ] = {}


class JournalSettings(Struct, frozen=True, kw_only=True):
    """Size and retention of the journal of kept events."""

    segment_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=1 << 40,
            description="Size of a segment file; retention removes whole segments.",
        ),
    ] = JournalOptions().segment_bytes
    backlog_bytes: Annotated[
        int,
        Meta(ge=65_536, le=1 << 40, description="Maximum bytes queued for the disk."),
    ] = JournalOptions().backlog_bytes
    retain_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=_HUGE,
            description="Size beyond which the oldest segments are removed; 0: unlimited.",
        ),
    ] = 10_000_000_000
    retain_s: Annotated[
        int,
        Meta(
            ge=0,
            le=3_153_600_000,
            description="Age beyond which the oldest segments are removed; 0: unlimited.",
        ),
    ] = 2_592_000
    limit_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=_HUGE,
            description="Size beyond which segments are removed even if a reader still needs "
            "them; 0: unlimited.",
        ),
    ] = 50_000_000_000

    def options(self) -> JournalOptions:
        return JournalOptions(
            segment_bytes=self.segment_bytes,
            backlog_bytes=self.backlog_bytes,
            retention=Retention(
                max_bytes=self.retain_bytes or None,
                max_age_ms=self.retain_s * 1_000 or None,
                hard_bytes=self.limit_bytes or None,
            ),
        )


class PoliciesSettings(Struct, frozen=True, kw_only=True):
    """Policies: importance and preferences; `docs/POLICIES.md` describes the file."""

    file: Annotated[
        str,
        Meta(
            description="File with the policies; loaded at the first start, and at a later start "
            "if it has changed. Otherwise the policies as changed at run time stay active.",
            extra={"kind": "path"},
        ),
    ] = ""


class PipelineSettings(Struct, frozen=True, kw_only=True):
    """The data pipeline: Spark beside the node, which archives kept events and answers queries.

    It needs `pip install 'accord[pipeline]'`, and Java 17 or 21 for all but queries.
    """

    enabled: Annotated[bool, Meta(description="Whether the pipeline is started with the node.")] = (
        True
    )
    site: Annotated[
        bool,
        Meta(
            description="Whether the pipeline is that of the site (`accord pipeline`), which "
            "connects over HTTP: none is started with the node."
        ),
    ] = False
    nodes: Annotated[
        dict[str, str],
        Meta(
            description="For `accord pipeline`: the nodes of the site by name, each with its HTTP "
            "address, such as `https://USER@HOST:8080`; with ACCORD_PASSWORD, unless a password "
            "is given: `USER:PASSWORD@`.",
            extra={"kind": "nodes"},
        ),
    ] = {}
    spark: Annotated[
        SparkSettings,
        Meta(
            description="Where Spark runs: `spark://HOST:PORT`, `sc://HOST:PORT`, `yarn`, "
            "`k8s://…` or `local[N]`; in the pipeline's own process if left empty. Or a table, "
            "[pipeline.spark], with this as `master`, and settings of Spark such as "
            '"spark.executor.memory" = "4g".',
            extra={"kind": "spark"},
        ),
    ] = SparkSettings()
    archive: Annotated[
        str,
        Meta(
            description="Directory of the archive; a cluster must see it under the same path. Or "
            "`s3://BUCKET/PATH`. Default: `archive` in the data directory.",
            extra={"kind": "place"},
        ),
    ] = ""
    interval_ms: Annotated[
        int,
        Meta(ge=50, le=3_600_000, description="Milliseconds between two batches of the archive."),
    ] = 500
    retain_s: Annotated[
        int,
        Meta(
            ge=0,
            le=3_153_600_000,
            description="Age beyond which whole days of the archive are removed; 0: never. "
            "Demonstration events are removed after seven days.",
        ),
    ] = 0
    large_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            le=1 << 30,
            description="Size from which a payload is stored in a file of its own.",
        ),
    ] = 1_048_576
    memory_mb: Annotated[
        int, Meta(ge=256, le=1 << 20, description="Memory limit of Spark's driver, in megabytes.")
    ] = 1_024
    timeout_s: Annotated[int, Meta(ge=1, le=86_400, description="Timeout of a query.")] = 60


class DemoSettings(Struct, frozen=True, kw_only=True):
    """Demonstration events on `demo/…`, so that there is something to subscribe to and to query."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether to publish demonstration events; requires that clients on this "
            "machine may connect without a user name."
        ),
    ] = True


class TransportRuleSettings(Struct, frozen=True, kw_only=True):
    """Transport of channels between this node and its neighbours; the first matching rule applies.

    Events that must not be lost (QoS 1 and 2, unless the template repairs losses) stay on TCP.
    """

    channels: Annotated[
        tuple[str, ...],
        Meta(description="A filter of channels, or a list of them.", extra={"kind": "filters"}),
    ]
    transport: Annotated[
        Literal["tcp", "udp", "multicast"],
        Meta(
            description="`tcp`: the connection of the link; `udp`: datagrams, if they get "
            "through; `multicast`: one datagram to all interested neighbours in the group."
        ),
    ]


class MulticastSettings(Struct, frozen=True, kw_only=True):
    """An IP multicast group on a LAN: an event for several neighbours in it is sent once."""

    group: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="IPv4 multicast address and port, such as 239.17.4.1:7410, the same at "
            "all nodes of the LAN; if empty, multicast is off.",
            extra={"kind": "group"},
        ),
    ] = ()
    interface: Annotated[
        str,
        Meta(
            description="Address of this machine on that LAN; default: chosen by the system.",
            extra={"kind": "interface"},
        ),
    ] = ""
    hops: Annotated[
        int, Meta(ge=0, le=255, description="TTL of the datagrams; 1: not beyond the LAN.")
    ] = 1


Probability = Annotated[float, Meta(ge=0, le=1)]


class FailureSettings(Struct, frozen=True, kw_only=True):
    """Known probabilities of failure, for the choice of paths; all others are measured."""

    links: Annotated[
        dict[str, Probability],
        Meta(description="Of the links to single neighbours, by node name: from 0 to 1."),
    ] = {}
    nodes: Annotated[
        dict[str, Probability],
        Meta(description="Of other nodes, by name, as paths from this node pass them."),
    ] = {}


class NetSettings(Struct, frozen=True, kw_only=True):
    """Links to other nodes.

    One neighbour is enough to join: all nodes that it reaches become reachable.
    """

    listen: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="Addresses for links of other nodes: `HOST:PORT`, or over WebSocket "
            "`ws://HOST:PORT/PATH` or `wss://…`.",
            extra={"kind": "link addresses"},
        ),
    ] = ()
    neighbours: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="Addresses of the nodes to keep a link with, as in their `listen`.",
            extra={"kind": "link addresses"},
        ),
    ] = ()
    tier: Annotated[
        Literal["backbone", "secondary"],
        Meta(
            description="`secondary`: a node without a map, whose neighbours are its parents in "
            "order of preference; it uses two of them. See `docs/TIERS.md`."
        ),
    ] = "backbone"
    key_file: Annotated[
        str,
        Meta(
            description="File with a secret shared by all nodes. Without it, only nodes on the "
            "same machine or with certificates can link.",
            extra={"kind": "path"},
        ),
    ] = ""
    encrypted: Annotated[
        bool,
        Meta(description="Whether links over TCP use TLS, with the files in [tls]."),
    ] = False
    proxy: Annotated[
        str,
        Meta(
            description="HTTP proxy for links over WebSocket: `http://HOST:PORT`, or "
            "`http://USER:PASSWORD@HOST:PORT`.",
            extra={"kind": "proxy"},
        ),
    ] = ""
    ping_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="Interval between pings of a neighbour, in milliseconds; after three "
            "missed pings the link is down.",
        ),
    ] = 1_000
    ping_bytes_per_s: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            description="Bandwidth for the pings of all neighbours, in bytes per second; 0: "
            "unlimited. If it is too small, near neighbours and those in use are pinged more "
            "often than others.",
        ),
    ] = 0
    discover: Annotated[
        bool,
        Meta(
            description="Whether to announce the addresses of this node, and to link with nodes "
            "that announce theirs, near ones first. Announcements travel through all neighbours "
            "and as beacons in the multicast group."
        ),
    ] = False
    discover_links: Annotated[
        int,
        Meta(
            ge=1, le=1_000, description="Number of links, of any origin, at which discovery stops."
        ),
    ] = 4
    announce: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="Addresses announced to other nodes, if they differ from `listen`.",
            extra={"kind": "link addresses"},
        ),
    ] = ()
    transports: tuple[TransportRuleSettings, ...] = ()
    multicast: MulticastSettings = MulticastSettings()
    failures: FailureSettings = FailureSettings()


class QualitySettings(Struct, frozen=True, kw_only=True):
    """Negotiation of quality between subscribers and publishers; see `docs/QUALITY.md`."""

    strategy: Annotated[
        Literal["pareto", "freeing", "cheapest"],
        Meta(
            description="When to adapt a publisher: `pareto` for every subscription without a "
            "better satisfied alternative; `freeing` likewise, and adaptations that are no longer "
            "needed are reverted; `cheapest` only if the cost does not exceed the utility."
        ),
    ] = "pareto"
    properties: Annotated[
        str,
        Meta(
            description="Directory of `*.properties` files that define further properties at the "
            "start.",
            extra={"kind": "path"},
        ),
    ] = ""
    reaction_timeout_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=3_600_000,
            description="Time in which an adaptation must take effect, in milliseconds; then the "
            "next option is tried.",
        ),
    ] = 5_000


class ChannelSettings(Struct, frozen=True, kw_only=True):
    """A channel, or all channels that a filter selects: template and delivery requirements."""

    name: str
    template: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=r"^[A-Za-z0-9_.-]+$",
            description="Template that delivers its events to other nodes: `routed`, "
            "`single_source`, `unreliable`, `reliable`, `total_order`, `local` (no delivery to "
            "other nodes), or one of another package.",
        ),
    ] = "routed"
    max_delay_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600_000,
            description="Maximum delay of its events, in milliseconds; 0: unlimited.",
        ),
    ] = 0
    paths: Annotated[
        int, Meta(ge=1, le=8, description="Number of paths that each event takes.")
    ] = 1
    resiliency: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Minimum probability that one of the paths is up; only as many paths are "
            "used as that requires. 0: all paths.",
        ),
    ] = 0.0
    datagrams: Annotated[
        bool,
        Meta(description="Whether its QoS 0 events may be sent over UDP, which may lose them."),
    ] = False
    options: Annotated[
        dict[str, str],
        Meta(
            description="Further options of its template, and `persistent`: text, true, false or "
            "numbers; see `docs/CHANNELS.md`.",
            extra={"kind": "options"},
        ),
    ] = {}

    @property
    def all_options(self) -> dict[str, str]:
        return {"datagrams": "true", **self.options} if self.datagrams else self.options


class AdmissionSettings(Struct, frozen=True, kw_only=True):
    """Admission control of subscriptions; see `docs/ADMISSION.md`."""

    mode: Annotated[
        Literal["off", "report", "enforce"],
        Meta(
            description="Whether subscriptions that exceed the resources are refused (enforce), "
            "or only reported (report). Must be the same at all nodes."
        ),
    ] = "off"
    guarantee: Annotated[
        str | float,
        Meta(
            description="Guarantee of subscriptions without a policy: `full`, `none`, or the "
            "share of nodes on the path that must have the resources, such as 0.75.",
            extra={"kind": "guarantee"},
        ),
    ] = "full"
    basis: Annotated[
        Literal["highest", "paper", "estimate"],
        Meta(
            description="Demand assumed for a subscription: the maximum that all advertisements "
            "allow, the paper's interval, or the measured rate with a margin."
        ),
    ] = "highest"
    event_bytes: Annotated[
        int, Meta(ge=1, le=1 << 30, description="Assumed size of an event until it is measured.")
    ] = 1_024
    memory_bytes: Annotated[
        int, Meta(ge=0, le=_HUGE, description="Memory available for reservations; 0: unlimited.")
    ] = 0
    queue_s: Annotated[
        float,
        Meta(ge=0, le=3_600, description="Time that events may be queued in memory, in seconds."),
    ] = 1.0
    cpu_threshold: Annotated[
        float,
        Meta(
            ge=0.05,
            le=1,
            description="CPU utilisation that counts as full load; the event rate at that load is "
            "the capacity for reservations.",
        ),
    ] = 0.8
    burst_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3_600,
            description="Maximum burst of a publisher, in seconds at its advertised rate.",
        ),
    ] = 1.0
    link_bandwidth: Annotated[
        str,
        Meta(
            description='Bandwidth of each link to another node, such as "10 Mbit/s"; default: '
            "measured.",
            extra={"kind": "bandwidth"},
        ),
    ] = ""
    links: Annotated[
        dict[str, str],
        Meta(
            description="Bandwidth of the links to single neighbours, by node name.",
            extra={"kind": "bandwidths"},
        ),
    ] = {}


class AnonymousSettings(Struct, frozen=True, kw_only=True):
    """Clients that connect without a user name."""

    allowed: Annotated[
        bool | None,
        Meta(
            description="Whether they may connect; default: only if there are no users and the "
            "node listens on this machine only."
        ),
    ] = None
    may: Annotated[
        Allowed, Meta(description="Where they may publish and subscribe; everywhere if left out.")
    ] = EVERYTHING
    may_not: Annotated[
        Denied, Meta(description="Where they may not, whatever `may` says; nowhere if left out.")
    ] = NOTHING_DENIED


class Config(Struct, frozen=True, kw_only=True):
    """All of `accord.toml`."""

    node: NodeSettings = NodeSettings()
    listen: ListenSettings = ListenSettings()
    tls: TlsFiles = TlsFiles()
    limits: Limits = Limits()
    keep: tuple[KeepSettings, ...] = ()
    journal: JournalSettings = JournalSettings()
    pipeline: PipelineSettings = PipelineSettings()
    demo: DemoSettings = DemoSettings()
    policies: PoliciesSettings = PoliciesSettings()
    net: NetSettings = NetSettings()
    admission: AdmissionSettings = AdmissionSettings()
    channels: tuple[ChannelSettings, ...] = ()
    quality: QualitySettings = QualitySettings()
    users: tuple[User, ...] = ()
    anonymous: AnonymousSettings = AnonymousSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def default(cls) -> Config:
        return cls()

    @property
    def anonymous_rights(self) -> Rights | None:
        """Rights of clients without a user name; None if they may not connect.

        Unless configured, they may change policies only if the node is reachable from this machine
        only and has no users.
        """
        allowed = self.anonymous.allowed
        if self.users if allowed is None else not allowed:
            return None
        may = self.anonymous.may
        is_given = may is not EVERYTHING  # identity: an equal value from a file is another object
        is_private = not self.users and self.listen.is_loopback
        if not is_given and not is_private:
            may = replace(may, policies=False)
        return Rights.combine(may, self.anonymous.may_not)

    @property
    def kept_channels(self) -> tuple[str, ...]:
        return tuple(pattern for keep in self.keep for pattern in keep.channels)

    @property
    def declared(self) -> dict[str, str]:
        """Attributes that have columns in the archive, with their types."""
        return {name: type_ for keep in self.keep for name, type_ in keep.attributes.items()}
