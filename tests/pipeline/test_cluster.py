"""The pipeline on a real cluster, by the product's own switch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.cluster_work import EVENTS, EXECUTOR_MB
from tests.spark_cluster import SparkCluster, SparkConnect, processes

_ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(200)
@pytest.mark.parametrize("kind", [SparkCluster, SparkConnect])
def test_archive_query_and_brokering_run_on_a_cluster(
    tmp_path: Path, kind: type[SparkCluster]
) -> None:
    memory_mb = EXECUTOR_MB if kind is SparkCluster else 2 * EXECUTOR_MB  # a driver needs more
    with kind(tmp_path / "cluster", memory_mb=memory_mb) as cluster:
        command = [sys.executable, "-m", "tests.pipeline.cluster_work", cluster.url, str(tmp_path)]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
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


APPLICATION = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master(sys.argv[1]).config("spark.executor.memory", "480m")
spark = spark.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(4).mapInPandas(lambda frames: frames, "id long").collect()
print(len(rows), flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_stopped_leaves_no_java(tmp_path: Path, number: signal.Signals) -> None:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    with (
        SparkCluster(tmp_path / "cluster", workers=1, memory_mb=EXECUTOR_MB) as cluster,
        subprocess.Popen(
            [sys.executable, "-c", APPLICATION, cluster.url],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as application,
    ):
        assert application.stdout is not None
        assert application.stdout.readline() == b"4\n"
        master, worker = cluster.processes
        for process, least in ((worker, 2), (master, 1)):  # a worker has an executor, too
            (server,) = (each.number for each in processes() if each.parent == process.pid)
            assert sum(each.session == server for each in processes()) >= least
            process.send_signal(number)
            assert process.wait(60) == 0
            assert not any(each.session == server for each in processes())
        application.kill()
