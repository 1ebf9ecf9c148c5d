"""The node's two durable logs: the journal of kept events, and the log of its own state.

Once per turn of the event loop, the broker's records are appended to the logs. Their writer threads
report the committed offset; when both logs have committed a turn, the acknowledgements that waited
for it are sent (group commit). A log that can't keep up refuses appends, and the broker then
refuses whatever would have to be recorded.

A turn's events are on disk before its state is appended. In the opposite order, a crash in between
could leave the state "this QoS 2 message was accepted" without the event: its retransmission would
be acknowledged and the event never kept. In this order, such a crash leaves a kept event without
effects. The state log therefore also records the journal offset it covers: at the next start, the
node redoes the effects of QoS 2 events after that offset, and recognises their retransmissions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from accord.core.broker.broker import Broker
from accord.core.broker.session_records import KeptThrough, encode_record
from accord.core.broker.session_recovery import RecoveredState, redo_publish, restore, snapshot
from accord.core.monitoring.statistics import JournalStatus
from accord.core.mqtt.codes import ProtocolError
from accord.journal.errors import JournalError
from accord.journal.events import decode_event, encode_kept, kept_message
from accord.journal.ledger_records import EVENT, kind_of
from accord.journal.options import JournalOptions
from accord.journal.reader import Reader
from accord.journal.record import Batch
from accord.journal.state_log import StateLog
from accord.journal.writer import AppendRefused, Journal
from accord.runtime.logs import get_log

log = get_log(__name__)

EVENTS: Final = "journal"
STATE: Final = "state"
_SESSION_BYTES: Final = 300  # approximate size of a session in a snapshot
_WATERMARK_EVERY: Final = 10_000  # journal records between marks, which bounds the work of `_redo`


class _Turn(NamedTuple):
    """A turn whose events are appended, with the state to append once they are on disk."""

    position: int
    events_offset: int
    records: list[bytes]
    snapshot: list[bytes] | None = None


class _Written(NamedTuple):
    """A turn that is on disk once the state log has committed `state_offset`."""

    position: int
    state_offset: int


class Durability:
    def __init__(
        self,
        broker: Broker,
        directory: Path,
        options: JournalOptions,
        *,
        on_progress: Callable[[], None],
        now_ms: int,
    ) -> None:
        """Opens or creates the logs in `directory`, and restores `broker` from them."""
        self._broker = broker
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._turns: deque[_Turn] = deque()
        self._written: deque[_Written] = deque()
        self._position = 0  # of the last turn
        directory.mkdir(parents=True, exist_ok=True)
        self._state, records = StateLog.open(
            directory / STATE,
            on_commit=self._on_loop(self._state_committed),
            on_failure=self._on_loop(self._failed),
        )
        try:
            self._events = Journal.open(
                directory / EVENTS,
                options,
                on_commit=self._on_loop(self._events_committed),
                on_failure=self._on_loop(self._failed),
            )
        except BaseException:
            self._state.close()
            raise
        self._state_offset = self._state.journal.next_offset
        self._events_offset = self._events.next_offset
        self.restored: RecoveredState = restore(broker, records, now_ms=now_ms)
        known = self.restored.kept_through
        self._kept_through = -1 if known is None else known
        self.redone = self._redo(directory / EVENTS)
        self._log_recovery()

    def _redo(self, journal: Path) -> int:
        """Redo the effects of the last events before a crash; returns the number of events."""
        start = self.restored.kept_through
        if start is None:
            return 0
        redone = 0
        reader = Reader(journal)
        for found in reader.read(max(start, reader.extent().first_offset)):
            for record in found.records() if isinstance(found, Batch) else ():
                if kind_of(record) == EVENT:
                    try:
                        redone += redo_publish(self._broker, kept_message(decode_event(record)))
                    except (ValueError, ProtocolError) as error:
                        log.error("kept event: not usable", problem=str(error))
        return redone

    def append(self) -> None:
        """Append the broker's records to the logs."""
        context = self._broker.context
        first_offset = self._events.next_offset
        problem = self._append_events()
        if not problem and context.cuts:
            cuts, context.cuts = context.cuts, []
            for cut in cuts:
                cut.set_offset(first_offset + cut.kept)
        if not problem and context.appended > self._position:
            self._position = context.appended
            self._turns.append(
                _Turn(self._position, self._events.next_offset, context.state_records)
            )
            context.state_records = []
        context.overload_cause = self._append_state() or problem

    def append_ledger(self, record: bytes) -> int | None:
        """Append a ledger record to the journal without waiting for the disk.

        Returns its offset, or None if it is refused.
        """
        try:
            end = self._events.append([record])
        except JournalError as error:
            log.warning("ledger: entries not written", problem=str(error))
            return None
        return None if isinstance(end, AppendRefused) else end - 1

    @property
    def committed_offset(self) -> int:
        """Journal offset before which all records are on disk."""
        return self._events_offset

    def compact(self) -> None:
        """Replace the state log by a snapshot if that makes it much smaller."""
        broker = self._broker
        live_bytes = broker.retained.bytes + sum(
            session.outbox.tracked_bytes + _SESSION_BYTES for session in broker.sessions.values()
        )
        if not self._state.is_worth_compacting(2 * live_bytes):
            return
        self.append()
        if not broker.context.state_records and not any(turn.snapshot for turn in self._turns):
            # The snapshot is queued after the records that led to this state.
            offset = self._events.next_offset
            records = [*snapshot(broker), encode_record(KeptThrough(offset))]
            turn = _Turn(self._position, offset, [], records)
            self._turns.append(turn)
            self._append_state()

    def status(self) -> JournalStatus:
        status = self._events.status()
        return JournalStatus(
            segments=status.segments,
            bytes=status.bytes,
            first_offset=status.first_offset,
            next_offset=status.next_offset,
            synced_offset=status.committed_offset,
            failure=status.last_error or None if status.is_failing or status.is_failed else None,
        )

    def close(self) -> None:
        """Make everything durable and close the files."""
        self.append()
        self._close(self._events)
        self._events_offset = self._events.status().committed_offset
        self._append_state()
        if self._turns or self._broker.context.kept:
            log.error(
                "journal: stopped with records not yet on disk",
                problem=self._broker.context.overload_cause,
            )
        self._close(self._state)

    def _append_events(self) -> str:
        """Append kept events to the journal; returns the problem if it refuses them."""
        context = self._broker.context
        if context.kept:
            taken = self._events.append(encode_kept(context.kept))
            if isinstance(taken, AppendRefused):
                return taken.why
            context.kept = []
        return ""

    def _append_state(self) -> str:
        """Append the state of turns whose events are on disk; returns the problem if refused."""
        turns = self._turns
        while turns and turns[0].events_offset <= self._events_offset:
            turn = turns[0]
            records = self._with_watermark(turn)
            if records:
                taken = self._state.append(records)
                if isinstance(taken, AppendRefused):
                    return taken.why
            if turn.snapshot is not None and not self._state.is_compacting:
                self._state.compact(turn.snapshot)
            turns.popleft()
            if records:
                self._kept_through = turn.events_offset
            self._written.append(_Written(turn.position, self._state.journal.next_offset))
        return ""

    def _with_watermark(self, turn: _Turn) -> list[bytes]:
        """A turn's records, plus the journal offset if that is worth a record."""
        passed = turn.events_offset - self._kept_through
        if passed == 0 or (not turn.records and passed < _WATERMARK_EVERY):
            return turn.records
        return [*turn.records, encode_record(KeptThrough(turn.events_offset))]

    def _close(self, each: Journal | StateLog) -> None:
        try:
            each.close()
        except JournalError as error:
            log.error("journal: not closed cleanly", problem=str(error))

    def _on_loop(self, handle: Callable[..., None]) -> Callable[[object], None]:
        """Wraps a callback of a writer thread so that it runs on the event loop."""

        def call(value: object) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(handle, value)

        return call

    def _state_committed(self, offset: int) -> None:
        self._state_offset = offset
        self._advance()

    def _events_committed(self, offset: int) -> None:
        self._events_offset = offset
        self._append_state()
        self._advance()

    def _advance(self) -> None:
        position = 0
        while self._written and self._written[0].state_offset <= self._state_offset:
            position = self._written.popleft().position
        if position:
            self._broker.context.advance_committed(position)
        self._on_progress()

    def _failed(self, error: JournalError) -> None:
        log.error("journal: write failed", problem=str(error))

    def _log_recovery(self) -> None:
        restored = self.restored
        log.info(
            "state: restored",
            sessions=restored.sessions,
            subscriptions=restored.subscriptions,
            messages=restored.messages,
            retained=restored.retained,
            redone=self.redone,
        )
        for problem in (*restored.problems, *(str(each) for each in self._state.damaged)):
            log.warning("state log record: not usable", problem=problem)
        for name, status in ((STATE, self._state.status()), (EVENTS, self._events.status())):
            recovery = status.recovery
            if recovery.cut_bytes:
                log.warning(
                    "journal: torn write truncated",
                    log=name,
                    bytes=recovery.cut_bytes,
                    why=recovery.cut_why,
                )
            for damaged in recovery.damaged:
                log.error("journal: damage found, left in place", log=name, where=str(damaged))
