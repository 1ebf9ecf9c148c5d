"""Lists that are searched and sorted, and predicates that are checked, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import pytest

from accord.core.monitoring.statistics import ClientStatus
from accord.core.monitoring.top import ChannelActivity
from accord.core.router.rights import EVERYTHING, Rights
from accord.http.app import create_app
from accord.operations.activity import ChannelField, ListChannelActivity
from accord.operations.clients import ClientField, ListClients
from accord.operations.operation import Asker, RequestError, operation_of
from accord.operations.ports import NodePorts
from accord.operations.predicates import CheckPredicate
from tests.fake_ledger import FakeLedger
from tests.fake_node import FakeNode

CLIENTS = (
    ClientStatus(client="patrol-1", user="ann", address="10.0.0.1", sent=5, connected_ms=9),
    ClientStatus(client="Patrol-2", user="bob", address="10.0.0.2", sent=50),
    ClientStatus(client="uav", user="patrols", address="10.1.0.3", sent=7, connected_ms=3),
    ClientStatus(client="crew", user="ann", address="10.1.0.4", sent=7, connected_ms=5),
)


class NodeOfClients(FakeNode):
    def __init__(self, clients: tuple[ClientStatus, ...] = CLIENTS) -> None:
        super().__init__()
        self.all = clients
        self.counters.sessions = len(clients)

    def clients(self) -> Iterator[ClientStatus]:
        yield from self.all


def ask(
    path: str, node: NodePorts | None = None, method: str = "GET", **options: Any
) -> httpx.Response:
    app = create_app(node or NodePorts(view=NodeOfClients(), ledger=FakeLedger().fill()))

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, f"/api/v1{path}", **options)

    return asyncio.run(main())


class TestClients:
    @pytest.mark.parametrize(
        ("query", "names", "matching"),
        [
            ("", ["patrol-1", "Patrol-2", "uav", "crew"], 4),
            ("limit=2", ["patrol-1", "Patrol-2"], 4),
            ("search=PATROL", ["Patrol-2", "patrol-1", "uav"], 3),
            ("search=10.1.", ["crew", "uav"], 2),
            ("search=none", [], 0),
            ("sort=sent&descending=true", ["Patrol-2", "uav", "crew", "patrol-1"], 4),
            ("sort=sent&limit=1&offset=1", ["uav"], 4),
            ("sort=connected_ms", ["uav", "crew", "patrol-1", "Patrol-2"], 4),
            ("sort=connected_ms&descending=true", ["patrol-1", "crew", "uav", "Patrol-2"], 4),
            ("sort=connected_ms&offset=3", ["Patrol-2"], 4),
            ("sort=client&search=ann", ["crew", "patrol-1"], 2),
            ("sort=client&offset=99", [], 4),
        ],
    )
    def test_search_and_sort(self, query: str, names: list[str], matching: int) -> None:
        answer = ask(f"/clients?{query}").json()
        assert [each["client"] for each in answer["clients"]] == names
        assert (answer["total"], answer["matching"]) == (4, matching)

    def test_every_field_sorts(self) -> None:
        assert set(get_args(ClientField)) == set(ClientStatus.__struct_fields__)
        for field in get_args(ClientField):
            assert len(ask(f"/clients?sort={field}").json()["clients"]) == 4

    def test_no_other_field_does(self) -> None:
        answer = ask("/clients?sort=__class__")
        assert answer.status_code == 400
        assert answer.json()["place"] == "sort"

    def test_ten_thousand_clients_let_others_run(self) -> None:
        """The event loop turns many times while the list is made."""
        clients = tuple(ClientStatus(client=f"c{n}", sent=n % 100) for n in range(10_000))
        request = ListClients(sort="sent", descending=True)
        listing = operation_of(ListClients)
        node = NodePorts(view=NodeOfClients(clients))

        async def main() -> int:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            page = await listing.perform(node, request, Asker(rights=Rights()))
            counting.cancel()
            assert [each.sent for each in page.clients] == [99] * 100
            return turns

        assert asyncio.run(main()) >= 10


class TestChannelActivity:
    def test_idle_channels_are_listed_too(self) -> None:
        answer = ask("/activity/channels").json()
        names = [each["channel"] for each in answer["channels"]]
        assert "idle/one" in names
        assert names == sorted(names)
        assert answer["total"] == answer["matching"] == len(names)

    def test_search_and_sort(self) -> None:
        answer = ask("/activity/channels?search=IDLE").json()
        assert [each["channel"] for each in answer["channels"]] == ["idle/one"]
        assert answer["matching"] == 1 < answer["total"]
        rows = ask("/activity/channels?sort=published&descending=true").json()["channels"]
        counts = [each["published"] for each in rows]
        assert counts == sorted(counts, reverse=True)

    def test_every_field_sorts(self) -> None:
        assert set(get_args(ChannelField)) == set(ChannelActivity.__struct_fields__)
        for field in get_args(ChannelField):
            assert ask(f"/activity/channels?sort={field}").status_code == 200

    def test_only_what_the_asker_may_see_counts(self) -> None:
        asker = Asker(user="bob", rights=Rights(subscribe=("idle/#",)))
        node = NodePorts(view=FakeNode(), ledger=FakeLedger().fill())
        listing = operation_of(ListChannelActivity)
        page = asyncio.run(listing.perform(node, ListChannelActivity(), asker))
        assert [each.channel for each in page.channels] == ["idle/one"]
        assert (page.total, page.matching) == (1, 1)


class TestPredicates:
    def check(self, **body: Any) -> httpx.Response:
        return ask("/predicates/check", method="POST", json=body)

    def test_a_valid_one(self) -> None:
        answer = self.check(where="load_mw>4 and NOT status = 'off'", channel="grid/#")
        assert answer.status_code == 200
        found = answer.json()
        assert found["attributes"] == ["load_mw", "status"]
        assert found["selects"] == "some"
        again = self.check(where=found["canonical"]).json()
        assert again["canonical"] == found["canonical"]

    @pytest.mark.parametrize(
        ("where", "selects"), [("", "all"), ("TRUE", "all"), ("a = 1 AND a = 2", "none")]
    )
    def test_constants(self, where: str, selects: str) -> None:
        assert self.check(where=where).json()["selects"] == selects

    def test_xpath(self) -> None:
        found = self.check(xpath="/report/priority > 3").json()
        assert found["paths"]
        assert found["attributes"] == []
        wrong = self.check(xpath="/report[").json()
        assert wrong["place"] == "xpath"

    def test_a_problem_says_where_and_what_was_expected(self) -> None:
        answer = self.check(where="load_mw == 4")
        assert answer.status_code == 400
        problem = answer.json()
        assert (problem["place"], problem["at"]) == ("where", 9)
        assert "a number" in problem["expected"]
        assert problem["repair"] == "load_mw = 4"
        assert problem["detail"].startswith("unexpected '='")

    def test_a_problem_without_a_repair(self) -> None:
        problem = self.check(where="load_mw >").json()
        assert problem["at"] == 9
        assert "repair" not in problem

    def test_queries_say_where_too(self) -> None:
        problem = ask("/query?channel=demo/%23&where=a%3D%3D1").json()
        assert problem.get("at") in (2, None)  # None: this node has no pipeline

    @pytest.mark.parametrize(
        ("body", "status", "place"),
        [
            ({"where": "a = 1", "xpath": "/a"}, 400, "xpath"),
            ({"where": "a = 1", "channel": "a/#/b"}, 400, "channel"),
            ({"where": 7}, 400, "where"),
            ({"what": "a = 1"}, 400, "request"),
            ({"where": "x" * 60_000}, 400, "where"),
            ({"where": "(" * 16_000}, 400, "where"),
            ({"where": "NOT " * 4_000}, 400, "where"),
            ({"xpath": "(" * 16_000}, 400, "xpath"),
        ],
    )
    def test_requests_that_are_refused(self, body: Any, status: int, place: str) -> None:
        answer = self.check(**body)
        assert (answer.status_code, answer.json()["place"]) == (status, place)

    def test_channels_that_the_asker_may_not_subscribe_to(self) -> None:
        checking = operation_of(CheckPredicate)
        asker = Asker(user="bob", rights=Rights(subscribe=("a/#",)))
        node = NodePorts(view=FakeNode())
        asyncio.run(checking.perform(node, CheckPredicate(channel="a/b"), asker))
        with pytest.raises(RequestError, match="may not subscribe"):
            asyncio.run(checking.perform(node, CheckPredicate(channel="b/#"), asker))

    def test_a_long_one_leaves_the_event_loop_free(self) -> None:
        checking = operation_of(CheckPredicate)
        node = NodePorts(view=FakeNode())
        where = " OR ".join(f"a{number} = {number}" for number in range(1_000))

        async def main() -> int:
            turns = 0
            found = asyncio.ensure_future(
                checking.perform(node, CheckPredicate(where=where), Asker(rights=EVERYTHING))
            )
            while not found.done():
                await asyncio.sleep(0)
                turns += 1
            assert len(found.result().attributes) == 1_000
            return turns

        assert asyncio.run(main()) > 10
