"""Books of all nodes, what the asker may see of admission, and why something does not fit."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from accord.core.admission.resources import Resource
from accord.core.admission.status import (
    AdmissionStatus,
    FilterStatus,
    RefusalStatus,
    visible_filters,
)
from accord.core.admission.subscription_requests import AdmissionRefusal
from accord.core.broker.refusal_remedies import remedy_text, shortage_status
from accord.core.router.rights import EVERYTHING, NO_RIGHTS, Rights
from accord.operations.admission import ListBooks, NodeBookList
from accord.operations.live_admission import AdmissionState, WatchAdmission
from accord.operations.live_catalog import SETS
from accord.operations.operation import Asker, Request, RequestError, operation_of
from accord.operations.ports import NodePorts
from tests.fake_admission import FakeAdmission, status
from tests.fake_ledger import FakeLedger
from tests.fake_node import FakeNode
from tests.operations.asking import ask

TOPIC = "$accord/admission"
STOCK = Rights(subscribe=("stock",))
OTHER = Rights(subscribe=("news/#",))


def node(**more: Any) -> NodePorts:
    return NodePorts(view=FakeNode(), admission=FakeAdmission(), ledger=FakeLedger(), **more)


def filter_status(channel: str, *below: int) -> FilterStatus:
    return FilterStatus(
        channel=channel, where="", rate_hz=1, count=1, own_rate_hz=1, own_count=1, below=below
    )


class OtherNodes:
    """Two nodes: one answers, the other does not."""

    def nodes(self) -> list[str]:
        return ["beta"]

    def known_nodes(self) -> list[str]:
        return ["beta", "gamma"]

    async def ask(self, name: str, request: Request[Any], asker: Asker) -> Any:
        if name == "gamma":
            raise RequestError(504, "node gamma does not answer", "node", remedy="try again")
        found = operation_of(type(request)).perform(node(), replace(request, node=""), asker)
        return replace(found, node=name)


def test_the_books_of_all_nodes_are_asked_for_and_who_is_silent_is_named() -> None:
    found = ask(node(others=OtherNodes()), TOPIC, {"do": "books", "pools": 2, "refusals": 1})
    books = {each["node"]: each for each in found["books"]}
    assert list(books) == ["denver", "beta", "gamma"]  # the fake book's own name is denver
    assert books["gamma"]["problem"] == "node: node gamma does not answer; try again"
    for name in ("denver", "beta"):
        book = books[name]
        assert book["problem"] == ""
        assert (book["pools_total"], len(book["pools"])) == (4, 2)
        assert book["pools"][0]["of"] == "link boston"  # the tightest
        assert len(book["lately"]) == 1


def test_a_node_alone_has_one_book() -> None:
    found = ask(node(), TOPIC, {"do": "books"})
    assert [each["node"] for each in found["books"]] == ["denver"]
    assert ask(node(), TOPIC, {"do": "books"}, rights=NO_RIGHTS)["status"] == 403
    assert ask(node(), TOPIC, {"do": "books", "pools": 51})["status"] == 400


def test_what_concerns_channels_of_others_is_left_out() -> None:
    full = ask(node(), TOPIC, {"do": "get"}, rights=STOCK)
    assert (len(full["filters"]), len(full["publishers"]), len(full["lately"])) == (5, 1, 1)
    less = ask(node(), TOPIC, {"do": "get"}, rights=OTHER)
    assert (less["filters"], less["publishers"], less["lately"]) == ([], [], [])
    assert less["filters_total"] == 5
    assert ask(node(), TOPIC, {"do": "book"}, rights=OTHER)["lately"] == []


def test_what_a_hidden_filter_covers_is_below_what_covers_it() -> None:
    filters = [
        filter_status("#", 1, 2),
        filter_status("a/#", 3),
        filter_status("b"),
        filter_status("a/b"),
    ]
    assert visible_filters(filters, lambda _: True) == tuple(filters)
    seen = visible_filters(filters, lambda channel: channel != "a/#")
    assert [(each.channel, each.below) for each in seen] == [("#", (1, 2)), ("b", ()), ("a/b", ())]
    assert visible_filters(filters, lambda _: False) == ()


def test_the_live_set_has_the_book_and_nothing_of_others() -> None:
    set_ = SETS["admission"]
    for rights, seen in ((EVERYTHING, 1), (OTHER, 0)):
        state = set_.compute(node(), WatchAdmission(watch=1, limit=2), Asker(rights=rights))
        assert isinstance(state, AdmissionState)
        assert (state.pools_total, len(state.pools)) == (4, 2)
        assert (len(state.publishers), len(state.lately)) == (seen, seen)
    with pytest.raises(RequestError):
        set_.compute(NodePorts(view=FakeNode()), WatchAdmission(watch=1), Asker(rights=EVERYTHING))


def test_the_mistake_of_a_condition_has_a_place_and_a_repair() -> None:
    problem = ask(node(), TOPIC, {"do": "check", "channel": "stock", "where": "price == 3"})
    assert (problem["status"], problem["place"], problem["at"]) == (400, "where", 7)
    assert problem["repair"] == "price = 3"


REFUSALS = {
    AdmissionRefusal("denver", Resource.CPU, 31, 20): "it takes 11 events/s more of the CPU of "
    "denver, or a condition that selects at most 20 events/s",
    AdmissionRefusal("denver", Resource.BANDWIDTH, 64_000, 16_000, "client ann"): "it takes 48 "
    "kbit/s more bandwidth for client ann: a higher limit in the policies, or a faster link, or a "
    "condition that selects at most 25 % of these events",
    AdmissionRefusal("denver", Resource.BANDWIDTH, 64_000, 0, "link boston"): "it takes 64 kbit/s "
    "more bandwidth from denver to boston; nothing is free, so no condition makes it fit",
    AdmissionRefusal("denver", Resource.MEMORY, 3_000, 1_000): "it takes 2 KB more memory at "
    "denver (`memory_bytes` under [admission]), or a condition that selects at most 33.3 % of "
    "these events",
    AdmissionRefusal("boston", Resource.PATH, 0, 0): "node boston has to answer: `accord net` "
    "shows its links",
}


@pytest.mark.parametrize(("refusal", "words"), REFUSALS.items())
def test_what_would_have_made_it_fit(refusal: AdmissionRefusal, words: str) -> None:
    assert remedy_text(refusal) == words
    short = shortage_status(replace(refusal, of=refusal.of.replace("ann", "\0ann")))
    assert (short.of, short.asked) == (refusal.of, refusal.requested)


def test_answers_of_older_nodes_are_read() -> None:
    old = msgspec.to_builtins(status())
    for each in old["lately"]:
        del each["shortages"]
    del old["filters_version"]
    found = msgspec.convert(old, AdmissionStatus)
    assert found == status()
    assert isinstance(found.lately[0], RefusalStatus)


def test_books_are_read_by_clients() -> None:
    async def main() -> NodeBookList:
        made: NodeBookList = await operation_of(ListBooks).perform(
            node(), ListBooks(), Asker(rights=EVERYTHING)
        )
        return made

    found = asyncio.run(main())
    assert msgspec.json.decode(msgspec.json.encode(found), type=NodeBookList) == found
