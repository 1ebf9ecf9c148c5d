from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accord.core.queries.messages import StartPipeline
from accord.pipeline.java import JavaError
from accord.pipeline.session import open_session, settings

OPEN = """
import sys
from accord.core.queries.messages import StartPipeline
from accord.pipeline.session import ARCHIVE_POOL, java_process, open_session, use_pool

start = StartPipeline(node="denver", journal="", archive="", work=sys.argv[1], spark="local[1]",
              memory_mb=600)
spark = open_session(start)
use_pool(spark, ARCHIVE_POOL)
conf = spark.sparkContext.getConf()
spark._jvm.org.slf4j.LoggerFactory.getLogger("test").warn("a warning")
found = {
    "rows": [row.id for row in spark.range(3).collect()],
    "python": spark.range(1).mapInPandas(
        lambda frames: (frame.assign(id=len(sys.executable)) for frame in frames), "id long"
    ).collect()[0].id == len(sys.executable),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "name": spark.sparkContext.appName,
    "mode": conf.get("spark.scheduler.mode"),
    "java": java_process(spark) is not None,
    "memory": conf.get("spark.driver.memory"),
}
assert found["rows"] == [0, 1, 2], found
assert found["python"], found
assert (found["zone"], found["name"], found["mode"]) == ("UTC", "accord-denver", "FAIR"), found
assert found["java"] and found["memory"] == "600m", found
spark.stop()
"""


def start(work: Path, spark: str = "local[1]") -> StartPipeline:
    return StartPipeline(node="denver", journal="", archive="", work=str(work), spark=spark)


@pytest.mark.timeout(300)
def test_a_session_opens_and_says_nothing(tmp_path: Path) -> None:
    work = tmp_path / "a folder" / "work"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", OPEN, str(work)],
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
    said = [line for line in ended.stderr.splitlines() if "incubator modules" not in line]
    assert (ended.returncode, ended.stdout, said) == (0, "", [])
    assert "WARN test: a warning" in (work / "spark.log").read_text()
    assert "ERROR" not in (work / "spark.log").read_text()


def test_settings_differ_for_clusters(tmp_path: Path) -> None:
    embedded, cluster = (settings(start(tmp_path), each) for each in ("local[*]", "spark://h:7077"))
    assert embedded["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in cluster
    assert (tmp_path / "log4j2.properties").read_text().count(str(tmp_path / "spark.log")) == 2


def test_given_settings_replace_those_of_the_pipeline(tmp_path: Path) -> None:
    given = {
        "spark.ui.enabled": "true",
        "spark.executor.memory": "4g",
        "spark.driver.extraJavaOptions": "-Da=b",
        "spark.eventLog.enabled": "true",
    }
    start = StartPipeline(
        node="denver", journal="", archive="", work=str(tmp_path), spark_settings=given
    )
    found = settings(start, "local[*]")
    assert (found["spark.ui.enabled"], found["spark.executor.memory"]) == ("true", "4g")
    assert found["spark.driver.extraJavaOptions"].endswith(" -Da=b")
    assert "log4j2.configurationFile" in found["spark.driver.extraJavaOptions"]
    assert found["spark.eventLog.dir"] == (tmp_path / "spark-events").as_uri()
    assert (tmp_path / "spark-events").is_dir()


def test_a_missing_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="apt install openjdk-17-jre-headless"):
        open_session(start(tmp_path / "work"))


CONNECT = """
import sys
from accord.core.queries.messages import StartPipeline
from accord.pipeline.session import SessionError, open_session

sys.modules["grpc"] = None
try:
    open_session(StartPipeline(node="denver", journal="", archive="", work=sys.argv[1],
                       spark="sc://nowhere:15002/;token=secret"))
except SessionError as error:
    print(error)
"""


def test_connect_without_its_packages_is_told(tmp_path: Path) -> None:
    # In a process of its own: asking for it changes how pyspark works in all of one. And from a
    # file: without one pyspark believes that it is being tested, and ends the process.
    script = tmp_path / "connect.py"
    script.write_text(CONNECT)
    command = [sys.executable, "-P", str(script), str(tmp_path)]
    told = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    assert told.startswith("Spark at sc://nowhere:15002/: ")
    assert "pip install 'pyspark[connect]'" in told
    assert "secret" not in told
