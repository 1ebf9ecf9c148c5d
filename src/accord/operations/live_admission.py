"""The live set of admission: what this node has promised and refused."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accord.core.admission.status import PoolStatus, PublisherStatus, RefusalStatus
from accord.operations.admission import visible_status
from accord.operations.live_set import Watch, live_set, sampled
from accord.operations.operation import Asker
from accord.operations.ports import NodePorts, need


class WatchAdmission(Watch, frozen=True, kw_only=True, tag="admission"):
    limit: Annotated[
        int, Meta(ge=1, le=500, description="How many pools and publishers at most.")
    ] = 100


class AdmissionState(Struct, frozen=True, kw_only=True):
    """The node's book; of `pools_total` pools the tightest, by resource and whose it is.

    Publishers are by client and name, refusals by time, client and filter.

    `filters_version` increases with each change of an advertisement: `admission.get` has the
    filters.
    """

    node: str
    mode: str
    guarantee: str
    basis: str
    is_secondary: bool
    advertisements: int
    filters_total: int
    filters_version: int
    limited: int
    subscriptions: int
    decided: dict[str, int]
    refused: dict[str, int]
    pools_total: int
    pools: dict[str, PoolStatus]
    publishers: dict[str, PublisherStatus]
    lately: dict[str, RefusalStatus]


def _version(node: NodePorts) -> object:
    return sampled(node), None if node.admission is None else node.admission.version


@live_set(changes_with=_version, every_ms=250)
def admission(node: NodePorts, ask: WatchAdmission, asker: Asker) -> AdmissionState:
    """What this node has promised, what is free, what is advertised here, what was refused."""
    found = visible_status(need(node.admission, "admission control").status(ask.limit), asker)
    return AdmissionState(
        node=found.node,
        mode=found.mode,
        guarantee=found.guarantee,
        basis=found.basis,
        is_secondary=found.is_secondary,
        advertisements=found.advertisements,
        filters_total=found.filters_total,
        filters_version=found.filters_version,
        limited=found.limited,
        subscriptions=found.subscriptions,
        decided=found.decided,
        refused=found.refused,
        pools_total=found.pools_total,
        pools={f"{each.resource} {each.of}": each for each in found.pools},
        publishers={f"{each.client} {each.name}": each for each in found.publishers[: ask.limit]},
        lately={f"{each.at_ms} {each.client} {each.filter}": each for each in found.lately},
    )
