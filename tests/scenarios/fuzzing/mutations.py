"""Ways to make a packet wrong, or only unusual. All take their choices from a seeded `Random`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from accord.core.mqtt.wire import varint_bytes

_NOTABLE: Final = (0x00, 0x01, 0x7F, 0x80, 0xFF, 0x23, 0x2B, 0x2F, 0xC0, 0xED)

Mutation = Callable[[Random, bytearray, list[bytes]], None]


def _flip_bits(random: Random, packet: bytearray, _: list[bytes]) -> None:
    for _bit in range(random.choice((1, 1, 1, 2, 8))):
        packet[random.randrange(len(packet))] ^= 1 << random.randrange(8)


def _flip_in_body(random: Random, packet: bytearray, _: list[bytes]) -> None:
    """Leaves the header alone, so that what follows is still in step."""
    if len(packet) > 4:
        packet[random.randrange(4, len(packet))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, packet: bytearray, _: list[bytes]) -> None:
    packet[random.randrange(len(packet))] = random.choice(_NOTABLE)


def _change_type(random: Random, packet: bytearray, _: list[bytes]) -> None:
    packet[0] = random.randrange(256)


def _truncate(random: Random, packet: bytearray, _: list[bytes]) -> None:
    del packet[random.randrange(1, len(packet) + 1) :]


def _shorten(random: Random, packet: bytearray, _: list[bytes]) -> None:
    """Cuts the end off and says so: whole, but not what its type needs."""
    if 2 < len(packet) < 128:
        del packet[random.randrange(2, len(packet)) :]
        packet[1] = len(packet) - 2


def _extend(random: Random, packet: bytearray, _: list[bytes]) -> None:
    """Adds to the end and says so."""
    if len(packet) < 100:
        packet += random.randbytes(random.randrange(1, 20))
        packet[1] = len(packet) - 2


def _remove(random: Random, packet: bytearray, _: list[bytes]) -> None:
    start = random.randrange(len(packet))
    del packet[start : start + random.randrange(1, 6)]


def _insert(random: Random, packet: bytearray, _: list[bytes]) -> None:
    at = random.randrange(len(packet) + 1)
    packet[at:at] = random.randbytes(random.randrange(1, 6))


def _repeat(random: Random, packet: bytearray, _: list[bytes]) -> None:
    packet += packet * random.choice((1, 1, 2, 10))


def _splice(random: Random, packet: bytearray, corpus: list[bytes]) -> None:
    other = random.choice(corpus)
    at = random.randrange(len(packet))
    packet[at:] = other[random.randrange(len(other)) :]


def _lie_about_length(random: Random, packet: bytearray, _: list[bytes]) -> None:
    lie = random.choice((0, 1, 127, 128, 1_000, 65_536, 15_000_000, 268_435_455))
    packet[1:2] = random.choice(
        (varint_bytes(lie), b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x01", b"\x82\x00")
    )


def _lie_inside(random: Random, packet: bytearray, _: list[bytes]) -> None:
    """Strings and binaries begin with two bytes of length: change what could be one."""
    if len(packet) > 6:
        at = random.randrange(2, len(packet) - 1)
        packet[at : at + 2] = random.choice((0, 1, 2, 0xFF, 0x7FFF, 0xFFFF)).to_bytes(2, "big")


def _garbage(random: Random, packet: bytearray, _: list[bytes]) -> None:
    packet[:] = random.randbytes(random.randrange(1, 60))


MUTATIONS: Final[tuple[Mutation, ...]] = (
    _flip_bits,
    _flip_in_body,
    _flip_in_body,
    _flip_in_body,
    _set_byte,
    _change_type,
    _truncate,
    _shorten,
    _extend,
    _remove,
    _insert,
    _repeat,
    _splice,
    _lie_about_length,
    _lie_inside,
    _garbage,
)


def mutate(random: Random, packet: bytes, corpus: list[bytes]) -> bytes:
    """`packet` with one change, now and then with more; never empty."""
    changed = bytearray(packet)
    for _ in range(random.choice((1, 1, 1, 1, 2, 4))):
        random.choice(MUTATIONS)(random, changed, corpus)
        if not changed:
            changed += b"\0"
    return bytes(changed)
