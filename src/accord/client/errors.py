"""The exceptions of the client."""

from __future__ import annotations

from accord.core.model.errors import AccordError
from accord.core.mqtt.codes import Reason


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


class QueryError(ClientError):
    """A query that failed, or ended before its last event.

    `place` names the part of the request that was wrong (`where`, `channel`, …), if any.
    """

    def __init__(self, problem: str, place: str = "") -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"{place}: {problem}" if place else problem)


class NotTakenError(ClientError):
    """A request that the server refused: `place` names what is wrong with it."""

    def __init__(self, problem: str, place: str = "") -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"{place}: {problem}" if place else problem)


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
