"""The node at a glance; the latest outcomes; series of measurements; measured values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.model.channels import problem_with_filter
from accord.core.monitoring.delivery import Delivery
from accord.core.monitoring.ledger import OUTCOMES
from accord.core.monitoring.measurement_registry import MeasuredValue
from accord.core.monitoring.outcomes import DeliveryOutcomes, outcome_of
from accord.core.monitoring.recent_changes import RecentChange
from accord.core.monitoring.series import Summary, channel_of_series
from accord.core.monitoring.statistics import Statistics
from accord.core.monitoring.top import Top
from accord.core.monitoring.verdict import NodeProblem, verdict
from accord.core.router.limits import BUILD
from accord.journal.ledger_records import LedgerQuery
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.ports import LedgerPort, NodePorts, need
from accord.operations.visibility import visible_values

_MAX_MS: Final = 1 << 53

Rows = Annotated[int, Meta(ge=1, le=1_000, description="How many at most.")]
Text = Annotated[str, Meta(max_length=65_535)]
Moment = Annotated[int, Meta(ge=0, le=_MAX_MS, description="Of the outcome, in ms since 1970.")]


class NodeSummary(Struct, frozen=True, kw_only=True):
    """The node at a glance."""

    name: str
    version: str
    build: str  # with the native extension, or without where there was no C compiler
    is_ready: bool
    verdict: str = ""  # whether all is well, in a sentence
    problems: tuple[NodeProblem, ...] = ()  # the worst first
    statistics: Statistics


class SeriesList(Struct, frozen=True, kw_only=True):
    """Series, by name, with the statistics of the last 10 s."""

    series: tuple[Summary, ...]


class SeriesPoints(Struct, frozen=True, kw_only=True):
    """One series: times in ms and values, the oldest first."""

    summary: Summary
    points: tuple[tuple[int, float], ...]


class PointList(Struct, frozen=True, kw_only=True):
    """Points of a series, the oldest first: times in ms since 1970, and as many values."""

    times_ms: tuple[int, ...]
    values: tuple[float, ...]


class SeriesHistory(Struct, frozen=True, kw_only=True):
    """Points of series by name; series that are unknown are left out."""

    series: dict[str, PointList]


class ChangeList(Struct, frozen=True, kw_only=True):
    """What changed lately, newest first."""

    changes: tuple[RecentChange, ...]


class MeasuredValueList(Struct, frozen=True, kw_only=True):
    """What was measured of the running system, and is still new enough to count."""

    values: tuple[MeasuredValue, ...]


class GetStatus(Request[NodeSummary], frozen=True, tag="get"):
    pass


class GetTop(Request[Top], frozen=True, kw_only=True, tag="get"):
    limit: Annotated[int, Meta(ge=1, le=200, description="Channels and clients at most.")] = 20


class ListSeries(Request[SeriesList], frozen=True, kw_only=True, tag="list"):
    prefix: Annotated[str, Meta(max_length=65_535, examples=["node/"])] = ""
    limit: Rows = 200


class GetSeries(Request[SeriesPoints], frozen=True, kw_only=True, tag="get"):
    name: Annotated[str, Meta(max_length=65_535, examples=["node/received_hz"])]


class GetSeriesHistory(Request[SeriesHistory], frozen=True, kw_only=True, tag="history"):
    name: Annotated[
        tuple[Text, ...],
        Meta(min_length=1, max_length=64, description="Names of series.", examples=[["sent_hz"]]),
    ]
    since_ms: Annotated[int, Meta(ge=0, le=_MAX_MS, description="In ms since 1970.")] = 0


class ListChanges(Request[ChangeList], frozen=True, kw_only=True, tag="list"):
    limit: Annotated[int, Meta(ge=1, le=200, description="How many at most.")] = 50


class ListOutcomes(Request[DeliveryOutcomes], frozen=True, kw_only=True, tag="list"):
    channel: Annotated[str, Meta(max_length=65_535, examples=["demo/#"])] = "#"
    client: Annotated[Text | None, Meta(description="Publisher or destination.")] = None
    outcome: Annotated[Text | None, Meta(description=f"One of {', '.join(OUTCOMES)}.")] = None
    since_ms: Moment | None = None
    until_ms: Moment | None = None
    limit: Rows = 100


class ListMeasurements(Request[MeasuredValueList], frozen=True, kw_only=True, tag="list"):
    kind: Annotated[
        str, Meta(max_length=100, description="channel, predicate, publisher, node or link.")
    ]
    subject: Annotated[Text | None, Meta(description="A filter of names.")] = None


def visible_series(names: Iterable[str], asker: Asker) -> list[str]:
    """The series that the asker may see: those of a channel need the right to see the channel."""
    if asker.rights.policies:
        return list(names)
    found = []
    for name in names:
        channel = channel_of_series(name)
        if channel is None or asker.may_see(channel):
            found.append(name)
    return found


def visible_problems(node: NodePorts, asker: Asker) -> tuple[NodeProblem, ...]:
    """What is not well, as far as the asker may see the channels concerned."""
    found = () if node.ledger is None else node.ledger.problems
    return tuple(each for each in found if not each.channel or asker.may_see(each.channel))


def verdict_of(node: NodePorts, problems: tuple[NodeProblem, ...]) -> str:
    view = node.view
    delivery = Delivery() if node.ledger is None else node.ledger.delivery
    return verdict(view.name, problems, delivery, is_ready=view.is_ready())


def visible_changes(node: NodePorts, limit: int, asker: Asker) -> list[RecentChange]:
    """The newest changes; requests are shown to those who may change policies."""
    found: list[RecentChange] = []
    for each in need(node.changes, "record of changes").rows():
        if len(found) >= limit:
            break
        if not each.channel or asker.may_see(each.channel):
            is_shown = not each.is_request or asker.rights.policies
            found.append(each if is_shown else replace(each, detail=""))
    return found


def _ledger(node: NodePorts) -> LedgerPort:
    return need(node.ledger, "ledger")


@operation("status", "GET /status", Right.STATISTICS)
def get_status(node: NodePorts, _ask: GetStatus, asker: Asker) -> NodeSummary:
    """Whether all is well at the node, and what it does and holds now."""
    view = node.view
    problems = visible_problems(node, asker)
    return NodeSummary(
        name=view.name,
        version=view.version,
        build=BUILD,
        is_ready=view.is_ready(),
        verdict=verdict_of(node, problems),
        problems=problems,
        statistics=view.statistics(),
    )


@operation("top", "GET /top", Right.STATISTICS)
def get_top(node: NodePorts, ask: GetTop, asker: Asker) -> Top:
    """The busiest channels and clients, the queues, and the strategy of the node."""
    top = _ledger(node).top(ask.limit)
    return replace(
        top, channels=tuple(each for each in top.channels if asker.may_see(each.channel))
    )


@operation("series", "GET /series", Right.STATISTICS)
def list_series(node: NodePorts, ask: ListSeries, asker: Asker) -> SeriesList:
    """What is measured: names, last values, mean, deviation and trend over 10 s."""
    ledger = _ledger(node)
    names = visible_series(ledger.series_names(ask.prefix), asker)[: ask.limit]
    found = (ledger.summary(name) for name in names)
    return SeriesList(series=tuple(each for each in found if each is not None))


@operation("series", "GET /series/{name}", Right.STATISTICS)
def get_series(node: NodePorts, ask: GetSeries, asker: Asker) -> SeriesPoints:
    """One series with its points."""
    ledger = _ledger(node)
    summary = ledger.summary(ask.name)
    if summary is None or not visible_series((ask.name,), asker):
        raise RequestError(
            404, f"no series {ask.name[:200]!r}", "name", remedy="list the series first"
        )
    return SeriesPoints(summary=summary, points=tuple(ledger.points(ask.name)))


@operation("series", "GET /series-history", Right.STATISTICS)
def get_series_history(node: NodePorts, ask: GetSeriesHistory, asker: Asker) -> SeriesHistory:
    """The points of some series since a time, of the last 15 minutes at most."""
    ledger = _ledger(node)
    found = {}
    for name in visible_series(ask.name, asker):
        points = [each for each in ledger.points(name) if each[0] > ask.since_ms]
        if points or ledger.summary(name) is not None:
            times_ms, values = zip(*points, strict=True) if points else ((), ())
            found[name] = PointList(times_ms=times_ms, values=values)
    return SeriesHistory(series=found)


@operation("changes", "GET /changes", Right.STATISTICS)
def list_changes(node: NodePorts, ask: ListChanges, asker: Asker) -> ChangeList:
    """What changed lately: policies, limits, clients, links, refusals, the pipeline."""
    return ChangeList(changes=tuple(visible_changes(node, ask.limit, asker)))


@operation("ledger", "GET /ledger", Right.STATISTICS)
async def list_outcomes(node: NodePorts, ask: ListOutcomes, asker: Asker) -> DeliveryOutcomes:
    """The latest outcomes: of a channel filter, to or from a client, of one kind.

    Channels that begin with $ or accord-response/ only where the filter names them.
    """
    if problem := problem_with_filter(ask.channel):
        raise RequestError(400, problem, "channel")
    if ask.outcome is not None and ask.outcome not in OUTCOMES:
        problem = f"expected {', '.join(OUTCOMES)}, got {ask.outcome[:40]!r}"
        raise RequestError(400, problem, "outcome")
    wanted = LedgerQuery(
        channel=ask.channel,
        client=ask.client,
        outcome=None if ask.outcome is None else OUTCOMES.index(ask.outcome),
        since_ms=ask.since_ms,
        until_ms=ask.until_ms,
    )
    answer = await _ledger(node).search(wanted, ask.limit)
    return DeliveryOutcomes(
        outcomes=tuple(
            outcome_of(each, node.view.name)
            for each in answer.entries
            if asker.may_see(each.channel)
        ),
        is_complete=answer.is_complete,
        reaches_back_ms=answer.reaches_back_ms,
    )


@operation("registry", "GET /registry", Right.STATISTICS)
def list_measurements(node: NodePorts, ask: ListMeasurements, asker: Asker) -> MeasuredValueList:
    """Measured values of a kind: of channels, predicates, publishers, nodes or links."""
    if ask.subject is not None and (problem := problem_with_filter(ask.subject)):
        raise RequestError(400, problem, "subject")
    registry = need(node.registry, "measured values")
    found = registry.select(ask.kind, ask.subject, now_ms=node.now_ms())
    return MeasuredValueList(values=visible_values(found, asker))
