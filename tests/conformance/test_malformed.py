"""Packets that are none: each ends its connection with the right reason, and nothing else (4.13).

The tables give them as hexadecimal bytes, sent by a connected client. Where the standard leaves
open which of several reasons fits, all of them are given.
"""

from __future__ import annotations

from typing import Final

import pytest

from accord.core.mqtt.codes import V5, V311, Reason
from tests.brokers import deviates
from tests.conformance.conversation import Conversation, only_5

BAD: Final = (Reason.MALFORMED_PACKET,)
WRONG: Final = (Reason.PROTOCOL_ERROR,)
EITHER: Final = (Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR)
NAME: Final = (*EITHER, Reason.TOPIC_NAME_INVALID)
FILTER: Final = (*EITHER, Reason.TOPIC_FILTER_INVALID)
IDENTIFIER: Final = (*EITHER, Reason.CLIENT_IDENTIFIER_NOT_VALID)

# Bytes that mean the same in both versions.
BOTH: Final = {
    # 2.1.2, 2.1.3: [MQTT-2.1.3-1], types and flags
    "type 0": ("0000", EITHER),
    "type 0 with flags": ("0f00", EITHER),
    "publish with QoS 3": ("3606000161000178", BAD),
    "publish with QoS 3 and DUP": ("3e06000161000178", BAD),
    "puback with flags": ("41020001", BAD),
    "pubrec with flags": ("52020001", BAD),
    "pubrel without flags": ("60020001", BAD),
    "pubrel with all flags": ("6f020001", BAD),
    "pubcomp with flags": ("74020001", BAD),
    "pingreq with flags": ("c100", BAD),
    "disconnect with flags": ("e100", BAD),
    # 1.5.5, 2.1.4: the length
    "five bytes of length": ("30ffffffff01", BAD),
    "five bytes of length for a ping": ("c08080808000", BAD),
    # what only a server sends
    "connack": ("20020000", WRONG),
    "suback": ("9003000100", WRONG),
    "unsuback": ("b0020001", EITHER),
    "pingresp": ("d000", WRONG),
    # lengths that don't fit
    "puback without packet id": ("4000", BAD),
    "puback with half a packet id": ("400100", BAD),
    "pubrec without packet id": ("5000", BAD),
    "pubrel without packet id": ("6200", BAD),
    "pubcomp without packet id": ("7000", BAD),
    "pingreq with content": ("c00100", BAD),
    "subscribe without content": ("8200", BAD),
    "unsubscribe without content": ("a200", BAD),
    "publish without content": ("3000", BAD),
    "publish with half a topic length": ("300100", BAD),
    "publish with a topic beyond its end": ("300400056162", BAD),
    "publish with QoS 1 and no packet id": ("3203000161", BAD),
    "publish with QoS 1 and half a packet id": ("320400016100", BAD),
}  # fmt: skip

IN_311: Final = {
    "auth": "f000",
    "publish with packet id 0": "3206000161000078",
    "publish with DUP and QoS 0": "380400016178",
    "subscribe without flags": "8006000100016100",
    "subscribe with packet id 0": "8206000000016100",
    "subscribe without filter": "82020001",
    "subscribe without QoS": "82050001000161",
    "subscribe with a filter beyond its end": "8206000100056100",
    "subscribe with an empty filter": "82050001000000",
    "unsubscribe without flags": "a0050001000161",
    "unsubscribe with packet id 0": "a2050000000161",
    "unsubscribe without filter": "a2020001",
    "unsubscribe with a filter beyond its end": "a2050001000561",
    "unsubscribe with an empty filter": "a20400010000",
    "puback with more": "4003000100",
    "disconnect with content": "e00100",
    "second filter cut off": "82080001000161000005",
}  # fmt: skip

