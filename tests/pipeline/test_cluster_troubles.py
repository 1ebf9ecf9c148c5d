"""What the pipeline says of a cluster that does not work, and how it goes on when it does."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from benchmarks.ports import free_port
from tests.pipeline.asking import World
from tests.pipeline.cluster_work import EXECUTOR_MB, SETTINGS
from tests.pipeline.test_main import Pipeline, pipeline, start, world
from tests.spark_cluster import SparkCluster, SparkConnect, kill_servers

__all__ = ["pipeline", "world"]  # fixtures


@pytest.mark.timeout(300)
def test_a_connect_server_that_comes_and_goes(
    pipeline: Pipeline, world: World, tmp_path: Path
) -> None:
    port = free_port()
    pipeline.send(start(world, tmp_path, f"sc://127.0.0.1:{port}/;user_id=secret"))
    pipeline.wait_for(lambda health: "can't be reached (Connection refused)" in health.problem)
    assert pipeline.health.state == "partial"
    assert "accord spark connect" in pipeline.health.problem
    assert "secret" not in pipeline.health.problem
    with SparkConnect(tmp_path / "cluster", memory_mb=2 * EXECUTOR_MB, port=port) as cluster:
        pipeline.wait_for(lambda health: health.state == "ready")
        assert pipeline.health.problem == ""
        kill_servers(cluster)
        pipeline.wait_for(lambda health: health.state == "failed")
    assert f"sc://127.0.0.1:{port}" in pipeline.health.problem
    assert pipeline.end()[0] == 1  # the node starts another, which waits for the server


@pytest.mark.timeout(300)
def test_workers_that_are_too_small(pipeline: Pipeline, world: World, tmp_path: Path) -> None:
    large = SETTINGS | {"spark.executor.memory": "1g"}
    with SparkCluster(tmp_path / "cluster", workers=1, memory_mb=300) as cluster:
        message = start(world, tmp_path, cluster.url)
        pipeline.send(msgspec.structs.replace(message, spark_settings=large))
        pipeline.wait_for(lambda health: "no worker" in health.problem)
        assert "has 1,024 MB and 1 core free" in pipeline.health.problem
        assert "300 MB" in pipeline.health.problem
        assert pipeline.health.state == "partial"
        assert pipeline.end()[0] == 0


@pytest.mark.timeout(300)
def test_an_archive_that_is_not_shared(pipeline: Pipeline, world: World, tmp_path: Path) -> None:
    # A path that is another folder in each process, as one that is not shared is on each machine.
    elsewhere = f"/proc/self/cwd/{os.path.relpath(tmp_path / 'archive')}"
    with SparkCluster(tmp_path / "cluster", workers=1, memory_mb=EXECUTOR_MB) as cluster:
        message = start(world, tmp_path, cluster.url)
        message = msgspec.structs.replace(message, spark_settings=SETTINGS, archive=elsewhere)
        pipeline.send(message)
        pipeline.wait_for(lambda health: "does not see the archive" in health.problem)
        assert elsewhere in pipeline.health.problem
        assert pipeline.health.state == "partial"
        assert pipeline.end()[0] == 0
