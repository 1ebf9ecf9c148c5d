"""The pipeline on a real cluster, by the product's own switch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.cluster_work import EVENTS
from tests.spark_cluster import JAVA_OPTIONS, SparkCluster, SparkConnect

_ROOT = Path(__file__).parent.parent.parent
_EXECUTOR_MB = 480
# Small executors, and all of it on loopback: what an operator would say in spark-defaults.conf.
_DEFAULTS = f"""
spark.executor.memory {_EXECUTOR_MB}m
spark.executor.extraJavaOptions {JAVA_OPTIONS}
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", [SparkCluster, SparkConnect])
def test_archive_query_and_brokering_run_on_a_cluster(
    tmp_path: Path, kind: type[SparkCluster]
) -> None:
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text(_DEFAULTS)
    environment = os.environ | {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {defaults} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    memory_mb = _EXECUTOR_MB if kind is SparkCluster else 2 * _EXECUTOR_MB  # a driver needs more
    with kind(tmp_path / "cluster", memory_mb=memory_mb) as cluster:
        command = [sys.executable, "-m", "tests.pipeline.cluster_work", cluster.url, str(tmp_path)]
        done = subprocess.run(
            command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["executors"] == (2 if kind is SparkCluster else 0)  # within the server
    assert found["archived"] == EVENTS
    uav_1 = [number for number in range(EVENTS) if number % 7 == 1]
    low = [number for number in uav_1 if number % 1_000 < 100]
    listed = [number for number in uav_1 if number % 1_000 in (8, 15)]
    assert found["query"] == low
    below_100 = sum(number % 1_000 < 100 for number in range(EVENTS))
    assert found["report"] == [EVENTS, EVENTS, EVENTS, below_100]
    assert found["matches"] == {"plain": sorted(low * 2), "other": sorted(listed * 2)}