IN_5: Final = {
    # PUBLISH (3.3)
    "publish with packet id 0": ("320700016100000078", EITHER),
    "publish with DUP and QoS 0": ("38050001610078", EITHER),
    "publish without properties": ("3003000161", BAD),
    "publish with properties beyond its end": ("3006000161050178", BAD),
    "publish with properties cut off": ("30050001610101", BAD),
    "publish with a property cut off by its length": ("300700016101017078", BAD),
    "publish with payload format 2": ("3006000161020102", EITHER),
    "publish with payload format twice": ("30080001610401010101", WRONG),
    "publish with expiry twice": ("300e0001610a02000000010200000001", WRONG),
    "publish with expiry cut off": ("300700016103020000", BAD),
    "publish with content type twice": ("300c000161080300016103000161", WRONG),
    "publish with content type that is no UTF-8": ("300800016104030001ff", BAD),
    "publish with response topic twice": ("300c000161080800016108000161", WRONG),
    "publish with response topic with wildcards": ("30080001610408000123", NAME),
    "publish with correlation data twice": ("300c000161080900016109000161", WRONG),
    "publish with a topic alias twice": ("300a00016106230001230001", WRONG),
    "publish with a subscription identifier": ("3006000161020b01", WRONG),
    "publish with a user property without value": ("30080001610426000161", BAD),
    "publish with a property of connect": ("3009000161051100000001", EITHER),
    "publish with an unknown property": ("3006000161027f00", BAD),
    "publish with property 0": ("3006000161020000", BAD),
    # SUBSCRIBE (3.8)
    "subscribe without flags": ("800700010000016100", BAD),
    "subscribe with packet id 0": ("820700000000016100", EITHER),
    "subscribe without filter": ("8203000100", EITHER),
    "subscribe without options": ("8206000100000161", BAD),
    "subscribe with a filter beyond its end": ("820700010000056100", BAD),
    "subscribe with an empty filter": ("8206000100000000", FILTER),
    "subscribe with QoS 3": ("820700010000016103", EITHER),
    "subscribe with retain handling 3": ("820700010000016130", EITHER),
    "subscribe with reserved option 0x40": ("820700010000016140", EITHER),
    "subscribe with reserved option 0x80": ("820700010000016180", EITHER),
    "subscribe with identifier 0": ("82090001020b0000016100", WRONG),
    "subscribe with identifier twice": ("820b0001040b010b0200016100", WRONG),
    "subscribe with identifier of five bytes": ("820d0001060b808080800100016100", BAD),
    "subscribe with a property of publish": ("8209000102010100016100", EITHER),
    # UNSUBSCRIBE (3.10)
    "unsubscribe without flags": ("a006000100000161", BAD),
    "unsubscribe with packet id 0": ("a206000000000161", EITHER),
    "unsubscribe without filter": ("a203000100", EITHER),
    "unsubscribe with a filter beyond its end": ("a206000100000561", BAD),
    "unsubscribe with an identifier": ("a2080001020b01000161", EITHER),
    # acknowledgements (3.4 to 3.7)
    "puback with an unknown reason": ("4003000155", EITHER),
    "puback with a subscribe property": ("4006000100020b01", EITHER),
    "puback with reason string twice": ("400c000100081f0001611f000161", WRONG),
    "puback with properties beyond its end": ("400400010005", BAD),
    "pubrec with an unknown reason": ("5003000155", EITHER),
    "pubrel with an unknown reason": ("6203000155", EITHER),
    "pubcomp with an unknown reason": ("7003000155", EITHER),
    # DISCONNECT (3.14)
    "disconnect with an unknown reason": ("e00155", EITHER),
    "disconnect with session expiry twice": ("e00c000a11000000011100000001", WRONG),
    "disconnect with a property of publish": ("e00400020101", EITHER),
    "disconnect with properties beyond its end": ("e0020005", BAD),
    # AUTH (3.15): no method was agreed on
    "auth without content": ("f000", EITHER),
    "auth with flags": ("f100", EITHER),
    "auth with method": ("f006180415000161", EITHER),
    "auth with an unknown reason": ("f006170415000161", EITHER),
}  # fmt: skip

