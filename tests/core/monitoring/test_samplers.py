from __future__ import annotations

from collections.abc import Iterator

from accord.core.monitoring.channel_counts import ChannelTable
from accord.core.monitoring.samplers import ChannelSampler, ClientSampler
from accord.core.monitoring.series import SAMPLES, kbps
from accord.core.monitoring.top import ChannelActivity, ClientReading


def publish(table: ChannelTable, channel: str, count: int, *, size: int = 1_000) -> None:
    counts = table.get(channel)
    counts.published += count
    counts.published_bytes += count * size
    counts.delivered += count
    counts.delivered_bytes += count * size
    counts.count_wait(8, count)


class TestChannels:
    def test_rates_latency_and_totals(self) -> None:
        table = ChannelTable()
        watch = ChannelSampler(table, now_ms=0)
        publish(table, "a", 10)
        counts = table.get("a")
        counts.late, counts.shaped, counts.replaced = 1, 2, 3
        counts.expired, counts.shed, counts.refused = 4, 5, 6
        assert watch.sample(now_ms=2_000) == [
            ChannelActivity(
                channel="a",
                published_hz=5,
                published_kbps=40,
                delivered_hz=5,
                delivered_kbps=40,
                late_hz=0.5,
                shaped_hz=1,
                replaced_hz=1.5,
                expired_hz=2,
                shed_hz=2.5,
                refused_hz=3,
                latency_ms=8,
                latency_p95_ms=15.6,
                published=10,
                delivered=10,
                dropped=18,
            )
        ]
        assert watch.sample(now_ms=2_001)[0].dropped_hz > 8

    def test_internal_channels_are_left_out(self) -> None:
        table = ChannelTable()
        watch = ChannelSampler(table, now_ms=0)
        for name in ("a", "$SYS/x", "$accord/query", "accord-response/ann/1"):
            publish(table, name, 1)
        assert [line.channel for line in watch.sample(now_ms=1_000)] == ["a"]
        assert watch.total == 1

    def test_all_activities_have_the_idle_ones_too(self) -> None:
        table = ChannelTable()
        watch = ChannelSampler(table, now_ms=0, busiest=1)
        for name, count in (("idle", 3), ("$SYS/x", 9), ("busy", 1)):
            publish(table, name, count)
        watch.sample(now_ms=1_000)
        for second in range(2, SAMPLES + 3):
            publish(table, "busy", 10)
            watch.sample(now_ms=second * 1_000)
        found = {each.channel: each for each in watch.activities()}
        assert found.keys() == {"idle", "busy"}
        assert found["idle"] == ChannelActivity(channel="idle", published=3, delivered=3)
        assert found["busy"].published_hz == 10

    def test_the_busiest_come_first_and_the_idle_go(self) -> None:
        table = ChannelTable(limit=2)
        watch = ChannelSampler(table, now_ms=0)
        for name, count in (("a", 1), ("b", 3), ("c", 2), ("d", 7)):
            publish(table, name, count)
        assert [line.channel for line in watch.sample(now_ms=1_000)] == ["other", "b", "a"]
        for look in range(SAMPLES):
            publish(table, "a", 1)
            lines = watch.sample(now_ms=2_000 + look * 1_000)
        assert [line.channel for line in lines] == ["a"]
        assert lines[0].published_hz == 1

    def test_what_rested_has_a_rate_of_now_when_it_goes_on(self) -> None:
        table = ChannelTable()
        watch = ChannelSampler(table, now_ms=0)
        publish(table, "a", 100)
        for second in range(1, 60):
            watch.sample(now_ms=second * 1_000)
        publish(table, "a", 5)
        (line,) = watch.sample(now_ms=60_000)
        assert (line.published_hz, line.published) == (5, 105)

    def test_among_too_many_the_busiest_are_measured_and_the_others_catch_up(self) -> None:
        table = ChannelTable()
        watch = ChannelSampler(table, now_ms=0, busiest=2)
        for name, count in (("a", 4), ("b", 9), ("c", 6)):
            publish(table, name, count)
        assert [line.channel for line in watch.sample(now_ms=1_000)] == ["b", "c"]
        publish(table, "a", 4)
        lines = {line.channel: line for line in watch.sample(now_ms=2_000)}
        assert {name: line.published_hz for name, line in lines.items()} == {"b": 4.5, "a": 4}

    def test_one_that_was_left_out_is_measured_over_all_its_time(self) -> None:
        table = ChannelTable()
        watch = ChannelSampler(table, now_ms=0, busiest=1)
        publish(table, "a", 1)
        publish(table, "b", 2)
        assert [line.channel for line in watch.sample(now_ms=1_000)] == ["b"]
        publish(table, "a", 7, size=1_000_000)
        (line,) = watch.sample(now_ms=2_000)
        assert (line.channel, line.published_hz) == ("a", 4)


