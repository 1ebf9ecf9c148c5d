"""What messages carry beside their payload, different from one to the next.

A broker must not win by remembering: there are thousands of different messages before the first
comes again. Values differ in length too; all messages of a case have the same size nevertheless, so
that a subscriber can count what it gets: payloads are a few bytes longer or shorter instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from random import Random
from statistics import mean
from typing import Final

from accord.core.mqtt.properties import Properties
from benchmarks.mqtt import Mqtt

# So many different messages, at least.
DIFFERENT: Final = 40_000
_SEED: Final = 28
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_EXPIRY_S: Final = (3_600, 86_400)
_SAMPLE: Final = 1_000

UserProperties = Mapping[str, str]


@dataclass(frozen=True)
class Content:
    """Which user properties so many messages have, and whether these expire."""

    name: str
    properties: Callable[[int], list[UserProperties]]
    has_expiry: bool = True

    def frame(self, dialect: Mqtt, topic: str, payload_size: int) -> bytes:
        """One of them: all others are as long."""
        return self.frames(dialect, (topic,), payload_size, (1,))[0]

    def frames(
        self, dialect: Mqtt, topics: tuple[str, ...], payload_size: int, packet_ids: Sequence[int]
    ) -> list[bytes]:
        """A message for each packet identifier, to the topics in turns."""
        random = Random(_SEED)
        room = payload_size + _typical(self)
        lowest, highest = _EXPIRY_S if self.has_expiry else (0, 0)
        drawn = zip(self.properties(len(packet_ids)), packet_ids, cycle(topics), strict=False)
        return [
            dialect.message(
                topic,
                random.randbytes(room - _size(properties)),
                packet_id,
                Properties(
                    user=tuple(properties.items()),
                    message_expiry_s=random.randint(lowest, highest) or None,
                ),
            )
            for properties, packet_id, topic in drawn
        ]


@cache
def _typical(content: Content) -> int:
    """How many bytes its properties take on average."""
    return round(mean(map(_size, content.properties(_SAMPLE))))


def _size(properties: UserProperties) -> int:
    return sum(len(name) + len(text) + 5 for name, text in properties.items())


def drawn(draw: Callable[[Random], UserProperties]) -> Callable[[int], list[UserProperties]]:
    """Always the same, so that all contenders get the same."""

    def properties(count: int) -> list[UserProperties]:
        random = Random(_SEED)
        return [draw(random) for _ in range(count)]

    return properties


def _number(random: Random) -> str:
    """From 0 to 999, whole or with a decimal."""
    value = random.random() * 1_000
    return f"{value:.1f}" if random.random() < 0.5 and value < 999.9 else str(int(value))


def _word(random: Random) -> str:
    return "".join(random.choices(_LETTERS, k=random.randint(4, 10)))


def _one(random: Random) -> UserProperties:
    return {"speed": _number(random)}


def _five(random: Random) -> UserProperties:
    return {
        "speed": _number(random),
        "height": _number(random),
        "platform": _word(random),
        "site": _word(random),
        "unit": f"{_word(random)}-{random.randrange(1_000)}",
    }


ONE: Final = Content("1 property, expiry", drawn(_one))
FIVE: Final = Content("5 properties, expiry", drawn(_five))
