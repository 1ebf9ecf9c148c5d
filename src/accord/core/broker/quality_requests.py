"""Client requests about quality, and their replies.

A request is a JSON object whose `do` selects one of the structs below. A reply has `ok`, and if
that is false `error` and `place`.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from accord.core.broker.broker import Broker, split_shared
from accord.core.broker.broker_context import NodeRequest
from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.broker.session import MqttSession
from accord.core.quality.client_quality import ClientExpectation, ClientProfile
from accord.core.quality.json_forms import (
    Json,
    capabilities_form,
    expect_object,
    parse_expectation,
    read_capabilities,
    read_couplings,
    render_expectation,
)
from accord.core.quality.profiles import Capability, Profile
from accord.core.quality.properties import Property, QualityError, shown
from accord.core.quality.property_files import parse_properties
from accord.core.router.rights import CAPABILITIES, EXPECTATIONS

MAX_BYTES: Final = 1_000_000
_LOCATION: Final = re.compile(r" - at `\$\.?(.*)`$")


class _QualityRequestBody(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"
):
    pass


# Expectations


class Register(_QualityRequestBody, frozen=True, tag="register"):
    """One expectation, or a list of alternatives, for a subscription of the client."""

    channel: str
    expect: dict[str, Any] | list[dict[str, Any]]


class Update(_QualityRequestBody, frozen=True, tag="update"):
    id: str
    expect: dict[str, Any]


class Suspend(_QualityRequestBody, frozen=True, tag="suspend"):
    id: str


class Resume(_QualityRequestBody, frozen=True, tag="resume"):
    id: str


class Revoke(_QualityRequestBody, frozen=True, tag="revoke"):
    id: str


class ListExpectations(_QualityRequestBody, frozen=True, tag="list"):
    """List the expectations of the client, or of one of its subscriptions."""

    channel: str | None = None


# Capabilities


class Declare(_QualityRequestBody, frozen=True, tag="register"):
    """A profile that replaces the client's profile for the channel, if any.

    `source` is the publishing client, if that is another one.
    """

    channel: str
    capabilities: dict[str, Any]
    couplings: list[dict[str, Any]] = []
    source: str | None = None


class UpdateProfile(_QualityRequestBody, frozen=True, tag="update"):
    """Replace some capabilities, or only their current values."""

    channel: str
    capabilities: dict[str, Any] = {}
    current: dict[str, float | str] = {}


class RevokeProfile(_QualityRequestBody, frozen=True, tag="revoke"):
    channel: str


class GetUsage(_QualityRequestBody, frozen=True, tag="usage"):
    channel: str


class ListProfiles(_QualityRequestBody, frozen=True, tag="list"):
    pass


# Properties


class DefineProperties(_QualityRequestBody, frozen=True, tag="define"):
    """Properties in the format of a definition file."""

    text: str


class ListProperties(_QualityRequestBody, frozen=True, tag="list"):
    pass


ExpectationRequest = Register | Update | Suspend | Resume | Revoke | ListExpectations
CapabilityRequest = Declare | UpdateProfile | RevokeProfile | GetUsage | ListProfiles
PropertyRequest = DefineProperties | ListProperties
_expectations: Final[msgspec.json.Decoder[ExpectationRequest]] = msgspec.json.Decoder(
    ExpectationRequest
)
_capabilities: Final[msgspec.json.Decoder[CapabilityRequest]] = msgspec.json.Decoder(
    CapabilityRequest
)
_properties: Final[msgspec.json.Decoder[PropertyRequest]] = msgspec.json.Decoder(PropertyRequest)


def handle_request(
    broker: Broker, quality: ClientNegotiation, request: NodeRequest
) -> tuple[Json, list[Property]]:
    """The reply, and the properties defined; never raises for anything a client can send."""
    session = broker.sessions.get(request.client)
    defined: list[Property] = []
    try:
        if session is None:
            raise QualityError("request", "your session has ended")
        answering = _Answering(broker, quality, session, request)
        channel = request.message.channel
        if channel == EXPECTATIONS:
            answered = answering.expectations(_decode(_expectations, request.message.payload))
        elif channel == CAPABILITIES:
            answered = answering.capabilities(_decode(_capabilities, request.message.payload))
        else:
            answered = answering.properties(_decode(_properties, request.message.payload), defined)
    except QualityError as error:
        return {"ok": False, "error": error.problem, "place": error.place}, []
    return {"ok": True, **answered}, defined


def property_form(property_: Property) -> Json:
    form: Json = {"name": property_.name, "better": property_.better.value}
    if property_.levels:
        form["levels"] = property_.levels
    else:
        form["range"] = [property_.lowest, property_.highest]
    if property_.unit:
        form["unit"] = property_.unit
    form["over_hops"] = property_.over_hops.value
    form["measured"] = property_.is_measured
    return form


class _Answering:
    def __init__(
        self, broker: Broker, quality: ClientNegotiation, session: MqttSession, request: NodeRequest
    ) -> None:
        self._broker = broker
        self._quality = quality
        self._session = session
        self._request = request

    def expectations(self, request: ExpectationRequest) -> Json:
        quality, session = self._quality, self._session
        match request:
            case ListExpectations(channel=channel):
                holder = quality.clients.get(session.name)
                found = [] if holder is None else list(holder.expected.values())
                listed = [each for each in found if channel in (None, each.subscription)]
                return {"expectations": [self._state_form(each) for each in listed]}
            case Register():
                return self._register(request)
            case Update(id=id_, expect=expect):
                known = quality.find(session, id_)
                expectation = parse_expectation({**expect, "id": id_}, quality.negotiation.registry)
                quality.update(session, id_, expectation)
                self._record(known.subscription)
                return self._state_form(known)
            case Suspend(id=id_):
                quality.suspend(session, id_)
            case Resume(id=id_):
                quality.resume(session, id_)
            case Revoke(id=id_):
                subscription = quality.find(session, id_).subscription
                quality.revoke(session, id_)
                self._record(subscription)
                return {}
        known = quality.find(session, id_)
        self._record(known.subscription)
        return self._state_form(known)

    def capabilities(self, request: CapabilityRequest) -> Json:
        quality, session = self._quality, self._session
        match request:
            case ListProfiles():
                holder = quality.clients.get(session.name)
                found = [] if holder is None else list(holder.declared.values())
                return {"profiles": [_profile_form(each) for each in found]}
            case Declare():
                return self._declare(request)
            case UpdateProfile(channel=channel):
                known = quality.profile(session, channel)
                profile = _updated_profile(known.profile, request)
                quality.declare(session, profile, known.source)
                return {}
            case RevokeProfile(channel=channel):
                quality.withdraw_profile(session, channel)
                return {}
            case GetUsage(channel=channel):
                quality.profile(session, channel)
                number, utility = quality.negotiation.usage(session.name, channel)
                return {"channel": channel, "expectations": number, "utility": utility}

    def properties(self, request: PropertyRequest, defined: list[Property]) -> Json:
        registry = self._quality.negotiation.registry
        if isinstance(request, ListProperties):
            return {"properties": [property_form(each) for each in registry]}
        if not self._request.may_change_policies():
            raise QualityError("request", "you may not define properties")
        found = parse_properties(request.text)
        if not found:
            raise QualityError("text", "expected at least one property")
        self._quality.define(*found)
        defined += found
        return {"properties": [each.name for each in found]}

    def _register(self, request: Register) -> Json:
        name = request.channel
        if name not in self._session.subscriptions:
            problem = f"expected the filter of a subscription that you have, got {shown(name)}"
            raise QualityError("channel", problem)
        forms = request.expect if isinstance(request.expect, list) else [request.expect]
        registry = self._quality.negotiation.registry
        expectations = [parse_expectation(form, registry) for form in forms]
        if not expectations:
            raise QualityError("expect", "expected at least one expectation")
        made: list[ClientExpectation] = []
        try:
            for expectation in expectations:
                pattern = split_shared(name)[1]
                made.append(self._quality.register(self._session, name, pattern, expectation))
        except QualityError:
            for each in made:
                self._quality.revoke(self._session, each.id)
            raise
        self._record(name)
        return {"expectations": [self._state_form(each) for each in made]}

    def _record(self, subscription: str) -> None:
        """Record the expectations of a durable session."""
        session, context = self._session, self._broker.context
        if session.is_durable and context.is_durable and subscription in session.subscriptions:
            context.record(self._broker.subscribed_record(session, subscription))

    def _declare(self, request: Declare) -> Json:
        if request.channel.startswith("$") or not self._request.may_publish(request.channel):
            raise QualityError("channel", f"you may not publish on {shown(request.channel)}")
        profile = Profile(
            publisher=self._session.name,
            channel=request.channel,
            capabilities=read_capabilities(request.capabilities),
            couplings=read_couplings(request.couplings),
        )
        self._quality.declare(self._session, profile, request.source or self._session.name)
        return {}

    def _state_form(self, expected: ClientExpectation) -> Json:
        shown_ = self._quality.state_of(expected)
        shown_["expect"] = render_expectation(expected.form)
        return shown_


def _updated_profile(profile: Profile, request: UpdateProfile) -> Profile:
    changed = {each.property: each for each in profile.capabilities}
    updated = read_capabilities(expect_object(request.capabilities, "capabilities"))
    changed |= {each.property: each for each in updated}
    for name, value in request.current.items():
        if name not in changed:
            known = ", ".join(changed)
            raise QualityError(f"current.{name}", f"expected one of {known}")
        current = value if isinstance(value, str) else float(value)
        changed[name] = msgspec.structs.replace(changed[name], current=current)
    capabilities: tuple[Capability, ...] = tuple(changed.values())
    return msgspec.structs.replace(profile, capabilities=capabilities)


def _profile_form(declared: ClientProfile) -> Json:
    profile = declared.profile
    form: Json = {
        "channel": profile.channel,
        "capabilities": capabilities_form(profile.capabilities),
    }
    if profile.couplings:
        form["couplings"] = [
            {"of": each.of, "on": each.on, "per_unit": each.per_unit} for each in profile.couplings
        ]
    if declared.source != profile.publisher:
        form["source"] = declared.source
    return form


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    if len(body) > MAX_BYTES:
        problem = f"expected at most {MAX_BYTES} bytes, got {len(body)}"
        raise QualityError("request", problem)
    try:
        return decoder.decode(body)
    except RecursionError:
        raise QualityError("request", "JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)
        found = _LOCATION.search(text)
        place = (found[1] if found else "") or "request"
        if place == "do" or "missing required field `do`" in text:
            kinds = msgspec.inspect.type_info(decoder.type)
            assert isinstance(kinds, msgspec.inspect.UnionType)
            names = ", ".join(
                str(each.tag)
                for each in kinds.types
                if isinstance(each, msgspec.inspect.StructType)
            )
            raise QualityError("do", f"expected one of {names}") from None
        raise QualityError(place, _LOCATION.sub("", text).replace("`", "")) from None