class TestClients:
    def test_rates_and_what_stands(self) -> None:
        readings = [ClientReading(client="a", user="ann", sent=10, sent_bytes=1_000, shed=1)]
        watch = ClientSampler(lambda: readings)
        (line,) = watch.sample(now_ms=0)
        assert (line.sent_hz, line.sent_kbps, line.shed) == (0, 0, 1)
        readings[0] = ClientReading(
            client="a", sent=30, sent_bytes=3_000, shed=5, replaced=2, queued_bytes=7, waiting_ms=9,
            link_kbps=300, rtt_ms=40,
        )  # fmt: skip
        (line,) = watch.sample(now_ms=2_000)
        assert (line.sent_hz, line.sent_kbps, line.shed_hz, line.shed) == (10, 8, 2, 5)
        assert (line.replaced_hz, line.replaced, line.waiting_ms) == (1, 2, 9)
        assert (line.queued_bytes, line.link_kbps, line.rtt_ms, line.limit_kbps) == (
            7, 300, 40, None,
        )  # fmt: skip

    def test_those_for_whom_most_waits_come_first(self) -> None:
        readings = [
            ClientReading(client="quiet"),
            ClientReading(client="waiting", queued_bytes=10),
            ClientReading(client="much", queued_bytes=99),
        ]
        watch = ClientSampler(lambda: readings, busiest=2)
        assert [line.client for line in watch.sample(now_ms=0)] == ["much", "waiting"]

    def test_those_that_left_are_forgotten(self) -> None:
        readings = [ClientReading(client="a"), ClientReading(client="b")]
        watch = ClientSampler(lambda: readings)
        assert len(watch.sample(now_ms=0)) == 2
        del readings[0]
        assert [line.client for line in watch.sample(now_ms=1_000)] == ["b"]
        assert len(watch) == 1

    def test_many_are_looked_at_some_at_a_time(self) -> None:
        asked = []

        def readings() -> Iterator[ClientReading]:
            for number in range(5):
                asked.append(number)
                yield ClientReading(client=str(number), sent=len(asked))

        watch = ClientSampler(readings, at_a_time=2)
        watch.sample(now_ms=0)
        assert asked == [0, 1]
        assert len(watch.sample(now_ms=1_000)) == 4
        assert len(watch.sample(now_ms=2_000)) == 5
        assert asked == [0, 1, 2, 3, 4]
        lines = {line.client: line for line in watch.sample(now_ms=4_000)}
        assert lines["0"].sent_hz == 1.25  # five more in the four seconds since it was looked at
        assert lines["2"].sent_hz == 0


def busy_table(channels: int) -> ChannelTable:
    table = ChannelTable()
    for number in range(channels):
        publish(table, f"c{number:04}", number + 1)
    return table


def test_what_is_asked_for_is_measured_however_busy_others_are() -> None:
    table = busy_table(20)
    sampler = ChannelSampler(table, now_ms=0, busiest=3)
    sampler.sample(now_ms=1_000)
    idle = sampler.activity("c0000")
    assert idle is not None
    assert (idle.published, idle.published_hz) == (1, 0)
    for number in range(20):
        publish(table, f"c{number:04}", number + 1)
    sampler.sample(now_ms=2_000)
    asked = sampler.activity("c0000")
    assert asked is not None
    assert (asked.published, asked.published_hz) == (2, 1)
    assert sampler.activity("nobody/knows") is None


def test_values_by_channel_are_those_of_the_rows() -> None:
    table = busy_table(8)
    table.get("c0003").count_dropped(2, is_expired=True)
    sampler = ChannelSampler(table, now_ms=0, busiest=3)
    sampler.is_shown = True
    sampler.sample(now_ms=1_000)
    table.get("idle")
    for field in ChannelActivity.__struct_fields__:
        if field == "channel":
            continue
        values = sampler.values(field)
        for name in sampler.names():
            row = sampler.activity(name)
            assert row is not None
            shown = getattr(row, field)
            value = values.get(name, 0)
            if field in ("published_kbps", "delivered_kbps"):
                value = kbps(value)
            assert (shown or 0) == value, (field, name)
    assert sampler.values("in_time") == {
        f"c{number:04}": round(4 / 6, 4) if number == 3 else 1.0 for number in range(8)
    }


def test_shown_clients_are_measured_before_their_turn() -> None:
    readings = {name: ClientReading(client=name) for name in ("a", "b", "c")}
    sampler = ClientSampler(lambda: list(readings.values()), at_a_time=1)
    sampler.sample(now_ms=0)
    sampler.measure([readings["c"]], now_ms=0)
    readings["c"] = ClientReading(client="c", sent=30, sent_bytes=3_000)
    sampler.measure([readings["c"]], now_ms=100)  # too early
    assert sampler.rates("c") == (0, 0, 0, 0)
    sampler.measure([readings["c"]], now_ms=1_000)
    assert sampler.rates("c") == (30, 24, 0, 0)
    assert sampler.values("sent_hz") == {"c": 30}
    assert sampler.rates("nobody") == (0, 0, 0, 0)
