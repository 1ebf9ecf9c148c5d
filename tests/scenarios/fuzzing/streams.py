"""What one hostile connection sends, in which pieces, and how it ends."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Final

import msgspec

from accord.core.mqtt.codes import V5, V311
from tests.scenarios.fuzzing.corpus import Corpus
from tests.scenarios.fuzzing.mutations import mutate

# How a connection ends, from the client's side.
HALF_CLOSE: Final = "half close"  # and waits for the node to close the other half
CLOSE: Final = "close"
RESET: Final = "reset"
WAIT: Final = "wait"  # until the node has had enough

_KEY: Final = b64encode(b"sixteen bytes ok").decode()
_HANDSHAKE: Final = (
    "GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
).encode()
_HEADERS: Final = (
    b"Origin: http://localhost",
    b"Origin: http://[::1",
    b"Origin: http://\xff:99999999\r\nOrigin: null",
    b"Host: elsewhere\r\nUpgrade: mqtt\r\nSec-WebSocket-Key: short",
    b"Sec-WebSocket-Version: 12",
    b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=99",
    b"X: " + b"x" * 9_000,
)


class Stream(msgspec.Struct, frozen=True):
    """`pauses` says that the pieces go one by one, each when the node had time for the last."""

    pieces: list[bytes]
    packets: int
    ending: str = HALF_CLOSE
    is_websocket: bool = False
    is_reading: bool = True
    pauses: bool = False


def make_stream(random: Random, corpus: Corpus, everything: list[bytes]) -> Stream:
    kind = random.random()
    if kind < 0.004:
        return _stalled(random, corpus)
    packets = _packets(random, corpus, everything)
    is_websocket = kind < 0.08
    data = _wrapped(random, packets) if is_websocket else b"".join(packets)
    return Stream(
        _cut(random, data),
        len(packets),
        ending=random.choices((HALF_CLOSE, CLOSE, RESET), (8, 1, 1))[0],
        is_websocket=is_websocket,
        is_reading=random.random() < 0.9,
        pauses=random.random() < 0.1,
    )


def _packets(random: Random, corpus: Corpus, everything: list[bytes]) -> list[bytes]:
    """A conversation in which little or much is wrong, from its first packet or later."""
    version = random.choice((V311, V5))
    wrong = random.choice((0.0, 0.0, 0.002, 0.01, 0.01, 0.03, 0.1, 0.5, 1.0))
    count = random.choice((1, 3, 10, 40, 100, 200))
    packets = []
    if random.random() < 0.97:
        packets.append(random.choice(corpus.connects[version]))
    packets += random.choices(corpus.polite[version], k=count)
    if random.random() < 0.05:
        packets.insert(random.randrange(1, count + 1), random.choice(corpus.large[version]))
    for at in range(len(packets)):
        if random.random() < wrong:
            rude = random.random() < 0.1
            packet = random.choice(corpus.rude[version]) if rude else packets[at]
            packets[at] = packet if rude and at else mutate(random, packet, everything)
    if random.random() < 0.05:
        random.shuffle(packets)
    if random.random() < 0.05:
        packets.append(random.choice(corpus.connects[version]))  # a second CONNECT
    return packets


def _cut(random: Random, data: bytes) -> list[bytes]:
    """In one piece, or cut anywhere; now and then into single bytes."""
    if len(data) < 60 and random.random() < 0.1:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 0, 1, 3))))
    return [
        data[start:end]
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)
        if start < end
    ]


def _stalled(random: Random, corpus: Corpus) -> Stream:
    """Begins and never goes on: the node ends that by itself."""
    version = random.choice((V311, V5))
    connect = random.choice(corpus.connects[version])
    choice = random.randrange(4)
    if choice == 0:
        pieces = [_HANDSHAKE[: random.randrange(1, len(_HANDSHAKE))]]
    elif choice == 1:
        pieces = [_HANDSHAKE, _frame(random, connect[: random.randrange(len(connect))], 2)]
    elif choice == 2:
        pieces = [connect[: random.randrange(1, len(connect))]]
    else:
        pieces = [b"\x10\xff\xff\x7f" + bytes(random.randrange(100_000))]
    return Stream(pieces, 1, ending=WAIT, is_websocket=choice < 2, pauses=random.random() < 0.5)


def _wrapped(random: Random, packets: list[bytes]) -> bytes:
    """Packets in WebSocket frames, after a handshake; any of it may be wrong."""
    handshake = _HANDSHAKE
    if random.random() < 0.1:
        handshake = handshake[:-2] + random.choice(_HEADERS) + b"\r\n\r\n"
    if random.random() < 0.1:
        handshake = mutate(random, handshake, packets)
    is_wrong = random.random() < 0.5
    parts = [handshake]
    at = 0
    while at < len(packets):
        count = random.choice((1, 1, 5, 50))
        parts.append(_frame(random, b"".join(packets[at : at + count]), 2))
        at += count
        if is_wrong and random.random() < 0.1:
            opcode = random.randrange(16)
            body = random.randbytes(random.randrange(130))
            parts.append(_frame(random, body, opcode, is_final=random.random() < 0.7))
    if is_wrong and random.random() < 0.3:
        at = random.randrange(len(parts))
        parts[at] = mutate(random, parts[at], packets)
    if random.random() < 0.03:
        return random.randbytes(random.randrange(1, 2_000))
    return b"".join(parts)


def _frame(random: Random, body: bytes, opcode: int, *, is_final: bool = True) -> bytes:
    mask = random.randbytes(4)
    head = bytes([opcode | (0x80 if is_final else 0)])
    if len(body) < 126:
        head += bytes([0x80 | len(body)])
    elif len(body) < 65_536:
        head += b"\xfe" + len(body).to_bytes(2, "big")
    else:
        head += b"\xff" + len(body).to_bytes(8, "big")
    key = (mask * (len(body) // 4 + 1))[: len(body)]
    masked = int.from_bytes(body, "big") ^ int.from_bytes(key, "big")
    return head + mask + masked.to_bytes(len(body), "big")
