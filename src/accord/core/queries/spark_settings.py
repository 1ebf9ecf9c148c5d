"""Where Spark runs, and its own settings, as an operator gives them to the pipeline.

Any setting of Spark is passed through, except those that the pipeline works only with. Spark
Connect takes settings of SQL from its clients, all others where its server is started.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

CONNECT: Final = "sc://"
MAX_SETTINGS: Final = 200
MAX_CHARACTERS: Final = 4_096
MASTER_EXPECTED: Final = 'spark://HOST:PORT, sc://HOST:PORT, k8s://…, yarn, local[N] or ""'
_MASTER: Final = re.compile(r"|local(\[[^\]\s]+\])?|yarn|(spark|sc|k8s)://\S+")
_NAME: Final = re.compile(r"spark(\.[A-Za-z0-9_-]+)+")
_IS_MASTER: Final = "expected this as `master`"
_IS_UTC: Final = "the pipeline sets it: days of the archive are those of UTC"
_IS_POOLS: Final = "the pipeline sets it: archive and queries have separate scheduler pools"
_IS_MEANING: Final = "the pipeline needs Spark's default: predicates would have another meaning"
_NEEDED: Final = {
    "spark.master": _IS_MASTER,
    "spark.remote": _IS_MASTER,
    "spark.api.mode": _IS_MASTER,
    "spark.submit.deployMode": "the pipeline sets it: the driver is its own process",
    "spark.driver.memory": "expected as `memory_mb` under [pipeline]",
    "spark.scheduler.mode": _IS_POOLS,
    "spark.scheduler.allocation.file": _IS_POOLS,
    "spark.sql.session.timeZone": _IS_UTC,
    "spark.sql.ansi.enabled": _IS_MEANING,
    "spark.sql.caseSensitive": _IS_MEANING,
}


class SparkSettings(Struct, frozen=True, kw_only=True):
    """An empty `master` is the pipeline's own process; `settings` are text by name."""

    master: str = ""
    settings: dict[str, str] = {}


def problem_with_master(master: str) -> str:
    """What is wrong with where Spark runs; "" if nothing."""
    return "" if _MASTER.fullmatch(master) else f"expected {MASTER_EXPECTED}, got {master[:60]!r}"


def problem_with_setting(name: str, text: str | None) -> str:
    """What is wrong with a setting of Spark; "" if nothing. Values are never shown: secrets."""
    if not _NAME.fullmatch(name):
        return 'expected master, or a setting of Spark such as "spark.executor.memory"'
    if name in _NEEDED:
        return _NEEDED[name]
    if text is None or "\0" in text:
        return "expected a string, a number, true or false"
    if len(text) > MAX_CHARACTERS:
        return f"expected at most {MAX_CHARACTERS} characters, got {len(text)}"
    return ""


def problem_on_master(name: str, master: str) -> str:
    """Why a setting has no effect with this master; "" if it has."""
    if master.startswith(CONNECT) and not name.startswith("spark.sql."):
        return (
            "expected settings of spark.sql only, as Spark Connect takes no others from clients: "
            "give it where the server is started (accord spark connect --properties FILE)"
        )
    return ""
