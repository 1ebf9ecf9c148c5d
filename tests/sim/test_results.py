"""Results as rows and files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from accord.sim.results import TABLES, merged, rows, write
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import ring
from accord.sim.trace import SimulationError
from accord.sim.workloads import Publisher, Subscriber, Workload
from tests.sim.machines import Flooder, S


def outcome(seed: int = 1, deadline_us: int = S) -> Outcome:
    workload = Workload(
        (Publisher(name="p", node="n0", channel="a", deadline_us=deadline_us),),
        (Subscriber(name="s", node="n2", filter="a"),),
    )
    options = Options(settle_us=S, patience_us=S)
    return Simulation(ring(4), Flooder, seed=seed, workload=workload, options=options).run(30 * S)


def test_rows() -> None:
    found = outcome()
    (run,) = rows(found, "run")
    assert (run["seed"], run["nodes"], run["topology"], run["found"]) == (1, 4, "ring", 0)
    assert run["trace"] == found.trace
    assert isinstance(run["sent_bytes_per_delivery"], float)
    (channel,) = rows(found, "channels")
    assert channel["channel"] == "a"
    assert channel["published"] == 30
    assert channel["delivered"] == channel["in_time"] == 29
    assert channel["p50_us"] == channel["max_us"] == 20_000
    assert channel["in_time_share"] == 1.0
    links = rows(found, "links")
    assert len(links) == 8
    assert sum(int(link["data_bytes"] or 0) for link in links) == run["data_bytes"]
    assert rows(found, "findings") == []
    (late,) = rows(outcome(deadline_us=10_000), "channels")
    assert (late["delivered"], late["in_time"], late["late"], late["lost"]) == (29, 0, 29, 0)


def test_files_hold_the_rows(tmp_path: Path) -> None:
    found = [outcome(1), outcome(2)]
    written = write(found, tmp_path / "new" / "folder", "csv")
    assert [file.name for file in written] == ["run.csv", "channels.csv", "links.csv"]
    with written[1].open(newline="") as stream:
        read = list(csv.DictReader(stream))
    assert [row["seed"] for row in read] == ["1", "2"]
    assert read[0]["delivered"] == "29"
    written = write(found, tmp_path, "json")
    for file in written:
        assert json.loads(file.read_text("utf-8")) == merged(found, file.stem)


def test_parquet_has_types_also_where_nothing_is(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    silent = Simulation(
        ring(4), Flooder, seed=1, workload=Workload((Publisher(name="p", node="n0", channel="a"),))
    ).run(3 * S)
    write([silent], tmp_path / "none", "parquet")
    write([outcome()], tmp_path / "some", "parquet")
    none, some = (
        parquet.read_table(tmp_path / name / "channels.parquet") for name in ("none", "some")
    )
    assert none.schema.equals(some.schema)
    assert some.to_pylist() == rows(outcome(), "channels")
    for table in TABLES[:3]:
        assert parquet.read_table(tmp_path / "some" / f"{table}.parquet").num_rows > 0


def test_what_can_not_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="expected csv, json, parquet as the format"):
        write([], tmp_path, "xls")
    (tmp_path / "file").write_text("")
    with pytest.raises(SimulationError, match="file"):
        write([outcome()], tmp_path / "file", "csv")
