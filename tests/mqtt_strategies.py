"""Random MQTT packets: each valid in its version, with every property at its place."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from accord.core.mqtt.codes import REASONS, RETURN_CODES, V5, V311, PacketType
from accord.core.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicFilter,
    Unsuback,
    Unsubscribe,
    Will,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties

TEXTS: Final = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
)
BLOCKS: Final = st.binary(max_size=12)
LEVELS: Final = st.sampled_from(["a", "uav", "é💧", "", "$x", "\uffff"])
TOPICS: Final = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
PLAIN_FILTERS: Final = st.builds(
    lambda levels, last: "/".join([*levels, *last]),
    st.lists(LEVELS | st.just("+"), min_size=1, max_size=3),
    st.sampled_from([[], ["#"], ["+"]]),
).filter(bool)
FILTERS: Final = PLAIN_FILTERS | PLAIN_FILTERS.map("$share/group/{}".format)
PACKET_IDS: Final = st.integers(1, 65_535)
TWO: Final = st.integers(0, 65_535)
TWO_POSITIVE: Final = st.integers(1, 65_535)
FOUR: Final = st.integers(0, 2**32 - 1)
IDENTIFIERS: Final = st.sampled_from([1, 127, 128, 16_383, 16_384, 2_097_152, 268_435_455])
USER: Final = st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
BITS: Final = st.integers(0, 1)

MESSAGE: Final[dict[str, st.SearchStrategy[Any]]] = {
    "payload_format": BITS,
    "message_expiry_s": FOUR,
    "content_type": TEXTS,
    "response_topic": TOPICS,
    "correlation_data": BLOCKS,
    "user": USER,
}
ANSWER: Final[dict[str, st.SearchStrategy[Any]]] = {"reason_string": TEXTS, "user": USER}
EITHER_CONNECT: Final[dict[str, st.SearchStrategy[Any]]] = {
    "session_expiry_s": FOUR,
    "authentication_method": TEXTS,
    "receive_maximum": TWO_POSITIVE,
    "topic_alias_maximum": TWO,
    "maximum_packet_size": st.integers(1, 2**32 - 1),
    "user": USER,
}
CONNACK: Final[dict[str, st.SearchStrategy[Any]]] = {
    **EITHER_CONNECT,
    "assigned_client_id": TEXTS,
    "server_keep_alive_s": TWO,
    "response_information": TEXTS,
    "server_reference": TEXTS,
    "reason_string": TEXTS,
    "maximum_qos": BITS,
    "retain_available": st.booleans(),
    "wildcard_subscription_available": st.booleans(),
    "subscription_identifiers_available": st.booleans(),
    "shared_subscription_available": st.booleans(),
}


def properties_of(
    optional: dict[str, st.SearchStrategy[Any]], **required: st.SearchStrategy[Any]
) -> st.SearchStrategy[Properties]:
    rest = {name: each for name, each in optional.items() if name not in required}
    return st.fixed_dictionaries(required, optional=rest).map(lambda fields: Properties(**fields))


def packets(version: int) -> st.SearchStrategy[Packet]:
    return st.one_of(*_strategies(version))


def _strategies(version: int) -> list[st.SearchStrategy[Packet]]:
    def with_properties(optional: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
        return properties_of(optional) if version == V5 else st.just(NO_PROPERTIES)

    user = with_properties({"user": USER})
    common: list[st.SearchStrategy[Packet]] = [
        _connects(version),
        _publishes(version),
        st.builds(
            Subscribe,
            PACKET_IDS,
            st.lists(_filters(version), min_size=1, max_size=3).map(tuple),
            with_properties(
                {"user": USER, "subscription_identifiers": IDENTIFIERS.map(lambda one: (one,))}
            ),
        ),
        st.builds(
            Unsubscribe, PACKET_IDS, st.lists(FILTERS, min_size=1, max_size=3).map(tuple), user
        ),
        st.sampled_from([Pingreq(), Pingresp()]),
    ]
    if version == V311:
        return [*common, *_answers_of_311()]
    answer = properties_of(ANSWER)
    method = properties_of({**ANSWER, "authentication_data": BLOCKS}, authentication_method=TEXTS)
    goodbye = {**ANSWER, "session_expiry_s": FOUR, "server_reference": TEXTS}
    return [
        *common,
        st.builds(Connack, st.booleans(), st.just(0), properties_of(CONNACK)),
        st.builds(
            Connack,
            st.just(False),
            _reasons(PacketType.CONNACK),
            properties_of({**CONNACK, "authentication_data": BLOCKS}, authentication_method=TEXTS),
        ),
        st.builds(Puback, PACKET_IDS, _reasons(PacketType.PUBACK), answer),
        st.builds(Pubrec, PACKET_IDS, _reasons(PacketType.PUBREC), answer),
        st.builds(Pubrel, PACKET_IDS, _reasons(PacketType.PUBREL), answer),
        st.builds(Pubcomp, PACKET_IDS, _reasons(PacketType.PUBCOMP), answer),
        st.builds(Suback, PACKET_IDS, _many_reasons(PacketType.SUBACK), answer),
        st.builds(Unsuback, PACKET_IDS, _many_reasons(PacketType.UNSUBACK), answer),
        st.builds(Disconnect, _reasons(PacketType.DISCONNECT), properties_of(goodbye)),
        st.builds(Auth, _reasons(PacketType.AUTH), method),
        st.just(Auth()),
    ]


def _answers_of_311() -> list[st.SearchStrategy[Packet]]:
    granted = st.sampled_from([0, 1, 2, 0x80])
    return [
        st.builds(Connack, st.booleans()),
        st.builds(Connack, st.just(False), st.sampled_from([int(code) for code in RETURN_CODES])),
        st.one_of(*(st.builds(kind, PACKET_IDS) for kind in (Puback, Pubrec, Pubrel, Pubcomp))),
        st.builds(Suback, PACKET_IDS, st.lists(granted, min_size=1, max_size=3).map(tuple)),
        st.builds(Unsuback, PACKET_IDS),
        st.just(Disconnect()),
    ]


def _reasons(kind: PacketType) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted(REASONS[kind]))


def _many_reasons(kind: PacketType) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(_reasons(kind), min_size=1, max_size=3).map(tuple)


def _filters(version: int) -> st.SearchStrategy[TopicFilter]:
    qos = st.integers(0, 2)
    if version == V311:
        return st.builds(TopicFilter, FILTERS, qos)
    handling = st.integers(0, 2)
    return st.one_of(
        st.builds(TopicFilter, PLAIN_FILTERS, qos, st.booleans(), st.booleans(), handling),
        st.builds(TopicFilter, FILTERS, qos, st.just(False), st.booleans(), handling),
    )


def _publishes(version: int) -> st.SearchStrategy[Packet]:
    properties: st.SearchStrategy[Properties] = st.just(NO_PROPERTIES)
    if version == V5:
        identifiers = st.lists(IDENTIFIERS, max_size=3).map(tuple)
        fields = {**MESSAGE, "topic_alias": TWO_POSITIVE, "subscription_identifiers": identifiers}
        properties = properties_of(fields)
    flags = (st.booleans(), st.booleans())
    kinds = [
        st.builds(Publish, TOPICS, BLOCKS, st.just(0), st.booleans(), properties=properties),
        st.builds(Publish, TOPICS, BLOCKS, st.integers(1, 2), *flags, PACKET_IDS, properties),
    ]
    if version == V5:
        alias = properties_of(MESSAGE, topic_alias=TWO_POSITIVE)
        kinds.append(st.builds(Publish, st.just(""), BLOCKS, properties=alias))
    return st.one_of(*kinds)


def _connects(version: int) -> st.SearchStrategy[Packet]:
    if version == V311:
        properties = will_properties = st.just(NO_PROPERTIES)
    else:
        asked = {
            "request_problem_information": st.booleans(),
            "request_response_information": st.booleans(),
        }
        properties = properties_of({**EITHER_CONNECT, **asked})
        will_properties = properties_of({**MESSAGE, "will_delay_s": FOUR})
    will = st.builds(Will, TOPICS, BLOCKS, st.integers(0, 2), st.booleans(), will_properties)
    login = st.tuples(st.none() | TEXTS, st.none() | BLOCKS)
    if version == V311:
        login = login.filter(lambda both: both[0] is not None or both[1] is None)
    return st.builds(
        lambda client_id, clean, alive, both, last, given: Connect(
            client_id, version, clean, alive, both[0], both[1], last, given
        ),
        TEXTS,
        st.booleans(),
        TWO,
        login,
        st.none() | will,
        properties,
    )