# What mosquitto lets pass, or gives another reason for.
PASSED_BY_MOSQUITTO: Final = frozenset(
    [
        "3.1.1 pingreq with content",
        "3.1.1 pingreq with flags",
        "3.1.1 pingresp",
        "3.1.1 puback with flags",
        "3.1.1 puback with more",
        "3.1.1 pubcomp with flags",
        "3.1.1 publish with DUP and QoS 0",
        "3.1.1 pubrec with flags",
        "3.1.1 suback",
        "3.1.1 unsuback",
        "5.0 pingreq with content",
        "5.0 pingreq with flags",
        "5.0 pingresp",
        "5.0 puback with an unknown reason",
        "5.0 puback with flags",
        "5.0 pubcomp with an unknown reason",
        "5.0 pubcomp with flags",
        "5.0 publish with DUP and QoS 0",
        "5.0 publish with a subscription identifier",
        "5.0 publish with payload format 2",
        "5.0 publish with response topic with wildcards",
        "5.0 pubrec with an unknown reason",
        "5.0 pubrec with flags",
        "5.0 pubrel with an unknown reason",
        "5.0 subscribe with identifier 0",
    ]
)


def _cases(table: dict[str, tuple[str, tuple[Reason, ...]]], version: int) -> list[object]:
    marks = deviates("lets it pass, or gives another reason")
    label = "5.0" if version == V5 else "3.1.1"
    return [
        pytest.param(
            version,
            bytes.fromhex(data),
            reasons,
            id=f"{label} {name}",
            marks=[marks] if f"{label} {name}" in PASSED_BY_MOSQUITTO else [],
        )
        for name, (data, reasons) in table.items()
    ]


@pytest.mark.parametrize(
    ("version", "data", "reasons"),
    [
        *_cases(BOTH, V311),
        *_cases(BOTH, V5),
        *_cases({name: (data, BAD) for name, data in IN_311.items()}, V311),
        *_cases(IN_5, V5),
    ],
)
def test_ends_the_connection(talk: Conversation, data: bytes, reasons: tuple[Reason, ...]) -> None:
    client = talk.join("a")
    client.send_bytes(data)
    client.expect_end(*reasons)
    talk.join("a").expect_silence()


CONNECTS_311: Final = {
    "no content": "1000",
    "flags in the header": "110c00044d515454040200000000",
    "cut after the name": "100600044d515454",
    "cut after the level": "100700044d51545404",
    "cut after the flags": "100800044d5154540402",
    "cut in the keep alive": "100900044d515454040200",
    "without client id": "100a00044d51545404020000",
    "client id beyond the end": "100d00044d51545404020000000561",
    "more than there should be": "100e00044d5154540402000000016100",
    "will flag without will": "100d00044d51545404060000000161",
    "will QoS without will flag": "100d00044d515454040a0000000161",
    "will retain without will flag": "100d00044d51545404220000000161",
    "will QoS 3": "101300044d515454041e0000000161000162000163",
    "will topic without will message": "101000044d51545404060000000161000162",
    "user name flag without user name": "100d00044d51545404820000000161",
    "password flag without password": "101000044d51545404c20000000161000175",
    "client id with null": "100f00044d515454040200000003610062",
    "user name that is no UTF-8": "101000044d515454048200000001610001ff",
}  # fmt: skip


@pytest.mark.parametrize("version", [V311])
@pytest.mark.parametrize("data", CONNECTS_311.values(), ids=CONNECTS_311.keys())
def test_a_bad_connect_of_3_1_1_is_not_served(talk: Conversation, data: str) -> None:
    """[MQTT-3.1.4-1] of 3.1.1: closed without CONNACK, or with an error for the client id."""
    client = talk.open()
    client.send_bytes(bytes.fromhex(data))
    answer = client.receive_rest()
    assert answer in (b"", bytes.fromhex("20020002"))


def _connect_5(properties: str, flags: str = "02", rest: str = "000161") -> str:
    """A whole CONNECT of version 5 from its hexadecimal parts."""
    size = f"{len(properties) // 2:02x}"
    body = f"00044d51545405{flags}0000{size}{properties}{rest}"
    return f"10{len(body) // 2:02x}{body}"


def _will(properties: str, flags: str = "06") -> str:
    size = f"{len(properties) // 2:02x}"
    return _connect_5("", flags, f"000161{size}{properties}000162000163")


