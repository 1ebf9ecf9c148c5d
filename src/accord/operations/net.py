"""The network for the map that can be drawn back: of the last hour, or older from the archive.

Live set: the network of now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from accord.core.overlay.net_history import NetStep
from accord.core.overlay.net_map import Key, NetLink, NetMap, NetNode, Row
from accord.core.overlay.net_recorder import REPEAT_MS, replay
from accord.core.overlay.overlay import LINK, NODE
from accord.core.overlay.status import ArrivalStatus, FlowStatus
from accord.core.overlay.status_publisher import ARRIVED, FLOW
from accord.operations.live_set import Watch, live_set
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.ports import NodePorts, need
from accord.operations.visibility import visible_row

Part = TypeVar("Part")

MAX_STEPS: Final = 1_000
MAX_RECORDS: Final = 10_000  # of the archive, in one answer
MAX_ARCHIVED_MS: Final = 86_400_000
_RECORDED_MS: Final = 60_000  # within which changes are recorded, even many
_MAX_CHANGES: Final = 4_000  # of one answer
_MAX_MS: Final = 1 << 53


class NetRows(Struct, frozen=True, kw_only=True):
    """Rows of the map; in a step, null says that there is none any more.

    Nodes are by name, links by source and target, flows and arrivals by the node that reports them
    and a key of its own.
    """

    nodes: dict[str, NetNode | None]
    links: dict[str, dict[str, NetLink | None]]
    flows: dict[str, dict[str, FlowStatus | None]]
    arrivals: dict[str, dict[str, ArrivalStatus | None]]


class NetStepRows(Struct, frozen=True, kw_only=True):
    """What changed at one moment: each row replaces the one before."""

    number: int
    at_ms: int
    rows: NetRows


class NetHistoryPage(Struct, frozen=True, kw_only=True):
    """The network at `at_ms` and the steps since; at most back to `from_ms`.

    Without `rows`, these are the steps after those of the page before. While it `has_more`, ask
    with `after` as it is here.
    """

    node: str
    from_ms: int
    at_ms: int
    after: int
    has_more: bool
    steps: tuple[NetStepRows, ...]
    rows: NetRows | None = None


class NetArchivePage(Struct, frozen=True, kw_only=True):
    """The network at `from_ms` by `rows`, and its changes up to `until_ms`, from the archive.

    These are the changes that matter: what is reachable, failed, slow or lossy, and paths. Where
    `until_ms` is before the time asked for, there were too many for one answer: ask from there.
    """

    node: str
    from_ms: int
    until_ms: int
    rows: NetRows
    steps: tuple[NetStepRows, ...]


class GetNetArchive(Request[NetArchivePage], frozen=True, kw_only=True, tag="archive"):
    since_ms: Annotated[int, Meta(ge=0, le=_MAX_MS, description="Start, in ms since 1970.")]
    until_ms: Annotated[
        int, Meta(ge=0, le=_MAX_MS, description="End, at most a day later. In ms since 1970.")
    ]


class GetNetHistory(Request[NetHistoryPage], frozen=True, kw_only=True, tag="history"):
    since_ms: Annotated[int, Meta(ge=0, le=_MAX_MS, description="Start, in ms since 1970.")] = 0
    after: (
        Annotated[
            int,
            Meta(ge=0, le=_MAX_MS, description="Number of a step: go on after it, without rows."),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=MAX_STEPS, description="Steps at most.")] = MAX_STEPS


def net_map(node: NodePorts) -> NetMap:
    return _known(need(node.net, "overlay").net_map)


def net_rows(
    rows: Iterable[tuple[Key, Row | None]], asker: Asker, *, with_nulls: bool = False
) -> NetRows:
    """Rows by kind, as far as the asker may see them; null where not."""
    made = NetRows(nodes={}, links={}, flows={}, arrivals={})
    nested: dict[str, dict[str, Any]] = {
        LINK: made.links, FLOW: made.flows, ARRIVED: made.arrivals,
    }  # fmt: skip
    for (kind, origin, other), row in rows:
        seen = None if row is None else visible_row(row, asker)
        if seen is None and not with_nulls:
            continue
        if kind == NODE:
            made.nodes[origin] = cast("NetNode | None", seen)
        else:
            nested[kind].setdefault(origin, {})[other] = seen
    return made


@operation("net", "GET /net/history", Right.STATISTICS)
def get_net_history(node: NodePorts, ask: GetNetHistory, asker: Asker) -> NetHistoryPage:
    """The network at a moment of the last hour, and how it changed since, in pages."""
    history = _known(need(node.net, "overlay").net_history)
    now_ms = node.now_ms()
    at_ms = max(ask.since_ms, history.from_ms)
    rows = None
    after = ask.after
    if after is None:
        found, after = history.rows_at(at_ms)
        rows = net_rows(found.items(), asker)
    steps = _bounded(history.steps_after(after, now_ms=now_ms, limit=ask.limit))
    last = steps[-1].number if steps else after
    return NetHistoryPage(
        node=node.view.name,
        from_ms=history.from_ms,
        at_ms=at_ms,
        after=last,
        has_more=bool(history.steps_after(last, now_ms=now_ms, limit=1)),
        steps=tuple(
            NetStepRows(
                number=each.number,
                at_ms=each.at_ms,
                rows=net_rows(each.changes.items(), asker, with_nulls=True),
            )
            for each in steps
        ),
        rows=rows,
    )


@operation("net", "GET /net/archive", Right.STATISTICS, long=True)
async def get_net_archive(node: NodePorts, ask: GetNetArchive, asker: Asker) -> NetArchivePage:
    """The network of a time before the last hour, and how it changed, from the archive."""
    if not ask.since_ms < ask.until_ms <= ask.since_ms + MAX_ARCHIVED_MS:
        problem = "expected a time after since_ms, and at most a day after it"
        raise RequestError(400, problem, "until_ms")
    _known(need(node.net, "overlay").net_map)
    body = await need(node.pipeline, "data pipeline").net_records(
        max(ask.since_ms - 2 * REPEAT_MS, 0), ask.until_ms + _RECORDED_MS, MAX_RECORDS
    )
    return await asyncio.to_thread(_archived, body, ask, node.view.name, asker)


def _archived(body: bytes, ask: GetNetArchive, name: str, asker: Asker) -> NetArchivePage:
    records = msgspec.msgpack.decode(body, type=list[tuple[int, str]])
    rows, steps = replay(records, ask.since_ms)
    until_ms = ask.until_ms
    if len(records) >= MAX_RECORDS:
        until_ms = min(max(records[-1][0], ask.since_ms + 1), until_ms)
    return NetArchivePage(
        node=name,
        from_ms=ask.since_ms,
        until_ms=until_ms,
        rows=net_rows(rows.items(), asker),
        steps=tuple(
            NetStepRows(
                number=number, at_ms=at_ms, rows=net_rows(changes.items(), asker, with_nulls=True)
            )
            for number, (at_ms, changes) in enumerate(steps, 1)
            if at_ms < until_ms
        ),
    )


def _bounded(steps: list[NetStep]) -> list[NetStep]:
    """The first steps, one at least, that together have a bounded number of changes."""
    count = 0
    for place, step in enumerate(steps):
        count += len(step.changes)
        if place and count > _MAX_CHANGES:
            return steps[:place]
    return steps


def _known(part: Part | None) -> Part:
    """Raises `RequestError` at a secondary node."""
    if part is None:
        problem = "this is a secondary node, which does not know the network"
        raise RequestError(404, problem, remedy="ask one of its parents")
    return part


class WatchNet(Watch, frozen=True, kw_only=True, tag="net"):
    pass


class NetState(Struct, frozen=True, kw_only=True):
    """The network as `node` knows it; `left_out` counts rows beyond the bounds of the map."""

    node: str
    left_out: int
    nodes: dict[str, NetNode]
    links: dict[str, dict[str, NetLink]]
    flows: dict[str, dict[str, FlowStatus]]
    arrivals: dict[str, dict[str, ArrivalStatus]]


def _net_version(node: NodePorts) -> object:
    known = None if node.net is None else node.net.net_map
    return None if known is None else known.version


@live_set(changes_with=_net_version)
def net(node: NodePorts, _ask: WatchNet, asker: Asker) -> NetState:
    """The whole network: nodes by name, links by source and target, flows and arrivals by node."""
    known = net_map(node)
    rows = net_rows(known.rows.items(), asker)
    return NetState(
        node=node.view.name,
        left_out=known.left_out,
        nodes=rows.nodes,  # type: ignore[arg-type]
        links=rows.links,  # type: ignore[arg-type]
        flows=rows.flows,  # type: ignore[arg-type]
        arrivals=rows.arrivals,  # type: ignore[arg-type]
    )
