"""The live set of the network: what the map shows, at any node of it."""

from __future__ import annotations

from msgspec import Struct

from accord.core.overlay.net_map import NetLink, NetNode
from accord.core.overlay.status import ArrivalStatus, FlowStatus
from accord.operations.live_set import Watch, live_set
from accord.operations.net import net_map, net_rows
from accord.operations.operation import Asker
from accord.operations.ports import NodePorts


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
