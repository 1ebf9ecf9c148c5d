"""Negotiated quality: expectations of subscribers, capabilities of publishers, and properties.

Expectations and capabilities belong to a client: over MQTT to the asking one. Reading the status of
all takes the right to statistics; defining properties takes the right to policies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from accord.core.broker.broker import split_shared
from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.broker.session import MqttSession
from accord.core.model.channels import problem_with_filter
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
from accord.core.quality.properties import PropertyRegistry, QualityError, shown
from accord.core.quality.property_files import parse_properties
from accord.core.quality.serialisation import (
    QualityDocument,
    read_json,
    read_xml,
    write_json,
    write_xml,
)
from accord.core.quality.status import PropertyStatus, QualityStatus
from accord.operations.clients import client_session
from accord.operations.operation import (
    TEXT,
    Acknowledged,
    Asker,
    Request,
    RequestError,
    Right,
    operation,
)
from accord.operations.ports import NodePorts, QualityPort, need

MAX_BYTES: Final = 1_000_000
MAX_DOCUMENT: Final = 262_144

ExpectationId = Annotated[
    str, Meta(max_length=65_535, description="ID of the expectation.", examples=["quick"])
]
Channel = Annotated[str, Meta(max_length=65_535, examples=["uav/imagery"])]
Expect = Annotated[
    dict[str, Any],
    Meta(
        description="By property, [lower, upper] or the worst sufficient value; id, utility.",
        examples=[{"rate": [1, None], "latency": 200, "id": "quick"}],
    ),
]
OwnClient = Annotated[
    str,
    Meta(
        max_length=65_535,
        description="The client concerned; over MQTT the asking one.",
        examples=["patrol-1"],
    ),
]


class ClientExpectationState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An expectation of a client: its subscription, its state, and what is insufficient."""

    expectation: str
    channel: str
    state: str
    decision: str = ""
    reasons: list[dict[str, Any]] = []
    expect: dict[str, Any] = {}


class ExpectationList(Struct, frozen=True, kw_only=True):
    """Expectations of a client."""

    expectations: tuple[ClientExpectationState, ...]


