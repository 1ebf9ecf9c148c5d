"""Checks of a subscription: what it would need, and whether it would be admitted now.

A check makes a reservation as somebody else and releases it, with what is left of the client's
bandwidth. A subscription that the client has is not asked for again: its promise is the answer. A
check of a rate asks for what exceeds that promise, whichever rate is advertised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Basis, Measured, RateDemand
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.options import Guarantee, GuaranteeKind, Mode
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import Amounts, Pool, client
from accord.core.admission.status import DemandStatus, NeedStatus, need_status, reported_interval
from accord.core.admission.subscription_requests import AdmissionOutcome, AdmissionRefusal
from accord.core.broker.broker import Broker
from accord.core.broker.refusal_remedies import answer_text, shortage_status
from accord.core.broker.subscription_admission import SubscriptionAdmission, refusal_text
from accord.core.model.errors import AdmissionError
from accord.core.policy.document_fields import guarantee_text
from accord.core.policy.policies import Entity
from accord.core.predicates.predicate import parse
from accord.runtime.connection_writer import clock_us

TIMEOUT_S: Final = 10.0
_MAX_AT_ONCE: Final = 32


class _Question(Struct, frozen=True, kw_only=True):
    """What is checked, with what is known of it."""

    filter: Filter
    client: str
    guarantee: Guarantee
    measured: Measured
    event_bytes: int
    need: RateDemand
    promised_hz: float | None  # to the client already; None: nothing


class SubscriptionChecks:
    def __init__(  # noqa: PLR0913 (by keyword, most)
        self,
        node: str,
        broker: Broker,
        admitting: SubscriptionAdmission,
        *,
        estimate: Callable[[str, str, str], Measured],
        progress: Callable[[], None],
        is_secondary: bool,
    ) -> None:
        self._node = node
        self._broker = broker
        self._admitting = admitting
        self._admission: Admission = admitting.admission
        self._estimate = estimate
        self._progress = progress
        self._is_secondary = is_secondary
        self._count = 0

    async def check(
        self, channel: str, where: str, client_: str, wanted_hz: float | None
    ) -> DemandStatus:
        """The demand of a subscription, and whether it would be admitted at that rate, or at all.

        Raises AdmissionError or PredicateError if it is invalid.
        """
        if len(self._admitting.outcome_callbacks) >= _MAX_AT_ONCE:
            raise AdmissionError("request", f"expected at most {_MAX_AT_ONCE} at a time, try again")
        asked, held = self._question(channel, where, client_)
        most_hz = None
        if wanted_hz is not None:
            asked_hz = wanted_hz
            outcome, most_hz = await self._try_rate(asked, wanted_hz)
        else:
            asked_hz = self._admission.estimator.requested_hz(
                asked.filter, asked.guarantee.basis, measured=asked.measured
            )
            outcome = held or await self._try_reserve(asked, asked.guarantee, asked.measured)
        found = DemandStatus(
            node=self._node,
            mode=str(self._admission.options.mode),
            guarantee=guarantee_words(asked.guarantee),
            channel=channel,
            where=where,
            client=client_,
            rate_hz=reported_interval(asked.need.rate_hz),
            count=reported_interval(asked.need.count),
            paper_rate_hz=reported_interval(asked.need.paper_rate_hz),
            paper_count=reported_interval(asked.need.paper_count),
            is_advertised=asked.need.is_advertised,
            estimate_hz=asked.need.estimate_hz,
            asked_hz=asked_hz,
            event_bytes=asked.event_bytes,
            state=outcome.state,
            share=outcome.share,
            problems=tuple(map(refusal_text, outcome.refusals)),
            shortages=tuple(map(shortage_status, outcome.refusals)),
            needs=self._needs(asked, asked_hz),
            is_secondary=self._is_secondary,
            wanted_hz=wanted_hz,
            promised_hz=asked.promised_hz,
            most_hz=most_hz,
        )
        return replace(found, answer=answer_text(found))

    def _question(
        self, channel: str, where: str, client_: str
    ) -> tuple[_Question, AdmissionOutcome | None]:
        """The question, and the outcome of the same subscription if the client has it."""
        filter_ = Filter(channel, parse(where or "TRUE"))
        admission = self._admission
        session = self._broker.sessions.get(client_)
        entity = Entity(client_, node=self._node) if session is None else session.entity
        guarantee = self._admitting.guarantee_for(entity, channel)
        measured = self._estimate(channel, where, "")
        size = admission.options.event_bytes
        if measured.event_bytes is not None:
            size = round(measured.event_bytes)
        need = admission.estimate_demand(filter_, measured)
        held = self._admitting.held_by(client_, filter_)
        asked = _Question(
            filter=filter_,
            client=client_,
            guarantee=guarantee,
            measured=measured,
            event_bytes=size,
            need=need,
            promised_hz=None if held is None else min(held.requested_hz, need.rate_hz.high),
        )
        is_same = held is not None and held.is_for(filter_, guarantee)
        return asked, held.outcome if held is not None and is_same else None

    async def _try_rate(
        self, asked: _Question, wanted_hz: float
    ) -> tuple[AdmissionOutcome, float | None]:
        """Whether that rate fits, and how much of it does if it doesn't and that is known."""
        advertised = asked.need.rate_hz.high if asked.need.count.high else None
        if advertised is not None and wanted_hz > advertised:
            return _outcome(ReservationState.REFUSED), advertised
        if short := self._shortages(asked, wanted_hz):
            most_hz = min(wanted_hz * max(each.free, 0) / each.requested for each in short)
            return _outcome(ReservationState.REFUSED, short), most_hz
        promised_hz = asked.promised_hz or 0.0
        more_hz = wanted_hz - promised_hz
        if advertised is None or more_hz <= 0:
            return _outcome(ReservationState.ADMITTED), None
        room = self._admission.options.estimate_margin
        guarantee = replace(asked.guarantee, basis=Basis.ESTIMATE)
        outcome = await self._try_reserve(asked, guarantee, Measured(more_hz / room))
        shares = [max(each.free, 0) / each.requested for each in outcome.refusals if each.requested]
        return outcome, promised_hz + more_hz * min(shares) if shares else None

    def _shortages(self, asked: _Question, wanted_hz: float) -> tuple[AdmissionRefusal, ...]:
        """What this node lacks for that rate, also where admission is off."""
        return tuple(
            AdmissionRefusal(self._node, pool.resource, need.asked, need.free, pool.of)
            for pool, need in self._local_needs(asked, wanted_hz).items()
            if need.free is not None and need.asked > need.free
        )

    def _needs(self, asked: _Question, asked_hz: float) -> tuple[NeedStatus, ...]:
        """What delivering to the client takes at this node, against what is free."""
        return tuple(self._local_needs(asked, asked_hz).values()) if isfinite(asked_hz) else ()

    def _local_needs(self, asked: _Question, asked_hz: float) -> dict[Pool, NeedStatus]:
        """What is promised to the client already counts as free."""
        of = client(asked.client)
        held: Amounts = {}
        if asked.promised_hz is not None:
            held = self._admission.needed_amounts(asked.promised_hz, asked.event_bytes, of)
        amounts = self._admission.needed_amounts(asked_hz, asked.event_bytes, of)
        found = {}
        for pool, amount in amounts.items():
            if pool != of or asked.client:
                free = self._free(pool, asked.client)
                left = None if free is None else free + held.get(pool, 0)
                found[pool] = need_status(pool, amount, left)
        return found

    def _free(self, pool: Pool, client_: str) -> int | None:
        session = self._broker.sessions.get(client_)
        if session is not None and pool == client(client_):
            if self._admission.options.mode is Mode.OFF:  # then nobody counts what it is promised
                connection = session.connection
                return None if connection is None else connection.link.capacity_bps() or None
            self._admitting.refresh_link(session)
        return self._admission.reservations.free(pool)

    async def _try_reserve(
        self, asked: _Question, guarantee: Guarantee, measured: Measured
    ) -> AdmissionOutcome:
        """Reserve as a hypothetical subscriber with what is left of the client's bandwidth."""
        self._count += 1
        name, key = f"\0{asked.client or 'nobody'}", self._count
        admission, door = self._admission, self._admitting.controller
        session = self._broker.sessions.get(asked.client)
        if session is not None and session.connection is not None:
            bps = session.connection.link.capacity_bps()
            taken = admission.reservations.state().get(client(asked.client))
            left = 0 if taken is None else max(taken.reserved, taken.used)
            admission.set_capacity(client(name), max(bps - left, 0) if bps else None)
        decided: asyncio.Future[AdmissionOutcome] = asyncio.get_running_loop().create_future()

        def on_outcome(outcome: AdmissionOutcome) -> None:
            if not decided.done():  # the decision may change before this task resumes
                decided.set_result(outcome)

        self._admitting.outcome_callbacks[name, key] = on_outcome
        try:
            outcome = door.subscribe(
                name,
                key,
                asked.filter,
                now_us=clock_us(),
                guarantee=guarantee,
                event_bytes=asked.event_bytes,
                measured=measured,
            )
            if outcome is None:
                self._progress()
                async with asyncio.timeout(TIMEOUT_S):
                    outcome = await decided
        except TimeoutError:
            outcome = _outcome(ReservationState.ASKING)
        finally:
            del self._admitting.outcome_callbacks[name, key]
            door.on_client_gone(name)
            admission.set_capacity(client(name), None)
            self._progress()
        return outcome


def _outcome(
    state: ReservationState, refusals: Sequence[AdmissionRefusal] = ()
) -> AdmissionOutcome:
    share = 1.0 if state is ReservationState.ADMITTED else 0.0
    return AdmissionOutcome(client="", key="", state=state, share=share, refusals=tuple(refusals))


def guarantee_words(guarantee: Guarantee) -> str:
    if guarantee.kind is GuaranteeKind.PERCENTAGE:
        return guarantee_text(guarantee.percent / 100)
    return str(guarantee.kind)
