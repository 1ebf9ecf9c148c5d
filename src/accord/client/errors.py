"""What a user of the client may have to deal with."""

from __future__ import annotations

from accord.core.model.errors import AccordError
from accord.core.mqtt.codes import Reason


class ClientError(AccordError):
    """Base of what the client raises."""


class RefusedError(ClientError):
    """The server said no: `reason` is its code, `explanation` what it added in words."""

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
        self.facts = facts  # the user properties of the answer, such as node and resource
        words = reason.name.lower().replace("_", " ")
        super().__init__(f"{what}: {words}" + (f": {explanation}" if explanation else ""))


class AdmissionRefusedError(RefusedError):
    """The subscription can't be carried: `node` has too little of `resource`.

    Asked and free are bytes of memory, events per second of CPU, bits per second of bandwidth;
    `of` says which link or client, of bandwidth.
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
    """The session has ended; what was still waiting did not happen."""


class ExpiredError(ClientError):
    """The event's deadline passed before it could be sent."""


class QueryError(ClientError):
    """A query that was not answered, or not to its end.

    `place` names what was wrong in the question (`where`, `channel`, …), if something was.
    """

    def __init__(self, problem: str, place: str = "") -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"{place}: {problem}" if place else problem)


class NotTakenError(ClientError):
    """A request that the server does not fulfil: `place` names what is wrong with it."""

    def __init__(self, problem: str, place: str = "") -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"{place}: {problem}" if place else problem)


class QualityRefusedError(NotTakenError):
    """An expectation or a profile that the server does not accept."""


class AdvertisementError(NotTakenError):
    """An advertisement that the server does not accept."""


class ChannelRefusedError(NotTakenError):
    """A channel that the server does not define or delete, or not for this client."""


class AlreadySubscribedError(ClientError):
    """The session has a subscription with this filter: MQTT keeps one for each filter."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        super().__init__(
            f"already subscribed to {pattern!r} in this session: a second subscription would "
            "replace the first; close that one, or open another session"
        )


def refused_subscription(
    reason: Reason, explanation: str, what: str, facts: tuple[tuple[str, str], ...]
) -> RefusedError:
    """With the facts where resources are short."""
    is_admission = reason is Reason.QUOTA_EXCEEDED and any(name == "resource" for name, _ in facts)
    kind = AdmissionRefusedError if is_admission else RefusedError
    return kind(reason, explanation, what=what, facts=facts)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
