"""Settings of a scenario, with meaning, range and default.

Times are written with a unit, such as `"20 ms"` or `"10min"`, and are whole microseconds here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from accord.sim.faults import Disk
from accord.sim.links import Shape
from accord.sim.topology import DELAY_US, MAX_NODES, SIZE_KM
from accord.sim.workloads import FOREVER, S

ANY = "*"


def _of(kind: str, description: str) -> Meta:
    return Meta(description=description, extra={"kind": kind})


class RunSettings(Struct, frozen=True, kw_only=True):
    """The run as a whole."""

    duration: Annotated[int, _of("time", "How much virtual time passes.")] = 600 * S
    seed: Annotated[
        int, Meta(ge=0, le=(1 << 63) - 1, description="Of all chance, unless another is asked for.")
    ] = 1
    settle: Annotated[
        int, _of("time", "How long before a publication a subscription must have been there.")
    ] = 10 * S
    patience: Annotated[
        int, _of("time", "How long a delivery may take before it counts as lost.")
    ] = 10 * S
    check_invariants: Annotated[
        bool, Meta(description="Whether each machine checks itself after each step: slow.")
    ] = False


class TopologySettings(Struct, frozen=True, kw_only=True):
    """Which nodes are linked. Generated nodes are called n00, n01, …"""

    kind: Annotated[
        Literal[
            "line", "ring", "star", "grid", "complete", "geometric", "waxman", "barabasi_albert",
            "file", "latencies",
        ],
        Meta(description="How it is made."),
    ] = "waxman"  # fmt: skip
    nodes: Annotated[
        int, Meta(ge=1, le=MAX_NODES, description="How many; not for files and grids.")
    ] = 50
    width: Annotated[int, Meta(ge=1, le=1_000, description="Of a grid.")] = 5
    height: Annotated[int, Meta(ge=1, le=1_000, description="Of a grid.")] = 5
    degree: Annotated[float, _of("number", "Links of a node on average, by chance.")] = 4.0
    reach: Annotated[
        float, _of("positive share", "How far waxman's links go, of the diagonal.")
    ] = 0.2
    links: Annotated[int, Meta(ge=1, le=100, description="Of a new node of barabasi_albert.")] = 2
    size_km: Annotated[
        int, Meta(ge=1, le=100_000, description="The side of the square with places by chance.")
    ] = SIZE_KM
    delay: Annotated[int, _of("time", "Of each link, where there are no places.")] = DELAY_US
    file: Annotated[str, _of("path", "A graph file: .json, .graphml or .gml.")] = ""
    latencies: Annotated[
        tuple[str, ...], _of("paths", "Files with round trips between all nodes, in turn.")
    ] = ()
    unit: Annotated[Literal["us", "ms", "s"], Meta(description="Of the latencies.")] = "ms"
    nearest: Annotated[
        int, Meta(ge=0, le=100, description="How many of the nearest each node is linked to.")
    ] = 3
    far: Annotated[int, Meta(ge=0, le=100, description="And how many of any others.")] = 1
    part: Annotated[
        Literal["all", "largest"], Meta(description="Whether a graph may fall into parts.")
    ] = "all"
    seed: Annotated[
        int,
        Meta(
            ge=0,
            le=(1 << 63) - 1,
            description="Of the topology alone: it is the same for each seed of the run.",
        ),
    ] = 1


class LinkSettings(Struct, frozen=True, kw_only=True):
    """How all links behave."""

    mode: Annotated[
        Literal["stream", "datagram"],
        Meta(description="Like TCP, in order and again if lost; or like UDP."),
    ] = "stream"
    shape: Annotated[Shape, Meta(description="How delays vary.")] = "recorded"
    spread: Annotated[float, _of("number", "By how much most delays vary, of the delay.")] = 0.0
    step: Annotated[
        int, _of("time", "How long each recorded delay lasts; 0 to draw from them by chance.")
    ] = 0
    jitter: Annotated[int, _of("time", "Up to how much longer a message may take.")] = 0
    loss: Annotated[float, _of("share", "Of messages.")] = 0.0
    duplication: Annotated[float, _of("share", "Of datagrams that come twice.")] = 0.0
    reordering: Annotated[bool, Meta(description="Whether datagrams overtake others.")] = True
    rate: Annotated[int, _of("bandwidth", "What a link carries; 0 for any.")] = 0
    queue_bytes: Annotated[
        int, Meta(ge=1_500, le=1 << 40, description="What may wait in front of it.")
    ] = 16_777_216
    tries: Annotated[
        int, Meta(ge=1, le=1_000, description="After which a stream's connection breaks.")
    ] = 10
    dead: Annotated[int, _of("time", "How long a stream bears that nothing gets through.")] = 10 * S
    connect: Annotated[int, _of("time", "How long a stream takes to connect again.")] = 50_000


class LinkException(Struct, frozen=True, kw_only=True):
    """What is different for one link."""

    between: Annotated[tuple[str, ...], _of("two nodes", "The nodes at its ends.")]
    delay: Annotated[int | None, _of("time", "Instead of the topology's.")] = None
    jitter: Annotated[int | None, _of("time", "Up to how much longer.")] = None
    loss: Annotated[float | None, _of("share", "Of messages.")] = None
    rate: Annotated[int | None, _of("bandwidth", "What it carries.")] = None


class FaultSettings(Struct, frozen=True, kw_only=True):
    """What goes wrong at some time, and for how long."""

    at: Annotated[int, _of("time", "When.")]
    kind: Annotated[
        Literal["link_down", "slow_down", "loss", "node_down", "partition"],
        Meta(description="What."),
    ]
    lasts: Annotated[int | None, _of("time", "For how long; for ever if left out.")] = None
    between: Annotated[tuple[str, ...], _of("two nodes", "The ends of the link.")] = ()
    node: Annotated[str, _of("node", "The node that goes down.")] = ""
    groups: Annotated[
        tuple[tuple[str, ...], ...], _of("groups", "Nodes that only reach each other.")
    ] = ()
    factor: Annotated[float, _of("number", "How many times slower.")] = 5.0
    share: Annotated[float, _of("share", "Of messages that are lost.")] = 0.5
    disk: Annotated[Disk, Meta(description="What a node finds on its disk afterwards.")] = "kept"
    silent: Annotated[bool, Meta(description="Whether no neighbour is told.")] = False
    one_way: Annotated[bool, Meta(description="Whether only from the first to the second.")] = False
    told: Annotated[bool, Meta(description="Whether both ends know at once.")] = False


class RandomFaultSettings(Struct, frozen=True, kw_only=True):
    """What goes wrong by chance; shares are those of the time, and times are averages."""

    begin: Annotated[int, _of("time", "Before that nothing fails.")] = 0
    quiet: Annotated[int, _of("time", "Nothing fails so long before the end.")] = 60 * S
    link_down_share: Annotated[float, _of("share", "That a link is down.")] = 0.0
    link_down: Annotated[int, _of("time", "For how long.")] = 10 * S
    link_slow_share: Annotated[float, _of("share", "That a link is slow.")] = 0.0
    link_slow: Annotated[int, _of("time", "For how long.")] = 30 * S
    link_slow_factor: Annotated[float, _of("number", "How many times slower.")] = 5.0
    node_down_share: Annotated[float, _of("share", "That a node is down.")] = 0.0
    node_down: Annotated[int, _of("time", "For how long.")] = 30 * S
    disk_torn_share: Annotated[float, _of("share", "Of crashes that tear files.")] = 0.0
    disk_lost_share: Annotated[float, _of("share", "Of crashes that take the disk.")] = 0.0
    silent_share: Annotated[float, _of("share", "Of crashes nobody is told of.")] = 0.0
    partition_share: Annotated[float, _of("share", "That the network is in two parts.")] = 0.0
    partition: Annotated[int, _of("time", "For how long.")] = 30 * S


class ScenarioChannelSettings(Struct, frozen=True, kw_only=True):
    """What is asked of the channels that a filter selects."""

    name: str
    max_delay: Annotated[int, _of("time", "Within which an event is in time; 0 for any.")] = 0
    paths: Annotated[int, Meta(ge=1, le=16, description="Over which each event goes.")] = 1
    resiliency: Annotated[float, _of("share", "The least chance that one of them works.")] = 0.0


class PublisherSettings(Struct, frozen=True, kw_only=True):
    """Clients that publish."""

    name: str
    channel: Annotated[str, _of("channel", "Where to.")]
    node: Annotated[str, _of("node", 'Where it is; "*" for any, by chance.')] = ANY
    count: Annotated[int, Meta(ge=1, le=10_000, description="How many of them.")] = 1
    rate_hz: Annotated[float, _of("rate", "Events in a second.")] = 1.0
    pattern: Annotated[
        Literal["steady", "poisson", "burst"], Meta(description="Evenly, by chance, or at once.")
    ] = "steady"
    burst: Annotated[int, Meta(ge=1, le=10_000, description="Events at once.")] = 10
    size_bytes: Annotated[int, Meta(ge=8, le=16_000_000, description="Of a payload.")] = 100
    qos: Annotated[int, Meta(ge=0, le=2, description="Of MQTT.")] = 0
    deadline: Annotated[
        int | None, _of("time", "The channel's max_delay if left out; 0 for none.")
    ] = None
    attributes: Annotated[
        dict[str, Any],  # choices and ranges
        _of("attributes", "Each a list of values, or { least = 0, most = 100 }."),
    ] = {}
    begin: Annotated[int, _of("time", "When it begins.")] = 0
    end: Annotated[int, _of("time", "When it ends.")] = FOREVER


class SubscriberSettings(Struct, frozen=True, kw_only=True):
    """Clients that subscribe."""

    name: str
    filter: Annotated[str, _of("filter", "Which channels.")]
    node: Annotated[str, _of("node", 'Where it is; "*" for any, by chance.')] = ANY
    count: Annotated[int, Meta(ge=1, le=10_000, description="How many of them.")] = 1
    where: Annotated[str, _of("selector", "A condition over attributes.")] = ""
    qos: Annotated[int, Meta(ge=0, le=2, description="Of MQTT.")] = 0
    begin: Annotated[int, _of("time", "When it comes.")] = 0
    end: Annotated[int, _of("time", "When it leaves for good.")] = FOREVER
    there: Annotated[int, _of("time", "How long it stays on average, if it leaves.")] = 60 * S
    away: Annotated[int, _of("time", "How long it is away on average; 0 to stay.")] = 0


class CheckSettings(Struct, frozen=True, kw_only=True):
    """What counts as a failure."""

    delivered: Annotated[
        float | None, _of("whole share", "The least share of each channel that arrives.")
    ] = None
    in_time: Annotated[
        float | None, _of("whole share", "The least share of each channel that is in time.")
    ] = None
    duplicates: Annotated[bool, Meta(description="Whether none may arrive twice.")] = True
    order: Annotated[bool, Meta(description="Whether all arrive in order, by publisher.")] = False
    queue_bytes: Annotated[
        int, Meta(ge=0, le=1 << 40, description="What may wait at a link; 0 for any.")
    ] = 0
    node_bytes: Annotated[
        int, Meta(ge=0, le=1 << 40, description="What may wait in a node; 0 for any.")
    ] = 0


class ScenarioSettings(Struct, frozen=True, kw_only=True):
    """All of a scenario file."""

    run: RunSettings = RunSettings()
    topology: TopologySettings = TopologySettings()
    links: LinkSettings = LinkSettings()
    link: tuple[LinkException, ...] = ()
    faults: tuple[FaultSettings, ...] = ()
    random_faults: RandomFaultSettings = RandomFaultSettings()
    channels: tuple[ScenarioChannelSettings, ...] = ()
    publishers: tuple[PublisherSettings, ...] = ()
    subscribers: tuple[SubscriberSettings, ...] = ()
    checks: CheckSettings = CheckSettings()
