"""The ledger: the outcome of each event at each destination, with time and cause.

Hot code adds one entry per run of events and destination, so an entry is a single tuple and all
other work is done when the ledger is read. Growing numbers are stored relative to the batch's first
entry: small integers need fewer bytes when written (55 instead of 80 per entry). The driver takes
entries away in batches; entries beyond the bound between two takes are only counted.

Operators see an event's number in Crockford's base 32, which avoids letters that look like digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from accord.core.model.errors import EventError

DELIVERED: Final = 0
LATE: Final = 1  # delivered, after its deadline
SHAPED: Final = 2  # delivered, reduced in size
REPLACED: Final = 3
EXPIRED: Final = 4
SHED: Final = 5
REFUSED: Final = 6
OUTCOMES: Final = ("delivered", "late", "shaped", "replaced", "expired", "shed", "refused")
# Not of events: states of links and nodes (see `sightings`).
UP: Final = 7
DOWN: Final = 8
STATES: Final = ("up", "down")
_NAMES: Final = (*OUTCOMES, *STATES)

DEADLINE: Final = "deadline_ms"
FROM_BYTES: Final = "from_bytes"
BY: Final = "by"
BUDGET: Final = "budget_us"
PASSED: Final = "by "
_NODE_PASSED: Final = re.compile(r"(?:^|, )(.+?) (\d{1,12}\.\d) ms(?=, |$)")
_FACTS: Final = (DEADLINE, FROM_BYTES, BY, BUDGET)

MAX_NUMBER: Final = (1 << 64) - 1
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_FORGIVEN: Final = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None})
_DUE: Final = 2_000
_NAME_LENGTH: Final = 256

# number and received time relative to the batch, count, channel, publisher, destination, outcome,
# then the time from received to queued and from queued to done, size, importance, policy, detail,
# and the sending time in microseconds
Row = tuple[int, int, int, str, str, str, int, int, int, int, int, str, str, int]


# channel, publisher, destination, outcome, the times of receipt, of queueing and of the outcome,
# importance, policy, detail
_Facts = tuple[str, str, str, int, int, int, int, int, str, str]


def event_id(number: int) -> str:
    """Return an event's number in base 32."""
    if not 0 <= number <= MAX_NUMBER:
        raise EventError("event id", f"expected a number of 64 bits, got {number}")
    text = ""
    while number or not text:
        text = ALPHABET[number & 31] + text
        number >>= 5
    return text


def event_number(text: str) -> int:
    """Parse an event ID; accepts any case, dashes, and O, I and L as digits."""
    digits = text.strip().upper().translate(_FORGIVEN)
    number = 0
    for digit in digits[:14]:
        value = ALPHABET.find(digit)
        if value < 0:
            raise EventError("event id", f"expected letters and digits, got {text[:40]!r}")
        number = number << 5 | value
    if not digits or len(digits) > 13 or number > MAX_NUMBER:
        raise EventError("event id", f"expected 1 to 13 letters and digits, got {text[:40]!r}")
    return number


def outcome_name(outcome: int) -> str:
    """Return the outcome's name, also of one that a later version has written."""
    return _NAMES[outcome] if 0 <= outcome < len(_NAMES) else f"outcome {outcome}"


def deadline_detail(deadline_ms: int) -> str:
    """Detail of a late or expired event: its deadline."""
    return f"{DEADLINE}={deadline_ms}"


def shape_detail(from_bytes: int, how: str) -> str:
    """Detail of a shaped event: its original size, and a description of the shaping."""
    return f"{FROM_BYTES}={from_bytes}; {how}" if how else f"{FROM_BYTES}={from_bytes}"


def replacement_detail(by_number: int) -> str:
    """Detail of a replaced event: its replacement."""
    return f"{BY}={event_id(by_number)}"


def hop_detail(
    trail: Sequence[tuple[str, int]], deadline_us: int, budget_us: int | None = None
) -> str:
    """Detail of an event sent to a node, or come from one: the nodes it has passed, with its age.

    With its deadline, and the time that it may wait at this hop, if it has them.
    """
    facts = f"{BUDGET}={budget_us}; " if budget_us is not None else ""
    if deadline_us:
        facts = f"{facts}{deadline_detail(deadline_us // 1_000)}; "
    nodes = ", ".join([f"{node} {age_us / 1_000:.1f} ms" for node, age_us in trail])
    return f"{facts}{PASSED}{nodes}"


def read_trail(words: str) -> list[tuple[str, float]] | None:
    """The nodes that an event has passed, with its age in ms; None if `words` are another detail.

    A name may have any characters: what ends like an age is one.
    """
    if not words.startswith(PASSED):
        return None
    return [(node, float(age)) for node, age in _NODE_PASSED.findall(words[len(PASSED) :])]


