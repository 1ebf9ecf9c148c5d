"""The ledger: what became of each event on its way to each destination, when and why.

Hot code adds an entry per run of events and destination, so an entry is one tuple and everything
else happens where somebody asks. Numbers that grow are kept relative to the batch's first entry:
small integers need few bytes when written (80 against 55 for an entry).
The driver takes the entries away as batches; what does not fit between two takings is counted.

An event is known to people by its number in Crockford's base 32, which has no letters that are
mistaken for digits.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.errors import EventError

DELIVERED: Final = 0
LATE: Final = 1  # delivered, after its deadline
SHAPED: Final = 2  # delivered, smaller than it was published
REPLACED: Final = 3
EXPIRED: Final = 4
SHED: Final = 5
REFUSED: Final = 6
OUTCOMES: Final = ("delivered", "late", "shaped", "replaced", "expired", "shed", "refused")

DEADLINE: Final = "deadline_ms"
FROM_BYTES: Final = "from_bytes"
BY: Final = "by"

MAX_NUMBER: Final = (1 << 64) - 1
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_FORGIVEN: Final = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None})
_DUE: Final = 2_000
_NAME_LENGTH: Final = 256

# number and received time relative to the batch, count, channel, publisher, destination, outcome,
# then the time from received to queued and from queued to done, size, importance, policy, detail,
# and the sending time in microseconds
Row = tuple[int, int, int, str, str, str, int, int, int, int, int, str, str, int]


# channel, publisher, destination, outcome, the times of coming, of queueing and of the outcome,
# importance, policy, detail
_Facts = tuple[str, str, str, int, int, int, int, int, str, str]


def event_id(number: int) -> str:
    """How people write an event's number."""
    if not 0 <= number <= MAX_NUMBER:
        raise EventError("event id", f"expected a number of 64 bits, got {number}")
    text = ""
    while number or not text:
        text = _ALPHABET[number & 31] + text
        number >>= 5
    return text


def event_number(text: str) -> int:
    """The number that `text` stands for; case, dashes, and O, I and L for digits are forgiven."""
    digits = text.strip().upper().translate(_FORGIVEN)
    number = 0
    for digit in digits[:14]:
        value = _ALPHABET.find(digit)
        if value < 0:
            raise EventError("event id", f"expected letters and digits, got {text[:40]!r}")
        number = number << 5 | value
    if not digits or len(digits) > 13 or number > MAX_NUMBER:
        raise EventError("event id", f"expected 1 to 13 letters and digits, got {text[:40]!r}")
    return number


def outcome_name(outcome: int) -> str:
    """In people's words, also for what a later version has written."""
    return OUTCOMES[outcome] if 0 <= outcome < len(OUTCOMES) else f"outcome {outcome}"


def deadline_detail(deadline_ms: int) -> str:
    """Of what was late or expired: the deadline it had."""
    return f"{DEADLINE}={deadline_ms}"


def shape_detail(from_bytes: int, how: str) -> str:
    """Of what was shaped: its size before, and in words what was done."""
    return f"{FROM_BYTES}={from_bytes}; {how}" if how else f"{FROM_BYTES}={from_bytes}"


def replacement_detail(by_number: int) -> str:
    """Of what was replaced: the event that took its place."""
    return f"{BY}={event_id(by_number)}"


def read_detail(detail: str) -> tuple[dict[str, str], str]:
    """The facts in a detail, by name, and the words."""
    facts: dict[str, str] = {}
    words: list[str] = []
    for part in detail.split("; "):
        name, equals, value = part.partition("=")
        if equals and name in (DEADLINE, FROM_BYTES, BY):
            facts[name] = value
        elif part:
            words.append(part)
    return facts, "; ".join(words)


def _short(name: str) -> str:
    """A name that is too long: names come from outside, and may be as long as MQTT allows."""
    return name[: _NAME_LENGTH - 1] + "…"


class LedgerBatch:
    """Entries in the order of their outcomes, relative to `first_number` and `first_ms`."""

    def __init__(self, first_number: int, first_ms: int) -> None:
        self.first_number: int = first_number
        self.first_ms: int = first_ms
        # Of all numbers in it; none are while the lowest is above the highest.
        self.lowest: int = MAX_NUMBER
        self.highest: int = 0
        self.rows: list[Row] = []


class Ledger:
    """Collects what happens, up to `bound` entries between two takings.

    Events that follow each other to the same destination, with the same outcome at the same time,
    are one entry: the one that is open grows until another begins.
    """

    def __init__(self, bound: int = 50_000) -> None:
        self.is_on: bool = True
        self.bound: int = bound
        self.missed: int = 0  # events whose outcome was not kept
        self._batch: LedgerBatch | None = None
        # The open entry; no events, none.
        self._number = 0
        self._count = 0
        self._size = 0
        self._sending_us = 0
        self._facts: _Facts = ("", "", "", 0, 0, 0, 0, 0, "", "")  # that its events have in common

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
        """What became of `count` events from `number` on; one that has no number has 0.

        `size` and `sending_us` are those of all of them together.
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
        """Whether there is enough for a record; taking it now keeps each taking short."""
        return self._batch is not None and len(self._batch.rows) >= _DUE

    def take(self) -> LedgerBatch | None:
        """What was added since the last time."""
        if self._count > 0:
            self._close()
        batch = self._batch
        self._batch = None
        return batch

    def _close(self) -> None:
        """Put the open entry among the others."""
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
