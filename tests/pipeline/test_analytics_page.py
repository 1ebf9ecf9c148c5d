from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession
from tests.pipeline.journals import ledger_record, records, write_journal

from accord.pipeline.archiving import SliceJob, archive_slice
from accord.pipeline.manifest import Manifest

PAGE = Path(__file__).parents[2] / "docs" / "ANALYTICS.md"


def test_the_code_for_analysts_runs(spark: SparkSession, tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "journal", [[*records(1, 401), ledger_record(1, 400)]])
    archive = tmp_path / "archive"
    job = SliceJob(node="local", journal=str(journal), first=0, next=401, archive=str(archive))
    Manifest(archive).commit(added=archive_slice(job), moved={"local": (0, 401)})
    names = {"spark": spark, "journal": str(journal), "archive": str(archive)}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    report = names["report"]
    assert (report.kept, report.totals.delivered) == (400, 400)  # type: ignore[attr-defined]
    hourly = names["hourly"].collect()  # type: ignore[attr-defined]
    assert [row["latency_p50_ms"] for row in hourly] == [3]
    (share,) = names["share"].collect()  # type: ignore[attr-defined]
    assert (share["seen"], share["matched"]) == (400, 100)
    assert names["quality_now"].isStreaming  # type: ignore[attr-defined]
