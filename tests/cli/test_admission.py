"""`accord admission`, against the API over a fake node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.net_server import lines, run, serving
from tests.fake_admission import FakeAdmission


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(None, admission=FakeAdmission()) as running:
        yield running


def test_it_shows_the_order_the_resources_and_refusals(url: str) -> None:
    text = lines(run(url, "admission", width=160))
    assert text[0] == (
        "denver mode enforce · guarantee full · basis highest · 5 advertisements"
        " · 2 subscriptions promised · 1 refused"
    )
    start = text.index("advertised") + 2
    assert text[start : start + 6] == [
        "stock WHERE price > 0 28/s 5 4/s by 1",
        "stock WHERE price > 5 20/s 3 5/s by 1",
        "stock WHERE name = 'DEU' AND price > 8 11/s 1 11/s by 1",
        "stock WHERE price > 9 4/s 1 4/s by 1",
        "stock WHERE name = 'DEU' AND price > 3 15/s 2 4/s by 1",
        "stock WHERE name = 'DEU' AND price > 8 see above",
    ]
    assert "exchange stock 4/s 1,200 7" in text
    assert "denver bandwidth of client ann 50 kbit/s 20 kbit/s 0 bit/s 30 kbit/s" in text
    assert "denver bandwidth of link boston 100 kbit/s 100 kbit/s 0 bit/s 0 bit/s" in text
    assert "denver cpu ? 20 events/s 0 events/s ?" in text
    assert text[-1].endswith(
        "bob stock WHERE price > 2 node denver lacks bandwidth of client bob: 160 kbit/s asked"
    )


def test_the_books_of_all_nodes(url: str) -> None:
    text = lines(run(url, "admission", "books"))
    assert text[-1] == "denver enforce 2 1 bandwidth of link boston: 0 bit/s free"


def test_json_has_it_all(url: str) -> None:
    shown = json.loads(run(url, "admission", "--json").stdout)
    assert shown["filters"][0]["below"] == [1, 2]
    assert shown["refused"] == {"bandwidth": 1}


def test_what_a_subscription_would_need(url: str) -> None:
    text = lines(run(url, "admission", "check", "stock", "--where", "price > 2"))
    assert text[0] == "stock WHERE price > 2 Yes: nothing is known that limits it."
    assert "events/s, by what intersects it 18 31" in text
    assert "events/s, as in the paper 18 any number" in text
    assert "asks for 31 events/s of 1,000 bytes (248 kbit/s), guarantee full" in text


def test_a_secondary_node_does_not_know_what_others_advertise() -> None:
    known = "only the parents of this node know the advertisements of other nodes"
    with serving(None, admission=FakeAdmission(is_secondary=True)) as url:
        shown = lines(run(url, "admission", width=160))
        asked = lines(run(url, "admission", "check", "stock", width=160))
    assert shown[-1] == known
    assert asked[-1] == f"rates are of what is advertised at denver: {known}"


def test_what_would_be_refused_is_an_exit_code(url: str) -> None:
    refused = run(url, "admission", "check", "stock", "--client", "bob")
    assert refused.exit_code == 1
    assert "No: node denver lacks memory: 1 MB asked, 2 KB free." in refused.output
    assert (
        "No at 5 events/s:"
        in run(url, "admission", "check", "stock", "--client", "bob", "--rate", "5").output
    )
    shown = run(url, "admission", "check", "stock", "--client", "bob", "--json")
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["state"] == "refused"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["check", "a/#/b"], "FILTER"),
        (["check", "a", "--where", "price >"], "where"),
        (["--json", "check", "a"], "after check"),
    ],
)
def test_mistakes_are_said(url: str, arguments: list[str], problem: str) -> None:
    result = run(url, "admission", *arguments)
    assert result.exit_code == 2
    assert problem in result.output


def test_where_it_is_off_it_says_how_to_switch_it_on() -> None:
    with serving(None, admission=FakeAdmission("off")) as url:
        result = run(url, "admission")
        assert "admission is off: every subscription is accepted" in result.output
        assert '"enforce" under [admission]' in " ".join(result.output.split())
        asked = run(url, "admission", "check", "stock")
        assert "admission is off, so everything is accepted" in " ".join(asked.output.split())


def test_an_old_node_is_told_apart() -> None:
    with serving(None) as url:
        result = run(url, "admission")
        assert result.exit_code == 1
        assert "this node has no admission control" in result.output
