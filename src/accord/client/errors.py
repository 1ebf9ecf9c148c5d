"""The exceptions of the client, and explanations of failed connections.

An explanation is one sentence that includes what to do. Client and commands share them, over MQTT,
WebSocket and HTTP.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.core.mqtt.codes import Reason

T = TypeVar("T")


class ClientError(AccordError):
    """Base of all exceptions of the client."""


class RefusedError(ClientError):
    """The server refused: `reason` is its reason code, `explanation` its text."""

    def __init__(
        self,
        reason: Reason,
        explanation: str = "",
        *,
        what: str = "refused",
        facts: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.reason = reason
        self.explanation = explanation
        self.facts = facts  # user properties of the reply, such as node and resource
        words = reason.name.lower().replace("_", " ")
        super().__init__(f"{what}: {words}" + (f": {explanation}" if explanation else ""))


class AdmissionRefusedError(RefusedError):
    """The subscription was not admitted: `node` has too little of `resource`.

    Asked and free are bytes of memory, events per second of CPU, bits per second of bandwidth; `of`
    names the link or client whose bandwidth it is.
    """

    def __init__(
        self,
        reason: Reason,
        explanation: str = "",
        *,
        what: str = "refused",
        facts: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(reason, explanation, what=what, facts=facts)
        known = dict(facts)
        self.node = known.get("node", "")
        self.resource = known.get("resource", "")
        self.of = known.get("of", "")
        self.asked = _number(known.get("asked", ""))
        self.free = _number(known.get("free", ""))


class ConnectionFailedError(ClientError):
    """No connection could be made, or it broke and is not made again."""


class SessionClosedError(ClientError):
    """The session has ended; operations still waiting did not complete."""


class ExpiredError(ClientError):
    """The event's deadline passed before it could be sent."""


class NotTakenError(ClientError):
    """A request that the server refused, with the fields of its problem (RFC 9457).

    `place` names the part of the request that is wrong, `remedy` what to do, `status` is as over
    HTTP; they are empty or 0 if the server gives none.
    """

    def __init__(self, problem: str, place: str = "", *, status: int = 0, remedy: str = "") -> None:
        self.problem = problem
        self.place = place
        self.status = status
        self.remedy = remedy
        text = f"{place}: {problem}" if place else problem
        super().__init__(f"{text}; {remedy}" if remedy else text)


class QueryError(NotTakenError):
    """A query that failed, or ended before its last event."""


class QualityRefusedError(NotTakenError):
    """An expectation or a profile that the server refused."""


class AdvertisementError(NotTakenError):
    """An advertisement that the server refused."""


class ChannelRefusedError(NotTakenError):
    """A channel that the server refused to define or delete, possibly only for this client."""


class AlreadySubscribedError(ClientError):
    """The session already has a subscription with this filter: MQTT keeps one for each filter."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        super().__init__(
            f"already subscribed to {pattern!r} in this session: a second subscription would "
            "replace the first; close that one, or open another session"
        )


def refused_subscription(
    reason: Reason, explanation: str, what: str, facts: tuple[tuple[str, str], ...]
) -> RefusedError:
    """The error for a refused subscription; AdmissionRefusedError where resources are short."""
    is_admission = reason is Reason.QUOTA_EXCEEDED and any(name == "resource" for name, _ in facts)
    kind = AdmissionRefusedError if is_admission else RefusedError
    return kind(reason, explanation, what=what, facts=facts)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


CONTEXT: Final = "`tls=ssl.create_default_context(cafile=FILE)`"

_WITHOUT_TLS: Final = {"mqtts": "mqtt", "wss": "ws", "https": "http"}
_WITH_TLS: Final = {plain: encrypted for encrypted, plain in _WITHOUT_TLS.items()}
# OpenSSL's verification codes.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_HOST: Final = (62, 64)  # host name mismatch, IP address mismatch
_NUMBER: Final = re.compile(r"\[Errno (\d{1,4})\]")


def explain(place: str, error: Exception, *, authority: str = CONTEXT) -> str:
    """Explain why the URL `place` was not reached; `authority` is how users name a trusted CA."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {place} {_certificate_problem(error, authority)}"
    plain = _WITHOUT_TLS.get(place.partition(":")[0])
    if plain is not None and isinstance(error, ssl.SSLError | ConnectionError):
        if isinstance(error, ConnectionRefusedError) or _is_alert(error):
            return f"can't connect to {place}: {_describe(error)}"
        return f"{place} does not speak TLS; use {plain}://, or the port that does"
    return f"can't connect to {place}: {_describe(error)}"


def wrong_protocol(place: str, protocol: str) -> str:
    """Explain that the server at `place` does not speak the protocol of the URL."""
    encrypted = _WITH_TLS.get(place.partition(":")[0])
    advice = f"use {encrypted}:// if it has TLS, else check the port" if encrypted else "check it"
    return f"{place} does not speak {protocol}; {advice}"


def error_number(error: Exception) -> int:
    """The errno of an error.

    asyncio joins the errors for several addresses of a host into one text, without an errno.
    """
    found = _NUMBER.search(str(error))
    return getattr(error, "errno", None) or (int(found[1]) if found else 0)


def _certificate_problem(error: ssl.SSLCertVerificationError, authority: str) -> str:
    if error.verify_code == _EXPIRED:
        return "has expired; have the node use a new one"
    if error.verify_code == _NOT_YET_VALID:
        return "is not valid yet; check the clock of this machine"
    if error.verify_code in _OTHER_HOST:
        return "is for another host; use a name that it has, or have the node use another one"
    return (
        f"is not trusted ({error.verify_message}); name the certificate of its authority "
        f"with {authority}"
    )


def _is_alert(error: Exception) -> bool:
    """Whether the peer speaks TLS and sent an alert."""
    return "ALERT" in (getattr(error, "reason", None) or "")


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time; check host and port"
    if isinstance(error, socket.gaierror):
        return "the host is unknown; check its name"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}); see which versions and certificates it wants"
    number = error_number(error)
    if number > 0:
        return f"{os.strerror(number).lower()}; check host and port"
    return str(error) or type(error).__name__


class _Header(Struct, frozen=True):
    """What all replies of a node have: the fields of a problem unless `ok`."""

    ok: bool = False
    status: int = 0
    detail: str = "invalid reply from the node"
    place: str = ""
    remedy: str = ""


def read_answer(payload: bytes, answer: type[T], error: type[NotTakenError] = NotTakenError) -> T:
    """Decode a node's reply to a request; raises `error` if it refused."""
    try:
        header = msgspec.json.decode(payload, type=_Header)
        if header.ok:
            return msgspec.json.decode(payload, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        header = _Header()
    raise error(header.detail, header.place, status=header.status, remedy=header.remedy)
