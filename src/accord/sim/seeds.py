"""Independent random streams derived from one seed.

Each use of randomness has a stream of its own, named after its purpose. So an extra message on one
link changes nothing on the others, and two variants of a scenario meet the same faults and loads.
"""

from __future__ import annotations

import hashlib
from random import Random


def derive(seed: int, *names: object) -> int:
    """The seed of the stream named by `names`, the same in every process."""
    text = "\0".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def stream(seed: int, *names: object) -> Random:
    return Random(derive(seed, *names))  # noqa: S311 (to be replayed, not to be secret)