class ProfileForm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client can offer on a channel; `source` is the publisher if that is another one."""

    channel: str
    capabilities: dict[str, Any]
    couplings: list[dict[str, Any]] = []
    source: str = ""


class ProfileList(Struct, frozen=True, kw_only=True):
    """Profiles of a client."""

    profiles: tuple[ProfileForm, ...]


class ProfileUsage(Struct, frozen=True, kw_only=True):
    """How many expectations depend on a profile, and their utility."""

    channel: str
    expectations: int
    utility: float


class PropertyList(Struct, frozen=True, kw_only=True):
    """All properties of information that are defined."""

    properties: tuple[PropertyStatus, ...]


class Defined(Struct, frozen=True, kw_only=True):
    """The properties that were defined just now."""

    properties: tuple[str, ...]


class ConvertedDocument(Struct, frozen=True, kw_only=True):
    """The document in the format asked for, and how much is in it."""

    text: str
    expectations: int
    profiles: int


class GetQuality(Request[QualityStatus], frozen=True, kw_only=True, tag="get"):
    channel: Annotated[str, Meta(max_length=65_535, description="A channel or a filter.")] = "#"


class RegisterExpectation(Request[ExpectationList], frozen=True, kw_only=True, tag="register"):
    """One expectation, or a list of alternatives, for a subscription of the client."""

    channel: Channel
    expect: Expect | list[Expect]
    client: OwnClient = ""


class UpdateExpectation(Request[ClientExpectationState], frozen=True, kw_only=True, tag="update"):
    id: ExpectationId
    expect: Expect
    client: OwnClient = ""


class SuspendExpectation(Request[ClientExpectationState], frozen=True, kw_only=True, tag="suspend"):
    id: ExpectationId
    client: OwnClient = ""


class ResumeExpectation(Request[ClientExpectationState], frozen=True, kw_only=True, tag="resume"):
    id: ExpectationId
    client: OwnClient = ""


class RevokeExpectation(Request[Acknowledged], frozen=True, kw_only=True, tag="revoke"):
    id: ExpectationId
    client: OwnClient = ""


class ListExpectations(Request[ExpectationList], frozen=True, kw_only=True, tag="list"):
    """The expectations of the client, or of one of its subscriptions."""

    channel: str | None = None
    client: OwnClient = ""


class RegisterProfile(Request[Acknowledged], frozen=True, kw_only=True, tag="register"):
    """A profile that replaces the client's profile for the channel, if any.

    `source` is the publishing client, if that is another one.
    """

    channel: Channel
    capabilities: Annotated[
        dict[str, Any],
        Meta(
            description="By property, its range or table of values.",
            examples=[{"rate": {"range": [1, 50], "current": 10}}],
        ),
    ]
    couplings: list[dict[str, Any]] = []  # noqa: RUF012 (copied)
    source: str | None = None
    client: OwnClient = ""


class UpdateProfile(Request[Acknowledged], frozen=True, kw_only=True, tag="update"):
    """Replace some capabilities, or only their current values."""

    channel: Channel
    capabilities: dict[str, Any] = {}  # noqa: RUF012 (copied)
    current: dict[str, float | str] = {}  # noqa: RUF012 (copied)
    client: OwnClient = ""


class RevokeProfile(Request[Acknowledged], frozen=True, kw_only=True, tag="revoke"):
    channel: Channel
    client: OwnClient = ""


class GetUsage(Request[ProfileUsage], frozen=True, kw_only=True, tag="usage"):
    channel: Channel
    client: OwnClient = ""


class ListProfiles(Request[ProfileList], frozen=True, kw_only=True, tag="list"):
    client: OwnClient = ""


class ConvertDocument(Request[ConvertedDocument], frozen=True, kw_only=True, tag="convert"):
    text: Annotated[
        str,
        Meta(
            max_length=MAX_DOCUMENT,
            description="Expectations and profiles, as XML if it begins with <, else as JSON.",
            examples=['{"expectations": []}'],
        ),
    ]
    to: Annotated[Literal["json", "xml"], Meta(description="The format of the answer.")] = "json"


class DefineProperties(Request[Defined], frozen=True, kw_only=True, tag="define"):
    text: Annotated[str, Meta(description="As in a definition file: `key = value` lines.")]


class ListProperties(Request[PropertyList], frozen=True, kw_only=True, tag="list"):
    pass


def _quality(node: NodePorts) -> QualityPort:
    return need(node.quality, "negotiated quality")


@operation("quality", "GET /quality", Right.STATISTICS)
def get_quality(node: NodePorts, ask: GetQuality, asker: Asker) -> QualityStatus:
    """Expectations with their states and reasons, profiles and skylines, by channel."""
    if problem := problem_with_filter(ask.channel):
        raise RequestError(400, problem, "channel")
    found = _quality(node).status(ask.channel)
    seen = tuple(each for each in found.channels if asker.may_see(each.channel))
    actions = tuple(each for each in found.actions if asker.may_see(each.channel))
    return msgspec.structs.replace(found, channels=seen, actions=actions)


@operation("quality", "POST /quality/convert", max_bytes=MAX_BYTES)
async def convert_document(
    node: NodePorts, ask: ConvertDocument, _asker: Asker
) -> ConvertedDocument:
    """Check a document of expectations and profiles, and convert it to XML or JSON.

    The problem with it has its line and column, or the path of the field.
    """
    registry = PropertyRegistry(tuple(_quality(node).quality.negotiation.registry))
    return await asyncio.to_thread(_converted, ask, registry)


@operation("expectations", "POST /expectations", changes=True, max_bytes=MAX_BYTES)
def register_expectation(
    node: NodePorts, ask: RegisterExpectation, asker: Asker
) -> ExpectationList:
    """Register an expectation, or alternatives of one, for a subscription."""
    quality, session = _client(node, ask.client, asker)
    name = ask.channel
    if name not in session.subscriptions:
        problem = f"expected the filter of a subscription that you have, got {shown(name)}"
        raise QualityError("channel", problem)
    forms = ask.expect if isinstance(ask.expect, list) else [ask.expect]
    registry = quality.negotiation.registry
    expectations = [parse_expectation(form, registry) for form in forms]
    if not expectations:
        raise QualityError("expect", "expected at least one expectation")
    made: list[ClientExpectation] = []
    try:
        for expectation in expectations:
            pattern = split_shared(name)[1]
            made.append(quality.register(session, name, pattern, expectation))
    except QualityError:
        for each in made:
            quality.revoke(session, each.id)
        raise
    _record(node, session, name)
    return ExpectationList(expectations=tuple(_state(quality, each) for each in made))


@operation("expectations", "PUT /expectations/{id}", changes=True, max_bytes=MAX_BYTES)
def update_expectation(
    node: NodePorts, ask: UpdateExpectation, asker: Asker
) -> ClientExpectationState:
    """Replace an expectation."""
    quality, session = _client(node, ask.client, asker)
    known = quality.find(session, ask.id)
    form = {**ask.expect, "id": ask.id}
    quality.update(session, ask.id, parse_expectation(form, quality.negotiation.registry))
    _record(node, session, known.subscription)
    return _state(quality, known)


@operation("expectations", "POST /expectations/{id}/suspend", changes=True)
def suspend_expectation(
    node: NodePorts, ask: SuspendExpectation, asker: Asker
) -> ClientExpectationState:
    """Suspend an expectation: nothing is done for it until it is resumed."""
    quality, session = _client(node, ask.client, asker)
    quality.suspend(session, ask.id)
    return _recorded(node, quality, session, ask.id)


@operation("expectations", "POST /expectations/{id}/resume", changes=True)
def resume_expectation(
    node: NodePorts, ask: ResumeExpectation, asker: Asker
) -> ClientExpectationState:
    """Resume a suspended expectation."""
    quality, session = _client(node, ask.client, asker)
    quality.resume(session, ask.id)
    return _recorded(node, quality, session, ask.id)


@operation("expectations", "DELETE /expectations/{id}", changes=True)
def revoke_expectation(node: NodePorts, ask: RevokeExpectation, asker: Asker) -> Acknowledged:
    """Revoke an expectation."""
    quality, session = _client(node, ask.client, asker)
    subscription = quality.find(session, ask.id).subscription
    quality.revoke(session, ask.id)
    _record(node, session, subscription)
    return Acknowledged()


@operation("expectations", "GET /expectations")
def list_expectations(node: NodePorts, ask: ListExpectations, asker: Asker) -> ExpectationList:
    """The expectations of a client with their states."""
    quality, session = _client(node, ask.client, asker)
    holder = quality.clients.get(session.name)
    found = [] if holder is None else list(holder.expected.values())
    listed = [each for each in found if ask.channel in (None, each.subscription)]
    return ExpectationList(expectations=tuple(_state(quality, each) for each in listed))


@operation("capabilities", "PUT /capabilities/{channel}", changes=True, max_bytes=MAX_BYTES)
def register_profile(node: NodePorts, ask: RegisterProfile, asker: Asker) -> Acknowledged:
    """Register what a publisher can offer on a channel."""
    quality, session = _client(node, ask.client, asker)
    if ask.channel.startswith("$") or not asker.rights.may_publish(ask.channel):
        raise QualityError("channel", f"you may not publish on {shown(ask.channel)}")
    profile = Profile(
        publisher=session.name,
        channel=ask.channel,
        capabilities=read_capabilities(ask.capabilities),
        couplings=read_couplings(ask.couplings),
    )
    quality.declare(session, profile, ask.source or session.name)
    node.due()
    return Acknowledged()


@operation("capabilities", "PATCH /capabilities/{channel}", changes=True, max_bytes=MAX_BYTES)
def update_profile(node: NodePorts, ask: UpdateProfile, asker: Asker) -> Acknowledged:
    """Replace some capabilities of a profile, or their current values."""
    quality, session = _client(node, ask.client, asker)
    known = quality.profile(session, ask.channel)
    quality.declare(session, _updated_profile(known.profile, ask), known.source)
    node.due()
    return Acknowledged()


@operation("capabilities", "DELETE /capabilities/{channel}", changes=True)
def revoke_profile(node: NodePorts, ask: RevokeProfile, asker: Asker) -> Acknowledged:
    """Revoke a profile."""
    quality, session = _client(node, ask.client, asker)
    quality.withdraw_profile(session, ask.channel)
    node.due()
    return Acknowledged()


@operation("capabilities", "GET /capabilities/{channel}/usage")
def get_usage(node: NodePorts, ask: GetUsage, asker: Asker) -> ProfileUsage:
    """How many expectations depend on a profile, and their utility."""
    quality, session = _client(node, ask.client, asker)
    quality.profile(session, ask.channel)
    number, utility = quality.negotiation.usage(session.name, ask.channel)
    return ProfileUsage(channel=ask.channel, expectations=number, utility=utility)


@operation("capabilities", "GET /capabilities")
def list_profiles(node: NodePorts, ask: ListProfiles, asker: Asker) -> ProfileList:
    """The profiles of a client."""
    quality, session = _client(node, ask.client, asker)
    holder = quality.clients.get(session.name)
    found = [] if holder is None else list(holder.declared.values())
    return ProfileList(profiles=tuple(_profile_form(each) for each in found))


@operation(
    "properties",
    "POST /quality/properties",
    Right.POLICIES,
    changes=True,
    entity="text",
    body_media=(TEXT,),
    max_bytes=MAX_BYTES,
)
def define_properties(node: NodePorts, ask: DefineProperties, _asker: Asker) -> Defined:
    """Define properties; those in use keep their meaning."""
    found = parse_properties(ask.text)
    if not found:
        raise QualityError("text", "expected at least one property")
    _quality(node).define(found)
    return Defined(properties=tuple(each.name for each in found))


@operation("properties", "GET /quality/properties")
def list_properties(node: NodePorts, _ask: ListProperties, _asker: Asker) -> PropertyList:
    """Everything that can be expected and offered."""
    return PropertyList(properties=tuple(_quality(node).properties()))


def _converted(ask: ConvertDocument, registry: PropertyRegistry) -> ConvertedDocument:
    is_xml = ask.text.lstrip("\ufeff \t\r\n").startswith("<")
    read: Callable[[bytes, PropertyRegistry], QualityDocument] = read_xml if is_xml else read_json
    try:
        found = read(ask.text.encode(), registry)
    except UnicodeEncodeError:
        raise QualityError("text", "expected text without lone surrogates") from None
    text = write_xml(found).decode() if ask.to == "xml" else write_json(found)
    return ConvertedDocument(
        text=text.rstrip() + "\n",
        expectations=len(found.expectations),
        profiles=len(found.profiles),
    )


def _client(node: NodePorts, client: str, asker: Asker) -> tuple[ClientNegotiation, MqttSession]:
    return _quality(node).quality, client_session(node, client, asker)


def _recorded(
    node: NodePorts, quality: ClientNegotiation, session: MqttSession, id_: str
) -> ClientExpectationState:
    known = quality.find(session, id_)
    _record(node, session, known.subscription)
    return _state(quality, known)


def _record(node: NodePorts, session: MqttSession, subscription: str) -> None:
    """Record the expectations of a durable session."""
    broker = need(node.broker, "sessions")
    context = broker.context
    if session.is_durable and context.is_durable and subscription in session.subscriptions:
        context.record(broker.subscribed_record(session, subscription))
    node.due()


def _state(quality: ClientNegotiation, expected: ClientExpectation) -> ClientExpectationState:
    form = {**quality.state_of(expected), "expect": render_expectation(expected.form)}
    return ClientExpectationState(**form)


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


def _profile_form(declared: ClientProfile) -> ProfileForm:
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
    return ProfileForm(**form)
