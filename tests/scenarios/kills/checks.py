"""What must be true after any number of crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from accord.journal.events import decode_event
from accord.journal.ledger_records import EVENT, kind_of
from accord.journal.reader import Reader
from accord.journal.record import Batch
from tests.scenarios.kills.publishing import Publisher, read_payload
from tests.scenarios.kills.subscribing import Subscriber

Message = tuple[str, int]  # its publisher, and its number there

_BAD_WORDS: Final = ("Traceback", "unusable", "damage", "not closed cleanly", "ERROR", "CRITICAL")


class JournalFound(msgspec.Struct):
    """What is in the journal, and what is wrong with it."""

    messages: Counter[Message]
    events: int
    problems: list[str]


def read_journal(folder: Path) -> JournalFound:
    """All of it, which must be whole batches without holes between their offsets."""
    found = JournalFound(Counter(), 0, [])
    reader = Reader(folder)
    extent = reader.extent()
    offset = extent.first_offset
    for item in reader.read(offset):
        if not isinstance(item, Batch):
            found.problems.append(f"journal: {item}")
            continue
        if item.first_offset != offset:
            found.problems.append(f"journal: expected offset {offset}, got {item.first_offset}")
        for record in map(bytes, item.records()):
            if kind_of(record) == EVENT:
                found.messages[read_payload(decode_event(record).payload)] += 1
                found.events += 1
        offset = item.end_offset
    if (extent.first_offset, offset) != (0, extent.next_offset):
        found.problems.append(f"journal: {extent}, but what is in it ends at {offset}")
    return found


def kept_again(journal: JournalFound, publishers: Sequence[Publisher]) -> int:
    """How often a QoS 2 message is in the journal once more: a crash between the two logs."""
    once = {publisher.name for publisher in publishers if publisher.qos == 2}
    return sum(count - 1 for (name, _), count in journal.messages.items() if name in once)


def kept_of(publishers: Sequence[Publisher]) -> set[Message]:
    """What was acknowledged and must be in the journal."""
    return {
        (publisher.name, number)
        for publisher in publishers
        for number in publisher.acknowledged
        if publisher.channel(number).startswith("kept/")
    }


def acknowledged_of(publishers: Sequence[Publisher], *, least_qos: int = 1) -> set[Message]:
    return {
        (publisher.name, number)
        for publisher in publishers
        if publisher.qos >= least_qos
        for number in publisher.acknowledged
    }


def undelivered(subscriber: Subscriber, publishers: Sequence[Publisher]) -> list[str]:
    missing = sorted(acknowledged_of(publishers) - subscriber.seen.keys())
    return [f"{subscriber.name} never got {number} of {name}" for name, number in missing]


def repeated(subscriber: Subscriber, publishers: Sequence[Publisher]) -> list[str]:
    """What came more than once although everybody used QoS 2."""
    once = {publisher.name for publisher in publishers if publisher.qos == 2}
    return [
        f"{subscriber.name} got {number} of {name} {count} times"
        for (name, number), count in subscriber.seen.items()
        if count > 1 and name in once and subscriber.qos == 2
    ]


def unretained(publishers: Sequence[Publisher], found: dict[str, int]) -> Iterator[str]:
    """Channels whose retained message is older than the last acknowledged one."""
    for publisher in publishers:
        newest: dict[str, int] = {}
        for number in sorted(publisher.acknowledged):
            newest[publisher.channel(number)] = number
        for channel, number in newest.items():
            if found.get(channel, 0) < number:
                yield f"{channel}: {number} was acknowledged, retained is {found.get(channel)}"


def complaints(output: str) -> list[str]:
    """Lines of a node's output that a crash does not excuse."""
    return [line for line in output.splitlines() if any(word in line for word in _BAD_WORDS)]
