"""The Spark session of a pipeline: in-process, on a cluster, or through Spark Connect.

Spark logs to `spark.log` in the work directory, which rolls at a few megabytes. Other output of
Java, such as the reason of a crash, goes to this process's own output, which the node keeps.

Archive and queries have separate scheduler pools (`ARCHIVE_POOL`, `QUERY_POOL`): neither waits for
all tasks of the other. A thread selects its pool with `use_pool`.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from accord.core.model.errors import AccordError
from accord.core.queries.messages import StartPipeline
from accord.core.queries.spark_settings import CONNECT
from accord.pipeline.java import find_java
from accord.pipeline.spark_errors import summary

ARCHIVE_POOL: Final = "archive"
QUERY_POOL: Final = "query"
SPARK_LOG: Final = "spark.log"
_POOL: Final = "spark.scheduler.pool"
_LOOPBACK: Final = "127.0.0.1"
_LOG_BYTES: Final = 1 << 18
_KILLED: Final = re.compile(r"Application has been killed\. Reason: (.{1,300})")
_STOPPED: Final = "stopped SparkContext"
_DRIVER_JAVA: Final = "spark.driver.extraJavaOptions"
_EVENT_LOG: Final = "spark.eventLog.enabled"
_EVENT_LOG_FOLDER: Final = "spark.eventLog.dir"

# Settings a session accepts at any time, also through Spark Connect.
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "3",
    "spark.sql.redaction.options.regex": "(?i)url|journals",  # nodes' addresses have passwords
}
# Settings needed before Java starts.
_AT_START: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark keeps the last of them even without a UI.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.scheduler.mode": "FAIR",
    # A report has more generated classes than Spark caches by default, so they were recompiled.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.locality.wait": "0",
    # Looks up the caller's line for every expression: five times slower to build columns.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # No checksum files beside the checkpoint, which is only needed by the running query.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
_EMBEDDED: Final = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.sql.shuffle.partitions": "4",
}
_JAVA_OPTIONS: Final = ("-XX:+UseParallelGC", "-XX:-UsePerfData")
_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
logger.late.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.late.level = error
logger.adaptive.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.adaptive.level = error
logger.cancel.name = org.apache.spark.scheduler.DAGScheduler
logger.cancel.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.folder.name = org.apache.spark.SparkConf
logger.folder.level = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %.2000m%n%.8000ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 4MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""
_POOLS: Final = f"""\
<?xml version="1.0"?>
<allocations>
  <pool name="{ARCHIVE_POOL}">
    <schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>0</minShare>
  </pool>
  <pool name="{QUERY_POOL}">
    <schedulingMode>FAIR</schedulingMode><weight>2</weight><minShare>0</minShare>
  </pool>
</allocations>
"""


class SessionError(AccordError):
    """Spark did not start, or is unreachable."""

    def __init__(self, problem: str, *, place: str) -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"Spark at {place}: {problem}")


def open_session(start: StartPipeline) -> SparkSession:
    """Open a session as `start.spark` specifies; JavaError or SessionError if that fails."""
    work = Path(start.work)
    work.mkdir(parents=True, exist_ok=True)
    if start.spark.startswith(CONNECT):
        return _connect(start)
    master = start.spark or "local[*]"
    java = find_java(work=work)
    os.environ["JAVA_HOME"] = java.home
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    else:
        # Without PYSPARK_PYTHON, Spark runs the first `python3`, here and at each worker.
        folders = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        os.environ["PATH"] = os.pathsep.join(folders)
    options = settings(start, master)
    (work / "scratch").mkdir(exist_ok=True)
    try:
        builder = SparkSession.builder.master(master)
        for name, value in options.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except Exception as error:  # from Spark, Py4J, or sockets when Java has exited
        problem = stop_reason(start.work) if _STOPPED in str(error) else _summary(error)
        raise SessionError(problem, place=master) from error


def settings(start: StartPipeline, master: str) -> dict[str, str]:
    """Spark's start settings; writes the files that some of them name."""
    work = Path(start.work).absolute()
    logging, pools = work / "log4j2.properties", work / "pools.xml"
    logging.write_text(_LOG4J.format(path=work / SPARK_LOG))
    pools.write_text(_POOLS)
    options = {
        "spark.app.name": f"accord-{start.node}",
        "spark.driver.memory": f"{start.memory_mb}m",
        _DRIVER_JAVA: " ".join(
            (*_JAVA_OPTIONS, f'"-Dlog4j2.configurationFile={logging.as_uri()}"')
        ),
        "spark.scheduler.allocation.file": f"file://{pools}",  # taken literally, spaces too
        "spark.local.dir": str(work / "scratch"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
    }
    if master.startswith("local"):
        options |= _EMBEDDED
    given = dict(start.spark_settings)
    if java_options := given.pop(_DRIVER_JAVA, ""):
        options[_DRIVER_JAVA] += f" {java_options}"
    if given.get(_EVENT_LOG) == "true" and _EVENT_LOG_FOLDER not in given:
        folder = work / "spark-events"
        folder.mkdir(exist_ok=True)
        options[_EVENT_LOG_FOLDER] = folder.as_uri()
    return options | _AT_START | _ALWAYS | given


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session, which has no Java of its own."""
    return not hasattr(spark, "_jsparkSession")


def use_pool(spark: SparkSession, pool: str) -> None:
    """Assign this thread's Spark jobs to this pool from now on."""
    if not is_connect(spark):
        spark.sparkContext.setLocalProperty(_POOL, pool)


def stop_reason(work: str) -> str:
    """What Spark logged when it last ended an application."""
    with suppress(OSError), (Path(work) / SPARK_LOG).open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
        if found := _KILLED.findall(log.read().decode(errors="replace")):
            return str(found[-1]).strip()
    return f"see {SPARK_LOG} in {work}, and the master's page"


def has_java() -> bool:
    """Whether Java runs for a session that is open, or being opened."""
    return getattr(SparkContext, "_gateway", None) is not None


def ui_address(spark: SparkSession) -> str:
    """Address of Spark's own page; "" if it is off, or that of a Connect server."""
    return "" if is_connect(spark) else spark.sparkContext.uiWebUrl or ""


def event_log(spark: SparkSession) -> str:
    """The folder of this application's event log, for Spark's history server; "" if off."""
    if is_connect(spark):
        return ""
    conf = spark.sparkContext.getConf()
    return (conf.get(_EVENT_LOG_FOLDER) or "") if conf.get(_EVENT_LOG) == "true" else ""


def java_process(spark: SparkSession) -> int | None:
    """The process of Spark's driver, if we started it."""
    if is_connect(spark):
        return None
    process: Any = getattr(spark.sparkContext._gateway, "proc", None)
    return process.pid if process is not None else None


def _connect(start: StartPipeline) -> SparkSession:
    try:
        builder = SparkSession.builder.remote(start.spark)
        for name, value in (_ALWAYS | start.spark_settings).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except ImportError as error:
        problem = f"{summary(error)}; pip install 'pyspark[connect]' helps"
        raise SessionError(problem, place=_place(start.spark)) from error
    except Exception as error:  # from Spark or gRPC
        secrets = start.spark.partition(";")[2]
        problem = _summary(error)
        problem = problem.replace(secrets, "…") if secrets else problem
        raise SessionError(problem, place=_place(start.spark)) from error


def _summary(error: BaseException) -> str:
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        return "Java ended before Spark was ready"
    return summary(error)


def _place(url: str) -> str:
    """Without a token after the host."""
    return url.partition(";")[0]
