"""What the ledger has of the network, for moments that are older than the history in memory.

A row is recorded when it changed in what matters: whether a node is reachable, whether a link is
up, slow or lossy, which paths a flow has. Each is recorded again every quarter of an hour, so the
records of that time before a moment tell all rows of it. At most so many are recorded in a second;
what exceeds that waits, changes first. Where too many wait, all rows are recorded as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from accord.core.overlay.net_map import Change, Key, NetLink, NetNode, Row
from accord.core.overlay.overlay import LINK, NODE
from accord.core.overlay.status import FlowStatus
from accord.core.overlay.status_publisher import ARRIVED, FLOW

NET_CHANNEL: Final = "$accord/net"  # of the records, which are no events
REPEAT_MS: Final = 900_000
MAX_AT_ONCE: Final = 20
MAX_WAITING: Final = 2_000
_LOSSY: Final = 0.02
_SLOWER: Final = 0.25  # of the latency recorded before, and as many microseconds:
_SLOWER_US: Final = 2_000
_KINDS: Final[dict[str, Any]] = {NODE: NetNode, LINK: NetLink, FLOW: FlowStatus}

_encode: Final = msgspec.json.Encoder().encode
_record: Final = msgspec.json.Decoder(tuple[str, str, str, msgspec.Raw])


class NetRecorder:
    """Rows to be recorded; call `note` with all changes and `take` about once a second."""

    def __init__(self, rows: Mapping[Key, Row]) -> None:
        self._rows = rows
        self._recorded: dict[Key, tuple[Row, int]] = {}  # or noted, and when
        self._changed: deque[tuple[int, Key, Row | None]] = deque()
        self._repeated: deque[Key] = deque()
        self._repeat_ms = 0

    def note(self, changes: Iterable[Change], *, now_ms: int) -> None:
        for key, row in changes:
            before, _ = self._recorded.get(key, (None, 0))
            if key[0] == ARRIVED or not _differs(before, row):
                continue
            if len(self._changed) >= MAX_WAITING:
                self._repeat_ms = 0  # all are recorded as they are, once there is time
                continue
            self._changed.append((now_ms, key, row))
            if row is None:
                self._recorded.pop(key, None)
            else:
                self._recorded[key] = row, now_ms

    def take(self, *, now_ms: int) -> list[tuple[int, str]]:
        """What is to be recorded now: since when, and the record."""
        if now_ms >= self._repeat_ms:
            self._repeat_ms = now_ms + REPEAT_MS
            self._repeated = deque(key for key in self._rows if key[0] != ARRIVED)
        found: list[tuple[int, str]] = []
        while len(found) < MAX_AT_ONCE and (self._changed or self._repeated):
            if self._changed:
                since_ms, key, row = self._changed.popleft()
                found.append((since_ms, encode_change(key, row)))
                continue
            key = self._repeated.popleft()
            _, recorded_ms = self._recorded.get(key, (None, 0))
            if key in self._rows and recorded_ms < self._repeat_ms - REPEAT_MS:
                self._recorded[key] = self._rows[key], now_ms
                found.append((now_ms, encode_change(key, self._rows[key])))
        return found


def encode_change(key: Key, row: Row | None) -> str:
    return _encode((*key, row)).decode()


def decode_change(record: str) -> Change | None:
    """The row of a record; None if it is not one, or of a kind that is not known."""
    try:
        kind, origin, other, encoded = _record.decode(record)
        row = msgspec.json.decode(encoded, type=_KINDS[kind] | None)
    except (msgspec.DecodeError, KeyError):
        return None
    return (kind, origin, other), cast("Row | None", row)


def replay(
    records: Sequence[tuple[int, str]], since_ms: int
) -> tuple[dict[Key, Row], list[tuple[int, dict[Key, Row | None]]]]:
    """The rows at a moment, from the records before it, and the changes after it by their time."""
    rows: dict[Key, Row] = {}
    steps: list[tuple[int, dict[Key, Row | None]]] = []
    now: dict[Key, Row | None] = {}
    for at_ms, record in records:
        change = decode_change(record)
        if change is None:
            continue
        key, row = change
        if at_ms <= since_ms:
            _put(rows, key, row)
        elif key not in now or now[key] != row:
            if not steps or steps[-1][0] != at_ms:
                steps.append((at_ms, {}))
            steps[-1][1][key] = row
        now[key] = row
    return rows, steps


def _put(rows: dict[Key, Row], key: Key, row: Row | None) -> None:
    if row is None:
        rows.pop(key, None)
    else:
        rows[key] = row


def _differs(before: Row | None, row: Row | None) -> bool:
    """Whether it is to be recorded that a row is another one now."""
    match before, row:
        case NetLink(), NetLink():
            slower_us = abs(row.latency_us - before.latency_us)
            return (
                (before.is_up, before.is_used) != (row.is_up, row.is_used)
                or (before.loss >= _LOSSY) != (row.loss >= _LOSSY)
                or slower_us > max(_SLOWER * before.latency_us, _SLOWER_US)
            )
        case NetNode(), NetNode():
            return (before.is_reachable, before.started_ms, before.location) != (
                row.is_reachable,
                row.started_ms,
                row.location,
            )
        case FlowStatus(), FlowStatus():
            return _paths(before) != _paths(row)
        case _:
            return before is not row


def _paths(flow: FlowStatus) -> tuple[object, ...]:
    return flow.is_met, flow.channels, [(each.path, each.state) for each in flow.routes]
