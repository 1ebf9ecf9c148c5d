from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.machine import ENVIRONMENT, Machine, isolate_network


@pytest.fixture(scope="session", autouse=True)
def environment() -> None:
    if not (ENVIRONMENT / "bin" / "accord").exists():
        pytest.exit("there is no environment with the wheel: `make acceptance`", 4)
    isolate_network()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "user")
    yield made
    made.close()
