"""Limits of what a node accepts, so that no external input can make it grow without bound.

Each limit has a range, against which configuration is validated, and a description, from which the
documentation is generated.

`BUILD` is the running build of this package: nodes and pipelines report it, tests check it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Final

from msgspec import Meta, Struct

# The largest values MQTT can express; of a packet a little less, so that a received one can be
# forwarded with additional properties.
MAX_PACKET_BYTES: Final = 268_000_000
MAX_UINT16: Final = 65_535
MAX_UINT32: Final = 4_294_967_295

# A larger number in a configuration is taken for a mistake.
_MANY: Final = 100_000_000
_HUGE: Final = 1 << 50


class Limits(Struct, frozen=True, kw_only=True):
    """What one node accepts from its clients, and holds for them."""

    connections: Annotated[
        int, Meta(ge=1, le=_MANY, description="Clients connected at the same time.")
    ] = 50_000
    connects_per_s: Annotated[
        int, Meta(ge=1, le=_MANY, description="New connections per second, from everywhere.")
    ] = 5_000
    connects_per_s_per_address: Annotated[
        int, Meta(ge=1, le=_MANY, description="New connections per second from one address.")
    ] = 1_000
    client_id_bytes: Annotated[
        int, Meta(ge=23, le=MAX_UINT16, description="Length of a client's identifier.")
    ] = 1_024
    connect_timeout_s: Annotated[
        int, Meta(ge=1, le=3_600, description="Time a new connection has for its CONNECT.")
    ] = 10
    sessions: Annotated[
        int,
        Meta(ge=1, le=_MANY, description="Sessions of connected and offline clients."),
    ] = 100_000
    session_expiry_s: Annotated[
        int,
        Meta(ge=0, le=MAX_UINT32, description="Longest time a session outlives its connection."),
    ] = 604_800
    keep_alive_s: Annotated[
        int,
        Meta(ge=0, le=MAX_UINT16, description="Longest keep-alive of a client; 0 sets no bound."),
    ] = 0
    packet_bytes: Annotated[
        int, Meta(ge=256, le=MAX_PACKET_BYTES, description="Largest packet a client may send.")
    ] = 16_000_000
    receive_maximum: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_UINT16,
            description="QoS 1 and 2 messages a client may send before the first is acknowledged.",
        ),
    ] = 1_024
    inflight: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_UINT16,
            description="QoS 1 and 2 messages sent to a client before it acknowledges the first.",
        ),
    ] = 1_024
    topic_alias_maximum: Annotated[
        int, Meta(ge=0, le=MAX_UINT16, description="Topic aliases a client may set up.")
    ] = 1_024
    channel_levels: Annotated[
        int, Meta(ge=1, le=MAX_UINT16, description="Levels in the name or filter of a channel.")
    ] = 64
    subscriptions_per_client: Annotated[
        int, Meta(ge=1, le=_MANY, description="Subscriptions one client may hold.")
    ] = 10_000
    predicate_characters: Annotated[
        int, Meta(ge=1, le=16_384, description="Length of a subscription's predicate.")
    ] = 4_096
    predicates_per_client: Annotated[
        int, Meta(ge=0, le=_MANY, description="How many of them may have a predicate.")
    ] = 1_000
    queue_messages: Annotated[
        int, Meta(ge=1, le=60_000, description="QoS 1 and 2 messages waiting for one client.")
    ] = 50_000
    queue_bytes: Annotated[
        int,
        Meta(ge=256, le=_HUGE, description="Bytes of QoS 1 and 2 messages waiting for one client."),
    ] = 64_000_000
    outbox_bytes: Annotated[
        int, Meta(ge=256, le=_HUGE, description="Bytes of QoS 0 messages waiting for one client.")
    ] = 16_000_000
    tasks: Annotated[
        int, Meta(ge=1, le=_MANY, description="Messages waiting to be matched with predicates.")
    ] = 20_000
    task_bytes: Annotated[
        int, Meta(ge=256, le=_HUGE, description="Bytes of messages waiting to be matched.")
    ] = 64_000_000
    match_work: Annotated[
        int,
        Meta(
            ge=0,
            le=_HUGE,
            description="Steps that matching one message may take: the least important predicates "
            "are left out beyond that; 0 sets no bound.",
        ),
    ] = 1_000_000
    retained_messages: Annotated[
        int, Meta(ge=0, le=_MANY, description="Retained messages held by the node.")
    ] = 1_000_000
    retained_bytes: Annotated[
        int, Meta(ge=0, le=_HUGE, description="Bytes of retained messages held by the node.")
    ] = 1_000_000_000
    will_bytes: Annotated[
        int, Meta(ge=0, le=MAX_PACKET_BYTES, description="Largest payload of a client's will.")
    ] = 1_000_000


NATIVE: Final = "native extension"
WITHOUT: Final = "no native extension"
BUILD: Final = NATIVE if find_spec("accord.core.native._native") else WITHOUT
