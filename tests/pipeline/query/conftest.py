from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.asking import World

from accord.pipeline.query.datafusion_engine import DataFusionEngine
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.spark_engine import SparkEngine


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture(params=["datafusion", "spark"])
def engine(request: pytest.FixtureRequest, world: World) -> ArchiveEngine:
    """Each of the two: what is true of one is true of the other."""
    if request.param == "datafusion":
        return DataFusionEngine()
    return SparkEngine(request.getfixturevalue("spark"), world.tables.storage)
