"""Where outcomes of events come from: the ledgers of this node and of others, and the archive.

An event has the same number at all nodes, but another event may have it, too: what another node
knows counts if channel and publisher are the same. Each node answers with what the asker may see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from accord.core.model.errors import AccordError
from accord.core.monitoring.ledger import OUTCOMES, event_id, event_number
from accord.core.monitoring.outcomes import DeliveryOutcome, outcome_of
from accord.core.monitoring.top import Waiting
from accord.core.queries.messages import EventQuery
from accord.journal.ledger_records import ArchivedEntry, LedgerQuery, LedgerResult
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.other_nodes import ask_node
from accord.operations.ports import LedgerPort, NodePorts, need
from accord.operations.query import MOST_WITHIN_MS
from accord.operations.status import ListOutcomes
from accord.operations.tables import definitions_of

MAX_OUTCOMES: Final = 10_000
MAX_NODES: Final = 32  # asked about one event
_MAX_ROUNDS: Final = 4  # each asks the nodes that the round before named
_MAX_LISTED: Final = 1_000
_TIMEOUT_S: Final = 1.5
_ARCHIVE_TIMEOUT_S: Final = 5.0
_Found = TypeVar("_Found")


class EventHere(Struct, frozen=True, kw_only=True):
    """What one node knows of an event: nothing if there are neither outcomes nor places."""

    node: str
    outcomes: tuple[DeliveryOutcome, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    is_complete: bool = True


class FindEventHere(Request[EventHere], frozen=True, kw_only=True, tag="get here"):
    event: Annotated[str, Meta(max_length=100, description="The ID of an event.")]


class KnownEvent(Struct, frozen=True, kw_only=True):
    """All that is known of one event, by which nodes, and which of them did not answer."""

    channel: str
    publisher: str
    received_ms: int
    outcomes: tuple[DeliveryOutcome, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    nodes: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    is_archived: bool = False
    is_complete: bool = True


@operation("events", "GET /events/{event}/here", Right.STATISTICS)
async def find_event_here(node: NodePorts, ask: FindEventHere, asker: Asker) -> EventHere:
    """What the ledger of one node has of an event, hops included, and where it waits there."""
    found, _ = await _here(node, event_number(ask.event), asker)
    return found


class EventSources:
    """What one asker may learn of events through this node."""

    def __init__(self, node: NodePorts, asker: Asker) -> None:
        self.node = node
        self.asker = asker

    def due_ms(self, channel: str) -> float | None:
        """The longest time that the channel's definition allows; None for any."""
        definition = definitions_of(self.node).look_up(channel) if channel else None
        delay_us = 0 if definition is None else definition.max_delay_us
        return delay_us / 1_000 if delay_us else None

    async def entries(self, at: str, wanted: LedgerQuery, most: int) -> Sequence[DeliveryOutcome]:
        """Entries of a node's ledger; none if it does not answer."""
        here = self.node.view.name
        if at in ("", here):
            answer = await _ledger(self.node).search(wanted, most)
            return [outcome_of(each, here) for each in answer.entries]
        outcome = None if wanted.outcome is None else OUTCOMES[wanted.outcome]
        request = ListOutcomes(
            client=wanted.client,
            outcome=outcome,
            since_ms=wanted.since_ms,
            until_ms=wanted.until_ms,
            limit=min(most, _MAX_LISTED),
            node=at,
        )
        found = await self._ask(at, request)
        return found[0].outcomes if found else ()

    async def event(self, number: int) -> KnownEvent:
        """All that is known of an event; raises RequestError if that is nothing."""
        here, answer = await _here(self.node, number, self.asker)
        if answer.entries and not here.outcomes:
            raise RequestError(404, _unknown(number, answer))
        found = [here] if here.outcomes or here.waiting else []
        unanswered: list[str] = []
        is_archived = False
        if not found:
            archived, found, unanswered = await self._from_others(number)
            if archived is not None:
                found, is_archived = [archived, *found], True
        if not found:
            return await self._kept(number, answer)
        others, silent = await self._gather(number, found, unanswered)
        return _joined([*found, *others], [*unanswered, *silent], is_archived=is_archived)

    async def _from_others(
        self, number: int
    ) -> tuple[EventHere | None, list[EventHere], list[str]]:
        """What the archive and other nodes know of an event that this node's ledger has not."""
        others = self.node.others
        names = [] if others is None else others.nodes()[:MAX_NODES]
        archived, (found, silent) = await asyncio.gather(
            self._archived(number), self._ask_all(number, names)
        )
        known = [each for each in found if each.outcomes or each.waiting]
        return archived, known, silent if known or archived else []

    async def _gather(
        self, number: int, found: list[EventHere], asked_in_vain: list[str]
    ) -> tuple[list[EventHere], list[str]]:
        """What the nodes know that the event passed, round by round, and which are silent."""
        asked = {self.node.view.name, *(each.node for each in found), *asked_in_vain}
        gathered: list[EventHere] = []
        silent: list[str] = []
        newest = found
        for _ in range(_MAX_ROUNDS if self.node.others is not None else 0):
            names = [each for each in _nodes_of(newest) if each not in asked]
            names = names[: MAX_NODES - len(asked)]
            if not names:
                break
            asked.update(names)
            newest, without = await self._ask_all(number, names)
            gathered += newest
            silent += without
        return gathered, silent

    async def _ask_all(
        self, number: int, names: Iterable[str]
    ) -> tuple[list[EventHere], list[str]]:
        names = list(names)
        request = FindEventHere(event=event_id(number))
        asking = [self._ask(each, request) for each in names]
        answers = await asyncio.gather(*asking)
        pairs = list(zip(names, answers, strict=True))
        found = [each for _, answer in pairs for each in answer]
        return found, [name for name, answer in pairs if not answer]

    async def _ask(self, name: str, request: Request[_Found]) -> tuple[_Found, ...]:
        """The answer of another node; nothing if there is none in time."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return (await ask_node(self.node, name, request, self.asker),)
        except (AccordError, TimeoutError):
            return ()

    async def _archived(self, number: int) -> EventHere | None:
        """What the archive's table of outcomes has of an event."""
        if self.node.pipeline is None:
            return None
        try:
            async with asyncio.timeout(_ARCHIVE_TIMEOUT_S):
                body = await self.node.pipeline.ledger(number, MAX_OUTCOMES)
        except (AccordError, TimeoutError):
            return None
        rows = await asyncio.to_thread(msgspec.msgpack.decode, body, type=list[ArchivedEntry])
        outcomes = tuple(
            outcome_of(each.entry, each.node)
            for each in rows
            if self.asker.may_see(each.entry.channel)
        )
        return EventHere(node=self.node.view.name, outcomes=outcomes) if outcomes else None

    async def _kept(self, number: int, answer: LedgerResult) -> KnownEvent:
        """An event that was kept though it had no outcome: nobody had subscribed to it."""
        if self.node.pipeline is None:
            raise RequestError(404, _unknown(number, answer))
        query = EventQuery(channel="#", number=number)
        try:
            page = await self.node.pipeline.page(
                query, cursor="", rows=1, bytes_=1, within_ms=MOST_WITHIN_MS, importance=3
            )
        except AccordError:
            raise RequestError(404, _unknown(number, answer)) from None
        for each in page.events:
            if self.asker.may_see(each.channel):
                return KnownEvent(
                    channel=each.channel,
                    publisher=each.publisher,
                    received_ms=each.received_ms,
                    nodes=(self.node.view.name,),
                    is_archived=True,
                )
        raise RequestError(404, _unknown(number, answer))


