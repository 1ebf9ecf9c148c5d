"""`PredicateSet` as bytes: packed once, memory-mapped by every worker of a machine.

A pack is pickled with its arrays out of band, aligned, so that unpacking a file uses the arrays in
place: the pages are shared between processes, and read as they are needed.

    magic, length of the directory, directory (length of each part), parts, each at a multiple of 64
"""

from __future__ import annotations

import mmap
import pickle
import struct
from pathlib import Path
from typing import Final

from accord.core.model.errors import AccordError
from accord.pipeline.bulk.predicate_compiler import PredicateSet

_MAGIC: Final = b"accord predicates 2\n"
_FORMAT: Final = b"accord predicates "
_COUNT: Final = struct.Struct("<I")
_ALIGNED: Final = 64


class PackError(AccordError):
    """The bytes are not a compiled set of predicates."""


def pack(predicates: PredicateSet) -> bytes:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(predicates, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    start = bytearray(_MAGIC + _COUNT.pack(len(parts)))
    start += struct.pack(f"<{len(parts)}Q", *(len(part) for part in parts))
    pieces: list[bytes | bytearray | memoryview] = [start, _filling(len(start))]
    for part in parts:
        pieces += (part, _filling(len(part)))
    return b"".join(pieces)


def unpack(data: bytes | mmap.mmap) -> PredicateSet:
    """Unpack `data`, with arrays as views into it; PackError if it is not a pack."""
    view = memoryview(data)
    at = len(_MAGIC) + _COUNT.size
    if len(view) < at or bytes(view[: len(_MAGIC)]) != _MAGIC:
        if bytes(view[: len(_FORMAT)]) == _FORMAT:
            raise PackError(
                "these predicates were compiled by another version of accord: publish them again"
            )
        raise PackError("expected compiled predicates, got something else")
    (count,) = _COUNT.unpack(view[len(_MAGIC) : at])
    if len(view) < at + 8 * count:
        raise PackError("compiled predicates end too early")
    lengths = struct.unpack(f"<{count}Q", view[at : at + 8 * count])
    at += 8 * count
    parts = []
    for length in lengths:
        at += -at % _ALIGNED
        if len(view) < at + length:
            raise PackError("compiled predicates end too early")
        parts.append(view[at : at + length])
        at += length
    # Write access to a predicate directory already implies code execution: see `predicate_folder`.
    predicates = pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301
    assert isinstance(predicates, PredicateSet)
    return predicates


def unpack_file(path: Path) -> PredicateSet:
    with path.open("rb") as file:
        return unpack(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _filling(length: int) -> bytes:
    return bytes(-length % _ALIGNED)
