from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.broker import KINDS, TestBroker, start


@pytest.fixture(scope="module", params=KINDS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestBroker]:
    """A broker for all tests of a module: none may stop it."""
    with start(request.param, tmp_path_factory.mktemp("broker"), has_websocket=True) as running:
        yield running


@pytest.fixture
def broker_url(broker: TestBroker) -> str:
    return broker.url


@pytest.fixture(params=KINDS)
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestBroker]:
    """A broker of the test's own, to be killed and started again."""
    with start(request.param, tmp_path) as running:
        yield running
