from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from accord.core.broker.broker import make_message
from accord.core.broker.message import MqttMessage
from accord.core.model.channels import filter_selects
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.router.message import Message
from accord.core.router.retained import RetainedMessages, cost_of

NOW_MS: Final = 1_000


def message(channel: str, payload: bytes = b"x", expiry_s: int | None = None) -> MqttMessage:
    properties = NO_PROPERTIES if expiry_s is None else Properties(message_expiry_s=expiry_s)
    return make_message(channel, payload, 0, True, "", NOW_MS, properties)


def retained(messages: int = 100, size: int = 10_000) -> RetainedMessages:
    return RetainedMessages(messages_limit=messages, bytes_limit=size)


def channels(messages: list[Message]) -> list[str]:
    return sorted(each.channel for each in messages)


def test_the_last_message_of_each_channel() -> None:
    store = retained()
    first, last, other = message("uav/1"), message("uav/1", b"newer"), message("uav/2")
    for each in (first, last, other):
        store.set(each)
    assert store.get("uav/1") is last
    assert store.get("uav") is None
    assert store.get("uav/3") is None
    assert store.select("uav/1", now_ms=NOW_MS) == [last]
    assert (store.messages, store.bytes) == (2, cost_of(last) + cost_of(other))


def test_wildcards_leave_the_channels_of_the_system_alone() -> None:
    store = retained()
    for channel in ("a", "a/b", "a/b/c", "$SYS/a", "/a"):
        store.set(message(channel))
    assert channels(store.select("#", now_ms=NOW_MS)) == ["/a", "a", "a/b", "a/b/c"]
    assert channels(store.select("+/+", now_ms=NOW_MS)) == ["/a", "a/b"]
    assert channels(store.select("a/#", now_ms=NOW_MS)) == ["a", "a/b", "a/b/c"]
    assert channels(store.select("$SYS/#", now_ms=NOW_MS)) == ["$SYS/a"]
    assert channels(store.all()) == ["$SYS/a", "/a", "a", "a/b", "a/b/c"]


def test_what_has_expired_is_forgotten_when_somebody_asks() -> None:
    store = retained()
    store.set(message("a", expiry_s=1))
    store.set(message("b"))
    assert channels(store.select("#", now_ms=NOW_MS + 999)) == ["a", "b"]
    assert channels(store.select("#", now_ms=NOW_MS + 1_000)) == ["b"]
    assert store.messages == 1


def test_nothing_is_left_of_what_was_removed() -> None:
    store = retained()
    store.set(message("a/b/c"))
    store.set(message("a"))
    assert store.remove("a/b/c")
    assert not store.remove("a/b/c")
    assert not store.remove("a/b")
    assert store.remove("a")
    assert (store.messages, store.bytes, store.all()) == (0, 0, [])


def test_room_is_for_a_replacement_rather_than_for_one_more() -> None:
    store = retained(messages=1)
    store.set(message("a"))
    assert not store.has_room(message("b"))
    assert store.has_room(message("a", b"longer"))
    size = cost_of(message("a"))
    store = retained(size=size)
    store.set(message("a"))
    assert store.has_room(message("a", b"y"))
    assert not store.has_room(message("a", b"longer"))


CHANNELS: Final = (
    st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=3)
    .map("/".join)
    .filter(bool)
)
PATTERNS: Final = st.builds(
    lambda levels, last: "/".join([*levels, *last]),
    st.lists(st.sampled_from(["a", "b", "", "$x", "+"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
).filter(bool) | st.just("#")


@given(
    steps=st.lists(
        st.tuples(CHANNELS, st.sampled_from([b"", b"x", b"longer"]), st.sampled_from([None, 1, 5])),
        max_size=20,
    ),
    pattern=PATTERNS,
    later_s=st.integers(0, 6),
)
def test_filters_find_what_they_select(
    steps: list[tuple[str, bytes, int | None]], pattern: str, later_s: int
) -> None:
    store = retained()
    expected: dict[str, MqttMessage] = {}
    for channel, payload, expiry_s in steps:
        if payload:
            expected[channel] = message(channel, payload, expiry_s)
            store.set(expected[channel])
        else:
            assert store.remove(channel) is (expected.pop(channel, None) is not None)
    now_ms = NOW_MS + later_s * 1_000
    selected = {
        channel: each for channel, each in expected.items() if filter_selects(pattern, channel)
    }
    fresh = [each for each in selected.values() if not 0 < each.expires_ms <= now_ms]
    found = store.select(pattern, now_ms=now_ms)
    assert len(found) == len(fresh)
    assert all(any(one is each for one in fresh) for each in found)
    left = [each for channel, each in expected.items() if channel not in selected] + fresh
    assert channels(store.all()) == channels(list(left))
    assert (store.messages, store.bytes) == (len(left), sum(cost_of(each) for each in left))
