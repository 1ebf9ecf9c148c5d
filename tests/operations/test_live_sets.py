"""All live sets are declared as they must be, and `docs/LIVE.md` describes them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from accord.core.monitoring import viewers
from accord.core.monitoring.merge_patch import without_nulls
from accord.core.monitoring.recent_changes import RecentChanges
from accord.core.router.rights import EVERYTHING, Rights
from accord.http import live, server
from accord.operations.documents import openapi
from accord.operations.live_catalog import SETS, read_request
from accord.operations.live_set import LiveSet, Watch, sharing_key
from accord.operations.operation import Asker, Right
from accord.operations.ports import NodePorts
from tests.fake_ledger import FakeLedger
from tests.fake_node import FakeNode

PAGE = (Path(__file__).parents[2] / "docs" / "LIVE.md").read_text()


@pytest.mark.parametrize("set_", SETS.values(), ids=str)
class TestEach:
    def test_it_is_described(self, set_: LiveSet) -> None:
        (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{set_.name}` |"))
        assert {f"`{name}`" for name in set_.fields} <= set(row.replace(",", " ").split())
        assert set_.description.endswith(".")

    def test_its_schemas_are_in_the_document(self, set_: LiveSet) -> None:
        schemas = openapi("1.2")["components"]["schemas"]
        assert {set_.state.__name__, set_.watch.__name__} <= schemas.keys()

    def test_it_takes_a_right_and_bounds_its_parameters(self, set_: LiveSet) -> None:
        assert set_.right is Right.STATISTICS
        assert 100 <= set_.every_ms <= 1_000
        for field in set_.fields.values():
            schema = str(msgspec.json.schema(field.type))
            assert any(word in schema for word in ("max", "enum", "boolean"))


def test_states_are_objects_that_say_what_they_may() -> None:
    node = NodePorts(view=FakeNode(), ledger=FakeLedger(), changes=RecentChanges())
    for name in ("node", "changes", "series"):
        set_, ask = read(f'{{"watch":1,"set":"{name}"}}')
        assert set_.name == name
        for rights in (EVERYTHING, Rights(subscribe=("a/#",))):
            state = set_.compute(node, ask, Asker(rights=rights))
            assert isinstance(state, set_.state)
            assert isinstance(without_nulls(msgspec.to_builtins(state)), dict)


def test_viewers_share_whatever_their_numbers_are() -> None:
    _, one = read('{"watch":1,"set":"series","limit":7}')
    _, other = read('{"set":"series","limit":7,"watch":99}')
    _, more = read('{"set":"series","limit":8,"watch":1}')
    assert sharing_key(one) == sharing_key(other) != sharing_key(more)


def test_the_limits_are_those_of_the_page() -> None:
    rows = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| ")]
    said = {name.strip(): value.strip() for name, value in (row for row in rows if len(row) == 2)}
    assert said["watches of a viewer"] == str(viewers.MAX_WATCHES)
    assert said["viewers"] == str(live.MAX_VIEWERS)
    assert said["viewers of one user; without users, of one address"] == str(live.MAX_USER_VIEWERS)
    assert said["different sets and parameters watched at once"] == str(live.MAX_FEEDS)
    assert said["different sets and parameters of one user; their states"] == (
        f"{live.MAX_USER_FEEDS}; {live.MAX_USER_FEEDS_BYTES >> 20} MB"
    )
    assert said["a request; a state"] == (
        f"{server.MAX_MESSAGE_BYTES >> 10} KB; {viewers.MAX_STATE_BYTES >> 10} KB"
    )
    assert live.MAX_VIEWERS < server.MAX_CONNECTIONS
    assert f"does not read for {server.READ_TIMEOUT_S:.0f} s" in PAGE


def read(text: str) -> tuple[LiveSet, Watch]:
    found = read_request(text)
    assert isinstance(found, tuple)
    return found
