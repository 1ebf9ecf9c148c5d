"""`$accord/advertisements`: clients advertise what they will publish at most.

A request is a JSON object whose `do` selects one of the structs below. The reply has `ok`, and if
that is false `error` and possibly `place`. It also has the `mode` of admission, because a node with
admission off accepts advertisements, too, without enforcing them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from accord.core.broker.broker_context import NodeRequest
from accord.core.broker.client_advertisements import MAX_NAME_LENGTH
from accord.core.broker.subscription_admission import SubscriptionAdmission
from accord.core.model.errors import AccordError, AdmissionError, PolicyError
from accord.runtime.policy_requests import decoding_problem

MAX_BYTES: Final = 65_536
MAX_WHERE: Final = 10_000
_NAME_PREFIX: Final = 200


class _Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    pass


class Advertise(_Asked, frozen=True, kw_only=True, tag="advertise"):
    """Add an advertisement; one of the same name is replaced."""

    channel: str  # or a filter
    rate_hz: float
    where: str = ""
    name: str = ""  # default: channel and predicate


class Unadvertise(_Asked, frozen=True, kw_only=True, tag="unadvertise"):
    name: str


class ListAdvertisements(_Asked, frozen=True, tag="list"):
    """List the client's own advertisements and their state."""


AdmissionRequest = Advertise | Unadvertise | ListAdvertisements
_DECODER: Final[msgspec.json.Decoder[AdmissionRequest]] = msgspec.json.Decoder(AdmissionRequest)
_ACTIONS: Final = ("advertise", "unadvertise", "list")


def handle_request(
    admitting: SubscriptionAdmission | None, request: NodeRequest, mode: str
) -> bytes:
    """The reply to a request; never raises."""
    try:
        result = _act(admitting, request, _read(request.message.payload))
    except AdmissionError as error:
        result = {"ok": False, "error": error.problem, "place": error.part}
    except PolicyError as error:
        result = {"ok": False, "error": error.problem, "place": error.place}
    except AccordError as error:
        result = {"ok": False, "error": str(error), "place": "where"}
    return msgspec.json.encode({**result, "mode": mode})


def _read(body: bytes) -> AdmissionRequest:
    if len(body) > MAX_BYTES:
        raise PolicyError("request", f"expected at most {MAX_BYTES} bytes, got {len(body)}")
    try:
        return _DECODER.decode(body)
    except RecursionError:
        raise PolicyError("request", "JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise decoding_problem(error, _ACTIONS) from None


def _act(
    admitting: SubscriptionAdmission | None, request: NodeRequest, asked: AdmissionRequest
) -> dict[str, object]:
    if admitting is None:
        return {"ok": True}
    advertising = admitting.advertisements
    session = admitting.broker.sessions.get(request.client)
    if session is None:
        raise PolicyError("request", "the client is gone")
    match asked:
        case Advertise():
            name = asked.name or _name(asked)
            rights = request.rights
            if rights is not None and not rights.may_advertise(asked.channel):
                raise PolicyError("channel", f"you may not publish to {asked.channel[:80]}")
            if len(asked.where) > MAX_WHERE:
                raise PolicyError("where", f"expected at most {MAX_WHERE} characters")
            advertising.advertise(session, name, asked.channel, asked.where, asked.rate_hz)
            return {"ok": True, "name": name}
        case Unadvertise():
            if not advertising.unadvertise(session, asked.name):
                raise PolicyError("name", f"you advertise nothing called {asked.name[:80]!r}")
            return {"ok": True, "name": asked.name}
        case ListAdvertisements():
            return {"ok": True, "advertisements": advertising.advertisements_of(request.client)}


def _name(asked: Advertise) -> str:
    """Channel and predicate; if too long, a prefix and a digest."""
    name = f"{asked.channel} WHERE {asked.where}" if asked.where else asked.channel
    if len(name) <= MAX_NAME_LENGTH and name.isprintable():
        return name
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    plain = "".join(each if each.isprintable() else " " for each in name[:_NAME_PREFIX])
    return f"{plain}… {digest}"
