"""Asks a standalone cluster what its workers have free.

The master names its workers in a message of Spark's own, as applications are not told where its
web page is; what is used, and who is alive, each worker's page says. Neither is a public interface
of Spark: where another version answers otherwise, nothing is known.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final
from urllib.request import urlopen

import msgspec
from pyspark.sql import SparkSession

from accord.pipeline.cluster_health import Worker

_MESSAGES: Final = "org.apache.spark.deploy.DeployMessages$"
_LOOPBACK: Final = "127.0.0.1"
_PAGE_S: Final = 1.0
_ALL_PAGES_S: Final = 4.0
_MOST_BYTES: Final = 1 << 20


class WorkerPage(msgspec.Struct):
    """What a worker's page says at /json/."""

    cores: int
    coresused: int
    memory: int  # in megabytes
    memoryused: int


def free_of_workers(spark: SparkSession, host: str, port: int) -> tuple[Worker, ...] | None:
    """What workers have free, as far as they answer; None if none of those there are does."""
    found = []
    pages = _pages(spark, host, port)
    until_s = time.monotonic() + _ALL_PAGES_S
    for name, url in pages:
        if time.monotonic() < until_s and (page := _read(url)) is not None:
            cores, memory = page.cores - page.coresused, page.memory - page.memoryused
            found.append(Worker(name, cores, memory))
    return tuple(found) if found or not pages else None


def _read(url: str) -> WorkerPage | None:
    if not url.startswith(("http://", "https://")):
        return None
    with (
        suppress(OSError, msgspec.MsgspecError),
        urlopen(f"{url}/json/", timeout=_PAGE_S) as answer,  # noqa: S310 (see above)
    ):
        return msgspec.json.decode(answer.read(_MOST_BYTES), type=WorkerPage)
    return None


def _pages(spark: SparkSession, host: str, port: int) -> list[tuple[str, str]]:
    """Host and page of each worker that the master knows, also of some that have ended."""
    jvm: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc
    conf = context.sc().conf()
    # A connection of its own: Py4J can't call that of the application, `SparkEnv`.
    rpc = jvm.org.apache.spark.rpc
    connection = rpc.RpcEnv.create("accord", _LOOPBACK, 0, conf, _security(jvm, conf), True)
    try:
        master = connection.setupEndpointRef(rpc.RpcAddress(host, port), "Master")
        load = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass
        request = load(f"{_MESSAGES}RequestMasterState$").getField("MODULE$").get(None)
        answer = jvm.scala.reflect.ClassTag.apply(load(f"{_MESSAGES}MasterStateResponse"))
        workers = master.askSync(request, answer).workers()
        return [(each.host(), each.webUiAddress()) for each in workers]
    finally:
        connection.shutdown()


def _security(jvm: Any, conf: Any) -> Any:
    """With the application's secret, if it has one."""
    companion = getattr(getattr(jvm.org.apache.spark, "SecurityManager$"), "MODULE$")
    secret_file = getattr(companion, "$lessinit$greater$default$3")()
    return jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), secret_file)