async def _here(node: NodePorts, number: int, asker: Asker) -> tuple[EventHere, LedgerResult]:
    """What this node knows as far as the asker may see it, and what its ledger answered."""
    ledger, name = _ledger(node), node.view.name
    waiting = (await ledger.waiting(number))[:MAX_OUTCOMES]
    answer = await ledger.search(LedgerQuery(number=number), MAX_OUTCOMES)
    return EventHere(
        node=name,
        outcomes=tuple(
            outcome_of(each, name) for each in answer.entries if asker.may_see(each.channel)
        ),
        waiting=tuple(each for each in waiting if asker.may_see(each.channel)),
        is_complete=answer.is_complete,
    ), answer


def _nodes_of(found: Iterable[EventHere]) -> list[str]:
    """The nodes that hops lead from and to."""
    names: dict[str, None] = {}
    for outcome in (each for answer in found for each in answer.outcomes):
        if outcome.hop is not None:
            names.update(dict.fromkeys(each.node for each in outcome.hop.passed))
            names[outcome.hop.to] = None
    return list(names)


def _joined(
    found: Sequence[EventHere], unanswered: Iterable[str], *, is_archived: bool
) -> KnownEvent:
    """All answers about the event that the first one knows."""
    facts = [(each.channel, each.publisher, each.received_ms) for each in found[0].outcomes]
    facts += [(each.channel, each.publisher, each.received_ms) for each in found[0].waiting]
    channel, publisher, received_ms = facts[0]

    def is_same(each: DeliveryOutcome | Waiting) -> bool:
        return (each.publisher == publisher) and channel in ("", each.channel)

    return KnownEvent(
        channel=channel,
        publisher=publisher,
        received_ms=received_ms,
        outcomes=tuple(o for each in found for o in each.outcomes if is_same(o))[:MAX_OUTCOMES],
        waiting=tuple(w for each in found for w in each.waiting if is_same(w))[:MAX_OUTCOMES],
        nodes=tuple(dict.fromkeys(each.node for each in found)),
        unanswered=tuple(dict.fromkeys(unanswered)),
        is_archived=is_archived,
        is_complete=all(each.is_complete for each in found),
    )


def _ledger(node: NodePorts) -> LedgerPort:
    return need(node.ledger, "ledger")


def _unknown(number: int, answer: LedgerResult) -> str:
    event = event_id(number)
    if answer.reaches_back_ms is None:
        return f"event {event} is unknown: the ledger is empty"
    if answer.has_older:
        return (
            f"event {event} is unknown, though the ledger has older ones: nobody subscribed to it, "
            "or there is no such event; `accord why` lists the latest"
        )
    back = datetime.fromtimestamp(answer.reaches_back_ms / 1_000, UTC)
    reach = back.isoformat(timespec="seconds").replace("+00:00", "Z")
    looked = "reaches back to" if answer.is_complete else "was searched back to"
    return (
        f"event {event} is unknown: the ledger {looked} {reach} only; `accord why` lists the latest"
    )
