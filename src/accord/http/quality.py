"""Negotiated quality over HTTP: expectations, profiles and skylines by channel; properties.

Reading takes the right to statistics; defining properties takes the right to policies.
"""

from __future__ import annotations

from typing import Annotated, Final, Protocol

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response
from msgspec import Struct

from accord.core.model.channels import problem_with_filter
from accord.core.quality.properties import QualityError
from accord.core.quality.status import PropertyStatus, QualityStatus, QualityTotals
from accord.http.responses import BodyRefused, json_response, read_body, response_schemas
from accord.http.schemas import PROPERTIES, QUALITY, TEXT, Defined, Problem, PropertyList

MAX_BYTES: Final = 1_000_000

Channel = Annotated[str, Query(max_length=65_535, description="A channel, or a filter of channels")]


class QualityView(Protocol):
    """Quality at a node, seen from outside. Called on its event loop."""

    def status(self, pattern: str) -> QualityStatus: ...

    def totals(self) -> QualityTotals: ...

    def properties(self) -> list[PropertyStatus]: ...

    def define(self, text: str) -> list[str]:
        """Define properties; raises QualityError if the text is invalid."""


def add_quality(app: FastAPI, quality: QualityView) -> list[type[Struct]]:
    """Add the routes, which the guard protects; returns the structs to describe in OpenAPI."""

    @app.get(
        QUALITY, response_class=Response, responses=response_schemas(QualityStatus, _400=Problem)
    )
    async def status(channel: Channel = "#") -> Response:
        """Expectations with their states and reasons, profiles and skylines, by channel."""
        if problem := problem_with_filter(channel):
            return json_response(Problem(problem, "channel"), 400)
        return json_response(quality.status(channel))

    @app.get(PROPERTIES, response_class=Response, responses=response_schemas(PropertyList))
    async def properties() -> Response:
        """Everything that can be expected and offered."""
        return json_response(PropertyList(properties=tuple(quality.properties())))

    @app.post(
        PROPERTIES, response_class=Response, responses=response_schemas(Defined, _400=Problem)
    )
    async def define(request: Request) -> Response:
        """Define properties, as `key = value` lines; those in use keep their meaning."""
        try:
            data, _ = await read_body(request, (TEXT,), MAX_BYTES)
            return json_response(Defined(properties=tuple(quality.define(data.decode()))))
        except BodyRefused as refusal:
            return json_response(refusal.problem, refusal.code)
        except QualityError as error:
            return json_response(Problem(error.problem, error.place), 400)
        except UnicodeDecodeError:
            return json_response(Problem("expected UTF-8 text"), 400)

    return [QualityStatus, PropertyList, Defined, Problem]
