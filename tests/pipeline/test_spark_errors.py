from __future__ import annotations

from accord.journal.errors import JournalError
from accord.pipeline.spark_errors import MOST, summary

STREAM = """\
[STREAM_FAILED] Query [id = 5c2, runId = 8d1] terminated with exception: [PYTHON_STREAMING\
_DATA_SOURCE_RUNTIME_ERROR] Failed when running Python streaming data source runner: Traceback:
  File "slices.py", line 130, in latestOffset
    check_reach(extent, options.journal, first, options.node)
accord.pipeline.journal_readers.JournalMismatchError: the archive has records of 'a' up to offset 9
\tat org.apache.spark.sql.execution.python.Runner.handle(Runner.scala:1)
Caused by: java.lang.RuntimeException: no
SQLSTATE: XXKST
"""
PY4J = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.io.FileNotFoundException: File file:/tmp/pools.xml does not exist
\tat org.apache.hadoop.fs.RawLocalFileSystem.getFileStatus(RawLocalFileSystem.java:970)
"""


def test_our_own_errors_are_told_as_they_are() -> None:
    error = JournalError("is gone", location="data/journal")
    assert summary(error) == "journal data/journal: is gone"


def test_what_python_raised_in_spark_is_found() -> None:
    assert summary(Exception(STREAM)) == "the archive has records of 'a' up to offset 9"


def test_what_java_raised_is_found() -> None:
    expected = "java.io.FileNotFoundException: File file:/tmp/pools.xml does not exist"
    assert summary(Exception(PY4J)) == expected


def test_other_python_errors_are_told_with_their_kind() -> None:
    text = 'Traceback:\n  File "x.py", line 1\nZeroDivisionError: division by zero\n'
    assert summary(Exception(text)) == "ZeroDivisionError: division by zero"


def test_what_says_nothing_is_told_by_its_kind() -> None:
    assert summary(ValueError()) == "ValueError"
    assert len(summary(ValueError("x" * 10_000))) == MOST
