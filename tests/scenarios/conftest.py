from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.brokers import Broker, start_broker

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with start_broker(has_websocket=True) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"s{next(_numbers)}/topic"
