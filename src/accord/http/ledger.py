"""The ledger, the series and the data of `accord top`, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Protocol

import msgspec
from fastapi import FastAPI, Query
from fastapi.responses import Response

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import EventError
from accord.core.monitoring.ledger import OUTCOMES, event_id, event_number
from accord.core.monitoring.series import Summary
from accord.core.monitoring.top import Top, Waiting
from accord.http.ledger_schemas import (
    EVENTS,
    LEDGER,
    SERIES,
    TOP,
    DeliveryOutcomes,
    EventOutcomes,
    SeriesList,
    SeriesPoints,
    outcome_of,
)
from accord.http.responses import json_response, response_schemas
from accord.http.schemas import Problem
from accord.journal.ledger_records import LedgerQuery, LedgerResult

MAX_DESTINATIONS: Final = 10_000

_MAX_MS: Final = 1 << 53

Limit = Annotated[int, Query(ge=1, le=1_000, description="How many at most")]
Lines = Annotated[int, Query(ge=1, le=200, description="How many channels and clients at most")]
Since = Annotated[int, Query(ge=0, le=_MAX_MS, description="In ms since 1970")]
Text = Annotated[str, Query(max_length=65_535)]


class LedgerView(Protocol):
    """Observations of a running node. Called on its event loop."""

    def top(self, most: int) -> Top: ...

    def summaries(self, prefix: str, most: int) -> list[Summary]: ...

    def summary(self, name: str) -> Summary | None: ...

    def points(self, name: str) -> list[tuple[int, float]]: ...

    async def search(self, wanted: LedgerQuery, most: int) -> LedgerResult: ...

    async def waiting(self, number: int) -> list[Waiting]: ...


def add_ledger(app: FastAPI, view: LedgerView) -> list[type[msgspec.Struct]]:
    """Add the routes, which the guard protects; returns the structs to describe in OpenAPI."""
    _add_events(app, view)
    _add_series(app, view)
    return [EventOutcomes, DeliveryOutcomes, SeriesList, SeriesPoints, Top, Problem]


def _add_events(app: FastAPI, view: LedgerView) -> None:
    @app.get(
        f"{EVENTS}/{{event}}",
        response_class=Response,
        responses=response_schemas(EventOutcomes, _400=Problem, _404=Problem),
    )
    async def event_outcomes(event: str) -> Response:
        """What became of an event for each destination, and where it still waits."""
        try:
            number = event_number(event)
        except EventError as error:
            return _problem(400, str(error))
        waiting = tuple((await view.waiting(number))[:MAX_DESTINATIONS])
        answer = await view.search(LedgerQuery(number=number), MAX_DESTINATIONS)
        if not answer.entries and not waiting:
            return _problem(404, _unknown(number, answer))
        outcomes = tuple(outcome_of(entry) for entry in answer.entries)
        latest = outcomes[0] if outcomes else waiting[0]
        return json_response(
            EventOutcomes(
                event=event_id(number),
                channel=latest.channel,
                publisher=latest.publisher,
                received_ms=latest.received_ms,
                outcomes=outcomes,
                waiting=waiting,
                is_complete=answer.is_complete,
            )
        )

    @app.get(
        LEDGER, response_class=Response, responses=response_schemas(DeliveryOutcomes, _400=Problem)
    )
    async def ledger(
        *,
        channel: Text = "#",
        client: Text | None = None,
        outcome: Text | None = None,
        since_ms: Since | None = None,
        limit: Limit = 100,
    ) -> Response:
        """The latest outcomes: of a channel filter, to or from a client, of one kind.

        Channels that begin with $ or accord-response/ only where the filter names them.
        """
        if problem := problem_with_filter(channel):
            return _problem(400, f"channel: {problem}")
        if outcome is not None and outcome not in OUTCOMES:
            return _problem(400, f"outcome: expected {', '.join(OUTCOMES)}, got {outcome[:40]!r}")
        wanted = LedgerQuery(
            channel=channel,
            client=client,
            outcome=None if outcome is None else OUTCOMES.index(outcome),
            since_ms=since_ms,
        )
        answer = await view.search(wanted, limit)
        return json_response(
            DeliveryOutcomes(
                outcomes=tuple(outcome_of(entry) for entry in answer.entries),
                is_complete=answer.is_complete,
                reaches_back_ms=answer.reaches_back_ms,
            )
        )


def _add_series(app: FastAPI, view: LedgerView) -> None:
    @app.get(SERIES, response_class=Response, responses=response_schemas(SeriesList))
    async def series_list(prefix: Text = "", limit: Limit = 200) -> Response:
        """What is measured: names, last values, mean, deviation and trend over 10 s."""
        return json_response(SeriesList(series=tuple(view.summaries(prefix, limit))))

    @app.get(
        f"{SERIES}/{{name:path}}",
        response_class=Response,
        responses=response_schemas(SeriesPoints, _404=Problem),
    )
    async def series(name: str) -> Response:
        """One series with its points."""
        summary = view.summary(name)
        if summary is None:
            return _problem(404, f"no series {name[:200]!r}: see {SERIES} for those there are")
        return json_response(SeriesPoints(summary=summary, points=tuple(view.points(name))))

    @app.get(TOP, response_class=Response, responses=response_schemas(Top))
    async def top(limit: Lines = 20) -> Response:
        """The busiest channels and clients, the queues, and what is decided for the node."""
        return json_response(view.top(limit))


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


def _problem(code: int, problem: str) -> Response:
    return json_response(Problem(problem), code)
