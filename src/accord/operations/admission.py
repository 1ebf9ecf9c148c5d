"""Admission: advertisements, reservations and refusals; checks of a subscription.

A node with admission off accepts advertisements, too, without enforcing them: the answer has the
`mode`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.admission.filter_poset import MAX_HZ
from accord.core.admission.status import (
    MAX_NAME_LENGTH,
    AdmissionStatus,
    DemandStatus,
    NodeBook,
    PublisherStatus,
    visible_filters,
)
from accord.core.model.errors import AccordError, AdmissionError, PredicateError
from accord.operations.clients import client_session
from accord.operations.operation import Asker, Problem, Request, RequestError, Right, operation
from accord.operations.other_nodes import ask_nodes
from accord.operations.ports import AdmissionPort, NodePorts, need
from accord.operations.predicates import predicate_problem
from accord.operations.visibility import check_channel, check_client

if TYPE_CHECKING:
    from accord.core.broker.session import MqttSession
    from accord.core.broker.subscription_admission import SubscriptionAdmission

MAX_WHERE: Final = 10_000
MAX_NODES: Final = 500  # asked for their books
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


class NodeBookList(Struct, frozen=True, kw_only=True):
    """What the nodes of the network have promised; `left_out` nodes were not asked."""

    books: tuple[NodeBook, ...]
    left_out: int = 0


class GetBook(Request[NodeBook], frozen=True, kw_only=True, tag="book"):
    pools: Annotated[
        int, Meta(ge=0, le=200, description="How many pools at most, the tightest.")
    ] = 10
    refusals: Annotated[int, Meta(ge=0, le=100, description="How many refusals at most.")] = 5


class ListBooks(Request[NodeBookList], frozen=True, kw_only=True, tag="books"):
    pools: Annotated[
        int, Meta(ge=0, le=50, description="How many pools of a node at most, the tightest.")
    ] = 10
    refusals: Annotated[
        int, Meta(ge=0, le=20, description="How many refusals of a node at most.")
    ] = 5


class CheckSubscription(Request[DemandStatus], frozen=True, kw_only=True, tag="check"):
    channel: Channel
    where: Where = ""
    client: Annotated[
        str,
        Meta(
            max_length=65_535,
            description="Whose link and policies count, and what is promised to it already; "
            "none if empty.",
        ),
    ] = ""
    rate_hz: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=MAX_HZ,
                description="Whether so many events per second fit; default: what is advertised.",
            ),
        ]
        | None
    ) = None


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
async def get_admission(node: NodePorts, _ask: GetAdmission, asker: Asker) -> AdmissionStatus:
    """What is advertised, what is promised and free, and what was refused lately."""
    found = visible_status(await _admission(node).show(), asker)
    return replace(found, filters=visible_filters(found.filters, asker.may_see))


@operation("admission", "GET /admission/book", Right.STATISTICS)
def get_book(node: NodePorts, ask: GetBook, asker: Asker) -> NodeBook:
    """What this node has promised, its tightest resources, and what it refused lately."""
    found = _admission(node).book(ask.pools, ask.refusals)
    return replace(found, lately=tuple(each for each in found.lately if asker.may_see(each.filter)))


@operation("admission", "GET /admission/books", Right.STATISTICS)
async def list_books(node: NodePorts, ask: ListBooks, asker: Asker) -> NodeBookList:
    """What all nodes of the network have promised and refused; this node asks them."""
    own = node.view.name
    names = [own, *(node.others.known_nodes() if node.others is not None else ())]
    request = GetBook(pools=ask.pools, refusals=ask.refusals)
    found = await ask_nodes(node, names[:MAX_NODES], request, asker)
    return NodeBookList(
        books=tuple(
            NodeBook(node=name, problem=each.sentence) if isinstance(each, Problem) else each
            for name, each in found.items()
        ),
        left_out=max(len(names) - MAX_NODES, 0),
    )


def visible_status(found: AdmissionStatus, asker: Asker) -> AdmissionStatus:
    """Without publishers and refusals of channels that the asker may not see."""
    return replace(
        found,
        publishers=tuple(each for each in found.publishers if asker.may_see(each.channel)),
        lately=tuple(each for each in found.lately if asker.may_see(each.filter)),
    )


@operation("admission", "GET /admission/need", Right.STATISTICS)
async def check_subscription(node: NodePorts, ask: CheckSubscription, asker: Asker) -> DemandStatus:
    """What a subscription would need, and whether it would be admitted now, in a sentence.

    What the client has of it already is not counted against it.
    """
    check_channel(ask.channel, asker)
    check_client(ask.client or asker.client, asker)
    try:
        return await _admission(node).check(ask.channel, ask.where, ask.client, ask.rate_hz)
    except PredicateError as error:
        from accord.core.predicates.repair import suggest_repair  # noqa: PLC0415 (it is slow)

        raise predicate_problem(error, "where", suggest_repair(ask.where)) from None
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
