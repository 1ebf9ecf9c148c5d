"""Options of the data pipeline, and its errors."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from accord.core.model.errors import AccordError

INSTALL: Final = "pip install 'accord[pipeline]'"
_NEEDED: Final = ("pyspark", "pyarrow", "pandas")

Kind = Literal["off", "unavailable", "busy", "timeout", "question", "failed", "ended"]


class PipelineTimeouts(Struct, frozen=True, kw_only=True):
    """Timeouts and restart delays of the pipeline's process, all in seconds."""

    first_pause_s: float = 1.0  # initial backoff before a restart; doubles each time
    max_pause_s: float = 60.0
    settings_pause_s: float = 300.0  # restart delay if the operator must act: no Java, bad settings
    refuse_s: float = 600.0  # for a request that ended the process twice
    stable_s: float = 60.0  # after working this long, the backoff is reset
    silence_s: float = 60.0  # silence after which it counts as hanging
    start_silence_s: float = 180.0  # the same before it is first ready
    stop_s: float = 15.0
    term_s: float = 5.0


class PipelineOptions(Struct, frozen=True, kw_only=True):
    """Settings from the [pipeline] section of `accord.toml`."""

    spark: str = ""
    archive: Path | None = None  # None: beside the journal
    interval_ms: int = 500
    retain_ms: int | None = None
    large_bytes: int = 1 << 20
    memory_mb: int = 1_024
    timeout_s: float = 60.0
    declared: dict[str, str] = {}
    command: tuple[str, ...] = ()  # starts another program, for tests
    timeouts: PipelineTimeouts = PipelineTimeouts()


class PipelineError(AccordError):
    """The pipeline gave no result.

    `kind`: it is `off` until the operator acts, `unavailable` at the moment, too `busy`, did not
    reply in time (`timeout`), `failed`, or its process `ended` while working on the request; or the
    `question` was invalid, at the location `place`. After `retry_s` a retry may succeed; 0: never.
    """

    def __init__(self, kind: Kind, problem: str, place: str = "", retry_s: int = 0) -> None:
        self.kind: Kind = kind
        self.problem = problem
        self.place = place
        self.retry_s = retry_s
        super().__init__(f"{place}: {problem}" if place else problem)


def why_off(options: PipelineOptions | None, data: Path | None) -> str:
    """Why there can be no pipeline, and what to do; "" if there can."""
    if options is None:
        return "it is switched off (--no-pipeline, or enabled = false under [pipeline])"
    if data is None:
        return "nothing is kept on disk: it needs a folder in node.data (or --data)"
    if not options.command:
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            return f"{' and '.join(missing)} not installed: {INSTALL}"
    return ""
