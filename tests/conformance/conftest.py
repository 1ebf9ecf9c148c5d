from __future__ import annotations

from collections.abc import Iterator

import pytest

from accord.core.mqtt.codes import V5, V311
from tests.brokers import Broker, start_broker
from tests.conformance.conversation import Conversation


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with start_broker() as running:
        yield running


@pytest.fixture(params=[V311, V5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> int:
    """Each test runs in both versions, unless `only_5` or `only_311` says otherwise."""
    chosen: int = request.param
    return chosen


@pytest.fixture
def talk(broker: Broker, version: int) -> Iterator[Conversation]:
    with Conversation(broker, version) as conversation:
        yield conversation


@pytest.fixture
def topic(talk: Conversation) -> str:
    """A topic that no other test uses."""
    return f"{talk.name}/topic"
