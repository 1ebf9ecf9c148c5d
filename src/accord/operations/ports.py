"""What operations need of a node: its parts, each seen through a port. Called on its event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct, field

from accord.operations.operation import Asker, Request, RequestError
from accord.operations.table_cache import TableCache

if TYPE_CHECKING:  # clients import this module for the requests, without a node's parts
    from accord.core.admission.status import AdmissionStatus, DemandStatus, NodeBook
    from accord.core.broker.broker import Broker
    from accord.core.broker.client_negotiation import ClientNegotiation
    from accord.core.broker.subscription_admission import SubscriptionAdmission
    from accord.core.monitoring.delivery import Delivery
    from accord.core.monitoring.delivery_lines import (
        ChannelDeliveries,
        ClientDeliveries,
        Deliveries,
        NewestEntries,
    )
    from accord.core.monitoring.measurement_registry import MeasurementRegistry
    from accord.core.monitoring.recent_changes import RecentChanges
    from accord.core.monitoring.samplers import ChannelSampler, ClientSampler
    from accord.core.monitoring.series import Summary
    from accord.core.monitoring.statistics import ClientStatus, Statistics
    from accord.core.monitoring.top import ChannelActivity, Top, Waiting
    from accord.core.monitoring.verdict import NodeProblem
    from accord.core.overlay.channel_directory import ChannelDefinition
    from accord.core.overlay.net_history import NetHistory
    from accord.core.overlay.net_map import NetMap
    from accord.core.overlay.status import ChannelStatus, NetStatus
    from accord.core.policy.explain import Explanation
    from accord.core.policy.grants import Grant
    from accord.core.policy.policies import Entity
    from accord.core.policy.policy import Policy
    from accord.core.policy.policy_set import PolicySet
    from accord.core.quality.properties import Property
    from accord.core.quality.status import PropertyStatus, QualityStatus, QualityTotals
    from accord.core.queries.messages import (
        EventQuery,
        ExportFormat,
        ExportPart,
        HistogramPart,
        Page,
    )
    from accord.journal.ledger_records import LedgerQuery, LedgerResult
    from accord.operations.policies import DryRun, Explain, Version

Part = TypeVar("Part")


class NodeView(Protocol):
    """A running node, seen from outside."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def is_ready(self) -> bool:
        """Whether clients are served: stored state is recovered, and the node is not draining."""

    def statistics(self) -> Statistics: ...

    def clients(self) -> Iterable[ClientStatus]:
        """Sessions in a stable order; consumed lazily, only as many as needed."""


class LedgerPort(Protocol):
    """Outcomes of events, and measured series; sampled once a second, at `sampled_ms` last."""

    @property
    def sampled_ms(self) -> int: ...

    @property
    def statistics(self) -> Statistics:
        """Those of the last sample."""

    @property
    def delivery(self) -> Delivery: ...

    @property
    def problems(self) -> tuple[NodeProblem, ...]:
        """What is not well, the worst first."""

    def series_names(self, prefix: str) -> list[str]: ...

    def top(self, most: int) -> Top: ...

    def channels(self) -> Iterable[ChannelActivity]:
        """Activity of all channels, also of idle ones; consumed over several turns."""

    def summary(self, name: str) -> Summary | None: ...

    def points(self, name: str) -> list[tuple[int, float]]: ...

    async def search(self, wanted: LedgerQuery, most: int) -> LedgerResult: ...

    async def waiting(self, number: int) -> list[Waiting]: ...

    def channel_sampler(self) -> ChannelSampler:
        """Measures more channels for some seconds after each call."""

    def client_sampler(self) -> ClientSampler: ...

    @property
    def seeded(self) -> int:
        """Grows whenever a table that is followed is complete."""

    def follow_client(self, client: str, *, now_ms: int) -> ClientDeliveries:
        """Follow what a client gets; ends when it is not asked for in a while, as do the others."""

    def follow_channel(self, channel: str, *, now_ms: int) -> ChannelDeliveries: ...

    def follow_newest(self, pattern: str, client: str | None, *, now_ms: int) -> NewestEntries: ...

    async def seed(self, table: Deliveries) -> None:
        """Wait until a table is complete."""


class PolicyPort(Protocol):
    """Policies and their changes; a change for another version than the current one is refused."""

    policy_set: PolicySet

    def history(self) -> list[Version]: ...

    async def replace(
        self, policy_set: PolicySet, *, who: str, if_version: int | None
    ) -> PolicySet: ...

    async def put_policy(
        self, policy: Policy, *, who: str, if_version: int | None
    ) -> PolicySet: ...

    async def remove_policy(self, name: str, *, who: str, if_version: int | None) -> PolicySet: ...

    async def patch(
        self, settings: Mapping[str, object], *, who: str, if_version: int | None
    ) -> PolicySet: ...

    async def limit_clients(
        self, clients: Iterable[str], bandwidth: object, *, who: str, if_version: int | None
    ) -> PolicySet: ...

    async def rollback(self, version: int, *, who: str, if_version: int | None) -> PolicySet: ...

    async def dry_run(self, policy_set: PolicySet) -> DryRun: ...

    def explain(self, request: Explain) -> Explanation: ...

    def query_grant(self, channel: str, entity: Entity) -> Grant: ...