def read_detail(detail: str) -> tuple[dict[str, str], str]:
    """Return the facts of a detail by name, and the remaining text."""
    facts: dict[str, str] = {}
    words: list[str] = []
    for part in detail.split("; "):
        name, equals, value = part.partition("=")
        if equals and name in _FACTS:
            facts[name] = value
        elif part:
            words.append(part)
    return facts, "; ".join(words)


def stored_name(name: str) -> str:
    """A name as entries have it: names are external input, and may be as long as MQTT allows."""
    return name if len(name) <= _NAME_LENGTH else _short(name)


def _short(name: str) -> str:
    return name[: _NAME_LENGTH - 1] + "…"


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """The outcome of `count` events from `number` on, for one destination."""

    number: int
    count: int = 1
    channel: str
    publisher: str
    destination: str
    outcome: int
    received_ms: int
    queued_ms: int
    done_ms: int
    size: int
    importance: int
    policy: str = ""
    detail: str = ""
    sending_us: int = 0


class LedgerBatch:
    """Entries in order of outcome time, relative to `first_number` and `first_ms`."""

    def __init__(self, first_number: int, first_ms: int) -> None:
        self.first_number: int = first_number
        self.first_ms: int = first_ms
        # Range of the numbers in it; empty while `lowest` is above `highest`.
        self.lowest: int = MAX_NUMBER
        self.highest: int = 0
        self.rows: list[Row] = []


class Ledger:
    """Collects outcomes, up to `bound` entries between two takes.

    Consecutive events with the same destination, outcome and times are one entry: the open entry
    grows until another begins.
    """

    def __init__(self, bound: int = 50_000) -> None:
        self.is_on: bool = True
        self.bound: int = bound
        self.missed: int = 0  # events whose outcome was not recorded
        self._batch: LedgerBatch | None = None
        # The open entry; there is none if `_count` is 0.
        self._number = 0
        self._count = 0
        self._size = 0
        self._sending_us = 0
        self._facts: _Facts = ("", "", "", 0, 0, 0, 0, 0, "", "")  # common to its events

    def add(  # noqa: PLR0913, PLR0917 (called by position, once per run and destination)
        self,
        number: int,
        count: int,
        channel: str,
        publisher: str,
        destination: str,
        outcome: int,
        received_ms: int,
        queued_ms: int,
        done_ms: int,
        size: int,
        importance: int,
        policy: str,
        detail: str,
        sending_us: int,
    ) -> None:
        """Record the outcome of `count` events from `number` on; 0 for an event without number.

        `size` and `sending_us` are totals over all of them.
        """
        if not self.is_on:
            return
        facts = (
            channel,
            publisher,
            destination,
            outcome,
            received_ms,
            queued_ms,
            done_ms,
            importance,
            policy,
            detail,
        )
        if self._count > 0:
            if 0 < self._number == number - self._count and facts == self._facts:
                self._count += count
                self._size += size
                self._sending_us += sending_us
                return
            self._close()
        self._number = number
        self._count = count
        self._size = size
        self._sending_us = sending_us
        self._facts = facts

    def is_due(self) -> bool:
        """Check whether there is enough for a record; taking it now keeps each take short."""
        return self._batch is not None and len(self._batch.rows) >= _DUE

    def take(self) -> LedgerBatch | None:
        """Return the entries added since the last take."""
        if self._count > 0:
            self._close()
        batch = self._batch
        self._batch = None
        return batch

    def _close(self) -> None:
        """Append the open entry to the batch."""
        number = self._number
        count = self._count
        self._count = 0
        (
            channel,
            publisher,
            destination,
            outcome,
            received_ms,
            queued_ms,
            done_ms,
            importance,
            policy,
            detail,
        ) = self._facts
        batch = self._batch
        if batch is None:
            batch = self._batch = LedgerBatch(number, received_ms)
        rows = batch.rows
        if len(rows) >= self.bound:
            self.missed += count
            return
        if number > 0:
            batch.lowest = min(batch.lowest, number)
            if number + count > batch.highest + 1:
                batch.highest = number + count - 1
        rows.append(
            (
                number - batch.first_number,
                received_ms - batch.first_ms,
                count,
                channel if len(channel) <= _NAME_LENGTH else _short(channel),
                publisher if len(publisher) <= _NAME_LENGTH else _short(publisher),
                destination if len(destination) <= _NAME_LENGTH else _short(destination),
                outcome,
                queued_ms - received_ms,
                done_ms - queued_ms,
                self._size,
                importance,
                policy,
                detail,
                self._sending_us,
            )
        )
