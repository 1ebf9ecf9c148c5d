"""Admission: advertisements, reservations and refusals; checks of a subscription.

A node with admission off accepts advertisements, too, without enforcing them: the answer has the
`mode`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from accord.core.admission.filter_poset import MAX_HZ
from accord.core.admission.status import (
    MAX_NAME_LENGTH,
    AdmissionStatus,
    DemandStatus,
    PublisherStatus,
)
from accord.core.model.errors import AccordError, AdmissionError
from accord.operations.clients import client_session
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.ports import AdmissionPort, NodePorts, need
from accord.operations.visibility import check_channel, check_client

if TYPE_CHECKING:
    from accord.core.broker.session import MqttSession
    from accord.core.broker.subscription_admission import SubscriptionAdmission

MAX_WHERE: Final = 10_000
_NAME_PREFIX: Final = 200

Channel = Annotated[
    str, Meta(max_length=65_535, description="A channel or a filter.", examples=["demo/feeder/+"])
]
Where = Annotated[str, Meta(max_length=MAX_WHERE, description="A predicate; empty for all events.")]
OwnClient = Annotated[
    str,
    Meta(
        max_length=65_535,
        description="The client concerned; over MQTT the asking one.",
        examples=["patrol-1"],
    ),
]


class Advertised(Struct, frozen=True, kw_only=True):
    """The advertisement's name, and the mode of admission at this node."""

    name: str = ""
    mode: str = "off"


class AdvertisementList(Struct, frozen=True, kw_only=True):
    """Advertisements of a client, and the mode of admission at this node."""

    advertisements: tuple[PublisherStatus, ...]
    mode: str = "off"


class GetAdmission(Request[AdmissionStatus], frozen=True, tag="get"):
    pass


class CheckSubscription(Request[DemandStatus], frozen=True, kw_only=True, tag="check"):
    channel: Channel
    where: Where = ""
    client: Annotated[
        str, Meta(max_length=65_535, description="Whose link and policies count; none if empty.")
    ] = ""


class Advertise(Request[Advertised], frozen=True, kw_only=True, tag="advertise"):
    channel: Channel
    rate_hz: Annotated[
        float, Meta(ge=0, le=MAX_HZ, description="Events per second at most.", examples=[10])
    ]
    where: str = ""
    name: Annotated[str, Meta(description="Default: channel and predicate.")] = ""
    client: OwnClient = ""


class Unadvertise(Request[Advertised], frozen=True, kw_only=True, tag="unadvertise"):
    name: str
    client: OwnClient = ""


class ListAdvertisements(Request[AdvertisementList], frozen=True, kw_only=True, tag="list"):
    client: OwnClient = ""


def _admission(node: NodePorts) -> AdmissionPort:
    return need(node.admission, "admission control")


@operation("admission", "GET /admission", Right.STATISTICS)
async def get_admission(node: NodePorts, _ask: GetAdmission, _asker: Asker) -> AdmissionStatus:
    """What is advertised, what is promised and free, and what was refused lately."""
    return await _admission(node).show()


@operation("admission", "GET /admission/need", Right.STATISTICS)
async def check_subscription(node: NodePorts, ask: CheckSubscription, asker: Asker) -> DemandStatus:
    """What a subscription would need, and whether it would be admitted now."""
    check_channel(ask.channel, asker)
    check_client(ask.client or asker.client, asker)
    try:
        return await _admission(node).dry_run(ask.channel, ask.where, ask.client)
    except AdmissionError:
        raise
    except AccordError as error:
        raise RequestError(400, str(error), "where") from None


@operation("advertisements", "POST /advertisements", changes=True)
def advertise(node: NodePorts, ask: Advertise, asker: Asker) -> Advertised:
    """Promise a maximum rate; an advertisement of the same name is replaced."""
    found = _own(node, ask.client, asker)
    mode = _admission(node).mode
    if found is None:
        return Advertised(mode=mode)
    admitting, session = found
    name = ask.name or _name(ask)
    if not asker.rights.may_advertise(ask.channel):
        raise RequestError(403, f"you may not publish to {ask.channel[:80]}", "channel")
    if len(ask.where) > MAX_WHERE:
        raise RequestError(400, f"expected at most {MAX_WHERE} characters", "where")
    try:
        admitting.advertisements.advertise(session, name, ask.channel, ask.where, ask.rate_hz)
    except AdmissionError:
        raise
    except AccordError as error:
        raise RequestError(400, str(error), "where") from None
    return Advertised(name=name, mode=mode)


@operation("advertisements", "DELETE /advertisements/{name}", changes=True)
def unadvertise(node: NodePorts, ask: Unadvertise, asker: Asker) -> Advertised:
    """Withdraw an advertisement."""
    found = _own(node, ask.client, asker)
    mode = _admission(node).mode
    if found is not None and not found[0].advertisements.unadvertise(found[1], ask.name):
        raise RequestError(404, f"you advertise nothing called {ask.name[:80]!r}", "name")
    return Advertised(name=ask.name if found else "", mode=mode)


@operation("advertisements", "GET /advertisements")
def list_advertisements(
    node: NodePorts, ask: ListAdvertisements, asker: Asker
) -> AdvertisementList:
    """The client's advertisements and their state."""
    found = _own(node, ask.client, asker)
    listed = [] if found is None else found[0].advertisements.advertisements_of(found[1].name)
    return AdvertisementList(advertisements=tuple(listed), mode=_admission(node).mode)


def _own(
    node: NodePorts, client: str, asker: Asker
) -> tuple[SubscriptionAdmission, MqttSession] | None:
    """The client's session, and admission if it is on."""
    admitting = _admission(node).admitting_now
    if admitting is None:
        return None
    return admitting, client_session(node, client, asker)


def _name(asked: Advertise) -> str:
    """Channel and predicate; if too long, a prefix and a digest."""
    name = f"{asked.channel} WHERE {asked.where}" if asked.where else asked.channel
    if len(name) <= MAX_NAME_LENGTH and name.isprintable():
        return name
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    plain = "".join(each if each.isprintable() else " " for each in name[:_NAME_PREFIX])
    return f"{plain}… {digest}"
