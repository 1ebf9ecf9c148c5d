"""The live sets of the node as a whole: its state and verdict, and what changed lately."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accord.core.monitoring.delivery import Delivery
from accord.core.monitoring.statistics import JournalStatus, PipelineStatus
from accord.core.monitoring.top import BinActivity, LedgerStatus, Management, NodeLoad
from accord.core.router.limits import BUILD
from accord.operations.live_set import Watch, live_set, sampled
from accord.operations.operation import Asker
from accord.operations.ports import NodePorts, need
from accord.operations.status import verdict_of, visible_changes, visible_problems


class WatchNode(Watch, frozen=True, kw_only=True, tag="node"):
    pass


class ProblemRow(Struct, frozen=True, kw_only=True):
    """Something that is not well; `severity` is warn or bad."""

    rank: int  # 0 is the worst
    severity: str
    subject: str
    sentence: str
    since_ms: int
    page: str


class NodeState(Struct, frozen=True, kw_only=True):
    """The node as of its last sample, which it takes once a second."""

    name: str
    version: str
    build: str
    is_ready: bool
    uptime_ms: int
    load: NodeLoad
    management: Management
    bins: dict[str, BinActivity]  # by importance
    delivery: Delivery
    channels_total: int
    clients_total: int
    ledger: LedgerStatus
    pipeline: PipelineStatus | None
    journal: JournalStatus | None
    verdict: str
    problems: dict[str, ProblemRow]


def _node_version(node: NodePorts) -> object:
    return sampled(node), node.view.is_ready()


@live_set(changes_with=_node_version)
def node_state(node: NodePorts, _ask: WatchNode, asker: Asker) -> NodeState:
    """The node at a glance: load, delivery, storage, and whether all is well."""
    ledger, view = need(node.ledger, "ledger"), node.view
    top = ledger.top(0)
    problems = visible_problems(node, asker)
    statistics = ledger.statistics
    return NodeState(
        name=view.name,
        version=view.version,
        build=BUILD,
        is_ready=view.is_ready(),
        uptime_ms=top.uptime_ms,
        load=top.load,
        management=top.management,
        bins={str(each.importance): each for each in top.bins},
        delivery=ledger.delivery,
        channels_total=top.channels_total,
        clients_total=top.clients_total,
        ledger=top.ledger,
        pipeline=statistics.pipeline,
        journal=statistics.journal,
        verdict=verdict_of(node, problems),
        problems={
            each.key: ProblemRow(
                rank=rank,
                severity=each.severity,
                subject=each.subject,
                sentence=each.sentence,
                since_ms=each.since_ms,
                page=each.page,
            )
            for rank, each in enumerate(problems)
        },
    )


class WatchChanges(Watch, frozen=True, kw_only=True, tag="changes"):
    limit: Annotated[int, Meta(ge=1, le=200, description="How many at most.")] = 50


class ChangeRow(Struct, frozen=True, kw_only=True):
    """A change; `count` of them if a row stands for many."""

    at_ms: int
    kind: str
    who: str
    what: str
    detail: str
    page: str
    count: int


class ChangesState(Struct, frozen=True, kw_only=True):
    """Changes by number: the newest has the largest."""

    rows: dict[str, ChangeRow]


def _changes_version(node: NodePorts) -> object:
    return None if node.changes is None else node.changes.version


@live_set(changes_with=_changes_version, every_ms=250)
def changes(node: NodePorts, ask: WatchChanges, asker: Asker) -> ChangesState:
    """What changed lately: policies, limits, clients, links, refusals, the pipeline."""
    return ChangesState(
        rows={
            str(each.number): ChangeRow(
                at_ms=each.at_ms,
                kind=each.kind,
                who=each.who,
                what=each.what,
                detail=each.detail,
                page=each.page,
                count=each.count,
            )
            for each in visible_changes(node, ask.limit, asker)
        }
    )
