from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.machine import ENVIRONMENT, Machine, isolate


@pytest.fixture(scope="session", autouse=True)
def environment() -> None:
    if not (ENVIRONMENT / "bin" / "accord").exists():
        pytest.exit("there is no environment with the wheel: `make acceptance`", 4)
    isolate()


@pytest.fixture(scope="session")
def _default(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("default"))
    yield made
    made.close()


@pytest.fixture
def default(_default: Machine) -> Machine:
    """With `accord up` as the README starts it; shared, because its pipeline takes a while."""
    if _default.node is None:
        _default.up()
    return _default


@pytest.fixture
def machine(_default: Machine, tmp_path: Path) -> Iterator[Machine]:
    """With nothing running yet: the default ports are free, and nobody comes back to them."""
    _default.close()
    made = Machine(tmp_path / "user")
    yield made
    made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that stop the shared node come last, so that it starts only once."""
    items.sort(key=lambda item: "machine" in getattr(item, "fixturenames", ()))
