"""All operations, and their requests over MQTT: JSON objects on `$accord/GROUP`.

`do` selects the action. A reply is the answer with `"ok": true`, or a problem with `"ok": false`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Union

import msgspec
from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.operations import (
    activity,
    admission,
    channels,
    clients,
    event_export,
    event_sources,
    events,
    net,
    policies,
    predicates,
    quality,
    query,
    query_overviews,
    status,
)
from accord.operations.operation import (
    Operation,
    Problem,
    Request,
    RequestError,
    declared,
    decoding_problem,
    operation_of,
    problem_of,
)

MODULES: Final = (
    admission, channels, net, activity, clients, policies, predicates, quality, query,
    query_overviews, event_export, status, events, event_sources,
)  # fmt: skip
_PLACES: Final = {module.__name__: place for place, module in enumerate(MODULES)}
# By module: programs import them in different orders.
OPERATIONS: Final[tuple[Operation, ...]] = tuple(
    sorted(declared(), key=lambda each: _PLACES[each.handler.__module__])
)
_encoder: Final = msgspec.json.Encoder()


class Topic(Struct, frozen=True):
    """The operations of one topic."""

    operations: tuple[Operation, ...]
    decoder: Any
    max_bytes: int

    def decode(self, body: bytes) -> tuple[Operation, Request[Any]]:
        """The operation and its request; raises RequestError."""
        if len(body) > self.max_bytes:
            problem = f"expected at most {self.max_bytes} bytes, got {len(body)}"
            raise RequestError(413, problem, "request")
        try:
            request = self.decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            actions = tuple(each.action for each in self.operations)
            raise decoding_problem(error, actions) from None
        return operation_of(type(request)), request


@cache
def topics() -> dict[str, Topic]:
    groups: dict[str, list[Operation]] = {}
    for each in OPERATIONS:
        groups.setdefault(each.topic, []).append(each)
    return {
        topic: Topic(
            tuple(group),
            msgspec.json.Decoder(Union[tuple(each.request for each in group)]),  # noqa: UP007
            max(each.max_bytes for each in group),
        )
        for topic, group in groups.items()
    }


def encode_answer(answer: Struct) -> bytes:
    body = _encoder.encode(answer)
    return b'{"ok":true}' if body == b"{}" else b'{"ok":true,' + body[1:]


def encode_problem(problem: Problem) -> bytes:
    return b'{"ok":false,' + _encoder.encode(problem)[1:]


def encode_error(error: AccordError) -> bytes:
    return encode_problem(problem_of(error))