CONNECTS_5: Final = {
    "no properties": ("100a00044d51545405020000", BAD),
    "properties beyond the end": ("100b00044d5154540502000005", BAD),
    "without client id": ("100b00044d5154540502000000", BAD),
    "more than there should be": (_connect_5("", "02", "00016100"), BAD),
    "session expiry twice": (_connect_5("11000000011100000001"), WRONG),
    "session expiry cut off": (_connect_5("110000"), BAD),
    "receive maximum 0": (_connect_5("210000"), WRONG),
    "receive maximum twice": (_connect_5("210001210001"), WRONG),
    "maximum packet size 0": (_connect_5("2700000000"), WRONG),
    "maximum packet size twice": (_connect_5("27000000ff27000000ff"), WRONG),
    "topic alias maximum twice": (_connect_5("220001220001"), WRONG),
    "request response information 2": (_connect_5("1902"), WRONG),
    "request response information twice": (_connect_5("19011901"), WRONG),
    "request problem information 2": (_connect_5("1702"), WRONG),
    "request problem information twice": (_connect_5("17011701"), WRONG),
    "authentication method twice": (_connect_5("1500016115000161"), WRONG),
    "authentication data without method": (_connect_5("16000161"), WRONG),
    "a property of publish": (_connect_5("0101"), EITHER),
    "a property of connack": (_connect_5("130001"), EITHER),
    "an unknown property": (_connect_5("7f00"), BAD),
    "will QoS 3": (_will("", "1e"), BAD),
    "will QoS without will flag": (_connect_5("", "0a"), BAD),
    "will retain without will flag": (_connect_5("", "22"), BAD),
    "will delay twice": (_will("18000000011800000001"), WRONG),
    "will payload format 2": (_will("0102"), EITHER),
    "will with a topic alias": (_will("230001"), EITHER),
    "will with a subscription identifier": (_will("0b01"), EITHER),
    "will properties beyond the end": (_connect_5("", "06", "00016120"), BAD),
    "will flag without will": (_connect_5("", "06"), BAD),
    "client id with null": (_connect_5("", "02", "0003610062"), IDENTIFIER),
}  # fmt: skip

CONNECTS_PASSED_BY_MOSQUITTO: Final = (
    "authentication data without method",
    "will payload format 2",
)


@only_5
@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        pytest.param(
            bytes.fromhex(data),
            reasons,
            id=name,
            marks=[deviates("lets it pass")] if name in CONNECTS_PASSED_BY_MOSQUITTO else [],
        )
        for name, (data, reasons) in CONNECTS_5.items()
    ],
)
def test_a_bad_connect_of_5_is_refused(
    talk: Conversation, data: bytes, reasons: tuple[Reason, ...]
) -> None:
    """[MQTT-3.1.4-1], [MQTT-3.1.4-2]"""
    client = talk.open()
    client.send_bytes(data)
    client.expect_refusal(None, *reasons)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"\xff" * 64,
    ],
    ids=["HTTP", "TLS", "noise"],
)
def test_another_protocol_altogether(talk: Conversation, data: bytes) -> None:
    client = talk.open()
    client.send_bytes(data)
    client.expect_closed()


def test_a_connection_may_end_anywhere(talk: Conversation, topic: str) -> None:
    """Half a packet is none: nobody hears of it."""
    witness = talk.join("witness").subscribed(topic)
    for data in (b"", b"\x30", b"\x30\x20", b"\x10\x0c\x00\x04MQ"):
        client = talk.open()
        client.send_bytes(data)
        client.drop()
    client = talk.join("a")
    client.send_bytes(b"\x30\x20\x00\x05" + topic.encode()[:3])
    client.drop()
    witness.expect_silence()


def test_the_tables_hold_whole_packets() -> None:
    """A broker would rightly wait for the rest of others."""
    texts = [data for data, _ in (*BOTH.values(), *IN_5.values(), *CONNECTS_5.values())]
    for text in (*texts, *IN_311.values(), *CONNECTS_311.values()):
        data = bytes.fromhex(text)
        assert data[1] >= 0x80 or len(data) == 2 + data[1], text
