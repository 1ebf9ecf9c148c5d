from __future__ import annotations

from itertools import product

import pytest

from accord.core.links.errors import CloseReason
from accord.core.links.handshake import DatagramKey, LinkPeer
from accord.core.links.session import reason_to_refuse

NO_KEY = DatagramKey(b"", b"")


def neighbour(node: str, *, is_dialed: bool, incarnation: int = 1) -> LinkPeer:
    return LinkPeer(
        node=node,
        incarnation=incarnation,
        version=1,
        is_dialed=is_dialed,
        features={},
        sending=NO_KEY,
        receiving=NO_KEY,
    )


def test_the_first_connection_is_taken() -> None:
    assert (
        reason_to_refuse("athens", None, neighbour("berlin", is_dialed=False), is_alive=False)
        is None
    )


@pytest.mark.parametrize("is_first_by_athens", [True, False])
def test_both_ends_keep_the_one_that_the_smaller_name_opened(is_first_by_athens: bool) -> None:
    """Whichever comes first, and at either end."""
    for own, other in (("athens", "berlin"), ("berlin", "athens")):
        first, second = (
            neighbour(other, is_dialed=(own == "athens") == by_athens)
            for by_athens in (is_first_by_athens, not is_first_by_athens)
        )
        refused = reason_to_refuse(own, first, second, is_alive=True)
        if is_first_by_athens:
            assert refused is not None
            assert refused.reason == CloseReason.DUPLICATE
            assert refused.is_routine
        else:
            assert refused is None


@pytest.mark.parametrize("is_dialed", [True, False])
def test_who_opens_a_second_one_has_lost_the_first(is_dialed: bool) -> None:
    standing, new = (neighbour("berlin", is_dialed=is_dialed) for _ in range(2))
    assert reason_to_refuse("athens", standing, new, is_alive=True) is None


@pytest.mark.parametrize("incarnations", [(5, 6), (6, 5)])
def test_another_node_of_the_same_name_is_refused_while_the_first_is_heard(
    incarnations: tuple[int, int],
) -> None:
    for own, one, two in product(("a", "z"), (True, False), (True, False)):
        first = neighbour("m", is_dialed=one, incarnation=incarnations[0])
        second = neighbour("m", is_dialed=two, incarnation=incarnations[1])
        refused = reason_to_refuse(own, first, second, is_alive=True)
        assert refused is not None
        assert refused.reason == CloseReason.SAME_NAME
        assert refused.remedy == "give each node a name of its own"
        assert reason_to_refuse(own, first, second, is_alive=False) is None, "it is its former self"
