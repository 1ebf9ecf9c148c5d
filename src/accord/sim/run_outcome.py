"""The outcome of a run, and how to reproduce it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.sim.checkers import Finding
from accord.sim.delivery_oracle import ChannelTally
from accord.sim.links import LinkCounts

_SHOWN = 10


class Outcome(Struct, frozen=True, kw_only=True):
    """`findings` are the first of each checker; `found` counts all of them."""

    seed: int
    topology: str
    nodes: int
    until_us: int
    happened: int
    trace: str  # its hash, or empty
    channels: dict[str, ChannelTally]
    links: dict[tuple[str, str], LinkCounts]
    breaks: int
    crashes: int
    unpublished: int
    overdue: int
    findings: tuple[Finding, ...]
    found: int
    last: tuple[str, ...]  # lines of the trace
    replay: str

    @property
    def is_good(self) -> bool:
        return self.found == 0

    def check(self) -> Outcome:
        """Return itself; raises RunFailedError if there are findings."""
        if self.found:
            raise RunFailedError(self)
        return self

    def report(self) -> Iterator[str]:
        """Summary of a failed run for the operator."""
        yield f"seed {self.seed}: {self.found} findings in {self.until_us / 1_000_000:g} s"
        for finding in self.findings[:_SHOWN]:
            yield f"  {finding}"
        if self.found > _SHOWN:
            yield f"  … and {self.found - _SHOWN} more"
        if self.trace:
            yield f"trace {self.trace}"
        yield f"replay with: {self.replay}"


class RunFailedError(AccordError):
    """A run with findings; names the seed, and the command that replays it."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__("\n".join(outcome.report()))

    def parts(self) -> list[str]:
        return list(self.outcome.report())
