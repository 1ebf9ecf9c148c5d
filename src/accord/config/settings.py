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
            description="What the node is called; the name of its machine if left empty.",
        ),
    ] = ""
    data: Annotated[
        str,
        Meta(
            description="Folder for what must survive a restart; nothing does if left empty.",
            extra={"kind": "path"},
        ),
    ] = "accord-data"
    statistics_s: Annotated[
        int,
        Meta(ge=0, le=86_400, description="How often statistics go to `$SYS/#`; 0 for never."),
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
        Meta(description="Status, metrics and the HTTP API.", extra={"kind": "addresses"}),
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

    Where none is given, those of the demonstration are kept, while it runs: `demo/#`.
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
    """How much of what is kept the journal holds, until it is in the archive or too old."""

    segment_bytes: Annotated[
        int,
        Meta(ge=65_536, le=1 << 40, description="Size of its files; what goes, goes by files."),
    ] = JournalOptions().segment_bytes
    backlog_bytes: Annotated[
        int,
        Meta(ge=65_536, le=1 << 40, description="Bytes that may wait for the disk."),
    ] = JournalOptions().backlog_bytes
    retain_bytes: Annotated[
        int, Meta(ge=0, le=_HUGE, description="Size from which the oldest go; 0 for any size.")
    ] = 10_000_000_000
    retain_s: Annotated[
        int,
        Meta(ge=0, le=3_153_600_000, description="Age from which the oldest go; 0 for any age."),
    ] = 2_592_000
    limit_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=_HUGE,
            description="Size from which even what a reader still needs goes; 0 for any size.",
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
    """What matters more than the rest; `docs/POLICIES.md` describes the file."""

    file: Annotated[
        str,
        Meta(
            description="File of policies to start with, and again whenever it has changed; "
            "between that, what is changed at run time counts.",
            extra={"kind": "path"},
        ),
    ] = ""


class PipelineSettings(Struct, frozen=True, kw_only=True):
    """The data pipeline: Spark beside the node, which archives what is kept and finds it again.

    It needs `pip install 'accord[pipeline]'` and Java 17 or 21.
    """

    enabled: Annotated[bool, Meta(description="Whether it is started with the node.")] = True
    spark: Annotated[
        str,
        Meta(
            max_length=1_000,
            description="Where Spark runs: `spark://HOST:PORT`, `sc://HOST:PORT`, `yarn`, "
            "`k8s://…` or `local[N]`; in the pipeline's own process if left empty.",
        ),
    ] = ""
    archive: Annotated[
        str,
        Meta(
            description="Folder of the archive, which a cluster must see under the same path; "
            "`archive` in the node's folder if left empty.",
            extra={"kind": "path"},
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
            description="Age from which whole days of the archive are removed; 0 for never. "
            "What is kept only for the demonstration goes after seven days.",
        ),
    ] = 0
    large_bytes: Annotated[
        int,
        Meta(ge=1_024, le=1 << 30, description="Payloads of this size get files of their own."),
    ] = 1_048_576
    memory_mb: Annotated[
        int, Meta(ge=256, le=1 << 20, description="Megabytes that Spark's driver may use.")
    ] = 1_024
    timeout_s: Annotated[int, Meta(ge=1, le=86_400, description="How long a query may take.")] = 60


class DemoSettings(Struct, frozen=True, kw_only=True):
    """Demonstration events on `demo/…`, so that there is something to subscribe to and to query."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether they are published, as long as clients on this machine may "
            "connect without a user name."
        ),
    ] = True


class TransportRuleSettings(Struct, frozen=True, kw_only=True):
    """What channels go by when this node sends them to others: the first that selects one counts.

    What must not be lost (QoS 1 and 2, unless the channel's template repairs losses) stays on TCP.
    """

    channels: Annotated[
        tuple[str, ...],
        Meta(description="A filter of channels, or a list of them.", extra={"kind": "filters"}),
    ]
    transport: Annotated[
        Literal["tcp", "udp", "multicast"],
        Meta(
            description="`tcp` for the links' connections, `udp` for datagrams where they get "
            "through, `multicast` for one datagram to all neighbours of the group that need it."
        ),
    ]


class MulticastSettings(Struct, frozen=True, kw_only=True):
    """A group of IP multicast on a LAN: what several neighbours in it need is sent once."""

    group: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="An IPv4 multicast address and a port, such as 239.17.4.1:7410, the same "
            "at all nodes of the LAN; no multicast if left empty.",
            extra={"kind": "group"},
        ),
    ] = ()
    interface: Annotated[
        str,
        Meta(
            description="Address of this machine on that LAN; the system chooses if left empty.",
            extra={"kind": "interface"},
        ),
    ] = ""
    hops: Annotated[
        int, Meta(ge=0, le=255, description="Routers that datagrams may pass, and one more.")
    ] = 1


class NetSettings(Struct, frozen=True, kw_only=True):
    """Other nodes: where they find this one, and where this one finds them.

    One neighbour is enough to join: all nodes that it reaches are reached.
    """

    listen: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="Where other nodes may link with this one: `HOST:PORT`, or over WebSocket "
            "`ws://HOST:PORT/PATH` or `wss://…`.",
            extra={"kind": "link addresses"},
        ),
    ] = ()
    neighbours: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="Nodes to keep a link with, wherever they are: as in their `listen`.",
            extra={"kind": "link addresses"},
        ),
    ] = ()
    tier: Annotated[
        Literal["backbone", "secondary"],
        Meta(
            description="`secondary` for a node without a map: its neighbours are its parents, in "
            "order of preference, of which it uses two. See `docs/TIERS.md`."
        ),
    ] = "backbone"
    key_file: Annotated[
        str,
        Meta(
            description="File with a secret that all nodes share; without one only nodes of the "
            "same machine link, or those with certificates.",
            extra={"kind": "path"},
        ),
    ] = ""
    encrypted: Annotated[
        bool,
        Meta(description="Whether links over TCP use TLS, with the files under [tls]."),
    ] = False
    proxy: Annotated[
        str,
        Meta(
            description="HTTP proxy through which WebSocket neighbours are reached: "
            "`http://HOST:PORT`, with `USER:PASSWORD@` in front of HOST if it asks for that.",
            extra={"kind": "proxy"},
        ),
    ] = ""
    ping_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="Milliseconds between two pings of a neighbour; three missed mean that "
            "the link failed.",
        ),
    ] = 1_000
    ping_bytes_per_s: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            description="Bytes per second that pings of all neighbours may take; 0 for any. Where "
            "it is too little, those that are near or in use are pinged more often than others.",
        ),
    ] = 0
    discover: Annotated[
        bool,
        Meta(
            description="Whether to tell other nodes where this one listens, and to link with "
            "those that tell so: near ones first, found through any neighbour, and by beacons in "
            "the multicast group."
        ),
    ] = False
    discover_links: Annotated[
        int,
        Meta(ge=1, le=1_000, description="Links, however opened, until it seeks no more."),
    ] = 4
    announce: Annotated[
        tuple[SocketAddress, ...],
        Meta(
            description="Where others reach this node, if that is not where it listens.",
            extra={"kind": "link addresses"},
        ),
    ] = ()
    transports: tuple[TransportRuleSettings, ...] = ()
    multicast: MulticastSettings = MulticastSettings()


class QualitySettings(Struct, frozen=True, kw_only=True):
    """What subscribers expect of publishers, and how that is negotiated; see `docs/QUALITY.md`."""

    strategy: Annotated[
        Literal["pareto", "freeing", "cheapest"],
        Meta(
            description="Whom to adapt for: `pareto` for all who have nothing better already, "
            "`freeing` likewise, and what nobody needs any more is given back, `cheapest` only "
            "where it costs no more than it is worth."
        ),
    ] = "pareto"
    properties: Annotated[
        str,
        Meta(
            description="Folder of `*.properties` files that define more properties at the start.",
            extra={"kind": "path"},
        ),
    ] = ""
    reaction_timeout_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=3_600_000,
            description="Milliseconds in which advice must have helped; then the next is tried.",
        ),
    ] = 5_000


class ChannelSettings(Struct, frozen=True, kw_only=True):
    """A channel, or all that a filter selects, with what its events need on their way to others."""

    name: str
    template: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=r"^[A-Za-z0-9_.-]+$",
            description="How its events get to other nodes: `routed`, `single_source`, "
            "`unreliable`, `reliable`, `total_order`, `local` for not at all, or a template of "
            "another package.",
        ),
    ] = "routed"
    max_delay_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000, description="Milliseconds until they must have arrived; 0: any."),
    ] = 0
    paths: Annotated[int, Meta(ge=1, le=8, description="How many paths they take at once.")] = 1
    resiliency: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="How likely one of the paths must be up: no more of them are used than "
            "that takes; 0 for all.",
        ),
    ] = 0.0
    datagrams: Annotated[
        bool,
        Meta(description="Whether its QoS 0 events may go by UDP, and so may be lost on the way."),
    ] = False
    options: Annotated[
        dict[str, str],
        Meta(
            description="What else its template can be told, and `persistent`: text, true, false "
            "or numbers, by their names in `docs/CHANNELS.md`.",
            extra={"kind": "options"},
        ),
    ] = {}

    @property
    def all_options(self) -> dict[str, str]:
        return {"datagrams": "true", **self.options} if self.datagrams else self.options


class AdmissionSettings(Struct, frozen=True, kw_only=True):
    """Subscriptions are taken only if they can be carried; `docs/ADMISSION.md` tells how."""

    mode: Annotated[
        Literal["off", "report", "enforce"],
        Meta(
            description="Whether what can't be carried is refused (enforce), or only noted "
            "(report). In a net, the same for all nodes."
        ),
    ] = "off"
    guarantee: Annotated[
        str | float,
        Meta(
            description="What is promised where no policy says otherwise: `full`, `none`, or the "
            "share of nodes on the way that must be able to carry it, such as 0.75.",
            extra={"kind": "guarantee"},
        ),
    ] = "full"
    basis: Annotated[
        Literal["highest", "paper", "estimate"],
        Meta(
            description="What a subscription is taken to need: the most that all advertisements "
            "allow, the paper's interval, or what was measured, with some room."
        ),
    ] = "highest"
    event_bytes: Annotated[
        int, Meta(ge=1, le=1 << 30, description="Size of an event, until it was measured.")
    ] = 1_024
    memory_bytes: Annotated[
        int, Meta(ge=0, le=_HUGE, description="Memory that may be promised; 0 for any.")
    ] = 0
    queue_s: Annotated[
        float,
        Meta(ge=0, le=3_600, description="Seconds for which events may have to wait in memory."),
    ] = 1.0
    cpu_threshold: Annotated[
        float,
        Meta(
            ge=0.05,
            le=1,
            description="Use of the CPU from which on it is busy: the events per second that it "
            "then carries are what can be promised.",
        ),
    ] = 0.8
    burst_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3_600,
            description="Seconds whose events a publisher may publish at once.",
        ),
    ] = 1.0
    link_bandwidth: Annotated[
        str,
        Meta(
            description='Bandwidth of each link to another node, such as "10 Mbit/s"; what was '
            "measured if left empty.",
            extra={"kind": "bandwidth"},
        ),
    ] = ""
    links: Annotated[
        dict[str, str],
        Meta(
            description="Bandwidth of the links to single neighbours, by their names.",
            extra={"kind": "bandwidths"},
        ),
    ] = {}


class AnonymousSettings(Struct, frozen=True, kw_only=True):
    """Clients that connect without a user name."""

    allowed: Annotated[
        bool | None,
        Meta(
            description="Whether they may connect; if left out, as long as there are no users "
            "and the node listens on this machine only."
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
        is_said = may is not EVERYTHING  # identity: an equal value from a file is another object
        is_private = not self.users and self.listen.is_loopback
        if not is_said and not is_private:
            may = replace(may, policies=False)
        return Rights.combine(may, self.anonymous.may_not)

    @property
    def kept_channels(self) -> tuple[str, ...]:
        return tuple(pattern for keep in self.keep for pattern in keep.channels)

    @property
    def declared(self) -> dict[str, str]:
        """Attributes that have columns in the archive, with their types."""
        return {name: type_ for keep in self.keep for name, type_ in keep.attributes.items()}
