"""Reads where Spark runs: the address of a master, or a table with it and settings of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from accord.config.toml_lines import Path
from accord.core.overlay.channel_directory import option_text
from accord.core.queries.spark_settings import (
    MASTER_EXPECTED,
    MAX_SETTINGS,
    SparkSettings,
    problem_with_master,
    problem_with_setting,
)

Report = Callable[[Path, str], None]


def read_spark(value: object, path: Path, report: Report) -> SparkSettings:
    """`report` receives each problem."""
    if isinstance(value, str):
        return SparkSettings(master=_read_master(value, path, report))
    if not isinstance(value, dict):
        report(path, f"expected a table, or {MASTER_EXPECTED}")
        return SparkSettings()
    master, settings = "", {}
    for place, each in _leaves(value, path):
        name = ".".join(map(str, place[len(path) :]))
        text = option_text(each)
        if name == "master":
            master = _read_master(each, place, report)
        elif problem := problem_with_setting(name, text):
            report(place, problem)
        elif name in settings:
            report(place, "expected only once")
        else:
            settings[name] = text or ""
    if len(settings) > MAX_SETTINGS:
        report(path, f"expected at most {MAX_SETTINGS} settings, got {len(settings)}")
    return SparkSettings(master=master, settings=settings)


def _read_master(value: object, path: Path, report: Report) -> str:
    if not isinstance(value, str):
        report(path, f"expected {MASTER_EXPECTED}")
        return ""
    if problem := problem_with_master(value):
        report(path, problem)
    return value


def _leaves(value: dict[str, object], path: Path) -> Iterator[tuple[Path, object]]:
    """Values in tables: without quotes, a name with dots makes tables."""
    for name, each in value.items():
        if isinstance(each, dict) and each:
            yield from _leaves(each, (*path, name))
        else:
            yield (*path, name), each
