"""Admission over HTTP: advertisements, reservations, refusals, and checks of a subscription."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import FastAPI, Query
from fastapi.responses import Response
from msgspec import Struct

from accord.core.admission.status import AdmissionStatus, DemandStatus
from accord.core.model.errors import AccordError, AdmissionError
from accord.http.responses import json_response, response_schemas
from accord.http.schemas import ADMISSION, NEED, Problem

Channel = Annotated[str, Query(max_length=65_535, description="A channel, or a filter")]
Where = Annotated[str, Query(max_length=10_000, description="A predicate; none for all events")]
Client = Annotated[
    str, Query(max_length=65_535, description="Whose link and policies count; nobody's if empty")
]


class AdmissionView(Protocol):
    """Admission at a node. Called on its event loop."""

    def status(self) -> AdmissionStatus:
        """The status without filters, which is quick."""

    async def show(self) -> AdmissionStatus: ...

    async def dry_run(self, channel: str, where: str, client_: str = "") -> DemandStatus:
        """The demand of a subscription; raises AccordError if it is not a valid one."""


def add_admission(app: FastAPI, admission: AdmissionView) -> list[type[Struct]]:
    """Add the routes, which the guard protects; returns the structs to describe in OpenAPI."""

    @app.get(ADMISSION, response_class=Response, responses=response_schemas(AdmissionStatus))
    async def status() -> Response:
        """What is advertised, what is promised and free, and what was refused lately."""
        return json_response(await admission.show())

    @app.get(NEED, response_class=Response, responses=response_schemas(DemandStatus, _400=Problem))
    async def need(channel: Channel, where: Where = "", client: Client = "") -> Response:
        """What a subscription would need, and whether it would be admitted now."""
        try:
            return json_response(await admission.dry_run(channel, where, client))
        except AdmissionError as error:
            return json_response(Problem(error.problem, error.part), 400)
        except AccordError as error:
            return json_response(Problem(str(error), "where"), 400)

    return [AdmissionStatus, DemandStatus, Problem]
