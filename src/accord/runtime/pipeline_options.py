"""How a node runs its data pipeline, and what can go wrong with it."""

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
    """How long the node waits for what; all in seconds."""

    first_pause_s: float = 1.0  # before it is started again; twice as long each time
    longest_pause_s: float = 60.0
    settings_pause_s: float = 300.0  # where only somebody can help: no Java, wrong settings
    refuse_s: float = 600.0  # a question that the process ended of twice
    calm_s: float = 60.0  # having worked for so long, it counts as sound again
    silence_s: float = 60.0  # longer than that, and it hangs
    start_silence_s: float = 180.0  # the same before it is ready for the first time
    stop_s: float = 15.0
    term_s: float = 5.0


class PipelineOptions(Struct, frozen=True, kw_only=True):
    """`spark` and the rest are what `accord.toml` says under [pipeline]."""

    spark: str = ""
    archive: Path | None = None  # beside the journal where None
    interval_ms: int = 500
    retain_ms: int | None = None
    large_bytes: int = 1 << 20
    memory_mb: int = 1_024
    timeout_s: float = 60.0
    declared: dict[str, str] = {}
    command: tuple[str, ...] = ()  # to start something else, as tests do
    patience: PipelineTimeouts = PipelineTimeouts()


class PipelineError(AccordError):
    """No answer from the pipeline.

    `kind`: it is `off` until somebody changes something, `unavailable` at the moment, too `busy`,
    did not answer in time (`timeout`), `failed`, or its process `ended` of the question; or else
    the `question` was wrong, and `place` says where. After `retry_s` it may be worth asking again;
    0 where it won't.
    """

    def __init__(self, kind: Kind, problem: str, place: str = "", retry_s: int = 0) -> None:
        self.kind: Kind = kind
        self.problem = problem
        self.place = place
        self.retry_s = retry_s
        super().__init__(f"{place}: {problem}" if place else problem)


def why_off(options: PipelineOptions | None, data: Path | None) -> str:
    """Why there can be no pipeline, and what to do; "" where there can."""
    if options is None:
        return "it is switched off (--no-pipeline, or enabled = false under [pipeline])"
    if data is None:
        return "nothing is kept on disk: it needs a folder in node.data (or --data)"
    if not options.command:
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            return f"{' and '.join(missing)} not installed: {INSTALL}"
    return ""
