"""The network of the last hour, for the map that can be drawn back to any moment of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeVar, cast

from msgspec import Meta, Struct

from accord.core.overlay.net_history import NetStep
from accord.core.overlay.net_map import Key, NetLink, NetMap, NetNode, Row
from accord.core.overlay.overlay import LINK, NODE
from accord.core.overlay.status import ArrivalStatus, FlowStatus
from accord.core.overlay.status_publisher import ARRIVED, FLOW
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.ports import NodePorts, need
from accord.operations.visibility import visible_row

Part = TypeVar("Part")

MAX_STEPS: Final = 1_000
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
