from __future__ import annotations

import msgspec

from accord.core.model.channels import problem_with_channel
from accord.core.monitoring.counters import Counters
from accord.core.monitoring.statistics import JournalStatus, PipelineStatus, Statistics
from accord.runtime.system_topics import system_topics


def busy() -> Statistics:
    counters = Counters(started_ms=0)
    counters.count_connect()
    counters.count_connect()
    counters.count_disconnect("keep alive timeout")
    counters.count_refused("a/b+c#")
    counters.sessions = 4
    counters.packets_received, counters.bytes_sent = 7, 900
    counters.publishes_received = [1, 2, 3]
    counters.queued_messages[5], counters.queued_bytes[5] = 2, 30
    counters.retained_messages, counters.retained_bytes = 10, 100
    counters.count_shed("queue full", "slow", 8)
    counters.replaced = 3
    counters.count_wait(5, 3)
    return counters.snapshot(
        now_ms=61_500, journal=JournalStatus(segments=2, next_offset=9, failure="disk full")
    )


def test_what_mosquitto_counts_has_its_name_there() -> None:
    topics = dict(system_topics(busy(), version="1.2"))
    for topic, payload in {
        "version": "accord 1.2",
        "uptime": "61 seconds",
        "clients/connected": "1",
        "clients/disconnected": "3",
        "clients/total": "4",
        "clients/maximum": "2",
        "messages/received": "7",
        "bytes/sent": "900",
        "publish/messages/received": "6",
        "publish/messages/dropped": "8",
        "retained messages/count": "10",
        "store/messages/count": "12",
        "store/messages/bytes": "130",
    }.items():
        assert topics[f"$SYS/broker/{topic}"] == payload.encode()


def test_our_own_stand_beside_them() -> None:
    topics = dict(system_topics(busy()))
    for topic, payload in {
        "queue/5/messages": "2",
        "queue/5/wait_ms/p50": "4",
        "shed/queue_full": "8",
        "messages/replaced": "3",
        "connects/refused/a_b_c_": "1",
        "disconnects/keep_alive_timeout": "1",
        "journal/next_offset": "9",
        "journal/state": "disk full",
    }.items():
        assert topics[f"$SYS/accord/{topic}"] == payload.encode()


def test_all_of_them_come_as_json_too() -> None:
    topics = dict(system_topics(busy()))
    assert msgspec.json.decode(topics["$SYS/accord/statistics"], type=Statistics) == busy()


def test_topics_are_channels_and_come_once() -> None:
    names = [topic for topic, _ in system_topics(busy())]
    assert len(names) == len(set(names))
    assert [problem_with_channel(name) for name in names] == [None] * len(names)


def test_the_pipeline() -> None:
    statistics = msgspec.structs.replace(
        busy(), pipeline=PipelineStatus(state="ready", lag_records=5)
    )
    topics = dict(system_topics(statistics))
    assert topics["$SYS/accord/pipeline/state"] == b"ready"
    assert topics["$SYS/accord/pipeline/lag_records"] == b"5"
