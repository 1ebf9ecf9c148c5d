from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from accord.runtime.logs import LogError, LogSettings, get_log, start_logs


def logged(settings: LogSettings, *calls: tuple[str, dict[str, object]]) -> list[str]:
    stream = io.StringIO()
    with start_logs(settings, stream=stream):
        for message, fields in calls:
            get_log("accord.test").warning(message, **fields)
    return stream.getvalue().splitlines()


def test_a_line_for_people() -> None:
    (line,) = logged(
        LogSettings(), ("client left", {"client": "raven 7", "queued": 3, "why": None})
    )
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert rest == 'WARNING client left client="raven 7" queued=3 why=None'


def test_a_json_object_per_line() -> None:
    (line,) = logged(
        LogSettings(format="json"),
        ("client left", {"client": "día\n", "queued": 3, "raw": b"\xff"}),
    )
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "warning",
        "log": "accord.test",
        "message": "client left",
        "client": "día\n",
        "queued": 3,
        "raw": "\\xff",
    }


def test_fields_do_not_replace_what_is_ours() -> None:
    (line,) = logged(LogSettings(format="json"), ("real", {"level": "debug"}))
    assert json.loads(line)["level"] == "warning"


@pytest.mark.parametrize("format_", ["console", "json"])
def test_nobody_writes_lines_or_steers_terminals_from_outside(format_: str) -> None:
    evil = 'x\nERROR forged\r\x1b[2J\x9b\u202e" level=error'
    settings = LogSettings(format="json" if format_ == "json" else "console")
    (line,) = logged(settings, ("client left", {"client": evil}))
    assert line.isprintable()


def test_only_what_is_severe_enough() -> None:
    stream = io.StringIO()
    with start_logs(LogSettings(level="warning"), stream=stream):
        get_log("a").debug("debug")
        get_log("a").info("info")
        get_log("a").error("error")
        logging.getLogger("library").warning("%s said", "another")
    assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()] == [
        "ERROR   error",
        "WARNING another said",
    ]


def test_a_failure_has_its_traceback_indented() -> None:
    stream = io.StringIO()
    with start_logs(LogSettings(), stream=stream):
        try:
            raise ValueError("bad\n2026 ERROR forged")
        except ValueError as error:
            get_log("a").failure("it broke", error, client="c")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("ERROR   it broke client=c")
    assert rest[0] == "    | Traceback (most recent call last):"
    assert rest[-1] == "    | 2026 ERROR forged"
    assert all(line.startswith("    | ") for line in rest)


def test_long_values_are_cut() -> None:
    for format_ in (LogSettings(), LogSettings(format="json")):
        (line,) = logged(format_, ("m", {"topic": "x" * 100_000}))
        assert len(line) < 1_200


def test_log_files_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "accord.log"
    with start_logs(LogSettings(file=str(file), file_bytes=1_000, files=2)):
        for number in range(100):
            get_log("a").info(f"message {number}", padding="x" * 50)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["accord.log", "accord.log.1", "accord.log.2"]
    assert all(path.stat().st_size <= 1_000 for path in tmp_path.iterdir())
    assert "message 99" in file.read_text("utf-8")


def test_a_log_file_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no such file or directory"):
        start_logs(LogSettings(file=str(tmp_path / "missing" / "accord.log")))


def test_logging_is_left_as_it_was() -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with start_logs(LogSettings(level="debug"), stream=io.StringIO()):
        assert root.level == logging.DEBUG
    assert (root.level, root.handlers) == before
