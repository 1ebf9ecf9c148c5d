"""What a client takes that is connected, subscribed and silent."""

from __future__ import annotations

import tracemalloc
from typing import Final

from tests.core.broker.dialogue import Peer, Table

from accord.core.broker import connection, publish_handler, reply_queue, session

COUNT: Final = 300
# Without its network connection; with a dict per object it was three times as much.
MOST_BYTES: Final = 2_200


def join(table: Table, first: int, count: int) -> None:
    """Some clients, whose own side takes no memory."""
    for client in range(first, first + count):
        peer = table.join(f"client-{client}").subscribe(f"idle/{client}")
        peer.hear()
        peer.data = b""


def test_an_idle_client_is_small() -> None:
    table = Table()
    join(table, 0, 10)  # what is made once is made by the first
    source = tracemalloc.Filter(True, "*/accord/*")
    tracemalloc.start()
    try:
        join(table, 10, COUNT)
        taken = tracemalloc.take_snapshot().filter_traces([source])
    finally:
        tracemalloc.stop()
    size = sum(each.size for each in taken.statistics("filename"))
    assert size / COUNT <= MOST_BYTES


def test_what_idle_clients_share_stays_empty() -> None:
    table = Table()
    ada = table.join("ada", expiry_s=60).subscribe("a", qos=1)
    bob = table.join("bob")
    for count, qos in enumerate((0, 1, 1, 2, 1, 0)):
        bob.publish("a", bytes(count), qos)
    half = b"\x30\x05\x00\x01a"
    bob.send_bytes(half)
    _ping(ada)
    shared = (
        *(reply_queue.NO_FRAMES, connection._NO_PARTS),
        *(publish_handler._NO_FAN_OUTS, *publish_handler._NO_TOPICS, publish_handler._NO_ALIASES),
        *(session._NO_KEYS, session._NO_RUNS, session._NO_IDS, session._NO_ALIASES),
    )
    assert not any(shared)


def _ping(peer: Peer) -> None:
    peer.send_bytes(b"\xc0\x00")