class NetPort(Protocol):
    """The node's part in the overlay, and the channels that are defined there."""

    @property
    def templates(self) -> list[str]: ...

    @property
    def net_map(self) -> NetMap | None:
        """The network as the node knows it; None at a secondary node, which does not."""

    @property
    def net_history(self) -> NetHistory | None: ...

    def status(self) -> NetStatus: ...

    def channel_statuses(self) -> list[ChannelStatus]: ...

    def is_configured(self, name: str) -> bool:
        """Whether the configuration of this node defines the channel."""

    def problem_with_defining(self) -> str:
        """Why no channel can be defined at this node; empty if one can."""

    def problem_with_options(self, definition: ChannelDefinition) -> tuple[str, str] | None:
        """The option that the template can't use, and why."""

    def create_channel(self, definition: ChannelDefinition, *, replace: bool) -> str | None:
        """Returns the problem, or None."""

    def delete_channel(self, name: str) -> str | None: ...


class AdmissionPort(Protocol):
    """Admission control; `admitting` is None while its mode is off."""

    @property
    def mode(self) -> str: ...

    @property
    def admitting_now(self) -> SubscriptionAdmission | None: ...

    def status(self, most_pools: int | None = None) -> AdmissionStatus:
        """Without filters, which is quick; of all nodes' pools, or the tightest of this one."""

    @property
    def version(self) -> object:
        """Changes with each decision, and with each change of an advertisement."""

    def book(self, pools: int, refusals: int) -> NodeBook:
        """What this node has promised and refused: so many pools and refusals at most."""

    async def show(self) -> AdmissionStatus: ...

    async def check(
        self, channel: str, where: str, client_: str = "", wanted_hz: float | None = None
    ) -> DemandStatus:
        """The demand of a subscription; raises AccordError if it is not a valid one."""


class QualityPort(Protocol):
    """Negotiated quality."""

    @property
    def quality(self) -> ClientNegotiation: ...

    def status(self, pattern: str) -> QualityStatus: ...

    def totals(self) -> QualityTotals: ...

    def properties(self) -> list[PropertyStatus]: ...

    def define(self, properties: list[Property]) -> None: ...


class PipelinePort(Protocol):
    """The queries of the data pipeline."""

    async def page(  # noqa: PLR0913 (by keyword)
        self,
        ask: EventQuery,
        *,
        cursor: str,
        rows: int,
        bytes_: int,
        within_ms: int,
        importance: int,
    ) -> Page: ...

    async def histogram(  # noqa: PLR0913 (by keyword)
        self,
        ask: EventQuery,
        *,
        until_ms: int,
        cursor: str,
        buckets: int,
        within_ms: int,
        importance: int,
    ) -> HistogramPart: ...

    async def export(  # noqa: PLR0913 (by keyword)
        self,
        ask: EventQuery,
        *,
        format_: ExportFormat,
        cursor: str,
        columns: dict[str, str],
        bytes_: int,
        importance: int,
    ) -> ExportPart: ...

    async def report(
        self, *, since_ms: int, until_ms: int, channel: str, importance: int
    ) -> bytes: ...

    async def ledger(self, number: int, most: int) -> bytes:
        """Archived outcomes of an event: `ArchivedEntry`s as msgpack."""

    async def net_records(self, since_ms: int, until_ms: int, most: int) -> bytes:
        """Archived changes of the network: times and records as msgpack, the oldest first."""


class OtherNodes(Protocol):
    """The other nodes of the network, asked over the overlay."""

    def nodes(self) -> list[str]:
        """Those that can be asked now."""

    def known_nodes(self) -> list[str]:
        """Also those that can't be reached now."""

    async def ask(self, name: str, request: Request[Any], asker: Asker) -> Any:
        """The answer of another node; raises RequestError if it refuses, or does not answer."""


class Audit(Protocol):
    """Records a change: the operation, by whom, the request as text, and what it is about."""

    def __call__(
        self, operation: str, asker: Asker, request: str, *, subject: str = "", channel: str = ""
    ) -> None: ...


def _no_audit(
    operation: str, asker: Asker, request: str, *, subject: str = "", channel: str = ""
) -> None:
    pass


class NodePorts(Struct, kw_only=True):
    """A node's parts; a node may lack some of them."""

    view: NodeView
    broker: Broker | None = None
    ledger: LedgerPort | None = None
    policies: PolicyPort | None = None
    net: NetPort | None = None
    admission: AdmissionPort | None = None
    quality: QualityPort | None = None
    pipeline: PipelinePort | None = None
    registry: MeasurementRegistry | None = None
    journal: Path | None = None
    groups_of: Callable[[str], tuple[str, ...]] = lambda _user: ()
    now_ms: Callable[[], int] = lambda: 0
    due: Callable[[], None] = lambda: None  # something is to be sent to clients
    audit: Audit = _no_audit
    changes: RecentChanges | None = None
    others: OtherNodes | None = None
    tables: TableCache = field(default_factory=TableCache)


def need(part: Part | None, what: str) -> Part:
    """The part; raises `RequestError` if the node lacks it."""
    if part is None:
        raise RequestError(404, f"this node has no {what}")
    return part
