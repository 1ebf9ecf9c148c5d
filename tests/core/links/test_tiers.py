"""Two secondary nodes have no use for each other."""

from __future__ import annotations

from msgspec.structs import replace
from tests.core.links.conversing import KEY, Ends, why

from accord.core.links.errors import CloseReason
from accord.core.links.handshake import LocalIdentity
from accord.core.links.messages import SECONDARY

ATHENS = LocalIdentity(node="athens", incarnation=1, key=KEY)
BERLIN = LocalIdentity(node="berlin", incarnation=2, key=KEY)


def secondary(local: LocalIdentity) -> LocalIdentity:
    return replace(local, features={SECONDARY: 1})


def test_a_secondary_node_links_with_a_backbone_node() -> None:
    ends = Ends(athens=secondary(ATHENS), berlin=BERLIN)
    ends.talk()
    assert ends.listener.neighbour is not None
    assert SECONDARY in ends.listener.neighbour.features
    assert ends.dialer.neighbour is not None
    assert SECONDARY not in ends.dialer.neighbour.features


def test_two_secondary_nodes_do_not() -> None:
    ends = Ends(athens=secondary(ATHENS), berlin=secondary(BERLIN))
    ends.talk()
    assert why(ends.listener) == CloseReason.TIER
    assert ends.dialer.ended is not None
    assert "both secondary" in ends.dialer.ended.problem
    assert "backbone nodes" in ends.dialer.ended.remedy
